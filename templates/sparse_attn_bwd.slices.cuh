//@use common/base.cuh
/*
 * Slices: items that are left when every thread block has had as many whole ones as each other are
 * shared between thread blocks, each of which takes a part of their keys. Item i is as long as
 * `takers`, whatever its list: of all lengths together each taker has its share, which so begins
 * and ends anywhere in an item, and is of two items at most where items are fewer than takers.
 *
 * What a taker has of an item's dq stands, as bf16, at slice number taker + item of `slices`, 64
 * rows of DQK. The kernel behind adds them up in the takers' order. (With pairs items and takers
 * are those of a cluster, two of each; slices are numbered accordingly.)
 */

/* How many of an item's key blocks are ahead of a taker's. */
DEVICE int blocks_before(int blocks, int item, int items, int taker, int takers) {
    const int position = minimum(maximum(taker * items - item * takers, 0), takers);
    return (int)((u32)blocks * (u32)position / (u32)takers);
}
