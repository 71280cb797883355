//@use ptx/append.cuh
//@use topk_select_rows.guess.cuh
/*
 * From a window to a list of entries that holds its best: the window is read once, and what is
 * above the guessed bound kept. Exact counts tell whether that is enough; else once more with what
 * they told, so that the result is exact whatever the guesses.
 *
 * An entry of the list is a score's bits, later its key, above ~element: of equal keys the first
 * element is the largest entry.
 */

/* Keeps a lane's elements of the mask, in any order. A list that is too short is noticed by its
 * count. */
DEVICE void keep_elements(u32 values[VECTORS][VECTOR], u32 mask, int block) {
    const int count = __popc(mask);
    const int inclusive = sum_lanes_before(count);
    const u32 element = (u32)(block * BLOCK + lane_number() * VECTOR);
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
            address = append_shared_8(address, mask & 0x80000000u >> (i * VECTOR + c),
                                      ~(element + (u32)(i * STEP + c)), values[i][c]);
        }
    }
}

/* Below -inf's key is nothing: with that as the bound, which is a counted one then, all that the
 * list lacks is equal to it, NaN too, and however many there are they are enough. */
DEVICE bool has_all(struct bound bound) {
    return bound.key == KEY_MINUS_INFINITY;
}

/* Reads blocks `begin` to `end` of the window, a warp a block; the list's count was cleared before
 * a barrier. How many equal elements this thread counted. */
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

/* Whether a list of `above` entries, with `equal` elements at the bound that it lacks, is enough.
 * `complete`: it had room for all of them. */
DEVICE bool is_enough(struct bound bound, int above, int equal, int wanted, bool complete) {
    return above >= wanted ? complete
                           : bound.counted && (has_all(bound) || above + equal >= wanted);
}

/* One thread: what follows where it is not. `kept`: entries that a list without room for all holds
 * at least. */
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

/* What the list holds. */
struct found {
    struct bound bound;
    int count;
};

/* The list of a window whose `wanted` best it has, but for those equal to the bound. From `round` 1
 * on shared memory says where to look. Begins and ends behind a barrier. */
DEVICE struct found find_list(const struct window *window, int wanted, int round) {
    struct found found;
    for (;; ++round) {
        if (thread_number() == 0) {
            shared_numbers()[LIST_COUNT] = 0;
        }
        found.bound = choose_bound(window, wanted, round);
        __syncthreads(); /* the sample was read, the count is 0 */
        const int equal = sum_threads(read_blocks(window, 0, window->blocks, found.bound));
        found.count = shared_numbers()[LIST_COUNT];
        if (is_enough(found.bound, found.count, equal, wanted, found.count <= LIST)) {
            return found;
        }
        __syncthreads(); /* the count was read */
        if (thread_number() == 0) {
            learn(window, round, found.bound, found.count, equal, wanted, LIST - BLOCK);
        }
        __syncthreads();
    }
}
