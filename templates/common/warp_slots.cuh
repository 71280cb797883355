//@use common/base.cuh
//@use common/work.cuh
//@takes united
/*
 * Compacts the rows of the valid slots of a query's index row into a ring of KV row numbers, in slot
 * order, at most TOPK of them, by one warp. A slot's entry e names the rows e * SLOT_ROWS to
 * (e + 1) * SLOT_ROWS - 1. Each step's 64 positions are prefetched one step ahead, a query's first
 * ones during the gather of the query before it.
 *
 * With `united`, the slots are those of a united list (common/gqa_few.cuh): an entry is a number among
 * all batches' entries, has a mask of the queries that named it, and a ring's number is one's row
 * and, above ROW_BITS, the mask of the queries that read it.
 *
 * The rings: at RING_OFFSET, RING_ENTRIES ints each, a power of two.
 */

enum {
    RING_MASK = RING_ENTRIES - 1,
    MASKED = -1,
    SCAN_SLOTS = 64 /* positions of a step: two per lane; a slot has SLOT_ROWS of them */
};

struct warp_scan {
    const int *row;             /* the query's indices */
                                //@if united
    const unsigned char *masks; /* of the row's slots */
    int marks[2];  /* of positions scanned + lane and scanned + 32 + lane, prefetched */
    int limit;     /* of query `lane`, among all batches' rows: a row below it is valid */
                   //@end
    int slots;     /* positions to scan */
    int scanned;   /* positions scanned */
    int rows;      /* a row below it is valid */
    int values[2]; /* of positions scanned + lane and scanned + 32 + lane, prefetched */
};

DEVICE int *slot_ring(int number) {
    return (int *)(arena + RING_OFFSET) + number * RING_ENTRIES;
}

DEVICE void warp_scan_load_ahead(struct warp_scan *scan) {
    const int slot = scan->scanned + (int)(threadIdx.x % 32);
    scan->values[0] = slot < scan->slots ? scan->row[slot / SLOT_ROWS] : MASKED;
    scan->values[1] = slot + 32 < scan->slots ? scan->row[(slot + 32) / SLOT_ROWS] : MASKED;
    //@if united
    scan->marks[0] = slot < scan->slots ? (int)scan->masks[slot / SLOT_ROWS] : 0;
    scan->marks[1] = slot + 32 < scan->slots ? (int)scan->masks[(slot + 32) / SLOT_ROWS] : 0;
    //@end
}

//@if united
/* Begins a united list of `slots` slots. `limit`: of query `lane`. */
DEVICE void warp_scan_begin(struct warp_scan *scan, const int *row, const unsigned char *masks,
                            int slots, int limit) {
    scan->scanned = 0;
    scan->slots = slots * SLOT_ROWS;
    scan->row = row;
    scan->masks = masks;
    scan->limit = limit;
    warp_scan_load_ahead(scan);
}

/* Which queries read part `part` of an entry with the mask `marks`. By a warp. */
DEVICE int warp_scan_readers(const struct warp_scan *scan, int entry, int part, int marks) {
    int readers = 0;
#pragma unroll
    for (int i = 0; i < ITEM_QUERIES; ++i) {
        const int limit = __shfl_sync((u32)ALL_LANES, scan->limit, i);
        readers |= entry * SLOT_ROWS + part < limit ? marks & (1 << i) : 0;
    }
    return readers;
}
//@else
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
//@end

/* Scans 64 more positions. `entries` are in the ring so far, from `start` on; returns their new
 * number. Ends with __syncwarp. */
DEVICE int warp_scan_more(struct warp_scan *scan, int *ring, int start, int entries) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int position = (32 % SLOT_ROWS == 0 ? 0 : scan->scanned + i * 32) + (int)lane;
        const int value = scan->values[i], part = position % SLOT_ROWS;
        //@if united
        const int readers = warp_scan_readers(scan, value, part, scan->marks[i]);
        const bool valid = readers != 0;
        //@else
        const bool valid = warp_scan_is_valid(scan, value, part);
        //@end
        const u32 votes = __ballot_sync((u32)ALL_LANES, valid);
        /* a valid slot counts itself */
        const int rank = entries + __popc(votes << (31 - lane)) - 1;
        if (valid && rank < TOPK) {
            //@if united
            ring[(start + rank) & RING_MASK] =
                (int)((u32)(value * SLOT_ROWS + part) | (u32)readers << ROW_BITS);
            //@else
            ring[(start + rank) & RING_MASK] = value * SLOT_ROWS + part;
            //@end
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
