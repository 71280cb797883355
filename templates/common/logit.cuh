//@use common/base.cuh
//@use ptx/maximum.cuh
/*
 * The indexer's logits and windows, shared by all its kernels (include/smelt/indexer_logits.h).
 */

#define LOWEST_LOGIT (-__int_as_float(0x7f800000))

/* The logit as written: -0 becomes +0, NaN becomes -inf. */
DEVICE float canonical_logit(float logit) {
    return fmaxf(logit, LOWEST_LOGIT) + 0.0f;
}

/* sum + weight * max(0, product); NaN propagates. */
DEVICE float add_head(float sum, float weight, float product) {
    return fmaf(weight, maximum_nan(product, 0.0f), sum);
}

/* Whether a window has at least `least` of the `rows` keys. */
DEVICE bool has_keys(int window_begin, int window_end, int rows, int least) {
    return minimum(maximum(window_end, 0), rows) - maximum(window_begin, 0) >= least;
}

/* A query's window clipped to the keys [first, first + keys), relative to `first`; empty unless
 * begin < end. Requires first + keys <= rows. */
struct key_range {
    int begin, end;
};

DEVICE struct key_range window_among(int window_begin, int window_end, int first, int keys) {
    const struct key_range range = {maximum(maximum(window_begin, 0) - first, 0),
                                    minimum(maximum(window_end, 0) - first, keys)};
    return range;
}
