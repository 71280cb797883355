/* The operator sparse_attn: see smelt/sparse_attn.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/families/sparse_attn_keys.h"
#include "codegen/family.h"
#include "codegen/spec/spec.h"
#include "ops/sparse_attn_args.h"
#include "ops/sparse_attn_partition.h"
#include "runtime/abi.h"
#include "runtime/kernel.h"
#include "runtime/log.h"
#include "smelt/sparse_attn.h"

_Static_assert((int)SMELT_MAX_BUCKETS == (int)SMELT__MAX_LIST, "a list key holds the buckets");
_Static_assert((int)SMELT__SPARSE_ATTN_MOST_BUCKETS <= (int)PARTITION_MOST_BUCKETS,
               "the kernels' limit");

enum { PASSES = 2 }; /* of the partition: kernels ahead of the buckets' */

struct smelt_sparse_attn {
    smelt_context *context;
    struct smelt__sparse_attn_shape shape;
    int bounds[SMELT__SPARSE_ATTN_MOST_BUCKETS]; /* ascending, shape.buckets of them */
    int kernel_count;
    const struct smelt__kernel *kernels[SMELT__MAX_KERNELS]; /* in launch order; the context's */
};

static smelt_status refuse_spec(const struct smelt__message *message) {
    return smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s", message->text);
}

/* The struct's list; its numbers are checked with the spec. */
static smelt_status read_buckets(const int given[SMELT_MAX_BUCKETS], struct smelt__spec *spec) {
    const int by_rule = given[0] == SMELT_BUCKETS_AUTO;
    int count = by_rule;
    while (!by_rule && count < SMELT_MAX_BUCKETS && given[count] != 0) {
        spec->list[count] = given[count];
        count++;
    }
    smelt__spec_set(spec, "buckets", by_rule ? SMELT__AUTO : count);
    for (int i = count; i < SMELT_MAX_BUCKETS; i++)
        if (given[i] != 0)
            return smelt__fail(SMELT_ERROR_INVALID_SPEC,
                               "buckets[%d] = %d stands behind the list's end, %s at [%d]", i,
                               given[i], by_rule ? "SMELT_BUCKETS_AUTO" : "the 0",
                               by_rule ? 0 : count);
    return SMELT_OK;
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
    smelt_status status = read_buckets(given->buckets, spec);
    if (status != SMELT_OK)
        return status;
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

static void write_buckets(const struct smelt__spec *spec, int buckets[SMELT_MAX_BUCKETS]) {
    const int64_t count = smelt__spec_get(spec, "buckets");
    for (int i = 0; i < SMELT_MAX_BUCKETS; i++)
        buckets[i] = i < count ? spec->list[i] : 0;
    if (count == SMELT__AUTO)
        buckets[0] = SMELT_BUCKETS_AUTO;
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
    write_buckets(&parsed, spec->buckets);
    return SMELT_OK;
}

/* The operator's kernels, each of which has a plan on the context's architecture. */
static smelt_status expand(smelt_context *context, const smelt_sparse_attn_spec *given,
                           struct smelt__spec *spec, struct smelt__spec kernels[SMELT__MAX_KERNELS],
                           int *count) {
    struct smelt__plan plan;
    smelt_status status = read_spec(given, spec);
    *count = status == SMELT_OK ? spec->family->expand(spec, kernels) : 0;
    for (int i = 0; i < *count && status == SMELT_OK; i++)
        status = smelt__kernel_plan(context, &kernels[i], &plan);
    return status;
}

smelt_status smelt_sparse_attn_supported(smelt_context *context, const smelt_sparse_attn_spec *spec,
                                         const char **why) {
    if (why)
        *why = "";
    struct smelt__spec operator, kernels[SMELT__MAX_KERNELS];
    int count;
    smelt_status status = context ? expand(context, spec, &operator, kernels, &count)
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
    struct smelt__spec operator, kernels[SMELT__MAX_KERNELS];
    int count = 0;
    smelt_status status = smelt__context_need_device(context);
    if (status == SMELT_OK)
        status = expand(context, spec, &operator, kernels, &count);
    if (status != SMELT_OK)
        return status;
    smelt_sparse_attn *made = calloc(1, sizeof *made);
    if (!made)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    made->context = context;
    made->shape = (struct smelt__sparse_attn_shape){
        spec->heads, spec->dqk,  spec->dv,
        spec->topk,  spec->sink, smelt__sparse_attn_bounds(&operator, made->bounds)};
    made->kernel_count = count;
    status = smelt__kernels_get(context, kernels, count, made->kernels);
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
    free(*attn); /* the kernels are the context's */
    *attn = NULL;
}

smelt_status smelt_sparse_attn_forward_info(const smelt_sparse_attn *attn, int index,
                                            smelt_kernel_info *info) {
    if (!attn)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "attn is NULL");
    smelt_status status = smelt__struct_check(SMELT__KERNEL_INFO("info"), info);
    if (status)
        return status;
    if (index < 0 || index >= attn->kernel_count)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "the operator has no kernel number %d: legal are 0..%d", index,
                           attn->kernel_count - 1);
    smelt__struct_write(SMELT__KERNEL_INFO("info"), &attn->kernels[index]->info, info);
    return SMELT_OK;
}

smelt_status smelt_sparse_attn_forward_workspace(const smelt_sparse_attn *attn,
                                                 const smelt_sparse_attn_args *args,
                                                 size_t *bytes) {
    if (!attn || !bytes)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL", attn ? "bytes" : "attn");
    return smelt__sparse_attn_workspace(&attn->shape, args, bytes);
}

/* ---- launching --------------------------------------------------------------------------------
 */

/* Whether a grid for all queries can be had of each kernel. */
static smelt_status check_grids(const smelt_sparse_attn *attn, int64_t queries) {
    for (int i = attn->shape.buckets ? PASSES : 0; i < attn->kernel_count; i++) {
        const int64_t each = attn->kernels[i]->head_blocks;
        if (queries * each > INT32_MAX)
            return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                               "%" PRId64 " queries with %" PRId64 " blocks each exceed the "
                               "grid's 2^31 - 1 blocks; split the call",
                               queries, each);
    }
    return SMELT_OK;
}

static uint32_t count_blocks(const struct smelt__kernel *kernel, int64_t queries, int64_t most) {
    const int64_t blocks = queries * kernel->head_blocks;
    return (uint32_t)(blocks < most ? blocks : most);
}

/*
 * The partition, then the buckets' kernels, the longest work first. Each but the first begins
 * early: the largest bucket's waits for the partition, the others need not, since that one let them
 * begin when it had seen the lists; they end after the one before them. A bucket's size is known on
 * the device alone, so every grid is as large as is resident at once, and its blocks take turns.
 */
static smelt_status launch_buckets(const smelt_sparse_attn *attn, void *workspace,
                                   struct sparse_attn_fwd_params *params, int64_t queries,
                                   struct CUstream_st *stream) {
    const int buckets = attn->shape.buckets;
    const struct smelt__partition_kernels passes = {attn->kernels[0], attn->kernels[1]};
    const struct sparse_attn_partition_params partition =
        smelt__partition_params(params, attn->bounds, buckets, workspace);
    smelt_status status = smelt__partition_launch(attn->context, &passes, &partition, stream);
    params->queries = partition.list;
    params->query_count = NULL;
    params->extents = partition.extents;
    for (int i = 0; i < buckets && status == SMELT_OK; i++) {
        const struct smelt__kernel *kernel = attn->kernels[PASSES + i];
        params->query_range = partition.ranges + 2 * (buckets - 1 - i);
        params->overlaps = i > 0;
        status = smelt__kernel_launch_early(attn->context, kernel,
                                            count_blocks(kernel, queries, kernel->resident_blocks),
                                            params, stream);
    }
    return status;
}

smelt_status smelt_sparse_attn_forward(const smelt_sparse_attn *attn,
                                       const smelt_sparse_attn_args *args,
                                       struct CUstream_st *stream) {
    if (!attn)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "attn is NULL");
    struct sparse_attn_fwd_params params;
    void *workspace;
    int64_t queries;
    smelt_status status =
        smelt__sparse_attn_pack(&attn->shape, args, &params, &workspace, &queries);
    if (status == SMELT_OK)
        status = check_grids(attn, queries);
    if (status != SMELT_OK || queries == 0)
        return status;
    if (attn->shape.buckets)
        return launch_buckets(attn, workspace, &params, queries, stream);
    const struct smelt__kernel *kernel = attn->kernels[0];
    return smelt__kernel_launch(
        attn->context, kernel, count_blocks(kernel, queries, kernel->most_blocks), &params, stream);
}
