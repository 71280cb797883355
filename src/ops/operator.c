/* See smelt/operator.h and call.h: creates operators and answers queries about them. */
#include "ops/call.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/abi.h"
#include "runtime/log.h"
#include "runtime/tuning/tuned.h"

/* ---- making ---------------------------------------------------------------------------------- */

/* A spec's text, parsed and checked, and the type of its operator. */
static smelt_status read_spec(const char *text, struct smelt__spec *spec,
                              const struct smelt__operator_type **type) {
    struct smelt__message message;
    if (!text)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "spec is NULL; name an operator and its keys, for example "
                           "sparse_attn:heads=64,dqk=576,dv=512,topk=2048");
    const struct smelt__schema *const schema = smelt__operator_schema_find(text, &message);
    if (!schema || smelt__spec_parse(text, spec, &message))
        return smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s", message.text);
    *type = smelt__operator_type_of(schema);
    return SMELT_OK;
}

smelt_status smelt_operator_supported(const smelt_context *context, const char *text,
                                      const char **why) {
    const struct smelt__operator_type *type;
    struct smelt__spec spec;
    struct smelt__expansion expansion;
    if (why)
        *why = "";
    smelt_status status = context ? read_spec(text, &spec, &type) : smelt__fail_null("context");
    if (status == SMELT_OK)
        status = smelt__context_expand(context, &spec, &expansion);
    if (status != SMELT_OK && why)
        *why = smelt_last_error();
    return status;
}

static void find_limits(const struct smelt__args_table *table, const struct smelt__spec *spec,
                        struct smelt__pass_limits *limits) {
    for (int i = 0; i < table->symbol_count; i++)
        if (table->symbols[i].key)
            limits->extents[i] = smelt__spec_extent(&table->symbols[i], spec);
    for (int i = 0; i < table->scalar_count; i++)
        limits->most[i] = smelt__scalar_limit(&table->scalars[i], spec);
    for (int i = 0; i < table->count; i++)
        if (table->rows[i].key && smelt__spec_get(spec, table->rows[i].key) > 0)
            limits->keyed |= 1U << i;
}

void smelt__operator_begin(smelt_operator *op, const struct smelt__operator_type *type,
                           smelt_context *context, const struct smelt__spec *spec) {
    op->type = type;
    op->context = context;
    op->spec = *spec;
    op->passes = smelt__spec_passes(spec);
    for (int i = 0; i < type->pass_count; i++)
        find_limits(smelt__pass_table(&type->passes[i], spec), spec, &op->limits[i]);
}

/* Whether the kernels have the variants that the expansion was made for. */
static int as_expanded(const struct smelt__kernel *const *kernels,
                       const struct smelt__expansion *expansion) {
    for (int i = 0; i < expansion->count; i++)
        if (strcmp(kernels[i]->plan.variant, expansion->variants[i]) != 0)
            return 0;
    return 1;
}

/* Nothing is compiled of an operator that cannot be made. A tuning entry stored meanwhile can change a
 * kernel's variant and with it which others are launched: then the kernels are chosen again. */
static smelt_status get_kernels(smelt_context *context, const struct smelt__spec *spec,
                                struct smelt__expansion *expansion,
                                const struct smelt__kernel **kernels) {
    for (;;) {
        SMELT__TRY(smelt__context_expand(context, spec, expansion));
        SMELT__TRY(smelt__kernels_get(context, expansion->kernels, expansion->count, kernels));
        if (as_expanded(kernels, expansion))
            return SMELT_OK;
    }
}

static smelt_status make(smelt_context *context, const struct smelt__spec *spec,
                         const struct smelt__operator_type *type, smelt_operator **op) {
    const struct smelt__kernel *kernels[SMELT__MAX_KERNELS];
    struct smelt__expansion expansion;
    SMELT__TRY(get_kernels(context, spec, &expansion, kernels));
    smelt_operator *made = calloc(1, type->bytes);
    if (!made)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    smelt__operator_begin(made, type, context, spec);
    made->count = expansion.count;
    memcpy(made->pass, expansion.pass, sizeof made->pass);
    memcpy(made->kernels, kernels, (size_t)made->count * sizeof *kernels);
    for (int i = 0; i < made->count; i++)
        made->by_role[made->pass[i] - 1][expansion.role[i]] = kernels[i];
    if (type->prepare)
        type->prepare(made);
    *op = made;
    return SMELT_OK;
}

smelt_status smelt_operator_create(smelt_operator **op, smelt_context *context, const char *text) {
    const struct smelt__operator_type *type;
    struct smelt__spec spec;
    if (!op)
        return smelt__fail_null("op");
    *op = NULL;
    SMELT__TRY(smelt__context_need_device(context));
    SMELT__TRY(read_spec(text, &spec, &type));
    return make(context, &spec, type, op);
}

void smelt_operator_destroy(smelt_operator **op) {
    if (!op)
        return;
    free(*op);
    *op = NULL;
}

/* ---- its kernels ----------------------------------------------------------------------------- */

smelt_status smelt_operator_get_kernel_info(const smelt_operator *op, enum smelt_pass pass,
                                            int index, smelt_kernel_info *info) {
    int first = 0, count = 0;
    SMELT__TRY(smelt__operator_need(op, pass));
    SMELT__TRY(smelt__struct_check(SMELT__KERNEL_INFO("info"), info));
    while (op->pass[first] != pass)
        first++;
    while (first + count < op->count && op->pass[first + count] == pass)
        count++;
    if (index < 0 || index >= count)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "the pass has no kernel number %d: legal are 0..%d", index, count - 1);
    smelt__struct_write(SMELT__KERNEL_INFO("info"), &op->kernels[first + index]->info, info);
    return SMELT_OK;
}
