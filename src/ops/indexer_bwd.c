/* The operator indexer_bwd: see smelt/indexer_bwd.h. */
#include "smelt/indexer_bwd.h"

#include <inttypes.h>
#include <stdint.h>

#include "codegen/families/indexer_bwd.h"
#include "common/tensor_map.h"
#include "indexer_bwd_grains.params.h"
#include "indexer_bwd_lists.params.h"
#include "indexer_bwd_main.params.h"
#include "ops/arguments.h"
#include "ops/divide.h"
#include "ops/indexer_bwd_tensors.h"
#include "ops/key_grads.h"
#include "ops/operator.h"
#include "runtime/log.h"
#include "runtime/tensor_map.h"

enum {
    KEY_STEP = 64,           /* lists are padded to whole blocks of it */
    TENSOR_MAP_COLUMNS = 64, /* of a box */
    ZERO_WORDS = 4,          /* that are filled at a time */
    TOPS = 1024,             /* blocks that find the largest addend, at most */
    UNIT_KINDS = 2,          /* of a row's bound */
    MOST_UNIT_BITS = 22,     /* an addend's, in units: fp32 holds so many, and one more */
    BOUND_BITS = 31          /* of all addends of a row together */
};

/* Constants of the main kernel's plan (codegen/families/indexer_bwd_main.h says what they mean),
 * and what else a call must know. */
struct smelt_indexer_bwd {
    struct smelt__operator kernels;
    int heads, dim, topk, deterministic;
    int group_queries, block_heads, group_tiles, tensor_maps, exact_groups;
};

_Static_assert(sizeof(smelt_indexer_bwd_spec) <= SMELT__MOST_SPEC_BYTES, "operator.c copies it");

/* ---- the spec -------------------------------------------------------------------------------- */

#define FIELD(key)                                                                                 \
    { #key, offsetof(smelt_indexer_bwd_spec, key) }

static const struct smelt__spec_field fields[] = {FIELD(heads), FIELD(dim), FIELD(topk),
                                                  FIELD(deterministic)};

static const struct smelt__struct spec_struct =
    SMELT__STRUCT_VALUE(smelt_indexer_bwd_spec, "spec", "SMELT_INDEXER_BWD_SPEC_INIT", knobs);

static const struct smelt__spec_table spec_table = {
    .family = &smelt__indexer_bwd,
    .about = &spec_struct,
    .object = "indexer",
    .object_bytes = sizeof(smelt_indexer_bwd),
    .fields = fields,
    .count = sizeof fields / sizeof *fields,
    .knobs = offsetof(smelt_indexer_bwd_spec, knobs),
};

smelt_status smelt_indexer_bwd_spec_print(const smelt_indexer_bwd_spec *spec, char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_indexer_bwd_spec_parse(const char *text, smelt_indexer_bwd_spec *spec,
                                          char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_indexer_bwd_supported(const smelt_context *context,
                                         const smelt_indexer_bwd_spec *spec, const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

/* ---- the operator ---------------------------------------------------------------------------- */

/* Number `kernel` of the operator's expansion. */
static int place_of(const smelt_indexer_bwd *indexer, enum smelt__indexer_bwd_kernel kernel) {
    const int left_out = SMELT__INDEXER_BWD_MAIN - SMELT__INDEXER_BWD_REACH;
    return (int)kernel -
           (!indexer->deterministic && kernel >= SMELT__INDEXER_BWD_MAIN ? left_out : 0);
}

static const struct smelt__kernel *kernel_of(const smelt_indexer_bwd *indexer,
                                             enum smelt__indexer_bwd_kernel kernel) {
    return indexer->kernels.kernels[place_of(indexer, kernel)];
}

/* What is kept besides the kernels. */
static smelt_status keep_plan(smelt_indexer_bwd *made, const struct smelt__spec *spec) {
    struct smelt__expansion expansion;
    struct smelt__message message;
    struct smelt__plan plan;
    if (smelt__spec_expand(spec, &expansion, &message))
        return smelt__fail(SMELT_ERROR_UNSUPPORTED, "%s", message.text);
    made->heads = (int)smelt__spec_get(spec, "heads");
    made->dim = (int)smelt__spec_get(spec, "dim");
    made->topk = (int)smelt__spec_get(spec, "topk");
    made->deterministic = (int)smelt__spec_get(spec, "deterministic");
    smelt_status status = smelt__kernel_plan(
        made->kernels.context, &expansion.kernels[place_of(made, SMELT__INDEXER_BWD_MAIN)], &plan);
    if (status != SMELT_OK)
        return status;
    made->group_queries = smelt__plan_constant(&plan, "GROUP_QUERIES", NULL);
    made->block_heads = smelt__plan_constant(&plan, "BLOCK_HEADS", NULL);
    made->group_tiles = smelt__plan_constant(&plan, "GROUP_TILES", NULL);
    made->tensor_maps = smelt__plan_constant(&plan, "TENSOR_MAPS", NULL);
    made->exact_groups = smelt__plan_constant(&plan, "EXACT_GROUPS", NULL);
    return SMELT_OK;
}

smelt_status smelt_indexer_bwd_create(smelt_indexer_bwd **indexer, smelt_context *context,
                                      const smelt_indexer_bwd_spec *given) {
    struct smelt__spec spec;
    smelt_status status = smelt__operator_create(&spec_table, indexer, context, given, &spec);
    if (status == SMELT_OK)
        status = keep_plan(*indexer, &spec);
    if (status != SMELT_OK)
        smelt_indexer_bwd_destroy(indexer);
    return status;
}

void smelt_indexer_bwd_destroy(smelt_indexer_bwd **indexer) {
    smelt__operator_destroy(indexer);
}

smelt_status smelt_indexer_bwd_get_kernel_info(const smelt_indexer_bwd *indexer, int index,
                                               smelt_kernel_info *info) {
    if (!indexer)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "indexer is NULL");
    return smelt__operator_get_kernel_info(&indexer->kernels, SMELT_PASS_BACKWARD, index, info);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* This library's copy of the arguments, whose extents are legal. */
static smelt_status read_args(const smelt_indexer_bwd *indexer, const smelt_indexer_bwd_args *given,
                              smelt_indexer_bwd_args *args) {
    smelt_status status = smelt__struct_read(
        SMELT__STRUCT(smelt_indexer_bwd_args, "args", "SMELT_INDEXER_BWD_ARGS_INIT", reserved),
        given, args);
    if (status == SMELT_OK)
        status = smelt__check_extent("tokens", args->tokens, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("rows", args->rows, 0, INT32_MAX);
    if (status != SMELT_OK || (args->width >= 1 && args->width <= indexer->topk))
        return status;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "width = %" PRId64 " is out of range; this operator was made for topk=%d: "
                       "legal are 1..%d, or make one with a larger topk",
                       args->width, indexer->topk, indexer->topk);
}

/* Where each array lies in the workspace, bytes from its start. */
struct layout {
    size_t members, runs, grads;
    size_t reach, tops, grains, totals;
    size_t bounds; /* ahead of the sums: zeroed together */
    struct smelt__key_grads_layout dk;
    size_t bytes; /* of all */
};

/* dk's sums: in deterministic mode, too, they are added to, since additions are exact. */
static struct smelt__key_grads_shape shape_of(const smelt_indexer_bwd *indexer) {
    return (struct smelt__key_grads_shape){
        .columns = indexer->dim, .group_items = 1, .key_rows = 1};
}

static struct layout find_layout(const smelt_indexer_bwd *indexer,
                                 const smelt_indexer_bwd_args *args) {
    const struct smelt__key_grads_shape shape = shape_of(indexer);
    const int64_t groups = smelt__divide_up(args->tokens, indexer->group_queries);
    const int64_t entries = groups * indexer->group_queries;
    struct layout layout = {0};
    layout.dk.groups = groups;
    layout.dk.key_count = args->rows;
    layout.dk.key_stride =
        (int)(smelt__divide_up(args->width * indexer->group_queries, KEY_STEP) * KEY_STEP);
    layout.members = smelt__workspace_place(&layout.bytes, entries, sizeof(int));
    layout.dk.counts = smelt__workspace_place(&layout.bytes, groups, sizeof(int));
    layout.runs = smelt__workspace_place(&layout.bytes, indexer->group_tiles > 1 ? groups : 0,
                                         2 * sizeof(int));
    layout.dk.keys =
        smelt__workspace_place(&layout.bytes, groups * layout.dk.key_stride, sizeof(int));
    layout.grads =
        smelt__workspace_place(&layout.bytes, entries * layout.dk.key_stride, sizeof(float));
    if (indexer->deterministic) {
        layout.reach = smelt__workspace_place(&layout.bytes, entries, sizeof(float));
        layout.tops = smelt__workspace_place(&layout.bytes, TOPS, sizeof(float));
        layout.grains = smelt__workspace_place(&layout.bytes, args->rows, sizeof(float));
        layout.totals = smelt__workspace_place(
            &layout.bytes, groups > indexer->exact_groups ? args->rows * indexer->dim : 0,
            sizeof(float));
    }
    layout.bounds = smelt__workspace_place(&layout.bytes, indexer->deterministic ? args->rows : 0,
                                           UNIT_KINDS * sizeof(unsigned));
    smelt__key_grads_place(&shape, 0, &layout.bytes, &layout.dk);
    return layout;
}

/* Exactly one kind of dk. */
static smelt_status check_outputs(const smelt_indexer_bwd_args *args) {
    const int kinds = !!args->dk.data + !!args->dk_fp32.data + !!args->dk_sum.data;
    if (kinds == 1 || (kinds == 0 && args->rows == 0))
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "%s of dk, dk_fp32 and dk_sum %s given; give exactly one: bf16, fp32, or "
                       "fp32 to be added to",
                       kinds ? "several" : "none", kinds ? "are" : "is");
}

static smelt_status check_args(const smelt_indexer_bwd *indexer, smelt_indexer_bwd_args *args,
                               const struct layout *layout) {
    const int64_t extents[SMELT__INDEXER_BWD_SYMBOLS] = {
        [SMELT__INDEXER_BWD_T] = args->tokens,    [SMELT__INDEXER_BWD_S] = args->rows,
        [SMELT__INDEXER_BWD_H] = indexer->heads,  [SMELT__INDEXER_BWD_D] = indexer->dim,
        [SMELT__INDEXER_BWD_WIDTH] = args->width, [SMELT__INDEXER_BWD_ONE] = 1,
    };
    const struct smelt__memory workspace = {"workspace", args->workspace,
                                            layout->bytes ? args->workspace_bytes : 0, 1};
    smelt_status status =
        smelt__check_extent("free_multiprocessors", args->free_multiprocessors, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("reserved", args->reserved, 0, 0);
    if (status == SMELT_OK)
        status = check_outputs(args);
    if (status == SMELT_OK)
        status = smelt__check_tensors(&smelt__indexer_bwd_tensors, SMELT_PASS_BACKWARD, extents,
                                      args, &workspace, 1);
    if (status == SMELT_OK)
        status = smelt__check_workspace(args->workspace, args->workspace_bytes, layout->bytes,
                                        SMELT__BACKWARD_ALIGNMENT,
                                        "smelt_indexer_bwd_backward_workspace");
    return status == SMELT_OK ? smelt__operator_check_grid(&indexer->kernels, SMELT_PASS_BACKWARD,
                                                           layout->dk.groups)
                              : status;
}

smelt_status smelt_indexer_bwd_backward_workspace(const smelt_indexer_bwd *indexer,
                                                  const smelt_indexer_bwd_args *given,
                                                  size_t *bytes) {
    smelt_indexer_bwd_args args;
    if (!indexer || !bytes)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL",
                           indexer ? "bytes" : "indexer");
    *bytes = 0;
    const smelt_status status = read_args(indexer, given, &args);
    if (status == SMELT_OK)
        *bytes = find_layout(indexer, &args).bytes;
    return status;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* A checked call. */
struct call {
    const smelt_indexer_bwd *indexer;
    const smelt_indexer_bwd_args *args;
    struct layout layout;
    struct CUstream_st *stream;
};

static void *at(const struct call *call, size_t offset) {
    return (char *)call->args->workspace + offset;
}

static smelt_status launch(const struct call *call, enum smelt__indexer_bwd_kernel number,
                           int64_t blocks, const void *params) {
    const struct smelt__launch launch = {
        .blocks = {(uint32_t)blocks}, .entered = 1, .params = params};
    return smelt__kernel_launch(call->indexer->kernels.context, kernel_of(call->indexer, number),
                                &launch, call->stream);
}

/* 32-bit words from the bounds on that begin as zeros: bounds, and dk's sums. */
static size_t zero_words(const struct call *call) {
    const size_t sums = (size_t)call->args->rows * (size_t)call->indexer->dim;
    return sums ? (call->layout.dk.sums - call->layout.bounds) / sizeof(float) + sums : 0;
}

/* Each group's list of keys, with their gradients; and the zeros. */
static smelt_status launch_lists(const struct call *call) {
    const smelt_indexer_bwd *indexer = call->indexer;
    const smelt_indexer_bwd_args *args = call->args;
    const struct layout *layout = &call->layout;
    const struct indexer_bwd_lists_params params = {
        .indices = args->indices.data,
        .topk_length = args->topk_length.data,
        .grad = args->grad.data,
        .members = at(call, layout->members),
        .counts = at(call, layout->dk.counts),
        .runs = indexer->group_tiles > 1 ? at(call, layout->runs) : NULL,
        .keys = at(call, layout->dk.keys),
        .grads = at(call, layout->grads),
        .zeros = at(call, layout->bounds),
        .zero_vectors = (long long)(zero_words(call) / ZERO_WORDS),
        .indices_token_stride = args->indices.strides[0],
        .topk_length_token_stride = args->topk_length.strides[0],
        .grad_token_stride = args->grad.strides[0],
        .tokens = (int)args->tokens,
        .rows = (int)args->rows,
        .width = (int)args->width,
        .groups = (int)layout->dk.groups,
        .group_queries = indexer->group_queries,
        .key_stride = layout->dk.key_stride,
    };
    const struct smelt__kernel *kernel = kernel_of(indexer, SMELT__INDEXER_BWD_LISTS);
    return launch(call, SMELT__INDEXER_BWD_LISTS,
                  smelt__blocks_for(kernel, layout->dk.groups, kernel->most_blocks), &params);
}

/* An addend's most bits such that those of all groups together have BOUND_BITS. */
static int unit_bits(int64_t groups) {
    int bits = BOUND_BITS;
    while (bits > MOST_UNIT_BITS || groups << bits > (INT64_C(1) << BOUND_BITS))
        bits--;
    return bits;
}

/* Blocks of a kernel that are resident together, but no more than `most` and one an item. */
static int64_t resident_for(const struct call *call, enum smelt__indexer_bwd_kernel number,
                            int64_t items, int64_t most) {
    const int64_t resident = kernel_of(call->indexer, number)->resident_blocks;
    const int64_t blocks = items < resident ? items : resident;
    return blocks < 1 ? 1 : blocks < most ? blocks : most;
}

/* Likewise, where a thread takes an item. */
static int64_t resident_for_threads(const struct call *call, enum smelt__indexer_bwd_kernel number,
                                    int64_t items) {
    const int64_t threads = kernel_of(call->indexer, number)->threads;
    return resident_for(call, number, smelt__divide_up(items, threads), UINT32_MAX);
}

/* Groups that one launch of the main kernel takes. */
struct chunk {
    int64_t first, groups;
};

/* What the passes of the grains have in common. */
static struct indexer_bwd_grains_params grains_params(const struct call *call, struct chunk chunk) {
    const smelt_indexer_bwd *indexer = call->indexer;
    const smelt_indexer_bwd_args *args = call->args;
    const struct layout *layout = &call->layout;
    const int64_t place = chunk.first * indexer->group_queries, stride = layout->dk.key_stride;
    return (struct indexer_bwd_grains_params){
        .q = args->q.data,
        .weights = args->weights.data,
        .members = (const int *)at(call, layout->members) + place,
        .counts = (const int *)at(call, layout->dk.counts) + chunk.first,
        .keys = (const int *)at(call, layout->dk.keys) + chunk.first * stride,
        .grads = (const float *)at(call, layout->grads) + place * stride,
        .reach = (float *)at(call, layout->reach) + place,
        .tops = at(call, layout->tops),
        .bounds = at(call, layout->bounds),
        .grains = at(call, layout->grains),
        .sums = at(call, layout->dk.sums),
        .totals = at(call, layout->totals),
        .q_token_stride = args->q.strides[0],
        .q_head_stride = args->q.strides[1],
        .weights_token_stride = args->weights.strides[0],
        .heads = indexer->heads,
        .dim = indexer->dim,
        .rows = (int)args->rows,
        .groups = (int)chunk.groups,
        .group_queries = indexer->group_queries,
        .key_stride = layout->dk.key_stride,
        .top_count = (int)resident_for(call, SMELT__INDEXER_BWD_REACH, chunk.groups, TOPS),
        .bits = unit_bits(chunk.groups),
        .first = chunk.first == 0,
        .last = chunk.first + chunk.groups == layout->dk.groups,
    };
}

/* By what is rounded what a chunk adds to each row of dk. Bounds are zeros ahead of the first. */
static smelt_status launch_grains(const struct call *call, struct chunk chunk) {
    const struct indexer_bwd_grains_params params = grains_params(call, chunk);
    const int64_t rows = call->args->rows;
    smelt_status status = SMELT_OK;
    if (chunk.first > 0 && rows > 0)
        status = smelt__fill_async(call->indexer->kernels.context, params.bounds, 0,
                                   (size_t)rows * UNIT_KINDS, 1, call->stream);
    if (status == SMELT_OK)
        status = launch(call, SMELT__INDEXER_BWD_REACH, params.top_count, &params);
    if (status == SMELT_OK)
        status = launch(call, SMELT__INDEXER_BWD_BOUNDS,
                        resident_for(call, SMELT__INDEXER_BWD_BOUNDS, chunk.groups, UINT32_MAX),
                        &params);
    if (status == SMELT_OK)
        status = launch(call, SMELT__INDEXER_BWD_GRAINS,
                        resident_for_threads(call, SMELT__INDEXER_BWD_GRAINS, rows), &params);
    return status;
}

/* q, boxes of one query. */
static smelt_status make_map(const struct call *call, struct tensor_map *map) {
    const smelt_indexer_bwd *indexer = call->indexer;
    const smelt_indexer_bwd_args *args = call->args;
    const int64_t extents[] = {indexer->dim, indexer->heads, args->tokens};
    struct smelt__tensor_box box = {
        .data = args->q.data,
        .element = SMELT__MAP_BF16,
        .swizzle = SMELT__MAP_SWIZZLE_128,
        .dimensions = 3,
        .box = {TENSOR_MAP_COLUMNS, (uint32_t)(indexer->block_heads / indexer->group_queries), 1},
        .entered = 1,
    };
    for (int i = 0; i < 3; i++)
        box.extents[i] = (uint64_t)extents[i];
    for (int i = 1; i < 3; i++) {
        const int64_t stride = extents[i] > 1 ? args->q.strides[2 - i] : SMELT__ROW_BYTES / 2;
        const smelt_status status =
            smelt__check_map_stride("q", 2 - i, stride, 2, "main.variant=mma");
        if (status != SMELT_OK)
            return status;
        box.strides[i] = (uint64_t)stride * 2;
    }
    return smelt__tensor_map_make(indexer->kernels.context, &box, map);
}

static smelt_status fill_main(const struct call *call, struct indexer_bwd_main_params *params) {
    const smelt_indexer_bwd_args *args = call->args;
    const struct layout *layout = &call->layout;
    *params = (struct indexer_bwd_main_params){
        .q = args->q.data,
        .k = args->k.data,
        .weights = args->weights.data,
        .members = at(call, layout->members),
        .counts = at(call, layout->dk.counts),
        .runs = call->indexer->group_tiles > 1 ? at(call, layout->runs) : NULL,
        .keys = at(call, layout->dk.keys),
        .grads = at(call, layout->grads),
        .dq = args->dq.data,
        .dweights = args->dweights.data,
        .dk = at(call, layout->dk.sums),
        .grains = call->indexer->deterministic ? at(call, layout->grains) : NULL,
        .q_token_stride = args->q.strides[0],
        .q_head_stride = args->q.strides[1],
        .weights_token_stride = args->weights.strides[0],
        .dq_token_stride = args->dq.strides[0],
        .dq_head_stride = args->dq.strides[1],
        .dweights_token_stride = args->dweights.strides[0],
        .k_row_bytes = args->rows > 1 ? (unsigned)(args->k.strides[0] * 2) : 0,
        .tokens = (int)args->tokens,
        .rows = (int)args->rows,
        .key_stride = layout->dk.key_stride,
    };
    return call->indexer->tensor_maps ? make_map(call, &params->q_map) : SMELT_OK;
}

/* *params: all but what is the chunk's. */
static smelt_status launch_main(const struct call *call, struct indexer_bwd_main_params *params,
                                struct chunk chunk) {
    const struct smelt__kernel *kernel = kernel_of(call->indexer, SMELT__INDEXER_BWD_MAIN);
    const int left = call->args->free_multiprocessors;
    params->first_group = (int)chunk.first;
    params->groups = (int)chunk.groups;
    return launch(call, SMELT__INDEXER_BWD_MAIN,
                  smelt__blocks_for(kernel, chunk.groups, smelt__blocks_beside(kernel, left)),
                  params);
}

/* A chunk of several: its sums, added to those of the chunks before. */
static smelt_status launch_totals(const struct call *call, struct chunk chunk) {
    const struct indexer_bwd_grains_params params = grains_params(call, chunk);
    const int64_t vectors = call->args->rows * (call->indexer->dim / ZERO_WORDS);
    return launch(call, SMELT__INDEXER_BWD_TOTALS,
                  resident_for_threads(call, SMELT__INDEXER_BWD_TOTALS, vectors), &params);
}

/* The sums of dk, chunk by chunk of as many groups as are exact at once: chunks of equal sizes, but
 * for the last. */
static smelt_status launch_exact(const struct call *call, struct indexer_bwd_main_params *params) {
    const int64_t groups = call->layout.dk.groups;
    const int64_t chunks = smelt__divide_up(groups, call->indexer->exact_groups);
    struct chunk chunk = {.groups = smelt__divide_up(groups, chunks)};
    smelt_status status = SMELT_OK;
    for (; chunk.first < groups && status == SMELT_OK; chunk.first += chunk.groups) {
        if (chunk.groups > groups - chunk.first)
            chunk.groups = groups - chunk.first;
        status = launch_grains(call, chunk);
        if (status == SMELT_OK)
            status = launch_main(call, params, chunk);
        if (status == SMELT_OK && chunks > 1)
            status = launch_totals(call, chunk);
    }
    return status;
}

/* dq and dweights, and the sums of dk. The main kernel's arguments come first: what they refuse is
 * refused before anything is launched. */
static smelt_status launch_queries(const struct call *call) {
    const struct chunk all = {.groups = call->layout.dk.groups};
    struct indexer_bwd_main_params params;
    smelt_status status = fill_main(call, &params);
    if (status == SMELT_OK)
        status = launch_lists(call);
    if (status != SMELT_OK)
        return status;
    return call->indexer->deterministic ? launch_exact(call, &params)
                                        : launch_main(call, &params, all);
}

/* The caller's dk. */
static smelt_status launch_finish(const struct call *call) {
    const smelt_indexer_bwd_args *args = call->args;
    const struct smelt__key_grads_call dk = {
        .context = call->indexer->kernels.context,
        .shape = shape_of(call->indexer),
        .layout = &call->layout.dk,
        .finish = kernel_of(call->indexer, SMELT__INDEXER_BWD_FINISH),
        .workspace = args->workspace,
        .stream = call->stream,
    };
    const smelt_tensor *tensor = args->dk.data        ? &args->dk
                                 : args->dk_fp32.data ? &args->dk_fp32
                                                      : &args->dk_sum;
    const struct sparse_attn_bwd_finish_params params = {
        .dkv = tensor->data,
        .dkv_row_stride = tensor->strides[0],
        .mode = args->dk.data        ? FINISH_BF16
                : args->dk_fp32.data ? FINISH_FP32
                                     : FINISH_ADD,
        .batches = 1,
        .rows = (int)args->rows,
    };
    return smelt__key_grads_finish(&dk, params);
}

static smelt_status launch_chain(const struct call *call) {
    const size_t zeros = zero_words(call);
    smelt_status status = SMELT_OK;
    if (call->args->tokens > 0)
        status = launch_queries(call);
    else if (zeros > 0)
        status = smelt__fill_async(call->indexer->kernels.context, at(call, call->layout.bounds), 0,
                                   zeros, 1, call->stream);
    return status == SMELT_OK && zeros > 0 ? launch_finish(call) : status;
}

smelt_status smelt_indexer_bwd_backward(const smelt_indexer_bwd *indexer,
                                        const smelt_indexer_bwd_args *given,
                                        struct CUstream_st *stream) {
    smelt_indexer_bwd_args args;
    int pushed;
    if (!indexer)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "indexer is NULL");
    smelt_status status = read_args(indexer, given, &args);
    if (status != SMELT_OK)
        return status;
    const struct call call = {indexer, &args, find_layout(indexer, &args), stream};
    status = check_args(indexer, &args, &call.layout);
    if (status == SMELT_OK) /* the CUDA context is made current once for all launches */
        status = smelt__context_enter(indexer->kernels.context, &pushed);
    if (status != SMELT_OK)
        return status;
    status = launch_chain(&call);
    smelt__context_leave(indexer->kernels.context, pushed);
    return status;
}
