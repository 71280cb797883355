//@use common/base.cuh
//@use common/work.cuh
//@use ptx/named_barrier.cuh
/*
 * The slots of a query's index row, compacted by one warpgroup into a ring of KV row numbers: the
 * valid ones, in slot order, at most TOPK of them. Two warps look at 64 slots at a time; a step's
 * slots are loaded one step ahead, a query's first ones while the query before is still gathered.
 *
 * The ring: RING_OFFSET, RING_ENTRIES ints, 128: what one step leaves over (at most 64) and the
 * next one's. The two warps' counts of valid slots: COUNTS_OFFSET.
 */

enum {
    RING_MASK = RING_ENTRIES - 1,
    ALL_LANES = -1,
    MASKED = -1,
    SCAN_SLOTS = 64, /* of a step */
    SCAN_BARRIER = 2 /* named; of the warpgroup */
};

struct warpgroup_scan {
    const int *row; /* the query's indices */
    int slots;      /* how many there are to scan */
    int scanned;    /* looked at so far */
    int value;      /* slot scanned + thread of the warpgroup, loaded ahead */
};

DEVICE void warpgroup_scan_load_ahead(struct warpgroup_scan *scan) {
    const int thread = (int)(threadIdx.x % 128), slot = scan->scanned + thread;
    scan->value = thread < SCAN_SLOTS && slot < scan->slots ? scan->row[slot] : MASKED;
}

/* Begins the row of an item; of no item, an empty one. */
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

/* Scans 64 more slots and returns how many entries there are now, of `entries` before. `rows`: KV
 * rows, an index from 0 on and below this is valid. Two barriers: no thread writes the ring while
 * another still reads what came before, and all see what is new. */
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
    /* Of a valid slot: it counts itself. */
    const int rank = entries + (thread < 32 ? 0 : first) + __popc(votes << (31 - lane)) - 1;
    if (valid && rank < TOPK) {
        ring[rank & RING_MASK] = scan->value;
    }
    scan->scanned += SCAN_SLOTS;
    warpgroup_scan_load_ahead(scan);
    barrier_sync(SCAN_BARRIER, 128);
    return minimum(entries + total, TOPK);
}

/* Whether the row has no more entries. */
DEVICE bool warpgroup_scan_ended(const struct warpgroup_scan *scan, int entries) {
    return scan->scanned >= scan->slots || entries >= TOPK;
}
