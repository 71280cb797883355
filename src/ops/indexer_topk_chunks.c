/* See indexer_topk_chunks.h. */
#include "ops/indexer_topk_chunks.h"

#include "ops/divide.h"

enum { VECTOR = 4 /* fp32 that are written at once: rows begin at multiples of them */ };

static size_t align(size_t bytes) {
    return (bytes + SMELT__CHUNK_ALIGNMENT - 1) / SMELT__CHUNK_ALIGNMENT * SMELT__CHUNK_ALIGNMENT;
}

/* Queries of a chunk, at most `most`: chunks of about the same size, whose queries make whole
 * blocks if there is room for one. */
static int64_t balance(const struct smelt__indexer_extent *extent, int64_t most) {
    const int64_t block = extent->block_queries;
    if (most >= extent->tokens)
        return extent->tokens;
    if (most >= block)
        most = most / block * block;
    const int64_t even = smelt__divide_up(extent->tokens, smelt__divide_up(extent->tokens, most));
    const int64_t whole = smelt__divide_up(even, block) * block;
    return whole < most ? whole : most;
}

size_t smelt__indexer_chunk_bytes(const struct smelt__indexer_chunks *chunks, int64_t queries) {
    return align((size_t)(queries * chunks->stride) * sizeof(float));
}

int smelt__indexer_chunks_make(const struct smelt__indexer_extent *extent,
                               struct smelt__indexer_chunks *chunks) {
    const size_t select = align(extent->select_bytes);
    const size_t room = extent->limit > select ? extent->limit - select : 0;
    const size_t whole = room / SMELT__CHUNK_ALIGNMENT * SMELT__CHUNK_ALIGNMENT;
    chunks->stride = smelt__divide_up(extent->rows, VECTOR) * VECTOR;
    const size_t row = (size_t)chunks->stride * sizeof(float);
    const int64_t most = (int64_t)(whole / row);
    chunks->queries = balance(extent, most > 0 ? most : 1);
    chunks->count = smelt__divide_up(extent->tokens, chunks->queries);
    chunks->bytes = smelt__indexer_chunk_bytes(chunks, chunks->queries) + select;
    return most > 0 ? 0 : -1;
}
