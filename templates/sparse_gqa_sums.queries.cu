//@use common/base.cuh
//@use common/gqa_units.cuh
//@use common/queries.cuh
//@use sparse_gqa_sums.params.h
/*
 * Backward pass of sparse_gqa, after the block-stationary kernel: dq of a query from the partial
 * results of its blocks, in the order of the slots. Any grid size.
 */

enum { AT_ONCE = 4 /* slots whose partial results are loaded at once */ };

/* Adds the partial results of AT_ONCE slots. */
DEVICE void add_partials(const struct sparse_gqa_sums_params *params, const struct unit *unit,
                         int slot, float *sums) {
    const int lane = (int)threadIdx.x % 32;
    uint4 values[AT_ONCE][VECTORS];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
        const int pair = slot + i < params->work.width ? unit->places[slot + i] : -1;
        const uint4 zeros = {0, 0, 0, 0};
        const uint4 *const from = (const uint4 *)params->dq_partials +
                                  partial_number(unit, maximum(pair, 0)) * UNIT_VECTORS + lane;
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
            values[i][k] = pair >= 0 ? from[k * 32] : zeros;
        }
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
#pragma unroll
        for (int k = 0; k < VECTORS; ++k) {
            const u32 words[4] = {values[i][k].x, values[i][k].y, values[i][k].z, values[i][k].w};
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                sums[k * 8 + n * 2] += bf16_low(words[n]);
                sums[k * 8 + n * 2 + 1] += bf16_high(words[n]);
            }
        }
    }
}

DEVICE void sum_unit(const struct sparse_gqa_sums_params *params, const struct unit *unit) {
    const int batch = query_batch(&params->work, unit->query);
    const int token = unit->query - batch * params->work.tokens;
    float sums[VECTORS * 8];
#pragma unroll
    for (int i = 0; i < VECTORS * 8; ++i) {
        sums[i] = 0.0f;
    }
    for (int slot = 0; slot < params->work.width; slot += AT_ONCE) {
        add_partials(params, unit, slot, sums);
    }
    store_unit_row((char *)params->dq +
                       2 * (batch * params->dq_batch_stride + token * params->dq_token_stride +
                            unit->head * params->dq_head_stride),
                   sums, unit->head < HEADS);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_sums_params params) {
    const int listed = find_query_range(&params.work).queries - params.first;
    const i64 items = (i64)minimum(listed, params.entries) * (KV_HEADS * UNITS);
    for (i64 item = (i64)blockIdx.x * WARPS + threadIdx.x / 32; item < items;
         item += (i64)gridDim.x * WARPS) {
        const struct unit unit = find_unit(&params.work, params.places, params.first, item);
        if (unit.query >= 0) {
            sum_unit(&params, &unit);
        }
    }
}
