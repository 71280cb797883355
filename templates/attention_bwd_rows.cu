//@use common/base.cuh
//@use common/softmax.cuh
//@use common/warp_sums.cuh
//@use ptx/grid.cuh
//@use ptx/math.cuh
//@use ptx/memory.cuh
//@use attention_lists.queries.cuh
//@use attention_bwd_rows.params.h
/*
 * Preprocessing of the backward pass of sparse attention: per row (a query and a head) the base of
 * its probabilities, delta, and its contribution to the sink's gradient. Mathematics:
 * include/smelt/sparse_attn.h.
 *
 *   base  = log2( exp(lse) + exp(sink) )     p = 2^(score in powers of two - base)
 *   delta = sum over d of out[d] * grad_out[d]
 *   dsink = -sum over queries of delta * exp(sink) / (exp(lse) + exp(sink))
 *
 * Padded rows (of no query, or past the last head) get base = +inf, delta = 0, so that their
 * probabilities are 0. Grid: one CTA per ENTRIES entries. A warp takes one head at a time and loops
 * over the entries, LOADED of them in flight; lane i keeps the result of entry i. A CTA's share of
 * dsink is summed in the entries' order, for any grid.
 *
 * It does not need the lists and so runs concurrently with the lists kernel (PDL): only this one is
 * bound by memory. The main kernel waits for both.
 */

enum {
    WARPS = THREADS / 32,
    CHUNKS = DV / 8, /* of 16 bytes in a row */
    LANE_CHUNKS = (CHUNKS + 31) / 32,
    LOADED = LANE_CHUNKS > 2 ? 2 : 4
};

/* The dot product of two pairs of bf16. */
DEVICE float multiply_pairs(u32 a, u32 b) {
    return fmaf(__int_as_float((int)(a << 16)), __int_as_float((int)(b << 16)),
                __int_as_float((int)(a & 0xffff0000u)) * __int_as_float((int)(b & 0xffff0000u)));
}

/* A row's offset in bytes. */
DEVICE i64 row_offset(const struct attention_bwd_rows_params *params, int query, int head,
                      i64 batch_stride, i64 token_stride, i64 head_stride) {
    const int batch = query_batch(&params->work, query),
              token = query - batch * params->work.tokens;
    return 2 * (batch * batch_stride + token * token_stride + head * head_stride);
}

/* Loads this lane's 16-byte chunks of a row of out and of grad_out. */
DEVICE void load_row(u32 *out, u32 *grad, const struct attention_bwd_rows_params *params, int query,
                     int head) {
    const int lane = (int)threadIdx.x % 32;
    const char *const out_row =
        (const char *)params->out + row_offset(params, query, head, params->out_batch_stride,
                                               params->out_token_stride, params->out_head_stride);
    const char *const grad_row =
        (const char *)params->grad_out +
        row_offset(params, query, head, params->grad_out_batch_stride,
                   params->grad_out_token_stride, params->grad_out_head_stride);
#pragma unroll
    for (int i = 0; i < LANE_CHUNKS; ++i) {
        const int chunk = lane + i * 32;
        if (chunk < CHUNKS) {
            load_read_only_16(&out[i * 4], out_row + chunk * 16);
            load_read_only_16(&grad[i * 4], grad_row + chunk * 16);
        }
    }
}

/* delta of this lane's entry (lane i has entry i), 0 without a query. The whole warp calls it. */
DEVICE float find_delta(const struct attention_bwd_rows_params *params, int query, int head) {
    const int lane = (int)threadIdx.x % 32;
    float delta = 0.0f;
#pragma unroll 1
    for (int begin = 0; begin < ENTRIES; begin += LOADED) {
        u32 out[LOADED][LANE_CHUNKS * 4], grad[LOADED][LANE_CHUNKS * 4];
#pragma unroll
        for (int i = 0; i < LOADED; ++i) {
            const int other = __shfl_sync((u32)ALL_LANES, query, begin + i);
#pragma unroll
            for (int k = 0; k < LANE_CHUNKS * 4; ++k) {
                out[i][k] = grad[i][k] = 0;
            }
            if (other >= 0) {
                load_row(out[i], grad[i], params, other, head);
            }
        }
#pragma unroll
        for (int i = 0; i < LOADED; ++i) {
            float sum = 0.0f;
#pragma unroll
            for (int k = 0; k < LANE_CHUNKS * 4; ++k) {
                sum += multiply_pairs(out[i][k], grad[i][k]);
            }
            sum = warp_sum(sum);
            delta = lane == begin + i ? sum : delta;
        }
    }
    return delta;
}

/* The base of a row whose query has a valid slot, and the sink's share of its probabilities. */
DEVICE float find_base(const struct attention_bwd_rows_params *params, float lse, int head,
                       float *share) {
    const float own = lse * LOG2_E;
    const float sink = params->sink ? params->sink[head] * LOG2_E : MINUS_INFINITY;
    const float larger = fmaxf(own, sink), smaller = fminf(own, sink);
    *share = 0.0f;
    if (sink == MINUS_INFINITY) {
        return own;
    }
    if (sink == -MINUS_INFINITY) {
        *share = 1.0f;
        return sink;
    }
    const float base = larger + log2_approximate(1.0f + exp2_approximate(smaller - larger));
    *share = exp2_approximate(sink - base);
    return base;
}

/* Processes one head of all the CTA's entries: statistics, and its part of dsink. The whole warp
 * calls it; `query`: of this lane's entry. */
DEVICE void find_head(const struct attention_bwd_rows_params *params, int query, int head) {
    const int lane = (int)threadIdx.x % 32, entry = (int)blockIdx.x * ENTRIES + lane;
    float base = -MINUS_INFINITY, delta = 0.0f, share = 0.0f;
    if (head < HEADS) {
        delta = find_delta(params, query, head);
        if (query >= 0) {
            const int batch = query_batch(&params->work, query);
            const int token = query - batch * params->work.tokens;
            const float lse =
                params->lse[batch * params->lse_batch_stride + token * params->lse_token_stride +
                            head * params->lse_head_stride];
            if (lse != MINUS_INFINITY) { /* a query with a valid slot */
                base = find_base(params, lse, head, &share);
            }
        }
    }
    if (lane < ENTRIES && entry < params->entries) {
        const float2 row = {base, delta};
        *(float2 *)&params->statistics[2 * ((i64)entry * params->query_rows + head)] = row;
    }
    if (params->dsink_parts && head < HEADS) {
        const float part = warp_sum(share != 0.0f ? -delta * share : 0.0f);
        if (lane == 0) {
            params->dsink_parts[(i64)blockIdx.x * HEADS + head] = part;
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct attention_bwd_rows_params params) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int entry = (int)blockIdx.x * ENTRIES + lane;
    int query = -1, listed;
    if (lane < ENTRIES && entry < params.entries) {
        query = find_query(&params.work, params.last_range, (u32)entry, &listed);
    }
#pragma unroll 1
    for (int head = warp; head < params.query_rows; head += WARPS) {
        find_head(&params, query, head);
    }
    /* End after the previous kernel. */
    if (PDL && params.work.pdl_wait_at_end && blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        grid_wait();
    }
}
