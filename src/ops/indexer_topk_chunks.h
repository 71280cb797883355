/*
 * How the queries of an indexer_topk call are taken: chunk by chunk, so that the logits of one
 * chunk are all that is in memory. A pure function of sizes, so that the host knows the launches.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ops/args_table.h"
#include "ops/topk_select_rows.h"

/* What chunks are made for. */
struct smelt__indexer_extent {
    int64_t tokens, rows; /* queries and keys, from 1 on */
    int64_t causal_limit; /* above 0: query t's window ends at key t + causal_limit at the latest */
    int block_queries;    /* that the logits' kernel takes at once */
    int groups, block_max; /* rows of logits of a query; keys of a logit */
    int logit_bytes;       /* of a logit in the workspace */
    int64_t columns;       /* above 0: logits of a row, of candidates, whatever its keys */
    const struct smelt__topk_kernels *select;  /* that choose from a chunk's logits */
    const struct smelt__topk_kernels *publish; /* that choose blocks to publish; NULL: none */
    int publish_block;                         /* keys of such a block */
    size_t limit;                              /* bytes that there are for all */
};

/* Some of a call's queries. */
struct smelt__indexer_chunk {
    int64_t first, count;
    int64_t keys;    /* that their windows may have */
    int64_t columns; /* logits of a row */
    int64_t stride;  /* elements from a row of logits to the next; a query has one for each group */
    size_t logits_bytes; /* at the workspace's beginning; the selection's workspace follows */
};

struct smelt__indexer_chunks {
    struct smelt__indexer_extent extent;
    /* If all chunks have the same number of columns (no causal_limit): */
    int64_t even;    /* queries per chunk, except for the last */
    size_t reserved; /* bytes per chunk for the top-k selection */
    int64_t count;
    size_t bytes; /* of workspace, for any chunks */
};

/* 0, or -1 if one query does not fit; chunks->bytes is then the size that it needs. */
int smelt__indexer_chunks_make(const struct smelt__indexer_extent *extent,
                               struct smelt__indexer_chunks *chunks);

/* The chunk that begins with query `first`, below tokens: 0, or the end of the one before. */
struct smelt__indexer_chunk smelt__indexer_chunk_at(const struct smelt__indexer_chunks *chunks,
                                                    int64_t first);
