/* Replaces src/ops/cuts.h, which explains the constants, by small values, so that calls small
 * enough for the emulator are split into several chunks, rounds and parts. */
#pragma once

/* A multiple of 64 that a test may set: the entries from one list of keys to the next. */
extern int smelt__cut_list_step;
#define SMELT__CUT_LIST_STEP smelt__cut_list_step

enum {
    SMELT__CUT_WAVE = 25, /* a group, and the multiprocessors that sums beside want (24) */
    SMELT__CUT_FEWEST_CHUNKS = 6,
    SMELT__CUT_FEWEST_ROWS = 0,
    SMELT__CUT_PARTIALS = 1 << 18,
    SMELT__CUT_ROUND_ENTRIES = 256,
    SMELT__CUT_ROUND_STARTS = 1 << 12,
    SMELT__CUT_ASCENDING_ROWS = 90,
    SMELT__CUT_LOOSE_ROWS = 150,
    SMELT__CUT_RESIDENT_RUNS = 2,
    SMELT__CUT_LONG_RUN = 16,
    SMELT__CUT_MOST_RUNS = 6,
    SMELT__CUT_TOPK_COLUMNS = 600,
    SMELT__CUT_TOPK_LEAST_PART = 32,
    SMELT__CUT_TOPK_WARP_COLUMNS = 64,
    SMELT__CUT_INDEX_CHUNK = 8,
    SMELT__CUT_RANGE_BYTES = 1 << 13,
    SMELT__CUT_SUMS_IN_L2 = 1 << 12,
};
