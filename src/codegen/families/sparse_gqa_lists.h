/* What the kernel family sparse_gqa_lists and its callers agree on. */
#pragma once

#include "codegen/family.h"

/* Pass `unite`: the most slots of a tile whose lists it unites; tiles of a thread block. */
enum { SMELT__GQA_LISTS_MOST_SLOTS = 512, SMELT__GQA_LISTS_UNITE_TILES = 4 };

/* Passes `count` and `fill`: the lists of a thread block; a warp's counters of them are 4 KB. */
enum { SMELT__GQA_LISTS_AT_ONCE = 1024 };

extern const struct smelt__kernel_family smelt__sparse_gqa_lists;

/* Values of the key `pass`, in launch order. */
enum smelt__gqa_lists_pass {
    SMELT__GQA_LISTS_COUNT = 0,
    SMELT__GQA_LISTS_SCAN,
    SMELT__GQA_LISTS_FILL,
    SMELT__GQA_LISTS_PASSES,
    SMELT__GQA_LISTS_UNITE = SMELT__GQA_LISTS_PASSES /* before the others, if at all */
};
