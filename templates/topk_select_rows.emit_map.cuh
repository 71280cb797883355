//@use topk_select_rows.emit_select.cuh
/*
 * The bit map of a window's selected elements, from which the output in ascending order follows: an
 * element's output slot is the number of set bits before it. And the elements equal to the bound,
 * which are not in the list.
 */

enum {
    CHOSEN = (TOPK + THREADS - 1) / THREADS, /* output slots per thread */
    PAIR = 64,                               /* elements of two words of the map */
    BLOCK_PAIRS = BLOCK / PAIR
};

DEVICE u32 *map_words(void) {
    return (u32 *)(arena + MAP_OFFSET);
}

DEVICE const u64 *map_pairs(void) {
    return (const u64 *)(arena + MAP_OFFSET);
}

/* For each pair of map words the set bits before it. Reuses the histogram. */
DEVICE unsigned short *pair_offsets(void) {
    return (unsigned short *)(arena + HISTOGRAM_OFFSET);
}

/* The output row, over the list: elements in order, followed by their keys. */
DEVICE u32 *chosen_elements(void) {
    return (u32 *)(arena + LIST_OFFSET);
}

DEVICE u32 *chosen_keys(void) {
    return chosen_elements() + TOPK;
}

DEVICE u32 *equal_words(void) {
    return (u32 *)(arena + EQUAL_OFFSET) + warp_number() * 32;
}

/* ---- elements equal to the bound ------------------------------------------------------------- */

/* Transposes a block's masks from vectors to words: lane n receives elements 32 * n to 32 * n + 31.
 * In both layouts the first element is bit 0. */
DEVICE u32 transpose_masks(u32 mask) {
    u32 *const words = equal_words();
    const int shift = 4 * (lane_number() / 4);
    u32 word = 0;
    words[lane_number()] = mask;
    __syncwarp((u32)ALL_LANES);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        word |= (words[lane_number() % 4 * 8 + i] >> shift & 15u) << (4 * i);
    }
    __syncwarp((u32)ALL_LANES);
    return word;
}

/* A lane's elements of a block that are equal to the bound: element c of vector i is bit 4 * i + c.
 * Four vectors at a time: registers are short. */
DEVICE u32 equal_elements(const struct window *window, int block, u32 key) {
    const int element = block * BLOCK + lane_number() * VECTOR;
    u32 mask = 0;
    if (block >= window->blocks) {
        return 0;
    }
#pragma unroll 4
    for (int i = 0; i < VECTORS; ++i) {
        u32 values[VECTOR];
        load_vector(window, element + i * STEP, values);
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            const int at = element + i * STEP + c;
            const bool inside = at >= window->first && at < window->last;
            bool equal = inside && ordered_key(values[c]) == key;
            if (CANDIDATE_ENTRIES > 0 && equal && key == KEY_MINUS_INFINITY) {
                equal = is_entry(window, at);
            }
            mask |= (u32)equal << (i * VECTOR + c);
        }
    }
    return mask;
}

/* Selects the first `wanted` elements equal to the bound: sets their bits in the map (each lane
 * owns whole words), or appends packed entries after the list's first `count`. Ends with a barrier.
 */
DEVICE void select_equal(const struct window *window, u32 key, int wanted, bool mapped, int count) {
    u32 *const sums = warp_numbers(WARP_SUM);
    int taken = 0;
#pragma unroll 1
    for (int first = 0; first < window->blocks && taken < wanted; first += WARPS) {
        const int block = first + warp_number(), number = block * 32 + lane_number();
        u32 word = transpose_masks(equal_elements(window, block, key)), chosen = 0;
        const int own = __popc(word), inclusive = warp_inclusive_scan(own, lane_number());
        if (lane_number() == 31) {
            sums[warp_number()] = (u32)inclusive;
        }
        __syncthreads();
        const u32 sum = lane_number() < WARPS ? sums[lane_number()] : 0;
        int rank =
            taken + inclusive - own + (int)warp_reduce_add(lane_number() < warp_number() ? sum : 0);
        if (mapped && rank + own <= wanted) { /* every element of the word */
            chosen = word;
            word = 0;
        }
        while (word && rank < wanted) {
            const u32 bit = (u32)__ffs((int)word) - 1u;
            if (mapped) {
                chosen |= 1u << bit;
            } else {
                list()[count + rank] = pack_entry(window, key, (u32)number * 32 + bit);
            }
            word &= word - 1;
            ++rank;
        }
        if (mapped && chosen) {
            map_words()[number] |= chosen;
        }
        taken += (int)warp_reduce_add(sum);
        __syncthreads();
    }
}

/* ---- ascending by index ---------------------------------------------------------------------- */

/* Sets the bits of the list's first `count` entries. The map overlaps the end of the list. Ends
 * with a barrier. */
DEVICE void make_map(const struct window *window, int count) {
    const u32 words = shared_address(MAP_OFFSET);
    for (int i = (int)thread_number(); i < window->blocks * (BLOCK / 32); i += THREADS) {
        map_words()[i] = 0;
    }
    __syncthreads();
#pragma unroll 4
    for (int i = (int)thread_number(); i < count; i += THREADS) {
        const u32 element = packed_element(window, list()[i]);
        atomic_or_shared(words + element / 32 * 4, 1u << element % 32);
    }
    __syncthreads();
}

/* Exclusive scan of the map's bits into pair_offsets. If the map also has elements equal to the
 * bound, writes all its elements to the output in order, with the bound's `key` where keys are
 * wanted; place_entries then overwrites the list's own. Ends with a barrier. */
DEVICE void count_map(const struct window *window, bool entries, u32 key, bool keys) {
    const int pairs = window->blocks * BLOCK_PAIRS, each = (pairs + THREADS - 1) / THREADS;
    const int begin = minimum((int)thread_number() * each, pairs);
    const int end = minimum(begin + each, pairs);
    int count = 0;
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
        count += __popcll(map_pairs()[i]);
    }
    int place = block_exclusive_scan(count);
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
        pair_offsets()[i] = (unsigned short)place;
        place += __popcll(map_pairs()[i]);
    }
    __syncthreads();
    /* One word per thread. Lane l starts at bit l: in full words all lanes would otherwise write to
     * one bank. */
    const u32 lane = (u32)lane_number();
#pragma unroll 1
    for (int i = (int)thread_number(); !entries && i < 2 * pairs; i += THREADS) {
        const u32 word = map_words()[i];
        const int first = pair_offsets()[i / 2] + (i % 2 ? __popc(map_words()[i - 1]) : 0);
        u32 left = word >> lane | word << 1 << (31 - lane);
#pragma unroll 1
        while (left) {
            const u32 bit = (u32)(__ffs((int)left) - 1 + (int)lane) % 32;
            const int at = first + __popc(word & ((1u << bit) - 1u));
            chosen_elements()[at] = (u32)i * 32 + bit;
            if (keys) {
                chosen_keys()[at] = key;
            }
            left &= left - 1;
        }
    }
    __syncthreads();
}

/* Loads this thread's entries of the list's first `count`; 0 past the last. */
DEVICE void load_chosen(int count, u64 own[CHOSEN]) {
#pragma unroll
    for (int j = 0; j < CHOSEN; ++j) {
        const int i = (int)thread_number() + j * THREADS;
        own[j] = i < count ? list()[i] : 0;
    }
}

/* Writes the entries to their output slots. Ends with a barrier. */
DEVICE void place_entries(const struct window *window, const u64 own[CHOSEN], bool keys) {
#pragma unroll
    for (int j = 0; j < CHOSEN; ++j) {
        if (own[j] != 0) {
            const u32 element = packed_element(window, own[j]), pair = element / PAIR;
            const u64 before = ((u64)1 << element % PAIR) - 1;
            const int place = pair_offsets()[pair] + __popcll(map_pairs()[pair] & before);
            chosen_elements()[place] = element;
            if (keys) {
                chosen_keys()[place] = packed_key(window, own[j]);
            }
        }
    }
    __syncthreads();
}
