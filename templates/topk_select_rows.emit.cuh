//@use topk_select_rows.bound.cuh
/*
 * From a list that holds a window's best to what is written.
 *
 * Ascending by index without values: each chosen element is a bit of a map, and its place is the
 * number of bits before it. Else the chosen entries are sorted: Batcher's bitonic network (K. E.
 * Batcher, Sorting networks and their applications, 1968), which takes any number of entries.
 */

enum { WORDS = BLOCK / 32 /* of the map, a block */ };

DEVICE u32 *map_words(void) {
    return (u32 *)(arena + MAP_OFFSET);
}

DEVICE u32 *equal_words(void) {
    return (u32 *)(arena + EQUAL_OFFSET) + warp_number() * 32;
}

/* ---- the least entry that is wanted ------------------------------------------------------------
 */

/* Entries are packed: a key above so many bits as elements need, in which earlier ones are larger.
 */
DEVICE int element_bits(const struct window *window) {
    return 32 - __clz((u32)window->last);
}

DEVICE u32 element_mask(const struct window *window) {
    return ~0u >> __clz((u32)window->last);
}

DEVICE u64 pack_entry(const struct window *window, u32 key, u32 element) {
    return (u64)key << element_bits(window) | (element_mask(window) - element);
}

DEVICE u32 packed_key(const struct window *window, u64 entry) {
    return (u32)(entry >> element_bits(window));
}

DEVICE u32 packed_element(const struct window *window, u64 entry) {
    return element_mask(window) - ((u32)entry & element_mask(window));
}

/* Keys in bins of 2^shift from `low` on; the last bin has all that is above. */
struct bins {
    u32 low, high; /* keys are in this range */
    int shift;
};

/* Bins for the list's keys: above the bound as far as the sample went, or as far as there are any.
 */
DEVICE struct bins choose_bins(struct found found) {
    struct bins bins = {found.bound.key, KEY_PLUS_INFINITY, 0};
    u32 top = found.bound.top;
    if (top == KEY_MINUS_INFINITY) {
        u32 least = ~0u, most = 0;
        for (int i = (int)threadIdx.x; i < found.count; i += THREADS) {
            const u32 key = ordered_key((u32)(list()[i] >> 32));
            least = key < least ? key : least;
            most = key > most ? key : most;
        }
        const struct range range = range_of(least, most);
        bins.low = (u32)(range.low >> 32);
        top = (u32)(range.high >> 32);
    }
    bins.shift = maximum(bit_count(top - bins.low) - LOG_BINS, 0);
    return bins;
}

/* Packs the list, and counts its entries by bins. Ends with a barrier. */
DEVICE void pack_list(const struct window *window, int count, const struct bins *bins) {
    const u32 counts = shared_address(HISTOGRAM_OFFSET);
    for (int i = (int)threadIdx.x; i < BINS; i += THREADS) {
        histogram()[i] = 0;
    }
    if (threadIdx.x == 0) {
        shared_numbers()[LIST_COUNT] = 0;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < count; i += THREADS) {
        const u64 entry = list()[i];
        const u32 key = ordered_key((u32)(entry >> 32));
        const u32 bin = (key - bins->low) >> bins->shift;
        list()[i] = pack_entry(window, key, ~(u32)entry);
        atomic_add_shared(counts + (BINS - 1 - (bin < BINS ? bin : BINS - 1)) * 4, 1);
    }
    __syncthreads();
}

/* The entry of a rank among the `in_range` of a range, THREADS at most: each is compared with all
 * others. */
DEVICE u64 rank_few(int count, struct range range, int in_range, int rank) {
    enum { RESULT = BINS / 2 - 1 };
    u64 *const few = (u64 *)histogram(); /* which is not needed any more */
    for (int i = (int)threadIdx.x; i < count; i += THREADS) {
        const u64 entry = list()[i];
        if (entry >= range.low && entry <= range.high) {
            few[atomic_add_shared(shared_number_address(LIST_COUNT), 1)] = entry;
        }
    }
    __syncthreads();
    if ((int)threadIdx.x < in_range) {
        const u64 own = few[threadIdx.x];
        int larger = 0;
        for (int i = 0; i < in_range; ++i) {
            larger += few[i] > own;
        }
        if (larger == rank - 1) {
            few[RESULT] = own;
        }
    }
    __syncthreads();
    return few[RESULT];
}

/* Packs the list; the least entry of those wanted. Begins behind a barrier. */
DEVICE u64 find_least(const struct window *window, struct found found, int wanted) {
    const struct bins bins = choose_bins(found);
    const int bits = element_bits(window);
    pack_list(window, found.count, &bins);
    if (found.count <= wanted) {
        return 0;
    }
    find_bin(wanted);
    const int in_bin = shared_numbers()[FOUND_COUNT], rank = shared_numbers()[FOUND_RANK];
    const u32 bin = (u32)shared_numbers()[FOUND_BIN];
    const u32 low = bins.low + (bin << bins.shift);
    const u32 high = bin == BINS - 1 ? bins.high : low + ((1u << bins.shift) - 1u);
    const struct range range = {(u64)low << bits, (u64)high << bits | element_mask(window)};
    if (in_bin == rank) {
        return range.low;
    }
    return in_bin <= minimum(THREADS, BINS / 2 - 1)
               ? rank_few(found.count, range, in_bin, rank)
               : find_threshold(found.count, rank, range, 0, 0).entry;
}

/* ---- elements equal to the bound ------------------------------------------------------------- */

/* Lane n's 32 elements from 32 * n on, the first in bit 31, out of all lanes' masks. */
DEVICE u32 turn_masks(u32 mask) {
    u32 *const words = equal_words();
    const int shift = 28 - 4 * (lane_number() / 4);
    u32 word = 0;
    words[lane_number()] = mask;
    __syncwarp((u32)ALL_LANES);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        word = word << 4 | (words[lane_number() % 4 * 8 + i] >> shift & 15u);
    }
    __syncwarp((u32)ALL_LANES);
    return word;
}

/* A lane's elements of a block that are equal to the bound. */
DEVICE u32 equal_elements(const struct window *window, int block, u32 key) {
    u32 values[VECTORS][VECTOR];
    u32 mask = 0;
    if (block >= window->blocks) {
        return 0;
    }
    load_block(window, block, values);
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            mask = mask << 1 | (ordered_key(values[i][c]) == key);
        }
    }
    return mask & mask_inside(window, block);
}

/* An entry as it is to be sorted. */
DEVICE u64 sorted_entry(const struct window *window, u32 key, u32 element) {
    return ORDER_BY_SCORE ? pack_entry(window, key, element) : (u64)~element << 32 | key;
}

/* Takes the first `wanted` elements equal to the bound into the map, or into the list behind its
 * `count` entries. */
DEVICE void take_equal(const struct window *window, u32 key, int wanted, bool mapped, int count) {
    u32 *const sums = warp_numbers(WARP_SUM);
    int taken = 0;
#pragma unroll 1
    for (int first = 0; first < window->blocks && taken < wanted; first += WARPS) {
        const int block = first + warp_number();
        u32 word = turn_masks(equal_elements(window, block, key));
        const int own = __popc(word), inclusive = sum_lanes_before(own);
        if (lane_number() == 31) {
            sums[warp_number()] = (u32)inclusive;
        }
        __syncthreads();
        const u32 sum = lane_number() < WARPS ? sums[lane_number()] : 0;
        int rank = taken + inclusive - own +
                   (int)warp_reduce_add(lane_number() < warp_number() ? sum : 0);
        while (word && rank < wanted) {
            const u32 bit = (u32)__clz(word), element = (u32)(block * BLOCK + lane_number() * 32) + bit;
            word &= ~(0x80000000u >> bit);
            if (mapped) {
                map_words()[element / 32] |= 0x80000000u >> bit;
            } else {
                list()[count + rank] = sorted_entry(window, key, element);
            }
            ++rank;
        }
        taken += (int)warp_reduce_add(sum);
        __syncthreads();
    }
}

/* ---- ascending by index ---------------------------------------------------------------------- */

/* The map of the entries from `least` on. Ends with a barrier. */
DEVICE void make_map(const struct window *window, int count, u64 least) {
    const u32 words = shared_address(MAP_OFFSET);
    for (int i = (int)threadIdx.x; i < window->blocks * WORDS; i += THREADS) {
        map_words()[i] = 0;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < count; i += THREADS) {
        const u64 entry = list()[i];
        if (entry >= least) {
            const u32 element = packed_element(window, entry);
            atomic_or_shared(words + element / 32 * 4, 0x80000000u >> element % 32);
        }
    }
    __syncthreads();
}

/* Writes the elements of the map in order over the list: each thread those of neighbouring words.
 * Ends with a barrier. */
DEVICE void list_map(const struct window *window) {
    const int words = window->blocks * WORDS, own = (words + THREADS - 1) / THREADS;
    const int begin = minimum((int)threadIdx.x * own, words), end = minimum(begin + own, words);
    u32 *const elements = (u32 *)list();
    int count = 0;
    for (int i = begin; i < end; ++i) {
        count += __popc(map_words()[i]);
    }
    int place = sum_threads_before(count);
    for (int i = begin; i < end; ++i) {
        u32 word = map_words()[i];
        while (word) {
            const u32 bit = (u32)__clz(word);
            word &= ~(0x80000000u >> bit);
            elements[place++] = (u32)i * 32 + bit;
        }
    }
    __syncthreads();
}

/* ---- sorted ---------------------------------------------------------------------------------- */

/* Moves the entries from `least` on to the list's beginning, as they are to be sorted; how many.
 * Those of THREADS places are read before any of them is written, none of which lies further on.
 * Ends with a barrier. */
DEVICE int gather_entries(const struct window *window, int count, u64 least) {
    if (threadIdx.x == 0) {
        shared_numbers()[LIST_COUNT] = 0;
    }
    __syncthreads();
#pragma unroll 1
    for (int begin = 0; begin < count; begin += THREADS) {
        const int i = begin + (int)threadIdx.x;
        const u64 entry = i < count ? list()[i] : 0;
        const bool chosen = i < count && entry >= least;
        const u32 lanes = __ballot_sync((u32)ALL_LANES, chosen);
        u32 place = 0;
        if (lane_number() == 0) {
            place = atomic_add_shared(shared_number_address(LIST_COUNT), (u32)__popc(lanes));
        }
        place = __shfl_sync((u32)ALL_LANES, place, 0) +
                (u32)__popc(lanes & ((1u << lane_number()) - 1u));
        __syncthreads();
        if (chosen) {
            list()[place] = sorted_entry(window, packed_key(window, entry),
                                         packed_element(window, entry));
        }
    }
    __syncthreads();
    return shared_numbers()[LIST_COUNT];
}

/* One step of the network: entries `stride` apart in runs of 2 * stride, or mirrored in them. */
DEVICE void sort_step(int count, int stride, bool mirrored) {
    for (int i = (int)threadIdx.x;; i += THREADS) {
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

/* Descending. Begins behind a barrier and ends with one. */
DEVICE void sort_list(int count) {
    for (int run = 1; run < count; run *= 2) {
        sort_step(count, run, true);
        for (int stride = run / 2; stride > 0; stride /= 2) {
            sort_step(count, stride, false);
        }
    }
}

/* ---- what is written ------------------------------------------------------------------------- */

/* Place i of a row: an element, or none; and its score. */
DEVICE void store_place(const struct topk_select_rows_params *params, const struct window *window,
                        int row, int i, bool there, u32 element, u32 key, u32 offset) {
    params->indices[row * params->indices_stride + i] =
        there ? (int)(element + (u32)window->column + offset) : -1;
    if (params->values) {
        params->values[row * params->values_stride + i] = there ? key_score(key) : minus_infinity();
    }
}

/* The elements, or else the entries, that the list now begins with. A map is made of windows that
 * fill all places. */
DEVICE void store_row(const struct topk_select_rows_params *params, const struct window *window,
                      int row, int wanted, bool mapped) {
    const u32 offset =
        (u32)params->index_offset + (params->offset ? (u32)params->offset[row] : 0);
    const u32 *const elements = (const u32 *)list();
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < TOPK; i += THREADS) {
        if (mapped) {
            store_place(params, window, row, i, true, elements[i], 0, offset);
        } else {
            const u64 entry = i < wanted ? list()[i] : 0;
            const u32 element =
                ORDER_BY_SCORE ? packed_element(window, entry) : ~(u32)(entry >> 32);
            const u32 key = ORDER_BY_SCORE ? packed_key(window, entry) : (u32)entry;
            store_place(params, window, row, i, i < wanted, element, key, offset);
        }
    }
}

/* Writes a row out of its list of scores. */
DEVICE void emit_row(const struct topk_select_rows_params *params, const struct window *window,
                     int row, int wanted, struct found found) {
    const bool mapped = !ORDER_BY_SCORE && !params->values && window->blocks <= MAP_BLOCKS;
    const u64 least = find_least(window, found, wanted);
    const int missing = maximum(wanted - found.count, 0);
    if (mapped) {
        make_map(window, found.count, least);
        if (missing > 0) {
            take_equal(window, found.bound.key, missing, true, 0);
        }
        list_map(window);
    } else {
        const int count = gather_entries(window, found.count, least);
        if (missing > 0) {
            take_equal(window, found.bound.key, missing, false, count);
        }
        sort_list(wanted);
    }
    store_row(params, window, row, wanted, mapped);
}

/* A window of at most TOPK elements: all of it, in order. */
DEVICE void emit_whole(const struct topk_select_rows_params *params, const struct window *window,
                       int row) {
    const u32 offset =
        (u32)params->index_offset + (params->offset ? (u32)params->offset[row] : 0);
    for (int i = (int)threadIdx.x; i < TOPK; i += THREADS) {
        store_place(params, window, row, i, i < window_length(window),
                    (u32)(window->first + i), 0, offset);
    }
}
