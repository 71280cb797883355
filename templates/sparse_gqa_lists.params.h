/*
 * Arguments of the sparse_gqa_lists kernels, all passes, and with them the reverse index: for each
 * list, which is one (batch, group of KV heads, block of keys), the queries that chose the block.
 * Included by the host code (behind common/work.params.h and sparse_gqa.params.h) and, by the
 * generator, by the CUDA source: plain C types only. Strides count elements.
 *
 * Entry i of the query list is query number queries[i], or i without a query list. A pair is an
 * entry and one of its valid slots. List number (batch * groups + group) * blocks + block. Pairs are
 * sorted by list, within a list by entry. A segment is `segment` consecutive pairs of a list; its
 * last one may be short.
 *
 * With UNITES, pass `unite` comes first. A tile is `tile_entries` consecutive entries of a group. Where
 * their lists have enough in common, the pass unites them, and the tile's entries have no pairs.
 */
struct sparse_gqa_lists_params {
    struct work_params work;
    struct gqa_lists_params lists;
    int *counts; /* [chunks][lists] pairs of each chunk, then of the chunks before it */
    int *starts; /* [lists + 1] pairs before each list */
    int *items;  /* [lists + 1] segments before each list */
    /* Optional: */
    int *queries; /* [pairs] the pair's entry */
    int *pairs;   /* [pairs][2] the pair's query number, and how many keys of the block it reads */
    int *places;  /* [entries][groups][width] a slot's pair, or -1 if it is masked */
    int *order; /* [segments][2] list and number of each segment, all lists' first segments first */
    int first, entries; /* the entries to index */
    int groups;         /* of KV heads that share lists */
    int blocks;         /* of keys */
    int granularity;    /* keys of a block, a power of two */
    int chunks;
    int chunk_entries; /* consecutive entries of a chunk; the last one may have fewer */
    int segment;
    //@if UNITES
    int *tiles;  /* [tiles][groups] blocks of the united list, or 0: the lists are not united */
    int *united; /* [tiles][groups][tile_entries * width][4] block, a bit for each of the tile's
                    entries that reads it, how many of its keys they read at most; 0 */
    int tile_entries;   /* at most 32 */
    int part_entries;   /* of either part of a tile, which a warpgroup takes */
    int most_tile_cost; /* parts' blocks of a tile that is united, in hundredths of its pairs */
    int unused;
    //@end
};
