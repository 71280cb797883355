/* The kernel families that sparse_attn and sparse_gqa share. */
#pragma once

#include "codegen/family.h"

/* Pass `group`: the list of keys of each group of queries, for sparse_attn's backward pass and for
 * sparse_gqa's forward pass with united lists. Pass `transpose`: the lists by keys, for sparse_attn's
 * deterministic mode. */
extern const struct smelt__kernel_family smelt__attention_lists;
/* The statistics of each query's rows, for both operators' backward passes. */
extern const struct smelt__kernel_family smelt__attention_bwd_rows;

/* Values of the key `pass` of attention_lists. */
enum smelt__attention_lists_pass {
    SMELT__ATTENTION_LISTS_GROUP = 0,
    SMELT__ATTENTION_LISTS_TRANSPOSE
};

/* Queries of a group, at most: a byte holds their mask. */
enum { SMELT__ATTENTION_LISTS_MOST_GROUP = 8 };

/* Threads of a block of the pass `group`; keys that a block of the pass `transpose` processes at a time. */
enum { SMELT__ATTENTION_LISTS_THREADS = 256, SMELT__ATTENTION_LISTS_RANGE = 256 };

/* Entries of the query list that a block of attention_bwd_rows processes. */
enum { SMELT__ATTENTION_BWD_ROWS_ENTRIES = 16 };
