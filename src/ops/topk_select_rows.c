/* See topk_select_rows.h. */
#include "ops/topk_select_rows.h"

#include <inttypes.h>

#include "codegen/families/topk_select_rows.h"
#include "ops/split_sizes.h"
#include "runtime/log.h"

struct smelt__topk_kernels smelt__topk_kernels_from(const struct smelt__kernel *const *kernels,
                                                    int count, int topk) {
    const int several = count > SMELT__TOPK_MERGE;
    return (struct smelt__topk_kernels){
        .rows = kernels[SMELT__TOPK_ROWS],
        .parts = several ? kernels[SMELT__TOPK_PARTS] : NULL,
        .merge = several ? kernels[SMELT__TOPK_MERGE] : NULL,
        .warps = count > SMELT__TOPK_WARPS ? kernels[SMELT__TOPK_WARPS] : NULL,
        .topk = topk};
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct smelt__topk_lists smelt__topk_lists_of(const struct smelt__spec *spec) {
    return (struct smelt__topk_lists){.topk = (int)smelt__spec_get(spec, "topk"),
                                      .groups = (int)smelt__spec_get(spec, "groups"),
                                      .expand = (int)smelt__spec_get(spec, "expand"),
                                      .tail = (int)smelt__spec_get(spec, "tail"),
                                      .width = smelt__topk_select_width(spec)};
}

static smelt_status check_rows(const struct smelt__topk_lists *lists, int64_t rows, int64_t width) {
    if (lists->expand == 1)
        return width == 0 || width == lists->topk
                   ? SMELT_OK
                   : smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                                 "width = %" PRId64 " is not the %d slots of topk=%d; set 0, or "
                                 "make an operator with another topk",
                                 width, lists->topk, lists->topk);
    if (width < lists->width)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "width = %" PRId64 " is too small: lists of topk=%d, expand=%d, tail=%d "
                           "need %" PRId64 " slots",
                           width, lists->topk, lists->expand, lists->tail, lists->width);
    return (rows + 1) * lists->expand <= INT32_MAX
               ? SMELT_OK
               : smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                             "rows = %" PRId64 " entries of expand=%d rows exceed 2^31 - 1 rows; "
                             "legal: up to %" PRId64,
                             rows, lists->expand, (int64_t)INT32_MAX / lists->expand - 1);
}

smelt_status smelt__topk_check_lists(const struct smelt__topk_lists *lists, int64_t tokens,
                                     int64_t rows, int64_t width, int has_limit) {
    if (tokens * lists->groups > INT32_MAX)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "tokens = %" PRId64 " of groups=%d exceed 2^31 - 1 rows; split the call",
                           tokens, lists->groups);
    if (has_limit && lists->expand == 1)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "limit is given but the operator was made with expand=1, whose lists "
                           "hold entries; make one with expand above 1, or pass NULL");
    if (!has_limit && lists->tail)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "limit is NULL but the operator was made with tail=1, which appends the "
                           "rows up to it; set it to each query's number of rows");
    return check_rows(lists, rows, width);
}

/* Blocks that share a row, so that all of them are resident at once; 1: a block takes it alone. */
static int64_t count_parts(const struct smelt__topk_kernels *kernels, int64_t rows,
                           int64_t columns) {
    const int64_t most = columns / SMELT__SPLIT_TOPK_LEAST_PART;
    if (columns < SMELT__SPLIT_TOPK_COLUMNS || !kernels->parts || rows == 0)
        return 1;
    int64_t parts = kernels->parts->resident_blocks / rows;
    if (parts > most)
        parts = most;
    if (parts > SMELT__TOPK_MOST_PARTS)
        parts = SMELT__TOPK_MOST_PARTS;
    return parts > 1 ? parts : 1;
}

static size_t list_bytes(const struct smelt__topk_kernels *kernels, int64_t parts) {
    return (size_t)parts * (size_t)smelt__topk_select_part_list(kernels->topk) *
           sizeof(unsigned long long);
}

size_t smelt__topk_workspace(const struct smelt__topk_kernels *kernels, int64_t rows,
                             int64_t columns) {
    const int64_t parts = count_parts(kernels, rows, columns);
    return parts == 1 ? 0
                      : list_bytes(kernels, rows * parts) +
                            (size_t)(rows * parts) * sizeof(struct topk_select_rows_header);
}

size_t smelt__topk_most_workspace(const struct smelt__topk_kernels *kernels, int64_t columns) {
    const int64_t blocks = columns < SMELT__SPLIT_TOPK_COLUMNS || !kernels->parts
                               ? 0
                               : kernels->parts->resident_blocks;
    return list_bytes(kernels, blocks) + (size_t)blocks * sizeof(struct topk_select_rows_header);
}

/* Elements before a row's first logit, from a vector boundary on, at most. */
static int64_t most_before(const struct topk_select_rows_params *params) {
    const uint64_t steps = (uint64_t)params->logits_stride | (uint64_t)params->logits_group;
    return (uintptr_t)params->logits % 16 || steps % 4 ? 3 : 0;
}

/* Whether each row is short enough for one warp. */
static int has_short_rows(const struct smelt__topk_kernels *kernels,
                          const struct topk_select_rows_params *params, int64_t columns) {
    return kernels->warps && columns + most_before(params) <= SMELT__SPLIT_TOPK_WARP_COLUMNS;
}

smelt_status smelt__topk_launch(const smelt_context *context,
                                const struct smelt__topk_kernels *kernels,
                                const struct topk_select_rows_params *given, int64_t columns,
                                void *workspace, struct CUstream_st *stream) {
    struct topk_select_rows_params params = *given;
    const uint32_t rows = (uint32_t)params.rows;
    const int64_t parts = count_parts(kernels, params.rows, columns);
    const struct smelt__launch alone = {.blocks = {rows}, .pdl = params.pdl, .params = &params};
    params.parts = (int)parts;
    params.lists = NULL;
    params.headers = NULL;
    if (has_short_rows(kernels, &params, columns)) {
        const uint32_t warps = (uint32_t)kernels->warps->threads / 32;
        const struct smelt__launch each = {
            .blocks = {(rows + warps - 1) / warps}, .pdl = params.pdl, .params = &params};
        return smelt__kernel_launch(context, kernels->warps, &each, stream);
    }
    if (parts == 1)
        return smelt__kernel_launch(context, kernels->rows, &alone, stream);
    params.lists = workspace;
    params.headers = (void *)((char *)workspace + list_bytes(kernels, rows * parts));
    const struct smelt__launch split = {
        .blocks = {rows * (uint32_t)parts}, .pdl = params.pdl, .params = &params};
    const struct smelt__launch merge = {.blocks = {rows}, .pdl = 1, .params = &params};
    SMELT__TRY(smelt__kernel_launch(context, kernels->parts, &split, stream));
    return smelt__kernel_launch(context, kernels->merge, &merge, stream);
}
