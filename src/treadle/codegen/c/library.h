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
