/* Groups of neighbouring queries whose lists sparse_gqa's kernels for entries of 1 to 16 rows unite. */
#pragma once

#include "ops/call.h"

struct gqa_groups_params;
struct gqa_lists_params;
struct work_params;

struct smelt__gqa_groups {
    int queries;     /* of a group */
    int64_t entries; /* of the query list */
    int64_t lists, width, batches, rows;
    int granularity;

    int64_t groups, blocks, key_stride;
    size_t members, counts, keys, masks; /* offsets in the workspace */
};

/* Sets the fields of the second group; the arrays begin at *end, which is advanced.
 * INVALID_ARGUMENT: there are too many rows. */
smelt_status smelt__gqa_groups_place(struct smelt__gqa_groups *groups, size_t *end);

/* Unites the lists of the queries of `work`, and fills the main kernel's params: `params`, and the grid of
 * groups, which takes the place of `work`. Errors: DRIVER. */
smelt_status smelt__gqa_groups_launch(const struct smelt__gqa_groups *groups,
                                      const smelt_context *context,
                                      const struct smelt__kernel *kernel, void *workspace,
                                      const struct gqa_lists_params *lists,
                                      struct work_params *work, struct gqa_groups_params *params,
                                      struct CUstream_st *stream);
