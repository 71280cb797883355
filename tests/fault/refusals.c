/* Changes one argument of a legal call to an illegal value and expects an error that names it: each argument by its
 * operator's table, and the refusals that an operator has beyond its table. */
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "../unit/test.h"
#include "arguments.h"
#include "smelt/smelt.h"

/* Sets `bytes` at `offset` of a legal call's arguments and expects a refusal with this text. */
__attribute__((format(printf, 5, 6))) static void refuse(const struct layout *legal, size_t offset,
                                                         const void *value, size_t bytes,
                                                         const char *format, ...) {
    union arguments args = legal->args;
    char text[128];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    memcpy((char *)&args + offset, value, bytes);
    if (arguments_call(legal->subject, legal->made, &args) || !strstr(smelt_last_error(), text))
        fail_msg("%s: wants \"%s\": %s", legal->subject->spec, text, smelt_last_error());
}

/* An integer of eight or four bytes. */
static void refuse_integer(const struct layout *legal, size_t offset, size_t bytes, int64_t value,
                           const char *text) {
    const int narrow = (int)value;
    refuse(legal, offset, bytes == sizeof narrow ? (const void *)&narrow : &value, bytes, "%s",
           text);
}

static void refuse_number(const struct layout *legal, const struct smelt__scalar_row *row) {
    static const float floats[] = {0, NAN, INFINITY};
    const struct smelt__spec *const spec = &legal->made->spec;
    const int unless = row->unless && smelt__spec_key(spec->schema, row->unless) >= 0 &&
                       smelt__spec_get(spec, row->unless) != 0;
    const int wide = row->type == SMELT_SCALAR_INT64;
    const size_t bytes = wide ? sizeof(int64_t) : sizeof(int);
    for (int i = row->zero ? 1 : 0; row->type == SMELT_SCALAR_FLOAT && i < 3; i++)
        refuse(legal, row->field, &floats[i], sizeof *floats, "%s = ", row->name);
    if (!wide && row->type != SMELT_SCALAR_INT)
        return;
    if (wide) { /* for counts, regardless of the table */
        refuse_integer(legal, row->field, bytes, -1, row->name);
        refuse_integer(legal, row->field, bytes, INT64_C(1) << 31, row->name);
    }
    if (row->least > INT_MIN)
        refuse_integer(legal, row->field, bytes, row->least - 1, row->name);
    if (row->most < INT_MAX || wide)
        refuse_integer(legal, row->field, bytes, row->most + 1, row->name);
    if (row->most_key && !unless)
        refuse_integer(legal, row->field, bytes, smelt__spec_get(spec, row->most_key) + 1,
                       row->most_key);
}

static int is_empty(const struct layout *layout, const struct smelt__tensor_row *row) {
    for (int i = 0; i < row->dimensions; i++)
        if (layout->extents[row->shape[i]] == 0)
            return 1;
    return 0;
}

/* Expects refusals of missing and superfluous pointers, of strides past the last dimension, and of outputs that overlap
 * the workspace. */
static void refuse_tensor(const struct layout *legal, const struct smelt__tensor_row *row,
                          void *workspace) {
    void *const given = smelt__tensor_of(row, (void *)(uintptr_t)&legal->args)->data;
    void *const other = given ? NULL : (void *)(UINT64_C(63) << 57); // NOLINT: never followed
    const int keyed = row->key && smelt__spec_get(&legal->made->spec, row->key) > 0;
    const int64_t stride = 1;
    if (is_empty(legal, row)) /* may be NULL */
        return;
    if (row->one_of)
        refuse(legal, row->field, &other, sizeof other, given ? "none of " : "several of ");
    else if (row->key && !keyed)
        refuse(legal, row->field, &other, sizeof other, "%s is given but the operator", row->name);
    else if (!row->optional)
        refuse(legal, row->field, &other, sizeof other, "%s is NULL", row->name);
    if (given && row->dimensions <= SMELT_TENSOR_STRIDES)
        refuse(legal, row->field + offsetof(smelt_tensor, strides[row->dimensions - 1]), &stride,
               sizeof stride, "%s.strides[%d]", row->name, row->dimensions - 1);
    if (given && row->role != SMELT__INPUT && legal->subject->table->workspace) {
        size_t bytes = 0;
        memcpy(&bytes, (const char *)&legal->args + legal->subject->table->workspace_bytes,
               sizeof bytes);
        if (bytes > 0)
            refuse(legal, row->field, &workspace, sizeof workspace, "overlaps");
    }
}

static void refuse_workspace(const struct layout *legal, char *workspace) {
    const struct smelt__args_table *const table = legal->subject->table;
    char *place = NULL;
    size_t bytes = 0;
    if (table->workspace)
        memcpy(&bytes, (const char *)&legal->args + table->workspace_bytes, sizeof bytes);
    if (bytes == 0)
        return;
    bytes--;
    refuse(legal, table->workspace, &place, sizeof place, "workspace is NULL; this call needs %zu",
           bytes + 1);
    refuse(legal, table->workspace, &place, sizeof place, "%s_%s_workspace)",
           legal->made->type->family->schema.name,
           legal->subject->pass == SMELT_PASS_FORWARD ? "forward" : "backward");
    place = workspace + table->workspace_alignment / 2;
    refuse(legal, table->workspace, &place, sizeof place, "multiple of %zu bytes",
           table->workspace_alignment);
    refuse(legal, table->workspace_bytes, &bytes, sizeof bytes, "workspace_bytes = %zu", bytes);
}

/* Without queries or rows, tensors without elements may be NULL. */
static void accept_nothing(const struct layout *legal) {
    const struct smelt__args_table *const table = legal->subject->table;
    const int64_t none = 0;
    union arguments args = legal->args;
    for (int i = 0; i < table->scalar_count; i++)
        if (table->scalars[i].type == SMELT_SCALAR_INT64 && table->scalars[i].least == 0)
            memcpy((char *)&args + table->scalars[i].field, &none, sizeof none);
    for (int i = 0; i < table->count; i++) {
        int empty = table->rows[i].optional;
        for (int k = 0; k < table->rows[i].dimensions; k++) {
            const struct smelt__symbol *symbol = &table->symbols[table->rows[i].shape[k]];
            empty |= symbol->field && !symbol->plus;
        }
        if (empty)
            smelt__tensor_of(&table->rows[i], &args)->data = NULL;
    }
    if (!arguments_call(legal->subject, legal->made, &args))
        fail_msg("%s: nothing to do: %s", legal->subject->spec, smelt_last_error());
}

static void try_names(const struct layout *legal, void *workspace) {
    const struct smelt__args_table *const table = legal->subject->table;
    refuse_integer(legal, 0, sizeof(size_t), 0, "size");
    refuse_integer(legal, 0, sizeof(size_t), 3, "size");
    refuse_integer(legal, 0, sizeof(size_t), (int64_t)table->first_bytes - 8, "size");
    for (int i = 0; i < table->scalar_count; i++)
        refuse_number(legal, &table->scalars[i]);
    for (int i = 0; i < table->count; i++)
        refuse_tensor(legal, &table->rows[i], workspace);
    refuse_workspace(legal, workspace);
    accept_nothing(legal);
    assert_int_equal(smelt_operator_launch(NULL, legal->subject->pass, &legal->args, NULL),
                     SMELT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(smelt_operator_launch(legal->made, legal->subject->pass, NULL, NULL),
                     SMELT_ERROR_INVALID_ARGUMENT);
}

/* Refusals that do not follow from a table: one or two fields with their values. */
static struct own_refusal {
    const char *spec; /* the beginning of the specs */
    enum smelt_pass pass;
    const char *text;
    struct {
        size_t offset, bytes; /* 0: no second field */
        int64_t value;
    } fields[2];
    int tried;
} own_refusals[] = {
#define FIELD(type, field, value)                                                                  \
    { offsetof(type, field), sizeof(((type *)0)->field), (value) }
#define OWN(spec, PASS, text, ...)                                                                 \
    { (spec), SMELT_PASS_##PASS, (text), {__VA_ARGS__}, 0 }
#define ATTENTION(spec, PASS, type)                                                                \
    OWN(spec, PASS, "batches * tokens = 4611686014132420609 exceeds 2^31 - 1",                     \
        FIELD(type, batches, INT32_MAX), FIELD(type, tokens, INT32_MAX)),                          \
        OWN(spec, PASS, "queries is NULL but query_c", FIELD(type, queries.data, 0),               \
            FIELD(type, query_capacity, 1)),                                                       \
        OWN(spec, PASS, "it must be positive and at most 2e+38",                                   \
            FIELD(type, scale, 0x7f61b1e6 /* 3e38 */))
    ATTENTION("sparse_attn:", FORWARD, smelt_sparse_attn_args),
    ATTENTION("sparse_attn:", BACKWARD, smelt_sparse_attn_grad_args),
    ATTENTION("sparse_gqa:", FORWARD, smelt_sparse_gqa_args),
    ATTENTION("sparse_gqa:", BACKWARD, smelt_sparse_gqa_grad_args),
    ATTENTION("sparse_scores:", FORWARD, smelt_sparse_scores_args),
    ATTENTION("sparse_gqa_scores:", FORWARD, smelt_sparse_gqa_scores_args),
    OWN("indexer_logits:", FORWARD, "scale = 2 is given",
        FIELD(smelt_indexer_logits_args, scale, 0x40000000)),
    OWN("indexer_scores:", FORWARD, "keys is given but",
        FIELD(smelt_indexer_scores_args, keys.data, INT64_C(1) << 50)),
    OWN("indexer_topk:", FORWARD, "workspace_limit",
        FIELD(smelt_indexer_topk_args, workspace_limit, 1)),
    OWN("indexer_topk:heads=32", FORWARD, "not the 2048 slots of topk=2048",
        FIELD(smelt_indexer_topk_args, width, 9)),
    OWN("topk_select:topk=2048", FORWARD, "not the 2048 slots of topk=2048",
        FIELD(smelt_topk_select_args, width, 9)),
    OWN("topk_select:", FORWARD, "window_begin is NULL and window_end is not",
        FIELD(smelt_topk_select_args, window_begin.data, 0),
        FIELD(smelt_topk_select_args, window_end.data, INT64_C(1) << 50)),
    OWN("topk_select:", FORWARD, "window_end is NULL and window_begin is not",
        FIELD(smelt_topk_select_args, window_begin.data, INT64_C(1) << 50),
        FIELD(smelt_topk_select_args, window_end.data, 0)),
    OWN("topk_select:topk=1,", FORWARD, "need 3 slots", FIELD(smelt_topk_select_args, width, 2)),
    OWN("topk_select:topk=1,", FORWARD, "legal: up to 1073741822",
        FIELD(smelt_topk_select_args, rows, 1073741823)),
    OWN("topk_select:topk=1,", FORWARD, "of groups=2 exceed 2^31 - 1 rows",
        FIELD(smelt_topk_select_args, tokens, 1 << 30)),
    OWN("topk_select:topk=1,", FORWARD, "limit is NULL",
        FIELD(smelt_topk_select_args, limit.data, 0)),
    OWN("indexer_dense_loss:", FORWARD, "workspace_limit",
        FIELD(smelt_indexer_dense_loss_args, workspace_limit, 1)),
    OWN("indexer_dense_loss:", FORWARD, "are given together",
        FIELD(smelt_indexer_dense_loss_args, index_dq.data, INT64_C(1) << 50),
        FIELD(smelt_indexer_dense_loss_args, index_dweights.data, 0)),
};
enum { OWN_REFUSALS = sizeof own_refusals / sizeof *own_refusals };

static void try_own_refusals(const struct layout *legal) {
    for (int i = 0; i < OWN_REFUSALS; i++) {
        struct own_refusal *const own = &own_refusals[i];
        struct layout layout = *legal;
        if (own->pass != legal->subject->pass ||
            strncmp(legal->subject->spec, own->spec, strlen(own->spec)) != 0)
            continue;
        if (own->fields[1].bytes)
            memcpy((char *)&layout.args + own->fields[1].offset, &own->fields[1].value,
                   own->fields[1].bytes);
        refuse_integer(&layout, own->fields[0].offset, own->fields[0].bytes, own->fields[0].value,
                       own->text);
        own->tried++;
    }
}

void refusals_try(const struct layout *legal, void *workspace) {
    try_names(legal, workspace);
    try_own_refusals(legal);
}

void refusals_end(void) {
    for (int i = 0; i < OWN_REFUSALS; i++)
        if (own_refusals[i].tried == 0)
            fail_msg("%s: %s: not tried", own_refusals[i].spec, own_refusals[i].text);
}
