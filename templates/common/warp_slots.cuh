//@use common/base.cuh
//@use common/work.cuh
/*
 * Compacts the rows of the valid slots of a query's index row into a ring of KV row numbers, in slot
 * order, at most TOPK of them, by one warp. A slot's entry e names the rows e * SLOT_ROWS to
 * (e + 1) * SLOT_ROWS - 1. Each step's 64 positions are prefetched one step ahead, a query's first
 * ones during the gather of the query before it.
 *
 * The rings: at RING_OFFSET, RING_ENTRIES ints each, a power of two.
 */

enum {
    RING_MASK = RING_ENTRIES - 1,
    MASKED = -1,
    SCAN_SLOTS = 64 /* positions of a step: two per lane; a slot has SLOT_ROWS of them */
};

struct warp_scan {
    const int *row; /* the query's indices */
    int slots;      /* positions to scan */
    int scanned;    /* positions scanned */
    int rows;       /* a row below it is valid */
    int values[2];  /* of positions scanned + lane and scanned + 32 + lane, prefetched */
};

DEVICE int *slot_ring(int number) {
    return (int *)(arena + RING_OFFSET) + number * RING_ENTRIES;
}

DEVICE void warp_scan_load_ahead(struct warp_scan *scan) {
    const int slot = scan->scanned + (int)(threadIdx.x % 32);
    scan->values[0] = slot < scan->slots ? scan->row[slot / SLOT_ROWS] : MASKED;
    scan->values[1] = slot + 32 < scan->slots ? scan->row[(slot + 32) / SLOT_ROWS] : MASKED;
}

/* Begins an index row of which `slots` slots are scanned; rows below `rows` are valid. */
DEVICE void warp_scan_begin(struct warp_scan *scan, const int *row, int slots, int rows) {
    scan->scanned = 0;
    scan->slots = slots * SLOT_ROWS;
    scan->rows = rows;
    scan->row = row;
    warp_scan_load_ahead(scan);
}

/* Whether an entry's row `part` is valid. */
DEVICE bool warp_scan_is_valid(const struct warp_scan *scan, int entry, int part) {
    return entry >= 0 && entry < scan->rows / SLOT_ROWS + (part < scan->rows % SLOT_ROWS);
}

/* Scans 64 more positions. `entries` are in the ring so far, from `start` on; returns their new
 * number. Ends with __syncwarp. */
DEVICE int warp_scan_more(struct warp_scan *scan, int *ring, int start, int entries) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int position = (32 % SLOT_ROWS == 0 ? 0 : scan->scanned + i * 32) + (int)lane;
        const int value = scan->values[i], part = position % SLOT_ROWS;
        const bool valid = warp_scan_is_valid(scan, value, part);
        const u32 votes = __ballot_sync((u32)ALL_LANES, valid);
        /* a valid slot counts itself */
        const int rank = entries + __popc(votes << (31 - lane)) - 1;
        if (valid && rank < TOPK) {
            ring[(start + rank) & RING_MASK] = value * SLOT_ROWS + part;
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
