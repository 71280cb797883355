/* Replaces src/ops/split_sizes.h, which explains the constants, by small values, so that calls small
 * enough for the emulator are split into several chunks, rounds and parts. */
#pragma once

/* A multiple of 64 that a test may set: the entries from one list of keys to the next. */
extern int smelt__split_list_step;
#define SMELT__SPLIT_LIST_STEP smelt__split_list_step

enum {
    SMELT__SPLIT_WAVE = 25, /* a group, and the 24 multiprocessors for sums that overlap it */
    SMELT__SPLIT_FEWEST_CHUNKS = 6,
    SMELT__SPLIT_FEWEST_ROWS = 0,
    SMELT__SPLIT_PARTIALS = 1 << 18,
    SMELT__SPLIT_ROUND_ENTRIES = 256,
    SMELT__SPLIT_ROUND_STARTS = 1 << 12,
    SMELT__SPLIT_ASCENDING_ROWS = 90,
    SMELT__SPLIT_LOOSE_ROWS = 150,
    SMELT__SPLIT_RESIDENT_RUNS = 2,
    SMELT__SPLIT_LONG_RUN = 16,
    SMELT__SPLIT_MOST_RUNS = 6,
    SMELT__SPLIT_TOPK_COLUMNS = 600,
    SMELT__SPLIT_TOPK_LEAST_PART = 32,
    SMELT__SPLIT_TOPK_WARP_COLUMNS = 64,
    SMELT__SPLIT_INDEX_CHUNK = 8,
    SMELT__SPLIT_RANGE_BYTES = 1 << 13,
    SMELT__SPLIT_SUMS_IN_L2 = 1 << 12,
    SMELT__SPLIT_EXACT_QUERIES = 12,
    SMELT__SPLIT_PARTIAL_KIB = 64,
};
