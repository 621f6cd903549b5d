/* What has 8 bits, on whole vectors: whole numbers, and floats that are held as what they equal. */
#ifdef TR_WHOLE
TR_INSIDE tr_wi tr_w_load_u8(const uint8_t *p)
{
#if TR_W == 16
    tr_byte16 s;
    __builtin_memcpy(&s, p, sizeof s);
    return (tr_wi)__builtin_ia32_pmovzxbd512_mask(s, (tr_i16){0}, -1);
#else
    tr_byte16 s = {0};
    __builtin_memcpy(&s, p, 8);
    return (tr_wi)__builtin_ia32_pmovzxbd256(s);
#endif
}
TR_INSIDE tr_wi tr_w_load_i8(const int8_t *p) { return tr_w_i8(tr_w_load_u8((const uint8_t *)p)); }
TR_INSIDE tr_wi tr_w_load_u8_some(int n, const uint8_t *p)
{
    uint8_t all[TR_W] = {0};
    for (int k = 0; k < n; ++k) all[k] = p[k];
    return tr_w_load_u8(all);
}
TR_INSIDE tr_wi tr_w_load_i8_some(int n, const int8_t *p)
{
    return tr_w_i8(tr_w_load_u8_some(n, (const uint8_t *)p));
}

/* As in the prelude: the bits of |x|, moved to the places they have in 8 bits; below the smallest
   normal number a number is added that has the last place of the others. */
TR_INSIDE tr_wi tr_w_chosen_bits(tr_wi c, tr_wi a, tr_wi b)
{
    return (tr_wi)tr_w_where(c, (tr_w)a, (tr_w)b);
}
#define TR_W_EIGHTH(kind, mantissa, bias, magic, smallest, most, largest, nan) \
    TR_INSIDE tr_wi tr_w_code_##kind(tr_w x) \
    { \
        const tr_wi u = (tr_wi)x, a = u & 0x7fffffff; \
        const tr_wi odd = (tr_wi)((tr_wu)a >> (23 - mantissa)) & 1; \
        const tr_wu even = (tr_wu)a + (tr_wu)odd + ((1u << (22 - mantissa)) - 1u); \
        const tr_wi normal = (tr_wi)(even >> (23 - mantissa)) - ((127 - bias) << mantissa); \
        const tr_wi small = (tr_wi)((tr_w)a + magic) - (tr_wi)tr_w_all(magic); \
        tr_wi code = tr_w_chosen_bits((tr_wi)(a < smallest), small, normal); \
        code = tr_w_chosen_bits((tr_wi)(a > most), (tr_wi){0} + largest, code); \
        code = tr_w_chosen_bits((tr_wi)(a > 0x7f800000), nan, code); \
        return code | (tr_wi)((tr_wu)u >> 24 & 0x80u); \
    } \
    TR_INSIDE tr_w tr_w_round_##kind(tr_w x) \
    { \
        const tr_wi u = (tr_wi)x, a = u & 0x7fffffff; \
        const tr_wu odd = ((tr_wu)a >> (23 - mantissa)) & 1u; \
        const tr_wu even = (tr_wu)a + odd + ((1u << (22 - mantissa)) - 1u); \
        const tr_wi normal = (tr_wi)(even & -(1u << (23 - mantissa))); \
        const tr_wi small = (tr_wi)(((tr_w)a + magic) - magic); \
        tr_wi y = tr_w_chosen_bits((tr_wi)(a < smallest), small, normal); \
        const tr_wi rare = (tr_wi)(a > most); /* what is too large, and what is no number */ \
        if (__builtin_expect(tr_w_any(rare), 0)) { \
            const tr_wi held = (tr_wi)tr_w_value_##kind(tr_w_code_##kind((tr_w)a)); \
            y = tr_w_chosen_bits(rare, held, y); \
        } \
        return (tr_w)(y | (u & (tr_wi)((tr_wu){0} + 0x80000000u))); \
    } \
    TR_INSIDE tr_w tr_w_load_##kind(const uint8_t *p) \
    { \
        return tr_w_value_##kind(tr_w_load_u8(p)); \
    } \
    TR_INSIDE tr_w tr_w_load_##kind##_some(int n, const uint8_t *p) \
    { \
        return tr_w_value_##kind(tr_w_load_u8_some(n, p)); \
    } \
    /* Rounds, once. */ \
    TR_INSIDE void tr_w_store_##kind(uint8_t *p, tr_w x) \
    { \
        tr_w_store_bytes(p, tr_w_code_##kind(x)); \
    } \
    TR_INSIDE void tr_w_store_##kind##_some(int n, uint8_t *p, tr_w x) \
    { \
        tr_w_store_bytes_some(n, p, tr_w_code_##kind(x)); \
    }
#define TR_W_EIGHTH_VALUE(kind, mantissa, bias, least, special, makes) \
    TR_INSIDE tr_w tr_w_value_##kind(tr_wi s) \
    { \
        const tr_wi a = (s & 0x7f) << (23 - mantissa), normal = a + ((127 - bias) << 23); \
        const tr_wi small = (tr_wi)((tr_w)(a + ((128 - bias) << 23)) - least); \
        tr_wi code = tr_w_chosen_bits((tr_wi)(a < 0x00800000), small, normal); \
        code = tr_w_chosen_bits((tr_wi)(a >= special << (23 - mantissa)), makes, code); \
        return (tr_w)(code | (s & 0x80) << 24); \
    }
TR_W_EIGHTH_VALUE(f8e5m2, 2, 15, 0x1p-14f, 0x7c, a | 0x7f800000)
TR_W_EIGHTH_VALUE(f8e4m3fn, 3, 7, 0x1p-6f, 0x7f, (tr_wi){0} + 0x7fc00000)
/* A NaN of e5m2 keeps what it can of its payload. */
#define TR_W_NAN_F8E5M2 (0x7c | (a >> 21 & 3) | ((tr_wi)((a & 0x00600000) == 0) & 2))
TR_W_EIGHTH(f8e5m2, 2, 15, 128.0f, 0x38800000, 0x476fffff, 0x7c, TR_W_NAN_F8E5M2)
TR_W_EIGHTH(f8e4m3fn, 3, 7, 16384.0f, 0x3c800000, 0x43e00000, 0x7e, (tr_wi){0} + 0x7f)
#endif
