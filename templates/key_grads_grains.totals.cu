//@use common/base.cuh
//@use key_grads_grains.params.h
/*
 * Deterministic backward pass of the indexer, after each main kernel if several launches share the
 * groups: adds dk's sums of this launch to those of earlier ones and clears them for the next one,
 * which has its own grains. After the last launch the sums are the totals.
 *
 * A thread takes four columns of a row at a time; any grid size.
 */

enum { VECTOR_COLUMNS = 4 };

DEVICE bool is_nothing(float4 sums) {
    return sums.x == 0.0f && sums.y == 0.0f && sums.z == 0.0f && sums.w == 0.0f;
}

/* Adds this launch's sums at `place` to the earlier ones at `total`. */
DEVICE void add_vector(const struct key_grads_grains_params *params, float4 *place, float4 *total) {
    const float4 nothing = {0.0f, 0.0f, 0.0f, 0.0f};
    const float4 sums = *place;
    if (is_nothing(sums) && !params->first && !params->last) {
        return; /* most rows, if neighbouring queries select nearby keys */
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
    KERNEL_NAME(const __grid_constant__ struct key_grads_grains_params params) {
    const int vectors = params.dim / VECTOR_COLUMNS; /* of a row; divides THREADS */
    const int thread = (int)(blockIdx.x * THREADS + threadIdx.x),
              threads = (int)gridDim.x * THREADS;
    float4 *place = (float4 *)params.sums + thread, *total = (float4 *)params.totals + thread;
    for (i64 row = thread / vectors; row < params.rows; row += threads / vectors) {
        add_vector(&params, place, total);
        place += threads;
        total += threads;
    }
}
