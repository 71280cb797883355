//@use common/warp_scan.cuh
//@use ptx/atomic.cuh
//@use ptx/redux.cuh
//@use ptx/shared.cuh
//@use ptx/thread.cuh
//@use topk_select_rows.window.cuh
/*
 * The list of entries in shared memory, radix selection from it, and scans and sums over the block.
 * An entry is 64 bits: a key in the upper half, a tie-break in the lower half.
 *
 * The thread's number is read again wherever it is needed (ptx/thread.cuh): values derived from it
 * would occupy registers that the loop over the window needs.
 */

DEVICE u64 *list(void) {
    return (u64 *)(arena + LIST_OFFSET);
}

DEVICE u32 *histogram(void) {
    return (u32 *)(arena + HISTOGRAM_OFFSET);
}

/* Kinds of values that have one slot per warp. */
enum warp_number { WARP_SUM, WARP_LEAST, WARP_MOST };

DEVICE u32 *warp_numbers(enum warp_number kind) {
    return (u32 *)(arena + WARPS_OFFSET) + (int)kind * 32;
}

/* Values that one thread writes and all threads read. */
enum shared_number {
    FOUND_BIN,
    FOUND_RANK,
    FOUND_COUNT,
    LIST_COUNT,
    FEW_COUNT,
    SAMPLE_TOP, /* almost no key is larger; KEY_MINUS_INFINITY: unknown */
    SHARED_NUMBERS
};

DEVICE int *shared_numbers(void) {
    return (int *)(arena + NUMBERS_OFFSET);
}

DEVICE u32 shared_number_address(enum shared_number which) {
    return shared_address(NUMBERS_OFFSET) + (u32)which * 4;
}

DEVICE int warp_number(void) {
    return (int)thread_number() / 32;
}

/* Exclusive scan over the block. Contains one barrier; the WARP_SUM slots may be written again only
 * after another one. */
DEVICE int block_exclusive_scan(int value) {
    u32 *const sums = warp_numbers(WARP_SUM);
    const int inclusive = warp_inclusive_scan(value, lane_number());
    if (lane_number() == 31) {
        sums[warp_number()] = (u32)inclusive;
    }
    __syncthreads();
    const u32 earlier = lane_number() < warp_number() ? sums[lane_number()] : 0;
    return (int)warp_reduce_add(earlier) + inclusive - value;
}

/* Sum over the block; barriers as above. */
DEVICE int block_sum(int value) {
    u32 *const sums = warp_numbers(WARP_SUM);
    const u32 sum = warp_reduce_add((u32)value);
    if (lane_number() == 0) {
        sums[warp_number()] = sum;
    }
    __syncthreads();
    return (int)warp_reduce_add(lane_number() < WARPS ? sums[lane_number()] : 0);
}

/* The smallest and largest key of the block, as a range of entries; barriers as above. */
struct range {
    u64 low, high;
};

DEVICE struct range range_of(u32 least, u32 most) {
    u32 *const all_least = warp_numbers(WARP_LEAST), *const all_most = warp_numbers(WARP_MOST);
    least = warp_reduce_min(least);
    most = warp_reduce_max(most);
    if (lane_number() == 0) {
        all_least[warp_number()] = least;
        all_most[warp_number()] = most;
    }
    __syncthreads();
    least = warp_reduce_min(lane_number() < WARPS ? all_least[lane_number()] : ~0u);
    most = warp_reduce_max(lane_number() < WARPS ? all_most[lane_number()] : 0);
    const struct range range = {(u64)least << 32, (u64)most << 32 | 0xffffffffu};
    return range;
}

/* Number of bits up to the highest set one. */
DEVICE int bit_count(u64 number) {
    const u32 high = (u32)(number >> 32);
    return high ? 64 - __clz(high) : 32 - __clz((u32)number);
}

DEVICE void clear_histogram(void) {
#pragma unroll
    for (int i = (int)thread_number(); i < BINS; i += THREADS) {
        histogram()[i] = 0;
    }
}

/* Histogram of the list's entries inside the range. A bin covers 2^shift entries from the range's
 * low end. Bins are stored in descending order, so that each thread of find_bin owns adjacent ones.
 */
DEVICE void count_bins(int count, const struct range *range, int shift) {
    const u32 bins = shared_address(HISTOGRAM_OFFSET);
    clear_histogram();
    __syncthreads();
#pragma unroll 2
    for (int i = (int)thread_number(); i < count; i += THREADS) {
        const u64 entry = list()[i];
        if (entry >= range->low && entry <= range->high) {
            const u32 bin = (u32)((entry - range->low) >> shift);
            atomic_add_shared(bins + (BINS - 1 - bin) * 4, 1);
        }
    }
    __syncthreads();
}

/* Finds the bin that contains the rank and broadcasts it through shared memory. */
DEVICE void find_bin(int rank) {
    enum { OWN = BINS / THREADS };
    u32 counts[OWN];
    int sum = 0;
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        counts[i] = histogram()[(int)thread_number() * OWN + i];
        sum += (int)counts[i];
    }
    int before = block_exclusive_scan(sum);
    if (before < rank && rank <= before + sum) {
        int bin = 0;
#pragma unroll
        for (int i = 0; i < OWN - 1; ++i) {
            const bool past = bin == i && before + (int)counts[i] < rank;
            before += past ? (int)counts[i] : 0;
            bin += past;
        }
        shared_numbers()[FOUND_BIN] = BINS - 1 - ((int)thread_number() * OWN + bin);
        shared_numbers()[FOUND_RANK] = rank - before;
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            if (i == bin) {
                shared_numbers()[FOUND_COUNT] = (int)counts[i];
            }
        }
    }
    __syncthreads();
}

/* `count` entries of the range are at or above `entry`. */
struct threshold {
    u64 entry;
    int count;
};

/*
 * Radix selection: a threshold with at least `rank` entries at or above it, and at most `slack`
 * more, unless bins of 2^least_shift entries are too coarse. The range must hold at least `rank`
 * entries. Ends without a barrier after its last reads of the shared numbers.
 */
DEVICE struct threshold find_threshold(int count, int rank, struct range range, int least_shift,
                                       int slack) {
    struct threshold threshold;
    int left = rank;
    for (;;) {
        const int shift = maximum(bit_count(range.high - range.low) - LOG_BINS, least_shift);
        count_bins(count, &range, shift);
        find_bin(left);
        const int in_bin = shared_numbers()[FOUND_COUNT];
        left = shared_numbers()[FOUND_RANK];
        range.low += (u64)shared_numbers()[FOUND_BIN] << shift;
        const u64 high = range.low + (((u64)1 << shift) - 1);
        range.high = high < range.high ? high : range.high;
        threshold.entry = range.low;
        threshold.count = rank - left + in_bin;
        if (in_bin - left <= slack || shift == least_shift) {
            return threshold;
        }
    }
}
