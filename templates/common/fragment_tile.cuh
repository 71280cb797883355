//@use common/base.cuh
//@use common/wgmma_tile.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/math.cuh
//@use ptx/stmatrix.cuh
//@use ptx/thread.cuh
/*
 * A 64 x 64 bf16 tile in shared memory, 128-byte swizzled. One warpgroup writes it from its
 * accumulators, another reads it transposed as operand A.
 */

enum {
    FRAGMENT_WORDS = 16 /* of a thread, two bf16 each: 32 accumulator values */
};

/* Converts accumulators to bf16. The result is also an operand A. */
DEVICE void pack_fragments(u32 *words, const float *values) {
#pragma unroll
    for (int i = 0; i < FRAGMENT_WORDS; ++i) {
        words[i] = pack_bf16x2(values[2 * i], values[2 * i + 1]);
    }
}

/* Stores packed accumulators to a tile. */
DEVICE void store_fragments(int offset, const u32 *words) {
    const u32 warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const u32 to = shared_address((u32)offset + (warp * 16 + lane % 16) * TILE_PITCH +
                                  ((lane / 16) ^ (lane % 8)) * 16);
#pragma unroll
    for (int i = 0; i < FRAGMENT_WORDS / 4; ++i) {
        stmatrix_x4(to ^ (u32)(i * STEP_BYTES), &words[4 * i]);
    }
}

/* Loads a tile transposed, as A fragments: the tile's rows are the depth. */
DEVICE void load_fragments_transposed(u32 *fragments, int offset) {
    const u32 thread = thread_number() % 128, warp = thread / 32, lane = thread % 32;
    const u32 from = shared_address((u32)offset + (lane % 8 + lane / 16 * 8) * TILE_PITCH +
                                    ((2 * warp + lane / 8 % 2) ^ (lane % 8)) * 16);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        ldmatrix_x4_trans(&fragments[4 * k], from + (u32)(k * 16 * TILE_PITCH));
    }
}
