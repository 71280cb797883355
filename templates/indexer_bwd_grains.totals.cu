//@use common/base.cuh
//@use indexer_bwd_grains.params.h
/*
 * Deterministic backward pass of the indexer, behind the main kernel, where several launches of it
 * share the groups: adds the sums of dk of its groups to those of all before. Sums are zeros again
 * for the next launch, which has grains of its own; behind the last one they are the totals.
 *
 * A thread takes four columns of a row at a time; any grid is right.
 */

enum { VECTOR_COLUMNS = 4 };

DEVICE bool is_nothing(float4 sums) {
    return sums.x == 0.0f && sums.y == 0.0f && sums.z == 0.0f && sums.w == 0.0f;
}

DEVICE void add_vector(const struct indexer_bwd_grains_params *params, i64 vector) {
    float4 *const place = (float4 *)params->sums + vector;
    float4 *const total = (float4 *)params->totals + vector;
    const float4 nothing = {0.0f, 0.0f, 0.0f, 0.0f};
    const float4 sums = *place;
    if (is_nothing(sums) && !params->first && !params->last) {
        return; /* of most rows, where neighbouring queries select near keys */
    }
    const float4 before = params->first ? nothing : *total;
    const float4 after = {before.x + sums.x, before.y + sums.y, before.z + sums.z,
                          before.w + sums.w};
    if (params->last) {
        *place = after;
    } else {
        *place = nothing;
        *total = after;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_bwd_grains_params params) {
    const i64 vectors = (i64)params.rows * (params.dim / VECTOR_COLUMNS);
    for (i64 vector = blockIdx.x * (i64)THREADS + threadIdx.x; vector < vectors;
         vector += gridDim.x * (i64)THREADS) {
        add_vector(&params, vector);
    }
}
