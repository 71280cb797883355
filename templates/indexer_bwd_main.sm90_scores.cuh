//@use common/fragment_tile.cuh
//@use common/head_weight.cuh
//@use common/quad.cuh
//@use common/warp_arrival.cuh
//@use common/wgmma_tile.cuh
//@use ptx/math.cuh
//@use ptx/memory.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_rs.cuh n = DIM, tb = 1
//@use ptx/wgmma_ss.cuh n = 64, ta = 0, tb = 0
//@use indexer_bwd_main.dweights.cuh
//@use indexer_bwd_main.params.h
//@use indexer_bwd_main.sm90_shared.cuh
/* The scores warpgroups of indexer_bwd_main.sm90.cu, one per tile: X = Q K^T, dX, which they pass
 * to the sums warpgroup, dweights and dQ. */

enum {
    X_VALUES = 2 * FRAGMENT_WORDS, /* of a thread */
    DQ_VALUES = DIM / 2
};

/* The first iteration from `iteration` on whose block the tile has; `blocks` if there is none. */
DEVICE int next_iteration(struct run run, int iteration, int blocks) {
    while (iteration < blocks && !has_block(run, block_of_iteration(iteration, blocks))) {
        ++iteration;
    }
    return iteration;
}

/* The query of a group's row, or -1. */
DEVICE int row_query(const struct indexer_bwd_main_params *params, int group, int row) {
    return params->members[(i64)group * GROUP_QUERIES + row / QUERY_ROWS];
}

/* The first of this thread's two rows of an item in tile `tile`; the other is 8 further down. */
DEVICE int fragment_row(int tile) {
    const int thread = (int)(threadIdx.x % WARPGROUP);
    return tile * TILE_ROWS + thread / 32 * 16 + thread % 32 / 4;
}

/* This thread's two rows. */
struct rows {
    float weight[2];
    float dweights[2];
};

DEVICE void open_rows(struct rows *rows, const struct indexer_bwd_main_params *params, int group,
                      int tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = fragment_row(tile) + 8 * r, head = row % QUERY_ROWS;
        const int query = row_query(params, group, row);
        const bool there = query >= 0 && head < HEADS;
        rows->weight[r] =
            there ? head_weight(params->weights, query * params->weights_token_stride + head,
                                params->weights_bf16)
                  : 0.0f;
        rows->dweights[r] = 0.0f;
    }
}

DEVICE void issue_scores(float *x, u64 queries, u32 stage) {
    const u64 keys = tile_descriptor(keys_at(stage));
    fence_proxy_async();
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DIM / 16; ++k) {
        const u32 step = (u32)(k % 4 * STEP_BYTES);
        const u64 a = descriptor_advance(queries, (u32)(k / 4 * QUERY_TILE_BYTES) + step);
        wgmma_ss_n64_t00(x, a, descriptor_advance(keys, (u32)(k / 4 * TILE_BYTES) + step), k > 0);
    }
    wgmma_commit();
}

/* Replaces X by dX and adds the block's part of dweights. */
DEVICE void compute_dx(float *x, struct rows *rows, u32 stage, int tile) {
    const float2 *const grads = (const float2 *)(arena + grads_at(stage)) +
                                fragment_row(tile) / QUERY_ROWS * (BLOCK_KEYS / 2) +
                                threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < X_VALUES; i += 2) {
        const int r = i / 2 % 2;
        const float2 grad = grads[i / 4 * 4 + (QUERY_ROWS == 8 ? r * (BLOCK_KEYS / 2) : 0)];
        rows->dweights[r] = fmaf(grad.x, RELU ? fmaxf(x[i], 0.0f) : x[i], rows->dweights[r]);
        rows->dweights[r] =
            fmaf(grad.y, RELU ? fmaxf(x[i + 1], 0.0f) : x[i + 1], rows->dweights[r]);
        x[i] = !RELU || x[i] > 0.0f ? grad.x * rows->weight[r] : 0.0f;
        x[i + 1] = !RELU || x[i + 1] > 0.0f ? grad.y * rows->weight[r] : 0.0f;
    }
}

DEVICE void issue_dq(float *dq, const u32 *dx, u32 stage) {
    const u64 keys = columns_descriptor(keys_at(stage));
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < BLOCK_KEYS / 16; ++k) {
        const u64 b = descriptor_advance(keys, (u32)(k * ROW_STEP_BYTES));
        // clang-format off
        wgmma_rs_n${DIM}_t01(dq, &dx[4 * k], b, 1);
        // clang-format on
    }
    wgmma_commit();
}

/* A tile's progress, counted over all items. */
struct progress {
    u32 block;  /* blocks of earlier items */
    u32 phases; /* parity of KEYS_FULL, a bit per stage */
    u32 use;    /* blocks that the tile had */
};

/* Packs dX as A fragments and passes a copy in shared memory to the sums warpgroup. */
DEVICE void publish_dx(u32 *dx, const float *x, u32 use, u32 tile) {
    pack_fragments(dx, x);
    wait_free(DX_FREE + 2 * tile, use);
    store_fragments(dx_at(tile, use), dx);
    arrive_warp(barrier_at(DX_FULL + 2 * tile + use % 2), 1);
}

/* All blocks of an item that the tile has. Software-pipelined: X of a block is issued before dQ of
 * the block before it. */
DEVICE void score_blocks(float *dq, struct rows *rows, struct progress *progress, struct run run,
                         int blocks, u64 queries, int tile) {
    float x[X_VALUES];
    u32 dx[FRAGMENT_WORDS];
    int iteration = next_iteration(run, 0, blocks);
    if (iteration == blocks) {
        return;
    }
    u32 stage = (progress->block + (u32)iteration) % STAGES;
    wait_keys(KEYS_FULL, (u32)tile, stage, &progress->phases);
    issue_scores(x, queries, stage);
    wgmma_wait(0);
    compute_dx(x, rows, stage, tile);
    publish_dx(dx, x, progress->use++, (u32)tile);
    iteration = next_iteration(run, iteration + 1, blocks);
#pragma unroll 1
    while (iteration < blocks) {
        const u32 before = stage;
        stage = (progress->block + (u32)iteration) % STAGES;
        wait_keys(KEYS_FULL, (u32)tile, stage, &progress->phases);
        issue_scores(x, queries, stage);
        issue_dq(dq, dx, before);
        wgmma_wait(1);
        compute_dx(x, rows, stage, tile);
        wgmma_wait(0);
        arrive_warp(barrier_at(KEYS_FREE + (u32)tile * STAGES + before), 1);
        publish_dx(dx, x, progress->use++, (u32)tile);
        iteration = next_iteration(run, iteration + 1, blocks);
    }
    issue_dq(dq, dx, stage);
    wgmma_wait(0);
    arrive_warp(barrier_at(KEYS_FREE + (u32)tile * STAGES + stage), 1);
}

/* Stores a row of dQ: 16 bytes of every 64 per thread. */
DEVICE void store_row(char *to, const float *dq, int r) {
#pragma unroll
    for (int i = 0; i < DQ_VALUES / 16; ++i) {
        u32 x[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const float *const pair = &dq[i * 16 + k * 4 + 2 * r];
            x[k] = pack_bf16x2(pair[0], pair[1]);
        }
        transpose_quad(x);
        if (to) {
            store_streaming_16(to + i * 64, x);
        }
    }
}

/* Stores dq and dweights of an item's tile. */
DEVICE void store_rows(const struct indexer_bwd_main_params *params, const float *dq,
                       const struct rows *rows, int group, int tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = fragment_row(tile) + 8 * r, head = row % QUERY_ROWS;
        const i64 query = row_query(params, group, row);
        const bool there = query >= 0 && head < HEADS;
        const i64 at = query * params->dq_token_stride + head * params->dq_head_stride;
        store_row(there ? (char *)params->dq + 2 * at + threadIdx.x % 4 * 16 : 0, dq, r);
        float dweights = rows->dweights[r];
        dweights += __shfl_xor_sync((u32)ALL_LANES, dweights, 1);
        dweights += __shfl_xor_sync((u32)ALL_LANES, dweights, 2);
        if (there && threadIdx.x % 4 == 0) {
            store_dweight(params, query, head, dweights);
        }
    }
}

DEVICE void run_scores(const struct indexer_bwd_main_params *params, int tile) {
    registers_increase(SCORES_REGISTERS);
    struct progress progress = {0, 0, 0};
    u32 item = 0;
#pragma unroll 1
    for (int group = first_group(params); group >= params->first_group; group -= (int)gridDim.x) {
        const int blocks = group_blocks(params, group);
        float dq[DQ_VALUES];
        struct rows rows;
        open_rows(&rows, params, group, tile);
#pragma unroll
        for (int i = 0; i < DQ_VALUES; ++i) {
            dq[i] = 0.0f;
        }
        wait_full(QUERIES_FULL, item);
        score_blocks(dq, &rows, &progress, tile_run(params, group, tile), blocks,
                     tile_descriptor(queries_at(item, (u32)tile)), tile);
        arrive_warp(barrier_at(QUERIES_FREE + item % 2), 1);
        store_rows(params, dq, &rows, group, tile);
        progress.block += (u32)blocks;
        ++item;
    }
}
