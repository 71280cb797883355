//@use topk_select_rows.list.cuh
/*
 * From a list that holds a window's best to what is written. Entry i is thread i % THREADS's. Loops
 * over a thread's entries are unrolled only where it has to hold them in registers, since what is
 * written takes their place: those loops are most of the kernel's instructions, and of the time
 * that its compilation takes.
 *
 * Ascending by index: each chosen element is a bit of a map, and its place is the number of bits
 * before it. Else, or where a window is longer than the map, the chosen entries are sorted:
 * Batcher's bitonic network (K. E. Batcher, Sorting networks and their applications, 1968), which
 * takes any number of entries.
 */

enum {
    OWN = (LIST + THREADS - 1) / THREADS,    /* entries of a thread */
    CHOSEN = (TOPK + THREADS - 1) / THREADS, /* at most, of those that are written */
    PAIR = 64,                               /* elements of two words of the map */
    BLOCK_PAIRS = BLOCK / PAIR,
    ALL_WANTED = 1 /* as the least entry: no entry is 0 */
};

DEVICE u32 *map_words(void) {
    return (u32 *)(arena + MAP_OFFSET);
}

/* Two words of it at once, the first one below. */
DEVICE const u64 *map_pairs(void) {
    return (const u64 *)(arena + MAP_OFFSET);
}

/* Elements of the map before each two words: where the histogram was. */
DEVICE unsigned short *pair_places(void) {
    return (unsigned short *)(arena + HISTOGRAM_OFFSET);
}

/* What is written, over the list: elements in order, and behind them their keys. */
DEVICE u32 *chosen_elements(void) {
    return (u32 *)(arena + LIST_OFFSET);
}

DEVICE u32 *chosen_keys(void) {
    return chosen_elements() + TOPK;
}

DEVICE u32 *equal_words(void) {
    return (u32 *)(arena + EQUAL_OFFSET) + warp_number() * 32;
}

/* ---- the least entry that is wanted ---------------------------------------------------------- */

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
    u32 top = (u32)shared_numbers()[SAMPLE_TOP];
    if (top == KEY_MINUS_INFINITY) {
        u32 least = ~0u, most = 0;
#pragma unroll 1
        for (int i = (int)thread_number(); i < found.count; i += THREADS) {
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

/* Packs the list, a thread its own entries, and counts them by bins. Begins behind a barrier and
 * ends with one. */
DEVICE void pack_list(const struct window *window, int count, const struct bins *bins) {
    const u32 counts = shared_address(HISTOGRAM_OFFSET);
    clear_histogram();
    if (thread_number() == 0) {
        shared_numbers()[FEW_COUNT] = 0;
    }
    __syncthreads();
#pragma unroll 2
    for (int i = (int)thread_number(); i < count; i += THREADS) {
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
#pragma unroll 4
    for (int i = (int)thread_number(); i < count; i += THREADS) {
        const u64 entry = list()[i];
        if (entry >= range.low && entry <= range.high) {
            few[atomic_add_shared(shared_number_address(FEW_COUNT), 1)] = entry;
        }
    }
    __syncthreads();
    if ((int)thread_number() < in_range) {
        const u64 one = few[thread_number()];
        int larger = 0;
        for (int i = 0; i < in_range; ++i) {
            larger += few[i] > one;
        }
        if (larger == rank - 1) {
            few[RESULT] = one;
        }
    }
    __syncthreads();
    return few[RESULT];
}

/* The least entry of those wanted, out of a packed list and its counts. */
DEVICE u64 find_least(const struct window *window, int count, int wanted, const struct bins *bins) {
    const int bits = element_bits(window);
    if (count <= wanted) {
        return ALL_WANTED;
    }
    find_bin(wanted);
    const int in_bin = shared_numbers()[FOUND_COUNT], rank = shared_numbers()[FOUND_RANK];
    const u32 bin = (u32)shared_numbers()[FOUND_BIN];
    const u32 low = bins->low + (bin << bins->shift);
    const u32 high = bin == BINS - 1 ? bins->high : low + ((1u << bins->shift) - 1u);
    const struct range range = {(u64)low << bits, (u64)high << bits | element_mask(window)};
    if (in_bin == rank) {
        return range.low;
    }
    if (in_bin <= minimum(THREADS, BINS / 2 - 1)) {
        return rank_few(count, range, in_bin, rank);
    }
    return find_threshold(count, rank, range, 0, 0).entry;
}

/* Moves the entries from `least` on to the list's beginning: each warp's together, in their order,
 * since lanes that write apart from one another would meet in a bank. Begins behind a barrier and
 * ends without one. */
DEVICE void gather_entries(int count, u64 least) {
    u64 own[OWN];
    int kept = 0;
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        const int i = (int)thread_number() + j * THREADS;
        own[j] = i < count ? list()[i] : 0;
        kept += own[j] >= least;
    }
    int place = __shfl_sync((u32)ALL_LANES, sum_threads_before(kept), 0);
    const u32 before = (1u << lane_number()) - 1u;
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        const u32 which = __ballot_sync((u32)ALL_LANES, own[j] >= least);
        if (own[j] >= least) {
            list()[place + __popc(which & before)] = own[j];
        }
        place += __popc(which);
    }
}

/* ---- elements equal to the bound ------------------------------------------------------------- */

/* Lane n's 32 elements from 32 * n on, out of all lanes' four of each vector: the first in bit 0 of
 * both. */
DEVICE u32 turn_masks(u32 mask) {
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

/* A lane's elements of a block that are equal to the bound: element c of vector i in bit 4 * i + c.
 * A few vectors at a time, for which there are registers. */
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
            mask |= (u32)(inside && ordered_key(values[c]) == key) << (i * VECTOR + c);
        }
    }
    return mask;
}

/* Takes the first `wanted` elements equal to the bound into the map, a lane whole words of it; or,
 * packed, into the list behind its `count` entries. Ends with a barrier. */
DEVICE void take_equal(const struct window *window, u32 key, int wanted, bool mapped, int count) {
    u32 *const sums = warp_numbers(WARP_SUM);
    int taken = 0;
#pragma unroll 1
    for (int first = 0; first < window->blocks && taken < wanted; first += WARPS) {
        const int block = first + warp_number(), number = block * 32 + lane_number();
        u32 word = turn_masks(equal_elements(window, block, key)), chosen = 0;
        const int own = __popc(word), inclusive = sum_lanes_before(own);
        if (lane_number() == 31) {
            sums[warp_number()] = (u32)inclusive;
        }
        __syncthreads();
        const u32 sum = lane_number() < WARPS ? sums[lane_number()] : 0;
        int rank =
            taken + inclusive - own + (int)warp_reduce_add(lane_number() < warp_number() ? sum : 0);
        if (mapped && rank + own <= wanted) { /* all of them */
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

/* The map of the list's `count` entries, over the list's end. Ends with a barrier. */
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

/* How many elements are before each pair of the map's words. Unless the map has nothing but
 * entries, also puts all its elements in order, and if keys are wanted the bound's key, which is
 * that of those which are none. Ends with a barrier. */
DEVICE void count_map(const struct window *window, bool entries, u32 key, bool keys) {
    const int pairs = window->blocks * BLOCK_PAIRS, each = (pairs + THREADS - 1) / THREADS;
    const int begin = minimum((int)thread_number() * each, pairs);
    const int end = minimum(begin + each, pairs);
    int count = 0;
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
        count += __popcll(map_pairs()[i]);
    }
    int place = sum_threads_before(count);
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
        pair_places()[i] = (unsigned short)place;
        place += __popcll(map_pairs()[i]);
    }
    __syncthreads();
    /* A word a thread, from the bit of its lane's number on: full words would else meet in the same
     * bank. */
    const u32 lane = (u32)lane_number();
#pragma unroll 1
    for (int i = (int)thread_number(); !entries && i < 2 * pairs; i += THREADS) {
        const u32 word = map_words()[i];
        const int first = pair_places()[i / 2] + (i % 2 ? __popc(map_words()[i - 1]) : 0);
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

/* The thread's own of the list's first `count` entries, at most TOPK; 0 where there are no more. */
DEVICE void load_chosen(int count, u64 own[CHOSEN]) {
#pragma unroll
    for (int j = 0; j < CHOSEN; ++j) {
        const int i = (int)thread_number() + j * THREADS;
        own[j] = i < count ? list()[i] : 0;
    }
}

/* Puts them where the map says. Ends with a barrier. */
DEVICE void place_entries(const struct window *window, const u64 own[CHOSEN], bool keys) {
#pragma unroll
    for (int j = 0; j < CHOSEN; ++j) {
        if (own[j] != 0) {
            const u32 element = packed_element(window, own[j]), pair = element / PAIR;
            const u64 before = ((u64)1 << element % PAIR) - 1;
            const int place = pair_places()[pair] + __popcll(map_pairs()[pair] & before);
            chosen_elements()[place] = element;
            if (keys) {
                chosen_keys()[place] = packed_key(window, own[j]);
            }
        }
    }
    __syncthreads();
}

/* ---- sorted ---------------------------------------------------------------------------------- */

/* Makes a chosen entry one that is sorted by its element, a key below. */
DEVICE u64 turn_entry(const struct window *window, u64 entry) {
    return (u64)~packed_element(window, entry) << 32 | packed_key(window, entry);
}

/* Turns the list's `count` entries. A thread its own; ends with a barrier. */
DEVICE void turn_entries(const struct window *window, int count) {
#pragma unroll 1
    for (int i = (int)thread_number(); i < count; i += THREADS) {
        list()[i] = turn_entry(window, list()[i]);
    }
    __syncthreads();
}

/* One step of the network: entries `stride` apart in runs of 2 * stride, or mirrored in them. */
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

/* A row of the results. */
struct target {
    int *indices;
    float *values; /* or null */
    u32 offset;    /* of element 0 */
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

/* Place i of a row: an element and its key, or none. */
DEVICE void store_place(const struct target *target, int i, bool there, u32 element, u32 key) {
    target->indices[i] = there ? (int)(element + target->offset) : -1;
    if (target->values) {
        target->values[i] = there ? key_score(key) : minus_infinity();
    }
}

/* The elements, or else the entries, that the list now begins with. */
DEVICE void store_row(const struct topk_select_rows_params *params, const struct window *window,
                      int row, int wanted, bool mapped) {
    const struct target target = open_target(params, window, row);
#pragma unroll 2
    for (int i = (int)thread_number(); i < TOPK; i += THREADS) {
        const bool there = i < wanted;
        if (mapped) {
            store_place(&target, i, there, there ? chosen_elements()[i] : 0,
                        there && target.values ? chosen_keys()[i] : 0);
        } else {
            const u64 entry = there ? list()[i] : 0;
            const u32 element =
                ORDER_BY_SCORE ? packed_element(window, entry) : ~(u32)(entry >> 32);
            const u32 key = ORDER_BY_SCORE ? packed_key(window, entry) : (u32)entry;
            store_place(&target, i, there, element, key);
        }
    }
}

/* Writes a row out of its list of scores. Begins behind a barrier. */
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
        take_equal(window, found.bound.key, wanted - entries, mapped, entries);
    }
    if (mapped) {
        u64 own[CHOSEN];
        load_chosen(entries, own);
        count_map(window, entries == wanted, found.bound.key, params->values != 0);
        place_entries(window, own, params->values != 0);
    } else {
        __syncthreads(); /* the list was gathered */
        if (!ORDER_BY_SCORE) {
            turn_entries(window, wanted);
        }
        sort_list(wanted);
    }
    store_row(params, window, row, wanted, mapped);
}

/* A window of at most TOPK elements: all of it, in order. */
DEVICE void emit_whole(const struct topk_select_rows_params *params, const struct window *window,
                       int row) {
    const struct target target = open_target(params, window, row);
#pragma unroll 2
    for (int i = (int)thread_number(); i < TOPK; i += THREADS) {
        store_place(&target, i, i < window_length(window), (u32)(window->first + i), 0);
    }
}
