/* What forward must refuse, naming the argument and touching nothing; and odd calls that are legal.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "harness/sparse_attn.h"
#include "sparse_attn_groups.h"

static const char SPEC[] = "sparse_attn:heads=8,dqk=128,dv=64,topk=32";
static const char SINK_SPEC[] = "sparse_attn:heads=8,dqk=128,dv=64,topk=32,sink=1";

enum kind {
    SET_NULL,    /* a pointer */
    MOVE,        /* a pointer, by `number` bytes */
    SET_INTEGER, /* an int64_t */
    ADD_INTEGER,
    SET_SIZE,
    SET_FLOAT, /* to `real` */
    POINT      /* a pointer to something that is there */
};

struct change {
    const char *name; /* of the argument; the message must hold it */
    enum kind kind;
    size_t offset;
    int64_t number;
    float real;
    int sink; /* on the operator with a sink */
    smelt_status expected;
};

#define REFUSED SMELT_ERROR_INVALID_ARGUMENT
#define CHANGE(field, kind, number, real, sink, expected)                                          \
    { #field, kind, offsetof(smelt_sparse_attn_args, field), number, real, sink, expected }

static const struct change changes[] = {
    CHANGE(size, SET_SIZE, 0, 0, 0, REFUSED),
    CHANGE(batches, SET_INTEGER, -1, 0, 0, REFUSED),
    CHANGE(tokens, SET_INTEGER, -1, 0, 0, REFUSED),
    CHANGE(tokens, SET_INTEGER, INT64_C(1) << 31, 0, 0, REFUSED),
    CHANGE(tokens, SET_INTEGER, INT64_MAX, 0, 0, REFUSED),
    CHANGE(batches, SET_INTEGER, INT64_C(1) << 40, 0, 0, REFUSED),
    CHANGE(rows, SET_INTEGER, -1, 0, 0, REFUSED),
    CHANGE(rows, SET_INTEGER, INT64_C(1) << 31, 0, 0, REFUSED),
    CHANGE(width, SET_INTEGER, 0, 0, 0, REFUSED),
    CHANGE(width, SET_INTEGER, -1, 0, 0, REFUSED),
    CHANGE(width, SET_INTEGER, 33, 0, 0, REFUSED),
    CHANGE(scale, SET_FLOAT, 0, 0.0F, 0, REFUSED),
    CHANGE(scale, SET_FLOAT, 0, -1.0F, 0, REFUSED),
    CHANGE(scale, SET_FLOAT, 0, INFINITY, 0, REFUSED),
    CHANGE(scale, SET_FLOAT, 0, NAN, 0, REFUSED),
    CHANGE(q, SET_NULL, 0, 0, 0, REFUSED),
    CHANGE(kv, SET_NULL, 0, 0, 0, REFUSED),
    CHANGE(indices, SET_NULL, 0, 0, 0, REFUSED),
    CHANGE(out, SET_NULL, 0, 0, 0, REFUSED),
    CHANGE(lse, SET_NULL, 0, 0, 0, REFUSED),
    CHANGE(sink, SET_NULL, 0, 0, 1, REFUSED),
    CHANGE(sink, POINT, 0, 0, 0, REFUSED),
    CHANGE(q, MOVE, 2, 0, 0, REFUSED),
    CHANGE(q, MOVE, 8, 0, 0, REFUSED),
    CHANGE(kv, MOVE, 8, 0, 0, REFUSED),
    CHANGE(out, MOVE, 4, 0, 0, REFUSED),
    CHANGE(q.strides[2], ADD_INTEGER, 4, 0, 0, REFUSED),
    CHANGE(q.strides[1], ADD_INTEGER, 1, 0, 0, REFUSED),
    CHANGE(kv.strides[1], ADD_INTEGER, 4, 0, 0, REFUSED),
    CHANGE(out.strides[2], ADD_INTEGER, 2, 0, 0, REFUSED),
    CHANGE(out.strides[1], ADD_INTEGER, 4, 0, 0, REFUSED),
    /* Legal: a dimension of extent 1 may have any stride; a narrower row; no query. */
    CHANGE(q.strides[0], SET_INTEGER, 3, 0, 0, SMELT_OK),
    CHANGE(kv.strides[0], SET_INTEGER, 1, 0, 0, SMELT_OK),
    CHANGE(out.strides[0], SET_INTEGER, 5, 0, 0, SMELT_OK),
    CHANGE(width, SET_INTEGER, 31, 0, 0, SMELT_OK),
    CHANGE(max_logits, SET_NULL, 0, 0, 0, SMELT_OK),
    CHANGE(tokens, SET_INTEGER, 0, 0, 0, SMELT_OK),
    CHANGE(batches, SET_INTEGER, 0, 0, 0, SMELT_OK),
};

static void apply(const struct change *change, smelt_sparse_attn_args *args) {
    char *field = (char *)args + change->offset;
    const void *pointer = NULL;
    int64_t integer;
    size_t size = 8;
    switch (change->kind) {
    case SET_NULL:
        memcpy(field, &pointer, sizeof pointer);
        break;
    case MOVE:
        memcpy(&pointer, field, sizeof pointer);
        pointer = (const char *)pointer + change->number;
        memcpy(field, &pointer, sizeof pointer);
        break;
    case SET_INTEGER:
        memcpy(field, &change->number, sizeof integer);
        break;
    case ADD_INTEGER:
        memcpy(&integer, field, sizeof integer);
        integer += change->number;
        memcpy(field, &integer, sizeof integer);
        break;
    case SET_SIZE:
        memcpy(field, &size, sizeof size);
        break;
    case SET_FLOAT:
        memcpy(field, &change->real, sizeof change->real);
        break;
    case POINT:
        pointer = args->lse.data;
        memcpy(field, &pointer, sizeof pointer);
        break;
    }
}

/* Explicit strides, so that one of them can be changed. */
static void spell_strides(const struct smelt__sparse_attn_spec *spec,
                          smelt_sparse_attn_args *args) {
    args->q.strides[2] = spec->dqk;
    args->q.strides[1] = (int64_t)spec->heads * spec->dqk;
    args->q.strides[0] = args->tokens * args->q.strides[1];
    args->kv.strides[1] = spec->dqk;
    args->kv.strides[0] = args->rows * spec->dqk;
    args->out.strides[2] = spec->dv;
    args->out.strides[1] = (int64_t)spec->heads * spec->dv;
    args->out.strides[0] = args->tokens * args->out.strides[1];
}

static void try_change(struct workload *workload, const struct change *change, char *message,
                       size_t size) {
    smelt_sparse_attn_args *args = workload->placed.args;
    const smelt_sparse_attn_args kept = *args;
    uint8_t none[8] = {0};
    spell_strides(workload->problem.spec, args);
    apply(change, args);
    if (suite_ok(smelt__placed_poison(&workload->placed), "poison", message, size) != 0 ||
        suite_ok(smelt_stream_synchronize(workload->placed.context, NULL), "wait", message, size))
        return;
    smelt_status status = smelt_operator_launch(workload->object, SMELT_PASS_FORWARD, args, NULL);
    *args = kept;
    if (status != change->expected) {
        snprintf(message, size, "%s instead of %s (%s)", smelt_status_name(status),
                 smelt_status_name(change->expected), smelt_last_error());
        return;
    }
    if (status != SMELT_OK && !strstr(smelt_last_error(), change->name)) {
        snprintf(message, size, "the message does not name it: %s", smelt_last_error());
        return;
    }
    if (suite_ok(smelt_stream_synchronize(workload->placed.context, NULL), "wait", message, size))
        return;
    if (status != SMELT_OK &&
        suite_ok(smelt__placed_download(&workload->placed), "download", message, size) == 0) {
        workload->problem.listed = none; /* nothing may have been written */
        if (suite_ok(smelt__placed_survey(&workload->placed), "survey", message, size) == 0)
            smelt__placed_verify_extent(&workload->placed, message, size);
        workload->problem.listed = NULL;
        suite_ok(smelt__placed_survey(&workload->placed), "survey", message, size);
    }
}

static void null_handles(struct suite *suite, struct workload *workload) {
    const char *name = "arguments: null handles";
    if (!suite_wants(suite, name))
        return;
    int passed =
        smelt_operator_launch(NULL, SMELT_PASS_FORWARD, workload->placed.args, NULL) == REFUSED &&
        smelt_operator_launch(workload->object, SMELT_PASS_FORWARD, NULL, NULL) == REFUSED;
    suite_report(suite, name, passed ? NULL : "not refused");
}

void run_arguments(struct suite *suite) {
    struct workload workloads[2];
    struct smelt__problem_options options = {
        .seed = suite->seed, .tokens = 4, .rows = 64, .max_logits = 1};
    char message[1024] = "";
    if (suite->list)
        memset(workloads, 0, sizeof workloads);
    else if (workload_open(&workloads[0], suite, SPEC, &options, message, sizeof message) != 0) {
        suite_report(suite, "arguments", message);
        return;
    } else if (workload_open(&workloads[1], suite, SINK_SPEC, &options, message, sizeof message) !=
               0) {
        workload_close(&workloads[0]);
        suite_report(suite, "arguments", message);
        return;
    }
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        char name[256];
        message[0] = '\0';
        snprintf(name, sizeof name, "arguments: %zu %s %s", i, changes[i].name,
                 changes[i].expected == SMELT_OK ? "legal" : "refused");
        if (!suite_wants(suite, name))
            continue;
        try_change(&workloads[changes[i].sink], &changes[i], message, sizeof message);
        suite_report(suite, name, message);
    }
    null_handles(suite, &workloads[0]);
    if (!suite->list) {
        workload_close(&workloads[0]);
        workload_close(&workloads[1]);
    }
}
