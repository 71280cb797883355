/* The deterministic backward pass's transposed lists: their workspace and its division. */

#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/family.h"
#include "ops/key_grads.h"
#include "ops/sparse_attn_segments.h"
#include "test.h"

enum { MOST_CHUNK = INT32_MAX / 64 };

/* 1..limit, small ones as often as large ones. */
static int64_t draw(struct random *random, int64_t limit) {
    const int64_t below = INT64_C(1) << random_below(random, 32);
    const int64_t value = (int64_t)(random_next(random) % (uint64_t)below) + 1;
    return value < limit ? value : limit;
}

struct shape {
    int64_t groups, chunk, key_stride, key_count;
};

static struct shape draw_shape(struct random *random) {
    struct shape shape = {.chunk = draw(random, MOST_CHUNK), .key_count = draw(random, INT32_MAX)};
    shape.key_stride = draw(random, INT32_MAX / 64 / shape.chunk) * 64;
    shape.groups = draw(random, shape.chunk * smelt__segments_round(shape.chunk, shape.key_stride,
                                                                    shape.key_count));
    return shape;
}

static struct smelt__segments_layout layout_of(const struct shape *shape) {
    return smelt__segments_layout(shape->groups, shape->chunk, shape->key_stride, shape->key_count);
}

/* Every chunk has its own starts; the numbers of entries and of ranges fit an int. */
TEST(cut) {
    struct random random = random_begin("cut");
    for (int i = 0; i < 50000; i++) {
        const struct shape shape = draw_shape(&random);
        const struct smelt__segments_layout layout = layout_of(&shape);
        const int64_t last = (shape.groups - 1) / shape.chunk;
        const int64_t ranges = (shape.key_count - 1) / SMELT__BWD_TRANSPOSE_RANGE + 1;
        assert_true(layout.starts ==
                    smelt__segments_starts(last, shape.key_count) + shape.key_count + 1);
        assert_true(layout.entries == shape.groups * shape.key_stride);
        assert_true(layout.entries <= INT32_MAX);
        assert_true((last + 1) * ranges <= INT32_MAX);
    }
}

/* The workspace of a round suffices for a smaller one. */
TEST(never_smaller) {
    struct random random = random_begin("never_smaller");
    for (int i = 0; i < 50000; i++) {
        const struct shape more = draw_shape(&random);
        struct shape less = more;
        less.groups = draw(&random, more.groups);
        const struct smelt__segments_layout large = layout_of(&more), small = layout_of(&less);
        assert_true(small.starts <= large.starts && small.entries <= large.entries);
    }
}

/* The rule's figures: rounds of at most 2048 lists of 2048 keys, unless a chunk has more. */
TEST(rounds) {
    enum { CHUNK = 339, STRIDE = 2048, KEYS = 8192 };
    assert_in_range(CHUNK * smelt__segments_round(CHUNK, STRIDE, KEYS), 2048 - CHUNK, 2048);
    assert_int_equal(smelt__segments_round(CHUNK, STRIDE, 20000000), 1);
    assert_int_equal(smelt__segments_round(40, 1 << 24, KEYS), 1);
}

/* Partial rows stay within the limit for any number of groups, unless one group's exceed it. (An
 * earlier rule used 1.3 times the limit where six half limits just held all groups.) */
TEST(limited) {
    static const size_t limits[] = {0, 1, 40000000, 900000000, (size_t)8 << 30};
    for (size_t i = 0; i < 4 * sizeof limits / sizeof *limits; i++) {
        const int pair = i % 4 > 1;
        const struct smelt__key_grads_shape shape = {.columns = 576,
                                                     .deterministic = 1,
                                                     .group_items = 1 + pair,
                                                     .key_rows = 1,
                                                     .sum_multiprocessors = i % 2 ? 24 : 0};
        const size_t limit = limits[i / 4], most = limit ? limit : (size_t)1536 << 20;
        for (int64_t groups = 1; groups < 5000; groups++) {
            struct smelt__key_grads_layout layout = {
                .groups = groups, .key_count = 8192, .key_stride = 2048};
            size_t bytes = 0;
            smelt__key_grads_place(&shape, limit, &bytes, &layout);
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
    smelt__spec_init(&spec, &smelt__sparse_attn_bwd_lists.schema);
    smelt__spec_set(&spec, "pass", SMELT__BWD_LISTS_TRANSPOSE);
    for (int i = 0; smelt__arch_at(i); i++) {
        assert_int_equal(smelt__plan_make(&spec, smelt__arch_at(i), &plan, &message), 0);
        assert_int_equal(smelt__plan_constant(&plan, "RANGE", &found), SMELT__BWD_TRANSPOSE_RANGE);
    }
}

TESTS("segments")
