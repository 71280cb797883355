//@use ptx/grid.cuh
//@use topk_select_rows.list.cuh
/*
 * Exact top-k of few rows, first pass: several thread blocks per row, each of which reads a part of
 * the row's window and writes a list of the elements above a bound. All draw the same sample and so
 * agree on the bound. Pass `merge` of topk_select_rows.cu follows.
 *
 * Grid: params.parts blocks per row. All WARPS warps have one role. Windows of at most ALONE
 * elements are left to the second pass.
 *
 * Shared memory: LIST, HISTOGRAM, WARPS, NUMBERS as in topk_select_rows.cu.
 */

/* Writes a part's list and header. The second pass needs only the count of a list that overflowed;
 * such a list may have gaps. */
DEVICE void store_part(const struct topk_select_rows_params *params, i64 part, struct bound bound,
                       int equal) {
    const int count = shared_numbers()[LIST_COUNT], kept = count <= PART_LIST ? count : 0;
    u64 *const entries = params->lists + part * PART_LIST;
    for (int i = (int)thread_number(); i < kept; i += THREADS) {
        entries[i] = list()[i];
    }
    if (thread_number() == 0) {
        const struct topk_select_rows_header header = {
            count, equal, bound.key, (u32)shared_numbers()[SAMPLE_TOP], bound.counted};
        params->headers[part] = header;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct topk_select_rows_params params) {
    const int row = (int)blockIdx.x / params.parts, part = (int)blockIdx.x % params.parts;
    const struct window window = open_window(&params, row);
    if (PDL && params.pdl) {
        grid_wait();
    }
    if (PDL) {
        grid_launch_dependents();
    }
    if (window_length(&window) <= ALONE) {
        return;
    }
    if (thread_number() == 0) {
        shared_numbers()[LIST_COUNT] = 0;
    }
    const struct bound bound = choose_bound(&window, count_wanted(&window), 0);
    const int begin = (int)((i64)window.blocks * part / params.parts);
    const int end = (int)((i64)window.blocks * (part + 1) / params.parts);
    __syncthreads(); /* the sample has been read, the count cleared */
    const int equal = block_sum(read_blocks(&window, begin, end, bound));
    store_part(&params, blockIdx.x, bound, equal);
}
