#include "harness/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/placed.h"
#include "smelt/device.h"

enum {
    GROUP = 8, /* items timed in turn; their tensors are on the device together */
    WARM_UP = 3,
    DEFAULT_LAUNCHES = 30,
    TINY_CALLS = 500, /* calls between two synchronisations */
    TINY_ROUNDS = 5
};

/* Measured on one H200: a large bf16 matrix product under sustained load. */
static const double TFLOPS_CEILING = 690;

/* Measured on one H200: gathering 1152-byte rows without arithmetic, TB/s, by rows of the table. */
static double gather_ceiling(int64_t rows) {
    static const struct {
        int64_t rows;
        double tbs;
    } measured[] = {{16384, 9.5}, {32768, 9.0}, {65536, 6.5}};
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++)
        if (rows <= measured[i].rows)
            return measured[i].tbs;
    return 5.2;
}

struct entry {
    const struct smelt__bench_item *item;
    struct smelt__bench_result *result;
    smelt_sparse_attn_spec spec;
    char *knobs;
    struct smelt__placed placed;   /* unless it is another's: */
    struct smelt__placed *tensors; /* an entry's of the same problem, perhaps this one's */
    smelt_sparse_attn *attn;
    struct CUevent_st *begin, *end;
    double *ms; /* [launches] */
    int ready;
};

static smelt_status note(struct entry *entry, const char *step, smelt_status status) {
    entry->result->status = status;
    if (status != SMELT_OK)
        snprintf(entry->result->message, sizeof entry->result->message, "%s: %s: %s", step,
                 smelt_status_name(status), smelt_last_error());
    return status;
}

/* ---- one item -------------------------------------------------------------------------------- */

static void entry_close(struct entry *entry, smelt_context *context) {
    if (entry->begin)
        smelt_event_destroy(context, entry->begin);
    if (entry->end)
        smelt_event_destroy(context, entry->end);
    smelt_sparse_attn_destroy(&entry->attn);
    if (entry->placed.context)
        smelt__placed_destroy(&entry->placed);
    entry->tensors = NULL;
    smelt_free(entry->knobs);
    free(entry->ms);
}

static int same_problem(const struct entry *a, const struct entry *b) {
    struct smelt__problem_options x = a->item->problem, y = b->item->problem;
    smelt__problem_defaults(&a->spec, &x);
    smelt__problem_defaults(&b->spec, &y);
    return a->spec.heads == b->spec.heads && a->spec.dqk == b->spec.dqk &&
           a->spec.dv == b->spec.dv && a->spec.topk == b->spec.topk &&
           a->spec.sink == b->spec.sink && smelt__problem_same(&x, &y);
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
            return 1;
        }
    return 0;
}

/* Uploads; the host's copy of the problem is not kept, only what the figures need of it. */
static smelt_status place(struct entry *entry, smelt_context *context) {
    struct smelt__problem problem;
    if (smelt__problem_create(&problem, &entry->spec, &entry->item->problem) != 0) {
        entry->result->status = SMELT_ERROR_OUT_OF_MEMORY;
        snprintf(entry->result->message, sizeof entry->result->message,
                 "out of memory while making the problem");
        return SMELT_ERROR_OUT_OF_MEMORY;
    }
    entry->result->queries = problem.computed;
    entry->result->rows = problem.options.rows;
    entry->result->width = problem.options.width;
    entry->result->valid_slots = problem.valid_slots;
    entry->result->lists = smelt__lists_name(problem.options.lists);
    smelt_status status = note(entry, "placing the problem on the device",
                               smelt__placed_create(&entry->placed, context, &problem));
    entry->placed.problem = NULL;
    entry->tensors = &entry->placed;
    smelt__problem_destroy(&problem);
    return status;
}

/* `earlier`: so many entries of the group before it. */
static smelt_status entry_open(struct entry *entry, smelt_context *context,
                               const struct smelt__bench_item *item,
                               struct smelt__bench_result *result, int launches,
                               struct entry *earlier, int count) {
    memset(entry, 0, sizeof *entry);
    memset(result, 0, sizeof *result);
    entry->item = item;
    entry->result = result;
    entry->spec = (smelt_sparse_attn_spec)SMELT_SPARSE_ATTN_SPEC_INIT;
    snprintf(result->spec, sizeof result->spec, "%s", item->spec);
    entry->ms = malloc((size_t)launches * sizeof *entry->ms);
    if (!entry->ms)
        return note(entry, "out of memory", SMELT_ERROR_OUT_OF_MEMORY);
    smelt_status status = note(
        entry, "the spec", smelt_sparse_attn_spec_parse(item->spec, &entry->spec, &entry->knobs));
    if (status == SMELT_OK)
        status = note(entry, "smelt_sparse_attn_create",
                      smelt_sparse_attn_create(&entry->attn, context, &entry->spec));
    if (status == SMELT_OK && !share(entry, earlier, count))
        status = place(entry, context);
    if (status == SMELT_OK)
        status = note(entry, "workspace", smelt__placed_workspace(entry->tensors, entry->attn));
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
        status = smelt_sparse_attn_forward(entry->attn, &entry->tensors->args, stream);
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

/* The best of several rounds of calls on one query of this problem: what a call costs the CPU. */
static smelt_status time_calls(struct entry *entry, smelt_context *context,
                               struct CUstream_st *stream) {
    smelt_sparse_attn_args tiny = entry->tensors->args;
    tiny.batches = 1;
    tiny.tokens = 1;
    tiny.width = 1;
    tiny.queries.data = NULL;
    tiny.query_count.data = NULL;
    tiny.query_capacity = 0;
    smelt_status status = SMELT_OK;
    for (int round = 0; round < TINY_ROUNDS && status == SMELT_OK; round++) {
        double begin = microseconds_now();
        for (int i = 0; i < TINY_CALLS && status == SMELT_OK; i++)
            status = smelt_sparse_attn_forward(entry->attn, &tiny, stream);
        double each = (microseconds_now() - begin) / TINY_CALLS;
        if (round == 0 || each < entry->result->launch_us)
            entry->result->launch_us = each;
        if (status == SMELT_OK)
            status = smelt_stream_synchronize(context, stream);
    }
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
    double picoseconds = result->ms_median * 1e9, slots = (double)result->valid_slots;
    if (picoseconds > 0) {
        result->tflops =
            2 * slots * entry->spec.heads * (entry->spec.dqk + entry->spec.dv) / picoseconds;
        result->gather_tbs = slots * entry->spec.dqk * 2 / picoseconds;
    }
    result->tflops_ceiling = TFLOPS_CEILING;
    result->gather_ceiling = gather_ceiling(result->rows);
    result->tflops_ratio = result->tflops / result->tflops_ceiling;
    result->gather_ratio = result->gather_tbs / result->gather_ceiling;
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

static void add_item(struct smelt__bench_item *items, int capacity, int *count, int64_t rows,
                     const char *spec) {
    if (*count < capacity) {
        struct smelt__bench_item *item = &items[*count];
        memset(item, 0, sizeof *item);
        snprintf(item->spec, sizeof item->spec, "%s", spec);
        item->problem.seed = 1;
        item->problem.tokens = 4096;
        item->problem.rows = rows;
    }
    (*count)++;
}

int smelt__bench_peer_items(struct smelt__bench_item *items, int capacity) {
    static const int rows[] = {8192, 32768, 131072}, sink_topks[] = {640, 1152};
    char spec[256];
    int count = 0;
    for (int i = 0; i < 3; i++)
        for (int heads = 64; heads <= 128; heads *= 2)
            for (int topk = 256; topk <= 2048; topk *= 2) {
                snprintf(spec, sizeof spec, "sparse_attn:heads=%d,dqk=576,dv=512,topk=%d", heads,
                         topk);
                add_item(items, capacity, &count, rows[i], spec);
            }
    for (int heads = 64; heads <= 128; heads *= 2)
        for (int i = 0; i < 2; i++) {
            snprintf(spec, sizeof spec, "sparse_attn:heads=%d,dqk=512,dv=512,topk=%d,sink=1", heads,
                     sink_topks[i]);
            add_item(items, capacity, &count, 8192, spec);
        }
    for (int heads = 8; heads <= 32; heads *= 2) {
        snprintf(spec, sizeof spec, "sparse_attn:heads=%d,dqk=576,dv=512,topk=2048", heads);
        add_item(items, capacity, &count, 8192, spec);
    }
    return count;
}
