//@use common/base.cuh
/*
 * Scans a query's index row into a ring of KV row numbers, by the whole block, THREADS slots at a
 * time. With COMPACT only valid slots enter the ring, in slot order; else every slot does, masked
 * ones as MASKED. At most TOPK valid slots are kept.
 *
 * The ring is at RING_OFFSET (RING_ENTRIES ints, a power of two), with one count per warp at
 * COUNTS_OFFSET. A key block's entries stay valid until the scan has reached STAGES blocks more.
 */

enum { MASKED = -1, RING_MASK = RING_ENTRIES - 1 };

/* The scan's input, at SLOTS_OFFSET: kept in shared memory because registers are short. */
struct slot_row {
    const int *row; /* the query's indices */
    int slots;      /* slots to scan */
    int rows;       /* KV rows: an index in [0, rows) is valid */
};

/* Everything but `value` is the same in all threads of the block. */
struct block_scan {
    int scanned; /* slots scanned, a multiple of THREADS */
    int entries; /* entries written to the ring for this query */
    int valid;   /* the valid ones of these */
    int value;   /* slot scanned + threadIdx.x, prefetched */
};

DEVICE struct slot_row *block_scan_row(void) {
    return (struct slot_row *)(arena + SLOTS_OFFSET);
}

DEVICE void block_scan_load_ahead(struct block_scan *scan) {
    const int slot = scan->scanned + (int)threadIdx.x;
    scan->value = slot < block_scan_row()->slots ? block_scan_row()->row[slot] : MASKED;
}

/* By the whole block, after a barrier that follows the write of *block_scan_row(). */
DEVICE void block_scan_begin(struct block_scan *scan) {
    scan->scanned = 0;
    scan->entries = 0;
    scan->valid = 0;
    block_scan_load_ahead(scan);
}

/* The number of valid slots in lower warps and, in *total, in all warps. */
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

/* Scans THREADS more slots. By the whole block; contains two barriers. */
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

/* Scans until the ring holds all entries of key block `block`, or the row ends. By the whole block.
 */
DEVICE void block_scan_reach(struct block_scan *scan, int block) {
    while (scan->entries < (block + 1) * BLOCK_KEYS && scan->scanned < block_scan_row()->slots) {
        block_scan_more(scan);
    }
}

/* The number of entries of a scanned key block: BLOCK_KEYS except in the last; 0 past it. */
DEVICE int block_scan_count(const struct block_scan *scan, int block) {
    return minimum(maximum(scan->entries - block * BLOCK_KEYS, 0), BLOCK_KEYS);
}

/* A key block's entries. They are contiguous, since RING_ENTRIES is a multiple of BLOCK_KEYS.
 * MASKED occurs only without COMPACT. */
DEVICE const int *block_scan_entries(int block) {
    return (const int *)(arena + RING_OFFSET) + (block * BLOCK_KEYS & RING_MASK);
}
