/* Functions of the C library in float and in double, on whole vectors where its vector functions are installed.

   glibc has them since 2.35 on x86-64 (libmvec, which -lm brings along), under the names that gcc's
   rules for vectors give to functions that are declared so. The largest error of any form, in units
   of the last place, stands with each function; a test walks through all floats. What is left over
   at the end of a loop, and other machines, go through double. */

#if defined(TR_HAS_VECTORS) && defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 35)
#define TR_HAS_LIBRARY_VECTORS 1
#endif
#endif
#ifdef TR_HAS_LIBRARY_VECTORS
#define TR_LIBRARY_FUNCTION(f) \
    _Pragma("omp declare simd notinbranch") \
    __attribute__((const, nothrow)) float tr_vector_##f(float x) __asm__(#f "f");
#define TR_LIBRARY_FUNCTION_OF_TWO(f) \
    _Pragma("omp declare simd notinbranch") \
    __attribute__((const, nothrow)) float tr_vector_##f(float x, float y) __asm__(#f "f");
#define TR_LIBRARY_FUNCTION_F64(f) \
    _Pragma("omp declare simd notinbranch") \
    __attribute__((const, nothrow)) double tr_vector_f64_##f(double x) __asm__(#f);
#define TR_LIBRARY_FUNCTION_F64_OF_TWO(f) \
    _Pragma("omp declare simd notinbranch") \
    __attribute__((const, nothrow)) double tr_vector_f64_##f(double x, double y) __asm__(#f);
#else
#define TR_LIBRARY_FUNCTION_F64(f) \
    static inline TR_MAYBE_UNUSED double tr_vector_f64_##f(double x) { return f(x); }
#define TR_LIBRARY_FUNCTION_F64_OF_TWO(f) \
    static inline TR_MAYBE_UNUSED double tr_vector_f64_##f(double x, double y) { return f(x, y); }
#define TR_LIBRARY_FUNCTION(f) \
    static inline TR_MAYBE_UNUSED float tr_vector_##f(float x) { return (float)f((double)x); }
#define TR_LIBRARY_FUNCTION_OF_TWO(f) \
    static inline TR_MAYBE_UNUSED float tr_vector_##f(float x, float y) { return (float)f((double)x, (double)y); }
#endif
/* exp never overflows, so that small results are not lost. */
#define TR_SIGMOID_F64 \
    static inline TR_MAYBE_UNUSED double tr_vector_f64_sigmoid(double x) \
    { \
        const double e = tr_vector_f64_exp(-fabs(x)); \
        return (x < 0 ? e : 1.0) / (1.0 + e); \
    }
/* The error of a quotient is 2.2e-7 (bench/fit_functions.py), that after a step of third order has
   no digit left. Beyond a half what is missing to 1 is known better. */
#define TR_ERFINV_F64 \
    static inline TR_MAYBE_UNUSED double tr_vector_f64_erfinv(double x) \
    { \
        const double a = fabs(x), left = 1.0 - a; \
        const double s = sqrt(-tr_vector_f64_log(left * (1.0 + a))); \
        double p = 0.0007371069788781881; \
        p = p * s + 0.0019503840278134732; \
        p = p * s + -0.010964897147941549; \
        p = p * s + 0.0718196466118975; \
        p = p * s + -0.1634730955404775; \
        p = p * s + 0.4569378813885568; \
        p = p * s + -0.5445146692637951; \
        p = p * s + 0.8862267392552022; \
        double q = 0.0007669191281413079; \
        q = q * s + 0.0010251657203106113; \
        q = q * s + 0.0026782326005716714; \
        q = q * s + -0.02421033459198055; \
        q = q * s + 0.2539483345631846; \
        q = q * s + -0.6144326629711927; \
        q = q * s + 1.0; \
        double y = a * p / q; \
        const double above = tr_vector_f64_erf(y) - a, below = left - tr_vector_f64_erfc(y); \
        const double bell = 1.12837916709551257390 * tr_vector_f64_exp(-y * y); \
        const double step = tr_chosen_f64(a > 0.5, below, above) / bell; \
        y = tr_chosen_f64(a == 1.0, INFINITY, y - step / (1.0 + y * step)); \
        return copysign(y, x); \
    }
/* The same for loops that are written on whole vectors (whole.h). */
#ifdef TR_HAS_VECTORS
#ifdef TR_HAS_LIBRARY_VECTORS
#define TR_LIBRARY_LANES(f, n, name) tr_f##n tr_lanes_##n##_##f(tr_f##n x) __asm__(name #f "f");
#define TR_LIBRARY_LANES_OF_TWO(f, n, name) \
    tr_f##n tr_lanes_##n##_##f(tr_f##n x, tr_f##n y) __asm__(name #f "f");
#else
#define TR_LIBRARY_LANES(f, n, name) \
    TR_INSIDE tr_f##n tr_lanes_##n##_##f(tr_f##n x) \
    { \
        for (int k = 0; k < n; ++k) x[k] = tr_vector_##f(x[k]); \
        return x; \
    }
#define TR_LIBRARY_LANES_OF_TWO(f, n, name) \
    TR_INSIDE tr_f##n tr_lanes_##n##_##f(tr_f##n x, tr_f##n y) \
    { \
        for (int k = 0; k < n; ++k) x[k] = tr_vector_##f(x[k], y[k]); \
        return x; \
    }
#endif
#ifdef __AVX512F__
#define TR_LIBRARY_WHOLE(f) TR_LIBRARY_LANES(f, 16, "_ZGVeN16v_")
#define TR_LIBRARY_WHOLE_OF_TWO(f) TR_LIBRARY_LANES_OF_TWO(f, 16, "_ZGVeN16vv_")
#else
#define TR_LIBRARY_WHOLE(f) TR_LIBRARY_LANES(f, 8, "_ZGVdN8v_")
#define TR_LIBRARY_WHOLE_OF_TWO(f) TR_LIBRARY_LANES_OF_TWO(f, 8, "_ZGVdN8vv_")
#endif
#else
#define TR_LIBRARY_WHOLE(f)
#define TR_LIBRARY_WHOLE_OF_TWO(f)
#endif
