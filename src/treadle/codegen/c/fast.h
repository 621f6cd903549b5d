/* Functions in float that run on whole vectors: no branch, no table, no call.

   Written once for TR_F: a float (lanes_1.h), and vectors of 4, 8 and 16 (lanes_n.h).
   Coefficients were fitted by bench/fit_functions.py. The largest error over all floats, in units
   of the last place, stands with each function; a test walks through all of them. Infinities, NaN,
   zeros and subnormals come out as the exact function's: TR_AT_LEAST and TR_AT_MOST let a NaN pass.

   Quotients of long polynomials are exact enough only if a machine multiplies and adds with one
   rounding; where it does not, the C library stands in for them. */

/* exp: 1.02 ulp. */
TR_FN TR_F TR_NAME(exp)(TR_F x)
{
    /* exp(-104) is below half the smallest number, exp(89) above the largest. */
    TR_F t = TR_AT_MOST(TR_AT_LEAST(x, -104.0f), 89.0f);
    TR_F n = t * 1.44269504f + 12582912.0f;
    TR_I e = (TR_I)(TR_BITS(n) - 0x4b400000u);
    n -= 12582912.0f;
    TR_F r = t - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    TR_F p = TR_ALL(0x1.6a244cp-10f);
    p = p * r + 0x1.1239d4p-7f;
    p = p * r + 0x1.5558f2p-5f;
    p = p * r + 0x1.555492p-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = p * (r * r) + r + 1.0f;
    return TR_SCALED(p, n, e);
}

/* log: 0.86 ulp. */
TR_FN TR_F TR_NAME(log)(TR_F x)
{
    TR_I small = x < 1.17549435e-38f;
    TR_F s = TR_WHERE(small, x * 8388608.0f, x);
    TR_U b = TR_BITS(s);
    TR_I e = (TR_I)(b - 0x3f3504f3u) >> 23;
    TR_F m = TR_FLOAT(b - ((TR_U)e << 23));
    TR_F n = TR_NUMBER(e) - TR_WHERE(small, TR_ALL(23.0f), TR_ALL(0.0f));
    TR_F f = m - 1.0f;
    TR_F z = f * f;
    TR_F p = TR_ALL(-0.07634493f);
    p = p * f + 0.12761576f;
    p = p * f - 0.13160183f;
    p = p * f + 0.14201758f;
    p = p * f - 0.16623357f;
    p = p * f + 0.20001227f;
    p = p * f - 0.25000821f;
    p = p * f + 0.33333332f;
    TR_F y = f * (z * p) + n * -2.12194440e-4f;
    y = y - 0.5f * z;
    y = f + y;
    y = y + n * 0.693359375f;
    y = TR_WHERE(x == 0.0f, TR_ALL(-INFINITY), y);
    y = TR_WHERE(x < 0.0f, TR_ALL(NAN), y);
    return TR_WHERE((x == INFINITY) | (x != x), x, y);
}

/* tanh: 5.3 ulp, never beyond 1. */
#ifdef FP_FAST_FMAF
TR_FN TR_F TR_NAME(tanh)(TR_F x)
{
    TR_F t = TR_AT_MOST(TR_AT_LEAST(x, -9.02f), 9.02f);
    TR_F u = t * t;
    TR_F p = TR_ALL(1.331909503872088e-08f);
    p = p * u + 2.0583500214618593e-05f;
    p = p * u + 0.003494035806776856f;
    p = p * u + 0.1337971902146037f;
    p = p * u + 0.99999997900761f;
    TR_F q = TR_ALL(7.762029576660145e-07f);
    q = q * u + 0.00032830948122616795f;
    q = q * u + 0.025871078040713633f;
    q = q * u + 0.4671303426254527f;
    q = q * u + 1.0f;
    return TR_AT_MOST(TR_AT_LEAST(t * p / q, -1.0f), 1.0f);
}
#else
TR_FN float tr_fast_tanh(float x) { return (float)tanh((double)x); }
#endif

/* erf: 5.9 ulp, never beyond 1, and 1 far out: what is left of it beside -1 is multiplied by any
   number there is (gelu). Past 3.93, where the fit ends, the quotient only grows. */
#ifdef FP_FAST_FMAF
TR_FN TR_F TR_NAME(erf)(TR_F x)
{
    TR_F t = TR_AT_MOST(TR_AT_LEAST(x, -4.1f), 4.1f);
    TR_F u = t * t;
    TR_F p = TR_ALL(2.041963167036852e-06f);
    p = p * u + 0.0002848088061061937f;
    p = p * u + 0.0037796313175934245f;
    p = p * u + 0.05279035695993769f;
    p = p * u + 0.19078438048375965f;
    p = p * u + 1.128379145359693f;
    TR_F q = TR_ALL(3.8004005817888743e-05f);
    q = q * u + 0.001165217447844154f;
    q = q * u + 0.014997483264165497f;
    q = q * u + 0.11425774745498639f;
    q = q * u + 0.5024109745597057f;
    q = q * u + 1.0f;
    return TR_AT_MOST(TR_AT_LEAST(t * p / q, -1.0f), 1.0f);
}
#else
TR_FN float tr_fast_erf(float x) { return (float)erf((double)x); }
#endif

/* gelu_tilt: 3.5 ulp. */
#ifdef FP_FAST_FMAF
TR_FN TR_F TR_NAME(gelu_tilt)(TR_F x)
{
    TR_F t = TR_AT_MOST(TR_AT_LEAST(x, -5.8f), 5.8f);
    TR_F u = t * t;
    TR_F p = TR_ALL(1.566165863664537e-08f);
    p = p * u + 7.353212367888773e-07f;
    p = p * u + 3.4084780054399744e-05f;
    p = p * u + 0.00013189500896260142f;
    p = p * u + 0.014011996798217297f;
    p = p * u - 0.026288507506251335f;
    p = p * u + 0.7978845834732056f;
    TR_F q = TR_ALL(1.2777658930929192e-09f);
    q = q * u + 2.876732878576149e-07f;
    q = q * u + 9.391897037858143e-06f;
    q = q * u + 0.00022763015294913203f;
    q = q * u + 0.003770600538700819f;
    q = q * u + 0.042690351605415344f;
    q = q * u + 0.3003854751586914f;
    q = q * u + 1.0f;
    /* Beyond, exactly a half; of infinities none, as of an infinity times the end of the bell. */
    TR_F half = TR_FLOAT((TR_BITS(x) & 0x80000000u) | 0x3f000000u) + (x - x);
    return TR_WHERE(x == t, t * p / q, half);
}
#else
TR_FN float tr_fast_gelu_tilt(float x) { return (float)tr_gelu_tilt((double)x); }
#endif

/* sigmoid: 2.41 ulp. */
TR_FN TR_F TR_NAME(sigmoid)(TR_F x)
{
    /* exp never overflows, so that small results are not lost. */
    TR_F e = TR_NAME(exp)(TR_FLOAT(TR_BITS(x) | 0x80000000u));
    return TR_WHERE(x < 0.0f, e, TR_ALL(1.0f)) / (e + 1.0f);
}
