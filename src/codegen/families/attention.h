/* Kernel families that several operators of attention over lists use. */
#pragma once

#include "codegen/family.h"

/* The list of keys of each group of queries: before sparse_attn's backward pass, and before sparse_gqa's
 * forward pass where it unites lists. Pass `transpose`: the lists by keys, in deterministic mode. */
extern const struct smelt__kernel_family smelt__attention_lists;
/* The statistics of each query's rows, before both operators' backward passes. */
extern const struct smelt__kernel_family smelt__attention_bwd_rows;

/* Values of the key `pass` of attention_lists. */
enum smelt__attention_lists_pass {
    SMELT__ATTENTION_LISTS_GROUP = 0,
    SMELT__ATTENTION_LISTS_TRANSPOSE
};

/* Queries of a group, at most: a byte holds their mask. */
enum { SMELT__ATTENTION_LISTS_MOST_GROUP = 8 };

/* Threads of a block of the pass `group`; keys that one of the pass `transpose` takes at a time. */
enum { SMELT__ATTENTION_LISTS_THREADS = 256, SMELT__ATTENTION_LISTS_RANGE = 256 };

/* Entries of a block of the kernel attention_bwd_rows. */
enum { SMELT__ATTENTION_BWD_ROWS_ENTRIES = 16 };
