/* indexer_topk's chunks: they cover all queries and fit into the workspace. */

#include "ops/indexer_topk_chunks.h"
#include "test.h"

enum { MOST_ROWS = 1 << 20, LIMIT = 128000000 };

/* The selection's kernels on a GPU that holds `resident` blocks of each. */
static struct smelt__topk_kernels kernels(const struct smelt__kernel *kernel) {
    return (struct smelt__topk_kernels){.rows = kernel, .parts = kernel, .topk = 2048};
}

/* fp32 logits [tokens, rows]. */
static struct smelt__indexer_extent extent_of(int64_t tokens, int64_t rows, int block_queries,
                                              const struct smelt__topk_kernels *select,
                                              size_t limit) {
    return (struct smelt__indexer_extent){
        .tokens = tokens,
        .rows = rows,
        .block_queries = block_queries,
        .groups = 1,
        .block_max = 1,
        .logit_bytes = 4,
        .select = select,
        .limit = limit,
    };
}

static struct smelt__indexer_extent draw_extent(struct random *random,
                                                const struct smelt__topk_kernels *select) {
    static const int blocks[] = {1, 8, 32, 128};
    const int64_t tokens = random_size(random, INT32_MAX), rows = random_size(random, MOST_ROWS);
    const int block = blocks[random_below(random, 4)];
    const size_t limit = random_below(random, 2) ? LIMIT : (size_t)random_size(random, LIMIT);
    return extent_of(tokens, rows, block, select, limit);
}

/* Checks a chunk; returns the workspace that it needs. */
static size_t check_chunk(const struct smelt__indexer_extent *extent,
                          const struct smelt__indexer_chunk *chunk, int64_t first) {
    const int64_t last = first + chunk->count - 1, seen = last + extent->causal_limit;
    assert_true(chunk->first == first && chunk->count > 0 && last < extent->tokens);
    assert_true(chunk->columns ==
                (extent->causal_limit > 0 && seen < extent->rows ? seen : extent->rows));
    assert_true(chunk->stride >= chunk->columns && chunk->stride < chunk->columns + 4);
    assert_true(chunk->stride % 4 == 0);
    assert_true(chunk->logits_bytes >= (size_t)(chunk->count * chunk->stride) * sizeof(float));
    assert_true(chunk->logits_bytes % SMELT__WORKSPACE_ALIGNMENT == 0);
    return chunk->logits_bytes +
           smelt__topk_workspace(extent->select, chunk->count, chunk->columns);
}

TEST(whole) {
    const struct smelt__kernel parts = {.resident_blocks = 528};
    const struct smelt__topk_kernels select = kernels(&parts);
    struct random random = random_begin("whole");
    for (int i = 0; i < 100000; i++) {
        const struct smelt__indexer_extent extent = draw_extent(&random, &select);
        struct smelt__indexer_chunks chunks;
        const int failed = smelt__indexer_chunks_make(&extent, &chunks);
        assert_true(chunks.even > 0 && chunks.even <= extent.tokens);
        assert_true(chunks.even * chunks.count >= extent.tokens);
        assert_true(chunks.even * (chunks.count - 1) < extent.tokens);
        assert_true(failed ? chunks.bytes > extent.limit : chunks.bytes <= extent.limit);
        assert_true(!failed || chunks.even == 1);
        const int64_t firsts[] = {0, (chunks.count - 1) * chunks.even};
        for (int k = 0; k < 2; k++) {
            const struct smelt__indexer_chunk chunk = smelt__indexer_chunk_at(&chunks, firsts[k]);
            assert_true(check_chunk(&extent, &chunk, firsts[k]) <= chunks.bytes);
            assert_true(chunk.count == chunks.even || k == 1);
        }
    }
}

/* Chunks consist of whole blocks if one fits, and have about the same size. */
TEST(balanced) {
    const struct smelt__kernel parts = {.resident_blocks = 1};
    const struct smelt__topk_kernels select = kernels(&parts);
    struct random random = random_begin("balanced");
    for (int i = 0; i < 20000; i++) {
        const int64_t tokens = random_size(&random, 1 << 22),
                      rows = random_size(&random, MOST_ROWS);
        const struct smelt__indexer_extent extent = extent_of(tokens, rows, 32, &select, LIMIT);
        struct smelt__indexer_chunks chunks;
        assert_int_equal(smelt__indexer_chunks_make(&extent, &chunks), 0);
        if (chunks.count == 1)
            continue;
        const int64_t room = LIMIT / (smelt__indexer_chunk_at(&chunks, 0).stride * 4) - 32;
        assert_true(chunks.even % 32 == 0 || chunks.even < 32);
        if (chunks.even < 32)
            continue;
        /* As few chunks as possible, up to a block per chunk. */
        assert_true(chunks.count <= extent.tokens / (room > 32 ? room : 32) + 1);
        assert_true(extent.tokens - (chunks.count - 1) * chunks.even >
                    chunks.even - 32 * chunks.count);
    }
}

/* Causal chunks: consecutive, as large as the workspace permits, and not more than even ones. */
TEST(causal) {
    struct random random = random_begin("causal");
    for (int i = 0; i < 3000; i++) {
        const struct smelt__kernel parts = {.resident_blocks = (int64_t)random_below(&random, 600)};
        const struct smelt__topk_kernels select = kernels(&parts);
        struct smelt__indexer_extent extent = draw_extent(&random, &select);
        struct smelt__indexer_chunks even, chunks;
        extent.tokens = extent.tokens % 20000 + 1;
        const int failed = smelt__indexer_chunks_make(&extent, &even);
        extent.causal_limit = random_size(&random, INT32_MAX);
        assert_int_equal(smelt__indexer_chunks_make(&extent, &chunks), failed);
        if (failed)
            continue;
        size_t bytes = 0;
        int64_t first = 0, count = 0;
        for (; first < extent.tokens; count++) {
            const struct smelt__indexer_chunk chunk = smelt__indexer_chunk_at(&chunks, first);
            const size_t needed = check_chunk(&extent, &chunk, first);
            bytes = needed > bytes ? needed : bytes;
            assert_true(chunk.count % extent.block_queries == 0 ||
                        chunk.count < extent.block_queries || first + chunk.count == extent.tokens);
            first += chunk.count;
        }
        assert_int_equal(first, extent.tokens);
        assert_true(bytes <= extent.limit);
        assert_int_equal(chunks.bytes, count == 1 ? bytes : extent.limit);
        /* The rest may take two, because the selection from few rows needs workspace, too. */
        assert_true(count <= even.count + 1);
    }
}

/* The number of chunks costs no host time: a thousand calls with millions of chunks each. */
TEST(at_once) {
    const struct smelt__kernel parts = {.resident_blocks = 528};
    const struct smelt__topk_kernels select = kernels(&parts);
    struct random random = random_begin("at once");
    const clock_t begin = clock();
    for (int i = 0; i < 1000; i++) {
        struct smelt__indexer_extent extent =
            extent_of(INT32_MAX, (1 << 17) + random_size(&random, 1 << 19), 32, &select, 32 << 20);
        extent.causal_limit = random_size(&random, INT32_MAX);
        struct smelt__indexer_chunks chunks;
        assert_int_equal(smelt__indexer_chunks_make(&extent, &chunks), 0);
    }
    assert_true(clock() - begin < CLOCKS_PER_SEC);
}

static int64_t count_chunks(const struct smelt__indexer_chunks *chunks) {
    int64_t count = 0;
    for (int64_t first = 0; first < chunks->extent.tokens; count++)
        first += smelt__indexer_chunk_at(chunks, first).count;
    return count;
}

/* The purpose: half as many chunks if there are as many queries as keys. */
TEST(halved) {
    const struct smelt__kernel parts = {.resident_blocks = 528};
    const struct smelt__topk_kernels select = kernels(&parts);
    struct smelt__indexer_extent extent = extent_of(65536, 65536, 32, &select, LIMIT);
    struct smelt__indexer_chunks even, chunks;
    assert_int_equal(smelt__indexer_chunks_make(&extent, &even), 0);
    extent.causal_limit = 1;
    assert_int_equal(smelt__indexer_chunks_make(&extent, &chunks), 0);
    assert_int_equal(even.count, 137);
    assert_in_range(count_chunks(&chunks), 67, 78);
}

/* A chunk whose last wave of the selection would be nearly empty is reduced to whole waves; a
 * half-filled wave is kept. */
TEST(waves) {
    static const struct {
        int64_t rows, even;
    } cases[] = {{65536, 488}, {56000, 528}, {42000, 528}, {41000, 776}, {29000, 1056}};
    const struct smelt__kernel kernel = {.resident_blocks = 528};
    const struct smelt__topk_kernels select = kernels(&kernel);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct smelt__indexer_extent extent =
            extent_of(cases[i].even * 1000, cases[i].rows, 8, &select, LIMIT);
        struct smelt__indexer_chunks chunks;
        assert_int_equal(smelt__indexer_chunks_make(&extent, &chunks), 0);
        assert_int_equal(chunks.even, cases[i].even);
        extent.causal_limit = 1;
        assert_int_equal(smelt__indexer_chunks_make(&extent, &chunks), 0);
        const struct smelt__indexer_chunk chunk = smelt__indexer_chunk_at(&chunks, cases[i].rows);
        assert_int_equal(chunk.columns, cases[i].rows);
        assert_int_equal(chunk.count, cases[i].even);
    }
}

TESTS("chunks")
