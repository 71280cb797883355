//@use common/base.cuh
//@use common/fragments.cuh
//@use common/gqa_rows.cuh
//@use common/gqa_tile.cuh
//@use common/softmax.cuh
//@use common/tile.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/mma.cuh
/*
 * The scores of a group's heads and a block's rows (common/gqa_rows.cuh), by warps as in
 * common/gqa_tile.cuh.
 *
 * Shared memory: QUERY [BLOCK_ROWS][KEY_PITCH bytes] bf16
 */

enum {
    WARP_KEYS = BLOCK_KEYS / KEY_GROUPS, /* of a block */
    KEY_TILES = WARP_KEYS / 8,           /* n8 tiles of S */
    DEPTH_STEPS = DQK / 16,              /* k-steps of S */
    QUERY_FRAGMENTS = QUERY_IN_REGISTERS ? DEPTH_STEPS * 4 : 1
};

/* Loads the query fragments that stay in registers. */
DEVICE void load_query_fragments(u32 *query, const struct place *place) {
    const u32 from = rows_first(shared_address(QUERY_OFFSET), place->row, 0, KEY_PITCH);
#pragma unroll
    for (int step = 0; step < DEPTH_STEPS; ++step) {
        ldmatrix_x4(&query[step * 4], tile_advance(from, step * 32));
    }
}

/* s = Q K^T for this warp's keys of the block in a stage. */
DEVICE void compute_scores(float *s, const u32 *query, const struct place *place, int stage) {
    const u32 keys = columns_first(shared_address(KEYS_OFFSET + (u32)(stage * KEY_BYTES)),
                                   place->key, 0, KEY_PITCH);
    if (!QUERY_IN_REGISTERS) {
        multiply_keys(s, rows_first(shared_address(QUERY_OFFSET), place->row, 0, KEY_PITCH), keys,
                      KEY_TILES, DEPTH_STEPS, KEY_PITCH);
        return;
    }
    clear(s, KEY_TILES * 4);
#pragma unroll
    for (int step = 0; step < DEPTH_STEPS; ++step) {
#pragma unroll
        for (int n = 0; n < KEY_TILES / 2; ++n) {
            u32 b[4];
            ldmatrix_x4(b, tile_advance(keys, step * 32) + (u32)(n * 16 * KEY_PITCH));
            mma_m16n8k16_bf16(&s[n * 8], &query[step * 4], &b[0]);
            mma_m16n8k16_bf16(&s[n * 8 + 4], &query[step * 4], &b[2]);
        }
    }
}

/* Sets the scores of masked rows to -inf. */
DEVICE void mask_scores(float *s, const struct place *place, int block) {
    const int *const rows = block_rows(block) + place->key + (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < KEY_TILES; ++n) {
        const uint2 pair = *(const uint2 *)&rows[n * 8];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            s[n * 4 + half * 2] = (int)pair.x >= 0 ? s[n * 4 + half * 2] : MINUS_INFINITY;
            s[n * 4 + half * 2 + 1] = (int)pair.y >= 0 ? s[n * 4 + half * 2 + 1] : MINUS_INFINITY;
        }
    }
}
