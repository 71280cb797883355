//@use common/base.cuh
//@use common/softmax.cuh
//@use sparse_attn_fwd.key_ring.cuh
//@use common/warp_arrival.cuh
//@use common/work.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/memory.cuh
//@use ptx/named_barrier.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/stmatrix.cuh
//@use ptx/warp.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_ss.cuh n = BLOCK_HEADS, ta = 0, tb = 0
//@use ptx/wgmma_ss.cuh n = BLOCK_HEADS, ta = 1, tb = 0
//@use sparse_attn_fwd.params.h
/*
 * Sparse attention forward with wgmma for at most 32 heads: keys are the rows of the products and
 * heads their columns, so that no product is padded to 64 heads. Each CTA has two queries in
 * flight; one query's products hide the other's softmax and epilogue. Mathematics and shapes:
 * include/smelt/sparse_attn.h.
 *
 * Grid: one CTA per multiprocessor; CTA b takes queries b, b + gridDim.x, ... (common/work.cuh).
 *
 *   role     warps            work
 *   math     two warpgroups   each has one query, from its first key block to its output:
 *                               S^T[BLOCK_KEYS, BLOCK_HEADS] = K Q^T, softmax down the columns
 *                               O^T[DV, BLOCK_HEADS] += V^T P^T, in registers, DV / 64 slices of
 *                               64 rows
 *   gather   one warpgroup    sparse_attn_fwd.key_ring.cuh: one warp scans the slots of both
 *                             queries and requests their key blocks alternately; two warps copy
 *                             the rows as far ahead as the ring allows. A math warpgroup that
 *                             finishes its query takes the CTA's next one
 *
 * The ring binds: gather bandwidth is the bytes in flight over the time from a byte's load to its
 * last use. So a key block is loaded, used and released in parts of PART_TILES tiles of 64 columns:
 * K Q^T starts on the first part while the others are in flight, and each finished part of V^T P^T
 * frees room for a part of a later block. The ring consists of tiles, not of whole blocks, so that
 * it fills shared memory.
 *
 * Every query has at least one key block, possibly empty. Its blocks do not depend on the other
 * query: the same keys are summed in the same order. P is relative to a head's maximum, which is
 * exact when it is taken, so that the largest P is 1 and loses nothing when it is rounded to bf16;
 * it is updated only when the true maximum exceeds it by more than RESCALE_THRESHOLD (in powers of
 * two).
 *
 * Shared memory (offsets and sizes: the plan above). A tile is rows of 64 columns, 128-byte
 * swizzled:
 *   KEYS       [RING_TILES] tiles of BLOCK_KEYS rows, a ring: a block's tiles
 *              follow each other, its rope columns first. A query's last block
 *              then holds the statistics, if it has rope columns, and the output
 *              on its way to global memory
 *   QUERY      [2][DQK / 64] tiles of BLOCK_HEADS rows
 *   P          [2] tiles of BLOCK_HEADS heads by BLOCK_KEYS keys
 *   STATISTICS [2][STATISTICS][BLOCK_HEADS] fp32: exchanged by the warps of a
 *              warpgroup; with rope columns they are in their block's first
 *              tile, once S^T is complete
 *   WORDS      [RING_BLOCKS]: struct block_word
 *   REQUESTS   [REQUESTS]: struct request
 *   RING       [2]: common/warp_slots.cuh; RANGE: common/work.cuh
 *
 * Barriers (parity counts uses; b: block number % RING_BLOCKS; m: the math warpgroup. Each of the
 * two has its own FULL barriers, because it waits for its own blocks only and would miss phases of
 * a shared barrier):
 *   barrier           count  arrives                                    waits
 *   READY[r]              1  gather: the scan, request r is posted      copies
 *   TAKEN[r]              2  gather: copies, its row numbers are read   scan
 *   FULL[b][part][m]     64  copies: every thread when they have        math warpgroup m
 *                            landed; the first part: and one for the
 *                            word, 65
 *   EMPTY[b][part]        4  math: the block's warps; of the rope       copies, as the head of
 *                            columns one of their own sparse_attn_fwd.key_ring.cuh says
 *   QUERY_FULL[m]       128  math: every thread when its copies have    math warpgroup m
 *                            landed
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 * Named barriers: MATH_BARRIER and the next, one per math warpgroup.
 *
 * Knobs: STAGES, PART_TILES, the registers of each role; legal values and the rule that picks them:
 * src/codegen/families/sparse_attn_fwd_sm90_few.c.
 */

enum {
    MATH_BARRIER = 1, /* named; of math warpgroup 0, the next one's is 2 */
    GATHER_WARPGROUP = 2,
    QUERY_TILE_BYTES = BLOCK_HEADS * TILE_PITCH,
    QUERY_BYTES = TILES * QUERY_TILE_BYTES,
    KEY_STEPS = BLOCK_KEYS / 16, /* of V^T P^T */
    HAS_ROPE = DQK > DV,

    GROUPS = BLOCK_HEADS / 8, /* a thread's heads: two of every eight */
    THREAD_HEADS = 2 * GROUPS,
    TILE_VALUES = BLOCK_HEADS / 2, /* per thread: S^T, or 64 rows of O^T */
    OUTPUT_VALUES = VALUE_TILES * TILE_VALUES,
    OUTPUT_CHUNKS = DV / 8, /* of 16 bytes: a head's output */
    ROW_STEP = WARPGROUP / OUTPUT_CHUNKS
};

/* The products' shapes: as many columns as heads. */
// clang-format off
#define multiply_scores wgmma_ss_n${BLOCK_HEADS}_t00
#define multiply_output wgmma_ss_n${BLOCK_HEADS}_t10
// clang-format on

DEVICE void initialise(void) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < RING_BLOCKS * PARTS * 2; ++i) {
            const bool has_word = i / 2 % PARTS == 0;
            mbarrier_init(barrier_at(FULL + i), COPY_WARPS * 32 + (has_word ? 1 : 0));
        }
        for (int i = 0; i < RING_BLOCKS * (PARTS + 1); ++i) {
            mbarrier_init(barrier_at(EMPTY + i), 4 * WARP_ARRIVALS);
        }
        for (int request = 0; request < REQUESTS; ++request) {
            mbarrier_init(barrier_at(READY + request), WARP_ARRIVALS);
            mbarrier_init(barrier_at(TAKEN + request), COPY_WARPS * WARP_ARRIVALS);
        }
        mbarrier_init(barrier_at(QUERY_FULL), WARPGROUP);
        mbarrier_init(barrier_at(QUERY_FULL + 1), WARPGROUP);
    }
    __syncthreads();
}

/* ---- math: scores and probabilities ---------------------------------------------------------- */

/* A math thread's position. */
struct math_thread {
    int group;      /* math warpgroup, 0 or 1 */
    int warp, lane; /* in the warpgroup */
    int first_head; /* its heads: first_head + 8 * (k / 2) + k % 2, k < THREAD_HEADS */
};

DEVICE int thread_head(const struct math_thread *me, int k) {
    return me->first_head + 8 * (k / 2) + k % 2;
}

/* Synchronises the warpgroup. The barrier is a constant in each branch: a variable one would
 * reserve all 16. */
DEVICE void group_sync(const struct math_thread *me) {
    if (me->group == 0) {
        barrier_sync(MATH_BARRIER, WARPGROUP);
    } else {
        barrier_sync(MATH_BARRIER + 1, WARPGROUP);
    }
}

DEVICE bool group_or(const struct math_thread *me, bool condition) {
    return me->group == 0 ? barrier_or(MATH_BARRIER, WARPGROUP, condition)
                          : barrier_or(MATH_BARRIER + 1, WARPGROUP, condition);
}

/* Starts the copy of a query's Q. Its warpgroup calls it once it no longer reads the previous Q. */
DEVICE void load_query(const struct sparse_attn_fwd_params *params, int query,
                       const struct math_thread *me) {
    enum { CHUNKS = DQK / 8 };
    const u32 to = shared_address((u32)(QUERY_OFFSET + me->group * QUERY_BYTES));
#pragma unroll 1
    for (int i = (int)(threadIdx.x % WARPGROUP); i < BLOCK_HEADS * CHUNKS; i += WARPGROUP) {
        const int head = i / CHUNKS, chunk = i % CHUNKS;
        cp_async_16(to + (u32)(chunk / 8 * QUERY_TILE_BYTES + head * TILE_PITCH +
                               ((chunk ^ head) & 7) * 16),
                    query_row(params, query, head) + chunk * 16, 16);
    }
    cp_async_arrive_noinc(barrier_at(QUERY_FULL + me->group));
}

/* The descriptor of a block's tile in the ring. */
DEVICE u64 ring_tile_descriptor(int first, int tile) {
    return descriptor_advance(tile_descriptor(KEYS_OFFSET),
                              (u32)(ring_tile(first, tile) * KEY_TILE_BYTES));
}

/* Issues the part of S^T = K Q^T that tiles [from, to) of a block contribute; `query`: Q's
 * address. */
DEVICE void issue_scores(float *s, int first, int from, int to, u32 query) {
    const u64 b = shared_descriptor(query, 16, ATOM_BYTES, 128);
    wgmma_fence();
#pragma unroll
    for (int tile = from; tile < to; ++tile) {
        const int column = tile < ROPE_TILES ? VALUE_TILES + tile : tile - ROPE_TILES;
        const u64 a = ring_tile_descriptor(first, tile);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            multiply_scores(
                s, descriptor_advance(a, (u32)(k * STEP_BYTES)),
                descriptor_advance(b, (u32)(column * QUERY_TILE_BYTES + k * STEP_BYTES)),
                tile + k > 0);
        }
    }
    wgmma_commit();
}

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
 * current block's first tile. */
enum {
    SUMS = 0,    /* by warp */
    HIGHEST = 4, /* by warp; maxima of scores, of a block or a query */
    MAXIMUM = 8,
    FACTOR = 9,
    STATISTICS = 10
};

DEVICE float *statistics(int first, const struct math_thread *me) {
    return HAS_ROPE ? (float *)(arena + KEYS_OFFSET + first * KEY_TILE_BYTES)
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

/* The offset of a warpgroup's P. */
DEVICE u32 p_offset(const struct math_thread *me) {
    return (u32)(P_OFFSET + me->group * QUERY_TILE_BYTES);
}

/*
 * Stores an accumulator fragment transposed, as bf16, to a tile of heads by rows at `base`. Of
 * every eight columns (heads) a thread has four values, in rows g and g + 8 of its warp's 16.
 */
DEVICE void store_transposed(u32 base, const float *values, const struct math_thread *me) {
    const int row = me->lane % 8, chunk = me->warp * 2 + me->lane / 8 % 2;
    const u32 address = base + (u32)(row * TILE_PITCH + (chunk ^ row) * 16);
#pragma unroll
    for (int j = 0; j + 1 < GROUPS; j += 2) {
        const u32 pairs[4] = {pack_bf16x2(values[4 * j], values[4 * j + 1]),
                              pack_bf16x2(values[4 * j + 2], values[4 * j + 3]),
                              pack_bf16x2(values[4 * j + 4], values[4 * j + 5]),
                              pack_bf16x2(values[4 * j + 6], values[4 * j + 7])};
        stmatrix_x4_trans(address + (u32)((j + me->lane / 16) * 8 * TILE_PITCH), pairs);
    }
    if (GROUPS % 2 == 1) {
        const float *const last = &values[4 * (GROUPS - 1)];
        const u32 pairs[2] = {pack_bf16x2(last[0], last[1]), pack_bf16x2(last[2], last[3])};
        stmatrix_x2_trans(address + (u32)((GROUPS - 1) * 8 * TILE_PITCH), pairs);
    }
}

/* Issues O^T += V^T P^T, or O^T = V^T P^T, for V's tiles [from, to); `p`: P's address. */
DEVICE void issue_output(float *o, int first, int from, int to, u32 p, bool add) {
    const u64 b = shared_descriptor(p, 16, ATOM_BYTES, 128);
    wgmma_fence();
#pragma unroll
    for (int i = from; i < to; ++i) {
        const u64 a = ring_tile_descriptor(first, ROPE_TILES + i);
#pragma unroll
        for (int k = 0; k < KEY_STEPS; ++k) {
            multiply_output(&o[i * TILE_VALUES], descriptor_advance(a, (u32)(k * ROW_STEP_BYTES)),
                            descriptor_advance(b, (u32)(k * STEP_BYTES)), k > 0 || add);
        }
    }
    wgmma_commit();
}

/* A key block's position in the ring: its number % RING_BLOCKS, and its first tile. */
struct block_at {
    int index, first;
};

/* The position of the warpgroup's next key block. */
DEVICE struct block_at block_after(const struct block_at *at, int word) {
    const int blocks = word & ALONE ? 1 : 2;
    const struct block_at next = {(at->index + blocks) % RING_BLOCKS,
                                  (at->first + blocks * TILES) % RING_TILES};
    return next;
}

/* Waits until a part of a block has landed. */
DEVICE void await_part(const struct block_at *at, int part, u32 parities,
                       const struct math_thread *me) {
    mbarrier_wait(barrier_at(FULL + (at->index * PARTS + part) * 2 + me->group),
                  (int)(parities >> at->index & 1));
    fence_proxy_async();
}

/* Releases a part of a block, for one warp. */
DEVICE void release_part(const struct block_at *at, int part) {
    arrive_warp(barrier_at(EMPTY + at->index * (PARTS + 1) + part), 1);
}

/* Waits for the scores and computes P. */
DEVICE void compute_probabilities(float *s, struct softmax_columns *columns, float *o, int first,
                                  int count, float scale_log2, bool opening,
                                  const struct math_thread *me) {
    wgmma_wait_0();
    if (count < BLOCK_KEYS) {
        mask_scores(s, me, count);
    }
    /* Its barrier separates the last reads of the rope columns, of P and of Q from the writes of
     * the statistics, of the next P and of the next Q. */
    softmax_block(s, columns, o, scale_log2, first, opening, me);
    store_transposed(shared_address(p_offset(me)), s, me);
    fence_proxy_async();
}

/*
 * Processes a query's key blocks, from position `at` on. On return `at` is the last block's
 * position, whose tiles are not released and whose P V is still in flight; returns its word.
 * `parities`: the next parity of the FULL barriers, one bit per block of the ring.
 */
DEVICE struct block_word compute_blocks(const struct sparse_attn_fwd_params *params,
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
        for (int part = 0; part < PARTS; ++part) {
            const int end = ROPE_TILES + (part + 1) * PART_TILES;
            await_part(at, part, *parities, me);
            issue_scores(s, first, part == 0 ? 0 : end - PART_TILES, end, query);
        }
        *parities ^= 1u << at->index;
        struct block_word block;
        block.word = (int)warp_reduce_or((u32)block_word(at->index)->word);
        block.next = block_word(at->index)->next;
        const bool last = block.word & LAST_BLOCK;
        compute_probabilities(s, columns, o, at->first, block.word & COUNT_MASK, scale_log2,
                              opening, me);
        group_sync(me);
        const int tiles = (int)warp_reduce_or((u32)at->first);
        const u32 p = warp_reduce_or(shared_address(p_offset(me)));
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            issue_output(o, tiles, part * PART_TILES, (part + 1) * PART_TILES, p, !opening);
            if (part > 0) {
                wgmma_wait_1();
                if (!last || part > PARTS / 2) {
                    release_part(at, part - 1);
                }
            } else if (HAS_ROPE && !last) {
                release_part(at, ROPE_PART);
            }
        }
        if (last) {
            return block;
        }
        wgmma_wait_0();
        release_part(at, PARTS - 1);
        *at = block_after(at, block.word);
    }
}

/* ---- math: the end of a query
 * --------------------------------------------------------------------- */

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

/* Finishes one head of a query, by one thread: its lse, its maximum and the factor of its O. */
DEVICE void finish_head(const struct sparse_attn_fwd_params *params, int query, int head, int first,
                        const struct math_thread *me) {
    float *const values = statistics(first, me) + head;
    const float maximum = values[MAXIMUM * BLOCK_HEADS];
    const float base = maximum == MINUS_INFINITY ? 0.0f : maximum;
    const float sum = sum_of_warps(values + SUMS * BLOCK_HEADS);
    const bool empty = sum == 0.0f; /* otherwise at least about 1, or NaN, which lse passes on */
    float denominator = sum;
    if (HAS_SINK) {
        denominator += exp2_approximate(params->sink[minimum(head, LAST_HEAD)] * LOG2_E - base);
    }
    values[FACTOR * BLOCK_HEADS] = empty ? 0.0f : 1.0f / denominator;
    if (head < HEADS) {
        const int batch = query_batch(&params->work, query),
                  token = query - batch * params->work.tokens;
        params->lse[batch * params->lse_batch_stride + token * params->lse_token_stride +
                    head * params->lse_head_stride] =
            empty ? MINUS_INFINITY : (base + log2_approximate(sum)) * LN_2;
        if (params->max_logits) {
            params->max_logits[batch * params->max_logits_batch_stride +
                               token * params->max_logits_token_stride +
                               head * params->max_logits_head_stride] =
                greatest_of_warps(values + HIGHEST * BLOCK_HEADS) * LN_2;
        }
    }
}

/* The staging address of 64 columns of a query's output, heads by columns: each value tile of the
 * first half of the last block holds 128 columns. */
DEVICE u32 staging_tile(int first, int tile) {
    return shared_address((u32)(KEYS_OFFSET +
                                ring_tile(first, ROPE_TILES + tile / 2) * KEY_TILE_BYTES +
                                tile % 2 * QUERY_TILE_BYTES));
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
            tile[j] *= factors[j / 4 * 2 + j % 2];
        }
        store_transposed(staging_tile(first, i), tile, me);
    }
    group_sync(me);
}

/* Stores the staged output to global memory, 16 bytes per thread. */
DEVICE void store_output(const struct sparse_attn_fwd_params *params, int query, int first) {
    const int batch = query_batch(&params->work, query),
              token = query - batch * params->work.tokens;
    char *const out = (char *)params->out +
                      2 * (batch * params->out_batch_stride + token * params->out_token_stride);
    const int thread = (int)(threadIdx.x % WARPGROUP), chunk = thread % OUTPUT_CHUNKS;
    const u32 staged = staging_tile(first, chunk / 8);
#pragma unroll
    for (int i = 0; i < HEADS; i += ROW_STEP) {
        const int head = i + thread / OUTPUT_CHUNKS;
        if (HEADS % ROW_STEP == 0 || head < HEADS) {
            u32 words[4];
            load_shared_16(words, staged + (u32)(head * TILE_PITCH + ((chunk ^ head) & 7) * 16));
            store_streaming_16(out + 2 * (head * params->out_head_stride) + chunk * 16, words);
        }
    }
}

DEVICE void begin_query(struct softmax_columns *columns) {
#pragma unroll
    for (int k = 0; k < THREAD_HEADS; ++k) {
        columns->maximum[k] = MINUS_INFINITY;
        columns->highest[k] = MINUS_INFINITY;
        columns->sum[k] = 0.0f;
    }
}

/* Finishes a query whose last products are in flight: starts the copy of the next query's Q, writes
 * the statistics, then the output, staged in the last block's tiles. */
DEVICE void finish_query(const struct sparse_attn_fwd_params *params, int query, int next,
                         const struct softmax_columns *columns, float *o, const struct block_at *at,
                         const struct math_thread *me) {
    const int thread = (int)(threadIdx.x % WARPGROUP);
    if (next >= 0) {
        load_query(params, next, me);
    }
    share_statistics(columns, params->max_logits, at->first, me);
    if (thread < BLOCK_HEADS) {
        finish_head(params, query, thread, at->first, me);
    }
    wgmma_wait_0();
    release_part(at, PARTS - 1);
    group_sync(me);
    finish_output(o, at->first, me);
    store_output(params, query, at->first);
#pragma unroll
    for (int part = 0; part < PARTS / 2; ++part) {
        release_part(at, part);
    }
    if (HAS_ROPE) {
        release_part(at, ROPE_PART);
    }
}

/* One of the two math warpgroups. */
DEVICE void run_math(const struct sparse_attn_fwd_params *params, int group) {
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
    int query = first.query;
    if (query >= 0) {
        load_query(params, query, &me);
    }
    while (query >= 0) {
        struct softmax_columns columns;
        float o[OUTPUT_VALUES];
        mbarrier_wait(barrier_at(QUERY_FULL + group), query_parity);
        query_parity ^= 1;
        begin_query(&columns);
        const struct block_word last = compute_blocks(params, &columns, o, &at, &parities, &me);
        finish_query(params, query, last.next, &columns, o, &at, &me);
        at = block_after(&at, last.word);
        query = last.next;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_fwd_params params) {
    begin_grid(&params.work);
    initialise();
    const int warpgroup = (int)warp_reduce_or(threadIdx.x / WARPGROUP);
    if (warpgroup < GATHER_WARPGROUP) {
        run_math(&params, warpgroup);
    } else {
        run_gather(&params);
    }
    end_grid(&params.work);
}
