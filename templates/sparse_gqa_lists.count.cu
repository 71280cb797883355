//@use common/base.cuh
//@use sparse_gqa_lists.unit.cuh
/*
 * Reverse index of sparse_gqa's lists, first pass: how many pairs of each chunk are in each list.
 *
 * Grid: a CTA for each chunk and group. Shared memory: COUNTERS [LISTS_AT_ONCE] int.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_lists_params params) {
    const int group = (int)blockIdx.x % params.groups, number = (int)blockIdx.x / params.groups;
    const int lists = params.work.batches * params.blocks;
    const struct chunk chunk = find_chunk(&params, number);
    int *const counts = params.counts + (i64)number * lists * params.groups;
    for (int base = 0; base < lists; base += LISTS_AT_ONCE) {
        zero_counters(1);
        __syncthreads();
        for (int entry = chunk.begin + (int)threadIdx.x / 32; entry < chunk.end; entry += WARPS) {
            count_slots(&params, entry, group, base, 0);
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < minimum(lists - base, LISTS_AT_ONCE); i += THREADS) {
            counts[list_number(&params, group, base + i)] = counters(0)[i];
        }
        __syncthreads();
    }
}
