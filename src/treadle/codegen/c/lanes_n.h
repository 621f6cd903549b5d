/* What fast.h is made of, for a vector of $n floats. */
#undef TR_F
#undef TR_I
#undef TR_U
#undef TR_NAME
#undef TR_ALL
#undef TR_BITS
#undef TR_FLOAT
#undef TR_NUMBER
#undef TR_WHERE
#undef TR_AT_LEAST
#undef TR_AT_MOST
#undef TR_SCALED
#undef TR_FN
#define TR_F tr_f$n
#define TR_I tr_i$n
#define TR_U tr_u$n
#define TR_FN TR_INSIDE
#define TR_NAME(f) tr_lanes_$n##_##f
#define TR_ALL(c) tr_all_$n(c)
#define TR_BITS(x) ((tr_u$n)(x))
#define TR_FLOAT(i) ((tr_f$n)(i))
#define TR_NUMBER(i) __builtin_convertvector(i, tr_f$n)
#define TR_WHERE(c, a, b) tr_where_$n(c, a, b)
#define TR_AT_LEAST(x, c) tr_larger_$n(tr_all_$n(c), x)
#define TR_AT_MOST(x, c) tr_smaller_$n(tr_all_$n(c), x)
#if $n == 16
#define TR_SCALED(p, n, e) __builtin_ia32_scalefps512_mask(p, n, p, -1, 4)
#elif $n == 8 && defined(__AVX512VL__)
#define TR_SCALED(p, n, e) __builtin_ia32_scalefps256_mask(p, n, p, -1)
#elif $n == 4 && defined(__AVX512VL__)
#define TR_SCALED(p, n, e) __builtin_ia32_scalefps128_mask(p, n, p, -1)
#else
#define TR_SCALED(p, n, e) tr_scaled_$n(p, e)
#endif
