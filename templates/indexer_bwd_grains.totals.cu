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

/* The sums at `place` of this launch and those at `total` of the ones before. */
DEVICE void add_vector(const struct indexer_bwd_grains_params *params, float4 *place,
                       float4 *total) {
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
    const int vectors = params.dim / VECTOR_COLUMNS; /* of a row; THREADS is a multiple */
    const int thread = (int)(blockIdx.x * THREADS + threadIdx.x),
              threads = (int)gridDim.x * THREADS;
    float4 *place = (float4 *)params.sums + thread, *total = (float4 *)params.totals + thread;
    for (i64 row = thread / vectors; row < params.rows; row += threads / vectors) {
        add_vector(&params, place, total);
        place += threads;
        total += threads;
    }
}
