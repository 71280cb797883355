/*
 * Sizes of the chunks, rounds and parts that calls are split into, and thresholds for splitting.
 * They have a header of their own so that tests/emu can build the library with small values
 * (tests/emu/small_splits/ops/split_sizes.h); problems small enough for the emulator then take every
 * path. Results may depend on these values only where docs/operators.md says so: in the order of a
 * deterministic sum.
 */
#pragma once

enum {
    /* Groups in one wave on the largest Hopper GPUs, also on other devices: the order of sums must
     * not depend on the device. A chunk of partial rows (sparse_attn_dkv.c) is a whole number of waves
     * where possible. */
    SMELT__SPLIT_WAVE = 132,
    /* Least number of chunks where a chunk's sums overlap the next chunk's main kernel. (The last
     * chunk's sums overlap nothing, so few chunks gain little.) */
    SMELT__SPLIT_FEWEST_CHUNKS = 6,
    /* Partial rows per key below which halving the chunk size costs more than it gains, since each
     * chunk reads and writes the sums of every key. (Measured: a small gain at 21, a loss of 9 % at
     * 5.) */
    SMELT__SPLIT_FEWEST_ROWS = 16,
    /* Lists of keys in the workspace begin at multiples of this number of entries: whole key blocks. */
    SMELT__SPLIT_LIST_STEP = 64,
    /* Bytes of partial rows if the caller sets no limit. */
    SMELT__SPLIT_PARTIALS = 1536 << 20,

    /* Entries in a round of the CSR-to-CSC transpose (sparse_attn_dkv.c): 16 MB, unless a
     * single chunk has more. The kernel writes a range's entries in scattered order; at this size
     * they stay in L2 until all are written. The same holds for the starts of the lists. */
    SMELT__SPLIT_ROUND_ENTRIES = 1 << 22,
    SMELT__SPLIT_ROUND_STARTS = 1 << 22,

    /* KV rows above which lists are sorted in ascending order (sparse_attn_backward.c). Beyond
     * this size dkv's sums and kv no longer fit into L2 together; with sorted lists the thread
     * blocks access neighbouring rows at about the same time. */
    SMELT__SPLIT_ASCENDING_ROWS = 12288,
    /* KV rows up to which the main kernel's thread blocks keep in step loosely (STEP_LOOSE). Waits
     * right before the copies (STEP_CLOSE) then cost more than they gain (measured at 32768 and
     * 65536: templates/sparse_attn_bwd.lost.md). Above, each thread block chooses between the two
     * by other blocks' lists. */
    SMELT__SPLIT_LOOSE_ROWS = 49152,

    /* Length of a run of the partition (sparse_attn_partition.c), in entries: the smallest that
     * makes at most RESIDENT_RUNS runs, one wave of blocks on a large GPU, but at most LONG_RUN;
     * longer only where needed for at most MOST_RUNS runs, since each block of the second pass sums
     * the histograms of the runs. */
    SMELT__SPLIT_RESIDENT_RUNS = 512,
    SMELT__SPLIT_LONG_RUN = 64,
    SMELT__SPLIT_MOST_RUNS = 2048,

    /* Rows of at least COLUMNS elements may be split between thread blocks in top-k selection
     * (topk_select_rows.c), at least LEAST_PART elements for each. In shorter rows one block per
     * row is faster even if there are few rows. */
    SMELT__SPLIT_TOPK_COLUMNS = 32768,
    SMELT__SPLIT_TOPK_LEAST_PART = 4096,
    /* Rows of at most this many elements, counted from a 16-byte boundary, may have one warp each: what
     * the kernel's registers hold. */
    SMELT__SPLIT_TOPK_WARP_COLUMNS = 1024,

    /* Entries of a chunk of sparse_gqa's reverse index, at least: 16 of each warp of its last kernel. */
    SMELT__SPLIT_INDEX_CHUNK = 128,
    /* Bytes of q and grad_out of one KV head that a launch of sparse_gqa_bwd_keys takes: they stay in the
     * L2 cache. (Measured, H200: with parts of two tiles 12, 24 and 48 MB 21.63, 21.47 and 21.61 ms a
     * call, all at once 21.92; with parts of four no difference.) */
    SMELT__SPLIT_RANGE_BYTES = 24 << 20,
    /* Bytes of sparse_gqa's sums of dk and dv up to which additions find them in the L2 cache. (Measured,
     * H200, by query and by key: 33 MB 21.8 and 21.0 ms, 67 MB 40.4 and 21.2 ms.) */
    SMELT__SPLIT_SUMS_IN_L2 = 40 << 20,
    /* The most queries of a batch for which sparse_gqa's deterministic backward pass computes exact sums. With more,
     * exact sums would round too many bits away. */
    SMELT__SPLIT_EXACT_QUERIES = 1 << 16,
    /* KiB of sparse_gqa's partial results at a time: 2.5 GiB. */
    SMELT__SPLIT_PARTIAL_KIB = 5 << 19,
};
