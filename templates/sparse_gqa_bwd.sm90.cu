//@use common/base.cuh
//@use sparse_gqa_bwd.sm90_source.cuh
//@use common/few_tiles.cuh united = ITEM_QUERIES > 1
//@use common/few_output.cuh united = ITEM_QUERIES > 1
//@use common/row_sums.cuh
//@use common/softmax.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/warp.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_rs.cuh n = 32, tb = 1
//@use sparse_gqa_bwd.params.h
/*
 * Backward pass of sparse attention for grouped heads with wgmma, a query and one of its KV heads at a
 * time: dq and, unless the deterministic mode computes them by key, the sums of dk and dv. Mathematics
 * and shapes: include/smelt/sparse_gqa.h. Roles, ring and grid are the forward pass's
 * (sparse_gqa_fwd.sm90_few.cu); gathered keys are the rows of the products, heads their columns. For
 * each block of 64 rows of the list, one math warpgroup computes
 *
 *   dP^T[keys, BLOCK_HEADS] = V dO^T, S^T = K Q^T, and from them P^T and dS^T
 *   dQ^T[DQK, BLOCK_HEADS] += K^T dS, in registers throughout the item
 *   dV = P^T dO, dK = dS^T Q  in chunks of 32 columns, P^T and dS^T as A from registers; each chunk is
 *                             added to global memory while the next one is computed
 *
 * The additions bind (common/row_sums.cuh), by far: products and gather hide behind those of the other
 * warpgroup's block.
 *
 * Padded heads have a base of +inf, so that their P and dS are 0; so are those of keys past the list's
 * end, for which zeros are added to the row of the block's first key. A block without keys adds
 * nothing.
 *
 * Shared memory (offsets and sizes: the plan above): as in sparse_attn_fwd.sm90_few.cu, with
 *   KEYS       a block's values' tiles come first, then its keys'; the last block's keys then hold dQ
 *   QUERY      [2][QUERY_TILES]: Q's tiles, then dO's
 *   P          [2]: dS
 *   NUMBERS    [RING_BLOCKS][64] row numbers
 * Barriers: likewise; FULL of a block's first part counts the threads that write its row numbers.
 *
 * Knobs: PART_TILES; legal values and the rule that picks them:
 * src/codegen/families/sparse_attn_fwd_sm90_few.c.
 */

enum {
    HEAD_STEPS = BLOCK_HEADS / 16, /* of dV and dK */
    FRAGMENT_WORDS = 4 * HEAD_STEPS,
    VALUE_CHUNKS = DV / SUM_COLUMNS,
    CHUNKS = VALUE_CHUNKS + DQK / SUM_COLUMNS, /* dV's, then dK's */
    BLOCK_ROWS = 4                             /* of a block, that a thread adds to */
};

/* Base and delta of a thread's heads. */
struct head_statistics {
    float base[THREAD_HEADS], delta[THREAD_HEADS];
};

DEVICE void load_statistics(const struct few_params *params, const struct few_item *item,
                            struct head_statistics *statistics, const struct math_thread *me) {
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        const int head = thread_head(me, k);
        float2 own = {-MINUS_INFINITY, 0.0f};
        if (head < ITEM_HEADS) {
            own = *(const float2 *)&params
                       ->statistics[2 * ((i64)item->entry * HEADS + query_head(item, head))];
        }
        statistics->base[k] = own.x;
        statistics->delta[k] = own.y;
    }
}

/* Replaces scores by P, and dP by dS; those of keys past `count` become 0. */
DEVICE void compute_ds(float *s, float *dp, const struct head_statistics *statistics, int count,
                       float scale, const struct math_thread *me) {
    const int key = me->warp * 16 + me->lane / 4;
#pragma unroll
    for (int i = 0; i < TILE_VALUES; ++i) {
        const int k = i / 4 * 2 + i % 2;
        const bool valid = key + i / 2 % 2 * 8 < count;
        const float p = exp2_approximate(fmaf(s[i], scale * LOG2_E, -statistics->base[k]));
        const float ds = p * (dp[i] - statistics->delta[k]) * scale;
        s[i] = valid ? p : 0.0f;
        dp[i] = valid ? ds : 0.0f;
    }
}

/* Rounds accumulators to A operands, whose depth are the heads. */
DEVICE void pack_fragments(u32 *fragments, const float *values) {
#pragma unroll
    for (int i = 0; i < FRAGMENT_WORDS; ++i) {
        fragments[i] = pack_bf16x2(values[2 * i], values[2 * i + 1]);
    }
}

/* ---- dV and dK ---- */

/* What a block's additions need. */
struct block_sums {
    u32 p[FRAGMENT_WORDS], ds[FRAGMENT_WORDS];
    u32 rows[BLOCK_ROWS]; /* the numbers of this thread's rows */
};

DEVICE void find_rows(u32 *rows, int index, int count, const struct math_thread *me) {
    const int first = me->warp * 16 + me->lane / 4 % 4;
    const int *const numbers = block_numbers(index);
#pragma unroll
    for (int i = 0; i < BLOCK_ROWS; ++i) {
        rows[i] = (u32)numbers[first + 4 * i < count ? first + 4 * i : 0];
    }
}

/* Issues a chunk; `query`: the address of Q. */
DEVICE void issue_chunk(float *sums, const struct block_sums *block, int chunk, u32 query) {
    const bool of_values = chunk < VALUE_CHUNKS;
    const int own = of_values ? chunk : chunk - VALUE_CHUNKS;
    const int tile = (of_values ? KEY_COLUMN_TILES : 0) + own * SUM_COLUMNS / 64;
    const u64 b = shared_descriptor(query, 16, ATOM_BYTES, 128);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < HEAD_STEPS; ++step) {
        wgmma_rs_n32_t01(
            sums, of_values ? &block->p[step * 4] : &block->ds[step * 4],
            descriptor_advance(b, (u32)(tile * QUERY_TILE_BYTES + own * SUM_COLUMNS % 64 * 2 +
                                        step * ROW_STEP_BYTES)),
            step > 0);
    }
    wgmma_commit();
}

/* Adds a chunk to global memory. `dk`, `dv`: the sums of the item's KV head, at this thread's first
 * column. */
DEVICE void add_chunk(const struct block_sums *block, const float *sums, float *dk, float *dv,
                      int chunk) {
    const bool of_values = chunk < VALUE_CHUNKS;
    const int own = of_values ? chunk : chunk - VALUE_CHUNKS;
    float *const to = (of_values ? dv : dk) + own * SUM_COLUMNS;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float values[SENT_VALUES];
        exchange_rows(values, sums, half);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            reduce_add_f32x4(to + (u64)block->rows[half * 2 + i] * (of_values ? DV : DQK),
                             &values[4 * i]);
        }
    }
}

/* Computes a block's dV and dK and adds them; before the first addition, dQ's products with the
 * block are complete and its keys' tiles are released from part `free` on. */
DEVICE void sum_block(const struct few_params *params, const struct few_item *item,
                      const struct block_sums *block, const struct block_at *at, int free,
                      u32 query) {
    const i64 row = ((i64)query_batch(&params->work, item->query) * KV_HEADS + item->head_block) *
                    params->work.rows;
    float *const dk = params->dk + row * DQK + first_sum(threadIdx.x);
    float *const dv = params->dv + row * DV + first_sum(threadIdx.x);
    float sums[2][SUM_VALUES];
    issue_chunk(sums[0], block, 0, query);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        if (chunk + 1 < CHUNKS) {
            issue_chunk(sums[(chunk + 1) % 2], block, chunk + 1, query);
            wgmma_wait_1();
        } else {
            wgmma_wait_0();
        }
        if (chunk == 0) {
            for (int part = free; part < PARTS; ++part) {
                release_part(at, part);
            }
        }
        add_chunk(block, sums[chunk % 2], dk, dv, chunk);
        __syncwarp((u32)ALL_LANES); /* otherwise ptxas moves them behind the next wait */
    }
}

/* ---- an item ---- */

/* Issues dP^T and S^T of a block as its parts land. */
DEVICE void issue_products(float *s, float *dp, const struct block_at *at, u32 parities, u32 query,
                           const struct math_thread *me) {
    const int first = (int)warp_reduce_or((u32)at->first); /* uniform, as descriptors must be */
#pragma unroll
    for (int part = 0; part < FULL_PARTS; ++part) {
        await_part(at, part, parities, me);
        if (part < LEADING_PARTS) {
            issue_scores(dp, first, 0, part_begin(part), part_end(part), query);
        } else {
            issue_scores(s, first, LEADING_TILES, part_begin(part), part_end(part), query);
        }
    }
}

/* Computes a block; returns its word. All that it issues is complete at its end; its keys' tiles are
 * released, except those that are to hold the output of an item that ends with it. */
DEVICE struct block_word compute_block(const struct few_params *params, const struct few_item *item,
                                       const struct head_statistics *statistics, float *dq,
                                       const struct block_at *at, u32 parities, bool opening,
                                       const struct math_thread *me) {
    const u32 query = warp_reduce_or(shared_address((u32)(QUERY_OFFSET + me->group * QUERY_BYTES)));
    const u32 p = warp_reduce_or(shared_address(p_offset(me)));
    float s[TILE_VALUES], dp[TILE_VALUES];
    struct block_sums block;
    struct block_word word;
    issue_products(s, dp, at, parities, query, me);
    word.word = (int)warp_reduce_or((u32)block_word(at->index)->word);
    word.next = block_word(at->index)->next;
    const int count = word.word & COUNT_MASK, free = word.word & LAST_BLOCK ? HELD_PARTS : 0;
    find_rows(block.rows, at->index, count, me);
    wgmma_wait_0();
    release_part(at, LEADING_PART);
    compute_ds(s, dp, statistics, count, params->scale, me);
    group_sync(me); /* no warp's products still read the previous dS */
    store_transposed(p, dp, me);
    fence_proxy_async();
    group_sync(me);
    issue_output(dq, (int)warp_reduce_or((u32)at->first), 0, VALUE_TILES, p, !opening);
    if (params->dk && count > 0) {
        pack_fragments(block.p, s);
        pack_fragments(block.ds, dp);
        sum_block(params, item, &block, at, free, query);
    } else {
        wgmma_wait_0();
        for (int part = free; part < PARTS; ++part) {
            release_part(at, part);
        }
    }
    return word;
}

/* Stores an item's dQ, staged in its last block's tiles, and starts the copy of the next item's Q and
 * dO. */
DEVICE void finish_item(const struct few_params *params, const struct few_item *item,
                        const struct few_item *next, const float *dq, const struct block_at *at,
                        const struct math_thread *me) {
    group_sync(me); /* no warp's products still read Q, dO or the block */
    if (next->query >= 0) {
        load_query(params, next, me);
    }
#pragma unroll
    for (int i = 0; i < VALUE_TILES; ++i) {
        store_transposed(staging_tile(at->first, i), &dq[i * TILE_VALUES], me);
    }
    group_sync(me);
    store_output(params, item, at->first);
#pragma unroll
    for (int part = 0; part < HELD_PARTS; ++part) {
        release_part(at, part);
    }
}

/* One of the two math warpgroups. */
DEVICE void run_math(const struct few_params *params, int group) {
    registers_increase(MATH_REGISTERS);
    const struct math_thread me = {group, (int)(threadIdx.x % WARPGROUP / 32),
                                   (int)(threadIdx.x % 32), (int)(threadIdx.x % 4 * 2)};
    struct block_at at = {group, group * TILES % RING_TILES};
    u32 parities = 0;
    int query_parity = 0;
    struct work first = first_work(&params->work);
    if (group == 1) {
        first = work_after(params, &first);
    }
    struct few_item item = item_of(params, &first);
    if (item.query >= 0) {
        load_query(params, &item, &me);
    }
    while (item.query >= 0) {
        struct head_statistics statistics;
        float dq[OUTPUT_VALUES];
        struct block_word word;
        load_statistics(params, &item, &statistics, &me);
        mbarrier_wait(barrier_at(QUERY_FULL + group), query_parity);
        fence_proxy_async();
        query_parity ^= 1;
        for (bool opening = true;; opening = false) {
            word = compute_block(params, &item, &statistics, dq, &at, parities, opening, &me);
            parities ^= 1u << at.index;
            if (word.word & LAST_BLOCK) {
                break;
            }
            at = block_after(&at, word.word);
        }
        finish_item(params, &item, &word.next, dq, &at, &me);
        at = block_after(&at, word.word);
        item = word.next;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_bwd_params params) {
    run_few_heads(&params);
}
