/* Stable sorting of positions by a row of keys, and searching in sorted rows; NaN is greatest. */

#define TR_LESS_WHOLE(a, b) ((a) < (b))

#define TR_SORT(S, T, LESS)                                                                       \
    TR_FN void tr_sort_##S(const T *key, int64_t *order, int64_t *spare, int64_t n, int down)     \
    {                                                                                             \
        for (int64_t k = 0; k < n; ++k) order[k] = k;                                             \
        for (int64_t width = 1; width < n; width *= 2) {                                          \
            for (int64_t lo = 0; lo < n; lo += 2 * width) {                                       \
                int64_t mid = tr_min(lo + width, n), hi = tr_min(lo + 2 * width, n);              \
                int64_t a = lo, b = mid;                                                          \
                for (int64_t k = lo; k < hi; ++k) {                                               \
                    int take_b = a >= mid;                                                        \
                    if (a < mid && b < hi) {                                                      \
                        T x = key[order[a]], y = key[order[b]];                                   \
                        take_b = down ? LESS(x, y) : LESS(y, x);                                  \
                    }                                                                             \
                    spare[k] = take_b ? order[b++] : order[a++];                                  \
                }                                                                                 \
            }                                                                                     \
            memcpy(order, spare, (size_t)n * sizeof *order);                                      \
        }                                                                                         \
    }

TR_SORT(u8, uint8_t, TR_LESS_WHOLE)
TR_SORT(i8, int8_t, TR_LESS_WHOLE)
TR_SORT(i16, int16_t, TR_LESS_WHOLE)
TR_SORT(i32, int32_t, TR_LESS_WHOLE)
TR_SORT(i64, int64_t, TR_LESS_WHOLE)
TR_SORT(u16, uint16_t, TR_LESS_WHOLE)
TR_SORT(u32, uint32_t, TR_LESS_WHOLE)
TR_SORT(u64, uint64_t, TR_LESS_WHOLE)
TR_SORT(f32, float, tr_less_f32)
TR_SORT(f64, double, tr_less_f64)
