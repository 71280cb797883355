//@use common/base.cuh
//@use common/logit.cuh
//@use common/quad_sum.cuh
//@use indexer_scores_fwd.params.h
/*
 * From products to logits, shared by the variants of indexer_scores_fwd. Products are slots by
 * heads in the layout of mma.sync and wgmma: a thread's rows are g and g + 8 of 16 slots, its
 * columns 2 * c and the next of every eight heads; g = lane / 4, c = lane % 4. A thread sums its
 * heads in ascending order, then the quad's four threads combine.
 */

enum { EIGHTS = BLOCK_HEADS / 8 };

/* A thread's first head of every eight. */
DEVICE int thread_head(void) {
    return (int)(threadIdx.x % 4 * 2);
}

/* Adds the products with eight heads from `first` on. `sums` and `d`: of row g, then of row g + 8.
 * Columns past the last head are ignored. */
DEVICE void add_eight(float *sums, const float *d, const float *weights, int first) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (HEADS % 8 == 0 || first + thread_head() + i < HEADS) {
            sums[0] = add_head(sums[0], weights[i], d[i]);
            sums[1] = add_head(sums[1], weights[i], d[2 + i]);
        }
    }
}

/* The slot of 16 whose logit a lane writes; the upper half of each quad writes none. */
enum { NO_SLOT = 1 << 30 };

DEVICE int written_slot(void) {
    const int lane = (int)(threadIdx.x % 32);
    return lane % 4 < 2 ? lane / 4 + lane % 2 * 8 : NO_SLOT;
}

/* Writes a lane's logit to its slot of a query's row; -inf if it is masked. `sums`: this thread's
 * two. By the whole warp. */
DEVICE void write_logit(float *row, int slot, int width, const float *sums, bool valid) {
    const float logit = canonical_logit(quad_sum_pair(sums[0], sums[1]));
    if (slot < width) {
        row[slot] = valid ? logit : LOWEST_LOGIT;
    }
}
