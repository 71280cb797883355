//@use common/base.cuh
/*
 * Rows of ROW_BYTES in shared memory: a query's heads as an mma.sync operand. A lane loads 16 bytes
 * at a time, four adjacent chunks of each of eight rows. One load serves two k-steps: both operands
 * permute the columns in the same way.
 */

enum {
    CHUNK_BYTES = 16,
    ROW_CHUNKS = ROW_BYTES / CHUNK_BYTES,
    SOURCE_CHUNKS = DIM * (FP8 ? 1 : 2) / CHUNK_BYTES, /* in global memory; the others are zeros */
    ROW_LOADS = ROW_BYTES / 64 /* 16-byte loads per lane: the four lanes of a row load 64 */
};

/* Byte offset of a chunk. The exchange puts four chunks of adjacent rows into different banks. */
DEVICE u32 query_chunk(int row, int chunk) {
    const int exchanged = ROW_CHUNKS > 4 ? chunk ^ (row % 2 * 4) : chunk;
    return (u32)(row * ROW_BYTES + exchanged * CHUNK_BYTES);
}
