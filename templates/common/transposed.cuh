//@use common/base.cuh
//@use common/tile.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/mma.cuh

/* sums += weights^T rows: `tiles` m16 tiles of the weights' columns by 32 columns of the rows,
 * depth 16 * steps, UNIT_UNROLL steps unrolled. `weights` is an address from columns_first, `rows`
 * one from rows_first. */
DEVICE void multiply_transposed(float *sums, int tiles, int steps, u32 weights, int weight_pitch,
                                u32 rows, int pitch) {
#pragma unroll UNIT_UNROLL
    for (int step = 0; step < steps; ++step) {
        u32 a[16], b[8];
#pragma unroll
        for (int m = 0; m < tiles; ++m) {
            ldmatrix_x4_trans(&a[m * 4],
                              tile_advance(weights, m * 32) + (u32)(step * 16 * weight_pitch));
        }
        ldmatrix_x4_trans(b, rows + (u32)(step * 16 * pitch));
        ldmatrix_x4_trans(b + 4, tile_advance(rows, 32) + (u32)(step * 16 * pitch));
#pragma unroll
        for (int m = 0; m < tiles; ++m) {
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                mma_m16n8k16_bf16(&sums[(m * 4 + n) * 4], &a[m * 4], &b[n * 2]);
            }
        }
    }
}
