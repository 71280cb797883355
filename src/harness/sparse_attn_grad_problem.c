/* Problems of sparse_attn's backward pass: its tensors in addition to the forward pass's inputs. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "harness/normal.h"
#include "harness/parallel.h"
#include "harness/sparse_attn.h"
#include "reference/operators.h"

#define TENSOR(name) SMELT__SPARSE_ATTN_GRAD_##name

enum { STREAM_GRAD_OUT = 11, STREAM_OUT, STREAM_SUM };

/* Up to so many multiplications (a second or two on a few processors) out and lse are the
 * reference's. In larger problems they are invented. */
static const double EXACT_WORK = 4e9;

/* ---- shape ----------------------------------------------------------------------------------- */

void smelt__sparse_attn_grad_shape_problem(struct smelt__problem *problem) {
    smelt__sparse_attn_shape_extents(problem);
    if (problem->options.far) /* all partial rows at once */
        ((smelt_sparse_attn_grad_args *)problem->args)->workspace_limit = SIZE_MAX;
}

struct smelt__key_rows smelt__sparse_attn_dkv_rows(const struct smelt__problem *problem) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    return (struct smelt__key_rows){TENSOR(DKV), TENSOR(DKV_FP32), TENSOR(DKV_SUM), spec->dqk};
}

int smelt__sparse_attn_grad_given(const struct smelt__problem *problem, int tensor) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    const struct smelt__key_rows dkv = smelt__sparse_attn_dkv_rows(problem);
    switch (tensor) {
    case TENSOR(DKV):
    case TENSOR(DKV_FP32):
    case TENSOR(DKV_SUM):
        return smelt__key_rows_given(problem, &dkv, tensor);
    case TENSOR(DSINK):
        return spec->sink;
    default: /* inputs have the forward pass's numbers */
        return smelt__sparse_attn_given(problem, tensor);
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

struct fill {
    struct smelt__problem *problem;
    smelt_sparse_attn_args inputs;
    const struct smelt__normals *normals;
    int exact;
    _Atomic int failed;
};

/* A row of a tensor that has rows for each head of each query. */
static void *row_at(const struct fill *fill, int tensor, int64_t query, int head) {
    const int64_t tokens = fill->problem->options.tokens;
    const int64_t bytes =
        (int64_t)smelt__element_bytes(fill->problem->pass->tensors->rows[tensor].element);
    return (char *)smelt__problem_data(fill->problem, tensor) +
           bytes * smelt__problem_at(fill->problem, tensor, query / tokens, query % tokens, head);
}

/* Fills every row of a query that is not computed with NaN, so that its use shows in the
 * results. */
static void spoil_query(const struct fill *fill, int64_t query) {
    const struct smelt__sparse_attn_spec *spec = fill->problem->spec;
    const size_t dv = (size_t)spec->dv * sizeof(uint16_t);
    for (int head = 0; head < spec->heads; head++) {
        memset(row_at(fill, TENSOR(OUT), query, head), 0xff, dv);
        memset(row_at(fill, TENSOR(GRAD_OUT), query, head), 0xff, dv);
        memset(row_at(fill, TENSOR(LSE), query, head), 0xff, sizeof(float));
    }
}

static void clear_query(const struct fill *fill, int64_t query) {
    const struct smelt__sparse_attn_spec *spec = fill->problem->spec;
    for (int head = 0; head < spec->heads; head++) {
        memset(row_at(fill, TENSOR(OUT), query, head), 0, (size_t)spec->dv * sizeof(uint16_t));
        *(float *)row_at(fill, TENSOR(LSE), query, head) = -INFINITY;
    }
}

/* Computes out and lse. */
static int compute_query(const struct fill *fill, int64_t query) {
    const struct smelt__sparse_attn_spec *spec = fill->problem->spec;
    const size_t heads = (size_t)spec->heads, dv = (size_t)spec->dv;
    double *memory = malloc(heads * (dv + 1) * sizeof *memory);
    struct smelt__sparse_attn_results results = {.out = memory};
    int failed = memory == NULL;
    if (memory) {
        results.lse = memory + heads * dv;
        failed = smelt__sparse_attn_reference(spec, &fill->inputs, &query, 1, &results);
    }
    for (size_t head = 0; head < heads && !failed; head++) {
        uint16_t *out = row_at(fill, TENSOR(OUT), query, (int)head);
        for (size_t d = 0; d < dv; d++)
            out[d] = smelt__bf16_from_float((float)results.out[head * dv + d]);
        *(float *)row_at(fill, TENSOR(LSE), query, (int)head) = (float)results.lse[head];
    }
    free(memory);
    return failed;
}

/* Invents out and lse: the gradients are defined for any, and a kernel does the same work. lse is
 * close to the real one; out is normally distributed, with the variance of a mean of so many
 * values, times the share that the sink leaves. */
static void invent_query(const struct fill *fill, int64_t query, int64_t valid) {
    const struct smelt__sparse_attn_spec *spec = fill->problem->spec;
    const uint64_t seed = fill->problem->options.seed;
    for (int head = 0; head < spec->heads; head++) {
        const uint64_t row = (uint64_t)query * (uint64_t)spec->heads + (uint64_t)head;
        const uint16_t *q = row_at(fill, TENSOR(Q), query, head);
        uint16_t *out = row_at(fill, TENSOR(OUT), query, head);
        const double lse = smelt__sparse_attn_estimate_lse(fill->problem, spec->dqk, q, valid);
        const double denominator = smelt__sparse_attn_denominator(spec, &fill->inputs, head, lse);
        const float factor = (float)(exp(lse - denominator) / sqrt((double)valid));
        smelt__normals_row(fill->normals, seed, STREAM_OUT, row, out, spec->dv);
        for (int d = 0; d < spec->dv; d++)
            out[d] = smelt__bf16_from_float(factor * smelt__bf16_to_float(out[d]));
        *(float *)row_at(fill, TENSOR(LSE), query, head) = (float)lse;
    }
}

static void fill_query(struct fill *fill, int64_t query) {
    const int64_t valid = smelt__problem_valid_slots(fill->problem, query);
    if (valid == 0)
        clear_query(fill, query);
    else if (!fill->exact)
        invent_query(fill, query, valid);
    else if (compute_query(fill, query) != 0)
        atomic_store(&fill->failed, 1);
}

static void fill_queries(void *user, int64_t begin, int64_t end) {
    struct fill *fill = user;
    const struct smelt__problem *problem = fill->problem;
    for (int64_t query = begin; query < end; query++) {
        if (!problem->listed || problem->listed[query])
            fill_query(fill, query);
        else if (!problem->options.far) /* the emulator checks those */
            spoil_query(fill, query);
    }
}

int smelt__sparse_attn_grad_fill(struct smelt__problem *problem) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    const struct smelt__problem_options *options = &problem->options;
    if (smelt__sparse_attn_fill(problem) != 0)
        return -1;
    struct fill *fill = malloc(sizeof *fill);
    if (!fill)
        return -1;
    const double work = (double)problem->valid_slots * spec->heads * (spec->dqk + spec->dv);
    fill->problem = problem;
    fill->inputs = smelt__sparse_attn_inputs(problem);
    fill->exact = work <= EXACT_WORK;
    atomic_init(&fill->failed, 0);
    fill->normals = smelt__normals();
    smelt__normals_fill(problem, TENSOR(GRAD_OUT), STREAM_GRAD_OUT);
    smelt__parallel_for(options->batches * options->tokens, fill->exact ? 1 : 16, fill_queries,
                        fill);
    const int failed = atomic_load(&fill->failed);
    const struct smelt__key_rows dkv = smelt__sparse_attn_dkv_rows(problem);
    free(fill);
    return failed ? -1 : smelt__key_rows_fill(problem, &dkv, STREAM_SUM);
}
