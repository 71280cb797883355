//@use topk_select_rows.emit_map.cuh
//@use topk_select_rows.target.cuh
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

/* Where the elements in order are: the window's own, those of the map, or the list's. */
enum chosen_place { CHOSEN_WHOLE, CHOSEN_MAPPED, CHOSEN_LISTED };

/* A row's selected elements in order: the first `count`, then the pinned ones. */
struct chosen {
    enum chosen_place place;
    int count;
};

/* Element number i in order. */
DEVICE u32 chosen_element(const struct window *window, const struct chosen *chosen, int i) {
    if (PINNED > 0 && i >= chosen->count) {
        return (u32)(window->last + i - chosen->count);
    }
    if (chosen->place == CHOSEN_WHOLE) {
        return (u32)(window->first + i);
    }
    if (chosen->place == CHOSEN_MAPPED) {
        return chosen_elements()[i];
    }
    return ORDER_BY_SCORE ? packed_element(window, list()[i]) : ~(u32)(list()[i] >> 32);
}

/* Its key. Keys of a whole window are not asked for, except for pinned ones. */
DEVICE u32 chosen_key(const struct window *window, const struct chosen *chosen, int i) {
    if (PINNED > 0 && i >= chosen->count) {
        return ordered_key(load_element(window, window->last + i - chosen->count));
    }
    if (chosen->place == CHOSEN_MAPPED) {
        return chosen_keys()[i];
    }
    return ORDER_BY_SCORE ? packed_key(window, list()[i]) : (u32)list()[i];
}

/* Writes an output row of entries and, if asked for, their scores. */
DEVICE void store_entries(const struct target *target, const struct window *window,
                          const struct chosen *chosen) {
#pragma unroll 2
    for (int i = (int)thread_number(); i < TOPK; i += THREADS) {
        const bool there = i < chosen->count + window->pinned;
        if (EXPAND == 1) {
            const int element = there ? (int)chosen_element(window, chosen, i) : 0;
            target->indices[i] =
                there ? (int)((u32)entry_of(window, element) + target->offset) : -1;
        }
        if (target->values) {
            target->values[i] = there ? key_score(chosen_key(window, chosen, i)) : minus_infinity();
        }
    }
}

/* The rows that a query may have: those below `limit`. */
struct rows {
    int limit;
    int tail, tail_end; /* always in the list: [tail, tail_end) */
};

/* The tail begins at the last complete entry's end, as the limit and as the window have it. */
DEVICE struct rows open_rows(const struct topk_select_rows_params *params, int query) {
    struct rows rows;
    rows.limit =
        params->limit ? clamp(params->limit[query], 0, params->most_rows) : params->all_rows;
    rows.tail = rows.tail_end = 0;
    if (TAIL) {
        const int end = entries_of(window_end_of(params, query)) * EXPAND;
        rows.tail = maximum(rows.limit / EXPAND * EXPAND, end);
        rows.tail_end = maximum(rows.limit, rows.tail);
    }
    return rows;
}

/* Slot i of a list of rows, which ascend: those of the entries, then the tail; -1 past the last. */
DEVICE int row_in_slot(const struct window *window, const struct chosen *chosen,
                       const struct rows *rows, int i) {
    const int slots = (chosen->count + window->pinned) * EXPAND;
    if (i < slots) {
        const int entry = entry_of(window, (int)chosen_element(window, chosen, i / EXPAND));
        const int row = entry * EXPAND + i % EXPAND;
        return row < rows->limit ? row : -1;
    }
    const int row = rows->tail + i - slots;
    return row < rows->tail_end ? row : -1;
}

/* Writes an output row of EXPAND rows for each entry, and its length: the valid slots, which come
 * first. (The limit cuts entries off, or it leaves a tail, never both.) */
DEVICE void store_rows(const struct topk_select_rows_params *params, const struct target *target,
                       const struct window *window, const struct chosen *chosen, int row) {
    const struct rows rows = open_rows(params, query_of(row));
#pragma unroll 1
    for (int i = (int)thread_number(); i < params->width; i += THREADS) {
        const int number = row_in_slot(window, chosen, &rows, i);
        target->indices[i] = number < 0 ? -1 : (int)((u32)number + target->offset);
        if (params->lengths && number < 0 &&
            (i == 0 || row_in_slot(window, chosen, &rows, i - 1) >= 0)) {
            *length_of(params, row) = i;
        }
        if (params->lengths && number >= 0 && i == params->width - 1) {
            *length_of(params, row) = params->width;
        }
    }
}

/* Begins after a barrier. */
DEVICE void store_row(const struct topk_select_rows_params *params, const struct window *window,
                      int row, struct chosen chosen) {
    const struct target target = open_target(params, row);
    if (EXPAND == 1 || target.values) {
        store_entries(&target, window, &chosen);
    }
    if (EXPAND > 1) {
        store_rows(params, &target, window, &chosen, row);
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
    const struct chosen chosen = {mapped ? CHOSEN_MAPPED : CHOSEN_LISTED, wanted};
    store_row(params, window, row, chosen);
}

/* A window that is selected whole, with no need of its scores: writes its entries in order. */
DEVICE void emit_whole(const struct topk_select_rows_params *params, const struct window *window,
                       int row, int wanted) {
    const struct chosen chosen = {CHOSEN_WHOLE, wanted};
    store_row(params, window, row, chosen);
}
