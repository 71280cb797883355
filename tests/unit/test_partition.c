/* The partition's workspace and its division of work. */

#include "codegen/families/sparse_attn_partition.h"
#include "codegen/family.h"
#include "codegen/template/engine.h"
#include "ops/sparse_attn_partition.h"
#include "test.h"

static int64_t draw_queries(struct random *random) {
    const int64_t limit = INT64_C(1) << random_below(random, 32);
    const int64_t queries = (int64_t)(random_next(random) % (uint64_t)limit) + 1;
    return queries < INT32_MAX ? queries : INT32_MAX;
}

/* The arrays are aligned, disjoint, inside the workspace, and large enough for the kernels'
 * writes. */
static void check_layout(int64_t queries, int buckets) {
    const struct smelt__partition_layout layout = smelt__partition_layout(queries, buckets);
    const struct work_params work = {.query_capacity = (int)queries, .width = 100};
    const int bounds[PARTITION_MOST_BUCKETS] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    char *const workspace = (char *)(uintptr_t)4096;
    const struct sparse_attn_partition_params params =
        smelt__partition_params(&work, bounds, buckets, workspace);
    const size_t starts[] = {layout.ranges, layout.list,       layout.extents,
                             layout.packed, layout.histograms, layout.bytes};
    const int64_t ints[] = {2 * (int64_t)buckets, queries, queries, queries,
                            (int64_t)buckets * params.histogram_stride};
    for (size_t i = 0; i + 1 < sizeof starts / sizeof *starts; i++) {
        assert_int_equal(starts[i] % SMELT__PARTITION_ALIGNMENT, 0);
        assert_true(starts[i] + (size_t)ints[i] * sizeof(int) <= starts[i + 1]);
    }
    assert_ptr_equal(params.histograms, workspace + layout.histograms);
    assert_ptr_equal(params.ranges, workspace + layout.ranges);
    assert_ptr_equal(params.list, workspace + layout.list);
    assert_ptr_equal(params.extents, workspace + layout.extents);
    assert_ptr_equal(params.packed, workspace + layout.packed);
    for (int i = 0; i < PARTITION_MOST_BUCKETS - 1; i++)
        assert_int_equal(params.bounds[i], i < buckets - 1 ? bounds[i] : INT32_MAX);
}

TEST(layouts) {
    struct random random = random_begin("layouts");
    for (int i = 0; i < 20000; i++)
        check_layout(draw_queries(&random), 1 + random_below(&random, PARTITION_MOST_BUCKETS));
    check_layout(1, 1);
    check_layout(INT32_MAX, PARTITION_MOST_BUCKETS);
}

/* A workspace for many queries suffices for fewer: around every change of the rule, and at
 * random. */
TEST(never_smaller) {
    struct random random = random_begin("never_smaller");
    for (int64_t queries = 1; queries < 300000; queries++)
        assert_true(smelt__partition_layout(queries, 5).bytes <=
                    smelt__partition_layout(queries + 1, 5).bytes);
    for (int i = 0; i < 100000; i++) {
        const int64_t a = draw_queries(&random), b = draw_queries(&random);
        const int64_t less = a < b ? a : b, more = a < b ? b : a;
        assert_true(smelt__partition_layout(less, 9).bytes <=
                    smelt__partition_layout(more, 9).bytes);
    }
}

static int is_power_of_two(int value) {
    return value > 0 && (value & (value - 1)) == 0;
}

/* The requirements of the kernels' head comments and the params struct. */
TEST(shares) {
    struct random random = random_begin("shares");
    for (int i = 0; i < 20000; i++) {
        const struct work_params work = {.query_capacity = (int)draw_queries(&random),
                                         .width = (int)draw_queries(&random)};
        const int bounds[] = {1, 2};
        const struct sparse_attn_partition_params params =
            smelt__partition_params(&work, bounds, 2, (void *)(uintptr_t)4096);
        assert_true(is_power_of_two(params.run) && is_power_of_two(params.runs_at_once));
        assert_true(is_power_of_two(params.row_lanes) && params.row_lanes <= 32);
        assert_true((int64_t)params.runs * params.run >= work.query_capacity);
        assert_true((int64_t)(params.runs - 1) * params.run < work.query_capacity);
        assert_true(params.run >= SMELT__PARTITION_COUNT_THREADS / params.row_lanes);
        assert_true(params.runs <= 2048 && params.runs_at_once >= 4);
        assert_true(params.histogram_stride >= params.runs && params.histogram_stride % 4 == 0);
        assert_true((int64_t)params.runs_at_once * params.run % SMELT__PARTITION_PLACE_THREADS ==
                    0);
    }
}

/* The plans have the number of threads that the shares assume. */
TEST(threads) {
    static const int wanted[] = {SMELT__PARTITION_COUNT_THREADS, SMELT__PARTITION_PLACE_THREADS};
    struct smelt__message message;
    for (int pass = 0; pass < 2; pass++) {
        struct smelt__spec spec;
        struct smelt__plan plan;
        smelt__spec_init(&spec, &smelt__sparse_attn_partition.schema);
        smelt__spec_set(&spec, "pass", pass);
        for (int i = 0; smelt__arch_at(i); i++) {
            assert_int_equal(smelt__plan_make(&spec, smelt__arch_at(i), &plan, &message), 0);
            assert_int_equal(plan.threads, wanted[pass]);
        }
    }
}

TESTS("partition")
