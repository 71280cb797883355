/* The deterministic backward pass's lists by keys: their workspace and how it is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/family.h"
#include "ops/key_grads.h"
#include "ops/sparse_attn_segments.h"
#include "random.h"

enum { MOST_CHUNK = INT32_MAX / 64 };

/* 1..limit, small ones as often as large ones. */
static int64_t draw(struct random *random, int64_t limit) {
    const int64_t below = INT64_C(1) << random_below(random, 32);
    const int64_t value = (int64_t)(random_next(random) % (uint64_t)below) + 1;
    return value < limit ? value : limit;
}

static struct sparse_attn_bwd_segments_params draw_params(struct random *random) {
    const int64_t chunk = draw(random, MOST_CHUNK);
    const int64_t key_stride = draw(random, INT32_MAX / 64 / chunk) * 64;
    const int64_t key_count = draw(random, INT32_MAX);
    const int64_t round = smelt__segments_round(chunk, key_stride, key_count);
    return (struct sparse_attn_bwd_segments_params){
        .groups = (int)draw(random, chunk * round),
        .chunk = (int)chunk,
        .key_stride = (int)key_stride,
        .key_count = (int)key_count,
    };
}

static struct smelt__segments_layout
layout_of(const struct sparse_attn_bwd_segments_params *params) {
    return smelt__segments_layout(params->groups, params->chunk, params->key_stride,
                                  params->key_count);
}

/* Every group is in a part, every column in a block, and the arrays have room. */
static void cut(void **state) {
    (void)state;
    struct random random = random_begin("cut");
    for (int i = 0; i < 50000; i++) {
        struct sparse_attn_bwd_segments_params params = draw_params(&random);
        const struct smelt__segments_layout layout = layout_of(&params);
        smelt__segments_cut(&params);
        const int chunk = params.groups < params.chunk ? params.groups : params.chunk;
        assert_true((int64_t)params.chunks * params.chunk >= params.groups);
        assert_true((int64_t)(params.chunks - 1) * params.chunk < params.groups);
        assert_true((int64_t)params.chunks * params.key_count == params.columns);
        assert_true(params.part > 0 && params.parts > 0 && params.parts <= chunk);
        assert_true((int64_t)params.part * params.parts >= chunk);
        assert_true((int64_t)params.part * (params.parts - 1) < chunk);
        assert_true((int64_t)params.chunks * params.parts <= INT32_MAX);
        assert_true((int64_t)params.parts * params.columns <= layout.cursors);
        assert_true(layout.cursors <= 1 << 24 || layout.cursors == params.columns);
        assert_true(layout.starts > params.columns);
        assert_true(layout.entries == (int64_t)params.groups * params.key_stride);
        assert_true(layout.entries <= INT32_MAX);
        assert_true(params.scan_blocks > 0 && params.scan_blocks <= layout.sums);
        assert_true((int64_t)params.scan_keys * params.scan_blocks >= params.columns);
        assert_true((int64_t)params.scan_keys * (params.scan_blocks - 1) < params.columns);
        assert_true(params.scan_rows > 0 && (params.scan_rows & (params.scan_rows - 1)) == 0);
        assert_int_equal(params.scan_keys % (SMELT__BWD_SCAN_THREADS / params.scan_rows), 0);
        assert_true(SMELT__BWD_SCAN_THREADS / params.scan_rows >= 32);
    }
}

/* What does for a round does for a smaller one. */
static void never_smaller(void **state) {
    (void)state;
    struct random random = random_begin("never_smaller");
    for (int i = 0; i < 50000; i++) {
        const struct sparse_attn_bwd_segments_params more = draw_params(&random);
        struct sparse_attn_bwd_segments_params less = more;
        less.groups = (int)draw(&random, more.groups);
        const struct smelt__segments_layout large = layout_of(&more), small = layout_of(&less);
        assert_true(small.cursors <= large.cursors && small.starts <= large.starts);
        assert_true(small.entries <= large.entries && small.sums <= large.sums);
    }
}

/* The rule's figures: chunks of 640 lists of 2048 keys. */
static void parts(void **state) {
    (void)state;
    static const struct {
        int keys, least, most;
    } cases[] = {{8192, 150, 250}, {131072, 40, 64}, {20000000, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sparse_attn_bwd_segments_params params = {
            .groups = 640, .chunk = 640, .key_stride = 2048, .key_count = cases[i].keys};
        smelt__segments_cut(&params);
        assert_in_range(params.parts, cases[i].least, cases[i].most);
    }
}

/* A round's chunks together have no more parts than one chunk of as many groups has. */
static void rounds(void **state) {
    (void)state;
    enum { CHUNK = 339, STRIDE = 2048, KEYS = 8192 };
    struct sparse_attn_bwd_segments_params params = {
        .groups = (int)(CHUNK * smelt__segments_round(CHUNK, STRIDE, KEYS)),
        .chunk = CHUNK,
        .key_stride = STRIDE,
        .key_count = KEYS};
    assert_in_range(params.groups, 2048, 2048 + CHUNK);
    smelt__segments_cut(&params);
    assert_in_range(params.chunks * params.parts, 250, 1500);
    assert_int_equal(smelt__segments_round(CHUNK, STRIDE, 20000000), 1);
    assert_int_equal(smelt__segments_round(40, 1 << 24, KEYS), 1);
}

/* Partial rows stay within the limit, whatever the number of groups, unless one group's alone are
 * more. (Where six half limits had just room for all groups, whole waves were 1.3 times it.) */
static void limited(void **state) {
    (void)state;
    static const size_t limits[] = {0, 1, 40000000, 900000000, (size_t)8 << 30};
    for (size_t i = 0; i < 2 * sizeof limits / sizeof *limits; i++) {
        const struct smelt__key_grads_shape shape = {
            .columns = 576, .deterministic = 1, .head_blocks = 1, .sums_beside = i % 2 ? 24 : 0};
        const size_t limit = limits[i / 2], most = limit ? limit : (size_t)1536 << 20;
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

/* The plan has the threads that the scan is cut for. */
static void threads(void **state) {
    (void)state;
    struct smelt__message message;
    struct smelt__spec spec;
    struct smelt__plan plan;
    smelt__spec_init(&spec, &smelt__sparse_attn_bwd_lists.schema);
    smelt__spec_set(&spec, "pass", SMELT__BWD_LISTS_SCAN);
    for (int i = 0; smelt__arch_at(i); i++) {
        assert_int_equal(smelt__plan_make(&spec, smelt__arch_at(i), &plan, &message), 0);
        assert_int_equal(plan.threads, SMELT__BWD_SCAN_THREADS);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut),    cmocka_unit_test(never_smaller), cmocka_unit_test(parts),
        cmocka_unit_test(rounds), cmocka_unit_test(limited),       cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests_name("segments", tests, NULL, NULL);
}
