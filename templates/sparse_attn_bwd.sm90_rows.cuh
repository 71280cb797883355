//@use common/base.cuh
//@use common/quad.cuh
//@use ptx/math.cuh
//@use ptx/memory.cuh
//@use sparse_attn_bwd.params.h
//@use sparse_attn_bwd.sm90_shared.cuh
/*
 * Rows of dq, of sparse_attn_bwd.sm90.cu: how two warpgroups divide the columns, the rows' global
 * addresses, and stores from accumulator fragments.
 */

enum {
    WIDE_COLUMNS = 128,             /* of one wgmma of dQ */
    WIDE_VALUES = WIDE_COLUMNS / 2, /* per thread */

    /* The scores have the first 128 columns, the gather the last 3 * 128. With DQK = 576 one tile
     * is between them: its first 56 columns are the scores', its last 8 the gather's. */
    LAST_GROUPS = 3,
    LAST_COLUMN = DQK - LAST_GROUPS * WIDE_COLUMNS, /* first of the gather's 3 * 128 */
    LAST_TILE = LAST_COLUMN / TILE_COLUMNS,
    DIVIDES_TILE = LAST_COLUMN > WIDE_COLUMNS,
    DIVIDED_TILE = 2,
    REST_COLUMNS = 56,
    REST_VALUES = REST_COLUMNS / 2,

    /* 1: all 64 rows of every item exist, since heads are not padded. */
    FULL_ITEMS = GROUP_QUERIES == 1 && HEADS % BLOCK_HEADS == 0
};

/* The first of this thread's two rows in its warpgroup's fragments; the second is 8 further. */
DEVICE int fragment_row(void) {
    const u32 thread = threadIdx.x % WARPGROUP;
    return (int)(thread / 32 * 16 + thread % 32 / 4);
}

/* The head of an item's row. */
DEVICE int row_head(int item, int row) {
    return first_head(item) + row % MEMBER_ROWS;
}

/* An item's row in dq, or null for a padded row. */
DEVICE char *dq_row(const struct sparse_attn_bwd_params *params, int item, int row) {
    const i64 group = item_group(item);
    const int query = params->members[group * GROUP_QUERIES + row / MEMBER_ROWS];
    const int head = row_head(item, row);
    if (query < 0 || head >= HEADS) {
        return 0;
    }
    return (char *)params->dq +
           2 * (query / params->tokens * params->dq_batch_stride +
                query % params->tokens * params->dq_token_stride + head * params->dq_head_stride);
}

/* A row of this CTA's slice of an item. */
DEVICE char *slice_row(const struct sparse_attn_bwd_params *params, int item, int row) {
    const int cta = (int)blockIdx.x / SIDES;
    const int slice = (cta + item / SIDES) * SIDES + item % SIDES;
    return (char *)params->slices + ((i64)slice * BLOCK_HEADS + row) * (DQK * 2);
}

/* This thread's two rows, at its first 16 bytes of every 64; null for padded rows. */
DEVICE void find_dq_rows(char **rows, const struct sparse_attn_bwd_params *params, int item) {
    const int row = fragment_row();
    const bool sliced = !DETERMINISTIC && item < params->sliced;
    rows[0] = sliced ? slice_row(params, item, row) : dq_row(params, item, row);
    if (sliced) {
        rows[1] = rows[0] + 8 * DQK * 2;
    } else if (MEMBER_ROWS == 8) {
        rows[1] = dq_row(params, item, row + 8);
    } else {
        const bool exists = FULL_ITEMS || (rows[0] && row_head(item, row) + 8 < HEADS);
        rows[1] = exists ? rows[0] + 16 * params->dq_head_stride : 0;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        rows[r] = FULL_ITEMS || rows[r] ? rows[r] + threadIdx.x % 4 * 16 : 0;
    }
}

/* Stores 32 columns of dQ as bf16, 16 values of each thread: 16 bytes per thread and row. */
DEVICE void store_columns_32(char *const *rows, int column, const float *values) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        u32 x[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            x[k] = pack_bf16x2(values[k * 4 + 2 * r], values[k * 4 + 2 * r + 1]);
        }
        transpose_quad(x);
        if (FULL_ITEMS || rows[r]) {
            store_streaming_16(rows[r] + column * 2, x);
        }
    }
}

/* The same for 8 columns, 4 values. */
DEVICE void store_columns_8(char *const *rows, int column, const float *values) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        if (FULL_ITEMS || rows[r]) {
            *(u32 *)(rows[r] - threadIdx.x % 4 * 12 + column * 2) =
                pack_bf16x2(values[2 * r], values[2 * r + 1]);
        }
    }
}

/* Zeroes dq of the CTA's items without keys, one warp per item. */
DEVICE void zero_empty_items(const struct sparse_attn_bwd_params *params) {
    const u32 zeros[4] = {0, 0, 0, 0};
    const int end = (params->first_group + params->groups) * HEAD_BLOCKS;
    const int step = (int)gridDim.x * (THREADS / 32), lane = (int)(threadIdx.x % 32);
    int item = params->first_group * HEAD_BLOCKS + (int)(blockIdx.x + threadIdx.x / 32 * gridDim.x);
    for (; item < end; item += step) {
        if (params->counts[item_group(item)] > 0) {
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
