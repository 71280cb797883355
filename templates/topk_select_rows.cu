//@use ptx/grid.cuh
//@use ptx/prefetch.cuh
//@use topk_select_rows.emit.cuh
/*
 * Exact top-k of the rows of a matrix within windows, a thread block a row. Meaning:
 * include/smelt/topk_select.h.
 *
 * logits [rows, columns] fp32 -> indices [rows, TOPK] int32, ascending or, with ORDER_BY_SCORE, by
 * descending score; values and lengths where asked for. WARPS warps of one role.
 *
 *   1. bound    of a sample of the window, an element so far below the wanted rank that hardly ever
 *               too few are above it
 *   2. list     the window is read once; scores above the bound are kept, about one and a half
 *               times TOPK. If fewer than TOPK or more than LIST are, again with what the counts
 *               told
 *   3. rank     histograms of the list, each of the bin that the one before found, down to one
 *               entry
 *   4. emit     a map of bits and their sums, or a sort
 *
 * What many elements are equal to is not kept but counted, and the first of them are looked for at
 * the end. The result is exact whatever the sample, and nothing in it depends on the order of
 * atomics.
 *
 * With PARTS (pass `merge`) step 2 was done by the blocks of pass `parts`, a part of the row each;
 * this kernel collects their lists, and if they are not enough goes on alone.
 *
 * Shared memory:
 *   LIST          [LIST] u64: samples; then entries of the window; at last elements and keys in
 *                 order, [TOPK] u32 each, and at its end MAP, [MAP_BLOCKS * 32] u32: a bit an
 *                 element
 *   HISTOGRAM     [BINS] u32; of pass `merge` first where each part's entries begin; at last the
 *                 elements of the map before each 64
 *   EQUAL         [WARPS][32] u32: masks of a warp's lanes
 *   WARPS         [3][32] u32: a number of each warp
 *   NUMBERS       [SHARED_NUMBERS] int
 *   KNOWN         struct known: what earlier rounds of step 2 found out
 *
 * Barriers: all are the whole block's; each function says what it leaves open.
 *
 * Knobs: threads, blocks, samples, prefetch (src/codegen/families/topk_select_rows.c).
 */

/* Asks for the window's beginning, so that the memory is busy while samples are ranked. */
DEVICE void prefetch_window(const struct window *window) {
    const int begin = (window->first + VECTOR - 1) / VECTOR * VECTOR;
    const int vectors = minimum((window->last - begin) / VECTOR, PREFETCH_BYTES / 16);
    if (thread_number() == 0 && vectors > 0) {
        prefetch_l2(window->data + begin, (u32)vectors * 16);
    }
}

//@if MERGE
/* Collects the lists of a row's parts into one; true if it is enough, else shared memory says what
 * the parts found out. */
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
    begins[part] = (u32)sum_threads_before(header.above);
    const bool complete = __syncthreads_and(header.above <= PART_LIST) != 0;
    const int equal = sum_threads(header.equal);
    __syncthreads();
    found->count = sum_threads(header.above);
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
    /* The longest windows, of causal rows the last ones, first. */
    const int row = params.rows - 1 - (int)blockIdx.x;
    const struct window window = open_window(&params, row);
    const int wanted = minimum(window_length(&window), TOPK);
    if (DEPENDENT_LAUNCH && (MERGE || params.early)) {
        grid_wait();
    }
    if (DEPENDENT_LAUNCH && params.chained) {
        grid_launch_dependents();
    }
    if (params.lengths && thread_number() == 0) {
        params.lengths[row] = wanted;
    }
    if (wanted == 0 || (!ORDER_BY_SCORE && !params.values && wanted == window_length(&window))) {
        emit_whole(&params, &window, row);
        return;
    }
    if (PREFETCH_BYTES > 0) {
        prefetch_window(&window);
    }
    emit_row(&params, &window, row, wanted, find_row(&params, &window, row, wanted));
}
