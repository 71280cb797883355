//@use common/base.cuh
//@use common/work.cuh
/*
 * Compacts the valid slots of a query's index row into a ring of KV row numbers, in slot order, at
 * most TOPK of them, by one warp. Each step's 64 slots are prefetched one step ahead, a query's
 * first ones during the gather of the query before it.
 *
 * The rings: at RING_OFFSET, RING_ENTRIES ints each, a power of two.
 */

enum {
    RING_MASK = RING_ENTRIES - 1,
    MASKED = -1,
    SCAN_SLOTS = 64 /* of a step: two per lane */
};

struct warp_scan {
    const int *row; /* the query's indices */
    int slots;      /* slots to scan */
    int scanned;    /* slots scanned */
    int values[2];  /* slots scanned + lane and scanned + 32 + lane, prefetched */
};

DEVICE int *slot_ring(int number) {
    return (int *)(arena + RING_OFFSET) + number * RING_ENTRIES;
}

DEVICE void warp_scan_load_ahead(struct warp_scan *scan) {
    const int slot = scan->scanned + (int)(threadIdx.x % 32);
    scan->values[0] = slot < scan->slots ? scan->row[slot] : MASKED;
    scan->values[1] = slot + 32 < scan->slots ? scan->row[slot + 32] : MASKED;
}

/* Begins the row of an item, or an empty row if there is no item. */
DEVICE void warp_scan_open(struct warp_scan *scan, const struct work_params *params,
                           const struct work *work) {
    scan->scanned = 0;
    scan->slots = 0;
    scan->row = params->indices;
    if (work->query >= 0) {
        scan->row = work_row(params, work);
        scan->slots = work_slots(params, work);
    }
    warp_scan_load_ahead(scan);
}

/* Scans 64 more slots. `entries` are in the ring so far, from `start` on; returns their new number.
 * An index in [0, rows) is valid. Ends with __syncwarp. */
DEVICE int warp_scan_more(struct warp_scan *scan, int *ring, int start, int rows, int entries) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int value = scan->values[i];
        const bool valid = value >= 0 && value < rows;
        const u32 votes = __ballot_sync((u32)ALL_LANES, valid);
        /* a valid slot counts itself */
        const int rank = entries + __popc(votes << (31 - lane)) - 1;
        if (valid && rank < TOPK) {
            ring[(start + rank) & RING_MASK] = value;
        }
        entries += __popc(votes);
    }
    scan->scanned += SCAN_SLOTS;
    warp_scan_load_ahead(scan);
    __syncwarp((u32)ALL_LANES);
    return minimum(entries, TOPK);
}

DEVICE bool warp_scan_ended(const struct warp_scan *scan, int entries) {
    return scan->scanned >= scan->slots || entries >= TOPK;
}
