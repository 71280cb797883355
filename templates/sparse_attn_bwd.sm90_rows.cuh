//@use common/base.cuh
//@use common/quad.cuh
//@use ptx/math.cuh
//@use ptx/memory.cuh
//@use sparse_attn_bwd.params.h
//@use sparse_attn_bwd.sm90_blocks.cuh
/*
 * Rows of dq, of sparse_attn_bwd.sm90.cu: how its columns are divided between two warpgroups, where
 * an item's rows are, and stores from fragments.
 */

enum {
    WIDE_COLUMNS = 128,             /* of one wgmma of dQ */
    WIDE_VALUES = WIDE_COLUMNS / 2, /* of a thread */

    /* The scores have the first 128 columns, the gather three times 128, the last. Of a tile in
     * between 56 columns are the scores', 8 the gather's. */
    LAST_GROUPS = 3,
    LAST_COLUMN = DQK - LAST_GROUPS * WIDE_COLUMNS, /* the gather's first of the 128s */
    LAST_TILE = LAST_COLUMN / TILE_COLUMNS,
    DIVIDES_TILE = LAST_COLUMN > WIDE_COLUMNS,
    DIVIDED_TILE = 2,
    REST_COLUMNS = 56,
    REST_VALUES = REST_COLUMNS / 2
};

/* The first of this thread's two rows of an item, in its warpgroup's fragments; the other is 8
 * further. */
DEVICE int fragment_row(void) {
    return (int)(threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4);
}

/* A row of an item in dq, or null when there is none. */
DEVICE char *dq_row(const struct sparse_attn_bwd_params *params, int item, int row) {
    const int member = row / MEMBER_ROWS;
    const int head = item % HEAD_BLOCKS * BLOCK_HEADS + row % MEMBER_ROWS;
    const int query = params->members[(i64)(item / HEAD_BLOCKS) * GROUP_QUERIES + member];
    if (query < 0 || head >= HEADS) {
        return 0;
    }
    return (char *)params->dq +
           2 * (query / params->tokens * params->dq_batch_stride +
                query % params->tokens * params->dq_token_stride + head * params->dq_head_stride);
}

DEVICE void fragment_rows_of_dq(char **rows, const struct sparse_attn_bwd_params *params,
                                int item) {
    rows[0] = dq_row(params, item, fragment_row());
    rows[1] = dq_row(params, item, fragment_row() + 8);
}

/* 32 columns of dQ, 16 values of a thread, as bf16: 16 bytes a thread and row. */
DEVICE void store_columns_32(char *const *rows, int column, const float *values) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        u32 x[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            x[k] = pack_bf16x2(values[k * 4 + 2 * r], values[k * 4 + 2 * r + 1]);
        }
        transpose_quad(x);
        if (rows[r]) {
            store_streaming_16(rows[r] + column * 2 + threadIdx.x % 4 * 16, x);
        }
    }
}

/* 8 columns, 4 values. */
DEVICE void store_columns_8(char *const *rows, int column, const float *values) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (rows[r]) {
            *(u32 *)(rows[r] + column * 2 + threadIdx.x % 4 * 4) =
                pack_bf16x2(values[2 * r], values[2 * r + 1]);
        }
    }
}

/* dq of the thread block's items without keys is zero; a warp takes an item. */
DEVICE void zero_empty_items(const struct sparse_attn_bwd_params *params) {
    const u32 zeros[4] = {0, 0, 0, 0};
    const int end = (params->first_group + params->groups) * HEAD_BLOCKS;
    const int step = (int)gridDim.x * (THREADS / 32), lane = (int)(threadIdx.x % 32);
    int item = params->first_group * HEAD_BLOCKS + (int)(blockIdx.x + threadIdx.x / 32 * gridDim.x);
    for (; item < end; item += step) {
        if (params->counts[item / HEAD_BLOCKS] > 0) {
            continue;
        }
        for (int row = 0; row < BLOCK_HEADS; ++row) {
            char *const to = dq_row(params, item, row);
            for (int piece = lane; to && piece < DQK / 8; piece += 32) {
                store_streaming_16(to + piece * 16, zeros);
            }
        }
    }
}
