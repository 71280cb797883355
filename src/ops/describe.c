/* See smelt/operator.h: descriptions of operators, from their tables. */
#include <inttypes.h>
#include <string.h>

#include "ops/call.h"
#include "runtime/abi.h"
#include "runtime/log.h"

/* What a description is of. `known`: whether the keys of `spec` have values, or it is a name. */
struct subject {
    struct smelt__spec spec;
    int known;
    const struct smelt__operator_type *type;
    const struct smelt__args_table *table;
};

static smelt_status find_type(const char *text, struct subject *subject) {
    struct smelt__message message;
    if (!text)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "spec is NULL; name an operator");
    const struct smelt__schema *const schema = smelt__operator_schema_find(text, &message);
    if (!schema)
        return smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s", message.text);
    subject->type = smelt__operator_type_of(schema);
    subject->known = strchr(text, ':') != NULL;
    smelt__spec_init(&subject->spec, schema);
    if (subject->known && smelt__spec_parse(text, &subject->spec, &message))
        return smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s", message.text);
    return SMELT_OK;
}

static smelt_status find_table(const char *text, unsigned pass, struct subject *subject) {
    SMELT__TRY(find_type(text, subject));
    for (int i = 0; i < subject->type->pass_count; i++) {
        const struct smelt__pass *const found = &subject->type->passes[i];
        if (found->pass != pass)
            continue;
        subject->table = subject->known ? smelt__pass_table(found, &subject->spec) : found->tables;
        return SMELT_OK;
    }
    const unsigned passes = subject->type->family->passes;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s has no pass %u; legal: %s",
                       subject->spec.schema->name, pass,
                       passes == SMELT_PASS_FORWARD    ? "1 (forward)"
                       : passes == SMELT_PASS_BACKWARD ? "2 (backward)"
                                                       : "1 (forward), 2 (backward)");
}

static smelt_status check_index(const struct subject *subject, const char *what, int index,
                                int count) {
    if (index >= 0 && index < count)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s has no %s number %d: legal are 0..%d",
                       subject->table->type, what, index, count - 1);
}

smelt_status smelt_operator_describe(const char *spec, enum smelt_pass pass, unsigned *passes,
                                     smelt_pass_info *info) {
    const struct smelt__struct *about =
        SMELT__STRUCT(smelt_pass_info, "info", "SMELT_PASS_INFO_INIT", flattened);
    struct subject subject;
    SMELT__TRY(passes ? find_type(spec, &subject) : smelt__fail_null("passes"));
    *passes = subject.known ? smelt__spec_passes(&subject.spec) : subject.type->family->passes;
    if (!info)
        return SMELT_OK;
    SMELT__TRY(smelt__struct_check(about, info));
    SMELT__TRY(find_table(spec, pass, &subject));
    const struct smelt__args_table *table = subject.table;
    const smelt_pass_info found = {.args_type = table->type,
                                   .args_bytes = table->bytes,
                                   .tensors = table->count,
                                   .scalars = table->scalar_count,
                                   .workspace_offset = table->workspace,
                                   .workspace_bytes_offset = table->workspace_bytes,
                                   .workspace_alignment = table->workspace_alignment,
                                   .partition_offset = table->partition,
                                   .partition_bytes_offset = table->partition_bytes,
                                   .flattened = table->flattened ? table->flattened : ""};
    smelt__struct_write(about, &found, info);
    return SMELT_OK;
}

/* The extent that a spec gives a symbol; -1: none. */
static int64_t extent_of(const struct subject *subject, const struct smelt__symbol *symbol) {
    if (symbol->field)
        return -1;
    if (!symbol->key)
        return symbol->plus;
    return subject->known ? smelt__spec_extent(symbol, &subject->spec) : symbol->when ? 1 : -1;
}

/* The symbol of the same number in the args that is not divided or multiplied. */
static const char *letter_of(const struct smelt__args_table *table, size_t field) {
    for (int i = 0; i < table->symbol_count; i++) {
        const struct smelt__symbol *symbol = &table->symbols[i];
        if (symbol->field == field && !symbol->plus && !symbol->per && !symbol->times)
            return symbol->letter;
    }
    return "";
}

/* A factor or divisor, symbol number `number`; 1: there is none, or only a spec gives it. */
static int64_t factor_of(const struct subject *subject, int number) {
    const int64_t extent = number ? extent_of(subject, &subject->table->symbols[number]) : 1;
    return extent > 0 ? extent : 1;
}

smelt_status smelt_operator_get_tensor(const char *spec, enum smelt_pass pass, int index,
                                       smelt_tensor_info *info) {
    const struct smelt__struct *about =
        SMELT__STRUCT(smelt_tensor_info, "info", "SMELT_TENSOR_INFO_INIT", per);
    struct subject subject;
    SMELT__TRY(smelt__struct_check(about, info));
    SMELT__TRY(find_table(spec, pass, &subject));
    SMELT__TRY(check_index(&subject, "tensor", index, subject.table->count));
    const struct smelt__tensor_row *row = &subject.table->rows[index];
    const int element_bytes = (int)smelt__element_bytes(row->element);
    smelt_tensor_info found = {
        .name = row->name,
        .element = smelt__element_name(row->element),
        .offset = row->field,
        .type = (enum smelt_element)row->element,
        .role = (enum smelt_role)row->role,
        .optional = row->optional,
        .one_of = row->one_of,
        .key = row->key ? row->key : "",
        .alignment = row->whole_rows ? SMELT__ROW_BYTES : element_bytes,
        .dimensions = row->dimensions,
    };
    for (int i = 0; i < SMELT__MOST_DIMENSIONS; i++) {
        const struct smelt__symbol *symbol = &subject.table->symbols[row->shape[i]];
        found.shape[i] = i < row->dimensions ? symbol->letter : "";
        found.extents[i] = i < row->dimensions ? extent_of(&subject, symbol) : 0;
        const int follows = i < row->dimensions && (symbol->per || symbol->times);
        found.of[i] = follows ? letter_of(subject.table, symbol->field) : "";
        found.times[i] = follows ? factor_of(&subject, symbol->times) : 1;
        found.per[i] = follows ? factor_of(&subject, symbol->per) : 1;
        if (found.times[i] % found.per[i] == 0) { /* a whole number is given alone */
            found.times[i] /= found.per[i];
            found.per[i] = 1;
        }
    }
    smelt__struct_write(about, &found, info);
    return SMELT_OK;
}

smelt_status smelt_operator_get_scalar(const char *spec, enum smelt_pass pass, int index,
                                       smelt_scalar_info *info) {
    const struct smelt__struct *about =
        SMELT__STRUCT(smelt_scalar_info, "info", "SMELT_SCALAR_INFO_INIT", letter);
    struct subject subject;
    SMELT__TRY(smelt__struct_check(about, info));
    SMELT__TRY(find_table(spec, pass, &subject));
    SMELT__TRY(check_index(&subject, "scalar", index, subject.table->scalar_count));
    const struct smelt__scalar_row *row = &subject.table->scalars[index];
    smelt_scalar_info found = {.name = row->name,
                               .offset = row->field,
                               .type = row->type,
                               .least = row->least,
                               .most = subject.known ? smelt__scalar_limit(row, &subject.spec)
                                                     : row->most,
                               .letter = letter_of(subject.table, row->field)};
    smelt__struct_write(about, &found, info);
    return SMELT_OK;
}
