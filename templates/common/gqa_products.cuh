//@use common/base.cuh
//@use common/softmax.cuh
//@use common/wgmma_tile.cuh
//@use ptx/math.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_ss.cuh n = BLOCK_KEYS, ta = 0, tb = 0
//@use ptx/wgmma_rs.cuh n = DV, tb = 1
/* A warpgroup's products of 64 rows of queries and a block of keys, for
 * sparse_gqa's forward pass. */

enum {
    KEY_TILES = (DQK + TILE_COLUMNS - 1) / TILE_COLUMNS, /* of columns */
    VALUE_TILES = (DV + TILE_COLUMNS - 1) / TILE_COLUMNS,
    BLOCK_TILE_BYTES = BLOCK_KEYS * TILE_PITCH, /* a column tile of K or V */
    KEY_BYTES = KEY_TILES * BLOCK_TILE_BYTES,
    VALUE_BYTES = VALUE_TILES * BLOCK_TILE_BYTES,
    QUERY_BYTES = KEY_TILES * TILE_BYTES,
    UNIT_ROWS = 8,
    TILE_UNITS = 8,
    SCORE_VALUES = BLOCK_KEYS / 2, /* S of a thread */
    OUTPUT_VALUES = DV / 2         /* O of a thread */
};

/* Starts S = Q K^T; `query`, `keys`: offsets in shared memory. */
DEVICE void issue_scores(float *s, u32 query, u32 keys) {
    const u64 q = tile_descriptor(query), k = tile_descriptor(keys);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < DQK / 16; ++step) {
        const u32 along = (u32)(step % 4 * STEP_BYTES);
        // clang-format off
        wgmma_ss_n${BLOCK_KEYS}_t00(s, descriptor_advance(q, (u32)(step / 4 * TILE_BYTES) + along),
                                    descriptor_advance(k, (u32)(step / 4 * BLOCK_TILE_BYTES) + along),
                                    step > 0);
        // clang-format on
    }
    wgmma_commit();
}

/* Sets scores of keys that this thread's two rows do not read to -inf. */
DEVICE void mask_scores(float *s, const int *keys) {
    const int column = (int)(threadIdx.x % 4 * 2);
#pragma unroll
    for (int i = 0; i < SCORE_VALUES; ++i) {
        if (i / 4 * 8 + column + i % 2 >= keys[i / 2 % 2]) {
            s[i] = MINUS_INFINITY;
        }
    }
}

/* P of a thread's scores, as operand A. */
DEVICE void pack_scores(u32 *p, const float *s) {
#pragma unroll
    for (int i = 0; i < SCORE_VALUES / 2; ++i) {
        p[i] = pack_bf16x2(s[2 * i], s[2 * i + 1]);
    }
}

/* Starts O = P V, or with `accumulate` O += P V. */
DEVICE void issue_output(float *o, const u32 *p, u32 values, int accumulate) {
    const u64 v = shared_descriptor(shared_address(values), BLOCK_TILE_BYTES, ATOM_BYTES, 128);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < BLOCK_KEYS / 16; ++step) {
        // clang-format off
        wgmma_rs_n${DV}_t01(o, &p[4 * step], descriptor_advance(v, (u32)(step * ROW_STEP_BYTES)),
                            accumulate | step);
        // clang-format on
    }
    wgmma_commit();
}
