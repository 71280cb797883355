//@use topk_select_rows.emit_map.cuh
/*
 * Writes a row's output: ascending by index, from the bit map; by score, or if a window is longer
 * than the map, from a bitonic sort of the selected entries that accepts any count (K. E. Batcher,
 * Sorting networks and their applications, 1968).
 */

/* ---- sorted ---------------------------------------------------------------------------------- */

/* The entry re-packed for a sort by element, with the key below. */
DEVICE u64 entry_by_element(const struct window *window, u64 entry) {
    return (u64)~packed_element(window, entry) << 32 | packed_key(window, entry);
}

/* Re-packs the list's first `count` entries. Ends with a barrier. */
DEVICE void order_by_element(const struct window *window, int count) {
#pragma unroll 1
    for (int i = (int)thread_number(); i < count; i += THREADS) {
        list()[i] = entry_by_element(window, list()[i]);
    }
    __syncthreads();
}

/* One step of the bitonic network: compares entries `stride` apart within runs of 2 * stride, or
 * mirrored within them. */
DEVICE void sort_step(int count, int stride, bool mirrored) {
    for (int i = (int)thread_number();; i += THREADS) {
        const int within = i & (stride - 1), low = 2 * i - within;
        const int high = mirrored ? low + 2 * (stride - within) - 1 : low + stride;
        if (low >= count) {
            break;
        }
        if (high < count && list()[low] < list()[high]) {
            const u64 larger = list()[high];
            list()[high] = list()[low];
            list()[low] = larger;
        }
    }
    __syncthreads();
}

/* Sorts the list in descending order. Begins and ends after a barrier. */
DEVICE void sort_list(int count) {
    for (int run = 1; run < count; run *= 2) {
        sort_step(count, run, true);
        for (int stride = run / 2; stride > 0; stride /= 2) {
            sort_step(count, stride, false);
        }
    }
}

/* ---- output ---------------------------------------------------------------------------------- */

/* An output row. */
struct target {
    int *indices;
    float *values; /* or null */
    u32 offset;    /* added to each element's number */
};

DEVICE struct target open_target(const struct topk_select_rows_params *params,
                                 const struct window *window, int row) {
    struct target target = {params->indices + row * params->indices_stride, params->values, 0};
    if (target.values) {
        target.values += row * params->values_stride;
    }
    target.offset = (u32)window->column + (u32)params->index_offset +
                    (params->offset ? (u32)params->offset[row] : 0);
    return target;
}

/* Writes slot i of a row: an element and its key, or -1 and -inf. */
DEVICE void store_slot(const struct target *target, int i, bool there, u32 element, u32 key) {
    target->indices[i] = there ? (int)(element + target->offset) : -1;
    if (target->values) {
        target->values[i] = there ? key_score(key) : minus_infinity();
    }
}

/* Writes the output row, or the sorted entries, that the list now starts with. */
DEVICE void store_row(const struct topk_select_rows_params *params, const struct window *window,
                      int row, int wanted, bool mapped) {
    const struct target target = open_target(params, window, row);
#pragma unroll 2
    for (int i = (int)thread_number(); i < TOPK; i += THREADS) {
        const bool there = i < wanted;
        if (mapped) {
            store_slot(&target, i, there, there ? chosen_elements()[i] : 0,
                       there && target.values ? chosen_keys()[i] : 0);
        } else {
            const u64 entry = there ? list()[i] : 0;
            const u32 element =
                ORDER_BY_SCORE ? packed_element(window, entry) : ~(u32)(entry >> 32);
            const u32 key = ORDER_BY_SCORE ? packed_key(window, entry) : (u32)entry;
            store_slot(&target, i, there, element, key);
        }
    }
}

/* Selects and writes a row from its list of scores. Begins after a barrier. */
DEVICE void emit_row(const struct topk_select_rows_params *params, const struct window *window,
                     int row, int wanted, struct found found) {
    const bool mapped = !ORDER_BY_SCORE && window->blocks <= MAP_BLOCKS;
    const struct bins bins = choose_bins(found);
    pack_list(window, found.count, &bins);
    const u64 least = find_least(window, found.count, wanted, &bins);
    const int entries = minimum(found.count, wanted);
    if (found.count > wanted) {
        gather_entries(found.count, least);
    }
    if (mapped) {
        make_map(window, entries);
    }
    if (entries < wanted) {
        select_equal(window, found.bound.key, wanted - entries, mapped, entries);
    }
    if (mapped) {
        u64 own[CHOSEN];
        load_chosen(entries, own);
        count_map(window, entries == wanted, found.bound.key, params->values != 0);
        place_entries(window, own, params->values != 0);
    } else {
        __syncthreads(); /* the list is compacted */
        if (!ORDER_BY_SCORE) {
            order_by_element(window, wanted);
        }
        sort_list(wanted);
    }
    store_row(params, window, row, wanted, mapped);
}

/* A window of at most TOPK elements: writes all of them in order. */
DEVICE void emit_whole(const struct topk_select_rows_params *params, const struct window *window,
                       int row) {
    const struct target target = open_target(params, window, row);
#pragma unroll 2
    for (int i = (int)thread_number(); i < TOPK; i += THREADS) {
        store_slot(&target, i, i < window_length(window), (u32)(window->first + i), 0);
    }
}
