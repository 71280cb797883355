//@use topk_select_rows.list.cuh
/*
 * From a list that contains a window's top-k to its top entries alone, compacted at the list's
 * start. Thread i % THREADS owns entry i. Here and in topk_select_rows.emit_map.cuh, loops over a
 * thread's entries are unrolled only where the entries must stay in registers because the output
 * overwrites the list: these loops dominate the kernel's code size and compile time.
 */

enum {
    OWN = (LIST + THREADS - 1) / THREADS, /* entries per thread */
    ALL_WANTED = 1                        /* threshold that selects every entry: no entry is 0 */
};

/* A packed entry has its key above as many bits as the window's elements need. In these bits
 * earlier elements are larger. */
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

/* Bins of 2^shift keys from `low` on; the last bin also holds all larger keys. */
struct bins {
    u32 low, high; /* the range of all keys */
    int shift;
};

/* Bins for the list's keys: from the bound to the largest sampled key, or to the largest key if
 * there was no sample. */
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

/* Packs each thread's entries and builds their histogram. Begins and ends after a barrier. */
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

/* The entry of this rank among the `in_range` entries of a range, at most THREADS: each is compared
 * with all others. */
DEVICE u64 rank_few(int count, struct range range, int in_range, int rank) {
    enum { RESULT = BINS / 2 - 1 };
    u64 *const few = (u64 *)histogram(); /* no longer needed */
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

/* The smallest of the top `wanted` entries of a packed list with its histogram. */
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

/* Compacts the entries from `least` on to the start of the list. Each warp writes its entries
 * contiguously and in order, which avoids bank conflicts. Begins after a barrier and ends without
 * one. */
DEVICE void gather_entries(int count, u64 least) {
    u64 own[OWN];
    int kept = 0;
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        const int i = (int)thread_number() + j * THREADS;
        own[j] = i < count ? list()[i] : 0;
        kept += own[j] >= least;
    }
    int place = __shfl_sync((u32)ALL_LANES, block_exclusive_scan(kept), 0);
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
