//@use common/base.cuh
/*
 * Slices (split-K): after every CTA has the same number of whole items, the remaining items are
 * split by keys among `slice_ctas` CTAs. Each item counts as `slice_ctas` units of work, whatever its
 * list's length, and each CTA takes an equal share of all units, which may begin and end anywhere
 * in an item; with fewer items than CTAs it covers at most two items.
 *
 * A CTA's part of an item's dq is slice number CTA + item of `slices`: bf16, 64 rows of DQK. A
 * later kernel adds the slices in CTA order. (With pairs, items and CTAs are those of a cluster,
 * two of each; slices are numbered accordingly.)
 */

/* The number of an item's key blocks before a CTA's share. */
DEVICE int blocks_before(int blocks, int item, int items, int cta, int slice_ctas) {
    const int position = minimum(maximum(cta * items - item * slice_ctas, 0), slice_ctas);
    return (int)((u32)blocks * (u32)position / (u32)slice_ctas);
}
