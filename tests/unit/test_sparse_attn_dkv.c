/* The deterministic backward pass's transposed lists: their workspace and its division. */

#include "codegen/families/attention.h"
#include "codegen/family.h"
#include "ops/sparse_attn_dkv.h"
#include "test.h"

/* Each chunk of a round has its own starts and each list its own entries; the indices of both, and of the
 * transpose's ranges, fit in an int. */
TEST(cut) {
    struct random random = random_begin("cut");
    for (int i = 0; i < 50000; i++) {
        const struct smelt__dkv_shape shape = {.columns = 64,
                                               .deterministic = 1,
                                               .group_items = 1 + random_below(&random, 3),
                                               .key_rows = 1 + random_below(&random, 2),
                                               .sum_multiprocessors = random_below(&random, 30)};
        struct smelt__dkv_layout layout = {.groups = random_size(&random, INT32_MAX),
                                           .key_count = random_size(&random, INT32_MAX)};
        size_t bytes = 0;
        layout.key_stride = (int)(random_size(&random, INT32_MAX / 128) * 64);
        smelt__dkv_place(&shape, (size_t)random_size(&random, INT64_C(1) << 32), &bytes, &layout);
        const int64_t ranges = (layout.key_count - 1) / SMELT__ATTENTION_LISTS_RANGE + 1;
        const int64_t groups = layout.groups < layout.round ? layout.groups : layout.round;
        const int64_t chunks = (groups - 1) / layout.chunk + 1;
        const size_t ends[] = {layout.entry_list[0], layout.starts[1], layout.entry_list[1],
                               layout.partials};
        const size_t begins[] = {layout.starts[0], layout.entry_list[0], layout.starts[1],
                                 layout.entry_list[1]};
        assert_true(layout.round % layout.chunk == 0);
        for (int k = 0; k < (layout.kept > 1 && layout.groups > layout.round ? 4 : 2); k++)
            assert_true(ends[k] - begins[k] >= (size_t)(k % 2 ? groups * layout.key_stride
                                                              : chunks * (layout.key_count + 1)) *
                                                   sizeof(int));
        assert_true(groups * layout.key_stride <= INT32_MAX && chunks * ranges <= INT32_MAX);
    }
}

/* The rule's figures: rounds of at most 2048 lists of 2048 keys, unless a chunk has more. */
TEST(rounds) {
    const struct smelt__dkv_shape shape = {
        .columns = 64, .deterministic = 1, .group_items = 1, .key_rows = 1};
    static const struct {
        int limit, key_stride, key_count; /* limit: groups of a chunk */
        int chunk, least, most;           /* most: groups of a round */
    } cases[] = {{339, 2048, 8192, 2 * 132, 2048 - 2 * 132, 2048},
                 {339, 2048, 20000000, 2 * 132, 2 * 132, 2 * 132},
                 {40, 1 << 24, 8192, 40, 40, 40}};
    for (int i = 0; i < 3; i++) {
        struct smelt__dkv_layout layout = {
            .groups = 100000, .key_count = cases[i].key_count, .key_stride = cases[i].key_stride};
        const size_t group = (size_t)cases[i].key_stride * 64 * 2;
        size_t bytes = 0;
        smelt__dkv_place(&shape, (size_t)cases[i].limit * group, &bytes, &layout);
        assert_int_equal(layout.chunk, cases[i].chunk);
        assert_in_range(layout.round, cases[i].least, cases[i].most);
    }
}

/* Partial rows stay within the limit for any number of groups, unless one group's exceed it. (An
 * earlier rule used 1.3 times the limit where six half limits just held all groups.) */
TEST(limited) {
    static const size_t limits[] = {0, 1, 40000000, 900000000, (size_t)8 << 30};
    for (size_t i = 0; i < 4 * sizeof limits / sizeof *limits; i++) {
        const int pair = i % 4 > 1;
        const struct smelt__dkv_shape shape = {.columns = 576,
                                               .deterministic = 1,
                                               .group_items = 1 + pair,
                                               .key_rows = 1,
                                               .sum_multiprocessors = i % 2 ? 24 : 0};
        const size_t limit = limits[i / 4], most = limit ? limit : (size_t)1536 << 20;
        for (int64_t groups = 1; groups < 5000; groups++) {
            struct smelt__dkv_layout layout = {
                .groups = groups, .key_count = 8192, .key_stride = 2048};
            size_t bytes = 0;
            smelt__dkv_place(&shape, limit, &bytes, &layout);
            assert_true(layout.chunk == 1 || (size_t)layout.kept * layout.kept_bytes <= most);
            assert_true(bytes >= (size_t)layout.kept * layout.kept_bytes);
        }
    }
}

/* The plan has the ranges that launches assume. */
TEST(ranges) {
    struct smelt__message message;
    struct smelt__spec spec;
    struct smelt__plan plan;
    int found;
    smelt__spec_init(&spec, &smelt__attention_lists.schema);
    smelt__spec_set(&spec, "pass", SMELT__ATTENTION_LISTS_TRANSPOSE);
    for (int i = 0; smelt__arch_at(i); i++) {
        assert_int_equal(smelt__plan_make(&spec, smelt__arch_at(i), &plan, &message), 0);
        assert_int_equal(smelt__plan_constant(&plan, "RANGE", &found),
                         SMELT__ATTENTION_LISTS_RANGE);
    }
}

TESTS("sparse_attn_dkv")
