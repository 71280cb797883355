/* FlashMLA's problems (flashmla_cases.h), with its and with other numbers of heads: every element
 * must be within its tolerance. And a query with one valid slot and no sink, whose output is that
 * row. Compares the queries with the fewest valid slots, where rounding errors are largest;
 * bench/peers compares all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../reference/sparse_attn_calls.h"
#include "flashmla_cases.h"
#include "harness/attention.h"
#include "harness/random.h"
#include "ops/sparse_attn_table.h"
#include "reference/operators.h"
#include "sparse_attn_groups.h"

enum { DV = 512, COMPARED = 6, MOST_TOKENS = 213 };
/* Every STEP-th case of the list runs; LONG_STEP leaves some of each width. */
enum { STEP = 5, LONG_STEP = 17 };
enum { STREAM_Q = 1, STREAM_KV, STREAM_ROWS, STREAM_LENGTHS, STREAM_SINK, STREAM_OFFSETS };

/* Numbers of heads that replace 64 or 128, cyclically; 0: no replacement. */
static const struct {
    int heads;
    const char *knobs;
} others[] = {{0, ""},
              {0, ",buckets=auto"},
              {8, ""},
              {0, ",variant=mma"},
              {24, ""},
              {48, ""},
              {0, ""},
              {65, ""},
              {13, ",variant=mma"},
              {1, ""},
              {32, ",variant=sm90,orientation=heads"}};
enum { OTHERS = sizeof others / sizeof *others };

static double uniform(struct smelt__random *random) {
    return (double)(smelt__random_next(random) >> 11) / 9007199254740992.0;
}

/* Box and Muller. */
static double normal(struct smelt__random *random) {
    const double radius = sqrt(-2 * log(1 - uniform(random)));
    return radius * cos(6.283185307179586 * uniform(random));
}

static float rounded(double value) {
    return smelt__bf16_to_float(smelt__bf16_from_float((float)value));
}

/* A row of q or kv: normal numbers divided by ten, plus the tensor's offset. */
static void fill_row(uint16_t *row, int width, float offset, struct smelt__random random) {
    for (int i = 0; i < width; i++)
        row[i] = smelt__bf16_from_float(rounded(rounded(normal(&random)) / 10) + offset);
}

/* Distinct rows in random order, then invalid indices. */
static void fill_slots(int32_t *slots, int width, int rows, struct smelt__random random) {
    int32_t *const table = malloc((size_t)rows * sizeof *table);
    for (int i = 0; i < rows && table; i++)
        table[i] = i;
    for (int i = 0; i < width && table; i++) {
        if (i >= rows) {
            slots[i] = flashmla_strays[smelt__random_below(&random, FLASHMLA_STRAYS)];
            continue;
        }
        const int64_t other = i + smelt__random_below(&random, rows - i);
        slots[i] = table[other];
        table[other] = table[i];
    }
    free(table);
}

static float draw_sink(struct smelt__random random) {
    const double kind = uniform(&random);
    return kind < 0.31 ? -INFINITY : kind > 0.69 ? INFINITY : (float)normal(&random);
}

/* Replaces the harness's inputs by the case's. */
static void fill(struct smelt__problem *problem, const struct flashmla_case *one,
                 const smelt_sparse_attn_args *args) {
    const uint64_t seed = problem->options.seed;
    struct smelt__random offsets = smelt__random_at(seed, STREAM_OFFSETS, 0);
    const float q_offset = rounded((uniform(&offsets) - 0.5) / 10);
    const float kv_offset = rounded((uniform(&offsets) - 0.5) / 10);
    uint16_t *const q = smelt__problem_data(problem, SMELT__SPARSE_ATTN_Q);
    uint16_t *const kv = smelt__problem_data(problem, SMELT__SPARSE_ATTN_KV);
    int32_t *const indices = smelt__problem_data(problem, SMELT__SPARSE_ATTN_INDICES);
    int32_t *const lengths = smelt__problem_data(problem, SMELT__SPARSE_ATTN_TOPK_LENGTH);
    float *const sink = smelt__problem_data(problem, SMELT__SPARSE_ATTN_SINK);
    for (int64_t t = 0; t < one->tokens; t++) {
        for (int h = 0; h < one->heads; h++)
            fill_row(q + t * args->q.strides[1] + h * args->q.strides[2], one->dqk, q_offset,
                     smelt__random_at(seed, STREAM_Q, (uint64_t)(t * one->heads + h)));
        fill_slots(indices + t * args->indices.strides[1], one->topk, one->rows,
                   smelt__random_at(seed, STREAM_ROWS, (uint64_t)t));
        struct smelt__random random = smelt__random_at(seed, STREAM_LENGTHS, (uint64_t)t);
        /* Every third query has 1 to 4 slots, whose elements often cancel. */
        const int64_t length =
            t % 3 == 1 ? 1 + t / 3 % 4 : smelt__random_below(&random, one->topk + 1);
        if (lengths)
            lengths[t * args->topk_length.strides[1]] = (int32_t)length;
    }
    for (int64_t row = 0; row < one->rows; row++)
        fill_row(kv + row * args->kv.strides[1], one->dqk, kv_offset,
                 smelt__random_at(seed, STREAM_KV, (uint64_t)row));
    for (int h = 0; h < one->heads && sink; h++)
        sink[h] = draw_sink(smelt__random_at(seed, STREAM_SINK, (uint64_t)h));
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Chooses the computed queries with the fewest valid slots, but at least one; returns their
 * number. */
static int64_t choose(const struct smelt__problem *problem, int64_t tokens, int64_t *queries) {
    int64_t count = 0, floor = 1;
    while (count < COMPARED) {
        int64_t next = INT64_MAX;
        for (int64_t query = 0; query < tokens; query++) {
            const int64_t valid = smelt__problem_valid_slots(problem, query);
            if (valid == floor && count < COMPARED)
                queries[count++] = query;
            else if (valid > floor && valid < next)
                next = valid;
        }
        if (next == INT64_MAX)
            break;
        floor = next;
    }
    return count;
}

/* Compares one head of a query. 0, or -1 with a message. */
static int compare_head(const struct smelt__placed *placed, int64_t query, int head,
                        const double *out, double lse, double max_logit, const uint16_t *single,
                        char *message, size_t size) {
    const uint16_t *const got = smelt__placed_out(placed, query, head);
    const double lse_error =
        flashmla_lse_error((double)smelt__placed_lse(placed, query, head), lse);
    const double max_error =
        flashmla_lse_error((double)smelt__placed_max_logit(placed, query, head), max_logit);
    for (int d = 0; d < DV; d++) {
        const double value = (double)smelt__bf16_to_float(got[d]);
        if (single && got[d] != single[d]) {
            snprintf(message, size, "query %lld head %d: out[%d] is %g, its one row has %g",
                     (long long)query, head, d, value, (double)smelt__bf16_to_float(single[d]));
            return -1;
        }
        if (flashmla_out_error(value, out[d]) <= 1)
            continue;
        snprintf(message, size, "query %lld head %d: out[%d] is %g, expected %g", (long long)query,
                 head, d, value, out[d]);
        return -1;
    }
    if (lse_error <= 1 && max_error <= 1)
        return 0;
    snprintf(message, size,
             "query %lld head %d: lse off by %.3g of what is allowed, max_logits %.3g",
             (long long)query, head, lse_error, max_error);
    return -1;
}

static void compare(const struct workload *work, const struct smelt__attention_spec *spec,
                    const smelt_sparse_attn_args *args, char *message, size_t size) {
    const size_t heads = (size_t)spec->heads;
    int64_t queries[COMPARED], rows[1];
    const int64_t count = choose(&work->problem, args->tokens, queries);
    double *const memory = malloc(heads * (DV + 2) * sizeof *memory);
    int right = memory != NULL;
    if (!memory)
        snprintf(message, size, "out of memory");
    for (int64_t i = 0; i < count && right; i++) {
        const struct smelt__attention_results expected = {memory, memory + heads * DV,
                                                          memory + heads * (DV + 1), NULL, NULL};
        const uint16_t *single = NULL;
        if (smelt__problem_valid_slots(&work->problem, queries[i]) == 1 && !spec->sink) {
            struct smelt__attention_spec one = *spec;
            one.topk = 1; /* limits the number of written rows */
            sparse_attn_valid_rows(&one, args, queries[i], rows);
            single = (const uint16_t *)args->kv.data + rows[0] * args->kv.strides[1];
        }
        if (sparse_attn_reference(spec, args, &queries[i], 1, &expected) != 0) {
            snprintf(message, size, "out of memory while computing the reference");
            break;
        }
        for (int h = 0; h < spec->heads && right; h++)
            right =
                compare_head(&work->placed, queries[i], h, expected.out + (size_t)h * DV,
                             expected.lse[h], expected.max_logits[h], single, message, size) == 0;
    }
    free(memory);
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* To what the emulator does in a second or so. */
static void shrink(struct flashmla_case *one) {
    one->tokens = one->tokens > 5 ? 5 : one->tokens; /* one with 1 slot, one with 2, and three
                                                        others */
    one->topk = one->topk > 96 ? 96 : one->topk;
    one->rows = one->rows > 128 ? 128 : one->rows;
}

static void run_case(struct suite *suite, const char *name, const char *text,
                     const struct flashmla_case *one) {
    char message[512] = "";
    struct workload work;
    const struct smelt__problem_options options = {.seed =
                                                       suite->seed * 1000 + (uint64_t)one->number,
                                                   .tokens = one->tokens,
                                                   .rows = one->rows,
                                                   .width = one->topk,
                                                   .topk_length = one->lengths,
                                                   .strided = one->number % 2,
                                                   .max_logits = 1,
                                                   .scale = FLASHMLA_SCALE};
    if (workload_open(&work, suite, text, &options, message, sizeof message) == 0) {
        const struct smelt__attention_spec *spec = work.problem.spec;
        smelt_sparse_attn_args args = *(const smelt_sparse_attn_args *)work.problem.args;
        smelt__sparse_attn_resolve_strides(spec, &args);
        fill(&work.problem, one, &args);
        if (suite_ok(smelt__placed_refresh(&work.placed), "upload", message, sizeof message) == 0 &&
            suite_ok(smelt__placed_run(&work.placed, work.object, NULL), "forward", message,
                     sizeof message) == 0)
            compare(&work, spec, &args, message, sizeof message);
        workload_close(&work);
    }
    suite_report(suite, name, message);
}

void run_accuracy(struct suite *suite) {
    const int hopper = strcmp(smelt_context_arch(suite->context), "sm_90a") == 0;
    const int few = suite->emulated || suite->quick;
    struct flashmla_case one;
    for (int i = 0, done = 0; flashmla_case_at(i * (few ? LONG_STEP : STEP), &one); i++) {
        char text[SUITE_SPEC], name[SUITE_SPEC + 64];
        const int other = done % OTHERS;
        if (one.tokens == 1 || one.tokens > MOST_TOKENS ||
            (few && (!one.lengths || done == OTHERS)))
            continue;
        done++;
        if (strstr(others[other].knobs, "sm90") && !hopper)
            continue;
        one.heads = others[other].heads ? others[other].heads : one.heads;
        if (suite->emulated)
            shrink(&one);
        snprintf(text, sizeof text, "sparse_attn:heads=%d,dqk=%d,dv=%d,topk=512%s%s", one.heads,
                 one.dqk, DV, one.sink ? ",sink=1" : "", others[other].knobs);
        snprintf(name, sizeof name, "accuracy: case %d, %s", one.number, text);
        if (suite_wants(suite, name))
            run_case(suite, name, text, &one);
    }
}
