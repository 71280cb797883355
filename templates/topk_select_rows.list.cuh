//@use ptx/append.cuh
//@use topk_select_rows.guess.cuh
/*
 * From a window to a list that contains its top-k. The window is read once, and the elements above
 * the estimated bound are appended to the list. Exact counts show whether the list suffices; if
 * not, the bound is corrected and the window read again. The result is exact for any estimate.
 *
 * An entry is a score's bits (later its key) above ~element, so that among equal keys the first
 * element is the largest entry.
 */

/* Appends a lane's elements of the mask to the list, in any order. The count exceeds LIST if they
 * do not fit. */
DEVICE void keep_elements(u32 values[VECTORS][VECTOR], u32 mask, int block) {
    const int count = __popc(mask);
    const int inclusive = warp_inclusive_scan(count, lane_number());
    const u32 element = (u32)(block * BLOCK + (JOINT ? lane_entry() : lane_number() * VECTOR));
    const int total = __shfl_sync((u32)ALL_LANES, inclusive, 31);
    u32 at = 0;
    if (total == 0) {
        return;
    }
    if (lane_number() == 31) {
        at = atomic_add_shared(shared_number_address(LIST_COUNT), (u32)total);
    }
    at = __shfl_sync((u32)ALL_LANES, at, 31);
    if (at + (u32)total > LIST) {
        return;
    }
    u32 address = shared_address(LIST_OFFSET) + (at + (u32)(inclusive - count)) * 8;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            address = append_shared_8(
                address, mask & 0x80000000u >> (i * VECTOR + c),
                ~(element + (u32)(JOINT ? (i * VECTOR + c) * 32 : i * STEP + c)), values[i][c]);
        }
    }
}

/* No element is below the key of -inf. With that bound, which is always a counted one, all elements
 * outside the list are equal to it (NaN included) and suffice. */
DEVICE bool has_all(struct bound bound) {
    return bound.key == KEY_MINUS_INFINITY;
}

/* Reads blocks [begin, end) of the window, one per warp. The list's count must have been cleared
 * before a barrier. Returns how many elements equal to the bound this thread counted. */
DEVICE int read_blocks(const struct window *window, int begin, int end, struct bound bound) {
    const float below = score_below(bound.key);
    const float threshold = bound.counted ? key_score(bound.key) : below;
    int equal = 0;
#pragma unroll 1
    for (int block = begin + warp_number(); block < end; block += WARPS) {
        u32 values[VECTORS][VECTOR];
        load_block(window, block, values);
        const u32 above = mask_greater(values, threshold);
        if (bound.counted && !has_all(bound)) {
            equal += __popc(mask_greater(values, below)) - __popc(above);
        }
        keep_elements(values, above, block);
    }
    return equal;
}

/* Whether `above` entries in the list and `equal` elements at the bound suffice. `complete`: the
 * list had room for all its entries. */
DEVICE bool is_enough(struct bound bound, int above, int equal, int wanted, bool complete) {
    return above >= wanted ? complete
                           : bound.counted && (has_all(bound) || above + equal >= wanted);
}

/* By one thread: narrows the known interval after a list that did not suffice. `kept`: entries that
 * an overflowed list holds at least. */
DEVICE void learn(const struct window *window, int round, struct bound bound, int above, int equal,
                  int wanted, int kept) {
    struct known known = load_known(window, round);
    if (above >= wanted) {
        known.low = bound.key + (u32)bound.counted;
        known.low += known.low == KEY_MINUS_ZERO;
        known.at_least = above;
        known.kept = kept;
    } else {
        known.high = bound.key - 1 - (bound.key - 1 == KEY_MINUS_ZERO);
        known.above = above + equal;
        known.kept = 0;
    }
    *shared_known() = known;
}

struct found {
    struct bound bound;
    int count;
};

/* Builds the list: the window's top `wanted` elements, except those equal to the bound. For round
 * >= 1 the known interval must be in shared memory. Begins and ends after a barrier. */
DEVICE struct found find_list(const struct window *window, int wanted, int round) {
    struct found found;
    for (;; ++round) {
        if (thread_number() == 0) {
            shared_numbers()[LIST_COUNT] = 0;
        }
        found.bound = choose_bound(window, wanted, round);
        __syncthreads(); /* the sample has been read, the count cleared */
        const int equal = block_sum(read_blocks(window, 0, window->blocks, found.bound));
        found.count = shared_numbers()[LIST_COUNT];
        if (is_enough(found.bound, found.count, equal, wanted, found.count <= LIST)) {
            return found;
        }
        __syncthreads(); /* the count has been read */
        if (thread_number() == 0) {
            learn(window, round, found.bound, found.count, equal, wanted, LIST - BLOCK);
        }
        __syncthreads();
    }
}
