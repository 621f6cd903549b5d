/* What fast.h is made of, for a single float. */
#define TR_F float
#define TR_I int32_t
#define TR_U uint32_t
#define TR_NAME(f) tr_fast_##f
#define TR_ALL(c) (c)
#define TR_BITS(x) tr_bits_f32(x)
#define TR_FLOAT(i) tr_f32_bits(i)
#define TR_NUMBER(i) ((float)(i))
#define TR_WHERE(c, a, b) ((c) ? (a) : (b))
#define TR_AT_LEAST(x, c) tr_at_least(x, c)
#define TR_AT_MOST(x, c) tr_at_most(x, c)
#define TR_SCALED(p, n, e) tr_scaled(p, e)
TR_FN float tr_at_least(float x, float c) { return x < c ? c : x; }
TR_FN float tr_at_most(float x, float c) { return x > c ? c : x; }
/* p times 2 to the power of e, which is from -150 to 128: two factors instead of one. The first
   keeps p a normal number, so that small results are rounded once, by the second. */
TR_FN float tr_scaled(float p, int32_t e)
{
    int32_t half = e >> 1;
    return p * tr_f32_bits((uint32_t)(half + 127) << 23)
        * tr_f32_bits((uint32_t)(e - half + 127) << 23);
}
/* One of two values, without a branch. */
TR_FN float tr_chosen_f32(uint8_t first, float a, float b)
{
    uint32_t mask = -(uint32_t)(first != 0);
    return tr_f32_bits((tr_bits_f32(a) & mask) | (tr_bits_f32(b) & ~mask));
}
TR_FN double tr_chosen_f64(uint8_t first, double a, double b)
{
    uint64_t mask = -(uint64_t)(first != 0);
    return tr_f64_bits((tr_bits_f64(a) & mask) | (tr_bits_f64(b) & ~mask));
}
