//@use common/ring.cuh
//@use common/softmax.cuh
//@use common/warp_arrival.cuh
//@use common/work.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/named_barrier.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/stmatrix.cuh
//@use ptx/thread.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_rs.cuh n = 64, tb = 0
//@use ptx/wgmma_ss.cuh n = 64, ta = 0, tb = 0
//@use sparse_attn_fwd.params.h
//@use sparse_attn_fwd.sm90_shared.cuh
/* The scores' warpgroup of sparse_attn_fwd.sm90.cu: takes Q, computes S = Q K^T and its softmax,
 * and passes P, the factors of O's rows and the denominators to the output's warpgroups. */

/* The largest step of a maximum: its factor is the smallest that a byte of exponent can express. A
 * smaller factor would leave nothing of the old sum that changes the new one. */
#define LONGEST_STEP 126.0f
/* Adding it to a number from 0 to 2^22 and subtracting it again gives the nearest integer. ceilf
 * would lengthen the block's critical path. */
#define ROUND_TO_INTEGER 12582912.0f

/* Offsets of this thread's row of Q: in a tile, for ldmatrix, and in a k-step of QUERY, for
 * stmatrix. */
DEVICE u32 query_in_tile(void) {
    const u32 thread = thread_number(), lane = thread % 32, row = thread / 32 * 16 + lane % 16;
    return row * TILE_PITCH + ((lane / 16) ^ (lane % 8)) * 16;
}

DEVICE u32 query_in_slice(void) {
    const u32 thread = thread_number(), lane = thread % 32, row = thread / 32 * 16 + lane % 16;
    return row * STEP_BYTES + ((lane / 16) ^ (row / 4 % 2)) * 16;
}

/*
 * Takes the latent columns of Q out of their stage: the first REGISTER_STEPS k-steps into
 * registers, as A fragments, the others into QUERY, whose old content the warpgroup no longer
 * needs. All loads for QUERY come before the stores; otherwise each store would wait for its own
 * load.
 */
DEVICE void take_query(u32 *query, int stage) {
    const u32 tiles = shared_address(latent_stage(stage) + query_in_tile());
    const u32 slices = shared_address(QUERY_OFFSET + query_in_slice());
    u32 moved[LATENT_SLICES * 4];
#pragma unroll
    for (int k = 0; k < LATENT_SLICES; ++k) {
        const int step = REGISTER_STEPS + k;
        ldmatrix_x4(&moved[k * 4],
                    (tiles + (u32)(step / 4 * TILE_BYTES)) ^ (u32)(step % 4 * STEP_BYTES));
    }
#pragma unroll
    for (int k = 0; k < LATENT_SLICES; ++k) {
        stmatrix_x4(slices + (u32)(k * SLICE_BYTES), &moved[k * 4]);
    }
#pragma unroll
    for (int k = 0; k < REGISTER_STEPS; ++k) {
        ldmatrix_x4(&query[k * 4], (tiles + (u32)(k / 4 * TILE_BYTES)) ^ (u32)(k % 4 * STEP_BYTES));
    }
}

/* Copies the rope columns of Q into QUERY. */
DEVICE void take_query_rope(void) {
    const u32 tile = shared_address(ROPE_OFFSET + query_in_tile());
    const u32 slices =
        shared_address(QUERY_OFFSET + LATENT_SLICES * SLICE_BYTES + query_in_slice());
    u32 moved[4 * 4];
#pragma unroll
    for (int k = 0; k < ROPE_STEPS; ++k) {
        ldmatrix_x4(&moved[k * 4], tile ^ (u32)(k * STEP_BYTES));
    }
#pragma unroll
    for (int k = 0; k < ROPE_STEPS; ++k) {
        stmatrix_x4(slices + (u32)(k * SLICE_BYTES), &moved[k * 4]);
    }
}

/* Begins a query: waits for its Q, takes it and releases its stage. */
DEVICE void begin_query(u32 *query, struct ring_place *stage, int *rope_parity) {
    mbarrier_wait(barrier_at(FULL + stage->index), stage->parity);
    take_query(query, stage->index);
    arrive_warp(barrier_at(EMPTY_LOW + stage->index), 2);
    arrive_warp(barrier_at(EMPTY_HIGH + stage->index), 2);
    if (ROPE_STEPS > 0) {
        mbarrier_wait(barrier_at(ROPE_FULL), *rope_parity);
        *rope_parity ^= 1;
        take_query_rope();
        arrive_warp(barrier_at(ROPE_FREE), 1);
    }
    fence_proxy_async();
    barrier_sync(SCORES_BARRIER, WARPGROUP);
    ring_advance(stage, STAGES);
}

/* The descriptor of k-step `step` in the latent tiles that begin at `keys`. */
DEVICE u64 latent_step(u64 keys, int step) {
    return descriptor_advance(keys, (u32)(step / 4 * TILE_BYTES + step % 4 * STEP_BYTES));
}

/* Issues S = Q K^T for the block in a stage, in two wgmma groups; the second has PV_OVERLAP
 * k-steps. */
DEVICE void issue_scores(float *s, const u32 *query, int stage, int *rope_parity) {
    const u64 keys = tile_descriptor(latent_stage(stage));
    const u64 slices =
        shared_descriptor(shared_address(QUERY_OFFSET), 16, 8 * STEP_BYTES, STEP_BYTES);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < REGISTER_STEPS - PV_OVERLAP; ++k) {
        wgmma_rs_n64_t00(s, &query[k * 4], latent_step(keys, k), k > 0);
    }
#pragma unroll
    for (int k = REGISTER_STEPS; k < LATENT_STEPS; ++k) {
        wgmma_ss_n64_t00(s, descriptor_advance(slices, (u32)((k - REGISTER_STEPS) * SLICE_BYTES)),
                         latent_step(keys, k), 1);
    }
    if (ROPE_STEPS > 0) {
        mbarrier_wait(barrier_at(ROPE_FULL), *rope_parity);
        *rope_parity ^= 1;
        fence_proxy_async();
        const u64 rope = tile_descriptor(ROPE_OFFSET);
#pragma unroll
        for (int k = 0; k < ROPE_STEPS; ++k) {
            wgmma_ss_n64_t00(s,
                             descriptor_advance(
                                 slices, (u32)((k + LATENT_STEPS - REGISTER_STEPS) * SLICE_BYTES)),
                             descriptor_advance(rope, (u32)(k * STEP_BYTES)), 1);
        }
    }
    wgmma_commit();
#pragma unroll
    for (int k = REGISTER_STEPS - PV_OVERLAP; k < REGISTER_STEPS; ++k) {
        wgmma_rs_n64_t00(s, &query[k * 4], latent_step(keys, k), 1);
    }
    wgmma_commit();
}

/* The running softmax of this thread's two heads, in powers of two. */
struct softmax_rows {
    float maximum[2]; /* P is relative to it; or -inf */
    float highest[2]; /* the exact maximum */
    float sum[2];     /* of this thread's exponentials */
};

/* Sets the scores of keys past `count` to -inf. */
DEVICE void mask_scores(float *s, int count) {
    const int column = (int)(threadIdx.x % 4 * 2);
#pragma unroll
    for (int i = 0; i < SCORE_VALUES; ++i) {
        if (i / 4 * 8 + column + i % 2 >= count) {
            s[i] = MINUS_INFINITY;
        }
    }
}

/* The maximum score of each of the thread's two heads. */
DEVICE void row_maxima(const float *s, float *highest) {
    highest[0] = fmaxf(s[0], s[1]);
    highest[1] = fmaxf(s[2], s[3]);
#pragma unroll
    for (int i = 1; i < SCORE_VALUES / 4; ++i) {
        highest[0] = fmaxf(highest[0], fmaxf(s[4 * i], s[4 * i + 1]));
        highest[1] = fmaxf(highest[1], fmaxf(s[4 * i + 2], s[4 * i + 3]));
    }
#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
        const float other[2] = {__shfl_xor_sync((u32)ALL_LANES, highest[0], mask),
                                __shfl_xor_sync((u32)ALL_LANES, highest[1], mask)};
        highest[0] = fmaxf(highest[0], other[0]);
        highest[1] = fmaxf(highest[1], other[1]);
    }
}

/* Computes P from the scores, in place, and the factors of O's rows, and updates the sums. (The
 * factor is applied in the same fma that adds a row's first exponential: multiplying the sum alone
 * would stall the warp until the factor is there.) */
DEVICE void softmax_block(float *s, struct softmax_rows *rows, float *factors, float scale_log2) {
    float highest[2], offset[2];
    row_maxima(s, highest);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        highest[r] *= scale_log2;
        rows->highest[r] = fmaxf(rows->highest[r], highest[r]);
        factors[r] = 1.0f;
        if (highest[r] > rows->maximum[r] + RESCALE_THRESHOLD) {
            const float rise = fminf(highest[r] - rows->maximum[r], LONGEST_STEP);
            const float step = rise + ROUND_TO_INTEGER - ROUND_TO_INTEGER;
            rows->maximum[r] = rise < LONGEST_STEP ? rows->maximum[r] + step : highest[r];
            factors[r] = exp2_approximate(-step);
        }
        offset[r] = rows->maximum[r] == MINUS_INFINITY ? 0.0f : -rows->maximum[r];
    }
#pragma unroll
    for (int i = 0; i < SCORE_VALUES; ++i) {
        s[i] = exp2_approximate(fmaf(s[i], scale_log2, offset[i / 2 % 2]));
        float *const sum = &rows->sum[i / 2 % 2];
        *sum = i < 4 && i % 2 == 0 ? fmaf(*sum, factors[i / 2], s[i]) : *sum + s[i];
    }
}

/* Converts P to bf16, two values per word. */
DEVICE void pack_probabilities(u32 *p, const float *s) {
#pragma unroll
    for (int i = 0; i < SCORE_VALUES / 2; ++i) {
        p[i] = pack_bf16x2(s[2 * i], s[2 * i + 1]);
    }
}

/* Returns `parity`, with a false dependency on all of P: otherwise the wait is scheduled before the
 * exponentials and stalls the warp. (No value of P has its sign bit set.) */
DEVICE int parity_after(int parity, const u32 *p) {
    u32 all = 0;
#pragma unroll
    for (int i = 0; i < SCORE_VALUES / 2; ++i) {
        all |= p[i];
    }
    return parity | (int)(all >> 31);
}

/* Stores P and the exponents of the factors in a buffer. */
DEVICE void store_probabilities(const u32 *p, const float *factors, int buffer) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 base =
        shared_address(probability_tile(buffer) + (warp * 16 + lane % 16) * TILE_PITCH +
                       ((lane / 16) ^ (lane % 8)) * 16);
#pragma unroll
    for (int i = 0; i < SCORE_VALUES / 8; ++i) {
        stmatrix_x4(base ^ (u32)(i * STEP_BYTES), &p[4 * i]);
    }
    if (lane % 4 == 0) {
        unsigned char *const exponents =
            arena + EXPONENTS_OFFSET + buffer * BLOCK_HEADS + warp * 16 + lane / 4;
        exponents[0] = (unsigned char)(__float_as_int(factors[0]) >> 23);
        exponents[8] = (unsigned char)(__float_as_int(factors[1]) >> 23);
    }
}

/* After a query's last block: reduces the sums over the quad and stores the denominators. */
DEVICE void store_denominators(const struct sparse_attn_fwd_params *params,
                               struct softmax_rows *rows, const struct work *work, int buffer) {
    const u32 thread = thread_number(), warp = thread / 32, lane = thread % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = (int)(warp * 16 + lane / 4) + 8 * r;
        rows->sum[r] += __shfl_xor_sync((u32)ALL_LANES, rows->sum[r], 1);
        rows->sum[r] += __shfl_xor_sync((u32)ALL_LANES, rows->sum[r], 2);
        float denominator = rows->sum[r];
        if (HAS_SINK) {
            const int head = minimum(work->head_block * BLOCK_HEADS + row, LAST_HEAD);
            denominator += exp2_approximate(params->sink[head] * LOG2_E - rows->maximum[r]);
        }
        if (lane % 4 == 0) {
            ((float *)(arena + DENOMINATORS_OFFSET))[buffer * BLOCK_HEADS + row] =
                rows->sum[r] == 0.0f ? 0.0f : denominator;
        }
    }
}

/* Stores lse and max_logits. A sum is 0 without valid slots; otherwise it is at least about 1, or
 * NaN, which lse passes on. */
DEVICE void store_statistics(const struct sparse_attn_fwd_params *params,
                             const struct softmax_rows *rows, const struct work *work) {
    const u32 thread = thread_number(), warp = thread / 32, lane = thread % 32;
    const int batch = work_batch(&params->work, work), token = work_token(&params->work, work);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int head = work->head_block * BLOCK_HEADS + (int)(warp * 16 + lane / 4) + 8 * r;
        if (lane % 4 == 0 && head < HEADS) {
            params->lse[batch * params->lse_batch_stride + token * params->lse_token_stride +
                        head * params->lse_head_stride] =
                rows->sum[r] == 0.0f ? MINUS_INFINITY
                                     : (rows->maximum[r] + log2_approximate(rows->sum[r])) * LN_2;
            if (params->max_logits) {
                params->max_logits[batch * params->max_logits_batch_stride +
                                   token * params->max_logits_token_stride +
                                   head * params->max_logits_head_stride] = rows->highest[r] * LN_2;
            }
        }
    }
}

/* The scores' warpgroup. It takes the next query's Q, for which the gather waits, before it writes
 * a query's statistics. */
DEVICE void run_scores(const struct sparse_attn_fwd_params *params) {
    registers_increase(SCORES_REGISTERS);
    const float scale_log2 = params->scale * LOG2_E;
    struct ring_place stage = {0, 0}, buffer = {0, 0};
    int rope_parity = 0, last_buffer = 0;
    struct work work = first_work(&params->work);
    u32 query[QUERY_FRAGMENTS];
    if (work.query >= 0) {
        begin_query(query, &stage, &rope_parity);
    }
    while (work.query >= 0) {
        struct softmax_rows rows = {
            {MINUS_INFINITY, MINUS_INFINITY}, {MINUS_INFINITY, MINUS_INFINITY}, {0.0f, 0.0f}};
        int word;
        do {
            float s[SCORE_VALUES], factors[2];
            u32 p[SCORE_VALUES / 2];
            mbarrier_wait(barrier_at(FULL + stage.index), stage.parity);
            word = *block_word(stage.index);
            fence_proxy_async();
            issue_scores(s, query, stage.index, &rope_parity);
            wgmma_wait(1);
            if (!(word & FIRST_BLOCK)) {
                arrive_warp(barrier_at(ORDER + last_buffer), 1);
            }
            wgmma_wait(0);
            if (ROPE_STEPS > 0) {
                arrive_warp(barrier_at(ROPE_FREE), 1);
            }
            if (word & LAST_BLOCK) {
                barrier_sync(SCORES_BARRIER, WARPGROUP); /* QUERY has been read */
            }
            if ((word & COUNT_MASK) < BLOCK_KEYS) {
                mask_scores(s, word & COUNT_MASK);
            }
            softmax_block(s, &rows, factors, scale_log2);
            pack_probabilities(p, s);
            mbarrier_wait(barrier_at(P_FREE + buffer.index), parity_after(buffer.parity ^ 1, p));
            store_probabilities(p, factors, buffer.index);
            if (word & LAST_BLOCK) {
                store_denominators(params, &rows, &work, buffer.index);
            }
            /* The output executes the proxy fence: here it would wait for Q's copies. */
            arrive_warp(barrier_at(P_FULL + buffer.index), 1);
            if (word & LAST_BLOCK) {
                arrive_warp(barrier_at(ORDER + buffer.index), 1);
            }
            last_buffer = buffer.index;
            ring_advance(&stage, STAGES);
            ring_advance(&buffer, P_BUFFERS);
        } while (!(word & LAST_BLOCK));
        const struct work next = next_work(&params->work, &work);
        if (next.query >= 0) {
            begin_query(query, &stage, &rope_parity);
        }
        store_statistics(params, &rows, &work);
        work = next;
    }
}
