/* See topk_select_rows.h. */
#include "ops/topk_select_rows.h"

#include "codegen/families/topk_select_rows.h"
#include "ops/cuts.h"

struct smelt__topk_kernels smelt__topk_kernels_from(const struct smelt__kernel *const *kernels,
                                                    int topk) {
    return (struct smelt__topk_kernels){kernels[SMELT__TOPK_ROWS], kernels[SMELT__TOPK_PARTS],
                                        kernels[SMELT__TOPK_MERGE], topk};
}

/* Blocks that share a row, so that all of them are resident at once; 1: a block takes it alone. */
static int64_t count_parts(const struct smelt__topk_kernels *kernels, int64_t rows,
                           int64_t columns) {
    const int64_t most = columns / SMELT__CUT_TOPK_LEAST_PART;
    int64_t parts = rows > 0 ? kernels->parts->resident_blocks / rows : 1;
    if (columns < SMELT__CUT_TOPK_COLUMNS)
        return 1;
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
    const int64_t blocks = columns < SMELT__CUT_TOPK_COLUMNS ? 0 : kernels->parts->resident_blocks;
    return list_bytes(kernels, blocks) + (size_t)blocks * sizeof(struct topk_select_rows_header);
}

smelt_status smelt__topk_launch(const smelt_context *context,
                                const struct smelt__topk_kernels *kernels,
                                const struct topk_select_rows_params *given, void *workspace,
                                struct CUstream_st *stream) {
    struct topk_select_rows_params params = *given;
    const uint32_t rows = (uint32_t)params.rows;
    const int64_t parts = count_parts(kernels, params.rows, params.columns);
    const struct smelt__launch alone = {.blocks = {rows}, .pdl = params.pdl, .params = &params};
    params.parts = (int)parts;
    params.lists = NULL;
    params.headers = NULL;
    if (parts == 1)
        return smelt__kernel_launch(context, kernels->rows, &alone, stream);
    params.lists = workspace;
    params.headers = (void *)((char *)workspace + list_bytes(kernels, rows * parts));
    const struct smelt__launch split = {
        .blocks = {rows * (uint32_t)parts}, .pdl = params.pdl, .params = &params};
    const struct smelt__launch merge = {.blocks = {rows}, .pdl = 1, .params = &params};
    const smelt_status status = smelt__kernel_launch(context, kernels->parts, &split, stream);
    return status == SMELT_OK ? smelt__kernel_launch(context, kernels->merge, &merge, stream)
                              : status;
}
