/* fmod and remainder for $n elements of $T at once; written anew for each length and type.

   The C library subtracts bit by bit, which takes as long as fifty additions. Where a quotient is
   below 2^51 it is known but for one, and x - q * y is exact: floats in double, doubles by a
   product and a sum that are rounded together. Other elements, infinities and NaNs are the
   library's. */
typedef $T $v __attribute__((vector_size($n * sizeof($T))));
typedef double $d __attribute__((vector_size($n * 8)));
typedef int64_t $l __attribute__((vector_size($n * 8)));
typedef $whole $i __attribute__((vector_size($n * sizeof($whole))));

#if $n * 8 > TR_DOUBLES
/* Half by half: compilers take apart what is longer than a vector, element by element. */
TR_INSIDE $v tr_lanes_${n}_${s}fmod($v a, $v b)
{
    $half x[2], y[2];
    __builtin_memcpy(x, &a, sizeof a);
    __builtin_memcpy(y, &b, sizeof b);
    for (int k = 0; k < 2; ++k) x[k] = tr_lanes_${other}_${s}fmod(x[k], y[k]);
    __builtin_memcpy(&a, x, sizeof a);
    return a;
}
#else
TR_INSIDE $v tr_lanes_${n}_${s}fmod($v a, $v b)
{
    const $l given = ($l)__builtin_convertvector(a, $d);
    const $l by = ($l)__builtin_convertvector(b, $d);
    const $d x = ($d)(given & INT64_MAX), y = ($d)(by & INT64_MAX);
    const $d quotient = x / y, ones = ($d){0} + 1.0;
    const $l known = (quotient < 0x1p51) & (y < (double)INFINITY);
    /* To add 2^52 rounds to the nearest whole number. */
    $d q = (quotient + 0x1p52) - 0x1p52;
    q -= ($d)(($l)ones & (q > quotient));
    $d r = x - q * y;
    r += ($d)(($l)y & (r < 0.0));
    $v found = __builtin_convertvector(($d)(($l)r | (given & INT64_MIN)), $v);
    int64_t all = -1;
    for (int k = 0; k < $n; ++k) all &= known[k];
    if (TR_RARELY(!all))
        for (int k = 0; k < $n; ++k)
            if (!known[k]) found[k] = fmod$f(a[k], b[k]);
    return found;
}
#endif

TR_INSIDE $v tr_lanes_${n}_${s}remainder($v a, $v b)
{
    const $v left = tr_lanes_${n}_${s}fmod(a, b), beside = left + b;
    const $i other = (left != 0) & ((left < 0) ^ (b < 0));
    return ($v)((($i)beside & other) | (($i)left & ~other));
}

/* Under the name that the compiler gives the form of a function on vectors. */
#define TR_REMAINDER_${n}_$S(f) \
    __attribute__((visibility("hidden"))) $v tr_vector_$s##f##_$n($v a, $v b) \
        __asm__("_ZGV${isa}N${n}vv_tr_vector_$s" #f); \
    $v tr_vector_$s##f##_$n($v a, $v b) { return tr_lanes_${n}_$s##f(a, b); }
