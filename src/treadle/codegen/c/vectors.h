/* The functions of fast.h on vectors, for loops that the compiler runs on vectors.

   What it would make of the text for a single float takes up to twice the time: it knows no
   instruction for 2 to the power of n, and makes two of each minimum. So it is told, by a pragma,
   that there are functions that take whole vectors, under the names that its rules for vectors
   give them (_ZGV, then b for 4, d for 8, e for 16 lanes). They are for where a loop calls
   unconditionally; elsewhere the text for a single float stands. */

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__ELF__) \
    && defined(__AVX2__) && defined(__FMA__)
#define TR_HAS_VECTORS 1
#define TR_INSIDE static inline __attribute__((always_inline, unused))
#define TR_LANES(n) \
    typedef float tr_f##n __attribute__((vector_size(4 * n))); \
    typedef int32_t tr_i##n __attribute__((vector_size(4 * n))); \
    typedef uint32_t tr_u##n __attribute__((vector_size(4 * n))); \
    TR_INSIDE tr_f##n tr_all_##n(float x) { return x - (tr_f##n){0}; } \
    TR_INSIDE tr_f##n tr_where_##n(tr_i##n c, tr_f##n a, tr_f##n b) \
    { \
        return (tr_f##n)(((tr_i##n)a & c) | ((tr_i##n)b & ~c)); \
    } \
    TR_INSIDE tr_f##n tr_scaled_##n(tr_f##n p, tr_i##n e) \
    { \
        tr_i##n half = e >> 1; \
        return p * (tr_f##n)((half + 127) << 23) * (tr_f##n)((e - half + 127) << 23); \
    }
TR_LANES(4)
TR_LANES(8)
/* The larger or smaller of two; the second if one of them is a NaN. */
#define tr_larger_4(a, b) __builtin_ia32_maxps(a, b)
#define tr_smaller_4(a, b) __builtin_ia32_minps(a, b)
#define tr_larger_8(a, b) __builtin_ia32_maxps256(a, b)
#define tr_smaller_8(a, b) __builtin_ia32_minps256(a, b)
#ifdef __AVX512F__
TR_LANES(16)
#define tr_larger_16(a, b) __builtin_ia32_maxps512_mask(a, b, a, -1, 4)
#define tr_smaller_16(a, b) __builtin_ia32_minps512_mask(a, b, a, -1, 4)
#endif
/* A function of a float and its forms on vectors, all under names that the compiler knows. */
#define TR_AS_VECTOR(f, n, name) \
    __attribute__((visibility("hidden"))) tr_f##n tr_vector_##f##_##n(tr_f##n x) \
        __asm__(name #f); \
    tr_f##n tr_vector_##f##_##n(tr_f##n x) { return tr_lanes_##n##_##f(x); }
#ifdef __AVX512F__
#define TR_AS_VECTORS(f) \
    TR_AS_VECTOR(f, 4, "_ZGVbN4v_tr_vector_") \
    TR_AS_VECTOR(f, 8, "_ZGVdN8v_tr_vector_") \
    TR_AS_VECTOR(f, 16, "_ZGVeN16v_tr_vector_")
#else
#define TR_AS_VECTORS(f) \
    TR_AS_VECTOR(f, 4, "_ZGVbN4v_tr_vector_") \
    TR_AS_VECTOR(f, 8, "_ZGVdN8v_tr_vector_")
#endif
#define TR_VECTOR_FUNCTION(f) \
    _Pragma("omp declare simd notinbranch") \
    __attribute__((const, nothrow)) float tr_vector_##f(float x); \
    __attribute__((visibility("hidden"))) float tr_vector_##f##_1(float x) \
        __asm__("tr_vector_" #f); \
    float tr_vector_##f##_1(float x) { return tr_fast_##f(x); } \
    TR_AS_VECTORS(f)
#else
#define TR_VECTOR_FUNCTION(f) \
    TR_FN float tr_vector_##f(float x) { return tr_fast_##f(x); }
#endif
