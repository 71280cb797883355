//@use ptx/grid.cuh
//@use ptx/prefetch.cuh
//@use topk_select_rows.candidates.cuh
//@use topk_select_rows.emit.cuh
/*
 * Exact top-k of each row of a matrix within the row's window, one thread block per row. Meaning:
 * include/smelt/topk_select.h.
 *
 * logits [rows, columns] fp32 or bf16 -> indices [rows, width] int32, ascending or, with
 * ORDER_BY_SCORE, by descending score; optionally values and lengths. With EXPAND above 1, a selected
 * entry becomes that many rows when it is written. All WARPS warps have one role.
 *
 *   1. bound    from a sample of the window, far enough below the wanted rank that rarely too few
 *               elements are above it
 *   2. list     reads the window once and keeps the elements above the bound, about 1.5 times TOPK.
 *               With fewer than TOPK or more than LIST, repeats with a corrected bound
 *   3. rank     radix selection in the list: a histogram, then one of the selected bin, down to one
 *               entry
 *   4. emit     a bit map and its scan, or a sort
 *
 * Elements equal to the bound are counted instead of stored if there are many, and the first ones
 * are searched for at the end. The result is exact for any sample and does not depend on the order
 * of atomics.
 *
 * With PARTS (pass `merge`) the blocks of pass `parts` have done step 2, each for a part of the
 * row. This kernel concatenates their lists; if they do not suffice, it continues alone.
 *
 * Shared memory:
 *   LIST          [LIST] u64: samples; then entries of the window; finally elements and keys in
 *                 order, [TOPK] u32 each, and at its end MAP, [MAP_BLOCKS * 32] u32: one bit per
 *                 element
 *   HISTOGRAM     [BINS] u32; in pass `merge` first the offset of each part's entries; finally the
 *                 number of set bits before each 64 of the map
 *   EQUAL         [WARPS][32] u32: masks of a warp's lanes
 *   WARPS         [3][32] u32: one value per warp, of three kinds
 *   NUMBERS       [SHARED_NUMBERS] int
 *   KNOWN         struct known: results of earlier rounds of step 2
 *
 * All barriers are __syncthreads; each function states which ones it needs or leaves to its caller.
 *
 * Knobs: threads, blocks, samples, prefetch (src/codegen/families/topk_select_rows.c).
 */

/* Prefetches the start of the window into L2, which keeps the memory busy while samples are ranked.
 */
DEVICE void prefetch_window(const struct window *window) {
    const int begin = (window->first + VECTOR - 1) / VECTOR * VECTOR;
    const int vectors = minimum((window->last - begin) / VECTOR, PREFETCH_BYTES / 16);
    if (thread_number() == 0 && vectors > 0) {
        prefetch_l2(window->data + begin, (u32)vectors * 16);
    }
}

//@if MERGE
/* Concatenates the lists of a row's parts. If they do not suffice, returns false and leaves the
 * known interval in shared memory. */
DEVICE bool collect_parts(const struct topk_select_rows_params *params, const struct window *window,
                          int row, int wanted, struct found *found) {
    const i64 first = (i64)row * params->parts;
    const int part = (int)thread_number();
    u32 *const begins = histogram();
    struct topk_select_rows_header header = params->headers[first];
    found->bound.key = header.key;
    found->bound.counted = header.counted;
    if (thread_number() == 0) {
        shared_numbers()[SAMPLE_TOP] = (int)header.top;
    }
    header.above = header.equal = 0;
    if (part < params->parts) {
        header = params->headers[first + part];
    }
    begins[part] = (u32)block_exclusive_scan(header.above);
    const bool complete = __syncthreads_and(header.above <= PART_LIST) != 0;
    const int equal = block_sum(header.equal);
    __syncthreads();
    found->count = block_sum(header.above);
    if (!is_enough(found->bound, found->count, equal, wanted, complete && found->count <= LIST)) {
        if (thread_number() == 0) {
            learn(window, 0, found->bound, found->count, equal, wanted, 0);
        }
        __syncthreads();
        return false;
    }
    for (int from = warp_number(); from < params->parts; from += WARPS) {
        const u64 *const entries = params->lists + (first + from) * PART_LIST;
        const int end = from + 1 < params->parts ? (int)begins[from + 1] : found->count;
        for (int i = lane_number(); (int)begins[from] + i < end; i += 32) {
            list()[begins[from] + (u32)i] = entries[i];
        }
    }
    __syncthreads();
    return true;
}
//@end

DEVICE struct found find_row(const struct topk_select_rows_params *params,
                             const struct window *window, int row, int wanted) {
    int round = 0;
    //@if MERGE
    struct found found;
    if (window_length(window) > LIST) {
        if (collect_parts(params, window, row, wanted, &found)) {
            return found;
        }
        round = 1;
    }
    //@end
    return find_list(window, wanted, round);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct topk_select_rows_params params) {
    /* Longest windows first: with causal windows these are the last rows. */
    const int row = params.rows - 1 - (int)blockIdx.x;
    struct window window = open_window(&params, row);
    if (CANDIDATE_ENTRIES > 0) {
        place_candidates(&params, &window);
    }
    const int wanted = count_wanted(&window);
    if (PDL && (MERGE || params.pdl)) {
        grid_wait();
    }
    if (PDL && params.launch_dependents) {
        grid_launch_dependents();
    }
    if (EXPAND == 1 && params.lengths && thread_number() == 0) {
        *length_of(&params, row) = wanted + window.pinned;
    }
    if (wanted == 0 || (!ORDER_BY_SCORE && !params.values && CANDIDATE_ENTRIES == 0 &&
                        wanted == window_length(&window))) {
        emit_whole(&params, &window, row, wanted);
        return;
    }
    if (PREFETCH_BYTES > 0) {
        prefetch_window(&window);
    }
    emit_row(&params, &window, row, wanted, find_row(&params, &window, row, wanted));
}
