/* The largest error of each function of fast.h and library.h, over every `step`-th float from `first` on.

   The prelude and fast.h stand before this text. Prints a line for each function: its name, the
   largest error in units of the last place, the bits of the input that has it, and how many inputs
   gave a NaN, an infinity or a sign that the exact function does not give; infinities are inputs
   always, and give the exact function's limit if that is a float. */
#include <stdio.h>

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }
static double rsqrt(double x) { return 1.0 / sqrt(x); }
static float fast_rsqrt(float x) { return 1.0f / sqrtf(x); }

/* The distance of two neighbours where `exact` lies, as if exponents had no upper end. */
static double last_place(double exact)
{
    int exponent;
    frexp(exact, &exponent);
    return ldexp(1.0, exponent < -125 ? -149 : exponent - 24);
}

/* The error in units of the last place; -1 if it is none that can be measured. */
static double error_of(float got, double exact)
{
    if (exact != exact || got != got) return got != got && exact != exact ? 0 : -1;
    if (isinf(exact)) return (double)got == exact ? 0 : -1;
    if (!signbit(got) != !signbit(exact)) return -1;
    if (isinf(got) && isinf((float)exact)) return 0;
    double found = isinf(got) ? copysign(0x1p128, got) : (double)got;
    return fabs(found - exact) / last_place(exact);
}

enum { LENGTH = 4096 };
static float given[LENGTH], found[LENGTH];

#define MEASURE(NAME, FAST, EXACT)                                                                \
    static void measure_##NAME(uint64_t first, uint64_t step)                                     \
    {                                                                                             \
        double largest = 0;                                                                       \
        uint32_t at = 0;                                                                          \
        long wrong = 0;                                                                           \
        for (uint64_t bits = first; bits < UINT64_C(1) << 32;) {                                  \
            int count = 0;                                                                        \
            if (bits == first) given[count++] = INFINITY, given[count++] = -INFINITY;             \
            for (; count < LENGTH && bits < UINT64_C(1) << 32; bits += step)                      \
                given[count++] = tr_f32_bits((uint32_t)bits);                                     \
            _Pragma("omp simd") for (int k = 0; k < count; ++k) found[k] = FAST(given[k]);        \
            for (int k = 0; k < count; ++k) {                                                     \
                double exact = EXACT((double)given[k]), error = error_of(found[k], exact);        \
                wrong += error < 0 || (isinf(given[k]) && error > 0 && exact == (float)exact);    \
                if (error > largest) largest = error, at = tr_bits_f32(given[k]);                 \
            }                                                                                     \
        }                                                                                         \
        printf("%s %.4f %08x %ld\n", #NAME, largest, at, wrong);                                  \
        fflush(stdout);                                                                           \
    }

MEASURE(exp, tr_fast_exp, exp)
MEASURE(log, tr_fast_log, log)
MEASURE(tanh, tr_fast_tanh, tanh)
MEASURE(erf, tr_fast_erf, erf)
MEASURE(sigmoid, tr_fast_sigmoid, sigmoid)
MEASURE(gelu_tilt, tr_fast_gelu_tilt, tr_gelu_tilt)
MEASURE(rsqrt, fast_rsqrt, rsqrt)
#define MEASURE_LIBRARY(NAME) MEASURE(NAME, tr_vector_##NAME, NAME)
MEASURE_LIBRARY(acos)
MEASURE_LIBRARY(acosh)
MEASURE_LIBRARY(asin)
MEASURE_LIBRARY(asinh)
MEASURE_LIBRARY(atan)
MEASURE_LIBRARY(atanh)
MEASURE_LIBRARY(cos)
MEASURE_LIBRARY(cosh)
MEASURE_LIBRARY(erfc)
MEASURE_LIBRARY(exp2)
MEASURE_LIBRARY(expm1)
MEASURE_LIBRARY(log10)
MEASURE_LIBRARY(log1p)
MEASURE_LIBRARY(log2)
MEASURE_LIBRARY(sin)
MEASURE_LIBRARY(sinh)
MEASURE_LIBRARY(tan)

/* Functions of two are tried on all pairs of a few remarkable numbers, and on random ones. */
static uint64_t state = UINT64_C(88172645463325252);
static uint32_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}
static const float remarkable[] = {
    0.0f, -0.0f, 1.0f, -1.0f, 2.0f, -2.0f, 0.5f, -0.5f, 3.0f, -3.0f, 2.5f, -1.5f, INFINITY,
    -INFINITY, NAN, 1e-40f, -1e-40f, 3e38f, -3e38f, 1e-38f, 16777216.0f, 16777215.0f,
};
enum { REMARKABLE = sizeof remarkable / sizeof *remarkable };
/* Any float but a NaN that signals, which a conversion to double would make a quiet one. */
static float operand(void)
{
    const uint32_t kind = random_bits() % 4;
    if (kind == 0) return remarkable[random_bits() % REMARKABLE];
    if (kind == 1) return (float)((int)(random_bits() % 64) - 32);
    if (kind == 2) return (float)(random_bits() % 20000) / 1000.0f - 5.0f;
    const float x = tr_f32_bits(random_bits());
    return x != x ? NAN : x;
}

#define MEASURE_TWO(NAME)                                                                         \
    static void measure_##NAME(uint64_t first, uint64_t step)                                     \
    {                                                                                             \
        static float other[LENGTH];                                                               \
        double largest = 0;                                                                       \
        uint32_t at = 0;                                                                          \
        long wrong = 0;                                                                           \
        for (uint64_t round = 0; round < 200 + 100000 / step; ++round) {                          \
            for (int k = 0; k < LENGTH; ++k) {                                                    \
                const int pair = round ? REMARKABLE * REMARKABLE : k;                             \
                const int is_pair = pair < REMARKABLE * REMARKABLE;                               \
                given[k] = is_pair ? remarkable[pair / REMARKABLE] : operand();                   \
                other[k] = is_pair ? remarkable[pair % REMARKABLE] : operand();                   \
            }                                                                                     \
            _Pragma("omp simd") for (int k = 0; k < LENGTH; ++k) found[k] =                       \
                tr_vector_##NAME(given[k], other[k]);                                             \
            for (int k = 0; k < LENGTH; ++k) {                                                    \
                double error = error_of(found[k], NAME((double)given[k], (double)other[k]));      \
                wrong += error < 0;                                                               \
                if (error > largest) largest = error, at = tr_bits_f32(given[k]);                 \
            }                                                                                     \
        }                                                                                         \
        printf("%s %.4f %08x %ld\n", #NAME, largest, at, wrong);                                  \
    }

MEASURE_TWO(atan2)
MEASURE_TWO(hypot)
MEASURE_TWO(pow)

int main(int count, char **words)
{
    if (count != 3) return 2;
    const uint64_t first = strtoull(words[1], NULL, 10), step = strtoull(words[2], NULL, 10);
    measure_exp(first, step);
    measure_log(first, step);
    measure_tanh(first, step);
    measure_erf(first, step);
    measure_sigmoid(first, step);
    measure_gelu_tilt(first, step);
    measure_rsqrt(first, step);
    measure_acos(first, step);
    measure_acosh(first, step);
    measure_asin(first, step);
    measure_asinh(first, step);
    measure_atan(first, step);
    measure_atanh(first, step);
    measure_cos(first, step);
    measure_cosh(first, step);
    measure_erfc(first, step);
    measure_exp2(first, step);
    measure_expm1(first, step);
    measure_log10(first, step);
    measure_log1p(first, step);
    measure_log2(first, step);
    measure_sin(first, step);
    measure_sinh(first, step);
    measure_tan(first, step);
    measure_atan2(first, step);
    measure_hypot(first, step);
    measure_pow(first, step);
    return 0;
}
