/* The problems of check and bench have the documented properties. */
#include <math.h>

#include "../unit/test.h"
#include "harness/attention.h"
#include "harness/lists.h"
#include "ops/sparse_attn_table.h"
#include "reference/operators.h"
#include "sparse_attn_calls.h"

static uint64_t seed;
static const struct smelt__attention_spec spec = {
    .heads = 4, .dqk = 128, .dv = 64, .topk = 48, .sink = 1};

static void make(struct smelt__problem *problem, const struct smelt__problem_options *options) {
    assert_int_equal(smelt__problem_create(problem, &smelt__harness_sparse_attn,
                                           &smelt__harness_sparse_attn.passes[0], &spec, options),
                     0);
}

static const int32_t *indices_of(const struct smelt__problem *problem) {
    return smelt__problem_data(problem, SMELT__SPARSE_ATTN_INDICES);
}

static const uint16_t *kv_of(const struct smelt__problem *problem) {
    return smelt__problem_data(problem, SMELT__SPARSE_ATTN_KV);
}

static const uint16_t *q_of(const struct smelt__problem *problem) {
    return smelt__problem_data(problem, SMELT__SPARSE_ATTN_Q);
}

static int seen_before(const int32_t *row, int64_t slot) {
    for (int64_t i = 0; i < slot; i++)
        if (row[i] == row[slot])
            return 1;
    return 0;
}

/* Every valid entry is in range and occurs once; returns their number. */
static int64_t count_distinct(const struct smelt__problem *problem, int64_t query, int64_t first,
                              int64_t last) {
    const int32_t *row = indices_of(problem) + query * problem->options.width;
    int64_t count = 0;
    for (int64_t i = 0; i < problem->options.width; i++) {
        if (row[i] == -1)
            continue;
        assert_in_range(row[i], first, last);
        assert_false(seen_before(row, i));
        count++;
    }
    return count;
}

TEST(test_random_lists) {
    static const struct {
        int64_t rows, width, valid, expected;
    } cases[] = {{1000, 48, 0, 48}, {48, 48, 0, 48},  {47, 48, 0, 47}, {1, 48, 0, 1},
                 {1000, 1, 0, 1},   {64, 48, 12, 12}, {5, 33, 12, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct smelt__problem problem;
        struct smelt__problem_options options = {.seed = seed + i, .tokens = 20};
        options.rows = cases[i].rows;
        options.width = cases[i].width;
        options.valid = cases[i].valid;
        make(&problem, &options);
        for (int64_t query = 0; query < 20; query++)
            assert_int_equal(count_distinct(&problem, query, 0, cases[i].rows - 1),
                             cases[i].expected);
        assert_int_equal(problem.valid_slots, 20 * cases[i].expected);
        smelt__problem_destroy(&problem);
    }
}

/* Four documents of 10, 20, 30 and 40 rows: lists contain no rows of other documents and no later
 * rows. */
TEST(test_causal_lists) {
    static const int64_t starts[] = {0, 10, 30, 60, 100};
    struct smelt__problem problem;
    struct smelt__problem_options options = {.seed = seed, .batches = 2, .tokens = 100};
    options.rows = 100;
    options.width = 25;
    options.lists = SMELT__LISTS_CAUSAL;
    options.topk_length = 1;
    make(&problem, &options);
    const int32_t *lengths = smelt__problem_data(&problem, SMELT__SPARSE_ATTN_TOPK_LENGTH);
    for (int64_t query = 0; query < 200; query++) {
        int document = 0;
        while (starts[document + 1] <= query % 100)
            document++;
        int64_t available = query % 100 - starts[document] + 1;
        int64_t expected = available < 25 ? available : 25;
        assert_int_equal(count_distinct(&problem, query, starts[document], query % 100), expected);
        assert_int_equal(lengths[query], expected);
        assert_int_equal(smelt__problem_valid_slots(&problem, query), expected);
    }
    smelt__problem_destroy(&problem);
}

/* Nine in ten slots have the same row as for the previous query; rows occur once. */
TEST(test_drift_lists) {
    static const int64_t tables[] = {1000, 48, 47, 9, 1};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        struct smelt__problem problem;
        struct smelt__problem_options options = {
            .seed = seed, .batches = 2, .tokens = 40, .rows = tables[i], .width = 40};
        const int64_t count = tables[i] < 40 ? tables[i] : 40;
        options.lists = SMELT__LISTS_DRIFT;
        make(&problem, &options);
        for (int64_t query = 0; query < 80; query++) {
            const int32_t *row = indices_of(&problem) + query * 40;
            int64_t kept = 0;
            assert_int_equal(count_distinct(&problem, query, 0, tables[i] - 1), count);
            for (int64_t slot = 0; slot < 40 && query % 40 > 0; slot++)
                kept += row[slot] >= 0 && row[slot] == row[slot - 40];
            if (query % 40 > 0 && tables[i] == 1000)
                assert_int_equal(kept, 36);
        }
        smelt__problem_destroy(&problem);
    }
}

TEST(test_window_lists) {
    struct smelt__problem problem;
    struct smelt__problem_options options = {.seed = seed, .tokens = 30, .rows = 30, .width = 8};
    options.lists = SMELT__LISTS_WINDOW;
    make(&problem, &options);
    for (int64_t query = 0; query < 30; query++)
        for (int64_t i = 0; i < 8; i++) {
            int64_t row = query - 7 + i;
            assert_int_equal(indices_of(&problem)[query * 8 + i], row < 0 ? -1 : row);
        }
    smelt__problem_destroy(&problem);
}

/* The rows that lists avoid are NaN and never named; some queries are empty, some full. */
TEST(test_adversarial_lists) {
    struct smelt__problem problem;
    struct smelt__problem_options options = {.seed = seed, .tokens = 40, .rows = 70};
    options.lists = SMELT__LISTS_ADVERSARIAL;
    make(&problem, &options);
    int empty = 0, full = 0, huge = 0;
    for (int64_t query = 0; query < 40; query++) {
        int64_t valid = smelt__problem_valid_slots(&problem, query);
        empty += valid == 0;
        full += valid == 48;
        for (int64_t i = 0; i < 48; i++) {
            int32_t row = indices_of(&problem)[query * 48 + i];
            assert_true(row != 0 && row != 69);
            huge += row == INT32_MAX || row == INT32_MIN || row == 70;
        }
    }
    assert_true(empty > 0 && full > 0 && huge > 0);
    assert_true(smelt__lists_avoids(&problem.options, 0));
    const size_t width = (size_t)spec.dqk;
    for (size_t d = 0; d < width; d++) {
        assert_true(isnan(smelt__bf16_to_float(kv_of(&problem)[d])));
        assert_true(isnan(smelt__bf16_to_float(kv_of(&problem)[69 * width + d])));
        assert_true(isfinite(smelt__bf16_to_float(kv_of(&problem)[width + d])));
    }
    smelt__problem_destroy(&problem);
}

TEST(test_normal_and_spiky) {
    double largest[2] = {0, 0}, mean = 0, square = 0;
    for (int spiky = 0; spiky < 2; spiky++) {
        struct smelt__problem problem;
        struct smelt__problem_options options = {.seed = seed, .tokens = 20, .spiky = spiky};
        double max_abs[20];
        struct smelt__attention_results results = {NULL, NULL, NULL, max_abs, NULL};
        make(&problem, &options);
        assert_int_equal(sparse_attn_reference(&spec, problem.args, NULL, 20, &results), 0);
        for (int i = 0; i < 20; i++)
            largest[spiky] = fmax(largest[spiky], max_abs[i]);
        for (size_t i = 0; i < problem.buffers[SMELT__SPARSE_ATTN_Q].elements && !spiky; i++) {
            double value = (double)smelt__bf16_to_float(q_of(&problem)[i]);
            mean += value / (double)problem.buffers[SMELT__SPARSE_ATTN_Q].elements;
            square += value * value / (double)problem.buffers[SMELT__SPARSE_ATTN_Q].elements;
        }
        smelt__problem_destroy(&problem);
    }
    assert_true(largest[0] < 20 && largest[1] >= 100);
    assert_true(fabs(mean) < 0.08 && fabs(square - 1) < 0.1);
}

TEST(test_same_seed_same_bytes) {
    for (int i = 0; i < 6; i++) {
        struct smelt__problem first, second, other;
        struct smelt__problem_options options = {.seed = seed, .batches = 2, .tokens = 30};
        options.lists = (enum smelt__lists)(i % 4);
        options.query_list = (enum smelt__query_list)i;
        options.strided = i % 2;
        options.spiky = i % 2;
        make(&first, &options);
        make(&second, &options);
        options.seed++;
        make(&other, &options);
        for (int tensor = 0; tensor < first.pass->tensors->count; tensor++) {
            const size_t bytes = smelt__problem_bytes(&first, tensor);
            assert_int_equal(bytes, smelt__problem_bytes(&second, tensor));
            if (smelt__problem_data(&first, tensor))
                assert_memory_equal(smelt__problem_data(&first, tensor),
                                    smelt__problem_data(&second, tensor), bytes);
        }
        assert_memory_not_equal(q_of(&first), q_of(&other),
                                smelt__problem_bytes(&first, SMELT__SPARSE_ATTN_Q));
        const smelt_sparse_attn_args *a = first.args, *b = second.args;
        assert_int_equal(a->query_capacity, b->query_capacity);
        assert_int_equal(first.valid_slots, second.valid_slots);
        smelt__problem_destroy(&first);
        smelt__problem_destroy(&second);
        smelt__problem_destroy(&other);
    }
}

/* The cost counts each tensor once, without gaps, and whole tiles of keys. */
TEST(test_cost) {
    struct smelt__problem_options options = {
        .batches = 2, .tokens = 3, .rows = 90, .width = 20, .max_logits = 1};
    struct smelt__problem packed;
    double bytes = 0;
    make(&packed, &options);
    for (int tensor = 0; tensor < packed.pass->tensors->count; tensor++)
        bytes += (double)smelt__problem_bytes(&packed, tensor);
    const double elements = 2 * 90 * spec.dqk + 2 * 3 * spec.heads * (spec.dqk + spec.dv);
    const double tiles = 2 * 3 * 64 * 16 * (spec.dqk + spec.dv);
    for (int gaps = 0; gaps < 3; gaps++) {
        options.strided = gaps == 1;
        options.far = gaps == 2;
        const struct smelt__problem_cost cost = smelt__problem_cost(
            &smelt__harness_sparse_attn, &smelt__harness_sparse_attn.passes[0], &spec, &options);
        assert_true(cost.bytes == bytes);
        assert_true(cost.work > tiles + elements && cost.work < tiles + 12 * elements);
    }
    smelt__problem_destroy(&packed);
}

/* A dimension of a far tensor: its last index is beyond 2^32, and its stride exceeds the span of
 * the inner dimensions. */
static void expect_far(int64_t extent, int64_t stride, int64_t inner) {
    assert_true(stride >= inner);
    assert_true(extent == 1 || (extent - 1) * stride > INT64_C(1) << 32);
}

/* Far strides do not change values. */
TEST(test_far) {
    struct smelt__problem near, far;
    struct smelt__problem_options options = {
        .seed = seed, .batches = 2, .tokens = 3, .rows = 90, .width = 20, .topk_length = 1};
    make(&near, &options);
    options.far = 1;
    make(&far, &options);
    smelt_sparse_attn_args n, a;
    memcpy(&n, near.args, sizeof n);
    memcpy(&a, far.args, sizeof a);
    smelt__sparse_attn_resolve_strides(&spec, &n);
    expect_far(spec.heads, a.q.strides[2], spec.dqk);
    expect_far(3, a.q.strides[1], spec.heads * a.q.strides[2]);
    expect_far(2, a.q.strides[0], 3 * a.q.strides[1]);
    expect_far(90, a.kv.strides[1], spec.dqk);
    expect_far(2, a.kv.strides[0], 90 * a.kv.strides[1]);
    expect_far(3, a.indices.strides[1], 20);
    expect_far(2, a.indices.strides[0], 3 * a.indices.strides[1]);
    expect_far(3, a.topk_length.strides[1], 1);
    expect_far(2, a.topk_length.strides[0], 3 * a.topk_length.strides[1]);
    expect_far(spec.heads, a.out.strides[2], spec.dv);
    expect_far(3, a.out.strides[1], spec.heads * a.out.strides[2]);
    expect_far(2, a.out.strides[0], 3 * a.out.strides[1]);
    expect_far(spec.heads, a.lse.strides[2], 1);
    expect_far(3, a.lse.strides[1], spec.heads * a.lse.strides[2]);
    expect_far(2, a.lse.strides[0], 3 * a.lse.strides[1]);
    for (int64_t query = 0; query < 6; query++) {
        int64_t b = query / 3, t = query % 3;
        assert_memory_equal(indices_of(&far) + b * a.indices.strides[0] + t * a.indices.strides[1],
                            indices_of(&near) + b * n.indices.strides[0] + t * n.indices.strides[1],
                            20 * 4);
        for (int64_t h = 0; h < spec.heads; h++)
            assert_memory_equal(
                q_of(&far) + b * a.q.strides[0] + t * a.q.strides[1] + h * a.q.strides[2],
                q_of(&near) + b * n.q.strides[0] + t * n.q.strides[1] + h * n.q.strides[2],
                (size_t)spec.dqk * 2);
    }
    assert_int_equal(far.valid_slots, near.valid_slots);
    smelt__problem_destroy(&near);
    smelt__problem_destroy(&far);
}

TESTS("problem", .seed = &seed)
