#include "harness/bench.h"
#include "harness/defaults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/option_text.h"
#include "harness/placed.h"
#include "smelt/device.h"

enum {
    GROUP = 8, /* items timed in turn; their tensors are on the device together */
    WARM_UP = 3,
    DEFAULT_LAUNCHES = 30,
    TINY_CALLS = 500, /* calls between two synchronisations */
    TINY_ROUNDS = 5
};

struct entry {
    const struct smelt__bench_item *item;
    struct smelt__bench_result *result;
    struct smelt__harness_spec spec;
    const struct smelt__harness_pass *pass;
    struct smelt__placed placed;   /* the entry's own, unless it shares another's */
    struct smelt__placed *tensors; /* those of the first entry with the same problem */
    smelt_operator *object;
    struct CUevent_st *begin, *end;
    double *ms; /* [launches] */
    int ready;
};

static smelt_status note(struct entry *entry, const char *step, smelt_status status) {
    entry->result->status = status;
    if (status != SMELT_OK)
        snprintf(entry->result->message, sizeof entry->result->message, "%s: %s: %s", step,
                 smelt_status_name(status), smelt__harness_reason(status));
    return status;
}

/* ---- one item -------------------------------------------------------------------------------- */

static void entry_close(struct entry *entry, smelt_context *context) {
    if (entry->begin)
        smelt_event_destroy(context, entry->begin);
    if (entry->end)
        smelt_event_destroy(context, entry->end);
    if (entry->object)
        smelt__harness_calls->destroy(&entry->object);
    if (entry->placed.context)
        smelt__placed_destroy(&entry->placed);
    entry->tensors = NULL;
    smelt__harness_spec_free(&entry->spec);
    free(entry->ms);
}

/* Whether the same problems serve two specs. */
static int same_keys(const struct smelt__harness_key *keys, const void *a, const void *b) {
    for (; keys && keys->name; keys++)
        if (!keys->apart &&
            memcmp((const char *)a + keys->field, (const char *)b + keys->field, sizeof(int)) != 0)
            return 0;
    return 1;
}

static int same_problem(const struct entry *a, const struct entry *b) {
    const struct smelt__harness_operator *op = a->spec.op;
    struct smelt__problem_options x = a->item->problem, y = b->item->problem;
    if (a->pass != b->pass || !same_keys(op->keys, a->spec.spec, b->spec.spec))
        return 0;
    smelt__options_default(op, a->spec.spec, &x);
    smelt__options_default(op, b->spec.spec, &y);
    return smelt__problem_same(op, &x, &y);
}

/* Takes over the tensors of an earlier entry with the same problem. */
static int share(struct entry *entry, struct entry *earlier, int count) {
    for (int i = 0; i < count; i++)
        if (earlier[i].ready && earlier[i].tensors && same_problem(entry, &earlier[i])) {
            const struct smelt__bench_result *from = earlier[i].result;
            entry->tensors = earlier[i].tensors;
            entry->result->queries = from->queries;
            entry->result->rows = from->rows;
            entry->result->width = from->width;
            entry->result->valid_slots = from->valid_slots;
            entry->result->lists = from->lists;
            memcpy(entry->result->rates, from->rates, sizeof from->rates);
            entry->result->rate_count = from->rate_count;
            return 1;
        }
    return 0;
}

/* Uploads the problem. Of the host's copy only what the figures need is kept. */
static smelt_status upload(struct entry *entry, smelt_context *context) {
    struct smelt__problem problem;
    if (smelt__problem_create(&problem, entry->spec.op, entry->pass, entry->spec.spec,
                              &entry->item->problem) != 0) {
        entry->result->status = SMELT_ERROR_OUT_OF_MEMORY;
        snprintf(entry->result->message, sizeof entry->result->message,
                 "out of memory while making the problem");
        return SMELT_ERROR_OUT_OF_MEMORY;
    }
    entry->result->queries = problem.computed;
    entry->result->rows = problem.options.rows;
    entry->result->width = problem.options.width;
    entry->result->valid_slots = problem.valid_slots;
    entry->result->lists = smelt__harness_inputs(entry->spec.op, &problem.options);
    entry->result->rate_count =
        entry->pass->rates ? entry->pass->rates(&problem, entry->result->rates) : 0;
    smelt_status status = note(entry, "placing the problem on the device",
                               smelt__placed_create(&entry->placed, context, &problem));
    entry->placed.problem = NULL;
    entry->tensors = &entry->placed;
    smelt__problem_destroy(&problem);
    return status;
}

static smelt_status open_spec(struct entry *entry) {
    const smelt_status status =
        note(entry, "the spec", smelt__harness_spec_parse(&entry->spec, entry->item->spec));
    if (status != SMELT_OK)
        return status;
    entry->pass = smelt__harness_spec_pass(&entry->spec, entry->item->pass);
    if (!entry->pass)
        return note(entry, "it is not made for the requested pass", SMELT_ERROR_INVALID_SPEC);
    entry->result->pass = entry->pass->name;
    return SMELT_OK;
}

static smelt_status look_over(struct entry *entry) {
    struct smelt__bench_result *result = entry->result;
    if (smelt__problem_refused(entry->spec.op, entry->pass, entry->spec.spec, &entry->item->problem,
                               entry->object, result->message, sizeof result->message))
        result->status = SMELT_ERROR_INVALID_ARGUMENT;
    return result->status;
}

/* `earlier`: the number of entries before it in the group. */
static smelt_status entry_open(struct entry *entry, smelt_context *context,
                               const struct smelt__bench_item *item,
                               struct smelt__bench_result *result, int launches,
                               struct entry *earlier, int count) {
    memset(entry, 0, sizeof *entry);
    memset(result, 0, sizeof *result);
    entry->item = item;
    entry->result = result;
    snprintf(result->spec, sizeof result->spec, "%s", item->spec);
    entry->ms = malloc((size_t)launches * sizeof *entry->ms);
    if (!entry->ms)
        return note(entry, "out of memory", SMELT_ERROR_OUT_OF_MEMORY);
    smelt_status status = open_spec(entry);
    if (status == SMELT_OK)
        status = note(entry, "making the operator",
                      smelt__harness_calls->create(&entry->object, context, entry->spec.text));
    if (status == SMELT_OK)
        status = look_over(entry);
    if (status == SMELT_OK && !share(entry, earlier, count))
        status = upload(entry, context);
    if (status == SMELT_OK)
        status = note(entry, "workspace", smelt__placed_workspace(entry->tensors, entry->object));
    if (status == SMELT_OK)
        status = note(entry, "smelt_event_create", smelt_event_create(context, &entry->begin));
    if (status == SMELT_OK)
        status = note(entry, "smelt_event_create", smelt_event_create(context, &entry->end));
    entry->ready = status == SMELT_OK;
    return status;
}

static smelt_status launch_timed(struct entry *entry, smelt_context *context,
                                 struct CUstream_st *stream, int round) {
    smelt_status status = smelt_event_record(context, entry->begin, stream);
    if (status == SMELT_OK)
        status = smelt__harness_calls->launch(entry->object, entry->pass->pass,
                                              entry->tensors->args, stream);
    if (status == SMELT_OK)
        status = smelt_event_record(context, entry->end, stream);
    float ms = 0;
    if (status == SMELT_OK)
        status = smelt_event_elapsed(context, entry->begin, entry->end, &ms);
    if (round >= 0)
        entry->ms[round] = (double)ms;
    return note(entry, "launching", status);
}

static double microseconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

/* Whether all tensors with an extent of this field are optional, or absent from the call. */
static int is_optional(const struct smelt__args_table *table, const void *args, size_t field) {
    int optional = 1;
    for (int i = 0; i < table->count; i++)
        for (int k = 0; k < table->rows[i].dimensions; k++)
            if (table->symbols[table->rows[i].shape[k]].field == field)
                optional &=
                    table->rows[i].optional || !smelt__tensor_in(&table->rows[i], args)->data;
    return optional;
}

/* Whether the field is an extent of outputs alone: it may have to be as large as the spec says. */
static int is_of_outputs(const struct smelt__args_table *table, size_t field) {
    for (int i = 0; i < table->count; i++)
        for (int k = 0; k < table->rows[i].dimensions; k++)
            if (table->symbols[table->rows[i].shape[k]].field == field &&
                table->rows[i].role == SMELT__INPUT)
                return 0;
    return 1;
}

/* Turns *args, which name the tensors of a larger problem, into the smallest call: extents of 1 and,
 * unless `whole`, no optional input. */
static void make_tiny(const struct smelt__args_table *table, int whole, void *args) {
    for (int i = 0; i < table->symbol_count; i++) {
        const size_t field = table->symbols[i].field;
        int64_t extent = 0;
        if (field)
            memcpy(&extent, (const char *)args + field, sizeof extent);
        extent = extent > 0 && (whole || !is_optional(table, args, field)); /* 0: absent */
        if (field && !is_of_outputs(table, field))
            memcpy((char *)args + field, &extent, sizeof extent);
    }
    for (int i = 0; i < table->count && !whole; i++)
        if (table->rows[i].role == SMELT__INPUT && table->rows[i].optional)
            smelt__tensor_of(&table->rows[i], args)->data = NULL;
}

/* The CPU time of a call: the shortest of several rounds of the smallest calls on this problem. */
static smelt_status time_calls(struct entry *entry, smelt_context *context,
                               struct CUstream_st *stream) {
    const size_t bytes = entry->pass->tensors->bytes;
    void *args = malloc(bytes);
    if (!args)
        return note(entry, "out of memory", SMELT_ERROR_OUT_OF_MEMORY);
    memcpy(args, entry->tensors->args, bytes);
    make_tiny(entry->pass->tensors, 0, args);
    smelt_status status =
        smelt__harness_calls->launch(entry->object, entry->pass->pass, args, stream);
    if (status == SMELT_ERROR_INVALID_ARGUMENT) { /* the spec requires an optional input */
        memcpy(args, entry->tensors->args, bytes);
        make_tiny(entry->pass->tensors, 1, args);
        status = SMELT_OK;
    }
    for (int round = 0; round < TINY_ROUNDS && status == SMELT_OK; round++) {
        double begin = microseconds_now();
        for (int i = 0; i < TINY_CALLS && status == SMELT_OK; i++)
            status = smelt__harness_calls->launch(entry->object, entry->pass->pass, args, stream);
        double each = (microseconds_now() - begin) / TINY_CALLS;
        if (round == 0 || each < entry->result->launch_us)
            entry->result->launch_us = each;
        if (status == SMELT_OK)
            status = smelt_stream_synchronize(context, stream);
    }
    free(args);
    return note(entry, "timing calls", status);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void figure(struct entry *entry, int launches) {
    struct smelt__bench_result *result = entry->result;
    qsort(entry->ms, (size_t)launches, sizeof *entry->ms, compare_doubles);
    result->ms_min = entry->ms[0];
    result->ms_max = entry->ms[launches - 1];
    result->ms_median = (entry->ms[(launches - 1) / 2] + entry->ms[launches / 2]) / 2;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int run_group(smelt_context *context, const struct smelt__bench_item *items, int count,
                     int launches, struct smelt__bench_result *results) {
    struct entry entries[GROUP];
    struct CUstream_st *stream = NULL;
    int failed = 0;
    smelt_status made = smelt_stream_create(context, &stream);
    for (int i = 0; i < count; i++) {
        entry_open(&entries[i], context, &items[i], &results[i], launches, entries, i);
        if (made != SMELT_OK && entries[i].ready) {
            note(&entries[i], "smelt_stream_create", made);
            entries[i].ready = 0;
        }
    }
    for (int round = -WARM_UP; round < launches; round++)
        for (int i = 0; i < count; i++)
            if (entries[i].ready)
                entries[i].ready = launch_timed(&entries[i], context, stream, round) == SMELT_OK;
    for (int i = 0; i < count; i++) {
        if (entries[i].ready)
            entries[i].ready = time_calls(&entries[i], context, stream) == SMELT_OK;
        if (entries[i].ready)
            figure(&entries[i], launches);
        failed += !entries[i].ready;
    }
    for (int i = count - 1; i >= 0; i--)
        entry_close(&entries[i], context);
    if (stream)
        smelt_stream_destroy(context, stream);
    return failed;
}

int smelt__bench_run(smelt_context *context, const struct smelt__bench_item *items, int count,
                     int launches, struct smelt__bench_result *results) {
    int failed = 0;
    if (launches <= 0)
        launches = DEFAULT_LAUNCHES;
    for (int i = 0; i < count; i += GROUP)
        failed += run_group(context, items + i, count - i < GROUP ? count - i : GROUP, launches,
                            results + i);
    return failed;
}

/* ---- the peers' shapes ----------------------------------------------------------------------- */

int smelt__bench_peer_items(struct smelt__bench_item *items, int capacity) {
    int count = 0;
    for (int i = 0; smelt__harness_operators[i]; i++)
        for (int k = 0; k < smelt__harness_operators[i]->peer_count; k++, count++) {
            const struct smelt__harness_shape *shape = &smelt__harness_operators[i]->peers[k];
            if (count >= capacity)
                continue;
            memset(&items[count], 0, sizeof items[count]);
            snprintf(items[count].spec, sizeof items[count].spec, "%s", shape->spec);
            items[count].problem.seed = 1;
            items[count].problem.tokens = shape->tokens;
            items[count].problem.rows = shape->rows;
            items[count].problem.lists = shape->lists;
            items[count].problem.valid = shape->valid;
            items[count].problem.documents = shape->documents;
            items[count].problem.topk_length = shape->topk_length;
        }
    return count;
}
