//@use common/base.cuh
/*
 * Tiles of bf16 in shared memory: rows of a multiple of 128 bytes, cut into 16-byte chunks (8
 * columns); chunk c of row r stands at place c ^ (r & 7), so that the eight rows ldmatrix reads at
 * one chunk lie in eight different groups of four banks.
 */

enum { CHUNK_BYTES = 16, CHUNK_COLUMNS = 8 };

/* Byte offset of a chunk inside a tile whose rows take `pitch` bytes. */
DEVICE u32 tile_chunk(int row, int chunk, int pitch) {
    return (u32)(row * pitch + ((chunk ^ (row & 7)) * CHUNK_BYTES));
}
