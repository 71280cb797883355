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

/* The swizzled place `delta` bytes on from `base` in the same row. Holds when adding delta to the
 * unswizzled place carries nothing into or within its lower 7 bits, which is where the swizzle
 * works: delta then is xor-ed in below 128 and added above, and differs by constants alone. */
DEVICE u32 tile_advance(u32 base, int delta) {
    return (base ^ (u32)(delta & 127)) + (u32)(delta & ~127);
}
