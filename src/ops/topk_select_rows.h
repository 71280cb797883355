/*
 * Exact top-k of rows on the device, for every operator that selects: which kernels a call takes,
 * the workspace of those for few long rows, and their launch.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/kernel.h"
#include "topk_select_rows.params.h"

/* The three kernels of a topk and an order, the context's, as smelt__topk_select_expand lists them.
 */
struct smelt__topk_kernels {
    const struct smelt__kernel *rows, *parts, *merge;
    int topk;
};

struct smelt__topk_kernels smelt__topk_kernels_from(const struct smelt__kernel *const *kernels,
                                                    int topk);

/* Bytes of workspace for `rows` rows of at most `columns` elements: below 32 MB. 0: none. */
size_t smelt__topk_workspace(const struct smelt__topk_kernels *kernels, int64_t rows,
                             int64_t columns);
/* The same for any number of rows. */
size_t smelt__topk_most_workspace(const struct smelt__topk_kernels *kernels, int64_t columns);

/*
 * Selects of params->rows rows (from 1 on), on the stream. Of *params everything is set but
 * `parts`, `lists` and `headers`. `workspace`: device memory of the size above, aligned to
 * SMELT__WORKSPACE_ALIGNMENT; calls on one stream may share it. params->pdl: the first kernel is launched
 * with PDL (kernel.h) and waits before it reads the logits; windows and offsets must be complete
 * before the previous kernel starts. params->launch_dependents: the kernel after the call, launched
 * with PDL, may start while the last one runs. Errors: DRIVER. */
smelt_status smelt__topk_launch(const smelt_context *context,
                                const struct smelt__topk_kernels *kernels,
                                const struct topk_select_rows_params *params, void *workspace,
                                struct CUstream_st *stream);
