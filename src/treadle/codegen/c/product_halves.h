/* Products of f16 (product.h): elements become floats where they are brought together anyway. */

TR_APART void tr_panels_f16(float *to, int64_t lanes, const uint16_t *from, int64_t count,
                            int64_t own, int64_t n, int64_t along)
{
    float wide[32 * 16] __attribute__((aligned(64)));
    for (int64_t k = 0; k < count; k += lanes, to += n * lanes) {
        const uint16_t *x = from + k * own;
        const int64_t here = count - k < lanes ? count - k : lanes;
        for (int64_t r = 0; r < n; r += 16) {
            const int64_t terms = n - r < 16 ? n - r : 16;
            for (int64_t q = 0; q < here; ++q) {
                const uint16_t *row = x + q * own + r * along;
                if (along == 1) tr_widen_f16(wide + 16 * q, row, terms);
                else
                    for (int64_t i = 0; i < terms; ++i)
                        wide[16 * q + i] = tr_decode_f16(row[i * along]);
            }
            for (int64_t i = 0; i < terms; ++i)
                for (int64_t q = 0; q < lanes; ++q)
                    to[(r + i) * lanes + q] = q < here ? wide[16 * q + i] : 0;
        }
    }
}

TR_APART void tr_product_across_f16(int64_t lanes, int64_t columns, int64_t n, const uint16_t *b,
                                    int64_t across, int64_t along, const float *panel, float *c)
{
    enum { PIECE = 64 };
    float turned[16 * 32] __attribute__((aligned(64))), near[16 * PIECE] __attribute__((aligned(64)));
    const int64_t wide = lanes < 16 ? 16 : lanes;
    memset(turned, 0, sizeof turned);
    for (int64_t r = 0; r < n; r += PIECE) {
        const int64_t here = n - r < PIECE ? n - r : PIECE;
        for (int64_t j = 0; j < columns; ++j) {
            const uint16_t *row = b + j * across + r * along;
            if (along == 1) tr_widen_f16(near + j * PIECE, row, here);
            else
                for (int64_t i = 0; i < here; ++i)
                    near[j * PIECE + i] = tr_decode_f16(row[i * along]);
        }
        tr_product(columns, lanes, 0, here, near, PIECE, 1, panel + r * lanes, lanes, turned, wide,
                   r > 0);
    }
    for (int64_t q = 0; q < wide; q += 16) tr_turn(turned + q, wide, c + q * 16, 16);
}
