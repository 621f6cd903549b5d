/* Loops that are written on whole vectors: as wide as the machine has them.

   tr_w holds TR_W floats, a tr_wi says of each whether a condition holds (all bits, or none). Where
   TR_WHOLE is not defined there are no such loops, and the compiler makes vectors of the plain
   ones. */
#if defined(TR_HAS_VECTORS) && defined(__F16C__) && defined(__has_builtin)
/* Compilers rename such functions now and then: those that lack one write plain loops. */
#ifdef __AVX512F__
#if __has_builtin(__builtin_ia32_cvtpd2ps512_mask) \
    && __has_builtin(__builtin_ia32_cvtps2pd512_mask) \
    && __has_builtin(__builtin_ia32_cvttps2dq512_mask) \
    && __has_builtin(__builtin_ia32_fixupimmps512_mask) \
    && __has_builtin(__builtin_ia32_insertf64x4_mask) \
    && __has_builtin(__builtin_ia32_loadups512_mask) \
    && __has_builtin(__builtin_ia32_pmovdb512_mask) \
    && __has_builtin(__builtin_ia32_pmovdw512_mask) \
    && __has_builtin(__builtin_ia32_pmovzxbd512_mask) \
    && __has_builtin(__builtin_ia32_pmovzxwd512_mask) \
    && __has_builtin(__builtin_ia32_pternlogd512_mask) \
    && __has_builtin(__builtin_ia32_ps512_256ps) \
    && __has_builtin(__builtin_ia32_ptestmd512) \
    && __has_builtin(__builtin_ia32_rndscaleps_mask) \
    && __has_builtin(__builtin_ia32_sqrtps512_mask) \
    && __has_builtin(__builtin_ia32_storeups512_mask) \
    && __has_builtin(__builtin_ia32_vcvtph2ps512_mask) \
    && __has_builtin(__builtin_ia32_vcvtps2ph512_mask)
#define TR_WHOLE 1
#endif
#elif __has_builtin(__builtin_ia32_cvtpd2ps256) \
    && __has_builtin(__builtin_ia32_cvtps2pd256) \
    && __has_builtin(__builtin_ia32_cvttps2dq256) \
    && __has_builtin(__builtin_ia32_maskloadps256) \
    && __has_builtin(__builtin_ia32_maskstoreps256) \
    && __has_builtin(__builtin_ia32_movmskps256) \
    && __has_builtin(__builtin_ia32_packusdw256) \
    && __has_builtin(__builtin_ia32_permdi256) \
    && __has_builtin(__builtin_ia32_pmovzxbd256) \
    && __has_builtin(__builtin_ia32_pmovzxwd256) \
    && __has_builtin(__builtin_ia32_ps256_ps) \
    && __has_builtin(__builtin_ia32_roundps256) \
    && __has_builtin(__builtin_ia32_sqrtps256) \
    && __has_builtin(__builtin_ia32_vcvtph2ps256) \
    && __has_builtin(__builtin_ia32_vcvtps2ph256) \
    && __has_builtin(__builtin_ia32_vinsertf128_ps256)
#define TR_WHOLE 1
#endif
#endif
#ifdef TR_WHOLE
typedef short tr_half8 __attribute__((vector_size(16)));
typedef char tr_byte16 __attribute__((vector_size(16)));
#ifdef __AVX512F__
#define TR_W 16
#define TR_LANES_OF(f) tr_lanes_16_##f
typedef tr_f16 tr_w;
typedef tr_i16 tr_wi;
typedef tr_u16 tr_wu;
typedef short tr_wh __attribute__((vector_size(32)));
#define tr_w_larger tr_larger_16
#define tr_w_smaller tr_smaller_16
#define tr_w_all tr_all_16
#define tr_w_where tr_where_16
#else
#define TR_W 8
#define TR_LANES_OF(f) tr_lanes_8_##f
typedef tr_f8 tr_w;
typedef tr_i8 tr_wi;
typedef tr_u8 tr_wu;
typedef tr_half8 tr_wh;
#define tr_w_larger tr_larger_8
#define tr_w_smaller tr_smaller_8
#define tr_w_all tr_all_8
#define tr_w_where tr_where_8
#endif
typedef float tr_w_there __attribute__((vector_size(4 * TR_W), aligned(2), may_alias));
typedef short tr_wh_there __attribute__((vector_size(2 * TR_W), aligned(2), may_alias));

/* ------------------------------------------------------------------ memory */

TR_INSIDE tr_w tr_w_load(const float *p) { return *(const tr_w_there *)p; }
TR_INSIDE void tr_w_store(float *p, tr_w x) { *(tr_w_there *)p = x; }
TR_INSIDE tr_wi tr_w_flags(const uint8_t *p)
{
#if TR_W == 16
    tr_byte16 s;
    __builtin_memcpy(&s, p, sizeof s);
    return (tr_wi)(__builtin_ia32_pmovzxbd512_mask(s, (tr_i16){0}, -1) != 0);
#else
    tr_byte16 s = {0};
    __builtin_memcpy(&s, p, 8);
    return (tr_wi)(__builtin_ia32_pmovzxbd256(s) != 0);
#endif
}
/* The last 8 bits of each. */
TR_INSIDE void tr_w_store_bytes(uint8_t *p, tr_wi x)
{
#if TR_W == 16
    const tr_byte16 s = __builtin_ia32_pmovdb512_mask(x, (tr_byte16){0}, -1);
    __builtin_memcpy(p, &s, sizeof s);
#else
    for (int k = 0; k < TR_W; ++k) p[k] = (uint8_t)x[k];
#endif
}
TR_INSIDE void tr_w_store_flags(uint8_t *p, tr_wi x) { tr_w_store_bytes(p, -x); }

/* Whole numbers that grow by the same step. */
TR_INSIDE tr_wi tr_w_places(int32_t first, int32_t step)
{
#if TR_W == 16
    return (tr_wi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} * step + first;
#else
    return (tr_wi){0, 1, 2, 3, 4, 5, 6, 7} * step + first;
#endif
}
/* What is left over at the end of a loop: the first n lanes, zeros in the others. */
TR_INSIDE tr_wi tr_w_first(int n)
{
    return (tr_wi)(tr_w_places(0, 1) < n);
}
TR_INSIDE tr_w tr_w_load_some(int n, const float *p)
{
#if TR_W == 16
    return __builtin_ia32_loadups512_mask(p, (tr_w){0}, (uint16_t)((1u << n) - 1));
#else
    return __builtin_ia32_maskloadps256((const tr_w *)p, tr_w_first(n));
#endif
}
TR_INSIDE void tr_w_store_some(int n, float *p, tr_w x)
{
#if TR_W == 16
    __builtin_ia32_storeups512_mask(p, x, (uint16_t)((1u << n) - 1));
#else
    __builtin_ia32_maskstoreps256((tr_w *)p, tr_w_first(n), x);
#endif
}
TR_INSIDE tr_wi tr_w_flags_some(int n, const uint8_t *p)
{
    uint8_t all[TR_W] = {0};
    for (int k = 0; k < n; ++k) all[k] = p[k];
    return tr_w_flags(all);
}
TR_INSIDE void tr_w_store_bytes_some(int n, uint8_t *p, tr_wi x)
{
    for (int k = 0; k < n; ++k) p[k] = (uint8_t)x[k];
}
TR_INSIDE void tr_w_store_flags_some(int n, uint8_t *p, tr_wi x) { tr_w_store_bytes_some(n, p, -x); }

/* ------------------------------------------------------------------ bf16 and f16 */

/* bf16 in the upper half of each lane; what is in the lower half says nothing. Half an ulp is added,
   one less where the last bit that stays is zero: ties go to even. "Mild" is what has a zero lower
   half wherever it is a NaN, so that nothing flows over there. */
TR_INSIDE tr_wu tr_w_even_bf16(tr_w x)
{
    const tr_wu u = (tr_wu)x;
#if TR_W == 16
    /* u + 0x7fff + last bit = u - (0xffff8000 | not last bit): one instruction less. */
    const tr_wi last = (tr_wi)(u >> 16), one = (tr_wi){0} + 1, rest = (tr_wi){0} - 0x8000;
    return u - (tr_wu)__builtin_ia32_pternlogd512_mask(last, one, rest, 0xae, -1);
#else
    return u + 0x7fffu + ((u >> 16) & 1u);
#endif
}
TR_INSIDE tr_wu tr_w_bits_bf16(tr_w x)
{
    const tr_wu even = tr_w_even_bf16(x);
#if TR_W == 16
    /* Where x is a NaN, that one, made quiet. */
    const tr_w y = __builtin_ia32_fixupimmps512_mask((tr_w)even, x, (tr_wi){0} + 0x22, 0, -1, 4);
    return (tr_wu)y;
#else
    return (tr_wu)tr_w_where((tr_wi)(x != x), (tr_w)((tr_wu)x | 0x00400000u), (tr_w)even);
#endif
}
/* A product that is a bf16 already, and nevertheless none that is rounded with a sum only. */
TR_INSIDE tr_w tr_w_apart(tr_w x)
{
#if TR_W == 16
    __asm__("" : "+v"(x));
#else
    __asm__("" : "+x"(x));
#endif
    return x;
}
TR_INSIDE tr_w tr_w_round_bf16(tr_w x) { return (tr_w)(tr_w_bits_bf16(x) & 0xffff0000u); }
TR_INSIDE tr_w tr_w_round_mild_bf16(tr_w x) { return (tr_w)(tr_w_even_bf16(x) & 0xffff0000u); }
TR_INSIDE tr_w tr_w_load_bf16(const uint16_t *p)
{
    const tr_wh s = *(const tr_wh_there *)p;
#if TR_W == 16
    return (tr_w)((tr_wu)__builtin_ia32_pmovzxwd512_mask(s, (tr_i16){0}, -1) << 16);
#else
    return (tr_w)((tr_wu)__builtin_ia32_pmovzxwd256(s) << 16);
#endif
}
/* Of what is rounded already. */
TR_INSIDE void tr_w_store_bf16(uint16_t *p, tr_w x)
{
#if TR_W == 16
    *(tr_wh_there *)p = __builtin_ia32_pmovdw512_mask((tr_i16)((tr_wu)x >> 16), (tr_wh){0}, -1);
#else
    const tr_wi s = (tr_wi)((tr_wu)x >> 16);
    typedef long long tr_l4 __attribute__((vector_size(32)));
    const tr_l4 both = (tr_l4)__builtin_ia32_packusdw256(s, s);
    const tr_l4 put = __builtin_ia32_permdi256(both, 0x08);
    __builtin_memcpy(p, &put, 16);
#endif
}
/* Two vectors of bf16 at once: those at even places, those at odd ones. */
TR_INSIDE tr_w tr_w_load_even_bf16(const uint16_t *p)
{
    return (tr_w)((tr_wu)tr_w_load((const float *)p) << 16);
}
TR_INSIDE tr_w tr_w_load_odd_bf16(const uint16_t *p)
{
    return (tr_w)((tr_wu)tr_w_load((const float *)p) & 0xffff0000u);
}
TR_INSIDE void tr_w_store_pair_bf16(uint16_t *p, tr_w even, tr_w odd)
{
    tr_w_store((float *)p, (tr_w)(((tr_wu)even >> 16) | ((tr_wu)odd & 0xffff0000u)));
}
TR_INSIDE tr_w tr_w_load_f16(const uint16_t *p)
{
#if TR_W == 16
    return __builtin_ia32_vcvtph2ps512_mask(*(const tr_wh_there *)p, (tr_w){0}, -1, 4);
#else
    return __builtin_ia32_vcvtph2ps256(*(const tr_wh_there *)p);
#endif
}
/* Rounds, once. */
TR_INSIDE void tr_w_store_f16(uint16_t *p, tr_w x)
{
#if TR_W == 16
    *(tr_wh_there *)p = __builtin_ia32_vcvtps2ph512_mask(x, 0, (tr_wh){0}, -1);
#else
    *(tr_wh_there *)p = __builtin_ia32_vcvtps2ph256(x, 0);
#endif
}
TR_INSIDE tr_w tr_w_round_f16(tr_w x)
{
#if TR_W == 16
    const tr_wh s = __builtin_ia32_vcvtps2ph512_mask(x, 0, (tr_wh){0}, -1);
    return __builtin_ia32_vcvtph2ps512_mask(s, (tr_w){0}, -1, 4);
#else
    return __builtin_ia32_vcvtph2ps256(__builtin_ia32_vcvtps2ph256(x, 0));
#endif
}

TR_INSIDE tr_wh tr_w_halves_some(int n, const uint16_t *p)
{
#if TR_W == 16 && defined(__AVX512BW__) && defined(__AVX512VL__)
    return __builtin_ia32_loaddquhi256_mask((const short *)p, (tr_wh){0}, (uint16_t)((1u << n) - 1));
#else
    tr_wh s = {0};
    for (int k = 0; k < n; ++k) s[k] = (short)p[k];
    return s;
#endif
}
TR_INSIDE void tr_w_put_halves_some(int n, uint16_t *p, tr_wh s)
{
#if TR_W == 16 && defined(__AVX512BW__) && defined(__AVX512VL__)
    __builtin_ia32_storedquhi256_mask((short *)p, s, (uint16_t)((1u << n) - 1));
#else
    for (int k = 0; k < n; ++k) p[k] = (uint16_t)s[k];
#endif
}
#define TR_W_SOME(kind) \
    TR_INSIDE tr_w tr_w_load_##kind##_some(int n, const uint16_t *p) \
    { \
        const tr_wh s = tr_w_halves_some(n, p); \
        return tr_w_load_##kind((const uint16_t *)&s); \
    } \
    TR_INSIDE void tr_w_store_##kind##_some(int n, uint16_t *p, tr_w x) \
    { \
        tr_wh s; \
        tr_w_store_##kind((uint16_t *)&s, x); \
        tr_w_put_halves_some(n, p, s); \
    }
TR_W_SOME(bf16)
TR_W_SOME(f16)

/* ------------------------------------------------------------------ one by one */

TR_INSIDE tr_wi tr_w_is(uint8_t c) { return (tr_wi){0} - (c != 0); }
TR_INSIDE tr_w tr_w_abs(tr_w x) { return (tr_w)((tr_wu)x & 0x7fffffffu); }
TR_INSIDE tr_w tr_w_maximum(tr_w a, tr_w b) { return tr_w_where((a > b) | (a != a), a, b); }
TR_INSIDE tr_w tr_w_minimum(tr_w a, tr_w b) { return tr_w_where((a < b) | (a != a), a, b); }
/* The same where b is no NaN. */
TR_INSIDE tr_w tr_w_at_least(tr_w a, tr_w b) { return tr_w_where((tr_wi)(a <= b), b, a); }
TR_INSIDE tr_w tr_w_at_most(tr_w a, tr_w b) { return tr_w_where((tr_wi)(a >= b), b, a); }
/* The same where b is no zero either: equal numbers are one. */
#define tr_w_at_least_nonzero(a, b) tr_w_larger(b, a)
#define tr_w_at_most_nonzero(a, b) tr_w_smaller(b, a)
#if TR_W == 16
#define TR_W_WHOLE(name, how) \
    TR_INSIDE tr_w name(tr_w x) { return __builtin_ia32_rndscaleps_mask(x, how, x, -1, 4); }
#else
#define TR_W_WHOLE(name, how) \
    TR_INSIDE tr_w name(tr_w x) { return __builtin_ia32_roundps256(x, how); }
#endif
TR_W_WHOLE(tr_w_nearbyint, 12)
TR_W_WHOLE(tr_w_floor, 9)
TR_W_WHOLE(tr_w_ceil, 10)
TR_W_WHOLE(tr_w_trunc, 11)
/* A number with the last 8 bits of a float's whole part: what 32 bits cannot hold, and a NaN, is
   made 2^31, whose last bits are zeros as those of all larger floats are. */
TR_INSIDE tr_wi tr_w_to_8_bits(tr_w x)
{
#if TR_W == 16
    return __builtin_ia32_cvttps2dq512_mask(x, (tr_wi){0}, -1, 4);
#else
    return __builtin_ia32_cvttps2dq256(x);
#endif
}
TR_INSIDE tr_wi tr_w_u8(tr_wi x) { return x & 0xff; }
TR_INSIDE tr_wi tr_w_i8(tr_wi x) { return (tr_wi)((tr_wu)x << 24) >> 24; }
TR_INSIDE tr_w tr_w_sqrt(tr_w x)
{
#if TR_W == 16
    return __builtin_ia32_sqrtps512_mask(x, x, -1, 4);
#else
    return __builtin_ia32_sqrtps256(x);
#endif
}

/* ------------------------------------------------------------------ all together */

TR_INSIDE tr_f4 tr_w_quarter(tr_w x, int k)
{
    tr_f4 y;
    __builtin_memcpy(&y, (const char *)&x + 16 * k, 16);
    return y;
}
#define TR_W_TOGETHER(name, two) \
    TR_INSIDE float name(tr_w x) \
    { \
        tr_f4 a = tr_w_quarter(x, 0), b = tr_w_quarter(x, 1); \
        a = two(a, b); \
        if (TR_W == 16) { \
            const tr_f4 c = tr_w_quarter(x, TR_W / 8), d = tr_w_quarter(x, TR_W / 4 - 1); \
            b = two(c, d); \
            a = two(a, b); \
        } \
        b = __builtin_shuffle(a, (tr_i4){2, 3, 0, 1}); \
        a = two(a, b); \
        b = __builtin_shuffle(a, (tr_i4){1, 0, 3, 2}); \
        a = two(a, b); \
        return a[0]; \
    }
#define TR_PLUS(a, b) ((a) + (b))
#define TR_TIMES(a, b) ((a) * (b))
TR_W_TOGETHER(tr_w_sum, TR_PLUS)
TR_W_TOGETHER(tr_w_product, TR_TIMES)
TR_W_TOGETHER(tr_w_most, tr_larger_4)
TR_W_TOGETHER(tr_w_least, tr_smaller_4)
TR_INSIDE int32_t tr_w_any(tr_wi x)
{
#if TR_W == 16
    return __builtin_ia32_ptestmd512(x, x, -1) != 0;
#else
    return __builtin_ia32_movmskps256((tr_w)x) != 0;
#endif
}

/* How many conditions held, of which each lane has taken its own away from zero. */
TR_INSIDE int64_t tr_w_counted(tr_wi x)
{
    int64_t found = 0;
    for (int k = 0; k < TR_W; ++k) found -= x[k];
    return found;
}

/* ------------------------------------------------------------------ scans

   What each lane is combined with all before it: first with the one before, then with two, four, ...
   Sums and products in double; `state` is what went before the first lane. */
typedef float tr_w_half __attribute__((vector_size(2 * TR_W)));
typedef double tr_wd __attribute__((vector_size(4 * TR_W)));
typedef long long tr_wl __attribute__((vector_size(4 * TR_W)));
#define TR_WD (TR_W / 2)
#if TR_W == 16
typedef double tr_wd_half __attribute__((vector_size(32)));
TR_INSIDE tr_wd tr_wd_of(tr_w_half x)
{
    return __builtin_ia32_cvtps2pd512_mask(x, (tr_wd){0}, -1, 4);
}
TR_INSIDE tr_w_half tr_wd_floats(tr_wd x)
{
    return __builtin_ia32_cvtpd2ps512_mask(x, (tr_w_half){0}, -1, 4);
}
TR_INSIDE tr_w tr_w_of_halves(tr_w_half low, tr_w_half high)
{
    const tr_wd both = (tr_wd)__builtin_ia32_ps512_256ps(low);
    return (tr_w)__builtin_ia32_insertf64x4_mask(both, (tr_wd_half)high, 1, both, -1);
}
TR_INSIDE tr_wd tr_wd_all(double x) { return (tr_wd){x, x, x, x, x, x, x, x}; }
#else
TR_INSIDE tr_wd tr_wd_of(tr_w_half x) { return __builtin_ia32_cvtps2pd256(x); }
TR_INSIDE tr_w_half tr_wd_floats(tr_wd x) { return __builtin_ia32_cvtpd2ps256(x); }
TR_INSIDE tr_w tr_w_of_halves(tr_w_half low, tr_w_half high)
{
    return __builtin_ia32_vinsertf128_ps256(__builtin_ia32_ps256_ps(low), high, 1);
}
TR_INSIDE tr_wd tr_wd_all(double x) { return (tr_wd){x, x, x, x}; }
#endif
/* The lanes 1, 2, 4 or 8 places later; before them, what f has in all. Each with a constant of its
   own: others are put together one by one. */
#define TR_LATER(name, T, ...) \
    TR_INSIDE T name(T x, T f) { return __builtin_shuffle(x, f, (T##_at){__VA_ARGS__}); }
typedef tr_wi tr_w_at;
typedef tr_wl tr_wd_at;
#if TR_W == 16
TR_LATER(tr_wd_later_1, tr_wd, 8, 0, 1, 2, 3, 4, 5, 6)
TR_LATER(tr_wd_later_2, tr_wd, 8, 8, 0, 1, 2, 3, 4, 5)
TR_LATER(tr_wd_later_4, tr_wd, 8, 8, 8, 8, 0, 1, 2, 3)
TR_LATER(tr_w_later_1, tr_w, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
TR_LATER(tr_w_later_2, tr_w, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
TR_LATER(tr_w_later_4, tr_w, 16, 16, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
TR_LATER(tr_w_later_8, tr_w, 16, 16, 16, 16, 16, 16, 16, 16, 0, 1, 2, 3, 4, 5, 6, 7)
#else
TR_LATER(tr_wd_later_1, tr_wd, 4, 0, 1, 2)
TR_LATER(tr_wd_later_2, tr_wd, 4, 4, 0, 1)
TR_LATER(tr_w_later_1, tr_w, 8, 0, 1, 2, 3, 4, 5, 6)
TR_LATER(tr_w_later_2, tr_w, 8, 8, 0, 1, 2, 3, 4, 5)
TR_LATER(tr_w_later_4, tr_w, 8, 8, 8, 8, 0, 1, 2, 3)
#define tr_wd_later_4(x, f) (x)
#define tr_w_later_8(x, f) (x)
#endif
#define TR_W_SCAN_OF_DOUBLES(name, two, start) \
    TR_INSIDE tr_wd name##_part(tr_wd x) \
    { \
        const tr_wd none = tr_wd_all(start); \
        x = two(tr_wd_later_1(x, none), x); \
        x = two(tr_wd_later_2(x, none), x); \
        if (TR_WD == 8) x = two(tr_wd_later_4(x, none), x); \
        return x; \
    } \
    TR_INSIDE tr_w name(double *state, tr_w x) \
    { \
        tr_w_half h[2], y[2]; \
        __builtin_memcpy(h, &x, sizeof h); \
        for (int k = 0; k < 2; ++k) { \
            const tr_wd own = name##_part(tr_wd_of(h[k])); \
            y[k] = tr_wd_floats(two(*state, own)); \
            *state = two(*state, own[TR_WD - 1]); \
        } \
        return tr_w_of_halves(y[0], y[1]); \
    }
TR_W_SCAN_OF_DOUBLES(tr_w_scan_sum, TR_PLUS, -0.0)
TR_W_SCAN_OF_DOUBLES(tr_w_scan_product, TR_TIMES, 1.0)
#define TR_W_SCAN_STEPS(name, two, start) \
    TR_INSIDE tr_w name(tr_w state, tr_w x) \
    { \
        const tr_w none = tr_w_all(start); \
        x = two(tr_w_later_1(x, none), x); \
        x = two(tr_w_later_2(x, none), x); \
        x = two(tr_w_later_4(x, none), x); \
        if (TR_W == 16) x = two(tr_w_later_8(x, none), x); \
        return two(state, x); \
    }
/* Of two equal numbers machines take the second one, as they do where one is a NaN: that the first
   may be is looked at once. */
#define TR_W_SCAN_OF_FLOATS(name, two, quick, start) \
    TR_W_SCAN_STEPS(name##_any, two, start) \
    TR_W_SCAN_STEPS(name##_quick, quick, start) \
    TR_INSIDE tr_w name(double *state, tr_w x) \
    { \
        const tr_w s = tr_w_all((float)*state); \
        const int has_nan = tr_w_any((tr_wi)(x != x)) || *state != *state; \
        x = __builtin_expect(has_nan, 0) ? name##_any(s, x) : name##_quick(s, x); \
        *state = x[TR_W - 1]; \
        return x; \
    }
TR_W_SCAN_OF_FLOATS(tr_w_scan_most, tr_w_maximum, tr_w_larger, -INFINITY)
TR_W_SCAN_OF_FLOATS(tr_w_scan_least, tr_w_minimum, tr_w_smaller, INFINITY)

/* p[0], p[-1], p[-2], ... */
TR_INSIDE tr_w tr_w_load_back(const float *p)
{
#if TR_W == 16
    const tr_wi back = {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
#else
    const tr_wi back = {7, 6, 5, 4, 3, 2, 1, 0};
#endif
    return __builtin_shuffle(tr_w_load(p - (TR_W - 1)), back);
}
TR_INSIDE tr_w tr_w_load_back_some(int n, const float *p)
{
    tr_w x = {0};
    for (int k = 0; k < n; ++k) x[k] = p[-k];
    return x;
}

/* p[0], p[2], p[4], ...: nothing behind the last of them is read */
TR_INSIDE tr_w tr_w_of_two(tr_w first, tr_w last)
{
#if TR_W == 16
    const tr_wi even = {0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31};
#else
    const tr_wi even = {0, 2, 4, 6, 9, 11, 13, 15};
#endif
    return __builtin_shuffle(first, last, even);
}
TR_INSIDE tr_w tr_w_load_every_other(const float *p)
{
    return tr_w_of_two(tr_w_load(p), tr_w_load(p + (TR_W - 1)));
}
TR_INSIDE tr_w tr_w_load_every_other_some(int n, const float *p)
{
    const int there = 2 * n - 1, before = there < TR_W ? there : TR_W;
    const tr_w first = tr_w_load_some(before, p);
    if (there < TR_W) return tr_w_of_two(first, first);
    return tr_w_of_two(first, tr_w_load_some(there - (TR_W - 1), p + (TR_W - 1)));
}
#endif
