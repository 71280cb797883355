//@use common/base.cuh
//@use sparse_gqa_bwd.sm90_source.cuh
//@use common/bounds.cuh
//@use common/few_tiles.cuh united = ITEM_QUERIES > 1
//@use common/few_output.cuh united = ITEM_QUERIES > 1
//@use common/grain.cuh
//@use common/row_sums.cuh
//@use common/softmax.cuh
//@use key_grads_grains.finite.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/warp.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_rs.cuh n = 32, tb = 1
//@use ptx/wgmma_rs.cuh n = 64, tb = 1
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
 * The additions (common/row_sums.cuh) are by far the bottleneck: the products and the gather of one
 * warpgroup's block overlap the additions of the other's.
 *
 * Padded heads have a base of +inf, so that their P and dS are 0; so are those of keys past the list's
 * end, for which zeros are added to the row of the block's first key. A block without keys adds
 * nothing.
 *
 * SUMS selects how dk and dv are summed: in any order, or deterministically, with exact sums
 * (common/grain.cuh). Exact sums need two launches. With BOUNDS the kernel computes dV and dK of each
 * block, but not dQ, and adds the largest column of each row to the row's bounds, which are integers
 * (common/bounds.cuh). With EXACT it rounds what it adds to the grains that follow from the bounds.
 *   The error: let N queries name a row. Its bound is at most N times the mean of the addends' largest
 * columns; a largest column is about 3 times the root mean square of the columns, and the unit u is at
 * most 2^-23 * 1.4 times the bound. Rounding to u has an error of u / sqrt(12), so the row's error is
 * about 1e-7 * N of the root of the sum of its addends' squares: 8e-4 for N = 8192, 6e-3 for 65536. If
 * one query's addend is far above the others', it determines the grain, as it determines the last bits
 * of an fp32 sum: addends below 2^-24 of it are lost.
 *   Cheaper bounds lose too many bits. P <= 1 in place of P would save the first launch, but loses 11
 * bits where 2048 keys have equal shares. Bounding dP by the norms of dO and V would save the gather of
 * V, but loses 4. The sum over heads of P times dO's largest column would save the products, but loses
 * half as many bits as the number of heads has.
 *
 * Shared memory (offsets and sizes: the plan above): as in sparse_attn_fwd.sm90_few.cu, with
 *   KEYS       a block's values' tiles come first, then its keys'; the last block's keys then hold dQ
 *   QUERY      [2][QUERY_TILES]: Q's tiles, then dO's
 *   P          [2]: dS
 *   NUMBERS    [RING_BLOCKS][64] row numbers
 * Barriers: likewise; FULL of a block's first part counts the threads that write its row numbers.
 *
 * Knobs: PART_TILES; legal values and the rule that picks them:
 * src/codegen/families/sparse_gqa_sm90_few.c.
 */

enum { ANY_ORDER, BOUNDS, EXACT }; /* SUMS */

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
    u32 rows[BLOCK_ROWS];            /* the numbers of this thread's rows */
    float grains[BLOCK_ROWS][KINDS]; /* EXACT: the grains of these rows */
};

/* The number of row 0 of an item's KV head, among the rows of all batches and KV heads. */
DEVICE i64 first_row(const struct few_params *params, const struct few_item *item) {
    return ((i64)query_batch(&params->work, item->query) * KV_HEADS + item->head_block) *
           params->work.rows;
}

DEVICE void find_rows(const struct few_params *params, const struct few_item *item,
                      struct block_sums *block, int index, int count,
                      const struct math_thread *me) {
    const int first = me->warp * 16 + me->lane / 4 % 4;
    const int *const numbers = block_numbers(index);
#pragma unroll
    for (int i = 0; i < BLOCK_ROWS; ++i) {
        block->rows[i] = (u32)numbers[first + 4 * i < count ? first + 4 * i : 0];
    }
    if (SUMS == EXACT && params->dk && count > 0) {
        const unsigned short *const grains = params->grains + first_row(params, item);
#pragma unroll
        for (int i = 0; i < BLOCK_ROWS; ++i) {
            const u32 exponents = grains[block->rows[i]];
            block->grains[i][VALUE] = power_of_two(exponents & 255);
            block->grains[i][KEY] = power_of_two(exponents >> 8);
        }
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
#pragma unroll
            for (int k = 4 * i; k < 4 * i + 4 && SUMS == EXACT; ++k) {
                values[k] =
                    round_to_grain(values[k], block->grains[half * 2 + i][of_values ? VALUE : KEY]);
            }
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
    const i64 row = first_row(params, item);
    float *const dk = params->dk + row * DQK + first_sum(threadIdx.x);
    float *const dv = params->dv + row * DV + first_sum(threadIdx.x);
    float sums[2][SUM_VALUES];
    issue_chunk(sums[0], block, 0, query);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        if (chunk + 1 < CHUNKS) {
            issue_chunk(sums[(chunk + 1) % 2], block, chunk + 1, query);
            wgmma_wait(1);
        } else {
            wgmma_wait(0);
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

/* ---- the bounds of dV and dK ---- */

enum {
    BOUND_VALUES = 32, /* of a thread, in a tile of 64 columns */
    TILES_AHEAD = 4    /* in flight at once */
};

/* The bound that this lane adds to: a quad has two rows with two bounds each, one for each of its lanes.
 * Null past the block's last row. */
DEVICE u64 *find_bound(const struct few_params *params, const struct few_item *item, int index,
                       int count, const struct math_thread *me) {
    const int row = me->warp * 16 + me->lane / 4 + me->lane % 2 * 8, kind = me->lane / 2 % 2;
    if (row >= count) {
        return 0;
    }
    const i64 number = first_row(params, item) + block_numbers(index)[row];
    return params->bounds + (number * KINDS + kind) * BINS;
}

/* Issues the products of a tile of dK or dV; the tiles are numbered as those of Q and dO. */
DEVICE void issue_tile(float *sums, const struct block_sums *block, int tile, u32 query) {
    const u64 b = shared_descriptor(query, 16, ATOM_BYTES, 128);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < HEAD_STEPS; ++step) {
        wgmma_rs_n64_t01(
            sums, tile < KEY_COLUMN_TILES ? &block->ds[step * 4] : &block->p[step * 4],
            descriptor_advance(b, (u32)(tile * QUERY_TILE_BYTES + step * ROW_STEP_BYTES)),
            step > 0);
    }
    wgmma_commit();
}

/* Waits until at most `most` tiles are in flight; `most` is a constant. */
DEVICE void await_tiles(int most) {
    if (most == 0) {
        wgmma_wait(0);
    } else if (most == 1) {
        wgmma_wait(1);
    } else if (most == 2) {
        wgmma_wait(2);
    } else {
        wgmma_wait(3);
    }
}

/* Updates the largest magnitudes of the warp's rows lane / 4 and lane / 4 + 8 from a tile. Each row has two, to
 * shorten the dependency chain. NaN is ignored. */
DEVICE void find_largest(float *largest, const float *sums, bool only_finite) {
#pragma unroll
    for (int i = 0; i < BOUND_VALUES; ++i) {
        const float size = fabsf(sums[i]);
        largest[i % 4] = fmaxf(largest[i % 4], only_finite ? finite(size) : size);
    }
}

/* Adds the largest magnitudes of a quad's two rows, by kind in `largest`, to the lanes' bounds. */
DEVICE void add_bounds(u64 *bound, const float (*largest)[4], const struct math_thread *me) {
    const bool odd = me->lane & 1, upper = me->lane & 2;
    float own[KINDS];
#pragma unroll
    for (int kind = 0; kind < KINDS; ++kind) {
        const float first = fmaxf(largest[kind][0], largest[kind][1]);
        const float second = fmaxf(largest[kind][2], largest[kind][3]);
        own[kind] =
            fmaxf(odd ? second : first, __shfl_xor_sync((u32)ALL_LANES, odd ? first : second, 1));
    }
    const float other = __shfl_xor_sync((u32)ALL_LANES, upper ? own[VALUE] : own[KEY], 2);
    const float most = fmaxf(upper ? own[KEY] : own[VALUE], other);
    if (bound) {
        add_bound(bound, most);
    }
}

/* Computes a block's dV and dK from P and dS, and adds the largest finite values of its rows to their
 * bounds. */
DEVICE void bound_block(const float *p, const float *ds, u64 *bound, u32 query,
                        const struct math_thread *me) {
    float largest[KINDS][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
    float sums[TILES_AHEAD][BOUND_VALUES];
    struct block_sums block;
    pack_fragments(block.p, p);
    pack_fragments(block.ds, ds);
#pragma unroll
    for (int first = 0; first < QUERY_TILES; first += TILES_AHEAD) {
        const int tiles = minimum(QUERY_TILES - first, TILES_AHEAD);
        float before[KINDS][4], most = 0.0f;
#pragma unroll
        for (int i = 0; i < tiles; ++i) {
            issue_tile(sums[i], &block, first + i, query);
        }
#pragma unroll
        for (int i = 0; i < KINDS * 4; ++i) {
            before[i / 4][i % 4] = largest[i / 4][i % 4];
        }
#pragma unroll
        for (int i = 0; i < tiles; ++i) {
            await_tiles(tiles - 1 - i);
            find_largest(largest[first + i < KEY_COLUMN_TILES ? KEY : VALUE], sums[i], false);
        }
#pragma unroll
        for (int i = 0; i < KINDS * 4; ++i) {
            most = fmaxf(most, largest[i / 4][i % 4]);
        }
        if (most == -MINUS_INFINITY) {
#pragma unroll
            for (int i = 0; i < KINDS * 4; ++i) {
                largest[i / 4][i % 4] = before[i / 4][i % 4];
            }
#pragma unroll
            for (int i = 0; i < tiles; ++i) {
                find_largest(largest[first + i < KEY_COLUMN_TILES ? KEY : VALUE], sums[i], true);
            }
        }
    }
    add_bounds(bound, largest, me);
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
    const int count = word.word & COUNT_MASK;
    const int free = SUMS != BOUNDS && word.word & LAST_BLOCK ? HELD_PARTS : 0;
    u64 *bound = 0;
    if (SUMS == BOUNDS) {
        bound = find_bound(params, item, at->index, count, me);
    } else {
        find_rows(params, item, &block, at->index, count, me);
    }
    wgmma_wait(0);
    release_part(at, LEADING_PART);
    compute_ds(s, dp, statistics, count, params->scale, me);
    if (SUMS != BOUNDS) {
        group_sync(me); /* no warp's products still read the previous dS */
        store_transposed(p, dp, me);
        fence_proxy_async();
        group_sync(me);
        issue_output(dq, (int)warp_reduce_or((u32)at->first), 0, VALUE_TILES, p, !opening);
    }
    if (SUMS != BOUNDS && params->dk && count > 0) {
        pack_fragments(block.p, s);
        pack_fragments(block.ds, dp);
        sum_block(params, item, &block, at, free, query);
    } else {
        wgmma_wait(0);
        for (int part = free; part < PARTS; ++part) {
            release_part(at, part);
        }
    }
    if (SUMS == BOUNDS && count > 0) {
        bound_block(s, dp, bound, query, me);
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
    if (SUMS != BOUNDS) {
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
