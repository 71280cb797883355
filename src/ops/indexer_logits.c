/* The operator indexer_logits: see smelt/indexer_logits.h. */
#include "smelt/indexer_logits.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/tensor_map.h"
#include "indexer_logits_fwd.params.h"
#include "ops/arguments.h"
#include "ops/indexer_logits_tensors.h"
#include "ops/operator.h"
#include "runtime/log.h"
#include "runtime/tensor_map.h"

extern const struct smelt__family smelt__indexer_logits; /* as registry.c declares it */

enum {
    MAP_ROW_BYTES = 128,      /* of a box at most: the widest swizzle */
    MOST_MAP_STRIDE_BITS = 40 /* of the copy engine's strides, in bytes */
};

/* What of the kernel's plan a launch goes by; see families/indexer_logits_fwd.h. */
struct tile {
    int queries, keys;
    int tensor_maps, map_queries, map_heads, map_keys;
};

struct smelt_indexer_logits {
    struct smelt__operator kernels;
    int heads, dim, dtype;
    struct tile tile;
};

/* ---- spec ------------------------------------------------------------------------------------ */

_Static_assert(sizeof(smelt_indexer_logits_spec) <= SMELT__MOST_SPEC_BYTES, "operator.c copies it");

#define FIELD(key)                                                                                 \
    { #key, offsetof(smelt_indexer_logits_spec, key) }

static const struct smelt__spec_field fields[] = {FIELD(heads), FIELD(dim), FIELD(dtype)};

static const struct smelt__struct spec_struct =
    SMELT__STRUCT_VALUE(smelt_indexer_logits_spec, "spec", "SMELT_INDEXER_LOGITS_SPEC_INIT", knobs);

static const struct smelt__spec_table spec_table = {
    .family = &smelt__indexer_logits,
    .about = &spec_struct,
    .fields = fields,
    .count = sizeof fields / sizeof *fields,
    .knobs = offsetof(smelt_indexer_logits_spec, knobs),
    .reserved = offsetof(smelt_indexer_logits_spec, reserved),
};

smelt_status smelt_indexer_logits_spec_print(const smelt_indexer_logits_spec *spec, char **text) {
    return smelt__operator_print_spec(&spec_table, spec, text);
}

smelt_status smelt_indexer_logits_spec_parse(const char *text, smelt_indexer_logits_spec *spec,
                                             char **knobs) {
    return smelt__operator_parse_spec(&spec_table, text, spec, knobs);
}

smelt_status smelt_indexer_logits_supported(const smelt_context *context,
                                            const smelt_indexer_logits_spec *spec,
                                            const char **why) {
    return smelt__operator_supported(&spec_table, context, spec, why);
}

/* ---- the operator ---------------------------------------------------------------------------- */

static int constant(const struct smelt__plan *plan, const char *name) {
    int found;
    return smelt__plan_constant(plan, name, &found);
}

static smelt_status read_tile(smelt_context *context, const struct smelt__spec *spec,
                              struct tile *tile) {
    struct smelt__expansion expansion;
    struct smelt__message message;
    struct smelt__plan plan;
    if (smelt__spec_expand(spec, &expansion, &message))
        return smelt__fail(SMELT_ERROR_UNSUPPORTED, "%s", message.text);
    smelt_status status = smelt__kernel_plan(context, &expansion.kernels[0], &plan);
    if (status != SMELT_OK)
        return status;
    *tile = (struct tile){
        .queries = constant(&plan, "BLOCK_QUERIES"),
        .keys = constant(&plan, "BLOCK_KEYS"),
        .tensor_maps = constant(&plan, "TENSOR_MAPS"),
        .map_queries = constant(&plan, "MAP_QUERIES"),
        .map_heads = constant(&plan, "MAP_HEADS"),
        .map_keys = constant(&plan, "MAP_KEYS"),
    };
    return SMELT_OK;
}

smelt_status smelt_indexer_logits_create(smelt_indexer_logits **indexer, smelt_context *context,
                                         const smelt_indexer_logits_spec *given) {
    if (!indexer || !context)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL",
                           indexer ? "context" : "indexer");
    *indexer = NULL;
    struct smelt__spec spec;
    smelt_status status = smelt__context_need_device(context);
    if (status == SMELT_OK)
        status = smelt__operator_read_spec(&spec_table, given, &spec);
    if (status != SMELT_OK)
        return status;
    smelt_indexer_logits *made = calloc(1, sizeof *made);
    if (!made)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    made->heads = (int)smelt__spec_get(&spec, "heads");
    made->dim = (int)smelt__spec_get(&spec, "dim");
    made->dtype = (int)smelt__spec_get(&spec, "dtype");
    status = smelt__operator_make(context, &spec, &made->kernels);
    if (status == SMELT_OK)
        status = read_tile(context, &spec, &made->tile);
    if (status != SMELT_OK) {
        free(made);
        return status;
    }
    *indexer = made;
    return SMELT_OK;
}

void smelt_indexer_logits_destroy(smelt_indexer_logits **indexer) {
    if (!indexer)
        return;
    free(*indexer); /* the kernels are the context's */
    *indexer = NULL;
}

smelt_status smelt_indexer_logits_get_kernel_info(const smelt_indexer_logits *indexer, int index,
                                                  smelt_kernel_info *info) {
    if (!indexer)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "indexer is NULL");
    return smelt__operator_get_kernel_info(&indexer->kernels, SMELT_PASS_FORWARD, index, info);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static smelt_status check_scale(const smelt_indexer_logits *indexer,
                                const smelt_indexer_logits_args *args) {
    const int fp8 = indexer->dtype == SMELT_INDEXER_FP8;
    if (!args->k_scale.data == !fp8)
        return SMELT_OK;
    if (fp8)
        return smelt__fail(
            SMELT_ERROR_INVALID_ARGUMENT,
            "k_scale is NULL; it must point to device memory, since the operator was "
            "made with dtype=fp8");
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "k_scale is given but the operator was made with dtype=bf16; make one with "
                       "dtype=fp8, or pass NULL");
}

/* Checks a call and fills in packed strides. */
static smelt_status check_args(const smelt_indexer_logits *indexer,
                               const smelt_indexer_logits_args *given,
                               smelt_indexer_logits_args *args) {
    smelt_status status = smelt__struct_read(
        SMELT__STRUCT(smelt_indexer_logits_args, "args", "SMELT_INDEXER_LOGITS_ARGS_INIT", logits),
        given, args);
    if (status == SMELT_OK)
        status = smelt__check_extent("tokens", args->tokens, 0, INT32_MAX);
    if (status == SMELT_OK)
        status = smelt__check_extent("rows", args->rows, 0, INT32_MAX);
    if (status == SMELT_OK)
        status =
            smelt__check_extent("free_multiprocessors", args->free_multiprocessors, 0, INT32_MAX);
    if (status == SMELT_OK && args->reserved != 0)
        status = smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                             "reserved = %d is not legal; it must be 0: fill the arguments from "
                             "SMELT_INDEXER_LOGITS_ARGS_INIT",
                             args->reserved);
    if (status != SMELT_OK || args->tokens == 0 || args->rows == 0)
        return status; /* of an empty call no tensor is looked at */
    const int64_t extents[SMELT__INDEXER_LOGITS_SYMBOLS] = {
        [SMELT__INDEXER_LOGITS_T] = args->tokens,
        [SMELT__INDEXER_LOGITS_S] = args->rows,
        [SMELT__INDEXER_LOGITS_H] = indexer->heads,
        [SMELT__INDEXER_LOGITS_D] = indexer->dim,
    };
    status = check_scale(indexer, args);
    return status == SMELT_OK ? smelt__check_tensors(&smelt__indexer_logits_tensors[indexer->dtype],
                                                     SMELT_PASS_FORWARD, extents, args, NULL, 0)
                              : status;
}

/* ---- launching --------------------------------------------------------------------------------
 */

/* The map of a tensor with columns of DIM elements; `extents` and `strides` (elements) of what
 * steps over rows, the innermost first, `boxes` of them in a box. */
static smelt_status make_map(const smelt_indexer_logits *indexer, const char *name,
                             const void *data, int dimensions, const int64_t *extents,
                             const int64_t *strides, const int *boxes, struct tensor_map *map) {
    const int element = indexer->dtype == SMELT_INDEXER_FP8 ? 1 : 2;
    const int row_bytes = indexer->dim * element;
    const int box_bytes = row_bytes < MAP_ROW_BYTES ? row_bytes : MAP_ROW_BYTES;
    struct smelt__tensor_box box = {
        .data = data,
        .element = element == 1 ? SMELT__MAP_UINT8 : SMELT__MAP_BF16,
        .swizzle = box_bytes == MAP_ROW_BYTES ? SMELT__MAP_SWIZZLE_128 : SMELT__MAP_SWIZZLE_64,
        .dimensions = dimensions,
        .extents = {(uint64_t)indexer->dim},
        .box = {(uint32_t)(box_bytes / element)},
    };
    for (int i = 1; i < dimensions; i++) {
        const int64_t stride = extents[i - 1] > 1 ? strides[i - 1] * element : SMELT__ROW_BYTES;
        if (stride >> MOST_MAP_STRIDE_BITS)
            return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                               "%s.strides[%d] = %" PRId64 " is too large for this kernel: strides "
                               "must stay below 2^%d bytes; make the operator with variant=mma",
                               name, dimensions - 1 - i, strides[i - 1], MOST_MAP_STRIDE_BITS);
        box.extents[i] = (uint64_t)extents[i - 1];
        box.strides[i] = (uint64_t)stride;
        box.box[i] = (uint32_t)boxes[i - 1];
    }
    return smelt__tensor_map_make(indexer->kernels.context, &box, map);
}

static smelt_status make_maps(const smelt_indexer_logits *indexer,
                              const smelt_indexer_logits_args *args,
                              struct indexer_logits_fwd_params *params) {
    const struct tile *tile = &indexer->tile;
    const int64_t q_extents[] = {indexer->heads, args->tokens}, k_extents[] = {args->rows};
    const int64_t q_strides[] = {args->q.strides[1], args->q.strides[0]};
    const int q_boxes[] = {tile->map_heads, tile->map_queries}, k_boxes[] = {tile->map_keys};
    smelt_status status =
        make_map(indexer, "q", args->q.data, 3, q_extents, q_strides, q_boxes, &params->q_map);
    return status == SMELT_OK ? make_map(indexer, "k", args->k.data, 2, k_extents, args->k.strides,
                                         k_boxes, &params->k_map)
                              : status;
}

static smelt_status fill(const smelt_indexer_logits *indexer, const smelt_indexer_logits_args *args,
                         struct indexer_logits_fwd_params *params) {
    *params = (struct indexer_logits_fwd_params){
        .q = args->q.data,
        .k = args->k.data,
        .weights = args->weights.data,
        .k_scale = args->k_scale.data,
        .window_begin = args->window_begin.data,
        .window_end = args->window_end.data,
        .logits = args->logits.data,
        .q_token_stride = args->q.strides[0],
        .q_head_stride = args->q.strides[1],
        .k_row_stride = args->k.strides[0],
        .weights_token_stride = args->weights.strides[0],
        .logits_token_stride = args->logits.strides[0],
        .tokens = (int)args->tokens,
        .rows = (int)args->rows,
    };
    return indexer->tile.tensor_maps ? make_maps(indexer, args, params) : SMELT_OK;
}

static int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

smelt_status smelt_indexer_logits_forward(const smelt_indexer_logits *indexer,
                                          const smelt_indexer_logits_args *given,
                                          struct CUstream_st *stream) {
    smelt_indexer_logits_args args;
    struct indexer_logits_fwd_params params;
    if (!indexer)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "indexer is NULL");
    smelt_status status = check_args(indexer, given, &args);
    if (status != SMELT_OK || args.tokens == 0 || args.rows == 0)
        return status;
    status = fill(indexer, &args, &params);
    if (status != SMELT_OK)
        return status;
    const struct smelt__kernel *kernel = indexer->kernels.kernels[0];
    const int64_t items =
        divide_up(args.tokens, indexer->tile.queries) * divide_up(args.rows, indexer->tile.keys);
    const int64_t most = smelt__blocks_beside(kernel, args.free_multiprocessors);
    const struct smelt__launch launch = {.blocks = {smelt__blocks_for(kernel, items, most)},
                                         .params = &params};
    return smelt__kernel_launch(indexer->kernels.context, kernel, &launch, stream);
}
