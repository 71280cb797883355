//@use common/base.cuh
//@use common/warp_scan.cuh
//@use ptx/atomic.cuh
//@use ptx/shared.cuh
//@use common/work.params.h
//@use sparse_gqa.params.h
//@use sparse_gqa_lists.params.h
/*
 * Reverse index of sparse_gqa's lists, second pass: where the pairs of each list and chunk begin,
 * the segments of each list, and the order in which to process segments: the first segments of all
 * lists, then the second ones, and so on. Entries ascend in a list, so that segments processed at
 * the same time belong to about the same queries, whose rows then stay in L2. The order within
 * equal numbers of segments is unspecified; no result depends on it.
 *
 * Grid: one CTA; a thread has one list at a time. Shared memory:
 *   TOTALS [2][THREADS / 32] int: pairs and segments of each warp's lists
 *   BINS   [THREADS] int: segments of each number, then where the next of them goes
 */

enum { WARPS = THREADS / 32, LOADS = 8 };

DEVICE int *totals(int kind) {
    return (int *)(arena + TOTALS_OFFSET) + kind * WARPS;
}

DEVICE u32 bin_address(int segment) {
    return shared_address((u32)(BINS_OFFSET + minimum(segment, THREADS - 1) * 4));
}

/* Replaces a list's counts by the sums over the chunks before; returns the sum over all. */
DEVICE int scan_chunks(const struct sparse_gqa_lists_params *params, int list, int lists) {
    int sum = 0;
    for (int chunk = 0; chunk < params->chunks; chunk += LOADS) {
        int *const counts = params->counts + (i64)chunk * lists + list;
        int values[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            values[i] = chunk + i < params->chunks ? counts[(i64)i * lists] : 0;
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            if (chunk + i < params->chunks) {
                counts[(i64)i * lists] = sum;
            }
            sum += values[i];
        }
    }
    return sum;
}

/* Sum of the values of lower threads; that of all is added to *total. Ends with a barrier before the
 * next use of `kind`, if another kind is scanned in between. */
DEVICE int block_exclusive_scan(int value, int kind, int *total) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int inclusive = warp_inclusive_scan(value, lane);
    if (lane == 31) {
        totals(kind)[warp] = inclusive;
    }
    __syncthreads();
    const int before = warp_inclusive_scan(lane < WARPS ? totals(kind)[lane] : 0, lane);
    const int lower = __shfl_sync((u32)ALL_LANES, before, maximum(warp - 1, 0));
    const int result = *total + inclusive - value + (warp > 0 ? lower : 0);
    *total += __shfl_sync((u32)ALL_LANES, before, WARPS - 1);
    return result;
}

DEVICE void count_segments(int segments) {
    for (int i = 0; i < segments; ++i) {
        atomic_add_shared(bin_address(i), 1);
    }
}

/* Turns BINS into where the first segment of each number goes. */
DEVICE void scan_bins(void) {
    int *const bins = (int *)(arena + BINS_OFFSET);
    int total = 0;
    __syncthreads();
    const int begin = block_exclusive_scan(bins[threadIdx.x], 0, &total);
    bins[threadIdx.x] = begin;
    __syncthreads();
}

DEVICE void write_order(const struct sparse_gqa_lists_params *params, int list, int segments) {
    for (int i = 0; i < segments; ++i) {
        const int2 segment = {list, i};
        ((int2 *)params->order)[atomic_add_shared(bin_address(i), 1)] = segment;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_lists_params params) {
    const int lists = params.work.batches * params.groups * params.blocks;
    int pairs = 0, segments = 0;
    ((int *)(arena + BINS_OFFSET))[threadIdx.x] = 0;
    for (int base = 0; base < lists; base += THREADS) {
        const int list = base + (int)threadIdx.x;
        const int length = list < lists ? scan_chunks(&params, list, lists) : 0;
        const int own = (length + params.segment - 1) / params.segment;
        const int start = block_exclusive_scan(length, 0, &pairs);
        const int item = block_exclusive_scan(own, 1, &segments);
        if (list < lists) {
            params.starts[list] = start;
            params.items[list] = item;
        }
        if (params.order) {
            count_segments(own);
        }
    }
    if (threadIdx.x == 0) {
        params.starts[lists] = pairs;
        params.items[lists] = segments;
    }
    if (params.order) {
        scan_bins();
        for (int list = (int)threadIdx.x; list < lists; list += THREADS) {
            write_order(&params, list, params.items[list + 1] - params.items[list]);
        }
    }
}
