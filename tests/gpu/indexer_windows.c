/* indexer_windows in the GPU suite: what its cases are. */
#include <stdio.h>
#include <string.h>

#include "suite.h"

extern /* No large cases: its tensors have one dimension, and no offset passes 32 bits. */
    const struct suite_operator suite_operator_indexer_windows;

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Queries and documents: one of each; a block's worth of queries and one more; what is staged at a
 * time (2048 bounds) and one document fewer and more; several times that. */
static const struct {
    int64_t tokens, documents;
} sizes[] = {{1, 1}, {256, 3}, {257, 2047}, {300, 2048}, {600, 7000}};

/* Each kind of metadata with each size. */
static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    const struct smelt__harness_operator *op = smelt__harness_find("indexer_windows");
    const int size = number % COUNT(sizes);
    if (!op || !op->variation(number / COUNT(sizes), &one->problem))
        return 0;
    snprintf(one->spec, sizeof one->spec, "indexer_windows");
    one->problem.seed = suite->seed * 1000 + (uint64_t)number;
    one->problem.tokens = sizes[size].tokens;
    one->problem.documents = sizes[size].documents;
    /* Fewer keys than the windows reach, now and then. */
    one->problem.rows = number % 3 ? 0 : 1 + sizes[size].tokens / 2;
    one->sample = 100;
    return 1;
}

/* Kinds of metadata have tensors of their own, so that one's graph cannot be replayed on another's:
 * indexer_chain.c has it in a graph. */
static const char *const launches[] = {NULL};

static void launch_options(const struct suite *suite, struct smelt__problem_options *options) {
    options->tokens = suite->quick || suite->emulated ? 300 : 5000;
}

/* ---- what forward must refuse, naming the argument ------------------------------------------- */

static const struct change {
    const char *name; /* the message must hold it */
    size_t offset;
    int64_t value; /* of a field of `bytes` bytes */
    size_t bytes;
} changes[] = {
#define SET(field, value)                                                                          \
    {                                                                                              \
#field, offsetof(smelt_indexer_windows_args, field), value,                                \
            sizeof(((smelt_indexer_windows_args *)0)->field)                                       \
    }
#define POINT(field, value)                                                                        \
    { #field, offsetof(smelt_indexer_windows_args, field.data), value, sizeof(void *) }
    SET(size, 0),
    SET(size, 16),
    SET(tokens, -1),
    SET(tokens, INT64_C(1) << 31),
    SET(rows, -1),
    SET(rows, INT64_C(1) << 31),
    SET(documents, -1),
    SET(documents, (INT64_C(1) << 30) + 1),
    SET(ratio, -1),
    SET(reserved, 1),
    POINT(cu_seqlens, 0),
    POINT(cu_seqlens, 0x1002),
    POINT(cu_seqlens_padded, 0x1001),
    POINT(cu_seqlens_keys, 0x1003),
    POINT(causal_offset, 0x1002),
    POINT(query_indices, 0x1002),
    POINT(window_begin, 0),
    POINT(window_end, 0),
    POINT(window_end, 0x1001),
};

static void refuse(const struct workload *workload, const struct change *change, char *message,
                   size_t size) {
    smelt_indexer_windows_args args = *(const smelt_indexer_windows_args *)workload->placed.args;
    memcpy((char *)&args + change->offset, &change->value, change->bytes);
    const smelt_status status =
        smelt_operator_launch(workload->object, workload->pass->pass, &args, NULL);
    if (status != SMELT_ERROR_INVALID_ARGUMENT || !strstr(smelt_last_error(), change->name))
        snprintf(message, size, "%s = %lld: status %d, '%s'", change->name,
                 (long long)change->value, (int)status, smelt_last_error());
}

/* One range on the other, and on what is read. */
static void refuse_overlaps(const struct workload *workload, char *message, size_t size) {
    smelt_indexer_windows_args args = *(const smelt_indexer_windows_args *)workload->placed.args;
    void *const targets[] = {args.window_begin.data, (char *)args.window_begin.data + 4,
                             (void *)(uintptr_t)args.cu_seqlens.data};
    for (int i = 0; i < COUNT(targets); i++) {
        args.window_end.data = targets[i];
        if (smelt_operator_launch(workload->object, workload->pass->pass, &args, NULL) !=
                SMELT_ERROR_INVALID_ARGUMENT ||
            !strstr(smelt_last_error(), "overlaps"))
            snprintf(message, size, "overlap %d was not refused", i);
    }
}

/* No query and no document; none of them asks for memory. */
static void take_nothing(const struct workload *workload, char *message, size_t size) {
    smelt_indexer_windows_args args = SMELT_INDEXER_WINDOWS_ARGS_INIT;
    suite_ok(smelt_operator_launch(workload->object, workload->pass->pass, &args, NULL), "no query",
             message, size);
}

static void run_refusals(struct suite *suite) {
    const struct smelt__problem_options options = {.seed = suite->seed, .tokens = 300};
    struct workload workload;
    char message[1024] = "";
    if (!suite_wants(suite, "arguments: indexer_windows") ||
        workload_open(&workload, suite, "indexer_windows", &options, message, sizeof message) !=
            0) {
        if (message[0])
            suite_report(suite, "arguments: indexer_windows", message);
        return;
    }
    for (int i = 0; i < COUNT(changes) && !message[0]; i++)
        refuse(&workload, &changes[i], message, sizeof message);
    if (!message[0])
        refuse_overlaps(&workload, message, sizeof message);
    if (!message[0])
        take_nothing(&workload, message, sizeof message);
    workload_close(&workload);
    suite_report(suite, "arguments: indexer_windows", message);
}

static const struct suite_group groups[] = {{"arguments", run_refusals}, {NULL, NULL}};

/* No large cases: its tensors have one dimension, and no offset passes 32 bits. */
const struct suite_operator suite_operator_indexer_windows = {
    .matrix = matrix_case, .launches = launches, .launch = launch_options, .groups = groups};
