//@use common/base.cuh
//@use common/gqa_products.cuh
//@use common/quad.cuh
//@use common/ring.cuh
//@use common/softmax.cuh
//@use common/warp_arrival.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/memory.cuh
//@use ptx/registers.cuh
//@use ptx/wgmma.cuh
//@use sparse_gqa_united.items.cuh
//@use sparse_gqa_united.params.h
//@use sparse_gqa_united.sm90_shared.cuh
//@use sparse_gqa_united.sm90_copies.cuh
/*
 * Forward pass of sparse_gqa with wgmma, query-stationary, for tiles of queries whose lists
 * sparse_gqa_lists has united. Mathematics and shapes: include/smelt/sparse_gqa.h.
 *
 * An item is a tile and a KV head. Each of CONSUMERS warpgroups has a part of the tile, PART_ENTRIES
 * entries with UNITS times 8 heads, 64 rows. A warpgroup processes the blocks of the united list in
 * order. It skips those that none of its entries reads, and masks the rows of entries that do not read one:
 *
 *   S[64, BLOCK_KEYS] = Q K^T, P = exp2(S - max), O = O exp2(old max - max) + P V
 *
 * Grid: one CTA per multiprocessor; each takes every gridDim.x-th item. The last warpgroup's first two
 * warps are the producer, which runs ahead into the next items. One copies Q and K, the other V.
 *
 * Shared memory (offsets and sizes: the plan above). A column tile is 64 columns, 128-byte swizzled:
 *   QUERY   [Q_BUFFERS][CONSUMERS][KEY_TILES][64] rows of 128 bytes
 *   KEYS    [STAGES][KEY_TILES][BLOCK_KEYS] rows
 *   VALUES  [STAGES][VALUE_TILES][BLOCK_KEYS] rows
 *   STEPS   [STAGES] struct step of the block in KEYS
 *   ITEMS   [Q_BUFFERS][CONSUMERS] struct posted_item of the item in QUERY
 *
 * Barriers (parity counts uses; buffers are used cyclically):
 *   barrier                           count          arrives                        waits
 *   Q_FULL[q][c], K_FULL[b], V_FULL[b]  1            producer, with the bytes       consumers
 *   Q_EMPTY[q][c]                     4              the consumer's warps, the      producer
 *                                                    item's last Q K^T complete
 *   K_EMPTY[b], V_EMPTY[b]            4 * CONSUMERS  consumers: warps, Q K^T or     producer
 *                                                    P V complete, or skipped
 * (Counts are of warps: common/warp_arrival.cuh.)
 *
 * Knobs: none but racecheck; src/codegen/families/sparse_gqa_sm90.c.
 */

/* This thread's two rows of a part, in the warp's first and second unit. */
struct part_rows {
    int query[2];             /* -1: there is none */
    int limit[2];             /* keys that it may read */
    u32 bit[2];               /* of the tile's entries */
    float maximum[2], sum[2]; /* of the exponentials, in powers of two */
};

DEVICE struct part_rows find_rows(const struct posted_item *item, int consumer) {
    struct part_rows rows;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int unit = (int)(threadIdx.x % WARPGROUP / 32 * 2) + r;
        const int entry = consumer * PART_ENTRIES + unit / UNITS;
        rows.query[r] = item->query[unit / UNITS];
        rows.limit[r] = item->limit[unit / UNITS];
        rows.bit[r] = 1u << entry;
        rows.maximum[r] = MINUS_INFINITY;
        rows.sum[r] = 0.0f;
    }
    return rows;
}

/* Computes P from a block's scores, in place; `factor`: of the sums so far. */
DEVICE void softmax_block(float *s, struct part_rows *rows, float *factor, float scale_log2) {
    float offset[2], sum[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float highest = fmaxf(s[2 * r], s[2 * r + 1]);
#pragma unroll
        for (int i = 1; i < SCORE_VALUES / 4; ++i) {
            highest = fmaxf(highest, fmaxf(s[4 * i + 2 * r], s[4 * i + 2 * r + 1]));
        }
        highest = fmaxf(highest, __shfl_xor_sync((u32)ALL_LANES, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync((u32)ALL_LANES, highest, 2)) * scale_log2;
        /* Small steps of the maximum are left out, so that few blocks rescale. */
        highest = highest > rows->maximum[r] + RESCALE_THRESHOLD ? highest : rows->maximum[r];
        offset[r] = highest == MINUS_INFINITY ? 0.0f : -highest;
        factor[r] = exp2_approximate(rows->maximum[r] + offset[r]);
        rows->maximum[r] = highest;
        sum[r] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < SCORE_VALUES; ++i) {
        s[i] = exp2_approximate(fmaf(s[i], scale_log2, offset[i / 2 % 2]));
        sum[i / 2 % 2] += s[i];
    }
    /* ptxas moves a wait for products ahead of arithmetic, but not ahead of a shuffle. */
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        sum[r] += __shfl_xor_sync((u32)ALL_LANES, sum[r], 1);
        rows->sum[r] = fmaf(rows->sum[r], factor[r], sum[r]);
    }
}

/* Scales O to the new maxima. */
DEVICE void rescale(float *o, const float *factor) {
    if (__any_sync((u32)ALL_LANES, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
        for (int i = 0; i < OUTPUT_VALUES; ++i) {
            o[i] *= factor[i / 2 % 2];
        }
    }
}

/* Masks a block's scores. */
DEVICE void mask_block(float *s, const struct part_rows *rows, const struct step *step) {
    int keys[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        keys[r] = step->entries & rows->bit[r] ? rows->limit[r] - step->first_key : 0;
    }
    if (keys[0] < BLOCK_KEYS || keys[1] < BLOCK_KEYS) {
        mask_scores(s, keys);
    }
}

/* Whether this warp's rows read the block. */
DEVICE bool reads_block(const struct part_rows *rows, const struct step *step) {
    return (step->entries & (rows->bit[0] | rows->bit[1])) != 0;
}

/* Replaces a block's scores by P; `factor`: of the sums so far. A warp that does not read the block keeps
 * its scores, which pack_block replaces by zeros. */
DEVICE void compute_block(float *s, struct part_rows *rows, const struct step *step, float *factor,
                          float scale_log2) {
    factor[0] = factor[1] = 1.0f;
    if (reads_block(rows, step)) {
        mask_block(s, rows, step);
        softmax_block(s, rows, factor, scale_log2);
    }
}

/* P of a thread's scores, as operand A; zeros if the warp does not read the block. */
DEVICE void pack_block(u32 *p, const float *s, bool reads) {
    pack_scores(p, s);
#pragma unroll
    for (int i = 0; i < SCORE_VALUES / 2; ++i) {
        p[i] &= reads ? 0xffffffffu : 0u;
    }
}

DEVICE void release(u32 barriers, int buffer) {
    arrive_warp(barrier_at(barriers + (u32)buffer), 1);
}

/* Releases a buffer of K and, after the item's last block, the consumer's Q. */
DEVICE void release_keys(int buffer, int queries, int consumer, bool is_last) {
    release(K_EMPTY, buffer);
    if (is_last) {
        arrive_warp(query_barrier(Q_EMPTY, queries, consumer), 1);
    }
}

/* Adds the product of P and the values of a buffer, which it releases. */
DEVICE void add_values(float *o, const u32 *p, const struct ring_place *buffer) {
    mbarrier_wait(barrier_at((u32)(V_FULL + buffer->index)), buffer->parity);
    issue_output(o, p, values_at(buffer->index), 1);
    wgmma_wait(0);
    release(V_EMPTY, buffer->index);
}

/* The blocks of an item. A block's P V overlaps the next one's softmax: `last` is the block whose P V
 * is left to do, if any. */
DEVICE void run_blocks(const struct sparse_gqa_united_params *params, int blocks, float *o,
                       struct part_rows *rows, int queries, struct ring_place *buffer,
                       int consumer) {
    const u32 query = query_at(queries, consumer);
    const u32 part = ((1u << PART_ENTRIES) - 1u) << (consumer * PART_ENTRIES);
    const float scale_log2 = params->scale * LOG2_E;
    struct ring_place last = {-1, 0};
    int skipped = 0; /* since then */
    float s[SCORE_VALUES], factor[2];
    u32 p[SCORE_VALUES / 2];
#pragma unroll 1
    for (int i = 0; i < blocks; ++i, ring_advance(buffer, STAGES)) {
        mbarrier_wait(barrier_at((u32)(K_FULL + buffer->index)), buffer->parity);
        const struct step step = *step_at(buffer->index);
        if (!(step.entries & part)) {
            if (last.index >= 0 && ++skipped >= STAGES - 1) { /* the producer may wait for it */
                add_values(o, p, &last);
                last.index = -1;
            }
            release_keys(buffer->index, queries, consumer, i + 1 == blocks);
            mbarrier_wait(barrier_at((u32)(V_FULL + buffer->index)), buffer->parity);
            release(V_EMPTY, buffer->index);
            continue;
        }
        if (last.index >= 0) {
            mbarrier_wait(barrier_at((u32)(V_FULL + last.index)), last.parity);
            issue_scores(s, query, keys_at(buffer->index));
            issue_output(o, p, values_at(last.index), 1);
            wgmma_wait(1);
            release_keys(buffer->index, queries, consumer, i + 1 == blocks);
            compute_block(s, rows, &step, factor, scale_log2);
            wgmma_wait(0);
            release(V_EMPTY, last.index);
        } else {
            issue_scores(s, query, keys_at(buffer->index));
            wgmma_wait(0);
            release_keys(buffer->index, queries, consumer, i + 1 == blocks);
            compute_block(s, rows, &step, factor, scale_log2);
        }
        rescale(o, factor);
        pack_block(p, s, reads_block(rows, &step));
        last = *buffer;
        skipped = 0;
    }
    if (last.index >= 0) {
        add_values(o, p, &last);
    }
}

/* Stores this thread's rows of out, 16 bytes of each quad's 64 at a time, and of lse. */
DEVICE void store_rows(const struct sparse_gqa_united_params *params, const float *o,
                       const struct part_rows *rows, int kv_head) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int unit = (int)(threadIdx.x % WARPGROUP / 32 * 2) + r;
        const int row = unit % UNITS * UNIT_ROWS + lane / 4, query = rows->query[r];
        const bool present = row < GROUP_HEADS && query >= 0;
        const int head = kv_head * GROUP_HEADS + minimum(row, GROUP_HEADS - 1);
        const int batch = query_batch(&params->work, maximum(query, 0));
        const int token = maximum(query, 0) - batch * params->work.tokens;
        const float sum = rows->sum[r] + __shfl_xor_sync((u32)ALL_LANES, rows->sum[r], 2);
        const float base = rows->maximum[r] == MINUS_INFINITY ? 0.0f : rows->maximum[r];
        float denominator = sum;
        if (HAS_SINK) {
            denominator += exp2_approximate(params->sink[head] * LOG2_E - base);
        }
        const bool empty = sum == 0.0f; /* a neighbour's NaN may be in o */
        const float inverse = 1.0f / denominator;
        char *const to = (char *)params->out +
                         2 * (batch * params->out_batch_stride + token * params->out_token_stride +
                              head * params->out_head_stride) +
                         lane % 4 * 16;
#pragma unroll
        for (int i = 0; i < OUTPUT_VALUES / 16; ++i) {
            u32 x[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float *const pair = &o[i * 16 + k * 4 + 2 * r];
                x[k] = empty ? 0 : pack_bf16x2(pair[0] * inverse, pair[1] * inverse);
            }
            transpose_quad(x);
            if (present) {
                store_streaming_16(to + i * 64, x);
            }
        }
        if (present && lane % 4 == 0) {
            params->lse[batch * params->lse_batch_stride + token * params->lse_token_stride +
                        head * params->lse_head_stride] =
                empty ? MINUS_INFINITY : (base + log2_approximate(sum)) * LN_2;
        }
    }
}

DEVICE void run_consumer(const struct sparse_gqa_united_params *params, int consumer) {
    struct ring_place queries = {0, 0}, buffer = {0, 0};
    for (;;) {
        mbarrier_wait(query_barrier(Q_FULL, queries.index, consumer), queries.parity);
        const struct posted_item *const item = item_at(queries.index, consumer);
        const int blocks = item->blocks;
        if (blocks == 0) {
            return;
        }
        const int kv_head = item->kv_head;
        struct part_rows rows = find_rows(item, consumer);
        float o[OUTPUT_VALUES];
#pragma unroll
        for (int i = 0; i < OUTPUT_VALUES; ++i) {
            o[i] = 0.0f;
        }
        run_blocks(params, blocks, o, &rows, queries.index, &buffer, consumer);
        ring_advance(&queries, Q_BUFFERS);
        store_rows(params, o, &rows, kv_head);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_united_params params) {
    initialise_barriers();
    const int warpgroup = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x / WARPGROUP), 0);
    if (warpgroup == CONSUMERS) {
        registers_decrease(PRODUCER_REGISTERS);
        const int warp = (int)(threadIdx.x % WARPGROUP / 32);
        if (warp < 2) {
            run_producer(&params, warp == 0);
        }
    } else {
        registers_increase(CONSUMER_REGISTERS);
        run_consumer(&params, warpgroup);
    }
}
