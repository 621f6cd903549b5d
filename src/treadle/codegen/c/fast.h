/* Functions in float that a compiler can run on whole vectors: no branch, no table, no call.

   Coefficients were fitted by bench/fit_functions.py. The largest error over all floats, in units
   of the last place, stands with each function; a test walks through all of them. Infinities, NaN,
   zeros and subnormals come out as the exact function's.

   Quotients of long polynomials are exact enough only if a machine multiplies and adds with one
   rounding; where it does not, the C library stands in for them. */

/* exp: 1.02 ulp. */
TR_FN float tr_fast_exp(float x)
{
    /* exp(-104) is below half the smallest number. */
    float t = x < -104.0f ? -104.0f : x;
    t = t > 88.72284f ? 88.72284f : t;
    float n = t * 1.44269504f + 12582912.0f;
    int32_t e = (int32_t)(tr_bits_f32(n) - 0x4b400000u);
    n -= 12582912.0f;
    float r = t - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 0x1.6a244cp-10f;
    p = p * r + 0x1.1239d4p-7f;
    p = p * r + 0x1.5558f2p-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = p * (r * r) + r + 1.0f;
    /* e is from -150 to 128: two factors instead of one. The first keeps p a normal number, so that
       small results are rounded once, by the second. */
    int32_t half = e >> 1;
    p = p * tr_f32_bits((uint32_t)(half + 127) << 23) * tr_f32_bits((uint32_t)(e - half + 127) << 23);
    p = x > 88.72284f ? INFINITY : p;
    return x != x ? x : p;
}

/* log: 0.86 ulp. */
TR_FN float tr_fast_log(float x)
{
    float s = x < 1.17549435e-38f ? x * 8388608.0f : x;
    int32_t b = (int32_t)tr_bits_f32(s);
    int32_t e = (b - 0x3f3504f3) >> 23;
    float m = tr_f32_bits((uint32_t)(b - (int32_t)((uint32_t)e << 23)));
    float n = (float)e - (x < 1.17549435e-38f ? 23.0f : 0.0f);
    float f = m - 1.0f;
    float z = f * f;
    float p = -0.07634493f;
    p = p * f + 0.12761576f;
    p = p * f - 0.13160183f;
    p = p * f + 0.14201758f;
    p = p * f - 0.16623357f;
    p = p * f + 0.20001227f;
    p = p * f - 0.25000821f;
    p = p * f + 0.33333332f;
    float y = f * (z * p) + n * -2.12194440e-4f;
    y = y - 0.5f * z;
    y = f + y;
    y = y + n * 0.693359375f;
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return x == INFINITY || x != x ? x : y;
}

/* tanh: 5.3 ulp, never beyond 1. */
#ifdef FP_FAST_FMAF
TR_FN float tr_fast_tanh(float x)
{
    float t = x < -9.02f ? -9.02f : x;
    t = t > 9.02f ? 9.02f : t;
    float u = t * t;
    float p = 1.331909503872088e-08f;
    p = p * u + 2.0583500214618593e-05f;
    p = p * u + 0.003494035806776856f;
    p = p * u + 0.1337971902146037f;
    p = p * u + 0.99999997900761f;
    float q = 7.762029576660145e-07f;
    q = q * u + 0.00032830948122616795f;
    q = q * u + 0.025871078040713633f;
    q = q * u + 0.4671303426254527f;
    q = q * u + 1.0f;
    float y = t * p / q;
    y = y > 1.0f ? 1.0f : y;
    y = y < -1.0f ? -1.0f : y;
    return x != x ? x : y;
}
#else
TR_FN float tr_fast_tanh(float x) { return (float)tanh((double)x); }
#endif

/* erf: 5.9 ulp, never beyond 1. */
#ifdef FP_FAST_FMAF
TR_FN float tr_fast_erf(float x)
{
    float t = x < -3.93f ? -3.93f : x;
    t = t > 3.93f ? 3.93f : t;
    float u = t * t;
    float p = 2.041963167036852e-06f;
    p = p * u + 0.0002848088061061937f;
    p = p * u + 0.0037796313175934245f;
    p = p * u + 0.05279035695993769f;
    p = p * u + 0.19078438048375965f;
    p = p * u + 1.128379145359693f;
    float q = 3.8004005817888743e-05f;
    q = q * u + 0.001165217447844154f;
    q = q * u + 0.014997483264165497f;
    q = q * u + 0.11425774745498639f;
    q = q * u + 0.5024109745597057f;
    q = q * u + 1.0f;
    float y = t * p / q;
    y = y > 1.0f ? 1.0f : y;
    y = y < -1.0f ? -1.0f : y;
    return x != x ? x : y;
}
#else
TR_FN float tr_fast_erf(float x) { return (float)erf((double)x); }
#endif

/* sigmoid: 2.41 ulp. */
TR_FN float tr_fast_sigmoid(float x)
{
    /* exp never overflows, so that small results are not lost. */
    float e = tr_fast_exp(x < 0.0f ? x : -x);
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
