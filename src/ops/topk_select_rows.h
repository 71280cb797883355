/*
 * Exact top-k of rows on the device, for every operator that selects: which kernels a call takes,
 * the workspace of those for few long rows, and their launch.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "codegen/spec/spec.h"
#include "runtime/kernel.h"
#include "topk_select_rows.params.h"

/* The kernels of a selection, the context's, as smelt__topk_select_expand lists them; all but rows
 * may be NULL. */
struct smelt__topk_kernels {
    const struct smelt__kernel *rows, *parts, *merge, *warps;
    int topk;
};

/* Of `count` kernels. */
struct smelt__topk_kernels smelt__topk_kernels_from(const struct smelt__kernel *const *kernels,
                                                    int count, int topk);

/* What a spec says of the lists. */
struct smelt__topk_lists {
    int topk, groups, expand, tail;
    int64_t width; /* slots that they need */
};

struct smelt__topk_lists smelt__topk_lists_of(const struct smelt__spec *spec);

/* Whether a call's numbers go with them: `width`, and `rows` entries. INVALID_ARGUMENT. */
smelt_status smelt__topk_check_lists(const struct smelt__topk_lists *lists, int64_t tokens,
                                     int64_t rows, int64_t width, int has_limit);

/* Bytes of workspace for `rows` rows of at most `columns` entries: below 32 MB. 0: none. */
size_t smelt__topk_workspace(const struct smelt__topk_kernels *kernels, int64_t rows,
                             int64_t columns);
/* The same for any number of rows. */
size_t smelt__topk_most_workspace(const struct smelt__topk_kernels *kernels, int64_t columns);

/*
 * Selects of params->rows rows (from 1 on) of at most `columns` entries, on the stream. Of *params
 * everything is set but `parts`, `lists` and `headers`. `workspace`: device memory of the size above, aligned to
 * SMELT__WORKSPACE_ALIGNMENT; calls on one stream may share it. params->pdl: the first kernel is launched
 * with PDL (kernel.h) and waits before it reads the logits; all other inputs must be complete
 * before the previous kernel starts. params->launch_dependents: the kernel after the call, launched
 * with PDL, may start while the last one runs. Errors: DRIVER. */
smelt_status smelt__topk_launch(const smelt_context *context,
                                const struct smelt__topk_kernels *kernels,
                                const struct topk_select_rows_params *params, int64_t columns,
                                void *workspace, struct CUstream_st *stream);
