/* See call.h: a call's way from the caller's struct to checked arguments. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ops/call.h"
#include "runtime/abi.h"
#include "runtime/context.h"
#include "runtime/log.h"

/* ---- passes and grids -------------------------------------------------------------------------- */

static int64_t value_of(const void *spec, const char *key) {
    return smelt__spec_get(spec, key);
}

const struct smelt__args_table *smelt__pass_table(const struct smelt__pass *pass,
                                                  const struct smelt__spec *spec) {
    return pass->tables + smelt__table_number(pass->tables, value_of, spec);
}

int64_t smelt__spec_extent(const struct smelt__symbol *symbol, const struct smelt__spec *spec) {
    return smelt__symbol_extent(symbol, smelt__spec_get(spec, symbol->key),
                                symbol->when ? smelt__spec_get(spec, symbol->when) : 1);
}

int64_t smelt__scalar_limit(const struct smelt__scalar_row *row, const struct smelt__spec *spec) {
    const int free = row->unless && smelt__spec_key(spec->schema, row->unless) >= 0 &&
                     smelt__spec_get(spec, row->unless) != 0;
    return row->most_key && !free ? smelt__spec_get(spec, row->most_key) : row->most;
}

static const char *name_of(unsigned pass) {
    return pass == SMELT_PASS_FORWARD ? "forward" : "backward";
}

smelt_status smelt__operator_need(const smelt_operator *op, unsigned pass) {
    if (!op)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "op is NULL; make one with smelt_operator_create");
    if (pass != SMELT_PASS_FORWARD && pass != SMELT_PASS_BACKWARD)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "pass = %u is not legal; legal: SMELT_PASS_FORWARD or "
                           "SMELT_PASS_BACKWARD",
                           pass);
    if (op->passes & pass)
        return SMELT_OK;
    const struct smelt__operator_family *family = op->type->family;
    if (!(family->passes & pass))
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s has no %s pass", family->schema.name,
                           name_of(pass));
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "the operator was not made for its %s pass; make one with passes=%s, or "
                       "passes=both",
                       name_of(pass), name_of(pass));
}

smelt_status smelt__operator_check_grid(const smelt_operator *op, unsigned pass, int64_t items) {
    for (int i = 0; i < op->count; i++) {
        const struct smelt__kernel *kernel = op->kernels[i];
        if (op->pass[i] != pass || !kernel->item || items * kernel->blocks_per_item <= INT32_MAX)
            continue;
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%" PRId64 " times a %s with %" PRId64 " blocks each exceed the grid's "
                           "2^31 - 1 blocks; split the call",
                           items, kernel->item, kernel->blocks_per_item);
    }
    return SMELT_OK;
}

int64_t smelt__available_blocks(const struct smelt__kernel *kernel, int64_t free_multiprocessors) {
    if (free_multiprocessors == 0)
        return kernel->most_blocks;
    const int64_t left =
        kernel->resident_blocks - free_multiprocessors * kernel->multiprocessor_blocks;
    const int64_t least = kernel->cluster ? kernel->cluster : 1;
    return left > least ? left - left % least : least;
}

uint32_t smelt__blocks_for(const struct smelt__kernel *kernel, int64_t items, int64_t most) {
    int64_t blocks = items * kernel->blocks_per_item;
    if (kernel->cluster)
        blocks = (blocks + kernel->cluster - 1) / kernel->cluster * kernel->cluster;
    return (uint32_t)(blocks < most ? blocks : most);
}

static smelt_status launch_items(const struct smelt__call *call, const struct smelt__kernel *kernel,
                                 int64_t items, int64_t free_multiprocessors, int pdl,
                                 const void *params) {
    const int64_t most = smelt__available_blocks(kernel, free_multiprocessors);
    const struct smelt__launch launch = {
        .blocks = {smelt__blocks_for(kernel, items, most)}, .pdl = pdl, .params = params};
    return smelt__kernel_launch(call->op->context, kernel, &launch, call->stream);
}

smelt_status smelt__call_launch(const struct smelt__call *call, const struct smelt__kernel *kernel,
                                int64_t items, int64_t free_multiprocessors, const void *params) {
    return launch_items(call, kernel, items, free_multiprocessors, 0, params);
}

smelt_status smelt__call_launch_pdl(const struct smelt__call *call,
                                    const struct smelt__kernel *kernel, int64_t items,
                                    int64_t free_multiprocessors, const void *params) {
    return launch_items(call, kernel, items, free_multiprocessors, 1, params);
}

/* ---- numbers ---------------------------------------------------------------------------------- */

static smelt_status check_scalar(const struct smelt__call *call,
                                 const struct smelt__scalar_row *row, int64_t most) {
    char *const at = (char *)call->args + row->field;
    int64_t value;
    int small;
    float number;
    if (row->type == SMELT_SCALAR_INT64) {
        memcpy(&value, at, sizeof value);
    } else if (row->type == SMELT_SCALAR_INT) {
        memcpy(&small, at, sizeof small);
        value = small;
    } else {
        memcpy(&number, at, sizeof number);
        if (number == 0) {
            number = (float)row->zero;
            memcpy(at, &number, sizeof number);
        }
        return SMELT_OK;
    }
    if (value == 0 && row->zero) {
        value = row->zero;
        small = (int)value;
        memcpy(at, row->type == SMELT_SCALAR_INT ? (void *)&small : &value,
               row->type == SMELT_SCALAR_INT ? sizeof small : sizeof value);
    }
    if (value >= row->least && value <= most)
        return SMELT_OK;
    if (value < row->least || !row->most_key || most == row->most)
        return smelt__check_extent(row->name, value, row->least, most);
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "%s = %" PRId64 " is out of range; this operator was made for %s=%" PRId64
                       ": legal are %" PRId64 "..%" PRId64 "; make one with a larger %s",
                       row->name, value, row->most_key, most, row->least, most, row->most_key);
}

/* This library's copy of the caller's struct, whatever version that was built against. */
static smelt_status read_args(struct smelt__call *call, const void *given) {
    const struct smelt__args_table *table = call->table;
    const struct smelt__struct about = {"args", table->initialiser, table->bytes,
                                        table->first_bytes};
    SMELT__TRY(smelt__struct_read(&about, given, call->args));
    for (int i = 0; i < table->scalar_count; i++)
        SMELT__TRY(check_scalar(call, &table->scalars[i], call->limits->most[i]));
    smelt__args_extents(table, call->args, call->extents);
    return SMELT_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int is_empty(const struct smelt__call *call, const struct smelt__tensor_row *row) {
    for (int i = 0; i < row->dimensions; i++)
        if (call->extents[row->shape[i]] == 0)
            return 1;
    return 0;
}

/* A tensor that is legal only with a key of the spec. */
static smelt_status check_key(const struct smelt__call *call, const struct smelt__tensor_row *row) {
    const int given = smelt__tensor_in(row, call->args)->data != NULL;
    const int has = (int)(call->limits->keyed >> (row - call->table->rows) & 1);
    char value[SMELT__SPEC_TEXT];
    if (given && !has) {
        struct smelt__spec with = call->op->spec;
        char other[SMELT__SPEC_TEXT];
        smelt__spec_print_key(&call->op->spec, row->key, value);
        smelt__spec_set(&with, row->key, 1);
        smelt__spec_print_key(&with, row->key, other);
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%s is given but the operator was made with %s; make one with %s, or "
                           "pass NULL",
                           row->name, value, other);
    }
    if (given || !has || row->optional || is_empty(call, row))
        return SMELT_OK;
    smelt__spec_print_key(&call->op->spec, row->key, value);
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "%s is NULL; it must point to device memory, since the operator was made "
                       "with %s",
                       row->name, value);
}

/* Exactly one of the tensors that share a number, from row `first` on. */
static smelt_status check_one_of(const struct smelt__call *call, int first) {
    const struct smelt__args_table *table = call->table;
    const int number = table->rows[first].one_of;
    char names[256] = "";
    size_t used = 0;
    int given = 0;
    for (int i = first; i < table->count && table->rows[i].one_of == number; i++) {
        const int last = i + 1 == table->count || table->rows[i + 1].one_of != number;
        given += smelt__tensor_in(&table->rows[i], call->args)->data != NULL;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s (%s%s)",
                                 i == first ? ""
                                 : last     ? " and "
                                            : ", ",
                                 table->rows[i].name, smelt__element_name(table->rows[i].element),
                                 table->rows[i].role == SMELT__ACCUMULATED ? ", added to" : "");
    }
    if (given == 1 || (given == 0 && is_empty(call, &table->rows[first])))
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s of %s %s given; give exactly one",
                       given ? "several" : "none", names, given ? "are" : "is");
}

static smelt_status check_presence(const struct smelt__call *call) {
    const struct smelt__tensor_row *rows = call->table->rows;
    for (int i = 0; i < call->table->count; i++) {
        if (rows[i].key)
            SMELT__TRY(check_key(call, &rows[i]));
        else if (rows[i].one_of && (i == 0 || rows[i - 1].one_of != rows[i].one_of))
            SMELT__TRY(check_one_of(call, i));
    }
    return SMELT_OK;
}

smelt_status smelt__call_check(struct smelt__call *call, size_t needed,
                               const struct smelt__memory *others, int count) {
    const struct smelt__args_table *table = call->table;
    struct smelt__memory memory[SMELT__MOST_MEMORY];
    void *workspace = NULL;
    size_t bytes = 0;
    if (table->workspace) {
        memcpy(&workspace, (char *)call->args + table->workspace, sizeof workspace);
        memcpy(&bytes, (char *)call->args + table->workspace_bytes, sizeof bytes);
    }
    memory[0] = (struct smelt__memory){"workspace", workspace, needed && workspace ? bytes : 0, 1};
    for (int i = 0; i < count; i++)
        memory[i + 1] = others[i];
    SMELT__TRY(check_presence(call));
    SMELT__TRY(smelt__check_tensors(table, call->extents, call->args, memory, count + 1));
    return smelt__check_workspace(workspace, bytes, needed, table->workspace_alignment,
                                  call->pass->call);
}

/* ---- the public functions -------------------------------------------------------------------- */

union args {
    size_t size;
    char bytes[SMELT__MOST_ARGS_BYTES];
};

/* From the public function's arguments to a call whose numbers are in range. `type`: that of the
 * public function; NULL: any. */
static smelt_status begin(const smelt_operator *op, const struct smelt__operator_type *type,
                          unsigned pass, const void *given, union args *args,
                          struct smelt__call *call) {
    if (op && type && op->type != type)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "op is an operator of %s; this call takes one of %s",
                           op->spec.schema->name, type->family->schema.name);
    SMELT__TRY(smelt__operator_need(op, pass));
    int number = 0;
    while (op->type->passes[number].pass != pass)
        number++;
    call->op = op;
    call->pass = &op->type->passes[number];
    call->table = smelt__pass_table(call->pass, &op->spec);
    call->args = args;
    call->limits = &op->limits[number];
    memcpy(call->extents, call->limits->extents, sizeof call->extents);
    return read_args(call, given);
}

smelt_status smelt__operator_call(const smelt_operator *op, const struct smelt__operator_type *type,
                                  unsigned pass, const void *given, struct CUstream_st *stream) {
    union args args;
    struct smelt__call call = {.stream = stream};
    int pushed;
    SMELT__TRY(begin(op, type, pass, given, &args, &call));
    SMELT__TRY(smelt__context_enter(op->context, &pushed)); /* once for all launches of the pass */
    const smelt_status status = call.pass->launch(&call);
    smelt__context_leave(op->context, pushed);
    return status;
}

smelt_status smelt__operator_ask(const smelt_operator *op, const struct smelt__operator_type *type,
                                 unsigned pass, const void *given, size_t *bytes) {
    union args args;
    struct smelt__call call = {.stream = NULL};
    if (!bytes)
        return smelt__fail_null("bytes");
    *bytes = 0;
    SMELT__TRY(begin(op, type, pass, given, &args, &call));
    return call.pass->workspace ? call.pass->workspace(&call, bytes) : SMELT_OK;
}

smelt_status smelt_operator_launch(const smelt_operator *op, enum smelt_pass pass, const void *args,
                                   struct CUstream_st *stream) {
    return smelt__operator_call(op, NULL, pass, args, stream);
}

smelt_status smelt_operator_workspace(const smelt_operator *op, enum smelt_pass pass,
                                      const void *args, size_t *bytes) {
    return smelt__operator_ask(op, NULL, pass, args, bytes);
}
