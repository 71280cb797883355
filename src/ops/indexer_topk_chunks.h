/*
 * How the queries of an indexer_topk call are taken: chunk by chunk, so that the logits of one
 * chunk are all that is in memory. A pure function of sizes, so that the host knows the launches.
 */
#ifndef SMELT_OPS_INDEXER_TOPK_CHUNKS_H
#define SMELT_OPS_INDEXER_TOPK_CHUNKS_H

#include <stddef.h>
#include <stdint.h>

enum { SMELT__CHUNK_ALIGNMENT = 256 /* bytes: of the workspace and of each array in it */ };

/* What chunks are made for. */
struct smelt__indexer_extent {
    int64_t tokens, rows; /* queries and keys, from 1 on */
    int block_queries;    /* that the logits' kernel takes at once */
    size_t select_bytes;  /* of workspace that the selection may want */
    size_t limit;         /* bytes that there are for all */
};

struct smelt__indexer_chunks {
    int64_t queries; /* of a chunk; the last one may have fewer */
    int64_t count;
    int64_t stride; /* elements from a row of the matrix of logits to the next */
    size_t bytes;   /* of workspace: a chunk's logits, and what the selection may want */
};

/* Bytes of a chunk's logits, from the workspace's beginning; the selection's are behind them. */
size_t smelt__indexer_chunk_bytes(const struct smelt__indexer_chunks *chunks, int64_t queries);

/* 0, or -1 when one query has no room; chunks->bytes is then what it needs. */
int smelt__indexer_chunks_make(const struct smelt__indexer_extent *extent,
                               struct smelt__indexer_chunks *chunks);

#endif
