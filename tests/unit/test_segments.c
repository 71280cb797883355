/* The deterministic backward pass's lists by keys: their workspace and how it is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/family.h"
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
    const int64_t groups = draw(random, MOST_CHUNK);
    return (struct sparse_attn_bwd_segments_params){
        .groups = (int)groups,
        .key_stride = (int)draw(random, INT32_MAX / 64 / groups) * 64,
        .key_count = (int)draw(random, INT32_MAX),
    };
}

/* Every group is in a part, every key in a block, and the arrays have room. */
static void cut(void **state) {
    (void)state;
    struct random random = random_begin("cut");
    for (int i = 0; i < 50000; i++) {
        struct sparse_attn_bwd_segments_params params = draw_params(&random);
        const struct smelt__segments_layout layout =
            smelt__segments_layout(params.groups, params.key_stride, params.key_count);
        smelt__segments_cut(&params);
        assert_true(params.part > 0 && params.parts > 0 && params.parts <= params.groups);
        assert_true((int64_t)params.part * params.parts >= params.groups);
        assert_true((int64_t)params.part * (params.parts - 1) < params.groups);
        assert_true((int64_t)params.parts * params.key_count <= layout.cursors);
        assert_true(layout.cursors <= 1 << 24 || layout.cursors == params.key_count);
        assert_true(layout.starts > params.key_count);
        assert_true(layout.entries == (int64_t)params.groups * params.key_stride);
        assert_true(params.scan_blocks > 0 && params.scan_blocks <= layout.sums);
        assert_true((int64_t)params.scan_keys * params.scan_blocks >= params.key_count);
        assert_true((int64_t)params.scan_keys * (params.scan_blocks - 1) < params.key_count);
        assert_true(params.scan_rows > 0 && (params.scan_rows & (params.scan_rows - 1)) == 0);
        assert_int_equal(params.scan_keys % (SMELT__BWD_SCAN_THREADS / params.scan_rows), 0);
        assert_true(SMELT__BWD_SCAN_THREADS / params.scan_rows >= 32);
    }
}

/* What does for a chunk does for a smaller one, of shorter lists and fewer keys. */
static void never_smaller(void **state) {
    (void)state;
    struct random random = random_begin("never_smaller");
    for (int i = 0; i < 50000; i++) {
        const struct sparse_attn_bwd_segments_params more = draw_params(&random);
        const struct smelt__segments_layout large = smelt__segments_layout(
                                                more.groups, more.key_stride, more.key_count),
                                            small = smelt__segments_layout(
                                                draw(&random, more.groups),
                                                draw(&random, more.key_stride / 64) * 64,
                                                draw(&random, more.key_count));
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
            .groups = 640, .key_stride = 2048, .key_count = cases[i].keys};
        smelt__segments_cut(&params);
        assert_in_range(params.parts, cases[i].least, cases[i].most);
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
        cmocka_unit_test(cut),
        cmocka_unit_test(never_smaller),
        cmocka_unit_test(parts),
        cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests_name("segments", tests, NULL, NULL);
}
