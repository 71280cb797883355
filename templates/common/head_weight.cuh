//@use common/base.cuh

/* Element `i` of the indexer's weights: fp32, or bf16 if `bf16`. No thread writes them while the
 * kernel runs. */
DEVICE float head_weight(const void *weights, i64 i, int bf16) {
    return bf16 ? __uint_as_float((u32)__ldg((const unsigned short *)weights + i) << 16)
                : __ldg((const float *)weights + i);
}
