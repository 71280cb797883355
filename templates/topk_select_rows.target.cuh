//@use topk_select_rows.window.cuh
/* Where a row's output goes. */

DEVICE int *length_of(const struct topk_select_rows_params *params, int row) {
    return params->lengths + query_of(row) * params->lengths_stride + row % GROUPS;
}

/* An output row. */
struct target {
    int *indices;
    float *values; /* or null */
    u32 offset;    /* added to each number */
};

DEVICE struct target open_target(const struct topk_select_rows_params *params, int row) {
    const int query = query_of(row), group = row % GROUPS;
    struct target target = {params->indices + query * params->indices_stride +
                                group * params->indices_group,
                            params->values, 0};
    if (target.values) {
        target.values += query * params->values_stride + group * params->values_group;
    }
    target.offset = (u32)params->index_offset + (params->offset ? (u32)params->offset[query] : 0);
    return target;
}
