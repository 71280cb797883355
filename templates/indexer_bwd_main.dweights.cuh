//@use common/base.cuh
//@use ptx/math.cuh
//@use indexer_bwd_main.params.h

/* Stores the gradient of a weight in the weights' type. */
DEVICE void store_dweight(const struct indexer_bwd_main_params *params, i64 query, int head,
                          float sum) {
    const i64 at = query * params->dweights_token_stride + head;
    if (params->weights_bf16) {
        ((unsigned short *)params->dweights)[at] = (unsigned short)pack_bf16x2(sum, 0.0f);
    } else {
        ((float *)params->dweights)[at] = sum;
    }
}
