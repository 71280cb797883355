//@use common/base.cuh
/*
 * The order of columns in rows of dkv while they are summed. The fragment of a 16 x 32 accumulator
 * (four m16n8 tiles) gives lane 4r + c columns 8i + 2c + e, i = 0..3, e = 0..1, of its rows. As
 * position 16 (i / 2) + 4c + 2 (i % 2) + e of every 32 its values of i = 0, 1 and of i = 2, 3 are
 * 16 bytes each of fp32, and a quad's 64.
 */

/* Which column stands at a position. */
DEVICE int column_at(int position) {
    const int p = position % 32;
    return position - p + (p / 16 * 2 + p / 2 % 2) * 8 + p % 16 / 4 * 2 + p % 2;
}
