/*
 * Sizes by which calls are cut into chunks, rounds and parts, and from which on they are. They
 * stand apart from the code that cuts, so that tests/emu builds the library with small ones
 * (tests/emu/cuts/ops/cuts.h): problems of the emulator's size then take every path. Results may
 * depend on them only where an operator's documents say so: in the order of a deterministic sum.
 */
#ifndef SMELT_OPS_CUTS_H
#define SMELT_OPS_CUTS_H

enum {
    /* Chunks of partial rows (key_grads.c) are whole waves of groups where they can be: of the
     * largest Hopper GPUs, since the order of sums must not depend on the device. */
    SMELT__CUT_WAVE = 132,
    /* Chunks that a call has at the least where sums run beside the next chunk's main kernel: the
     * last sums do not. */
    SMELT__CUT_FEWEST_CHUNKS = 6,
    /* Partial rows a key, below which chunks of half the size cost more than that brings: each
     * chunk reads and writes the sums of every key. (Measured: 21 bring a little, 5 cost 9 %.) */
    SMELT__CUT_FEWEST_ROWS = 16,
    /* What partial rows may take when the caller does not say, bytes. */
    SMELT__CUT_PARTIALS = 1536 << 20,

    /* A round of lists by keys (sparse_attn_segments.c) has at most 16 MB of entries, but for one
     * chunk's that are more: entries are written here and there in a range's, and stay in the L2
     * cache until they are all there. Likewise its starts. */
    SMELT__CUT_ROUND_ENTRIES = 1 << 22,
    SMELT__CUT_ROUND_STARTS = 1 << 22,

    /* Rows of KV above which lists are put into ascending order (sparse_attn_grad_params.c): from
     * there on dkv's sums and kv no longer stay in the L2 cache together, and neighbours in a list
     * come by together. */
    SMELT__CUT_ASCENDING_ROWS = 12288,
    /* Up to so many rows of kv the thread blocks' waits for each other cost more than they bring
     * when they stand right ahead of the copies (measured at 32768 and 65536:
     * templates/sparse_attn_bwd.lost.md). Above, a
     * thread block of the main kernel asks lists that are not its own how near to stand. */
    SMELT__CUT_LOOSE_ROWS = 49152,

    /* Entries of one run of the partition (sparse_attn_partition.c): as few as fill one wave of
     * blocks of a large GPU, but no more than LONG_RUN for that; then as few as leave no more than
     * MOST_RUNS, since each block of the second pass sums their histograms. */
    SMELT__CUT_RESIDENT_RUNS = 512,
    SMELT__CUT_LONG_RUN = 64,
    SMELT__CUT_MOST_RUNS = 2048,

    /* Several thread blocks share a row of the selection (topk_select_rows.c) from COLUMNS on,
     * below which a block each is faster however few rows there are; each has LEAST_PART elements
     * at the least. */
    SMELT__CUT_TOPK_COLUMNS = 32768,
    SMELT__CUT_TOPK_LEAST_PART = 4096,
};

#endif
