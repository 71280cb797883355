//@use ptx/atomic.cuh
//@use ptx/redux.cuh
//@use ptx/shared.cuh
//@use ptx/thread.cuh
//@use topk_select_rows.window.cuh
/*
 * The list of entries in shared memory, and the one of a rank among them. An entry is 64 bits: a
 * key above, below it what tells equal keys apart. Sums over the block.
 *
 * Threads read their number anew wherever they need it (ptx/thread.cuh): kept, what follows from it
 * would take registers that those who read a window do not have.
 */

DEVICE u64 *list(void) {
    return (u64 *)(arena + LIST_OFFSET);
}

DEVICE u32 *histogram(void) {
    return (u32 *)(arena + HISTOGRAM_OFFSET);
}

/* One number of each warp, of several kinds. */
enum warp_number { WARP_SUM, WARP_LEAST, WARP_MOST };

DEVICE u32 *warp_numbers(enum warp_number kind) {
    return (u32 *)(arena + WARPS_OFFSET) + (int)kind * 32;
}

/* What one thread found and all need. */
enum shared_number {
    FOUND_BIN,
    FOUND_RANK,
    FOUND_COUNT,
    LIST_COUNT,
    FEW_COUNT,
    SAMPLE_TOP, /* hardly a key is above; -inf's: nothing is known */
    SHARED_NUMBERS
};

DEVICE int *shared_numbers(void) {
    return (int *)(arena + NUMBERS_OFFSET);
}

DEVICE u32 shared_number_address(enum shared_number which) {
    return shared_address(NUMBERS_OFFSET) + (u32)which * 4;
}

DEVICE int lane_number(void) {
    return (int)thread_number() % 32;
}

DEVICE int warp_number(void) {
    return (int)thread_number() / 32;
}

/* The sum of this lane's value and those of the lanes before it. */
DEVICE int sum_lanes_before(int value) {
    const int lane = lane_number();
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int before = __shfl_up_sync((u32)ALL_LANES, value, step);
        value += lane >= step ? before : 0;
    }
    return value;
}

/* The values of the threads before this one. A barrier, and one is needed before the next use of
 * the warps' sums. */
DEVICE int sum_threads_before(int value) {
    u32 *const sums = warp_numbers(WARP_SUM);
    const int inclusive = sum_lanes_before(value);
    if (lane_number() == 31) {
        sums[warp_number()] = (u32)inclusive;
    }
    __syncthreads();
    const u32 earlier = lane_number() < warp_number() ? sums[lane_number()] : 0;
    return (int)warp_reduce_add(earlier) + inclusive - value;
}

/* Likewise all threads' values. */
DEVICE int sum_threads(int value) {
    u32 *const sums = warp_numbers(WARP_SUM);
    const u32 sum = warp_reduce_add((u32)value);
    if (lane_number() == 0) {
        sums[warp_number()] = sum;
    }
    __syncthreads();
    return (int)warp_reduce_add(lane_number() < WARPS ? sums[lane_number()] : 0);
}

/* The smallest and the largest of all threads' keys, likewise. */
struct range {
    u64 low, high; /* entries */
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

/* Bits that a number has. */
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

/* How many entries of the range each bin has. Bins are of 2^shift entries from the range's low end,
 * and counted from its high end, so that a thread's are side by side. */
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

/* Finds the bin in which the rank falls: the thread that has it tells all. */
DEVICE void find_bin(int rank) {
    enum { OWN = BINS / THREADS };
    u32 counts[OWN];
    int sum = 0;
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        counts[i] = histogram()[(int)thread_number() * OWN + i];
        sum += (int)counts[i];
    }
    int before = sum_threads_before(sum);
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

/* A threshold: `count` entries of the range are not below it. */
struct threshold {
    u64 entry;
    int count;
};

/*
 * The threshold with at least `rank` entries, and at most `slack` more unless bins of 2^least_shift
 * entries do not tell them apart. The range holds `rank` entries or more. Ends without a barrier
 * behind its last reads of shared numbers.
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
