//@use common/base.cuh
//@use sparse_gqa_fwd.sm90_few_shape.cuh
//@use common/gqa_few.cuh
//@use ptx/prefetch.cuh
/* What common/few_tiles.cuh and common/few_heads.cuh ask of sparse_gqa's forward pass. */

DEVICE bool has_query_chunk(const struct few_params *params, const struct few_item *item, int head,
                            int chunk) {
    return chunk < DQK / 8 && (ITEM_QUERIES == 1 || item_query(params, item, head) >= 0);
}

DEVICE const char *query_chunk(const struct few_params *params, const struct few_item *item,
                               int head, int chunk) {
    return query_row(params, item, head) + chunk * 16;
}

DEVICE void prefetch_head(const struct few_params *params, const struct few_item *item, int head) {
    if (ITEM_QUERIES == 1 || item_query(params, item, head) >= 0) {
        prefetch_l2(query_row(params, item, head), DQK * 2);
    }
}

/* ---- results ---- */

DEVICE float head_sink(const struct few_params *params, const struct few_item *item, int head) {
    return params->sink[query_head(item, head)];
}

DEVICE bool wants_maxima(const struct few_params *params) {
    (void)params;
    return false;
}

DEVICE void store_head(const struct few_params *params, const struct few_item *item, int head,
                       float lse, float maximum) {
    const int query = item_query(params, item, head);
    (void)maximum;
    if (ITEM_QUERIES > 1 && query < 0) {
        return;
    }
    const struct few_position at = position_of(query_work(params), query);
    params->lse[at.batch * params->lse_batch_stride + at.token * params->lse_token_stride +
                query_head(item, head) * params->lse_head_stride] = lse;
}

/* A query's output of a head, of all heads. */
DEVICE char *output_of(const struct few_params *params, int query, int head) {
    const struct few_position at = position_of(query_work(params), query);
    return (char *)params->out +
           2 * (at.batch * params->out_batch_stride + at.token * params->out_token_stride +
                head * params->out_head_stride);
}

//@if ITEM_QUERIES > 1
DEVICE char *output_row(const struct few_params *params, const struct few_item *item, int head) {
    const int query = item_query(params, item, head);
    return query < 0 ? 0 : output_of(params, query, query_head(item, head));
}
//@else
DEVICE struct output_rows find_output(const struct few_params *params,
                                      const struct few_item *item) {
    const struct output_rows rows = {output_of(params, item->query, query_head(item, 0)),
                                     2 * params->out_head_stride};
    return rows;
}
//@end
