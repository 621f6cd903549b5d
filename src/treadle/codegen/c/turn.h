/* A block of 16 by 16 elements of 32 bits, turned: y[i * along + k] = x[k * apart + i].
   Elements of 16 bits become 32 on the way (tr_turn_16).

   Stores across the memory take a cycle for each element; shuffles of whole vectors move a block in
   a fifth of that time. Vectors of the compiler's, whose shuffles it knows instructions for. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__AVX2__)
#ifdef __AVX512F__
#define TR_TURNED 16
#else
#define TR_TURNED 8
#endif
typedef int32_t tr_row __attribute__((vector_size(4 * TR_TURNED)));
typedef int32_t tr_row_at __attribute__((vector_size(4 * TR_TURNED), aligned(4), may_alias));
#define TR_MIXED(a, b, ...) __builtin_shuffle(a, b, (tr_row){__VA_ARGS__})
#ifdef __AVX512F__
#define TR_LOW_1(a, b) \
    TR_MIXED(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define TR_HIGH_1(a, b) \
    TR_MIXED(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define TR_LOW_2(a, b) \
    TR_MIXED(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define TR_HIGH_2(a, b) \
    TR_MIXED(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#define TR_LOW_4(a, b) \
    TR_MIXED(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27)
#define TR_HIGH_4(a, b) \
    TR_MIXED(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31)
#define TR_LOW_8(a, b) \
    TR_MIXED(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define TR_HIGH_8(a, b) \
    TR_MIXED(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
#else
#define TR_LOW_1(a, b) \
    TR_MIXED(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define TR_HIGH_1(a, b) \
    TR_MIXED(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define TR_LOW_2(a, b) \
    TR_MIXED(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define TR_HIGH_2(a, b) \
    TR_MIXED(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define TR_LOW_4(a, b) \
    TR_MIXED(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define TR_HIGH_4(a, b) \
    TR_MIXED(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#endif

typedef uint16_t tr_narrow_at __attribute__((vector_size(2 * TR_TURNED), aligned(2), may_alias));

TR_FN void tr_turn_rows(tr_row *r, int32_t *y, int64_t along)
{
    tr_row t[TR_TURNED];
#pragma GCC unroll 16
    for (int k = 0; k < TR_TURNED; k += 2) {
        t[k] = TR_LOW_1(r[k], r[k + 1]);
        t[k + 1] = TR_HIGH_1(r[k], r[k + 1]);
    }
#pragma GCC unroll 16
    for (int k = 0; k < TR_TURNED; k += 4) {
        r[k] = TR_LOW_2(t[k], t[k + 2]);
        r[k + 1] = TR_HIGH_2(t[k], t[k + 2]);
        r[k + 2] = TR_LOW_2(t[k + 1], t[k + 3]);
        r[k + 3] = TR_HIGH_2(t[k + 1], t[k + 3]);
    }
#pragma GCC unroll 16
    for (int k = 0; k < TR_TURNED; ++k)
        t[k] = k & 4 ? TR_HIGH_4(r[k - 4], r[k]) : TR_LOW_4(r[k], r[k + 4]);
#ifdef __AVX512F__
#pragma GCC unroll 16
    for (int k = 0; k < TR_TURNED; ++k)
        r[k] = k & 8 ? TR_HIGH_8(t[k - 8], t[k]) : TR_LOW_8(t[k], t[k + 8]);
#define TR_LAST r
#else
#define TR_LAST t
#endif
#pragma GCC unroll 16
    for (int k = 0; k < TR_TURNED; ++k) *(tr_row_at *)(y + k * along) = TR_LAST[k];
}

#define TR_TURN(name, element, row) \
    TR_FN void name(const void *from, int64_t apart, void *to, int64_t along) \
    { \
        for (int k = 0; k < 16; k += TR_TURNED) \
            for (int i = 0; i < 16; i += TR_TURNED) { \
                const element *x = (const element *)from + k * apart + i; \
                tr_row r[TR_TURNED]; \
                for (int q = 0; q < TR_TURNED; ++q, x += apart) r[q] = row; \
                tr_turn_rows(r, (int32_t *)to + i * along + k, along); \
            } \
    }
TR_TURN(tr_turn, int32_t, *(const tr_row_at *)x)
TR_TURN(tr_turn_16, uint16_t, __builtin_convertvector(*(const tr_narrow_at *)x, tr_row))
#else
TR_FN void tr_turn(const void *from, int64_t apart, void *to, int64_t along)
{
    const int32_t *x = (const int32_t *)from;
    int32_t *y = (int32_t *)to;
    for (int k = 0; k < 16; ++k)
        for (int i = 0; i < 16; ++i) y[i * along + k] = x[k * apart + i];
}

TR_FN void tr_turn_16(const void *from, int64_t apart, void *to, int64_t along)
{
    const uint16_t *x = (const uint16_t *)from;
    int32_t *y = (int32_t *)to;
    for (int k = 0; k < 16; ++k)
        for (int i = 0; i < 16; ++i) y[i * along + k] = x[k * apart + i];
}
#endif
