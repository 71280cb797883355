/* The operator sparse_attn: see smelt/sparse_attn.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/family.h"
#include "codegen/plan.h"
#include "codegen/spec.h"
#include "ops/sparse_attn_args.h"
#include "runtime/kernel.h"
#include "runtime/log.h"
#include "smelt/sparse_attn.h"

struct smelt_sparse_attn {
    smelt_context *context;
    struct smelt__sparse_attn_shape shape;
    const struct smelt__kernel *forward; /* the context's */
};

static smelt_status refuse_spec(const struct smelt__message *message) {
    return smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s", message->text);
}

/* The struct as a checked operator spec. */
static smelt_status read_spec(const smelt_sparse_attn_spec *given, struct smelt__spec *spec) {
    struct smelt__message message;
    if (!given || given->size != sizeof *given)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "spec is %s; fill it from SMELT_SPARSE_ATTN_SPEC_INIT",
                           given ? "of another size than this library's" : "NULL");
    smelt__spec_init(spec, &smelt__sparse_attn);
    smelt__spec_set(spec, "heads", given->heads);
    smelt__spec_set(spec, "dqk", given->dqk);
    smelt__spec_set(spec, "dv", given->dv);
    smelt__spec_set(spec, "topk", given->topk);
    smelt__spec_set(spec, "sink", given->sink);
    if (given->knobs && *given->knobs && smelt__spec_parse_keys(given->knobs, 1, spec, &message))
        return refuse_spec(&message);
    return smelt__spec_check(spec, &message) ? refuse_spec(&message) : SMELT_OK;
}

smelt_status smelt_sparse_attn_spec_print(const smelt_sparse_attn_spec *spec, char **text) {
    if (!text)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "text is NULL");
    *text = NULL;
    struct smelt__spec parsed;
    smelt_status status = read_spec(spec, &parsed);
    if (status != SMELT_OK)
        return status;
    char canonical[SMELT__SPEC_TEXT];
    smelt__spec_print(&parsed, canonical);
    *text = strdup(canonical);
    return *text ? SMELT_OK : smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
}

/* The knobs that a spec names, as text; they stand last in the canonical form. */
static const char *find_knobs(const struct smelt__spec *spec, const char *canonical) {
    for (int i = 0; i < spec->family->key_count; i++) {
        const struct smelt__key *key = &spec->family->keys[i];
        if (!key->knob || spec->values[i] == key->default_value)
            continue;
        char pattern[64];
        snprintf(pattern, sizeof pattern, ",%s=", key->name);
        const char *found = strstr(canonical, pattern);
        if (found)
            return found + 1;
    }
    return NULL;
}

smelt_status smelt_sparse_attn_spec_parse(const char *text, smelt_sparse_attn_spec *spec,
                                          char **knobs) {
    if (knobs)
        *knobs = NULL;
    if (!text || !spec || spec->size != sizeof *spec)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "text or spec is NULL, or spec->size is not set; fill *spec from "
                           "SMELT_SPARSE_ATTN_SPEC_INIT");
    struct smelt__spec parsed;
    struct smelt__message message;
    if (smelt__spec_parse(text, &parsed, &message))
        return refuse_spec(&message);
    if (parsed.family != &smelt__sparse_attn)
        return smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s is no sparse_attn operator",
                           parsed.family->name);
    char canonical[SMELT__SPEC_TEXT];
    smelt__spec_print(&parsed, canonical);
    const char *found = knobs ? find_knobs(&parsed, canonical) : NULL;
    if (found && !(*knobs = strdup(found)))
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    spec->heads = (int)smelt__spec_get(&parsed, "heads");
    spec->dqk = (int)smelt__spec_get(&parsed, "dqk");
    spec->dv = (int)smelt__spec_get(&parsed, "dv");
    spec->topk = (int)smelt__spec_get(&parsed, "topk");
    spec->sink = (int)smelt__spec_get(&parsed, "sink");
    spec->knobs = knobs ? *knobs : NULL;
    return SMELT_OK;
}

/* The plan of the operator's forward kernel on the context's architecture. */
static smelt_status plan_forward(const smelt_context *context, const smelt_sparse_attn_spec *given,
                                 struct smelt__plan *plan) {
    struct smelt__spec spec, kernels[SMELT__MAX_KERNELS];
    struct smelt__message message;
    smelt_status status = read_spec(given, &spec);
    if (status != SMELT_OK)
        return status;
    if (spec.family->expand(&spec, kernels) != 1)
        return smelt__fail(SMELT_ERROR_INTERNAL, "sparse_attn expands to no single kernel");
    if (smelt__plan_make(&kernels[0], smelt__context_arch(context), plan, &message))
        return smelt__fail(SMELT_ERROR_UNSUPPORTED, "%s", message.text);
    return SMELT_OK;
}

smelt_status smelt_sparse_attn_supported(smelt_context *context, const smelt_sparse_attn_spec *spec,
                                         const char **why) {
    if (why)
        *why = "";
    struct smelt__plan plan;
    smelt_status status = context ? plan_forward(context, spec, &plan)
                                  : smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "context is NULL");
    if (status != SMELT_OK && why)
        *why = smelt_last_error();
    return status;
}

smelt_status smelt_sparse_attn_create(smelt_sparse_attn **attn, smelt_context *context,
                                      const smelt_sparse_attn_spec *spec) {
    if (!attn || !context)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL", attn ? "context" : "attn");
    *attn = NULL;
    smelt_status status = smelt__context_need_device(context);
    struct smelt__plan plan;
    if (status == SMELT_OK)
        status = plan_forward(context, spec, &plan);
    if (status != SMELT_OK)
        return status;
    smelt_sparse_attn *made = calloc(1, sizeof *made);
    if (!made)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    made->context = context;
    made->shape =
        (struct smelt__sparse_attn_shape){spec->heads, spec->dqk, spec->dv, spec->topk, spec->sink};
    status = smelt__kernel_get(context, &plan, &made->forward);
    if (status != SMELT_OK) {
        free(made);
        return status;
    }
    *attn = made;
    return SMELT_OK;
}

void smelt_sparse_attn_destroy(smelt_sparse_attn **attn) {
    if (!attn)
        return;
    free(*attn); /* the kernel is the context's */
    *attn = NULL;
}

smelt_status smelt_sparse_attn_forward_info(const smelt_sparse_attn *attn,
                                            smelt_kernel_info *info) {
    if (!attn || !info)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL", attn ? "info" : "attn");
    if (info->size != sizeof *info)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "info->size = %zu is not this library's %zu; set it to sizeof *info",
                           info->size, sizeof *info);
    *info = attn->forward->info;
    return SMELT_OK;
}

smelt_status smelt_sparse_attn_forward(smelt_sparse_attn *attn, const smelt_sparse_attn_args *args,
                                       struct CUstream_st *stream) {
    if (!attn)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "attn is NULL");
    struct sparse_attn_fwd_params params;
    int64_t queries;
    smelt_status status = smelt__sparse_attn_pack(&attn->shape, args, &params, &queries);
    if (status != SMELT_OK || queries == 0)
        return status;
    const int64_t blocks = queries * attn->forward->head_blocks;
    if (blocks > INT32_MAX)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%" PRId64 " queries with %" PRId64 " blocks each exceed the grid's "
                           "2^31 - 1 blocks; split the call",
                           queries, attn->forward->head_blocks);
    const int64_t most = attn->forward->most_blocks;
    return smelt__kernel_launch(attn->context, attn->forward,
                                (uint32_t)(blocks < most ? blocks : most), &params, stream);
}
