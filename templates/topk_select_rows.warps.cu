//@use common/warp_scan.cuh
//@use ptx/grid.cuh
//@use ptx/redux.cuh
//@use topk_select_rows.target.cuh
/*
 * Exact top-k of many short rows, one warp per row. The window has at most BLOCK elements, and each
 * lane keeps the keys of its 32 in registers, 0 outside the window. Arguments, results and PDL as in
 * topk_select_rows.cu.
 *
 *   1. bound    the largest key that at least `wanted` keys reach, found bit by bit. Ends early if
 *               exactly `wanted` reach what has been found
 *   2. store    a key's slot is the number of selected ones before it. Of those equal to the bound
 *               the first are selected
 *
 * No shared memory, no barriers.
 */

struct row_keys {
    u32 keys[VECTORS][VECTOR]; /* element c of vector i: 128 * i + 4 * lane + c */
    int vectors;               /* that contain elements of the window */
};

/* With `read`, the window's keys. Without, all have the same key: they are all selected. */
DEVICE void load_keys(const struct window *window, bool read, struct row_keys *row) {
    row->vectors = (window->last + STEP - 1) / STEP;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        const int element = i * STEP + lane_number() * VECTOR;
        u32 values[VECTOR] = {0, 0, 0, 0};
        if (read && i < row->vectors) {
            load_vector(window, element, values);
        }
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            const bool inside = element + c >= window->first && element + c < window->last;
            row->keys[i][c] = inside ? ordered_key(values[c]) : 0;
        }
    }
}

/* How many of the warp's keys are `least` or larger. */
DEVICE int count_keys(const struct row_keys *row, u32 least) {
    u32 count = 0;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        if (i < row->vectors) {
#pragma unroll
            for (int c = 0; c < VECTOR; ++c) {
                count += row->keys[i][c] >= least;
            }
        }
    }
    return (int)warp_reduce_add(count);
}

/* wanted: from 1 to the window's length. */
DEVICE u32 find_bound(const struct row_keys *row, int wanted) {
    u32 bound = 0;
#pragma unroll 1
    for (u32 bit = 0x80000000u; bit > 0; bit /= 2) {
        const int count = count_keys(row, bound | bit);
        bound |= count >= wanted ? bit : 0;
        if (count == wanted) {
            break;
        }
    }
    return bound;
}

DEVICE void store_element(const struct target *target, const struct window *window, int slot,
                          int element, u32 key) {
    target->indices[slot] = (int)((u32)entry_of(window, element) + target->offset);
    if (target->values) {
        target->values[slot] = key_score(key);
    }
}

/* Stores the selected elements in order. */
DEVICE void store_selected(const struct target *target, const struct window *window,
                           const struct row_keys *row, u32 bound, int wanted) {
    const int equal = wanted - count_keys(row, bound + 1); /* to be selected of those */
    u32 before = 0; /* elements above the bound, and in the upper half those equal to it */
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        if (i >= row->vectors) {
            break;
        }
        u32 own = 0;
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            own += row->keys[i][c] > bound ? 1 : row->keys[i][c] == bound ? 1u << 16 : 0;
        }
        const u32 upto = before + (u32)warp_inclusive_scan((int)own, lane_number());
        u32 place = upto - own;
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            const u32 key = row->keys[i][c];
            const int equals = (int)(place >> 16);
            if (key > bound || (key == bound && equals < equal)) {
                store_element(target, window, (int)(place & 0xffffu) + minimum(equals, equal),
                              i * STEP + lane_number() * VECTOR + c, key);
            }
            place += key > bound ? 1 : key == bound ? 1u << 16 : 0;
        }
        before = __shfl_sync((u32)ALL_LANES, upto, 31);
    }
}

/* Stores the slots from `slot` on: the pinned elements, then -1. */
DEVICE void store_rest(const struct target *target, const struct window *window, int slot) {
#pragma unroll 1
    for (int i = lane_number(); slot + i < TOPK; i += 32) {
        const int element = window->last + i;
        if (i < window->pinned) {
            const u32 key = target->values ? ordered_key(load_element(window, element)) : 0;
            store_element(target, window, slot + i, element, key);
        } else {
            target->indices[slot + i] = -1;
            if (target->values) {
                target->values[slot + i] = minus_infinity();
            }
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct topk_select_rows_params params) {
    /* Longest windows first: with causal windows these are the last rows. */
    const int row = params.rows - 1 - ((int)blockIdx.x * WARPS + (int)threadIdx.x / 32);
    if (PDL && params.pdl) {
        grid_wait();
    }
    if (PDL && params.launch_dependents) {
        grid_launch_dependents();
    }
    if (row < 0) {
        return;
    }
    const struct window window = open_window(&params, row);
    const int wanted = count_wanted(&window);
    const struct target target = open_target(&params, row);
    if (wanted > 0) {
        const bool whole = wanted == window_length(&window);
        struct row_keys keys;
        load_keys(&window, target.values || !whole, &keys);
        const u32 bound = whole ? 1 : find_bound(&keys, wanted);
        store_selected(&target, &window, &keys, bound, wanted);
    }
    store_rest(&target, &window, wanted);
    if (params.lengths && lane_number() == 0) {
        *length_of(&params, row) = wanted + window.pinned;
    }
}
