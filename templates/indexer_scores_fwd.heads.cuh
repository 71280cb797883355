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
enum { NO_SLOT = 1 << 30 };

DEVICE int written_slot(void) {
    const int lane = (int)(threadIdx.x % 32);
    return lane % 4 < 2 ? lane / 4 + lane % 2 * 8 : NO_SLOT;
}

/* Writes a lane's logit to its slot of a query's row, -inf where it is masked. `sums`: this
 * thread's two. By the whole warp. */
DEVICE void write_logit(float *row, int slot, int width, const float *sums, bool valid) {
    const float logit = canonical_logit(quad_sum_pair(sums[0], sums[1]));
    if (slot < width) {
        row[slot] = valid ? logit : LOWEST_LOGIT;
    }
}
