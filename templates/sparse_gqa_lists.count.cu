//@use common/base.cuh
//@use sparse_gqa_lists.unit.cuh
/*
 * Reverse index of sparse_gqa's lists, first pass: how many pairs of each chunk are in each list.
 *
 * Grid: a CTA for each chunk, group and LISTS_AT_ONCE of the group's lists.
 *
 * Shared memory: COUNTERS [LISTS_AT_ONCE] int.
 */

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_lists_params params) {
    const struct part part = find_part(&params);
    const struct chunk chunk = find_chunk(&params, part.chunk);
    int *const counts = params.counts + (i64)part.chunk * part.lists * params.groups;
    zero_counters(1);
    __syncthreads();
    for (int entry = chunk.begin + (int)threadIdx.x / 32; entry < chunk.end; entry += WARPS) {
        count_slots(&params, entry, part.group, part.base, 0);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < minimum(part.lists - part.base, LISTS_AT_ONCE);
         i += THREADS) {
        counts[list_number(&params, part.group, part.base + i)] = counters(0)[i];
    }
}
