#include "harness/footprint.h"

#include <stdlib.h>
#include <string.h>

#include "reference/sparse_attn.h"

static const struct {
    const char *name;
    size_t element_bytes;
} buffers[SMELT__BUFFERS] = {
    [SMELT__BUFFER_Q] = {"q", sizeof(uint16_t)},
    [SMELT__BUFFER_KV] = {"kv", sizeof(uint16_t)},
    [SMELT__BUFFER_INDICES] = {"indices", sizeof(int32_t)},
    [SMELT__BUFFER_TOPK_LENGTH] = {"topk_length", sizeof(int32_t)},
    [SMELT__BUFFER_SINK] = {"sink", sizeof(float)},
    [SMELT__BUFFER_QUERIES] = {"queries", sizeof(int32_t)},
    [SMELT__BUFFER_QUERY_COUNT] = {"query_count", sizeof(int32_t)},
    [SMELT__BUFFER_OUT] = {"out", sizeof(uint16_t)},
    [SMELT__BUFFER_LSE] = {"lse", sizeof(float)},
    [SMELT__BUFFER_MAX_LOGITS] = {"max_logits", sizeof(float)},
};

const char *smelt__buffer_name(enum smelt__buffer buffer) {
    return buffers[buffer].name;
}

size_t smelt__buffer_element_bytes(enum smelt__buffer buffer) {
    return buffers[buffer].element_bytes;
}

struct survey {
    const struct smelt__problem *problem;
    smelt_sparse_attn_args args; /* strides resolved */
    struct smelt__footprint *footprints;
    int64_t *rows; /* [width]: one query's valid rows */
    int failed;    /* out of memory */
};

/* ---- intervals ------------------------------------------------------------------------------- */

/* Adds `count` elements from number `first` on. */
static void add(struct survey *survey, enum smelt__buffer buffer, int64_t first, int64_t count) {
    struct smelt__footprint *footprint = &survey->footprints[buffer];
    int64_t bytes = (int64_t)buffers[buffer].element_bytes;
    if (count <= 0)
        return;
    if (footprint->count == footprint->capacity) {
        size_t capacity = footprint->capacity ? 2 * footprint->capacity : 64;
        void *larger = realloc(footprint->intervals, capacity * sizeof footprint->intervals[0]);
        if (!larger) {
            survey->failed = 1;
            return;
        }
        footprint->intervals = larger;
        footprint->capacity = capacity;
    }
    footprint->intervals[footprint->count++] =
        (struct smelt__interval){first * bytes, (first + count) * bytes};
}

static int by_begin(const void *a, const void *b) {
    const struct smelt__interval *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Sorts, and joins what overlaps or touches. */
static void join(struct smelt__footprint *footprint) {
    struct smelt__interval *intervals = footprint->intervals;
    size_t kept = 0;
    if (footprint->count == 0)
        return;
    qsort(intervals, footprint->count, sizeof intervals[0], by_begin);
    for (size_t i = 1; i < footprint->count; i++) {
        if (intervals[i].begin > intervals[kept].end)
            intervals[++kept] = intervals[i];
        else if (intervals[i].end > intervals[kept].end)
            intervals[kept].end = intervals[i].end;
    }
    footprint->count = kept + 1;
}

/* ---- what belongs to a query ----------------------------------------------------------------- */

static int64_t slots_of(const struct survey *survey, int64_t batch, int64_t token) {
    const smelt_sparse_attn_args *a = &survey->args;
    const int32_t *lengths = a->topk_length.data;
    int64_t slots = a->width;
    if (lengths)
        slots = lengths[batch * a->topk_length.strides[0] + token * a->topk_length.strides[1]];
    return slots < a->width ? slots : a->width;
}

static void add_query(struct survey *survey, int64_t query) {
    const smelt_sparse_attn_args *a = &survey->args;
    const smelt_sparse_attn_spec *spec = &survey->problem->spec;
    int64_t batch = query / a->tokens, token = query % a->tokens;
    int64_t q = batch * a->q.strides[0] + token * a->q.strides[1];
    int64_t out = batch * a->out.strides[0] + token * a->out.strides[1];
    int64_t lse = batch * a->lse.strides[0] + token * a->lse.strides[1];
    for (int64_t head = 0; head < spec->heads; head++) {
        add(survey, SMELT__BUFFER_Q, q + head * a->q.strides[2], spec->dqk);
        add(survey, SMELT__BUFFER_OUT, out + head * a->out.strides[2], spec->dv);
        add(survey, SMELT__BUFFER_LSE, lse + head * a->lse.strides[2], 1);
        add(survey, SMELT__BUFFER_MAX_LOGITS, lse + head * a->lse.strides[2], 1);
    }
    add(survey, SMELT__BUFFER_INDICES,
        batch * a->indices.strides[0] + token * a->indices.strides[1],
        slots_of(survey, batch, token));
    add(survey, SMELT__BUFFER_TOPK_LENGTH,
        batch * a->topk_length.strides[0] + token * a->topk_length.strides[1], 1);
    int64_t valid = smelt__sparse_attn_valid_rows(spec, a, query, survey->rows);
    for (int64_t i = 0; i < valid; i++)
        add(survey, SMELT__BUFFER_KV, batch * a->kv.strides[0] + survey->rows[i] * a->kv.strides[1],
            spec->dqk);
}

int smelt__footprint_make(const struct smelt__problem *problem,
                          struct smelt__footprint footprints[SMELT__BUFFERS]) {
    struct survey survey = {.problem = problem, .args = problem->args, .footprints = footprints};
    int64_t queries = problem->args.batches * problem->args.tokens;
    int64_t listed = problem->args.query_capacity;
    memset(footprints, 0, SMELT__BUFFERS * sizeof *footprints);
    smelt__sparse_attn_resolve_strides(&problem->spec, &survey.args);
    survey.rows = malloc((size_t)problem->args.width * sizeof *survey.rows);
    if (!survey.rows)
        return -1;
    for (int64_t query = 0; query < queries; query++)
        if (!problem->listed || problem->listed[query])
            add_query(&survey, query);
    const int32_t *count = problem->args.query_count.data;
    if (count && *count < listed)
        listed = *count;
    add(&survey, SMELT__BUFFER_QUERIES, 0, listed);
    add(&survey, SMELT__BUFFER_QUERY_COUNT, 0, 1);
    add(&survey, SMELT__BUFFER_SINK, 0, problem->spec.heads);
    for (int i = 0; i < SMELT__BUFFERS; i++)
        join(&footprints[i]);
    free(survey.rows);
    return survey.failed ? -1 : 0;
}

void smelt__footprint_free(struct smelt__footprint footprints[SMELT__BUFFERS]) {
    for (int i = 0; i < SMELT__BUFFERS; i++)
        free(footprints[i].intervals);
    memset(footprints, 0, SMELT__BUFFERS * sizeof *footprints);
}
