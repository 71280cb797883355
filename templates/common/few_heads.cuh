//@use common/base.cuh
//@use common/softmax.cuh
//@use common/few_tiles.cuh united = united
//@use common/few_output.cuh united = united
//@use common/work.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/warp.cuh
//@use ptx/wgmma.cuh
//@takes united
/*
 * Attention's forward pass for few heads with wgmma: the math of the two warpgroups that compute. sparse_attn_fwd.sm90_few.cu and sparse_gqa_fwd.sm90_few.cu have the shared-memory maps
 * and the barriers. What depends on the operator, beside what common/few_tiles.cuh asks for, is in the
 * file that the kernel uses before this one:
 *   STATISTICS_IN_TILE    1: a block's first tile holds the statistics, once S^T is complete
 *   head_sink, wants_maxima, store_head
 */

/* ---- math: scores and probabilities ---------------------------------------------------------- */

//@if united
/* Which queries read this thread's two keys of a block. */
DEVICE uint2 key_readers(int index, const struct math_thread *me) {
    const int *const numbers = block_numbers(index) + me->warp * 16 + me->lane / 4;
    const uint2 readers = {(u32)numbers[0] >> ROW_BITS, (u32)numbers[8] >> ROW_BITS};
    return readers;
}

/* Sets the scores of keys that a head's query does not read to -inf. */
DEVICE void mask_scores(float *s, const struct math_thread *me, uint2 readers) {
#pragma unroll
    for (int i = 0; i < TILE_VALUES; ++i) {
        const int head = minimum(thread_head(me, i / 4 * 2 + i % 2), ITEM_HEADS - 1);
        if (!((i / 2 % 2 ? readers.y : readers.x) >> head / GROUP_HEADS & 1)) {
            s[i] = MINUS_INFINITY;
        }
    }
}
//@else
/* Sets the scores of keys past `count` to -inf. */
DEVICE void mask_scores(float *s, const struct math_thread *me, int count) {
    const int key = me->warp * 16 + me->lane / 4;
#pragma unroll
    for (int i = 0; i < TILE_VALUES; ++i) {
        if (key + i / 2 % 2 * 8 >= count) {
            s[i] = MINUS_INFINITY;
        }
    }
}
//@end

/* The running softmax of this thread's heads, in powers of two. */
struct softmax_columns {
    float maximum[THREAD_HEADS]; /* P is relative to it; or -inf; the same in all threads */
    float highest[THREAD_HEADS]; /* the exact maximum of this thread's scores */
    float sum[THREAD_HEADS];     /* of this thread's exponentials */
};

/* The maximum of a column over the warp's 16 keys. */
DEVICE float column_maximum(float value) {
    value = fmaxf(value, __shfl_xor_sync((u32)ALL_LANES, value, 4));
    value = fmaxf(value, __shfl_xor_sync((u32)ALL_LANES, value, 8));
    return fmaxf(value, __shfl_xor_sync((u32)ALL_LANES, value, 16));
}

/* Statistics that the warps of a warpgroup exchange: rows of BLOCK_HEADS values. `first`: the
 * current block's first tile, which may hold them. */
enum {
    SUMS = 0,    /* by warp */
    HIGHEST = 4, /* by warp; maxima of scores, of a block or a query */
    MAXIMUM = 8,
    FACTOR = 9,
    STATISTICS = 10
};

DEVICE float *statistics(int first, const struct math_thread *me) {
    return STATISTICS_IN_TILE
               ? (float *)(arena + KEYS_OFFSET + first * KEY_TILE_BYTES)
               : (float *)(arena + STATISTICS_OFFSET) + me->group * STATISTICS * BLOCK_HEADS;
}

/* The sum and the maximum of a head's four values at [warp][head]. */
DEVICE float sum_of_warps(const float *values) {
    return (values[0] + values[BLOCK_HEADS]) + (values[2 * BLOCK_HEADS] + values[3 * BLOCK_HEADS]);
}

DEVICE float greatest_of_warps(const float *values) {
    return fmaxf(fmaxf(values[0], values[BLOCK_HEADS]),
                 fmaxf(values[2 * BLOCK_HEADS], values[3 * BLOCK_HEADS]));
}

/* Updates the maxima that lag too far, and rescales O and the sums. `highest`: of this thread's
 * scores; `opening`: there is no O yet. */
DEVICE void move_maxima(struct softmax_columns *columns, float *o, const float *highest, int first,
                        bool opening, const struct math_thread *me) {
    float *const maxima = statistics(first, me) + HIGHEST * BLOCK_HEADS;
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        const float value = column_maximum(highest[k]);
        if (me->lane < 4) {
            maxima[me->warp * BLOCK_HEADS + thread_head(me, k)] = value;
        }
    }
    group_sync(me);
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        const float value = greatest_of_warps(maxima + thread_head(me, k));
        if (value > columns->maximum[k] + RESCALE_THRESHOLD) {
            const float old = columns->maximum[k];
            columns->maximum[k] = value;
            const float factor = exp2_approximate(old - columns->maximum[k]);
            columns->sum[k] *= factor;
            if (!opening) {
#pragma unroll
                for (int i = 0; i < VALUE_TILES; ++i) {
                    o[i * TILE_VALUES + k / 2 * 4 + k % 2] *= factor;
                    o[i * TILE_VALUES + k / 2 * 4 + k % 2 + 2] *= factor;
                }
            }
        }
    }
}

/* Computes P from the scores, in place, and updates the sums. */
DEVICE void softmax_block(float *s, struct softmax_columns *columns, float *o, float scale_log2,
                          int first, bool opening, const struct math_thread *me) {
    float highest[THREAD_HEADS];
    bool move = false;
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        highest[k] = fmaxf(s[k / 2 * 4 + k % 2], s[k / 2 * 4 + k % 2 + 2]) * scale_log2;
        columns->highest[k] = fmaxf(columns->highest[k], highest[k]);
        move = move || highest[k] > columns->maximum[k] + RESCALE_THRESHOLD;
    }
    if (group_or(me, move)) {
        move_maxima(columns, o, highest, first, opening, me);
    }
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        const float offset = columns->maximum[k] == MINUS_INFINITY ? 0.0f : -columns->maximum[k];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            float *const score = &s[k / 2 * 4 + k % 2 + 2 * e];
            *score = exp2_approximate(fmaf(*score, scale_log2, offset));
            columns->sum[k] += *score;
        }
    }
}

/* Waits for the scores, releases the tiles that only they need, unless these are to hold the
 * statistics, and computes P. */
DEVICE void compute_probabilities(float *s, struct softmax_columns *columns, float *o,
                                  const struct block_at *at, int count, float scale_log2,
                                  bool opening, const struct math_thread *me) {
    //@if united
    const uint2 readers = key_readers(at->index, me); /* before they may be overwritten */
    //@end
    wgmma_wait(0);
    if (LEADING_PARTS > 0) {
        release_part(at, LEADING_PART);
    }
    //@if united
    mask_scores(s, me, readers);
    //@else
    if (count < BLOCK_KEYS) {
        mask_scores(s, me, count);
    }
    //@end
    /* Its barrier separates the last reads of the rope columns, of P and of Q from the writes of
     * the statistics, of the next P and of the next Q. */
    softmax_block(s, columns, o, scale_log2, at->first, opening, me);
    store_transposed(shared_address(p_offset(me)), s, me);
    fence_proxy_async();
}

/*
 * Processes an item's key blocks, from position `at` on. On return `at` is the last block's
 * position, whose tiles are not released and whose P V is still in flight; returns its word.
 * `parities`: the next parity of the FULL barriers, one bit per block of the ring.
 */
DEVICE struct block_word compute_blocks(const struct few_params *params,
                                        struct softmax_columns *columns, float *o,
                                        struct block_at *at, u32 *parities,
                                        const struct math_thread *me) {
    const float scale_log2 = params->scale * LOG2_E;
    float s[TILE_VALUES];
    for (bool opening = true;; opening = false) {
        /* Uniform across the warp, as wgmma descriptors must be. */
        const int first = (int)warp_reduce_or((u32)at->first);
        const u32 query =
            warp_reduce_or(shared_address((u32)(QUERY_OFFSET + me->group * QUERY_BYTES)));
#pragma unroll
        for (int part = 0; part < (LEADING_PARTS > 0 ? LEADING_PARTS : PARTS); ++part) {
            await_part(at, part, *parities, me);
            issue_scores(s, first, 0, part_begin(part), part_end(part), query);
        }
        struct block_word block;
        block.word = (int)warp_reduce_or((u32)block_word(at->index)->word);
        block.next = block_word(at->index)->next;
        const bool last = block.word & LAST_BLOCK;
        compute_probabilities(s, columns, o, at, block.word & COUNT_MASK, scale_log2, opening, me);
        group_sync(me);
        const int tiles = (int)warp_reduce_or((u32)at->first);
        const u32 p = warp_reduce_or(shared_address(p_offset(me)));
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            if (LEADING_PARTS > 0) {
                await_part(at, LEADING_PARTS + part, *parities, me);
            }
            issue_output(o, tiles, part * PART_TILES, minimum((part + 1) * PART_TILES, VALUE_TILES),
                         p, !opening);
            if (part > 0) {
                wgmma_wait(1);
                if (!last || part > HELD_PARTS) {
                    release_part(at, part - 1);
                }
            } else if (STATISTICS_IN_TILE && !last) {
                release_part(at, LEADING_PART);
            }
        }
        *parities ^= 1u << at->index;
        if (last) {
            return block;
        }
        wgmma_wait(0);
        release_part(at, PARTS - 1);
        *at = block_after(at, block.word);
    }
}

/* ---- math: the end of an item ---------------------------------------------------------------- */

/* Reduces the sums and maxima of a thread's heads over its warp, to the statistics. */
DEVICE void share_statistics(const struct softmax_columns *columns, bool all, int first,
                             const struct math_thread *me) {
    float *const values = statistics(first, me);
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        const int head = thread_head(me, k);
        float sum = columns->sum[k];
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 4);
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 8);
        sum += __shfl_xor_sync((u32)ALL_LANES, sum, 16);
        if (me->lane < 4) {
            values[(SUMS + me->warp) * BLOCK_HEADS + head] = sum;
            if (me->warp == 0) {
                values[MAXIMUM * BLOCK_HEADS + head] = columns->maximum[k];
            }
        }
    }
    if (all) {
#pragma unroll
        for (int k = 0; k < THREAD_HEADS; ++k) {
            const float highest = column_maximum(columns->highest[k]);
            if (me->lane < 4) {
                values[(HIGHEST + me->warp) * BLOCK_HEADS + thread_head(me, k)] = highest;
            }
        }
    }
    group_sync(me);
}

/* Finishes one head of an item, by one thread: its lse, its maximum and the factor of its O. */
DEVICE void finish_head(const struct few_params *params, const struct few_item *item, int head,
                        int first, const struct math_thread *me) {
    float *const values = statistics(first, me) + head;
    const float maximum = values[MAXIMUM * BLOCK_HEADS];
    const float base = maximum == MINUS_INFINITY ? 0.0f : maximum;
    const float sum = sum_of_warps(values + SUMS * BLOCK_HEADS);
    const bool empty = sum == 0.0f; /* otherwise at least about 1, or NaN, which lse passes on */
    float denominator = sum;
    if (HAS_SINK) {
        denominator += exp2_approximate(head_sink(params, item, head) * LOG2_E - base);
    }
    values[FACTOR * BLOCK_HEADS] = empty ? 0.0f : 1.0f / denominator;
    if (head < ITEM_HEADS) {
        store_head(
            params, item, head, empty ? MINUS_INFINITY : (base + log2_approximate(sum)) * LN_2,
            wants_maxima(params) ? greatest_of_warps(values + HIGHEST * BLOCK_HEADS) * LN_2 : 0.0f);
    }
}

/* Divides O by the denominators and stages it as bf16. */
DEVICE void finish_output(float *o, int first, const struct math_thread *me) {
    const float *const values = statistics(first, me) + FACTOR * BLOCK_HEADS;
    float factors[THREAD_HEADS];
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        factors[k] = values[thread_head(me, k)];
    }
#pragma unroll
    for (int i = 0; i < VALUE_TILES; ++i) {
        float *const tile = &o[i * TILE_VALUES];
#pragma unroll
        for (int j = 0; j < TILE_VALUES; ++j) {
            //@if united
            const float factor = factors[j / 4 * 2 + j % 2]; /* 0: of a query without a row */
            tile[j] = factor == 0.0f ? 0.0f : tile[j] * factor;
            //@else
            tile[j] *= factors[j / 4 * 2 + j % 2];
            //@end
        }
        store_transposed(staging_tile(first, i), tile, me);
    }
    group_sync(me);
}

DEVICE void begin_query(struct softmax_columns *columns) {
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        columns->maximum[k] = MINUS_INFINITY;
        columns->highest[k] = MINUS_INFINITY;
        columns->sum[k] = 0.0f;
    }
}

/* Finishes an item whose last products are in flight: starts the copy of the next item's Q, writes
 * the statistics, then the output, staged in the last block's tiles. */
DEVICE void finish_query(const struct few_params *params, const struct few_item *item,
                         const struct few_item *next, const struct softmax_columns *columns,
                         float *o, const struct block_at *at, const struct math_thread *me) {
    const int thread = (int)(threadIdx.x % WARPGROUP);
    if (next->query >= 0) {
        load_query(params, next, me);
    }
    share_statistics(columns, wants_maxima(params), at->first, me);
    if (thread < BLOCK_HEADS) {
        finish_head(params, item, thread, at->first, me);
    }
    wgmma_wait(0);
    if (PARTS > HELD_PARTS) {
        release_part(at, PARTS - 1);
    }
    group_sync(me);
    finish_output(o, at->first, me);
    store_output(params, item, at->first);
#pragma unroll
    for (int part = 0; part < HELD_PARTS; ++part) {
        release_part(at, part);
    }
    if (STATISTICS_IN_TILE) {
        release_part(at, LEADING_PART);
    }
}

/* One of the two math warpgroups. */
DEVICE void run_math(const struct few_params *params, int group) {
    registers_increase(MATH_REGISTERS);
    const struct math_thread me = {group, (int)(threadIdx.x % WARPGROUP / 32),
                                   (int)(threadIdx.x % 32), (int)(threadIdx.x % 4 * 2)};
    struct block_at at = {group, group * TILES};
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
        struct softmax_columns columns;
        float o[OUTPUT_VALUES];
        mbarrier_wait(barrier_at(QUERY_FULL + group), query_parity);
        query_parity ^= 1;
        begin_query(&columns);
        const struct block_word last = compute_blocks(params, &columns, o, &at, &parities, &me);
        finish_query(params, &item, &last.next, &columns, o, &at, &me);
        at = block_after(&at, last.word);
        item = last.next;
    }
}
