//@use common/base.cuh
//@use common/logit.cuh
//@use indexer_dense_windows.params.h
/*
 * The windows of pools of GRANULARITY keys: the pools all of whose keys are in a query's window.
 *
 * Grid: a thread per query, or fewer CTAs that loop.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_dense_windows_params params) {
    for (i64 query = (i64)blockIdx.x * THREADS + (int)threadIdx.x; query < params.tokens;
         query += (i64)gridDim.x * THREADS) {
        const struct key_range window =
            window_among(params.window_begin[query], params.window_end[query], 0, params.rows);
        const int begin = (minimum(window.begin, params.rows) + (GRANULARITY - 1)) / GRANULARITY;
        params.pool_begin[query] = begin;
        params.pool_end[query] = maximum(window.end / GRANULARITY, begin);
    }
}
