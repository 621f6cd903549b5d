/* Helpers of generated C: number formats, arithmetic with the meaning of the interpreter. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define TR_MAYBE_UNUSED __attribute__((unused))
#define TR_APART __attribute__((noinline, unused))
#define TR_RARELY(x) __builtin_expect(!!(x), 0)
#else
#define TR_MAYBE_UNUSED
#define TR_APART
#define TR_RARELY(x) (x)
#endif
#define TR_FN static inline TR_MAYBE_UNUSED

/* ------------------------------------------------------------------ index arithmetic */

TR_FN int64_t tr_floordiv(int64_t a, int64_t b)
{
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    /* Which sign a remainder has no processor can foresee: no branch. */
    const int64_t q = a / b, r = a % b;
    return q - ((r != 0) & ((r ^ b) < 0));
}

TR_FN int64_t tr_mod(int64_t a, int64_t b)
{
    if (b == 0 || b == -1) return 0;
    const int64_t r = a % b;
    return r + (b & -(int64_t)((r != 0) & ((r ^ b) < 0)));
}

/* The remainder of what is below twice the divisor, and not negative. */
TR_FN int64_t tr_wrapped(int64_t a, int64_t b) { return a >= b ? a - b : a; }

TR_FN int64_t tr_min(int64_t a, int64_t b) { return a < b ? a : b; }
TR_FN int64_t tr_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* ------------------------------------------------------------------ bits */

TR_FN uint32_t tr_bits_f32(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
TR_FN float tr_f32_bits(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }
TR_FN uint64_t tr_bits_f64(double x) { uint64_t u; memcpy(&u, &x, 8); return u; }
TR_FN double tr_f64_bits(uint64_t u) { double x; memcpy(&x, &u, 8); return x; }

/* By the bits: gcc 12 stops with an internal error where it makes vectors of signbit. */
TR_FN uint8_t tr_signbit_f32(float x) { return (uint8_t)(tr_bits_f32(x) >> 31); }
TR_FN uint8_t tr_signbit_f64(double x) { return (uint8_t)(tr_bits_f64(x) >> 63); }

/* ------------------------------------------------------------------ narrow floats

   A value of a narrow type is held as the float it equals. `round` rounds to nearest even, `encode`
   gives the stored bits of a value that is of the type already. */

/* The bits of a float that is rounded to bf16, to the nearest, ties to even. A NaN is a quiet one.
   There is no branch and no 16-bit number, so that vectors of floats stay what they are. */
TR_FN uint32_t tr_rounded_bf16_bits(float x)
{
    uint32_t u = tr_bits_f32(x), rounded = u + 0x7fffu + ((u >> 16) & 1u);
    return (x != x ? u | 0x00400000u : rounded) & 0xffff0000u;
}

TR_FN uint16_t tr_encode_bf16(float x)
{
    return (uint16_t)(tr_bits_f32(x) >> 16);
}

TR_FN float tr_decode_bf16(uint16_t u) { return tr_f32_bits((uint32_t)u << 16); }

/* f16, without a branch and in whole numbers of 32 bits, so that loops over it run on vectors.

   Below 2^-14 a number of the type is a multiple of 2^-24, which is what the last place of a float
   between 0.5 and 1 is worth: adding 0.5 rounds to it, ties to even, and leaves the multiple in the
   last bits. A NaN is a quiet one. */
TR_FN float tr_round_f16(float x)
{
    int32_t u = (int32_t)tr_bits_f32(x), a = u & 0x7fffffff;
    int32_t normal = (int32_t)((uint32_t)a + 0xfffu + ((uint32_t)a >> 13 & 1u)) & -0x2000;
    int32_t small = (int32_t)tr_bits_f32((tr_f32_bits((uint32_t)a) + 0.5f) - 0.5f);
    int32_t large = a > 0x7f800000 ? (a | 0x00400000) & -0x2000 : 0x7f800000;
    int32_t finite = a < 0x38800000 ? small : normal;
    return tr_f32_bits((uint32_t)((a > 0x477fefff ? large : finite) | (u & INT32_MIN)));
}

TR_FN uint16_t tr_encode_f16(float x)
{
    int32_t u = (int32_t)tr_bits_f32(x), a = u & 0x7fffffff;
    int32_t small = (int32_t)tr_bits_f32(tr_f32_bits((uint32_t)a) + 0.5f) - 0x3f000000;
    int32_t finite = a < 0x38800000 ? small : (a >> 13) - (112 << 10);
    int32_t code = a > 0x477fe000 ? 0x7c00 | (a >> 13 & 0x3ff) : finite;
    return (uint16_t)(code | (u >> 16 & 0x8000));
}

TR_FN float tr_decode_f16(uint16_t u)
{
    int32_t a = ((int32_t)u & 0x7fff) << 13, normal = a + (112 << 23);
    int32_t small = (int32_t)tr_bits_f32(tr_f32_bits((uint32_t)(a + (113 << 23))) - 0x1p-14f);
    int32_t finite = a < 0x00800000 ? small : normal;
    int32_t code = a > 0x0f7fffff ? a | 0x7f800000 : finite;
    return tr_f32_bits((uint32_t)code | ((uint32_t)u & 0x8000u) << 16);
}

/* Both kinds of 8 bits as f16 above: no branch, whole numbers of 32 bits, and a number that is added
   rounds what lies below the smallest normal one. A NaN of e5m2 keeps what it can of its payload. */
TR_FN float tr_round_f8e5m2(float x)
{
    int32_t u = (int32_t)tr_bits_f32(x), a = u & 0x7fffffff;
    int32_t normal = (int32_t)((uint32_t)a + 0xfffffu + ((uint32_t)a >> 21 & 1u)) & -0x200000;
    int32_t small = (int32_t)tr_bits_f32((tr_f32_bits((uint32_t)a) + 128.0f) - 128.0f);
    int32_t nan = (a & 0x00600000) ? a & -0x200000 : 0x7fc00000;
    int32_t large = a > 0x7f800000 ? nan : 0x7f800000;
    int32_t finite = a < 0x38800000 ? small : normal;
    return tr_f32_bits((uint32_t)((a > 0x476fffff ? large : finite) | (u & INT32_MIN)));
}

TR_FN uint8_t tr_encode_f8e5m2(float x)
{
    int32_t u = (int32_t)tr_bits_f32(x), a = u & 0x7fffffff;
    int32_t small = (int32_t)tr_bits_f32(tr_f32_bits((uint32_t)a) + 128.0f) - 0x43000000;
    int32_t finite = a < 0x38800000 ? small : (a >> 21) - (112 << 2);
    int32_t code = a > 0x47600000 ? 0x7c | (a >> 21 & 3) : finite;
    return (uint8_t)(code | (u >> 24 & 0x80));
}

TR_FN float tr_decode_f8e5m2(uint8_t u) { return tr_decode_f16((uint16_t)((uint32_t)u << 8)); }

/* Without an infinity: what is too large becomes the largest. */
TR_FN float tr_round_f8e4m3fn(float x)
{
    int32_t u = (int32_t)tr_bits_f32(x), a = u & 0x7fffffff;
    int32_t normal = (int32_t)((uint32_t)a + 0x7ffffu + ((uint32_t)a >> 20 & 1u)) & -0x100000;
    int32_t small = (int32_t)tr_bits_f32((tr_f32_bits((uint32_t)a) + 16384.0f) - 16384.0f);
    int32_t large = a > 0x7f800000 ? 0x7fc00000 : 0x43e00000;
    int32_t finite = a < 0x3c800000 ? small : normal;
    return tr_f32_bits((uint32_t)((a > 0x43e00000 ? large : finite) | (u & INT32_MIN)));
}

TR_FN uint8_t tr_encode_f8e4m3fn(float x)
{
    int32_t u = (int32_t)tr_bits_f32(x), a = u & 0x7fffffff;
    int32_t small = (int32_t)tr_bits_f32(tr_f32_bits((uint32_t)a) + 16384.0f) - 0x46800000;
    int32_t finite = a < 0x3c800000 ? small : (a >> 20) - (120 << 3);
    int32_t code = a > 0x7f800000 ? 0x7f : finite;
    return (uint8_t)(code | (u >> 24 & 0x80));
}

TR_FN float tr_decode_f8e4m3fn(uint8_t u)
{
    int32_t a = ((int32_t)u & 0x7f) << 20, normal = a + (120 << 23);
    int32_t small = (int32_t)tr_bits_f32(tr_f32_bits((uint32_t)(a + (121 << 23))) - 0x1p-6f);
    int32_t finite = a < 0x00800000 ? small : normal;
    int32_t code = a == 0x7f << 20 ? 0x7fc00000 : finite;
    return tr_f32_bits((uint32_t)code | ((uint32_t)u & 0x80u) << 24);
}

TR_FN float tr_round_bf16(float x) { return tr_f32_bits(tr_rounded_bf16_bits(x)); }

/* ------------------------------------------------------------------ float to whole */

/* A whole number has one zero. Compilers that need not mind traps take (double)(int64_t)x for
   trunc(x), which gives -0.0 for x = -0.3: so the zero is made positive before. */
TR_FN int64_t tr_to_i64(double x)
{
    return fabs(x) < 0x1p63 ? (int64_t)(trunc(x) + 0.0) : INT64_MIN;
}

/* A number whose last 8 bits are those of `tr_to_i64`: from 2^31 on they are zero in a float, and
   there are vectors that make 32 bits of one. */
TR_FN int32_t tr_to_8_bits(float x)
{
    return fabsf(x) < 0x1p31f ? (int32_t)(truncf(x) + 0.0f) : 0;
}

TR_FN uint64_t tr_to_u64(double x)
{
    if (x >= 0x1p64) return 0;
    if (x >= 0x1p63) return (uint64_t)x;
    return (uint64_t)tr_to_i64(x);
}

/* ------------------------------------------------------------------ whole numbers

   Everything wraps; dividing by zero gives 0. */

TR_FN int64_t tr_floordiv_i64(int64_t a, int64_t b) { return tr_floordiv(a, b); }
TR_FN uint64_t tr_div_u64(uint64_t a, uint64_t b) { return b ? a / b : 0; }
TR_FN uint64_t tr_mod_u64(uint64_t a, uint64_t b) { return b ? a % b : 0; }

TR_FN int64_t tr_truncdiv_i64(int64_t a, int64_t b)
{
    if (b == 0) return 0;
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

TR_FN int64_t tr_fmod_i64(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
TR_FN int64_t tr_mod_i64(int64_t a, int64_t b) { return tr_mod(a, b); }

/* Half as wide: machines divide vectors of such numbers by a constant, and wider ones not. */

TR_FN int32_t tr_truncdiv_i32(int32_t a, int32_t b)
{
    if (b == 0) return 0;
    return b == -1 ? (int32_t)(0 - (uint32_t)a) : a / b;
}

TR_FN int32_t tr_fmod_i32(int32_t a, int32_t b) { return b == 0 || b == -1 ? 0 : a % b; }

TR_FN int32_t tr_floordiv_i32(int32_t a, int32_t b)
{
    const int32_t q = tr_truncdiv_i32(a, b), r = tr_fmod_i32(a, b);
    return q - ((r != 0) & ((r ^ b) < 0));
}

TR_FN int32_t tr_mod_i32(int32_t a, int32_t b)
{
    const int32_t r = tr_fmod_i32(a, b);
    return r + (b & -(int32_t)((r != 0) & ((r ^ b) < 0)));
}

TR_FN uint64_t tr_pow_u64(uint64_t a, uint64_t b)
{
    uint64_t result = 1;
    for (; b; b >>= 1, a *= a)
        if (b & 1) result *= a;
    return result;
}

TR_FN int64_t tr_pow_i64(int64_t a, int64_t b)
{
    if (b >= 0) return (int64_t)tr_pow_u64((uint64_t)a, (uint64_t)b);
    if (a == 1) return 1;
    if (a == -1) return (b & 1) ? -1 : 1;
    return 0;
}

TR_FN uint64_t tr_shl(uint64_t a, int64_t b, int width)
{
    return b >= 0 && b < width ? a << b : 0;
}

TR_FN int64_t tr_shr_i64(int64_t a, int64_t b, int width)
{
    return b >= 0 && b < width ? a >> b : (a < 0 ? -1 : 0);
}

TR_FN uint64_t tr_shr_u64(uint64_t a, uint64_t b, int width)
{
    return b < (uint64_t)width ? a >> b : 0;
}

TR_FN uint64_t tr_gcd_u64(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The lowest value has no size of its own and stays negative, as it does in eager mode. */
TR_FN int64_t tr_size(int64_t a)
{
    return a < 0 ? (int64_t)(0 - (uint64_t)a) : a;
}

TR_FN int64_t tr_gcd(int64_t a, int64_t b)
{
    while (a) {
        const int64_t rest = a == -1 ? 0 : b % a;
        b = a;
        a = rest;
    }
    return b;
}

/* ------------------------------------------------------------------ floats */

/* Chosen by bits: of one choice that another one reads gcc 12 makes branches, and no vectors. */
#define TR_EXTREME_FUNCTION(name, T, S, U, is_it)                                                 \
    TR_FN T tr_##name##_##S(T a, T b)                                                             \
    {                                                                                             \
        const U x = tr_bits_##S(a), y = tr_bits_##S(b);                                           \
        return tr_##S##_bits(y ^ ((x ^ y) & (0 - (U)((a is_it b) | (a != a)))));                  \
    }
TR_EXTREME_FUNCTION(maximum, float, f32, uint32_t, >)
TR_EXTREME_FUNCTION(minimum, float, f32, uint32_t, <)
TR_EXTREME_FUNCTION(maximum, double, f64, uint64_t, >)
TR_EXTREME_FUNCTION(minimum, double, f64, uint64_t, <)

#define TR_FLOAT_FUNCTIONS(T, S, F)                                                               \
    TR_FN T tr_sign_##S(T x) { return (T)((x > 0) - (x < 0)); }                                   \
    TR_FN T tr_remainder_##S(T a, T b)                                                            \
    {                                                                                             \
        T left = fmod##F(a, b);                                                                   \
        return (left != 0 && (left < 0) != (b < 0)) ? left + b : left;                            \
    }                                                                                             \
    TR_FN T tr_floordiv_##S(T a, T b)                                                             \
    {                                                                                             \
        if (b == 0) return a / b;                                                                 \
        T left = fmod##F(a, b), quotient = (a - left) / b;                                        \
        if (left != 0 && (b < 0) != (left < 0)) quotient -= (T)1;                                 \
        if (quotient == 0) return copysign##F((T)0, a / b);                                       \
        T down = floor##F(quotient);                                                              \
        return quotient - down > (T)0.5 ? down + (T)1 : down;                                     \
    }                                                                                             \
    TR_FN int tr_less_##S(T a, T b) { return a < b || (b != b && a == a); }

TR_FLOAT_FUNCTIONS(float, f32, f)
TR_FLOAT_FUNCTIONS(double, f64, )

TR_FN double tr_ldexp(double x, double power)
{
    if (power == trunc(power) && fabs(power) < 1e6) return ldexp(x, (int)power);
    return x * exp2(power);
}

TR_FN double tr_frexp_mantissa(double x) { int e; return frexp(x, &e); }
TR_FN int32_t tr_frexp_exponent(double x)
{
    int e = 0;
    return isfinite(frexp(x, &e)) ? (int32_t)e : 0;
}

/* The neighbour of the value with code `a` towards the one with code `b`; the top bit is a sign. */
TR_FN uint32_t tr_step_code(uint32_t a, uint32_t b, uint32_t top, int b_is_above)
{
    if ((a & (top - 1)) == 0) return b_is_above ? 1u : (top | 1u);
    int is_negative = (a & top) != 0;
    (void)b;
    return is_negative == b_is_above ? a - 1 : a + 1;
}

#define TR_NEXTAFTER_NARROW(N, U, TOP)                                                            \
    TR_FN float tr_nextafter_##N(float a, float b)                                                \
    {                                                                                             \
        if (a != a || b != b) return a + b;                                                       \
        if (a == b) return b;                                                                     \
        uint32_t code = tr_step_code(tr_encode_##N(a), tr_encode_##N(b), TOP, b > a);             \
        return tr_decode_##N((U)code);                                                            \
    }

TR_NEXTAFTER_NARROW(bf16, uint16_t, 0x8000u)
TR_NEXTAFTER_NARROW(f16, uint16_t, 0x8000u)
TR_NEXTAFTER_NARROW(f8e5m2, uint8_t, 0x80u)
TR_NEXTAFTER_NARROW(f8e4m3fn, uint8_t, 0x80u)

TR_FN double tr_logaddexp(double x, double y)
{
    if (x == y) return x + 0.693147180559945309417;
    double d = x - y;
    if (d > 0) return x + log1p(exp(-d));
    if (d <= 0) return y + log1p(exp(d));
    return d;
}

TR_FN double tr_sigmoid(double x)
{
    if (x >= 0) return 1.0 / (1.0 + exp(-x));
    double e = exp(x);
    return e / (1.0 + e);
}

/* The derivative of gelu less a half; beyond 40 nothing is left of the bell, of infinities no number. */
TR_FN double tr_gelu_tilt(double x)
{
    if (isinf(x)) return NAN;
    double t = x > 40 ? 40 : x < -40 ? -40 : x;
    return 0.5 * erf(t * 0.707106781186547524401) + t * (exp(-0.5 * t * t) * 0.398942280401432677940);
}

TR_FN double tr_gelu_gate(double x) { return 0.5 * erfc(-x * 0.707106781186547524401); }

TR_FN double tr_gelu_slope(double x) { return 0.5 + tr_gelu_tilt(x); }

/* ------------------------------------------------------------------ random numbers */

TR_FN void tr_philox(int64_t seed, int64_t offset, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)(uint64_t)offset, c1 = (uint32_t)((uint64_t)offset >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)(uint64_t)seed, k1 = (uint32_t)((uint64_t)seed >> 32);
    for (int step = 0; step < 10; ++step) {
        if (step) {
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Not inline: a compiler that may contract would give a sum the product as it is, not rounded. */
static TR_APART float tr_uniform(uint32_t word)
{
    int64_t n = (int32_t)word;
    return (float)(n < 0 ? -n - 1 : n) * 4.6566127342e-10f;
}

TR_FN float tr_rand(int64_t seed, int64_t offset)
{
    uint32_t w[4];
    tr_philox(seed, offset, w);
    return tr_uniform(w[0]);
}

TR_FN float tr_randn(int64_t seed, int64_t offset)
{
    uint32_t w[4];
    tr_philox(seed, offset, w);
    float u = tr_uniform(w[0]);
    double radius = sqrt(-2.0 * log((double)(u > 1e-7f ? u : 1e-7f)));
    double angle = 2.0 * 3.14159265358979323846 * (double)tr_uniform(w[1]);
    return (float)(radius * cos(angle));
}

TR_FN int64_t tr_randint(int64_t seed, int64_t offset, int64_t low, int64_t high)
{
    uint32_t w[4];
    tr_philox(seed, offset, w);
    uint64_t count = (uint64_t)high - (uint64_t)low;
    uint64_t drawn = ((uint64_t)w[1] << 32 | w[0]) % (count ? count : 1);
    return (int64_t)(drawn + (uint64_t)low);
}

/* ------------------------------------------------------------------ scratch rows */

TR_FN void *tr_scratch(int64_t count, size_t size)
{
    if (count < 1) count = 1;
    if ((uint64_t)count > SIZE_MAX / size) return NULL;
    return malloc((size_t)count * size);
}
