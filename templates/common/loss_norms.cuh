//@use common/base.cuh
//@use common/block_sums.cuh
//@use common/softmax.cuh
//@use ptx/math.cuh
/* The normalisation of a row, for the indexer's loss and its gradient. */

#define LARGEST_FLOAT __int_as_float(0x7f7fffff)
#define LEAST_NORMAL __int_as_float(0x00800000)

/* A row's softmax and normalisation constants. */
struct norms {
    float largest;     /* maximum logit; 0 if all are -inf */
    float log_sum;     /* ln of the sum of exp(logit - largest); 0 if the sum is 0 */
    float share, unit; /* 1 / that sum, or 0; 1 / the sum of the targets */
    bool live;         /* the row has a loss */
};

/* Sum over the block; contains a barrier. */
DEVICE float block_total(float value, int offset) {
    float *const warps = (float *)(arena + offset);
    block_begin(warps, warp_sum(value));
    __syncthreads();
    return block_sum(warps);
}

/* The weight of a row's loss. NaN and infinity are replaced by 0, with which the row has no loss. */
DEVICE float finite_weight(float weight) {
    return fabsf(weight) <= LARGEST_FLOAT ? weight : 0.0f;
}

/* From the maximum logit, the sum of exponentials relative to it, and the sum of the targets. */
DEVICE struct norms find_norms(float largest, float sum, float targets, float weight) {
    struct norms norms;
    norms.largest = largest;
    norms.log_sum = sum > 0.0f ? LN_2 * log2_approximate(sum) : 0.0f;
    norms.share = sum > 0.0f ? 1.0f / sum : 0.0f;
    norms.unit = 1.0f / targets;
    norms.live = weight != 0.0f && targets >= LEAST_NORMAL && targets <= LARGEST_FLOAT;
    return norms;
}
