/* Groups of queries whose lists are united: their arrays, and sparse_attn_bwd_lists, which fills these. */
#include "ops/sparse_gqa_groups.h"

#include <inttypes.h>

#include "ops/divide.h"
#include "ops/key_grads.h"
#include "ops/sparse_gqa_call.h"
#include "runtime/log.h"

enum {
    MOST_ROWS = 1 << 28, /* of all batches: the bits above a row's number are a mask of queries */
    LIST_STEP = 64       /* lists are padded to multiples of it */
};

smelt_status smelt__gqa_groups_place(struct smelt__gqa_groups *groups, size_t *end) {
    groups->blocks = smelt__divide_up(groups->rows, groups->granularity);
    groups->groups = smelt__divide_up(groups->entries, groups->queries);
    groups->key_stride = smelt__divide_up(groups->queries * groups->width, LIST_STEP) * LIST_STEP;
    if (groups->batches * groups->blocks * groups->granularity >= MOST_ROWS)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "batches * rows is %" PRId64
                           "; with unite=1 it must be below 2^28: leave unite=1 out",
                           groups->batches * groups->rows);
    const int64_t lists = groups->lists * groups->groups;
    groups->members = smelt__workspace_place(end, groups->groups * groups->queries, sizeof(int));
    groups->counts = smelt__workspace_place(end, lists, sizeof(int));
    groups->keys = smelt__workspace_place(end, lists * groups->key_stride, sizeof(int));
    groups->masks = smelt__workspace_place(end, lists * groups->key_stride, 1);
    return SMELT_OK;
}

/* A list of each query. */
static smelt_status unite_list(const struct smelt__gqa_groups *groups, const smelt_context *context,
                               const struct smelt__kernel *kernel, char *workspace,
                               const struct gqa_lists_params *lists, const struct work_params *work,
                               int64_t list, struct CUstream_st *stream) {
    const int64_t first = list * groups->groups;
    struct sparse_attn_bwd_lists_params params = {
        .work = *work,
        .members = (int *)(void *)(workspace + groups->members),
        .counts = (int *)(void *)(workspace + groups->counts) + first,
        .keys = (int *)(void *)(workspace + groups->keys) + first * groups->key_stride,
        .masks = (unsigned char *)workspace + groups->masks + first * groups->key_stride,
        .groups = (int)groups->groups,
        .group_queries = groups->queries,
        .key_stride = (int)groups->key_stride,
        .copies = 1,
        .topk = (int)groups->width,
        .ascending = 1,
    };
    params.work.rows = (int)groups->blocks;
    params.work.indices += list * lists->indices_group_stride;
    if (params.work.topk_length)
        params.work.topk_length += list * lists->topk_length_group_stride;
    const struct smelt__launch launch = {
        .blocks = {smelt__blocks_for(kernel, groups->groups, kernel->most_blocks)},
        .params = &params};
    return smelt__kernel_launch(context, kernel, &launch, stream);
}

smelt_status smelt__gqa_groups_launch(const struct smelt__gqa_groups *groups,
                                      const smelt_context *context,
                                      const struct smelt__kernel *kernel, void *workspace,
                                      const struct gqa_lists_params *lists,
                                      struct work_params *work, struct gqa_groups_params *params,
                                      struct CUstream_st *stream) {
    char *const at = workspace;
    *params = (struct gqa_groups_params){
        .work = *work,
        .members = (const int *)(void *)(at + groups->members),
        .counts = (const int *)(void *)(at + groups->counts),
        .keys = (const int *)(void *)(at + groups->keys),
        .masks = (const unsigned char *)at + groups->masks,
        .groups = (int)groups->groups,
        .key_stride = (int)groups->key_stride,
        .blocks = (int)groups->blocks,
    };
    smelt_status status = SMELT_OK;
    for (int64_t list = 0; list < groups->lists && status == SMELT_OK; list++)
        status = unite_list(groups, context, kernel, at, lists, &params->work, list, stream);
    *work = (struct work_params){
        .batches = 1,
        .tokens = (int)groups->groups,
        .rows = params->work.rows,
        .width = params->work.width,
        .query_capacity = (int)groups->groups,
        .pdl_wait_at_end = params->work.pdl_wait_at_end,
    };
    return status;
}
