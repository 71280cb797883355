/* See refusals.h. */
#include "refusals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A copy of the arguments, to be freed; NULL when memory runs out. */
static void *copy_args(const struct workload *workload) {
    const size_t bytes = workload->pass->tensors->bytes;
    void *const args = malloc(bytes);
    if (args)
        memcpy(args, workload->placed.args, bytes);
    return args;
}

static void expect(const struct suite *suite, const struct workload *workload, const void *args,
                   const char *part, long long value, char *message, size_t size) {
    const smelt_status status =
        smelt_operator_launch(workload->object, workload->pass->pass, args, NULL);
    if (suite->verbose)
        printf("    %s: %s\n", smelt_status_name(status), smelt_last_error());
    if (status != SMELT_ERROR_INVALID_ARGUMENT || !strstr(smelt_last_error(), part))
        snprintf(message, size, "%s, %lld: status %d, '%s'", part, value, (int)status,
                 smelt_last_error());
}

static void refuse(const struct suite *suite, const struct workload *workload,
                   const struct refused_change *change, char *message, size_t size) {
    char *const args = copy_args(workload);
    if (args) {
        memcpy(args + change->offset, &change->value, change->bytes);
        expect(suite, workload, args, change->part, (long long)change->value, message, size);
    }
    free(args);
}

static void refuse_overlap(const struct suite *suite, const struct workload *workload,
                           size_t output, size_t input, char *message, size_t size) {
    char *const args = copy_args(workload);
    if (args) {
        memcpy(args + output, args + input, sizeof(void *));
        expect(suite, workload, args, "overlaps", (long long)input, message, size);
    }
    free(args);
}

void run_refusals(struct suite *suite, const struct refusals *refusals) {
    struct workload workload;
    struct smelt__problem_options problem = refusals->problem;
    char message[1024] = "";
    if (!suite_wants(suite, refusals->name))
        return;
    problem.seed = suite->seed;
    if (workload_open(&workload, suite, refusals->spec, &problem, message, sizeof message) != 0) {
        suite_report(suite, refusals->name, message);
        return;
    }
    for (int i = 0; i < refusals->count && !message[0]; i++)
        refuse(suite, &workload, &refusals->changes[i], message, sizeof message);
    for (int i = 0; i < refusals->input_count && !message[0]; i++)
        refuse_overlap(suite, &workload, refusals->output, refusals->inputs[i], message,
                       sizeof message);
    workload_close(&workload);
    suite_report(suite, refusals->name, message);
}
