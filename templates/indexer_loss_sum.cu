//@use common/base.cuh
//@use common/block_sums.cuh
//@use ptx/grid.cuh
//@use indexer_loss_sum.params.h
/*
 * The indexer's loss out of those of the queries. Meaning: include/smelt/indexer_loss.h.
 *
 * Grid: one block. Thread i adds up the losses of the queries i, i + THREADS, ... in that order;
 * then the threads are added up: the number of queries alone fixes the order. A query gives a few
 * bytes here and kilobytes to the kernel before this one: it takes no time.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_loss_sum_params params) {
    if (PDL) {
        grid_wait();
    }
    float sum = 0.0f;
#pragma unroll 8
    for (i64 query = threadIdx.x; query < params.queries; query += THREADS) {
        sum += params.losses[query];
    }
    float *const warps = (float *)(arena + SUMS_OFFSET);
    block_begin(warps, warp_sum(sum));
    __syncthreads();
    sum = block_sum(warps);
    if (threadIdx.x == 0) {
        *params.loss = sum;
    }
}
