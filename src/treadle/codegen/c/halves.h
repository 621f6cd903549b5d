/* f16 by the machine's own conversions, for loops that the compiler runs on vectors.

   gcc 12 knows them for single elements only; in whole numbers of 32 bits (prelude.h) a conversion is
   a dozen instructions. Codes travel as the bits of a float, so that these are functions like those
   of fast.h, with forms for each length of a vector (vectors.h). */
TR_FN float tr_fast_half_value(float code) { return tr_decode_f16((uint16_t)tr_bits_f32(code)); }
TR_FN float tr_fast_half_code(float x) { return tr_f32_bits(tr_encode_f16(tr_round_f16(x))); }
TR_FN float tr_fast_half_round(float x) { return tr_round_f16(x); }
#ifdef TR_HAS_VECTORS
#ifdef __F16C__
typedef int16_t tr_s8 __attribute__((vector_size(16)));
typedef uint16_t tr_us8 __attribute__((vector_size(16)));
#define tr_wide_of_4(s) __builtin_ia32_vcvtph2ps(s)
#define tr_half_of_4(x) __builtin_ia32_vcvtps2ph(x, 0)
#define tr_wide_of_8(s) __builtin_ia32_vcvtph2ps256(s)
#define tr_half_of_8(x) __builtin_ia32_vcvtps2ph256(x, 0)
TR_INSIDE tr_f4 tr_lanes_4_half_value(tr_f4 code)
{
    const tr_i4 i = (tr_i4)code;
    return tr_wide_of_4(((tr_s8){(short)i[0], (short)i[1], (short)i[2], (short)i[3]}));
}
TR_INSIDE tr_f4 tr_lanes_4_half_code(tr_f4 x)
{
    const tr_us8 s = (tr_us8)tr_half_of_4(x);
    return (tr_f4)(tr_i4){s[0], s[1], s[2], s[3]};
}
TR_INSIDE tr_f8 tr_lanes_8_half_value(tr_f8 code)
{
    return tr_wide_of_8(__builtin_convertvector((tr_i8)code, tr_s8));
}
TR_INSIDE tr_f8 tr_lanes_8_half_code(tr_f8 x)
{
    return (tr_f8)__builtin_convertvector((tr_us8)tr_half_of_8(x), tr_i8);
}
TR_INSIDE tr_f4 tr_lanes_4_half_round(tr_f4 x) { return tr_wide_of_4(tr_half_of_4(x)); }
TR_INSIDE tr_f8 tr_lanes_8_half_round(tr_f8 x) { return tr_wide_of_8(tr_half_of_8(x)); }
#ifdef __AVX512F__
typedef int16_t tr_s16 __attribute__((vector_size(32)));
#define tr_wide_of_16(s) __builtin_ia32_vcvtph2ps512_mask(s, (tr_f16){0}, -1, 4)
#define tr_half_of_16(x) __builtin_ia32_vcvtps2ph512_mask(x, 0, (tr_s16){0}, -1)
TR_INSIDE tr_f16 tr_lanes_16_half_value(tr_f16 code)
{
    return tr_wide_of_16(__builtin_ia32_pmovdw512_mask((tr_i16)code, (tr_s16){0}, -1));
}
TR_INSIDE tr_f16 tr_lanes_16_half_code(tr_f16 x)
{
    return (tr_f16)__builtin_ia32_pmovzxwd512_mask(tr_half_of_16(x), (tr_i16){0}, -1);
}
TR_INSIDE tr_f16 tr_lanes_16_half_round(tr_f16 x) { return tr_wide_of_16(tr_half_of_16(x)); }
#endif
#else
#define TR_HALF_BY_ONES(f, n) \
    TR_INSIDE tr_f##n tr_lanes_##n##_##f(tr_f##n x) \
    { \
        for (int k = 0; k < n; ++k) x[k] = tr_fast_##f(x[k]); \
        return x; \
    }
TR_HALF_BY_ONES(half_value, 4) TR_HALF_BY_ONES(half_code, 4) TR_HALF_BY_ONES(half_round, 4)
TR_HALF_BY_ONES(half_value, 8) TR_HALF_BY_ONES(half_code, 8) TR_HALF_BY_ONES(half_round, 8)
#endif
#endif
TR_VECTOR_FUNCTION(half_value)
TR_VECTOR_FUNCTION(half_code)
TR_VECTOR_FUNCTION(half_round)
#define tr_decode_f16_on_vectors(u) tr_vector_half_value(tr_f32_bits((uint16_t)(u)))
#define tr_encode_f16_on_vectors(x) ((uint16_t)tr_bits_f32(tr_vector_half_code(x)))
#define tr_round_f16_on_vectors(x) tr_vector_half_round(x)

/* Rows of f16 made floats, and floats made rows of f16, all at once: a loop between works on floats
   alone, and nothing is called from its middle. */
TR_FN void tr_widen_f16(float *restrict to, const uint16_t *restrict from, int64_t n)
{
    int64_t k = 0;
#if defined(TR_HAS_VECTORS) && defined(__F16C__)
#ifdef __AVX512F__
    for (; k + 16 <= n; k += 16) {
        tr_s16 s;
        __builtin_memcpy(&s, from + k, sizeof s);
        const tr_f16 x = tr_wide_of_16(s);
        __builtin_memcpy(to + k, &x, sizeof x);
    }
#endif
    for (; k + 8 <= n; k += 8) {
        tr_s8 s;
        __builtin_memcpy(&s, from + k, sizeof s);
        const tr_f8 x = tr_wide_of_8(s);
        __builtin_memcpy(to + k, &x, sizeof x);
    }
#endif
    for (; k < n; ++k) to[k] = tr_decode_f16(from[k]);
}

TR_FN void tr_narrow_f16(uint16_t *restrict to, const float *restrict from, int64_t n)
{
    int64_t k = 0;
#if defined(TR_HAS_VECTORS) && defined(__F16C__)
#ifdef __AVX512F__
    for (; k + 16 <= n; k += 16) {
        tr_f16 x;
        __builtin_memcpy(&x, from + k, sizeof x);
        const tr_s16 s = tr_half_of_16(x);
        __builtin_memcpy(to + k, &s, sizeof s);
    }
#endif
    for (; k + 8 <= n; k += 8) {
        tr_f8 x;
        __builtin_memcpy(&x, from + k, sizeof x);
        const tr_s8 s = (tr_s8)tr_half_of_8(x);
        __builtin_memcpy(to + k, &s, sizeof s);
    }
#endif
    for (; k < n; ++k) to[k] = tr_encode_f16(tr_round_f16(from[k]));
}

/* The same for bf16, for loops that go one by one. */
TR_FN void tr_widen_bf16(float *restrict to, const uint16_t *restrict from, int64_t n)
{
#pragma omp simd
    for (int64_t k = 0; k < n; ++k) to[k] = tr_decode_bf16(from[k]);
}

TR_FN void tr_narrow_bf16(uint16_t *restrict to, const float *restrict from, int64_t n)
{
#pragma omp simd
    for (int64_t k = 0; k < n; ++k) to[k] = (uint16_t)(tr_rounded_bf16_bits(from[k]) >> 16);
}
