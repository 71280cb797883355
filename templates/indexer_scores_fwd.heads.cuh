//@use common/base.cuh
//@use common/logit.cuh
//@use common/quad_sum.cuh
//@use indexer_scores_fwd.params.h
/*
 * From products to logits, the same in every variant of indexer_scores_fwd. Products are of slots
 * by heads, and lie as mma.sync and wgmma leave them: a thread's rows are g and g + 8 of 16 slots,
 * its columns two of every eight heads, 2 * c and the next; g = lane / 4, c = lane % 4. So a thread
 * adds up its heads by itself, in ascending order, and then a quad's four threads meet.
 */

enum { EIGHTS = BLOCK_HEADS / 8 };

/* A thread's first head of each eight. */
DEVICE int thread_head(void) {
    return (int)(threadIdx.x % 4 * 2);
}

/* Adds the products with eight heads from number `first` on: `sums` and `d` of row g, then of row
 * g + 8. Columns past the last head are nobody's. */
DEVICE void add_eight(float *sums, const float *d, const float *weights, int first) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (HEADS % 8 == 0 || first + thread_head() + i < HEADS) {
            sums[0] = add_head(sums[0], weights[i], d[i]);
            sums[1] = add_head(sums[1], weights[i], d[2 + i]);
        }
    }
}

/* Which of its 16 slots' logits a lane writes; the upper half of each quad writes none. */
DEVICE int written_slot(int lane) {
    return lane / 4 + lane % 2 * 8;
}

/* Writes the logits of 16 slots, the first of them number `first` of the query's, -inf where they
 * are masked. `valid`: a bit each. By the whole warp. */
DEVICE void write_logits(const struct indexer_scores_fwd_params *params, int query, int first,
                         const float *sums, u32 valid) {
    const int lane = (int)(threadIdx.x % 32), slot = first + written_slot(lane);
    const float logit = canonical_logit(quad_sum_pair(sums[0], sums[1]));
    if (lane % 4 < 2 && slot < params->work.width) {
        params->logits[query * params->logits_token_stride + slot] =
            valid >> written_slot(lane) & 1 ? logit : LOWEST_LOGIT;
    }
}
