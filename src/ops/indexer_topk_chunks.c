/* See indexer_topk_chunks.h. */
#include "ops/indexer_topk_chunks.h"

#include "ops/divide.h"

enum { VECTOR = 4 /* logits that are written at once: rows begin at multiples of it */ };

static size_t align(size_t bytes) {
    return (bytes + SMELT__WORKSPACE_ALIGNMENT - 1) / SMELT__WORKSPACE_ALIGNMENT *
           SMELT__WORKSPACE_ALIGNMENT;
}

static int64_t minimum(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Logits of a row of so many keys. */
static int64_t columns_of(const struct smelt__indexer_extent *extent, int64_t keys) {
    return extent->columns > 0 ? extent->columns : smelt__divide_up(keys, extent->block_max);
}

/* The chunk of `count` queries from `first` on. */
static struct smelt__indexer_chunk make_chunk(const struct smelt__indexer_extent *extent,
                                              int64_t first, int64_t count) {
    struct smelt__indexer_chunk chunk = {.first = first, .count = count, .keys = extent->rows};
    if (extent->causal_limit > 0)
        chunk.keys = minimum(extent->rows, first + count - 1 + extent->causal_limit);
    chunk.columns = columns_of(extent, chunk.keys);
    chunk.stride = smelt__divide_up(chunk.columns, VECTOR) * VECTOR;
    chunk.logits_bytes =
        align((size_t)(count * extent->groups * chunk.stride * extent->logit_bytes));
    return chunk;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* The workspace of the selections from the logits of so many queries, which share it. */
static size_t select_bytes(const struct smelt__indexer_extent *extent, int64_t queries,
                           int64_t keys) {
    const int64_t rows = queries * extent->groups;
    const size_t bytes = smelt__topk_workspace(extent->select, rows, columns_of(extent, keys));
    return !extent->publish
               ? bytes
               : larger(bytes,
                        smelt__topk_workspace(extent->publish, rows,
                                              smelt__divide_up(keys, extent->publish_block)));
}

/* Bytes of workspace: the logits, and the workspace of the selection from them. */
static size_t chunk_bytes(const struct smelt__indexer_extent *extent,
                          const struct smelt__indexer_chunk *chunk) {
    return chunk->logits_bytes + select_bytes(extent, chunk->count, chunk->keys);
}

/* What the selection wants at most, of any number of queries. */
static size_t most_select(const struct smelt__indexer_extent *extent) {
    const size_t bytes =
        smelt__topk_most_workspace(extent->select, columns_of(extent, extent->rows));
    return align(!extent->publish
                     ? bytes
                     : larger(bytes, smelt__topk_most_workspace(
                                         extent->publish,
                                         smelt__divide_up(extent->rows, extent->publish_block))));
}

/* At most `most` queries: fewer where the selection would else begin with one more wave of thread
 * blocks that is hardly filled. A wave takes about as long however few there are, so that from
 * NINTHS of a full one on it pays. */
static int64_t whole_waves(const struct smelt__indexer_extent *extent, int64_t most) {
    enum { NINTHS = 4 };
    const int64_t wave = extent->select->rows->resident_blocks / extent->groups;
    const int64_t rest = wave > 0 ? most % wave : 0;
    return most > wave && rest * 9 < wave * NINTHS ? most - rest : most;
}

/* ---- all chunks with the same columns -------------------------------------------------------- */

/* Queries of a chunk, at most `most`: chunks of about the same size, whose queries make whole
 * blocks if there is room for one. */
static int64_t balance(const struct smelt__indexer_extent *extent, int64_t most) {
    const int64_t block = extent->block_queries;
    if (most >= extent->tokens)
        return extent->tokens;
    most = whole_waves(extent, most);
    if (most >= block)
        most = most / block * block;
    const int64_t even = smelt__divide_up(extent->tokens, smelt__divide_up(extent->tokens, most));
    const int64_t whole = smelt__divide_up(even, block) * block;
    return whole < most ? whole : most;
}

/* Chunks that leave so many bytes to the selection. */
static int make_even(const struct smelt__indexer_extent *extent, size_t reserved,
                     struct smelt__indexer_chunks *chunks) {
    const size_t room = extent->limit > reserved ? extent->limit - reserved : 0;
    const size_t whole = room / SMELT__WORKSPACE_ALIGNMENT * SMELT__WORKSPACE_ALIGNMENT;
    const int64_t columns = columns_of(extent, extent->rows);
    const int64_t stride = smelt__divide_up(columns, VECTOR) * VECTOR;
    const int64_t most = (int64_t)(whole / (size_t)(stride * extent->groups * extent->logit_bytes));
    *chunks = (struct smelt__indexer_chunks){.extent = *extent, .reserved = reserved};
    chunks->extent.causal_limit = 0;
    chunks->even = balance(extent, most > 0 ? most : 1);
    chunks->count = smelt__divide_up(extent->tokens, chunks->even);
    chunks->bytes = make_chunk(&chunks->extent, 0, chunks->even).logits_bytes + reserved;
    return most > 0 ? 0 : -1;
}

/* Room for the selection where a shorter last chunk alone wants some: behind its logits. 0, or -1
 * when others want it, too, or it is too much. */
static int add_last_select(struct smelt__indexer_chunks *chunks) {
    const struct smelt__indexer_extent *extent = &chunks->extent;
    const int64_t first = (chunks->count - 1) * chunks->even;
    const struct smelt__indexer_chunk last = make_chunk(extent, first, extent->tokens - first);
    const size_t bytes = chunk_bytes(extent, &last);
    if (select_bytes(extent, chunks->even, extent->rows) > 0 || bytes > extent->limit)
        return -1;
    if (bytes > chunks->bytes)
        chunks->bytes = bytes;
    return 0;
}

/* ---- causal ones ----------------------------------------------------------------------------- */

/* The largest chunk from `first` on whose logits have room, of whole blocks if there is room for
 * one. */
static struct smelt__indexer_chunk largest(const struct smelt__indexer_extent *extent,
                                           int64_t first, size_t room) {
    int64_t fits = 1, above = extent->tokens - first + 1; /* the first one that does not */
    while (above - fits > 1) {
        const int64_t middle = fits + (above - fits) / 2;
        if (make_chunk(extent, first, middle).logits_bytes <= room)
            fits = middle;
        else
            above = middle;
    }
    if (fits < extent->tokens - first)
        fits = whole_waves(extent, fits);
    if (fits < extent->tokens - first && fits >= extent->block_queries)
        fits = fits / extent->block_queries * extent->block_queries;
    return make_chunk(extent, first, fits);
}

static struct smelt__indexer_chunk causal_chunk(const struct smelt__indexer_extent *extent,
                                                int64_t first) {
    const struct smelt__indexer_chunk chunk = largest(extent, first, extent->limit);
    const size_t select = most_select(extent);
    if (chunk_bytes(extent, &chunk) <= extent->limit)
        return chunk;
    return largest(extent, first, extent->limit > select ? extent->limit - select : 0);
}

/* With several chunks the workspace is as large as the limit allows, and each chunk takes as many
 * queries as fit. Finding the largest chunk would mean iterating over all, possibly millions. */
static void make_causal(struct smelt__indexer_chunks *chunks, int64_t causal_limit) {
    struct smelt__indexer_extent *extent = &chunks->extent;
    extent->causal_limit = causal_limit;
    const struct smelt__indexer_chunk chunk = causal_chunk(extent, 0);
    chunks->bytes = chunk.count == extent->tokens ? chunk_bytes(extent, &chunk) : extent->limit;
}

/* ---- both ------------------------------------------------------------------------------------ */

int smelt__indexer_chunks_make(const struct smelt__indexer_extent *extent,
                               struct smelt__indexer_chunks *chunks) {
    int failed = make_even(extent, 0, chunks);
    if (add_last_select(chunks))
        failed = make_even(extent, most_select(extent), chunks);
    if (!failed && extent->causal_limit > 0)
        make_causal(chunks, extent->causal_limit);
    return failed;
}

struct smelt__indexer_chunk smelt__indexer_chunk_at(const struct smelt__indexer_chunks *chunks,
                                                    int64_t first) {
    const struct smelt__indexer_extent *extent = &chunks->extent;
    if (extent->causal_limit > 0)
        return causal_chunk(extent, first);
    return make_chunk(extent, first, minimum(extent->tokens - first, chunks->even));
}
