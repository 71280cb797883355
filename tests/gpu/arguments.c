/* Calls that every operator must refuse, with the argument's name: those that follow from its table
 * of arguments, and those of the operator's row (suite.h). */
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "suite.h"

union args {
    int64_t words[SMELT__MOST_ARGS_BYTES / sizeof(int64_t)];
    char bytes[SMELT__MOST_ARGS_BYTES];
};

struct trial {
    struct suite *suite;
    struct workload *workload;
    const struct suite_arguments *arguments;
    const struct smelt__args_table *table;
    char message[1024]; /* the failure; "": none so far */
};

static union args good_args(const struct trial *trial) {
    union args args = {{0}};
    memcpy(args.bytes, trial->workload->placed.args, trial->table->bytes);
    return args;
}

static smelt_status launch(const struct trial *trial, const union args *args) {
    return smelt_operator_launch(trial->workload->object, trial->workload->pass->pass, args, NULL);
}

/* Sets `bytes` at `offset` of the arguments to a value and expects a refusal with this text. */
__attribute__((format(printf, 5, 6))) static void refuse(struct trial *trial, size_t offset,
                                                         const void *value, size_t bytes,
                                                         const char *format, ...) {
    union args args = good_args(trial);
    char text[128];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (trial->message[0])
        return;
    memcpy(args.bytes + offset, value, bytes);
    const smelt_status status = launch(trial, &args);
    if (trial->suite->verbose)
        printf("    %s: %s\n", text, smelt_last_error());
    if (status != SMELT_ERROR_INVALID_ARGUMENT || !strstr(smelt_last_error(), text))
        snprintf(trial->message, sizeof trial->message, "wants \"%s\": %s, '%s'", text,
                 smelt_status_name(status), smelt_last_error());
}

/* An integer of eight or four bytes. */
static void refuse_integer(struct trial *trial, size_t offset, size_t bytes, int64_t value,
                           const char *text) {
    const int narrow = (int)value;
    refuse(trial, offset, bytes == sizeof narrow ? (const void *)&narrow : &value, bytes, "%s",
           text);
}

/* The value of the spec's key that a row names; 0 for NULL. */
static int64_t key_of(const struct trial *trial, const char *key) {
    int64_t value = 0;
    if (key && smelt_spec_get(trial->workload->spec.text, key, &value) != SMELT_OK)
        value = 0;
    return value;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void refuse_number(struct trial *trial, const struct smelt__scalar_row *row) {
    const int wide = row->type == SMELT_SCALAR_INT64;
    const size_t bytes = wide ? sizeof(int64_t) : sizeof(int);
    static const float floats[] = {0, NAN, INFINITY};
    for (int i = row->zero ? 1 : 0; row->type == SMELT_SCALAR_FLOAT && i < 3; i++)
        refuse(trial, row->field, &floats[i], sizeof *floats, "%s = ", row->name);
    if (!wide && row->type != SMELT_SCALAR_INT)
        return;
    if (wide) { /* for counts, regardless of the table */
        refuse_integer(trial, row->field, bytes, -1, row->name);
        refuse_integer(trial, row->field, bytes, INT64_C(1) << 31, row->name);
    }
    if (row->least > INT_MIN)
        refuse_integer(trial, row->field, bytes, row->least - 1, row->name);
    if (row->most < INT_MAX || wide)
        refuse_integer(trial, row->field, bytes, row->most + 1, row->name);
    if (row->most_key && !key_of(trial, row->unless))
        refuse_integer(trial, row->field, bytes, key_of(trial, row->most_key) + 1, row->most_key);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Whether a word is one of a text's. */
static int has_word(const char *text, const char *word) {
    const size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += length)
        if ((at == text || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return 1;
    return 0;
}

static void refuse_pointer(struct trial *trial, const struct smelt__tensor_row *row, uintptr_t data,
                           const char *text) {
    refuse(trial, row->field, &data, sizeof data, text, row->name);
}

/* Refuses missing, superfluous and misaligned pointers. */
static void refuse_pointers(struct trial *trial, const struct smelt__tensor_row *row) {
    enum { SOMEWHERE = 1 << 20 };
    const uintptr_t data = (uintptr_t)smelt__tensor_in(row, trial->workload->placed.args)->data;
    const int whole_rows = has_word(trial->arguments->aligned, row->name);
    const size_t alignment = whole_rows ? SMELT__ROW_BYTES : smelt__element_bytes(row->element);
    char text[64];
    if (row->one_of)
        refuse_pointer(trial, row, data ? 0 : SOMEWHERE, data ? "none of " : "several of ");
    else if (row->key && key_of(trial, row->key) == 0)
        refuse_pointer(trial, row, SOMEWHERE, "%s");
    else if (!row->optional)
        refuse_pointer(trial, row, 0, row->key ? "%s" : "%s is NULL");
    snprintf(text, sizeof text, "must start at a multiple of %zu bytes", alignment);
    for (size_t off = 1; off < alignment && data; off *= 2) {
        refuse_pointer(trial, row, data + off, text);
        refuse_pointer(trial, row, data + off, "%s = ");
    }
}

static void refuse_stride(struct trial *trial, const struct smelt__tensor_row *row, int number,
                          int64_t stride) {
    refuse(trial, row->field + offsetof(smelt_tensor, strides[number]), &stride, sizeof stride,
           "%s.strides[%d]", row->name, number);
}

static void refuse_strides(struct trial *trial, const struct smelt__tensor_row *row) {
    const int64_t *const extents = trial->workload->problem.extents;
    const int last = row->dimensions - 1;
    const int64_t width = extents[row->shape[last]];
    const int64_t unit = has_word(trial->arguments->aligned, row->name)
                             ? SMELT__ROW_BYTES / (int64_t)smelt__element_bytes(row->element)
                             : 1;
    if (last < SMELT_TENSOR_STRIDES)
        refuse_stride(trial, row, last, 1);
    for (int i = 0; i < last; i++) {
        if (extents[row->shape[i]] < 2)
            continue;
        refuse_stride(trial, row, i, -unit);
        if (unit > 1)
            refuse_stride(trial, row, i, width + unit / 2);
        if (width > unit && (i == last - 1 || row->role != SMELT__INPUT))
            refuse_stride(trial, row, i, width - unit);
        if (row->role != SMELT__INPUT) {
            const int64_t beyond = INT64_MAX / 2 / SMELT__ROW_BYTES * SMELT__ROW_BYTES;
            refuse(trial, row->field + offsetof(smelt_tensor, strides[i]), &beyond, sizeof beyond,
                   "%s", row->name);
            if (i == last - 1 && i > 0 && extents[row->shape[0]] > 1)
                refuse(trial, row->field + offsetof(smelt_tensor, strides[i]), &width, sizeof width,
                       "%s.strides", row->name);
        }
    }
}

/* Refuses outputs that overlap any other memory of the call. */
static void refuse_overlaps(struct trial *trial, const struct smelt__tensor_row *row) {
    const union args args = good_args(trial);
    for (int i = 0; i < trial->table->count; i++) {
        const void *const data = smelt__tensor_in(&trial->table->rows[i], &args)->data;
        if (data && &trial->table->rows[i] != row)
            refuse(trial, row->field, &data, sizeof data, "overlaps");
    }
    if (trial->table->workspace && trial->workload->placed.workspace.bytes > 0)
        refuse(trial, row->field, args.bytes + trial->table->workspace, sizeof(void *), "overlaps");
}

static void refuse_workspace(struct trial *trial) {
    const struct smelt__args_table *const table = trial->table;
    union args args = good_args(trial);
    uintptr_t place = 0;
    size_t bytes = 0;
    if (!table->workspace ||
        smelt_operator_workspace(trial->workload->object, trial->workload->pass->pass, &args,
                                 &bytes) != SMELT_OK ||
        bytes == 0)
        return;
    refuse(trial, table->workspace, &place, sizeof place, "workspace is NULL");
    memcpy(&place, args.bytes + table->workspace, sizeof place);
    place += 128;
    refuse(trial, table->workspace, &place, sizeof place, "multiple of 256 bytes");
    bytes--;
    refuse(trial, table->workspace_bytes, &bytes, sizeof bytes, "workspace_bytes = %zu", bytes);
}

/* ---- what is legal --------------------------------------------------------------------------- */

/* Without queries or rows, tensors without elements may be NULL. */
static void drop_empty(const struct trial *trial, union args *args) {
    const struct smelt__args_table *const table = trial->table;
    const int64_t none = 0;
    for (int i = 0; i < table->scalar_count; i++)
        if (table->scalars[i].type == SMELT_SCALAR_INT64 && table->scalars[i].least == 0)
            memcpy(args->bytes + table->scalars[i].field, &none, sizeof none);
    for (int i = 0; i < table->count; i++) {
        int empty = table->rows[i].optional;
        for (int k = 0; k < table->rows[i].dimensions; k++) {
            const struct smelt__symbol *symbol = &table->symbols[table->rows[i].shape[k]];
            empty |= symbol->field && !symbol->plus;
        }
        if (empty)
            smelt__tensor_of(&table->rows[i], args)->data = NULL;
    }
}

static void take(struct trial *trial, const union args *args, const char *what) {
    if (!trial->message[0] &&
        suite_ok(launch(trial, args), what, trial->message, sizeof trial->message) == 0)
        suite_ok(smelt_stream_synchronize(trial->suite->context, NULL), what, trial->message,
                 sizeof trial->message);
}

/* ---- the group ------------------------------------------------------------------------------- */

static void try_all(struct trial *trial) {
    const struct smelt__args_table *const table = trial->table;
    union args args = good_args(trial);
    take(trial, &args, "unchanged");
    refuse_integer(trial, 0, sizeof(size_t), 0, "size");
    refuse_integer(trial, 0, sizeof(size_t), 3, "size");
    refuse_integer(trial, 0, sizeof(size_t), (int64_t)table->first_bytes - 8, "size");
    for (int i = 0; i < table->scalar_count; i++)
        refuse_number(trial, &table->scalars[i]);
    for (int i = 0; i < table->count; i++) {
        refuse_pointers(trial, &table->rows[i]);
        if (!smelt__tensor_in(&table->rows[i], &args)->data)
            continue;
        refuse_strides(trial, &table->rows[i]);
        if (table->rows[i].role != SMELT__INPUT)
            refuse_overlaps(trial, &table->rows[i]);
    }
    refuse_workspace(trial);
    for (const struct suite_refusal *own = trial->arguments->refusals; own && own->text; own++)
        refuse_integer(trial, own->offset, own->bytes, own->value, own->text);
    drop_empty(trial, &args);
    take(trial, &args, "nothing to do");
    if (!trial->message[0] &&
        (smelt_operator_launch(NULL, trial->workload->pass->pass, &args, NULL) !=
             SMELT_ERROR_INVALID_ARGUMENT ||
         smelt_operator_launch(trial->workload->object, trial->workload->pass->pass, NULL, NULL) !=
             SMELT_ERROR_INVALID_ARGUMENT))
        snprintf(trial->message, sizeof trial->message, "NULL is not refused");
}

void run_arguments(struct suite *suite) {
    for (suite->op = 0; suite_operators[suite->op]; suite->op++) {
        const struct suite_arguments *one = suite_operators[suite->op]->arguments;
        for (; one && one->spec; one++) {
            struct smelt__problem_options options = one->problem;
            struct workload workload;
            struct trial trial = {.suite = suite, .workload = &workload, .arguments = one};
            char name[SUITE_SPEC + 16];
            snprintf(name, sizeof name, "arguments: %s", one->spec);
            if (!suite_wants(suite, name))
                continue;
            options.seed = suite->seed;
            if (workload_open(&workload, suite, one->spec, &options, trial.message,
                              sizeof trial.message) == 0) {
                trial.table = workload.pass->tensors;
                try_all(&trial);
                workload_close(&workload);
            }
            suite_report(suite, name, trial.message);
        }
    }
}
