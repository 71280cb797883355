/* How indexer_topk takes its queries: every one of them, in chunks that have room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/indexer_topk_chunks.h"
#include "random.h"

enum { MOST_ROWS = 1 << 20, LIMIT = 128000000 };

static int64_t draw(struct random *random, int64_t limit) {
    const int64_t below = INT64_C(1) << random_below(random, 32);
    const int64_t value = (int64_t)(random_next(random) % (uint64_t)below) + 1;
    return value < limit ? value : limit;
}

static void whole(void **state) {
    static const int blocks[] = {1, 8, 32, 128};
    struct random random = random_begin("whole");
    (void)state;
    for (int i = 0; i < 100000; i++) {
        const struct smelt__indexer_extent extent = {
            .tokens = draw(&random, INT32_MAX),
            .rows = draw(&random, MOST_ROWS),
            .block_queries = blocks[random_below(&random, 4)],
            .select_bytes = (size_t)(random_below(&random, 2) ? draw(&random, 20000000) : 0),
            .limit = random_below(&random, 2) ? LIMIT : (size_t)draw(&random, LIMIT),
        };
        struct smelt__indexer_chunks chunks;
        const int failed = smelt__indexer_chunks_make(&extent, &chunks);
        const size_t row = (size_t)chunks.stride * sizeof(float);
        const size_t matrix = smelt__indexer_chunk_bytes(&chunks, chunks.queries);
        assert_true(chunks.queries > 0 && chunks.queries <= extent.tokens);
        assert_true(chunks.queries * chunks.count >= extent.tokens);
        assert_true(chunks.queries * (chunks.count - 1) < extent.tokens);
        assert_true(chunks.stride >= extent.rows && chunks.stride < extent.rows + 4);
        assert_true(chunks.stride % 4 == 0);
        assert_true(matrix >= (size_t)chunks.queries * row);
        assert_true(matrix % SMELT__CHUNK_ALIGNMENT == 0);
        assert_true(chunks.bytes >= matrix + extent.select_bytes);
        assert_true(failed ? chunks.bytes > extent.limit : chunks.bytes <= extent.limit);
        assert_true(!failed || chunks.queries == 1);
    }
}

/* Blocks are whole where there is room for one, and the chunks of about one size. */
static void balanced(void **state) {
    struct random random = random_begin("balanced");
    (void)state;
    for (int i = 0; i < 20000; i++) {
        const struct smelt__indexer_extent extent = {.tokens = draw(&random, 1 << 22),
                                                     .rows = draw(&random, MOST_ROWS),
                                                     .block_queries = 32,
                                                     .limit = LIMIT};
        struct smelt__indexer_chunks chunks;
        assert_int_equal(smelt__indexer_chunks_make(&extent, &chunks), 0);
        if (chunks.count == 1)
            continue;
        const int64_t room = LIMIT / (chunks.stride * 4) - 32;
        assert_true(chunks.queries % 32 == 0 || chunks.queries < 32);
        if (chunks.queries < 32)
            continue;
        /* As few as there can be, none of them short by more than a block for each. */
        assert_true(chunks.count <= extent.tokens / (room > 32 ? room : 32) + 1);
        assert_true(extent.tokens - (chunks.count - 1) * chunks.queries >
                    chunks.queries - 32 * chunks.count);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),
        cmocka_unit_test(balanced),
    };
    return cmocka_run_group_tests_name("chunks", tests, NULL, NULL);
}
