/* sparse_scores: compares the reference with values computed by hand and with attention's; problems
 * of its row in the harness. */
#include <math.h>

#include "../unit/test.h"
#include "harness/problem.h"
#include "ops/sparse_scores_table.h"
#include "reference/bf16.h"
#include "reference/operators.h"

enum { HEADS = 2, DQK = 4, ROWS = 3, WIDTH = 6 };

/* One query of two heads, (1, 0, ...) and (0, 2, ...), at scale 0.5; rows whose scores are half of
 * their first number, and their second one. */
struct tiny {
    struct smelt__attention_spec spec;
    smelt_sparse_scores_args args;
    uint16_t q[HEADS][DQK], kv[ROWS][DQK];
    int32_t indices[WIDTH], topk_length;
    float lse[HEADS], sink[HEADS];
};

static void tiny_make(struct tiny *tiny) {
    static const float kv[ROWS][DQK] = {{2, 1, 9, 9}, {4, -1, 9, 9}, {0, 0, 9, 9}};
    static const int32_t indices[WIDTH] = {2, -1, 0, ROWS, 1, 0};
    memset(tiny, 0, sizeof *tiny);
    tiny->spec = (struct smelt__attention_spec){0};
    tiny->spec.heads = HEADS;
    tiny->spec.dqk = DQK;
    tiny->spec.topk = WIDTH;
    tiny->args = (smelt_sparse_scores_args)SMELT_SPARSE_SCORES_ARGS_INIT;
    tiny->q[0][0] = smelt__bf16_from_float(1);
    tiny->q[1][1] = smelt__bf16_from_float(2);
    for (int row = 0; row < ROWS; row++)
        for (int d = 0; d < DQK; d++)
            tiny->kv[row][d] = smelt__bf16_from_float(kv[row][d]);
    memcpy(tiny->indices, indices, sizeof indices);
    tiny->lse[0] = 1;
    tiny->lse[1] = 0.5F;
    tiny->args.tokens = 1;
    tiny->args.rows = ROWS;
    tiny->args.width = WIDTH;
    tiny->args.scale = 0.5F;
    tiny->args.q.data = tiny->q;
    tiny->args.kv.data = tiny->kv;
    tiny->args.indices.data = tiny->indices;
    tiny->args.lse.data = tiny->lse;
}

static void expect(const struct tiny *tiny, const double expected[WIDTH]) {
    double target[WIDTH], largest;
    const struct smelt__attention call = smelt__sparse_scores_attention(&tiny->spec, &tiny->args);
    assert_int_equal(smelt__attention_target(&call, 0, 0, target, &largest), 0);
    for (int i = 0; i < WIDTH; i++)
        if (fabs(target[i] - expected[i]) > 1e-12)
            fail_msg("slot %d: %.15g, not %.15g", i, target[i], expected[i]);
    assert_true(largest == 2);
}

/* Masked slots are 0, slots are not reordered, and a row that is named twice contributes to both
 * slots. */
TEST(by_hand) {
    struct tiny tiny;
    tiny_make(&tiny);
    const double first = exp(1.0 - 1) + exp(1.0 - 0.5), second = exp(2.0 - 1) + exp(-1.0 - 0.5);
    const double third = exp(-1.0) + exp(-0.5);
    expect(&tiny, (double[WIDTH]){third, 0, first, 0, second, first});
    tiny.topk_length = 5;
    tiny.args.topk_length.data = &tiny.topk_length;
    expect(&tiny, (double[WIDTH]){third, 0, first, 0, second, 0});
}

/* A sink's share of each head's denominator: none, all, as much as all slots together. */
TEST(with_sink) {
    struct tiny tiny;
    tiny_make(&tiny);
    tiny.spec.sink = 1;
    tiny.args.sink.data = tiny.sink;
    tiny.sink[0] = -INFINITY;
    tiny.sink[1] = INFINITY;
    expect(&tiny, (double[WIDTH]){exp(-1.0), 0, 1, 0, exp(1.0), 1});
    tiny.sink[0] = tiny.lse[0];
    expect(&tiny, (double[WIDTH]){exp(-1.0) / 2, 0, 0.5, 0, exp(1.0) / 2, 0.5});
}

/* A problem's lse is attention's: without a sink each head's probabilities add up to 1. */
TEST(heads_add_up) {
    enum { QUERIES = 6, SLOTS = 40 };
    const struct smelt__attention_spec spec = {.heads = 3, .dqk = 64, .dv = 64, .topk = SLOTS};
    for (int lists = 0; lists <= SMELT__LISTS_ADVERSARIAL; lists++) {
        const struct smelt__problem_options options = {.seed = 7,
                                                       .batches = 2,
                                                       .tokens = QUERIES / 2,
                                                       .rows = 50,
                                                       .lists = (enum smelt__lists)lists,
                                                       .strided = lists % 2};
        struct smelt__problem problem;
        assert_int_equal(smelt__problem_create(&problem, &smelt__harness_sparse_scores,
                                               &smelt__harness_sparse_scores.passes[0], &spec,
                                               &options),
                         0);
        for (int query = 0; query < QUERIES; query++) {
            double target[SLOTS], largest, sum = 0;
            const struct smelt__attention call =
                smelt__sparse_scores_attention(&spec, problem.args);
            assert_int_equal(smelt__attention_target(&call, query, 0, target, &largest), 0);
            for (int i = 0; i < SLOTS; i++)
                sum += target[i];
            assert_true(sum == 0 || fabs(sum - spec.heads) < 1e-5);
        }
        smelt__problem_destroy(&problem);
    }
}

TESTS("sparse_scores")
