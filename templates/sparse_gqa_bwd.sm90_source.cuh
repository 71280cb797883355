//@use common/base.cuh
//@use sparse_gqa_bwd.sm90_shape.cuh
//@use common/gqa_few.cuh
//@use ptx/prefetch.cuh
/* What common/few_ring.cuh and common/few_tiles.cuh ask of sparse_gqa's backward pass. */

DEVICE const char *grad_out_row(const struct few_params *params, const struct few_item *item,
                                int head) {
    const struct few_position at = position_of(&params->work, item->query);
    return (const char *)params->grad_out +
           2 * (at.batch * params->grad_out_batch_stride +
                at.token * params->grad_out_token_stride +
                query_head(item, head) * params->grad_out_head_stride);
}

DEVICE bool has_query_chunk(const struct few_params *params, const struct few_item *item, int head,
                            int chunk) {
    (void)params, (void)item, (void)head;
    return chunk < KEY_COLUMN_TILES * 8 ? chunk < DQK / 8 : chunk < KEY_COLUMN_TILES * 8 + DV / 8;
}

DEVICE const char *query_chunk(const struct few_params *params, const struct few_item *item,
                               int head, int chunk) {
    return chunk < KEY_COLUMN_TILES * 8
               ? query_row(params, item, head) + chunk * 16
               : grad_out_row(params, item, head) + (chunk - KEY_COLUMN_TILES * 8) * 16;
}

DEVICE void prefetch_head(const struct few_params *params, const struct few_item *item, int head) {
    prefetch_l2(query_row(params, item, head), DQK * 2);
    prefetch_l2(grad_out_row(params, item, head), DV * 2);
}

DEVICE struct output_rows find_output(const struct few_params *params,
                                      const struct few_item *item) {
    const struct few_position at = position_of(&params->work, item->query);
    const struct output_rows rows = {(char *)params->dq +
                                         2 * (at.batch * params->dq_batch_stride +
                                              at.token * params->dq_token_stride +
                                              query_head(item, 0) * params->dq_head_stride),
                                     2 * params->dq_head_stride};
    return rows;
}
