//@use topk_select_rows.rank.cuh
/*
 * Rows of candidates: which of their elements are entries of the window. The others have the score
 * -inf, too, and are selected in no case: as many elements are wanted as there are entries, and
 * select_equal asks is_entry where the bound is -inf.
 */

/* Counts a row's entries, and ends its elements after the last candidate that has one. Ends with a
 * barrier. */
DEVICE void place_candidates(const struct topk_select_rows_params *params, struct window *window) {
    int valid = 0, last = 0;
    for (int i = (int)thread_number(); i < params->candidate_count; i += THREADS) {
        const int block = window->candidates[i];
        if (block >= 0 && block <= (window->high - 1) / EACH) {
            const int low = maximum(block * EACH, window->low);
            const int entries = minimum(block * EACH + EACH, window->high) - low;
            valid += maximum(entries, 0);
            last = entries > 0 ? i + 1 : last;
        }
    }
    window->valid = block_sum(valid);
    last = (int)(u32)(range_of(0, (u32)last).high >> 32);
    place_window(window, window->data, window->valid > 0 ? last * EACH : 0);
    window->column = -window->first;
    __syncthreads();
}
