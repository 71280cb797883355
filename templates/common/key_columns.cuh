//@use common/base.cuh
/*
 * The column order of dkv's rows while they are summed. In the fragment of a 16 x 32 accumulator
 * (four m16n8 tiles) lane 4r + c has columns 8i + 2c + e, i = 0..3, e = 0..1, of its rows. They are
 * stored at position 16 (i / 2) + 4c + 2 (i % 2) + e of every 32: a lane's values of i = 0, 1 and
 * of i = 2, 3 are 16 contiguous bytes of fp32 each, and a quad's are 64.
 */

/* The position of the first of eight columns; the next pairs follow at intervals of 4. */
DEVICE int position_of_eight(int eight) {
    return eight / 4 * 32 + eight % 4 / 2 * 16 + eight % 2 * 2;
}
