/* Stable sorting of positions by a row of keys, and searching in sorted rows; NaN is greatest.

   Keys become whole numbers of 32 bits in the same order, each with its place behind it: then no two
   are equal, every way to sort them is stable, and there is nothing to look up on the way. Rows that
   fit into TR_LONGEST places go through a network of minima and maxima on whole vectors, short ones
   without vectors are put in place one by one, longer ones go by their bytes. Keys of 64 bits go
   by 32 that tell most of a row apart; those that they do not are merged. */

TR_FN uint64_t tr_rank_u8(uint8_t x) { return x; }
TR_FN uint64_t tr_rank_u16(uint16_t x) { return x; }
TR_FN uint64_t tr_rank_u32(uint32_t x) { return x; }
TR_FN uint64_t tr_rank_u64(uint64_t x) { return x; }
TR_FN uint64_t tr_rank_i8(int8_t x) { return (uint8_t)x ^ 0x80u; }
TR_FN uint64_t tr_rank_i16(int16_t x) { return (uint16_t)x ^ 0x8000u; }
TR_FN uint64_t tr_rank_i32(int32_t x) { return (uint32_t)x ^ 0x80000000u; }
TR_FN uint64_t tr_rank_i64(int64_t x) { return (uint64_t)x ^ ((uint64_t)1 << 63); }
/* Both zeros are equal, and so are all NaNs. */
TR_FN uint64_t tr_rank_f64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    const uint64_t sign = (uint64_t)1 << 63, rank = u ^ ((uint64_t)((int64_t)u >> 63) | sign);
    return x != x ? UINT64_MAX : x == 0 ? sign : rank;
}
TR_FN uint64_t tr_rank_f32(float x)
{
    const uint32_t u = tr_bits_f32(x), rank = u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u);
    return x != x ? 0xffffffffu : x == 0 ? 0x80000000u : rank;
}

#if defined(__GNUC__) && !defined(__clang__) && defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_pminsq512_mask) && __has_builtin(__builtin_ia32_pmaxsq512_mask)
#define TR_LANES_SORTED 8
#define TR_LONGEST 2048
#endif
#elif defined(__GNUC__) && !defined(__clang__) && defined(__AVX2__)
#define TR_LANES_SORTED 4
#define TR_LONGEST 512
#endif
#ifdef TR_LONGEST
#define TR_IN_SORT static inline __attribute__((always_inline, unused))
typedef long long tr_ranks __attribute__((vector_size(8 * TR_LANES_SORTED), may_alias));

#if TR_LANES_SORTED == 8
#define TR_RANK_PLACES (tr_ranks){0, 1, 2, 3, 4, 5, 6, 7}
TR_IN_SORT tr_ranks tr_lesser(tr_ranks a, tr_ranks b)
{
    return __builtin_ia32_pminsq512_mask(a, b, a, -1);
}
TR_IN_SORT tr_ranks tr_greater(tr_ranks a, tr_ranks b)
{
    return __builtin_ia32_pmaxsq512_mask(a, b, a, -1);
}
#else
#define TR_RANK_PLACES (tr_ranks){0, 1, 2, 3}
TR_IN_SORT tr_ranks tr_lesser(tr_ranks a, tr_ranks b)
{
    const tr_ranks first = a < b;
    return (a & first) | (b & ~first);
}
TR_IN_SORT tr_ranks tr_greater(tr_ranks a, tr_ranks b)
{
    const tr_ranks first = a < b;
    return (b & first) | (a & ~first);
}
#endif

/* Each lane beside the one at its place ^ flip; of two, that with the bit `up` gets the greater. */
TR_IN_SORT tr_ranks tr_beside(tr_ranks x, const int flip, const int up)
{
    const tr_ranks is_up = (TR_RANK_PLACES & up) != 0;
    const tr_ranks other = __builtin_shuffle(x, TR_RANK_PLACES ^ flip);
    return (tr_greater(x, other) & is_up) | (tr_lesser(x, other) & ~is_up);
}
TR_IN_SORT tr_ranks tr_turned(tr_ranks x)
{
    return __builtin_shuffle(x, TR_RANK_PLACES ^ (TR_LANES_SORTED - 1));
}
/* In order, if it first rises and then falls, or the other way round. */
TR_IN_SORT tr_ranks tr_lanes_merged(tr_ranks x)
{
    if (TR_LANES_SORTED == 8) x = tr_beside(x, 4, 4);
    return tr_beside(tr_beside(x, 2, 2), 1, 1);
}
TR_IN_SORT tr_ranks tr_lanes_sorted(tr_ranks x)
{
    x = tr_beside(tr_beside(tr_beside(x, 1, 1), 3, 2), 1, 1);
    if (TR_LANES_SORTED == 8) x = tr_beside(tr_beside(tr_beside(x, 7, 4), 2, 2), 1, 1);
    return x;
}
/* Runs of w vectors, each of two halves in order, become runs in order. */
static __attribute__((noinline, unused)) void tr_merge_runs(tr_ranks *v, int64_t n, int64_t w)
{
    for (tr_ranks *x = v; x < v + n; x += w) {
        for (int64_t i = 0; i < w / 2; ++i) {
            const tr_ranks a = x[i], b = tr_turned(x[w - 1 - i]);
            tr_ranks low = tr_lesser(a, b), high = tr_turned(tr_greater(a, b));
            if (w == 2) low = tr_lanes_merged(low), high = tr_lanes_merged(high);
            x[i] = low, x[w - 1 - i] = high;
        }
        int64_t far = w / 4;
        for (; far > 1; far /= 4) { /* two distances at a time, so that less goes through memory */
            const int64_t near = far / 2;
            for (int64_t d = 0; d < w; d += 2 * far)
                for (tr_ranks *y = x + d; y < x + d + near; ++y) {
                    const tr_ranks a = tr_lesser(y[0], y[far]), c = tr_greater(y[0], y[far]);
                    const tr_ranks b = tr_lesser(y[near], y[far + near]);
                    const tr_ranks d = tr_greater(y[near], y[far + near]);
                    tr_ranks all[] = {tr_lesser(a, b), tr_greater(a, b), tr_lesser(c, d),
                                      tr_greater(c, d)};
                    if (near == 1)
                        for (int k = 0; k < 4; ++k) all[k] = tr_lanes_merged(all[k]);
                    y[0] = all[0], y[near] = all[1], y[far] = all[2], y[far + near] = all[3];
                }
        }
        if (far == 1)
            for (int64_t i = 0; i < w; i += 2) {
                const tr_ranks a = x[i], b = x[i + 1];
                x[i] = tr_lanes_merged(tr_lesser(a, b));
                x[i + 1] = tr_lanes_merged(tr_greater(a, b));
            }
    }
}
static __attribute__((noinline, unused)) void tr_sort_network(uint64_t *order, int64_t n)
{
    tr_ranks v[TR_LONGEST / TR_LANES_SORTED];
    int64_t all = 1, *one = (int64_t *)v;
    while (all * TR_LANES_SORTED < n) all *= 2;
    /* Vectors compare numbers with a sign; what fills up is greater than all that have a place. */
    for (int64_t k = 0; k < n; ++k) one[k] = (int64_t)(order[k] ^ ((uint64_t)1 << 63));
    for (int64_t k = n; k < all * TR_LANES_SORTED; ++k) one[k] = INT64_MAX;
    for (int64_t k = 0; k < all; ++k) v[k] = tr_lanes_sorted(v[k]);
    for (int64_t w = 2; w <= all; w *= 2) tr_merge_runs(v, all, w);
    for (int64_t k = 0; k < n; ++k) order[k] = (uint32_t)one[k];
}
#endif

/* One by one, each in front of the greater ones. */
TR_FN void tr_sort_few(uint64_t *order, int64_t n)
{
    for (int64_t k = 1; k < n; ++k) {
        const uint64_t x = order[k];
        int64_t at = k;
        for (; at > 0 && order[at - 1] > x; --at) order[at] = order[at - 1];
        order[at] = x;
    }
    for (int64_t k = 0; k < n; ++k) order[k] = (uint32_t)order[k];
}

/* By each byte of the key, the last one first; a byte that all keys share needs no walk. */
static void TR_MAYBE_UNUSED tr_sort_bytes(uint64_t *order, uint64_t *spare, int64_t n)
{
    uint32_t count[4][256];
    uint64_t *from = order, *to = spare;
    memset(count, 0, sizeof count);
    for (int64_t k = 0; k < n; ++k)
        for (int d = 0; d < 4; ++d) count[d][order[k] >> (32 + 8 * d) & 255]++;
    for (int d = 0; d < 4; ++d) {
        uint32_t sum = 0, *next = count[d];
        if (next[from[0] >> (32 + 8 * d) & 255] == n) continue;
        for (int b = 0; b < 256; ++b) {
            const uint32_t here = next[b];
            next[b] = sum;
            sum += here;
        }
        for (int64_t k = 0; k < n; ++k) to[next[from[k] >> (32 + 8 * d) & 255]++] = from[k];
        uint64_t *const sorted = to;
        to = from;
        from = sorted;
    }
    for (int64_t k = 0; k < n; ++k) order[k] = (uint32_t)from[k];
}

/* Ranks with their places behind them become places in order. */
TR_FN void tr_put_in_order(uint64_t *order, uint64_t *spare, int64_t n)
{
#ifdef TR_LONGEST
    if (n <= TR_LONGEST) tr_sort_network(order, n);
#else
    if (n <= 32) tr_sort_few(order, n);
#endif
    else tr_sort_bytes(order, spare, n);
}

/* `IS_WIDE` says that ranks have 64 bits: how far each is from the least one, without as many of the
   last bits as needs be. Ranks that are equal then are merged afterwards. */
#define TR_SORT(S, T, IS_WIDE)                                                                    \
    static void TR_MAYBE_UNUSED tr_sort_merging_##S(const T *key, int64_t *order, int64_t *spare, \
                                                    int64_t n, int down)                          \
    {                                                                                             \
        for (int64_t width = 1; width < n; width *= 2) {                                          \
            for (int64_t lo = 0; lo < n; lo += 2 * width) {                                       \
                int64_t mid = tr_min(lo + width, n), hi = tr_min(lo + 2 * width, n);              \
                int64_t a = lo, b = mid;                                                          \
                for (int64_t k = lo; k < hi; ++k) {                                               \
                    int take_b = a >= mid;                                                        \
                    if (a < mid && b < hi) {                                                      \
                        const uint64_t x = tr_rank_##S(key[order[a]]);                            \
                        const uint64_t y = tr_rank_##S(key[order[b]]);                            \
                        take_b = down ? x < y : y < x;                                            \
                    }                                                                             \
                    spare[k] = take_b ? order[b++] : order[a++];                                  \
                }                                                                                 \
            }                                                                                     \
            memcpy(order, spare, (size_t)n * sizeof *order);                                      \
        }                                                                                         \
    }                                                                                             \
    static void TR_MAYBE_UNUSED tr_sort_##S(const T *key, int64_t *order, int64_t *spare,         \
                                            int64_t n, int down)                                  \
    {                                                                                             \
        uint64_t *const to = (uint64_t *)order, least = 0, most = UINT32_MAX;                     \
        int left_out = 0;                                                                         \
        if (n > UINT32_MAX) {                                                                     \
            for (int64_t k = 0; k < n; ++k) order[k] = k;                                         \
            tr_sort_merging_##S(key, order, spare, n, down);                                      \
            return;                                                                               \
        }                                                                                         \
        if (IS_WIDE && n) {                                                                       \
            least = most = tr_rank_##S(key[0]);                                                   \
            for (int64_t k = 1; k < n; ++k) {                                                     \
                const uint64_t x = tr_rank_##S(key[k]);                                           \
                least = x < least ? x : least;                                                    \
                most = x > most ? x : most;                                                       \
            }                                                                                     \
            while ((most - least) >> left_out > UINT32_MAX) ++left_out;                           \
        }                                                                                         \
        for (int64_t k = 0; k < n; ++k) {                                                         \
            const uint64_t x = tr_rank_##S(key[k]), rank = down ? most - x : x - least;           \
            to[k] = rank >> left_out << 32 | (uint64_t)k;                                         \
        }                                                                                         \
        tr_put_in_order(to, (uint64_t *)spare, n);                                                \
        for (int64_t lo = 0, hi; left_out && lo < n; lo = hi) {                                   \
            const uint64_t x = tr_rank_##S(key[order[lo]]), rank = down ? most - x : x - least;   \
            for (hi = lo + 1; hi < n; ++hi) {                                                     \
                const uint64_t y = tr_rank_##S(key[order[hi]]);                                   \
                if ((down ? most - y : y - least) >> left_out != rank >> left_out) break;         \
            }                                                                                     \
            if (hi > lo + 1) tr_sort_merging_##S(key, order + lo, spare, hi - lo, down);          \
        }                                                                                         \
    }

TR_SORT(u8, uint8_t, 0)
TR_SORT(i8, int8_t, 0)
TR_SORT(i16, int16_t, 0)
TR_SORT(i32, int32_t, 0)
TR_SORT(i64, int64_t, 1)
TR_SORT(u16, uint16_t, 0)
TR_SORT(u32, uint32_t, 0)
TR_SORT(u64, uint64_t, 1)
TR_SORT(f32, float, 0)
TR_SORT(f64, double, 1)
