//@use common/base.cuh
//@use common/tile.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/mma.cuh
//@use ptx/thread.cuh

/* Operands of mma.m16n8k16 from tiles in shared memory. */

/*
 * ldmatrix addresses of 16 rows and two chunks (16 columns, 32 bytes of a row), starting at `row`
 * and `chunk`.
 *
 *   rows_first     row lane % 16, chunk lane / 16: an A operand; with .trans a B operand whose
 *                  depth is the tile's rows
 *   columns_first  row lane % 8 and lane / 16, chunk bit 3: a B operand whose columns are the
 *                  tile's rows; with .trans an A operand whose rows are the tile's columns
 */
DEVICE u32 rows_first(u32 tile, int row, int chunk, int pitch) {
    const int lane = (int)thread_number() % 32;
    return tile + tile_chunk(row + lane % 16, chunk + lane / 16, pitch);
}

DEVICE u32 columns_first(u32 tile, int row, int chunk, int pitch) {
    const int lane = (int)thread_number() % 32;
    return tile + tile_chunk(row + lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2, pitch);
}

DEVICE void clear(float *values, int count) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
        values[i] = 0.0f;
    }
}

/* Loads the fragments of `tiles` * 16 rows. */
DEVICE void load_fragments(u32 *fragments, int tiles, u32 address, int pitch) {
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
        ldmatrix_x4(&fragments[i * 4], address + (u32)(i * 16 * pitch));
    }
}
