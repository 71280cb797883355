//@use common/base.cuh
/*
 * In-place sort of a list's entries in global memory by the whole CTA: ascending by key, then by
 * mask. It serves rare cases: keys that a member selects several times, and tables with more rows
 * than maps can hold. Batcher's bitonic network (K. E. Batcher, Sorting networks and their
 * applications, 1968), with every comparison ascending, so that it works for any number of entries:
 * those past the end count as the largest.
 */

/* Puts two entries in order. */
DEVICE void sort_pair(int *keys, unsigned char *masks, u32 low, u32 high) {
    const int key = keys[low], other_key = keys[high];
    const unsigned char mask = masks ? masks[low] : 0, other_mask = masks ? masks[high] : 0;
    if (key < other_key || (key == other_key && mask <= other_mask)) {
        return;
    }
    keys[low] = other_key;
    keys[high] = key;
    if (masks) {
        masks[low] = other_mask;
        masks[high] = mask;
    }
}

/* One step: compares entries `stride` apart in runs of 2 * stride, or mirrored within the run. */
DEVICE void sort_step(int *keys, unsigned char *masks, u32 count, u32 stride, bool mirrored) {
    for (u32 i = threadIdx.x;; i += THREADS) {
        const u32 low = i / stride * (2 * stride) + i % stride;
        const u32 high = mirrored ? low + 2 * (stride - i % stride) - 1 : low + stride;
        if (low >= count) {
            break;
        }
        if (high < count) {
            sort_pair(keys, masks, low, high);
        }
    }
    __syncthreads();
}

/* `masks` may be null. The entries must be written before the CTA's last barrier. Ends in a
 * barrier, unless count <= 1. */
DEVICE void sort_entries(int *keys, unsigned char *masks, u32 count) {
    for (u32 run = 1; run < count; run *= 2) {
        sort_step(keys, masks, count, run, true);
        for (u32 stride = run / 2; stride > 0; stride /= 2) {
            sort_step(keys, masks, count, stride, false);
        }
    }
}
