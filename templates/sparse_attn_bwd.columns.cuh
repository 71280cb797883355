//@use common/base.cuh
/*
 * The order of columns in rows of dkv while they are summed. The fragment of a 16 x 32 accumulator
 * (four m16n8 tiles) gives lane 4r + c columns 8i + 2c + e, i = 0..3, e = 0..1, of its rows. They
 * stand at position 16 (i / 2) + 4c + 2 (i % 2) + e of every 32: a lane's values of i = 0, 1 and of
 * i = 2, 3 are 16 contiguous bytes each of fp32, and a quad's 64.
 */

/* Where the first of eight columns stands; the pairs behind it follow 4 positions apart each. */
DEVICE int position_of_eight(int eight) {
    return eight / 4 * 32 + eight % 4 / 2 * 16 + eight % 2 * 2;
}
