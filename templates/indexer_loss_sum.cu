//@use common/base.cuh
//@use common/block_sums.cuh
//@use ptx/grid.cuh
//@use indexer_loss_sum.params.h
/*
 * Sums the queries' losses. Meaning: include/smelt/indexer_loss.h.
 *
 * Grid: one CTA. Thread i adds the losses of queries i, i + THREADS, ... of each group in this order, then the
 * threads' sums are added, so that only their number determines the order. Its time is
 * negligible: a query is a few bytes here and kilobytes in the kernel before.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_loss_sum_params params) {
    if (PDL) {
        grid_wait();
    }
    float sum = 0.0f;
    for (int group = 0; group < params.groups; ++group) {
#pragma unroll 8
        for (i64 query = threadIdx.x; query < params.queries; query += THREADS) {
            sum += params.losses[query * params.query_stride + group];
        }
    }
    float *const warps = (float *)(arena + SUMS_OFFSET);
    block_begin(warps, warp_sum(sum));
    __syncthreads();
    sum = block_sum(warps);
    if (threadIdx.x == 0) {
        *params.loss = sum;
    }
}
