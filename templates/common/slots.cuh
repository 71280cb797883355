//@use common/base.cuh
/*
 * The slots of one query's index row, turned into a ring of KV row numbers. The whole block scans
 * THREADS slots at a time; with COMPACT only the valid ones enter the ring, in slot order, else
 * every slot does, a masked one as MASKED. No more than TOPK valid slots are kept.
 *
 * The ring lives at RING_OFFSET (RING_ENTRIES ints, a power of two) with one count per warp at
 * COUNTS_OFFSET. An entry stays until STAGES blocks after its own were taken.
 */

enum { MASKED = -1, RING_MASK = RING_ENTRIES - 1, ALL_LANES = -1 };

/* The same in every thread of the block, but for `value`. */
struct slot_scan {
    const int *row; /* this query's indices */
    int slots;      /* how many there are to scan */
    int scanned;    /* slots looked at so far, a multiple of THREADS */
    int entries;    /* entries put into the ring since the query began */
    int valid;      /* valid ones among them */
    int taken;      /* entries handed out to blocks */
    int value;      /* slot scanned + threadIdx.x, loaded ahead */
};

DEVICE void scan_load_ahead(struct slot_scan *scan) {
    const int slot = scan->scanned + (int)threadIdx.x;
    scan->value = slot < scan->slots ? scan->row[slot] : MASKED;
}

DEVICE void scan_begin(struct slot_scan *scan, const int *row, int slots) {
    scan->row = row;
    scan->slots = slots;
    scan->scanned = 0;
    scan->entries = 0;
    scan->valid = 0;
    scan->taken = 0;
    scan_load_ahead(scan);
}

/* Number of valid slots in lower warps, and in all of them, from the counts just written. */
DEVICE int scan_lower_warps(const int *counts, int warp, int *total) {
    int lower = 0;
    *total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        lower += w < warp ? counts[w] : 0;
        *total += counts[w];
    }
    return lower;
}

/* Scans THREADS more slots. Called by the whole block; two barriers. */
DEVICE void scan_more(struct slot_scan *scan, int rows) {
    int *const ring = (int *)(arena + RING_OFFSET);
    int *const counts = (int *)(arena + COUNTS_OFFSET);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int row = scan->value;
    const bool valid = row >= 0 && row < rows;
    const u32 votes = __ballot_sync((u32)ALL_LANES, valid);
    if (lane == 0) {
        counts[warp] = __popc(votes);
    }
    __syncthreads();
    int total;
    const int rank =
        scan->valid + scan_lower_warps(counts, warp, &total) + __popc(votes & ((1u << lane) - 1u));
    const bool keep = valid && rank < TOPK;
    if (COMPACT) {
        if (keep) {
            ring[rank & RING_MASK] = row;
        }
        scan->entries = minimum(scan->valid + total, TOPK);
    } else {
        ring[(scan->entries + (int)threadIdx.x) & RING_MASK] = keep ? row : MASKED;
        scan->entries += minimum(scan->slots - scan->scanned, THREADS);
    }
    scan->valid += total;
    scan->scanned = scan->valid < TOPK ? scan->scanned + THREADS : scan->slots;
    scan_load_ahead(scan);
    __syncthreads();
}

/* Takes the next up to BLOCK_KEYS entries: *first is their place in the ring, the result their
 * number, 0 when the query has no more. Called by the whole block. */
DEVICE int scan_take(struct slot_scan *scan, int rows, int *first) {
    while (scan->entries - scan->taken < BLOCK_KEYS && scan->scanned < scan->slots) {
        scan_more(scan, rows);
    }
    const int count = minimum(scan->entries - scan->taken, BLOCK_KEYS);
    *first = scan->taken;
    scan->taken += count;
    return count;
}

/* Entry number `position`; MASKED only without COMPACT. */
DEVICE int scan_entry(int position) {
    return ((const int *)(arena + RING_OFFSET))[position & RING_MASK];
}
