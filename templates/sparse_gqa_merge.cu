//@use common/base.cuh
//@use common/gqa_units.cuh
//@use common/queries.cuh
//@use common/softmax.cuh
//@use ptx/math.cuh
//@use common/work.params.h
//@use sparse_gqa_merge.params.h
/*
 * Forward pass of sparse_gqa, after the block-stationary kernel: combines a query's partial results
 * of its blocks by their log-sum-exp, in the order of the slots, and adds the sink.
 *
 * A warp has a unit (8 heads of a KV head) of one query at a time, in the order of the accumulators
 * (common/gqa_units.cuh). Any grid size.
 */

enum { AT_ONCE = 4 /* slots whose partial results are loaded at once */ };

/* A row's exponentials: relative to `maximum`, in powers of two. */
struct row_sum {
    float maximum, sum;
};

DEVICE struct row_sum add_rows(struct row_sum a, struct row_sum b) {
    const float maximum = fmaxf(a.maximum, b.maximum);
    const float base = maximum == MINUS_INFINITY ? 0.0f : maximum;
    const struct row_sum sum = {maximum, a.sum * exp2_approximate(a.maximum - base) +
                                             b.sum * exp2_approximate(b.maximum - base)};
    return sum;
}

/* The sum of a row's partial sums. The lanes of a quad take slots in turn. */
DEVICE struct row_sum sum_partials(const struct sparse_gqa_merge_params *params,
                                   const struct unit *unit) {
    const int lane = (int)threadIdx.x % 32;
    struct row_sum total = {MINUS_INFINITY, 0.0f};
    for (int slot = lane % 4; slot < params->work.width; slot += 4) {
        const int pair = unit->places[slot];
        if (pair >= 0) {
            const struct row_sum one = {
                params->partial_lse[partial_number(unit, pair) * UNIT_HEADS + lane / 4], 1.0f};
            total = add_rows(total, one);
        }
    }
#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
        const struct row_sum other = {__shfl_xor_sync((u32)ALL_LANES, total.maximum, mask),
                                      __shfl_xor_sync((u32)ALL_LANES, total.sum, mask)};
        total = add_rows(total, other);
    }
    return total;
}

/* Adds the partial results of AT_ONCE slots, weighted. */
DEVICE void add_partials(const struct sparse_gqa_merge_params *params, const struct unit *unit,
                         int slot, float base, float inverse, float *sums) {
    const int lane = (int)threadIdx.x % 32;
    float weights[AT_ONCE];
    uint4 values[AT_ONCE][VECTORS];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
        const int pair = slot + i < params->work.width ? unit->places[slot + i] : -1;
        const i64 number = partial_number(unit, maximum(pair, 0));
        const uint4 *const from = (const uint4 *)params->partials + number * UNIT_VECTORS + lane;
        const uint4 zeros = {0, 0, 0, 0};
        weights[i] =
            pair >= 0 ? params->partial_lse[number * UNIT_HEADS + lane / 4] : MINUS_INFINITY;
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
            values[i][k] = pair >= 0 ? from[k * 32] : zeros;
        }
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
        const float weight = exp2_approximate(weights[i] - base) * inverse;
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
            const u32 words[4] = {values[i][k].x, values[i][k].y, values[i][k].z, values[i][k].w};
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                float *const pair = &sums[k * 8 + n * 2];
                pair[0] = fmaf(weight, bf16_low(words[n]), pair[0]);
                pair[1] = fmaf(weight, bf16_high(words[n]), pair[1]);
            }
        }
    }
}

/* Stores the lane's head of out, 16 bytes of each quad's 64 at a time, and of lse. */
DEVICE void store_unit(const struct sparse_gqa_merge_params *params, const struct unit *unit,
                       const float *sums, struct row_sum total) {
    const int lane = (int)threadIdx.x % 32, batch = query_batch(&params->work, unit->query);
    const int token = unit->query - batch * params->work.tokens;
    store_unit_row((char *)params->out +
                       2 * (batch * params->out_batch_stride + token * params->out_token_stride +
                            unit->head * params->out_head_stride),
                   sums, unit->head < HEADS);
    if (unit->head < HEADS && lane % 4 == 0) {
        params->lse[batch * params->lse_batch_stride + token * params->lse_token_stride +
                    unit->head * params->lse_head_stride] =
            total.sum == 0.0f ? MINUS_INFINITY
                              : (total.maximum + log2_approximate(total.sum)) * LN_2;
    }
}

DEVICE void merge_unit(const struct sparse_gqa_merge_params *params, const struct unit *unit) {
    const struct row_sum total = sum_partials(params, unit);
    const float base = total.maximum == MINUS_INFINITY ? 0.0f : total.maximum;
    float denominator = total.sum, sums[VECTORS * 8];
    if (HAS_SINK) {
        denominator +=
            exp2_approximate(params->sink[minimum(unit->head, HEADS - 1)] * LOG2_E - base);
    }
    const float inverse = total.sum == 0.0f ? 0.0f : 1.0f / denominator;
#pragma unroll
    for (int i = 0; i < VECTORS * 8; ++i) {
        sums[i] = 0.0f;
    }
    for (int slot = 0; slot < params->work.width; slot += AT_ONCE) {
        add_partials(params, unit, slot, base, inverse, sums);
    }
    store_unit(params, unit, sums, total);
}

//@if UNITES
/* Whether an item's entry has no partial results, because its tile's lists are united. */
DEVICE bool is_united(const struct sparse_gqa_merge_params *params, i64 item) {
    enum { OF_ENTRY = KV_HEADS * UNITS, GROUPS = KV_HEADS / LIST_HEADS };
    const int entry = (int)(item / OF_ENTRY), group = (int)(item % OF_ENTRY) / UNITS / LIST_HEADS;
    return params->tiles && params->tiles[entry / params->tile_entries * GROUPS + group] > 0;
}

/* The first of the items item, item + step, ... that has partial results; `items` or more if none has.
 * By whole warps: each lane looks at one item at a time. */
DEVICE i64 skip_united(const struct sparse_gqa_merge_params *params, i64 item, i64 step,
                       i64 items) {
    for (; item < items; item += 32 * step) {
        const i64 own = item + threadIdx.x % 32 * step;
        const u32 found = __ballot_sync((u32)ALL_LANES, own < items && !is_united(params, own));
        if (found) {
            return item + (__ffs((int)found) - 1) * step;
        }
    }
    return item;
}
//@end

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_merge_params params) {
    const int listed = find_query_range(&params.work).queries - params.first;
    const i64 items = (i64)minimum(listed, params.entries) * (KV_HEADS * UNITS);
    for (i64 item = (i64)blockIdx.x * WARPS + threadIdx.x / 32; item < items;
         item += (i64)gridDim.x * WARPS) {
        //@if UNITES
        if (is_united(&params, item)) {
            item = skip_united(&params, item, (i64)gridDim.x * WARPS, items);
            if (item >= items) {
                return;
            }
        }
        //@end
        const struct unit unit = find_unit(&params.work, params.places, params.first, item);
        if (unit.query >= 0) {
            merge_unit(&params, &unit);
        }
    }
}
