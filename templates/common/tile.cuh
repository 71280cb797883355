//@use common/base.cuh
/*
 * Swizzled bf16 tiles in shared memory: rows of a multiple of 128 bytes in 16-byte chunks (8
 * columns). Chunk c of row r is stored at chunk c ^ (r & 7), so that the eight rows of an ldmatrix
 * lie in different banks.
 */

enum { CHUNK_BYTES = 16, CHUNK_COLUMNS = 8 };

/* Byte offset of a chunk in a tile whose rows are `pitch` bytes. */
DEVICE u32 tile_chunk(int row, int chunk, int pitch) {
    return (u32)(row * pitch + ((chunk ^ (row & 7)) * CHUNK_BYTES));
}

/* The swizzled address `delta` unswizzled bytes after `base` in the same row: delta is xor-ed in
 * below 128 and added above, so that the addresses of unrolled steps differ only by constants.
 * Requires that adding delta carries neither into nor within the lower 7 bits, where the swizzle
 * works. */
DEVICE u32 tile_advance(u32 base, int delta) {
    return (base ^ (u32)(delta & 127)) + (u32)(delta & ~127);
}
