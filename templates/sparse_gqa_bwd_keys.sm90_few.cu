//@use common/base.cuh
//@use sparse_gqa_bwd_keys.sm90_few_source.cuh
//@use common/few_tiles.cuh united = 0
//@use common/softmax.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/proxy.cuh
//@use ptx/reduce.cuh
//@use ptx/registers.cuh
//@use ptx/warp.cuh
//@use ptx/wgmma.cuh
//@use common/key_columns.cuh
//@use sparse_gqa_bwd_keys.few.params.h
/*
 * dk and dv of sparse attention for grouped heads with wgmma, key-stationary, for small blocks of keys:
 * an item is a block and one KV head. Mathematics and shapes: include/smelt/sparse_gqa.h. Roles, ring
 * and grid are the forward pass's (sparse_gqa_fwd.sm90_few.cu) with queries and keys exchanged: the
 * heads of the queries that chose the block are gathered and are the rows of the products, its keys are
 * their columns. For each 64 rows, one math warpgroup computes
 *
 *   S[rows, BLOCK_HEADS] = Q K^T, dP[rows, BLOCK_HEADS] = dO V^T, and from them P and dS
 *   dK^T[DQK, BLOCK_HEADS] += Q^T dS, dV^T[DV, BLOCK_HEADS] += dO^T P, in registers throughout the item
 *
 * and at the item's end adds dK and dV to the fp32 sums. A launch takes a range of queries whose q and
 * grad_out stay in the L2 cache; launches of one stream add to a sum one after another. So every sum has
 * a fixed order: the list's.
 *
 * Rows past the list's end have a base of +inf and zeros as Q and dO, so that their P and dS are 0;
 * those of keys past a query's limit are set to 0.
 *
 * Shared memory (offsets and sizes: the plan above): as in sparse_attn_fwd.sm90_few.cu, with
 *   KEYS       a block's tiles are q's, then grad_out's
 *   QUERY      [2][QUERY_TILES]: K's tiles, then V's
 *   P          [2][2]: of each warpgroup P and dS
 *   NUMBERS    [RING_BLOCKS][64] row numbers
 * Barriers: likewise.
 *
 * Knobs: PART_TILES; legal values and the rule that picks them:
 * src/codegen/families/sparse_gqa_sm90_few.c.
 */

/* The first of a thread's two rows of a block; the other one is 8 further down. */
DEVICE int thread_row(const struct math_thread *me) {
    return me->warp * 16 + me->lane / 4;
}

/* Base and delta of a thread's rows, and how many of the item's keys they read. */
struct row_statistics {
    float base[2], delta[2];
    int keys[2];
};

DEVICE void load_statistics(const struct few_params *params, const struct few_item *item,
                            struct row_statistics *statistics, int index, int count,
                            const struct math_thread *me) {
    const struct sparse_gqa_bwd_params *const pass = &params->pass;
    const int first_head = item->table % KV_HEADS * GROUP_HEADS;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = thread_row(me) + 8 * i, number = block_numbers(index)[row];
        const int entry = number / GROUP_HEADS, head = first_head + number % GROUP_HEADS;
        float2 own = {-MINUS_INFINITY, 0.0f};
        statistics->keys[i] = 0;
        if (row < count) {
            own = *(const float2 *)&pass->statistics[2 * ((i64)entry * HEADS + head)];
            statistics->keys[i] = minimum(entry_limit(pass, entry) - item->first, GRANULARITY);
        }
        statistics->base[i] = own.x;
        statistics->delta[i] = own.y;
    }
}

/* Replaces scores by P, and dP by dS. */
DEVICE void compute_ds(float *s, float *dp, const struct row_statistics *statistics, float scale,
                       const struct math_thread *me) {
#pragma unroll
    for (int i = 0; i < TILE_VALUES; ++i) {
        const int row = i / 2 % 2, key = thread_head(me, i / 4 * 2 + i % 2);
        const bool valid = key < statistics->keys[row];
        const float p = exp2_approximate(fmaf(s[i], scale * LOG2_E, -statistics->base[row]));
        const float ds = p * (dp[i] - statistics->delta[row]) * scale;
        s[i] = valid ? p : 0.0f;
        dp[i] = valid ? ds : 0.0f;
    }
}

/* Issues the part of S and dP that tiles [from, to) contribute. */
DEVICE void issue_part(float *s, float *dp, int first, int from, int to, u32 query) {
    if (from < KEY_COLUMN_TILES) {
        issue_scores(s, first, 0, from, minimum(to, KEY_COLUMN_TILES), query);
    }
    if (to > KEY_COLUMN_TILES) {
        issue_scores(dp, first, KEY_COLUMN_TILES, maximum(from, KEY_COLUMN_TILES), to, query);
    }
}

/* The same of dK and dV; `p`: the address of P, which dS follows. */
DEVICE void issue_sums(float *sums, int first, int from, int to, u32 p, bool add) {
    if (from < KEY_COLUMN_TILES) {
        issue_output(sums, first, from, minimum(to, KEY_COLUMN_TILES), p + QUERY_TILE_BYTES, add);
    }
    if (to > KEY_COLUMN_TILES) {
        issue_output(sums, first, maximum(from, KEY_COLUMN_TILES), to, p, add);
    }
}

/* Computes 64 rows; returns their word. All that it issues is complete at its end, and their tiles are
 * released. */
DEVICE struct block_word compute_block(const struct few_params *params, const struct few_item *item,
                                       float *sums, const struct block_at *at, u32 parities,
                                       bool opening, const struct math_thread *me) {
    const u32 query = warp_reduce_or(shared_address((u32)(QUERY_OFFSET + me->group * QUERY_BYTES)));
    const u32 p =
        warp_reduce_or(shared_address((u32)(P_OFFSET + 2 * me->group * QUERY_TILE_BYTES)));
    const int first = (int)warp_reduce_or((u32)at->first); /* uniform, as descriptors must be */
    float s[TILE_VALUES], dp[TILE_VALUES];
    struct row_statistics statistics;
    struct block_word word;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        await_part(at, part, parities, me);
        if (part == 0) {
            word = *block_word(at->index);
            word.word = (int)warp_reduce_or((u32)word.word);
            load_statistics(params, item, &statistics, at->index, word.word & COUNT_MASK, me);
        }
        issue_part(s, dp, first, part_begin(part), part_end(part), query);
    }
    wgmma_wait(0);
    compute_ds(s, dp, &statistics, params->pass.scale, me);
    group_sync(me); /* no warp's products still read the previous P and dS */
    store_transposed(p, s, me);
    store_transposed(p + QUERY_TILE_BYTES, dp, me);
    fence_proxy_async();
    group_sync(me);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        issue_sums(sums, first, part_begin(part), part_end(part), p, !opening);
        if (part > 0) {
            wgmma_wait(1);
            release_part(at, part - 1);
        }
    }
    wgmma_wait(0);
    release_part(at, PARTS - 1);
    return word;
}

/* Adds an item's dK and dV to the sums in global memory. */
DEVICE void add_sums(const struct few_params *params, const struct few_item *item,
                     const float *sums, const struct math_thread *me) {
    const i64 row = (i64)item->table * params->pass.work.rows + item->first;
#pragma unroll
    for (int i = 0; i < OUTPUT_VALUES; ++i) {
        const int tile = i / TILE_VALUES, value = i % TILE_VALUES;
        const bool of_key = is_of_query(tile);
        const int eight = own_tile(tile) * 8 + me->warp * 2 + value / 2 % 2;
        const int key = thread_head(me, value / 4 * 2 + value % 2), width = of_key ? DQK : DV;
        if (item->first + key < item->reach && eight < width / 8) {
            reduce_add_f32((of_key ? params->pass.dk : params->pass.dv) + (row + key) * width +
                               position_of_eight(eight) + me->lane / 8 * 4 + me->lane / 4 % 2,
                           sums[i]);
        }
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
        float sums[OUTPUT_VALUES];
        struct block_word word;
        mbarrier_wait(barrier_at(QUERY_FULL + group), query_parity);
        fence_proxy_async();
        query_parity ^= 1;
        for (bool opening = true;; opening = false) {
            word = compute_block(params, &item, sums, &at, parities, opening, &me);
            parities ^= 1u << at.index;
            at = block_after(&at, word.word);
            if (word.word & LAST_BLOCK) {
                break;
            }
        }
        group_sync(&me); /* no warp's products still read K and V */
        if (word.next.query >= 0) {
            load_query(params, &word.next, &me);
        }
        add_sums(params, &item, sums, &me);
        item = word.next;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_bwd_few_params params) {
    run_few_heads(&params);
}
