//@use common/base.cuh
//@use common/work.cuh
/*
 * The slots of a query's index row, compacted into a ring of KV row numbers: the valid ones, in
 * slot order, at most TOPK of them, by one warp. A step's 64 slots are loaded one step ahead, a
 * query's first ones while the query before is still gathered.
 *
 * The rings: at RING_OFFSET, one of RING_ENTRIES ints after another, a power of two.
 */

enum {
    RING_MASK = RING_ENTRIES - 1,
    ALL_LANES = -1,
    MASKED = -1,
    SCAN_SLOTS = 64 /* of a step: two a lane */
};

struct warp_scan {
    const int *row; /* the query's indices */
    int slots;      /* how many there are to scan */
    int scanned;    /* looked at so far */
    int values[2];  /* of slots scanned + lane and scanned + 32 + lane, loaded ahead */
};

DEVICE int *slot_ring(int number) {
    return (int *)(arena + RING_OFFSET) + number * RING_ENTRIES;
}

DEVICE void warp_scan_load_ahead(struct warp_scan *scan) {
    const int slot = scan->scanned + (int)(threadIdx.x % 32);
    scan->values[0] = slot < scan->slots ? scan->row[slot] : MASKED;
    scan->values[1] = slot + 32 < scan->slots ? scan->row[slot + 32] : MASKED;
}

/* Begins the row of an item; of no item, an empty one. */
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

/* Scans 64 more slots and returns how many entries there are now, of `entries` before, which begin
 * at `start` in the ring. `rows`: KV rows, an index from 0 on and below this is valid. The lanes
 * meet when they have written. */
DEVICE int warp_scan_more(struct warp_scan *scan, int *ring, int start, int rows, int entries) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int value = scan->values[i];
        const bool valid = value >= 0 && value < rows;
        const u32 votes = __ballot_sync((u32)ALL_LANES, valid);
        /* Of a valid slot: it counts itself. */
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

/* Whether the row has no more entries. */
DEVICE bool warp_scan_ended(const struct warp_scan *scan, int entries) {
    return scan->scanned >= scan->slots || entries >= TOPK;
}
