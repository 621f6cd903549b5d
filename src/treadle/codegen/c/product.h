/* Products of matrices, a tile at a time: c[i * wide + j] = sum over r of a[i, r] * b[r, j].

   A tile is held in registers while r runs: a row of b is loaded as vectors, an element of each row
   of a is spread over a vector. The compiler's own vectors, as wide as the machine's: 8 rows of 32
   (16 of 16, 16 of 8) with AVX-512, 4 of 16 (8 of 8) with AVX2, 4 of 8 elsewhere. What is left of
   rows and columns is done by smaller tiles; columns that do not fill the smallest are done together
   with some before them.

   Rows of b lie apart, where nothing but asking brings them near in time: the first tile of a strip
   asks for rows some steps ahead (`far`). The tiles below read them again, so a strip is done for a
   piece of the terms at a time, which stays in the first cache. */
#define TR_INTO static inline __attribute__((always_inline, unused))
#define TR_APART static __attribute__((noinline, unused))
#ifdef __AVX512F__
#define TR_WIDE 16
#define TR_TALL 8
#elif defined(__AVX2__)
#define TR_WIDE 8
#define TR_TALL 4
#else
#define TR_WIDE 4
#define TR_TALL 4
#endif
#define TR_NARROW (TR_WIDE < 8 ? TR_WIDE : 8)
#define TR_AHEAD 8
#define TR_PIECE 128
#define TR_TILE_OF(name, lanes) \
    typedef float tr_p##name __attribute__((vector_size(4 * lanes))); \
    typedef float tr_q##name __attribute__((vector_size(4 * lanes), aligned(4), may_alias)); \
    TR_INTO void tr_tile_##name(const int rows, const int vectors, const int far, int64_t n, \
                                const float *a, int64_t down, int64_t along, const float *b, \
                                int64_t apart, float *c, int64_t wide, int more) \
    { \
        tr_p##name sum[2 * TR_TALL][2], row[2]; \
        _Pragma("GCC unroll 16") for (int i = 0; i < rows; ++i) \
            _Pragma("GCC unroll 2") for (int j = 0; j < vectors; ++j) { \
                sum[i][j] = (tr_p##name){0}; \
                if (more) sum[i][j] = *(tr_q##name *)(c + i * wide + j * lanes); \
            } \
        const float *from[4]; /* of every fourth row: what lies between is an address's own sum */ \
        _Pragma("GCC unroll 4") for (int i = 0; 4 * i < rows; ++i) from[i] = a + 4 * i * down; \
        for (int64_t r = 0; r < n; ++r, b += apart) { \
            if (far) \
                _Pragma("GCC unroll 2") for (int j = 0; j < vectors * lanes; j += 16) \
                    __builtin_prefetch(b + TR_AHEAD * apart + j); \
            _Pragma("GCC unroll 2") for (int j = 0; j < vectors; ++j) \
                row[j] = *(const tr_q##name *)(b + j * lanes); \
            _Pragma("GCC unroll 16") for (int i = 0; i < rows; ++i) { \
                const tr_p##name one = from[i / 4][i % 4 * down] - (tr_p##name){0}; \
                _Pragma("GCC unroll 2") for (int j = 0; j < vectors; ++j) \
                    sum[i][j] += one * row[j]; \
            } \
            _Pragma("GCC unroll 4") for (int i = 0; 4 * i < rows; ++i) from[i] += along; \
        } \
        _Pragma("GCC unroll 16") for (int i = 0; i < rows; ++i) \
            _Pragma("GCC unroll 2") for (int j = 0; j < vectors; ++j) \
                *(tr_q##name *)(c + i * wide + j * lanes) = sum[i][j]; \
    }
TR_TILE_OF(full, TR_WIDE)
TR_TILE_OF(part, TR_NARROW)

/* A strip of columns for any number of rows. */
#define TR_STRIP(name, kind, vectors) \
    TR_APART void name(int64_t rows, int64_t n, const float *a, int64_t down, int64_t along, \
                       const float *b, int64_t apart, float *c, int64_t wide, int more) \
    { \
        const int64_t tall = TR_TALL * 2 / vectors; \
        if (vectors == 2 && apart > 2 * TR_WIDE && rows >= tall) { \
            tr_tile_##kind(TR_TALL, vectors, 1, n, a, down, along, b, apart, c, wide, more); \
            rows -= tall, a += tall * down, c += tall * wide; \
        } \
        for (; rows >= tall; rows -= tall, a += tall * down, c += tall * wide) \
            tr_tile_##kind(TR_TALL * 2 / vectors, vectors, 0, n, a, down, along, b, apart, c, \
                           wide, more); \
        if (TR_TALL * 2 / vectors > 8 && rows >= 8) { \
            tr_tile_##kind(8, vectors, 0, n, a, down, along, b, apart, c, wide, more); \
            rows -= 8, a += 8 * down, c += 8 * wide; \
        } \
        if (TR_TALL * 2 / vectors > 4 && rows >= 4) { \
            tr_tile_##kind(4, vectors, 0, n, a, down, along, b, apart, c, wide, more); \
            rows -= 4, a += 4 * down, c += 4 * wide; \
        } \
        if (rows >= 2) { \
            tr_tile_##kind(2, vectors, 0, n, a, down, along, b, apart, c, wide, more); \
            rows -= 2, a += 2 * down, c += 2 * wide; \
        } \
        if (rows) tr_tile_##kind(1, vectors, 0, n, a, down, along, b, apart, c, wide, more); \
    }
TR_STRIP(tr_strip_two, full, 2)
TR_STRIP(tr_strip_one, full, 1)
TR_STRIP(tr_strip_part, part, 1)

/* What tr_product does for one piece of the terms. */
TR_APART void tr_product_piece(int64_t rows, int64_t columns, int64_t before, int64_t n,
                               const float *a, int64_t down, int64_t along, const float *b,
                               int64_t apart, float *c, int64_t wide, int more)
{
    int64_t j = 0;
    for (; j + 2 * TR_WIDE <= columns; j += 2 * TR_WIDE)
        tr_strip_two(rows, n, a, down, along, b + j, apart, c + j, wide, more);
    for (; j + TR_WIDE <= columns; j += TR_WIDE)
        tr_strip_one(rows, n, a, down, along, b + j, apart, c + j, wide, more);
    for (; TR_NARROW < TR_WIDE && j + TR_NARROW <= columns; j += TR_NARROW)
        tr_strip_part(rows, n, a, down, along, b + j, apart, c + j, wide, more);
    if (j == columns) return;
    const int64_t left = columns - j, back = TR_NARROW - left;
    float few[64][TR_NARROW];
    if (before + j >= back && rows <= 64) {
        tr_strip_part(rows, n, a, down, along, b + j - back, apart, few[0], TR_NARROW, 0);
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t k = 0; k < left; ++k)
                c[i * wide + j + k] = few[i][back + k] + (more ? c[i * wide + j + k] : 0);
        return;
    }
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t k = j; k < columns; ++k) {
            float sum = more ? c[i * wide + k] : 0;
            for (int64_t r = 0; r < n; ++r) sum += a[i * down + r * along] * b[r * apart + k];
            c[i * wide + k] = sum;
        }
}

/* A tile of which `before` more columns lie in front of b, that may be read for nothing; `more` adds
   to what c holds. */
TR_APART void tr_product(int64_t rows, int64_t columns, int64_t before, int64_t n, const float *a,
                         int64_t down, int64_t along, const float *b, int64_t apart, float *c,
                         int64_t wide, int more)
{
    const int64_t piece = rows > TR_TALL ? TR_PIECE : n;
    int64_t r = 0;
    do {
        const int64_t here = n - r < piece ? n - r : piece;
        tr_product_piece(rows, columns, before, here, a + r * along, down, along, b + r * apart,
                         apart, c, wide, more || r);
    } while ((r += piece) < n);
}

/* A matrix in panels: to[(k / lanes * n + r) * lanes + k % lanes] = from[k * own + r * along],
   zeros behind the last k. */
TR_APART void tr_panels(float *to, int64_t lanes, const float *from, int64_t count, int64_t own,
                        int64_t n, int64_t along)
{
    for (int64_t k = 0; k < count; k += lanes, to += n * lanes) {
        const float *x = from + k * own;
        const int64_t here = count - k < lanes ? count - k : lanes;
        int64_t r = 0;
        if (along == 1 && here % 16 == 0 && here == lanes)
            for (; r + 16 <= n; r += 16)
                for (int64_t q = 0; q < here; q += 16)
                    tr_turn(x + q * own + r, own, to + r * lanes + q, lanes);
        if (own == 1)
            for (; r < n; ++r) {
                memcpy(to + r * lanes, x + r * along, 4 * here);
                for (int64_t q = here; q < lanes; ++q) to[r * lanes + q] = 0;
            }
        for (; r < n; ++r) {
            for (int64_t q = 0; q < here; ++q) to[r * lanes + q] = x[q * own + r * along];
            for (int64_t q = here; q < lanes; ++q) to[r * lanes + q] = 0;
        }
    }
}

/* A tile whose rows lie in a panel of `lanes`, turned at the end: 16 columns of c at most.

   Rows of b that lie half a page apart, or whole pages, share the few places of the first cache that
   they can be in: they are brought together first, a piece at a time. */
TR_APART void tr_product_across(int64_t lanes, int64_t columns, int64_t n, const float *b,
                                int64_t across, int64_t along, const float *panel, float *c)
{
    enum { PIECE = 64 };
    float turned[16 * 32] __attribute__((aligned(64))), near[16 * PIECE] __attribute__((aligned(64)));
    const int64_t wide = lanes < 16 ? 16 : lanes;
    if (columns < 16 || lanes < 16) memset(turned, 0, sizeof turned);
    if (across % 512 || along != 1)
        tr_product(columns, lanes, 0, n, b, across, along, panel, lanes, turned, wide, 0);
    else
        for (int64_t r = 0; r < n; r += PIECE) {
            const int64_t here = n - r < PIECE ? n - r : PIECE;
            for (int64_t j = 0; j < columns; ++j)
                memcpy(near + j * PIECE, b + j * across + r, 4 * here);
            tr_product(columns, lanes, 0, here, near, PIECE, 1, panel + r * lanes, lanes, turned,
                       wide, r > 0);
        }
    for (int64_t q = 0; q < wide; q += 16) tr_turn(turned + q, wide, c + q * 16, 16);
}

/* Sums of a few rows and 4 columns (2), both factors of which lie along the terms: vectors go along
   them. What is loaded takes part in several products; the lanes are added up together at the end. */
#define TR_BESIDE (TR_TALL == 8 ? 4 : 2)
TR_INTO void tr_sums_along(const int rows, int64_t n, const float *a, int64_t down,
                           const float *const *b, float *c)
{
    float lanes[16 * 16] __attribute__((aligned(64))), turned[16 * 16] __attribute__((aligned(64)));
    float total[16] __attribute__((aligned(64))) = {0};
    tr_pfull sum[4 * TR_BESIDE], row[4];
    int64_t r = 0;
    _Pragma("GCC unroll 16") for (int k = 0; k < rows * TR_BESIDE; ++k) sum[k] = (tr_pfull){0};
    for (; r + TR_WIDE <= n; r += TR_WIDE) {
        _Pragma("GCC unroll 4") for (int i = 0; i < rows; ++i)
            row[i] = *(const tr_qfull *)(a + i * down + r);
        _Pragma("GCC unroll 4") for (int j = 0; j < TR_BESIDE; ++j) {
            const tr_pfull one = *(const tr_qfull *)(b[j] + r);
            _Pragma("GCC unroll 4") for (int i = 0; i < rows; ++i)
                sum[i * TR_BESIDE + j] += row[i] * one;
        }
    }
    memset(lanes, 0, sizeof lanes);
    _Pragma("GCC unroll 16") for (int k = 0; k < rows * TR_BESIDE; ++k)
        *(tr_qfull *)(lanes + 16 * k) = sum[k];
    tr_turn(lanes, 16, turned, 16);
    for (int q = 0; q < TR_WIDE; ++q)
        for (int k = 0; k < 16; ++k) total[k] += turned[16 * q + k];
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < TR_BESIDE; ++j) {
            float left = 0;
            for (int64_t q = r; q < n; ++q) left += a[i * down + q] * b[j][q];
            c[16 * i + j] = total[i * TR_BESIDE + j] + left;
        }
}

/* A tile of at most 8 rows and 16 columns whose factors lie along the terms, as they lie. */
TR_APART void tr_product_along(int64_t rows, int64_t columns, int64_t n, const float *a,
                               int64_t down, const float *b, int64_t across, float *c)
{
    memset(c, 0, 16 * 16 * sizeof *c);
    for (int64_t j = 0; j < columns; j += TR_BESIDE) {
        const float *from[TR_BESIDE];
        float few[16 * 4];
        /* Behind the last column the last one again. */
        for (int k = 0; k < TR_BESIDE; ++k)
            from[k] = b + (j + k < columns ? j + k : columns - 1) * across;
        for (int64_t i = 0; i < rows; i += 4) {
            const float *x = a + i * down;
            switch (rows - i) {
            case 1: tr_sums_along(1, n, x, down, from, few); break;
            case 2: tr_sums_along(2, n, x, down, from, few); break;
            case 3: tr_sums_along(3, n, x, down, from, few); break;
            default: tr_sums_along(4, n, x, down, from, few);
            }
            for (int64_t q = i; q < rows && q < i + 4; ++q)
                for (int k = 0; k < TR_BESIDE; ++k) c[16 * q + j + k] = few[16 * (q - i) + k];
        }
    }
}
