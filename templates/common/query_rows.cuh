//@use common/base.cuh
/*
 * Rows of ROW_BYTES in shared memory, heads of queries as mma.sync's operand: a lane reads 16 bytes
 * at a time, four neighbouring chunks of each of eight rows. They serve two k-steps, in both
 * operands: along a row, columns only have to agree.
 */

enum {
    CHUNK_BYTES = 16,
    ROW_CHUNKS = ROW_BYTES / CHUNK_BYTES,
    ROW_LOADS = ROW_BYTES / 64 /* 16 bytes of a lane, 64 of the four lanes of a row */
};

/* Where chunk `chunk` of a row stands: of two neighbouring rows four chunks then lie in different
 * banks. */
DEVICE u32 query_place(int row, int chunk) {
    const int exchanged = ROW_CHUNKS > 4 ? chunk ^ (row % 2 * 4) : chunk;
    return (u32)(row * ROW_BYTES + exchanged * CHUNK_BYTES);
}
