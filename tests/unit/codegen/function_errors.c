/* The largest error of each function of fast.h, over every `step`-th float from `first` on.

   The prelude and fast.h stand before this text. Prints a line for each function: its name, the
   largest error in units of the last place, the bits of the input that has it, and how many inputs
   gave a NaN, an infinity or a sign that the exact function does not give. */
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
            for (; count < LENGTH && bits < UINT64_C(1) << 32; bits += step)                      \
                given[count++] = tr_f32_bits((uint32_t)bits);                                     \
            _Pragma("omp simd") for (int k = 0; k < count; ++k) found[k] = FAST(given[k]);        \
            for (int k = 0; k < count; ++k) {                                                     \
                double error = error_of(found[k], EXACT((double)given[k]));                       \
                wrong += error < 0;                                                               \
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
MEASURE(rsqrt, fast_rsqrt, rsqrt)

int main(int count, char **words)
{
    if (count != 3) return 2;
    const uint64_t first = strtoull(words[1], NULL, 10), step = strtoull(words[2], NULL, 10);
    measure_exp(first, step);
    measure_log(first, step);
    measure_tanh(first, step);
    measure_erf(first, step);
    measure_sigmoid(first, step);
    measure_rsqrt(first, step);
    return 0;
}
