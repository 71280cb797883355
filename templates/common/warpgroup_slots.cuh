//@use common/base.cuh
//@use common/work.cuh
//@use ptx/named_barrier.cuh
/*
 * Compacts the valid slots of a query's index row into a ring of KV row numbers, in slot order, at
 * most TOPK of them, by one warpgroup. Two warps scan 64 slots per step. Each step's slots are
 * prefetched one step ahead, a query's first ones during the gather of the query before it.
 *
 * RING_OFFSET: the ring, RING_ENTRIES = 128 ints: at most 64 left over from a step and the next
 * step's. COUNTS_OFFSET: the two warps' counts of valid slots.
 */

enum {
    RING_MASK = RING_ENTRIES - 1,
    MASKED = -1,
    SCAN_SLOTS = 64, /* of a step */
    SCAN_BARRIER = 2 /* named barrier of the warpgroup */
};

struct warpgroup_scan {
    const int *row; /* the query's indices */
    int slots;      /* slots to scan */
    int scanned;    /* slots scanned */
    int value;      /* slot scanned + the thread's number in the warpgroup, prefetched */
};

DEVICE void warpgroup_scan_load_ahead(struct warpgroup_scan *scan) {
    const int thread = (int)(threadIdx.x % 128), slot = scan->scanned + thread;
    scan->value = thread < SCAN_SLOTS && slot < scan->slots ? scan->row[slot] : MASKED;
}

/* Begins the row of an item, or an empty row if there is no item. */
DEVICE void warpgroup_scan_open(struct warpgroup_scan *scan, const struct work_params *params,
                                const struct work *work) {
    scan->scanned = 0;
    scan->slots = 0;
    scan->row = params->indices;
    if (work->query >= 0) {
        scan->row = work_row(params, work);
        scan->slots = work_slots(params, work);
    }
    warpgroup_scan_load_ahead(scan);
}

/* Scans 64 more slots. `entries` are in the ring so far; returns their new number. An index in [0,
 * rows) is valid. The first barrier keeps the ring from being overwritten while it is read, the
 * second publishes the new entries. */
DEVICE int warpgroup_scan_more(struct warpgroup_scan *scan, int rows, int entries) {
    int *const ring = (int *)(arena + RING_OFFSET);
    int *const counts = (int *)(arena + COUNTS_OFFSET);
    const u32 thread = threadIdx.x % 128, lane = thread % 32;
    const bool valid = scan->value >= 0 && scan->value < rows;
    const u32 votes = __ballot_sync((u32)ALL_LANES, valid);
    if (thread == 0) {
        counts[0] = __popc(votes);
    } else if (thread == 32) {
        counts[1] = __popc(votes);
    }
    barrier_sync(SCAN_BARRIER, 128);
    const int first = counts[0], total = first + counts[1];
    /* a valid slot counts itself */
    const int rank = entries + (thread < 32 ? 0 : first) + __popc(votes << (31 - lane)) - 1;
    if (valid && rank < TOPK) {
        ring[rank & RING_MASK] = scan->value;
    }
    scan->scanned += SCAN_SLOTS;
    warpgroup_scan_load_ahead(scan);
    barrier_sync(SCAN_BARRIER, 128);
    return minimum(entries + total, TOPK);
}

DEVICE bool warpgroup_scan_ended(const struct warpgroup_scan *scan, int entries) {
    return scan->scanned >= scan->slots || entries >= TOPK;
}
