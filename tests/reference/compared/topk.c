/* The requirements on the outputs of indexer_topk: see compared.h. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compared.h"
#include "reference/operators.h"
#include "smelt/kernels.h"
#include "tables.h"

#define LEAST (129 * 0x1p-150)

static const struct smelt__indexer_topk_spec *spec_of(const struct bench *bench) {
    return bench->spec.spec;
}

static int64_t blocks_of(const struct bench *bench, int block) {
    return (bench->problem.options.rows + block - 1) / block;
}

/* own: for each query and selection (the choice, then the published blocks) the logits of all groups,
 * and the sums of the sizes of what they are made of. */
static int64_t own_size(const struct bench *bench, int published) {
    const struct smelt__indexer_topk_spec *spec = spec_of(bench);
    if (published && spec->publish == 0)
        return 0;
    return spec->groups * blocks_of(bench, published ? spec->publish_block : spec->block_max);
}

static double *own_of(const struct bench *bench, int64_t query, int published) {
    const int64_t each = 2 * (own_size(bench, 0) + own_size(bench, 1));
    return bench->own + query * each + (published ? 2 * own_size(bench, 0) : 0);
}

static void prepare(struct bench *bench) {
    const struct smelt__indexer_topk_spec *spec = spec_of(bench);
    const int64_t tokens = bench->problem.extents[0];
    smelt_indexer_topk_args args;
    smelt__problem_arguments(&bench->problem, &args);
    bench->own = calloc((size_t)(tokens * 2 * (own_size(bench, 0) + own_size(bench, 1))),
                        sizeof *bench->own);
    for (int64_t query = 0; query < tokens; query++)
        for (int published = 0; published <= (spec->publish > 0); published++) {
            double *const logits = own_of(bench, query, published);
            const int block = published ? spec->publish_block : spec->block_max;
            assert_int_equal(smelt__indexer_topk_reference(spec, &args, query, block, logits,
                                                           logits + own_size(bench, published)),
                             0);
        }
}

static double tolerance(const struct bench *bench) {
    return spec_of(bench)->dtype == SMELT__DTYPE_FP8 ? 5e-4 : 1e-5;
}

/* A selection of a query and group: its window, in entries, and results; [topk] from the copy. */
struct query {
    int published; /* 1: of blocks to publish */
    int64_t begin, end, first_pinned, added, topk, wanted;
    int expand, order;
    int indices, values, lengths; /* tensors; -1: not there */
    int64_t first_index, first_value, length, width;
    const double *logits, *terms;
    const struct piece *piece; /* of its indices */
};

static int tensor_of(const struct bench *bench, const char *name) {
    return bench_has(bench, bench_tensor(bench, name)) ? bench_tensor(bench, name) : -1;
}

static struct query query_of(const struct bench *bench, int64_t unit, int published) {
    const struct smelt__indexer_topk_spec *spec = spec_of(bench);
    const smelt_indexer_topk_args *args = bench->problem.args;
    const int32_t *offsets = args->offset.data;
    const int64_t number = unit / spec->groups, group = unit % spec->groups;
    const int block = published ? spec->publish_block : spec->block_max;
    const int64_t keys = args->rows, blocks = blocks_of(bench, block);
    const int64_t from = ((const int32_t *)args->window_begin.data)[number];
    const int64_t to = ((const int32_t *)args->window_end.data)[number];
    const int64_t begin = from < 0 ? 0 : from, end = to > keys ? keys : to;
    const double *const own = own_of(bench, number, published);
    struct query query = {.published = published,
                          .begin = begin / block,
                          .end = end > begin ? (end + block - 1) / block : begin / block,
                          .topk = published ? spec->publish : spec->topk,
                          .expand = published ? 1 : spec->expand,
                          .order = published ? SMELT__ORDER_INDEX : spec->order,
                          .logits = own + group * blocks,
                          .terms = own + own_size(bench, published) + group * blocks,
                          .values = -1,
                          .lengths = -1};
    query.wanted = query.end - query.begin < query.topk ? query.end - query.begin : query.topk;
    query.first_pinned = query.end - (published ? spec->publish_pinned : spec->pinned);
    query.indices = bench_tensor(bench, published ? "published" : "indices");
    if (!published) {
        query.added = args->index_offset + (offsets ? offsets[number] : 0);
        query.values = tensor_of(bench, "values");
        query.lengths = tensor_of(bench, "lengths");
    }
    query.width = query.expand > 1 ? args->width : query.topk;
    query.first_index = smelt__problem_at(&bench->problem, query.indices, number, group, 0);
    if (query.values >= 0)
        query.first_value = smelt__problem_at(&bench->problem, query.values, number, group, 0);
    query.length =
        spec->groups == 1
            ? number
            : smelt__problem_at(&bench->problem, bench_tensor(bench, "lengths"), number, 0, 0) +
                  group;
    query.piece = &bench->pieces[bench->piece_of[query.indices][query.first_index]];
    return query;
}

/* The entry that the correct list has in a slot of entries. */
static int64_t key_at(const struct bench *bench, const struct query *query, int64_t slot) {
    const double first = bench->expected[query->indices][query->first_index + slot * query->expand];
    return ((int64_t)first - query->added) / query->expand;
}

/* ---- metrics --------------------------------------------------------------------------------- */

/* Negative where an error would change the order. */
static void size_of_values(const struct bench *bench, const struct piece *piece, double *sizes) {
    const struct query query = query_of(bench, piece->unit, 0);
    const double *values = bench->expected[piece->tensor] + piece->first;
    for (int64_t i = 0; i < piece->count; i++) {
        const int64_t key = i < query.wanted ? key_at(bench, &query, i) : -1;
        const double room = 4 * (LEAST + tolerance(bench) * (key < 0 ? 0 : query.terms[key]));
        const int crowded = (i > 0 && !(values[i - 1] - values[i] > room)) ||
                            (i + 1 < piece->count && !(values[i] - values[i + 1] > room));
        sizes[i] = key < 0 ? 0 : query.terms[key];
        if (spec_of(bench)->order == SMELT__ORDER_SCORE && crowded)
            sizes[i] = -sizes[i];
    }
}

static double bar(const struct bench *bench, double parts) {
    (void)parts;
    return tolerance(bench);
}

static const struct compared_metric metrics[] = {
    {"choice", BY_THE_TABLE, NULL, bar, 0, {NULL}},
    {"values", EACH_ELEMENT, size_of_values, bar, LEAST, {"values"}},
    {"published", BY_THE_TABLE, NULL, bar, 0, {NULL}},
    {0}};

/* ---- rules ----------------------------------------------------------------------------------- */

static const struct compared_rule rules[] = {
    {"index_behind", {"indices"}, BY_HAND, NULL},
    {"value_behind", {"values"}, BY_HAND, NULL},
    {"in_window", {"indices"}, BY_HAND, NULL},
    {"distinct", {"indices"}, BY_HAND, NULL},
    {"ascending", {"indices"}, BY_HAND, NULL},
    {"length", {"lengths"}, BY_HAND, NULL},
    {"value_number", {"values"}, BY_HAND, NULL},
    {"descending", {"values"}, BY_HAND, NULL},
    {"value_infinite", {"values"}, BY_HAND, NULL},
    {"infinite_choice", {"indices"}, BY_HAND, NULL},
    {"pinned", {"indices"}, BY_HAND, NULL},
    {"list_rows", {"indices"}, BY_HAND, NULL},
    {"published_behind", {"published"}, BY_HAND, NULL},
    {"published_in_window", {"published"}, BY_HAND, NULL},
    {"published_distinct", {"published"}, BY_HAND, NULL},
    {"published_ascending", {"published"}, BY_HAND, NULL},
    {"published_infinite_choice", {"published"}, BY_HAND, NULL},
    {"published_pinned", {"published"}, BY_HAND, NULL},
    {0},
};

static void expect(struct bench *bench, const struct query *query, const char *rule) {
    char name[64];
    if (query->published) {
        snprintf(name, sizeof name, "published_%s",
                 strcmp(rule, "index_behind") == 0 ? "behind" : rule);
        rule = name;
    }
    expect_refused(bench, query->piece, rule);
    count_plant(bench, rule);
}

static void set_index(const struct bench *bench, const struct query *query, int64_t slot,
                      int64_t index) {
    bench_set(bench, query->indices, query->first_index + slot, (double)index);
}

static void set_value(const struct bench *bench, const struct query *query, int64_t slot,
                      double value) {
    if (query->values >= 0)
        bench_set(bench, query->values, query->first_value + slot, value);
}

/* For a row whose window has fewer than topk keys. */
static void plant_behind(struct bench *bench, const struct query *query) {
    const int64_t last = query->topk - 1;
    for (int64_t slot = query->wanted; slot <= last; slot = slot == last ? last + 1 : last) {
        set_index(bench, query, slot, query->added + query->begin);
        expect(bench, query, "index_behind");
        if (query->values < 0)
            continue;
        set_value(bench, query, slot, -(double)FLT_MAX);
        expect(bench, query, "value_behind");
    }
}

static void swap_slots(const struct bench *bench, const struct query *query, int64_t slot) {
    for (int i = 0; i < 2; i++) {
        const double *values =
            query->values < 0 ? NULL : bench->expected[query->values] + query->first_value;
        set_index(bench, query, slot + i, key_at(bench, query, slot + 1 - i) + query->added);
        if (values)
            set_value(bench, query, slot + i, values[slot + 1 - i]);
    }
}

static void plant_indices(struct bench *bench, const struct query *query) {
    const int64_t last = query->wanted - 1;
    set_index(bench, query, 0, query->begin - 1 + query->added);
    expect(bench, query, "in_window");
    set_index(bench, query, last, query->end + query->added);
    expect(bench, query, "in_window");
    if (last > 0) {
        set_index(bench, query, last, key_at(bench, query, 0) + query->added);
        expect(bench, query, "distinct");
    }
    for (int64_t slot = 0; slot<last; slot += last - 1> 0 ? last - 1 : 1) {
        swap_slots(bench, query, slot);
        if (query->order == SMELT__ORDER_INDEX)
            expect(bench, query, "ascending");
        else if (query->values >= 0)
            expect(bench, query, "descending");
        bench_restore(bench);
    }
}

static void plant_values(struct bench *bench, const struct query *query) {
    const double first = bench->expected[query->values][query->first_value];
    set_value(bench, query, 0, (double)NAN);
    expect(bench, query, "value_number");
    if (!isfinite(first))
        return;
    set_value(bench, query, 0, INFINITY);
    expect(bench, query, "value_infinite");
}

/* ---- the choice ------------------------------------------------------------------------------ */

static const double *sorting; /* logits */

static int by_logit(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    const float p = (float)sorting[x], q = (float)sorting[y];
    return p != q ? (p > q ? -1 : 1) : (x > y) - (x < y);
}

static int by_number(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Writes these keys in the requested order, with their values. */
static void set_choice(const struct bench *bench, const struct query *query, int64_t *keys) {
    sorting = query->logits;
    qsort(keys, (size_t)query->wanted, sizeof *keys,
          query->order == SMELT__ORDER_INDEX ? by_number : by_logit);
    for (int64_t i = 0; i < query->wanted; i++) {
        set_index(bench, query, i, keys[i] + query->added);
        set_value(bench, query, i, (double)(float)(query->logits[keys[i]] + 0.0));
    }
}

static int is_finite(const struct query *query, int64_t key) {
    return isfinite(query->logits[key]) && isfinite(query->terms[key]);
}

/* The excess of the best unselected key's logit over the worst selected one's. */
static double choice_error(const struct query *query, const uint8_t *chosen) {
    double best = -INFINITY, worst = INFINITY, terms = 0;
    int64_t left = -1, taken = -1;
    for (int64_t key = query->begin; key < query->first_pinned; key++) {
        if (!is_finite(query, key))
            continue;
        if (chosen[key] && query->logits[key] < worst)
            worst = query->logits[taken = key];
        if (!chosen[key] && query->logits[key] > best)
            best = query->logits[left = key];
    }
    if (left < 0 || taken < 0 || best - worst <= 2 * LEAST)
        return 0;
    terms = query->terms[left] + query->terms[taken];
    return (best - worst - 2 * LEAST) / terms;
}

static double metric(const struct smelt__check_result *result, const char *name) {
    for (int i = 0; i < result->metric_count; i++)
        if (strcmp(result->metrics[i].metric->name, name) == 0)
            return result->metrics[i].value;
    return (double)NAN;
}

/* Replaces a selected key by an unselected one. */
static void plant_choice(struct bench *bench, const struct query *query, int64_t slot,
                         int64_t other) {
    const int64_t replaced = key_at(bench, query, slot);
    uint8_t chosen[MOST_NUMBERS];
    int64_t keys[MOST_NUMBERS];
    memset(chosen, 0, sizeof chosen);
    for (int64_t i = 0; i < query->wanted; i++) {
        keys[i] = i == slot ? other : key_at(bench, query, i);
        chosen[keys[i]] = 1;
    }
    set_choice(bench, query, keys);
    if (replaced >= query->first_pinned) {
        expect(bench, query, "pinned");
        return;
    }
    if (!is_finite(query, replaced) || !is_finite(query, other)) {
        const int infinite = isinf(query->logits[other]) || isinf(query->logits[replaced]);
        const int worse = query->logits[other] < query->logits[replaced] ||
                          (query->logits[other] == query->logits[replaced] && other > replaced);
        if (infinite && worse && !(query->terms[other] < 0) && !(query->terms[replaced] < 0))
            expect(bench, query, "infinite_choice");
        bench_restore(bench);
        return;
    }
    const double error = choice_error(query, chosen);
    const struct smelt__check_result *result = bench_compare_unit(bench, query->piece);
    const char *const name = query->published ? "published" : "choice";
    if (fabs(metric(result, name) - error) > 1e-9 * error)
        fail_msg("%s: %s %.9g, %.9g expected", bench->spec_text, name, metric(result, name), error);
    bench_restore(bench);
    set_choice(bench, query, keys);
    if (error > tolerance(bench))
        expect_refused(bench, query->piece, name);
    bench_restore(bench);
}

static void plant_choices(struct bench *bench, const struct query *query) {
    uint8_t chosen[MOST_NUMBERS];
    memset(chosen, 0, sizeof chosen);
    for (int64_t i = 0; i < query->wanted; i++)
        chosen[key_at(bench, query, i)] = 1;
    for (int64_t other = query->begin; other < query->end; other += 3)
        if (!chosen[other])
            plant_choice(bench, query, (other - query->begin) % query->wanted, other);
}

/* ---- lists of rows --------------------------------------------------------------------------- */

static void set_slot(const struct bench *bench, const struct query *query, int64_t slot,
                     int64_t row) {
    bench_set(bench, query->indices, query->first_index + slot, (double)(row + query->added));
}

/* A row that is another, a slot after the last that is not -1, and an entry in place of a pinned one. */
static void plant_list(struct bench *bench, const struct query *query) {
    const int64_t last = query->wanted - 1, first = key_at(bench, query, 0);
    const double *const list = bench->expected[query->indices] + query->first_index;
    set_slot(bench, query, 1, first * query->expand);
    expect(bench, query, "list_rows");
    if (list[query->width - 1] == -1 && list[query->width - 2] == -1) {
        set_slot(bench, query, query->width - 1, first * query->expand);
        expect(bench, query, "index_behind");
    }
    if (query->end - query->begin == query->wanted || query->first_pinned >= query->end)
        return;
    int64_t other = query->begin, slots = last;
    while (other < query->end && slots >= 0) /* the last entry that was left out */
        if (key_at(bench, query, slots) == query->end - 1 - (last - slots))
            slots--;
        else
            break;
    other = query->end - 1 - (last - slots);
    /* It takes the place of those after it, which move up by one. */
    for (int64_t i = slots + 1; i <= last; i++)
        for (int n = 0; n < query->expand; n++)
            set_slot(bench, query, i * query->expand + n,
                     (other + i - slots - 1) * query->expand + n);
    expect(bench, query, "pinned");
}

static void plant_selection(struct bench *bench, const struct query *query) {
    for (int i = -1; i < 2 && query->lengths >= 0; i += 2) {
        bench_set(bench, query->lengths, query->length,
                  bench->expected[query->lengths][query->length] + i);
        expect(bench, query, "length");
    }
    if (query->wanted < query->topk && query->expand == 1)
        plant_behind(bench, query);
    if (query->wanted == 0)
        return;
    if (query->expand > 1) {
        plant_list(bench, query);
        return;
    }
    plant_indices(bench, query);
    if (query->values >= 0)
        plant_values(bench, query);
    plant_choices(bench, query);
}

static void plant(struct bench *bench) {
    const struct smelt__indexer_topk_spec *spec = spec_of(bench);
    for (int64_t unit = 0; unit < bench->problem.extents[0] * spec->groups; unit++)
        for (int published = 0; published <= (spec->publish > 0); published++) {
            const struct query query = query_of(bench, unit, published);
            plant_selection(bench, &query);
        }
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct smelt__problem_options problems[] = {
    {.tokens = 26,
     .rows = 70,
     .lists = SMELT__LISTS_ADVERSARIAL,
     .topk_length = 1,
     .max_logits = 1,
     .strided = 1},
    {.batches = 2, .tokens = 6, .rows = 70, .lists = SMELT__LISTS_LOG, .max_logits = 1},
    {.batches = 2, .tokens = 5, .rows = 70, .lists = SMELT__LISTS_RANDOM},
    {.tokens = 9, .rows = 60, .lists = SMELT__LISTS_FULL, .max_logits = 1},
};

static const char *const specs[] = {
    "indexer_topk:heads=3,dim=64,dtype=bf16,topk=20",
    "indexer_topk:heads=3,dim=64,dtype=fp8,topk=20,order=score",
    "indexer_topk:heads=4,dim=64,dtype=bf16,groups=2,topk=20",
    "indexer_topk:heads=4,dim=64,dtype=fp8,groups=2,topk=20",
    "indexer_topk:heads=3,dim=64,dtype=bf16,topk=9,expand=4,tail=1",
    "indexer_topk:heads=3,dim=64,dtype=fp8,topk=9,pinned=2,expand=2",
    "indexer_topk:heads=4,dim=64,dtype=bf16,groups=2,topk=9,pinned=1,"
    "expand=2,tail=1",
    "indexer_topk:heads=4,dim=64,dtype=fp8,groups=2,topk=9,expand=2",
    "indexer_topk:heads=3,dim=64,dtype=bf16,block_max=2,topk=9,"
    "publish=7,publish_block=4,publish_pinned=1",
    NULL};

static const struct compared_pass passes[] = {
    {SMELT_PASS_FORWARD, specs, problems, 4, metrics, rules, prepare, plant}};

const struct compared compared_indexer_topk = {"indexer_topk", passes, 1};
