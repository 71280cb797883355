//@use common/base.cuh
/*
 * The slots of one query's index row, turned into a ring of KV row numbers. The whole block scans
 * THREADS slots at a time; with COMPACT only the valid ones enter the ring, in slot order, else
 * every slot does, a masked one as MASKED. No more than TOPK valid slots are kept.
 *
 * The ring lives at RING_OFFSET (RING_ENTRIES ints, a power of two) with one count per warp at
 * COUNTS_OFFSET. A key block's entries stay until the block STAGES after it is reached.
 */

enum { MASKED = -1, RING_MASK = RING_ENTRIES - 1, ALL_LANES = -1 };

/* What the scan reads, at SLOTS_OFFSET: in shared memory, since registers are short in between. */
struct slot_row {
    const int *row; /* this query's indices */
    int slots;      /* how many there are to scan */
    int rows;       /* KV rows: an index from 0 on and below this is valid */
};

/* The same in every thread of the block, but for `value`. */
struct block_scan {
    int scanned; /* slots looked at so far, a multiple of THREADS */
    int entries; /* entries put into the ring since the query began */
    int valid;   /* valid ones among them */
    int value;   /* slot scanned + threadIdx.x, loaded ahead */
};

DEVICE struct slot_row *block_scan_row(void) {
    return (struct slot_row *)(arena + SLOTS_OFFSET);
}

DEVICE void block_scan_load_ahead(struct block_scan *scan) {
    const int slot = scan->scanned + (int)threadIdx.x;
    scan->value = slot < block_scan_row()->slots ? block_scan_row()->row[slot] : MASKED;
}

/* Called by the whole block after *block_scan_row() was written and a barrier passed. */
DEVICE void block_scan_begin(struct block_scan *scan) {
    scan->scanned = 0;
    scan->entries = 0;
    scan->valid = 0;
    block_scan_load_ahead(scan);
}

/* Number of valid slots in lower warps, and in all of them, from the counts just written. */
DEVICE int block_scan_lower_warps(const int *counts, int warp, int *total) {
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
DEVICE void block_scan_more(struct block_scan *scan) {
    int *const ring = (int *)(arena + RING_OFFSET);
    int *const counts = (int *)(arena + COUNTS_OFFSET);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int row = scan->value;
    const bool valid = row >= 0 && row < block_scan_row()->rows;
    const u32 votes = __ballot_sync((u32)ALL_LANES, valid);
    if (lane == 0) {
        counts[warp] = __popc(votes);
    }
    __syncthreads();
    int total;
    const int rank = scan->valid + block_scan_lower_warps(counts, warp, &total) +
                     __popc(votes & ((1u << lane) - 1u));
    const bool keep = valid && rank < TOPK;
    if (COMPACT) {
        if (keep) {
            ring[rank & RING_MASK] = row;
        }
    } else {
        ring[(scan->entries + (int)threadIdx.x) & RING_MASK] = keep ? row : MASKED;
    }
    scan->valid = minimum(scan->valid + total, TOPK);
    scan->entries = COMPACT
                        ? scan->valid
                        : scan->entries + minimum(block_scan_row()->slots - scan->scanned, THREADS);
    scan->scanned = scan->valid < TOPK ? scan->scanned + THREADS : block_scan_row()->slots;
    block_scan_load_ahead(scan);
    __syncthreads();
}

/* Scans until the ring holds all entries of key block number `block`, or the row ends. Called by
 * the whole block. */
DEVICE void block_scan_reach(struct block_scan *scan, int block) {
    while (scan->entries < (block + 1) * BLOCK_KEYS && scan->scanned < block_scan_row()->slots) {
        block_scan_more(scan);
    }
}

/* Number of entries of a key block that was reached: BLOCK_KEYS but for the last, 0 past it. */
DEVICE int block_scan_count(const struct block_scan *scan, int block) {
    return minimum(maximum(scan->entries - block * BLOCK_KEYS, 0), BLOCK_KEYS);
}

/* A key block's entries: they do not wrap, RING_ENTRIES being a multiple of BLOCK_KEYS. MASKED
 * occurs only without COMPACT. */
DEVICE const int *block_scan_entries(int block) {
    return (const int *)(arena + RING_OFFSET) + (block * BLOCK_KEYS & RING_MASK);
}
