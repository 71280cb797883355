//@use common/base.cuh
//@use common/head_weight.cuh
//@use common/logit.cuh
//@use common/query_rows.cuh
//@use common/stored_logit.cuh
//@use ptx/cp_async.cuh
//@use ptx/grid.cuh
//@use ptx/memory.cuh
//@use ptx/mma.cuh
//@use ptx/mma_fp8.cuh
//@use ptx/shared.cuh
//@use indexer_logits_fwd.params.h
/*
 * The lightning indexer's logits with mma.sync: every query's heads against every key in its
 * window, summed over heads; -inf elsewhere. Mathematics and shapes:
 * include/smelt/indexer_logits.h.
 *
 * Grid: one CTA per item, BLOCK_QUERIES queries and BLOCK_KEYS keys, items of the same queries
 * adjacent; or fewer CTAs that loop over items. All WARPS warps have one role: a warp holds
 * WARP_KEYS keys in registers during the whole item, as operand B, and the queries are streamed as
 * operand A. A tile's 16 rows are eight queries with two heads, an even one and the next:
 *
 *   D[16, 8] = Q[8 queries x 2 heads, DIM] K[8 keys, DIM]^T
 *
 * A thread's two rows of D thus are two heads of one query. It sums the heads of its query alone,
 * in ascending order, without exchanges: logit += weight * max(0, D). Where a group of heads ends,
 * the logits are written and the sums begin anew. With BLOCK_MAX > 1 the largest logits of blocks are
 * written: found within a thread, then its quad, then, if blocks are wider than a warp's keys, in
 * shared memory.
 *
 * Both operands permute DIM in the same way, so that a lane's 16 bytes of a row serve two k-steps.
 * Keys are permuted over the columns of two tiles so that a thread's four columns are four adjacent
 * keys, written at once (key_of).
 *
 * Shared memory (offsets and sizes: the plan above):
 *   QUERIES [STAGES][STAGE_HEADS][8 queries][ROW_BYTES], 16-byte chunks permuted by query_chunk
 *   LARGEST [PART_SUMS][WARPS][8 queries] fp32, with WIDE_BLOCKS: the warps' largest logits for each
 *           group of heads that ends in the part
 *
 * An item's queries are processed in groups of eight. A group whose windows contain no key of the
 * item is only filled with -inf. The others are copied in parts of STAGE_HEADS heads; part j uses
 * stage j % STAGES. At its top: wait for this thread's copies of part j (STAGES - 2 later ones may
 * be in flight), then a barrier: part j has landed, and no thread still reads stage
 * (j - 1) % STAGES, which is then refilled.
 *
 * Knobs: WARPS, WARP_KEYS, BLOCK_QUERIES, STAGES, blocks per multiprocessor:
 * src/codegen/families/indexer_logits_fwd_mma.c.
 */

enum {
    GROUP_QUERIES = 8,
    GROUPS = BLOCK_QUERIES / GROUP_QUERIES, /* at most 32: a bit each */
    KEY_TILES = WARP_KEYS / 8,              /* n8 tiles of D */
    KEY_WORDS = ROW_LOADS * 4,              /* of a lane and tile */
    PARTS = (HEADS + STAGE_HEADS - 1) / STAGE_HEADS,
    STAGE_BYTES = STAGE_HEADS * GROUP_QUERIES * ROW_BYTES,
    EVEN_HEADS = (HEADS + 1) / 2 * 2, /* with an odd number of heads the last pair's second row is
                                         padding */
    SUM_HEADS = HEADS / HEAD_GROUPS,  /* of a logit */
    PART_SUMS = (STAGE_HEADS - 1) / SUM_HEADS + 1, /* groups of heads that end in a part, at most */
    WIDE_BLOCKS = BLOCK_MAX > WARP_KEYS,
    QUAD_KEYS = 16 /* adjacent ones, that a quad has in two tiles */
};

struct item {
    int first_query, first_key;
    int queries, keys; /* at most BLOCK_QUERIES and BLOCK_KEYS */
};

/* The next part to process. `left` has a bit for each remaining group, from `group` on. */
struct cursor {
    u32 left; /* 0: no part is left */
    int group, part;
};

DEVICE struct cursor first_part(u32 groups) {
    const struct cursor cursor = {groups, __ffs((int)groups) - 1, 0};
    return cursor;
}

DEVICE void next_part(struct cursor *cursor) {
    if (++cursor->part == PARTS) {
        *cursor = first_part(cursor->left & (cursor->left - 1));
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

/* The window of an item's query, relative to the item's keys. */
DEVICE struct key_range window_of(const struct indexer_logits_fwd_params *params,
                                  const struct item *item, int query) {
    const int token = item->first_query + query;
    const int begin = params->window_begin[token], end = params->window_end[token];
    const struct key_range empty = {0, 0};
    return has_keys(begin, end, params->rows, params->least)
               ? window_among(begin, end, item->first_key, item->keys)
               : empty;
}

/* Bit masks of the item's groups that have a query with a key of the item (returned) and with one
 * of the warp's keys [first, first + WARP_KEYS) (*within). By whole warps, one lane per group. */
DEVICE u32 groups_with_keys(const struct indexer_logits_fwd_params *params, const struct item *item,
                            int first, u32 *within) {
    const int group = (int)threadIdx.x % 32;
    bool any = false, mine = false;
#pragma unroll 2
    for (int i = 0; i < GROUP_QUERIES; ++i) {
        const int query = group * GROUP_QUERIES + i;
        if (query < item->queries) {
            const struct key_range window = window_of(params, item, query);
            any |= window.begin < window.end;
            mine |= maximum(window.begin, first) < minimum(window.end, first + WARP_KEYS);
        }
    }
    *within = __ballot_sync((u32)ALL_LANES, mine);
    return __ballot_sync((u32)ALL_LANES, any);
}

/* ---- operands -------------------------------------------------------------------------------- */

DEVICE u32 stage_queries(int stage) {
    return shared_address(QUERIES_OFFSET + stage * STAGE_BYTES);
}

/* Starts the copy of a part into a stage. Missing queries and heads repeat the last one and are
 * discarded. */
DEVICE void load_part(const struct indexer_logits_fwd_params *params, const struct item *item,
                      const struct cursor *cursor, int stage) {
    const int bytes = FP8 ? 1 : 2, first_head = cursor->part * STAGE_HEADS;
    const int rows = minimum(STAGE_HEADS, EVEN_HEADS - first_head) * GROUP_QUERIES;
    const u32 base = stage_queries(stage);
    for (int i = (int)threadIdx.x; i < rows * ROW_CHUNKS; i += THREADS) {
        const int row = i / ROW_CHUNKS, chunk = i % ROW_CHUNKS;
        const int head = minimum(first_head + row / GROUP_QUERIES, HEADS - 1);
        const int query =
            minimum(cursor->group * GROUP_QUERIES + row % GROUP_QUERIES, item->queries - 1);
        const char *const source = (const char *)params->q +
                                   bytes * ((item->first_query + query) * params->q_token_stride +
                                            head * params->q_head_stride) +
                                   chunk % SOURCE_CHUNKS * CHUNK_BYTES;
        cp_async_16(base + query_chunk(row, chunk), source,
                    chunk < SOURCE_CHUNKS ? CHUNK_BYTES : 0);
    }
}

/* The warp's key in a column of a tile. */
DEVICE int key_of(int tile, int column) {
    return tile / 2 * 16 + column / 2 * 4 + tile % 2 * 2 + column % 2;
}

/* A lane's part of the warp's keys: of each tile the words of the key in its column. */
struct key_block {
    u32 words[KEY_TILES][KEY_WORDS];
};

/* Loads the warp's keys, from the item's key `first` on; past the last key that one is repeated. */
DEVICE void load_keys(struct key_block *keys, const struct indexer_logits_fwd_params *params,
                      const struct item *item, int first) {
    const int lane = (int)threadIdx.x % 32, bytes = FP8 ? 1 : 2;
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
        const int key = minimum(first + key_of(tile, lane / 4), item->keys - 1);
        const char *const row =
            (const char *)params->k + bytes * ((item->first_key + key) * params->k_row_stride);
#pragma unroll
        for (int i = 0; i < ROW_LOADS; ++i) {
            u32 *const words = &keys->words[tile][i * 4];
            if (SOURCE_CHUNKS < ROW_CHUNKS && lane % 4 >= SOURCE_CHUNKS) {
                words[0] = words[1] = words[2] = words[3] = 0;
            } else {
                load_read_only_16(words, row + (i * 4 + lane % 4) * CHUNK_BYTES);
            }
        }
    }
}

/* Loads the scales of this thread's two columns of each tile. */
DEVICE void load_scales(float (*scales)[2], const struct indexer_logits_fwd_params *params,
                        const struct item *item, int first) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int key = minimum(first + key_of(tile, lane % 4 * 2 + i), item->keys - 1);
            scales[tile][i] = params->k_scale[item->first_key + key];
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

DEVICE void multiply(float *d, const u32 *a, const u32 *b) {
    if (FP8) {
        mma_m16n8k32_e4m3(d, a, b);
    } else {
        mma_m16n8k16_bf16(d, a, b);
    }
}

/* D of two heads of the group. `address`: of this lane's chunk 0 in the even head's row. */
DEVICE void multiply_tiles(float (*d)[4], const struct key_block *keys, u32 address) {
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
        d[tile][0] = d[tile][1] = d[tile][2] = d[tile][3] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < ROW_LOADS; ++i) {
        u32 even[4], odd[4];
        const u32 place = address ^ (u32)(i * 64);
        load_shared_16(even, place);
        load_shared_16(odd, place + GROUP_QUERIES * ROW_BYTES);
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            const u32 a[4] = {even[2 * step], odd[2 * step], even[2 * step + 1], odd[2 * step + 1]};
#pragma unroll
            for (int tile = 0; tile < KEY_TILES; ++tile) {
                multiply(d[tile], a, &keys->words[tile][i * 4 + 2 * step]);
            }
        }
    }
}

DEVICE float add_product(float sum, float weight, float product) {
    return RELU ? add_head(sum, weight, product) : fmaf(weight, product, sum);
}

/* Adds two heads of a query to its logits, or one in an odd last pair. */
DEVICE void add_pair(float (*sums)[2], const float (*d)[4], const float *weights, int heads) {
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
        sums[tile][0] = add_product(sums[tile][0], weights[0], d[tile][0]);
        sums[tile][1] = add_product(sums[tile][1], weights[0], d[tile][1]);
        if (heads > 1) {
            sums[tile][0] = add_product(sums[tile][0], weights[1], d[tile][2]);
            sums[tile][1] = add_product(sums[tile][1], weights[1], d[tile][3]);
        }
    }
}

/* Adds the first (`which` 0) or the second of two heads. */
DEVICE void add_one(float (*sums)[2], const float (*d)[4], float weight, int which) {
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
        sums[tile][0] = add_product(sums[tile][0], weight, d[tile][2 * which]);
        sums[tile][1] = add_product(sums[tile][1], weight, d[tile][2 * which + 1]);
    }
}

/* Groups of heads that end in a part. */
DEVICE int sums_of(int part) {
    const int first_head = part * STAGE_HEADS;
    return minimum(first_head + STAGE_HEADS, HEADS) / SUM_HEADS - first_head / SUM_HEADS;
}

DEVICE void clear_sums(float (*sums)[2]) {
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
        sums[tile][0] = sums[tile][1] = 0.0f;
    }
}

/* ---- results --------------------------------------------------------------------------------- */

/* Writes four adjacent logits of a row, of which `count` are inside. */
DEVICE void write_four(stored_logit *to, const float *values, int count) {
    if (count >= 4 && is_aligned_for_four((u64)to)) {
        const float4 four = {values[0], values[1], values[2], values[3]};
        store_four_logits(to, four);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (i < count) {
            store_logit(&to[i], values[i]);
        }
    }
}

/* The item's first logit of a query and a group of heads. */
DEVICE stored_logit *row_of(const struct indexer_logits_fwd_params *params, const struct item *item,
                            int query, int group) {
    return (stored_logit *)params->logits +
           (item->first_query + query) * params->logits_token_stride +
           group * params->logits_group_stride + item->first_key / BLOCK_MAX;
}

/* What a warp has computed of eight queries. */
struct results {
    float sums[KEY_TILES][2];
    float scales[KEY_TILES][2]; /* of the keys, with FP8 */
};

/* This thread's four adjacent logits in two tiles, which begin at the item's key `key`. */
DEVICE void finish_four(float *values, const struct results *results, int tile, int key,
                        const struct key_range *window) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float sum = results->sums[tile + i / 2][i % 2];
        const float logit = canonical_logit(FP8 ? sum * results->scales[tile + i / 2][i % 2] : sum);
        const bool inside = key + i >= window->begin && key + i < window->end;
        values[i] = inside ? logit : LOWEST_LOGIT;
    }
}

/* Writes this thread's logits of a query for the warp's keys, which start at `first`; or, if block_max
 * is at most 4, the largest logit of each block, whose keys one thread has. */
DEVICE void write_own(const struct indexer_logits_fwd_params *params, const struct item *item,
                      const struct results *results, int query, int group, int first) {
    if (query >= item->queries) {
        return;
    }
    const struct key_range window = window_of(params, item, query);
    stored_logit *const row = row_of(params, item, query, group);
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; tile += 2) {
        const int key = first + key_of(tile, (int)threadIdx.x % 4 * 2);
        float values[4];
        finish_four(values, results, tile, key, &window);
        if (BLOCK_MAX == 1) {
            write_four(row + key, values, item->keys - key);
            continue;
        }
#pragma unroll
        for (int i = 0; i < 4; i += BLOCK_MAX) {
            for (int k = 1; k < BLOCK_MAX; ++k) {
                values[i] = fmaxf(values[i], values[i + k]);
            }
            if (key + i < item->keys) {
                store_logit(&row[(key + i) / BLOCK_MAX], values[i]);
            }
        }
    }
}

/* ---- wider blocks ---------------------------------------------------------------------------- */

/* Where the warps' largest logits are for a part's group of heads, the `sum`-th that ends in it. */
DEVICE float *largest_at(int sum, int warp) {
    return (float *)(arena + LARGEST_OFFSET) + (sum * WARPS + warp) * GROUP_QUERIES;
}

/* Writes the largest logits of wider blocks; with WIDE_BLOCKS that of the warp's keys, to shared
 * memory. By the whole warp. */
DEVICE void write_blocks(const struct indexer_logits_fwd_params *params, const struct item *item,
                         const struct results *results, int query, int group, int first, int sum) {
    enum {
        SPAN = WIDE_BLOCKS ? WARP_KEYS : BLOCK_MAX, /* keys of a block in this warp */
        SPAN_TILES = SPAN > QUAD_KEYS ? SPAN / 8 : QUAD_KEYS / 8,
        SPAN_LANES = SPAN < QUAD_KEYS ? SPAN / 4 : 4 /* of a quad */
    };
    const int lane = (int)threadIdx.x % 32;
    const struct key_range none = {0, 0};
    const struct key_range window = query < item->queries ? window_of(params, item, query) : none;
    stored_logit *const row = row_of(params, item, query, group);
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; tile += SPAN_TILES) {
        float largest = LOWEST_LOGIT, values[4];
#pragma unroll
        for (int i = tile; i < tile + SPAN_TILES; i += 2) {
            finish_four(values, results, i, first + key_of(i, lane % 4 * 2), &window);
            largest =
                fmaxf(fmaxf(fmaxf(values[0], values[1]), fmaxf(values[2], values[3])), largest);
        }
#pragma unroll
        for (int lanes = 1; lanes < SPAN_LANES; lanes *= 2) {
            largest = fmaxf(largest, __shfl_xor_sync((u32)ALL_LANES, largest, lanes));
        }
        const int key = first + key_of(tile, lane % 4 * 2);
        if (lane % SPAN_LANES != 0) {
            continue;
        }
        if (WIDE_BLOCKS) {
            largest_at(sum, (int)threadIdx.x / 32)[lane / 4] = largest;
        } else if (query < item->queries && key < item->keys) {
            store_logit(&row[key / BLOCK_MAX], largest);
        }
    }
}

/* With WIDE_BLOCKS: writes the logits of the groups of heads from `group` on, `sums` of them, whose
 * warps' largest logits are complete. `eight`: the first query. By the whole block. */
DEVICE void write_wide_blocks(const struct indexer_logits_fwd_params *params,
                              const struct item *item, int eight, int group, int sums) {
    enum { BLOCK_WARPS = BLOCK_MAX / WARP_KEYS, BLOCKS = BLOCK_KEYS / BLOCK_MAX };
    for (int i = (int)threadIdx.x; i < sums * BLOCKS * GROUP_QUERIES; i += THREADS) {
        const int query = i % GROUP_QUERIES, block = i / GROUP_QUERIES % BLOCKS;
        const int sum = i / GROUP_QUERIES / BLOCKS;
        float largest = LOWEST_LOGIT;
#pragma unroll
        for (int k = 0; k < BLOCK_WARPS; ++k) {
            largest = fmaxf(largest, largest_at(sum, block * BLOCK_WARPS + k)[query]);
        }
        if (eight + query < item->queries && block * BLOCK_MAX < item->keys) {
            store_logit(row_of(params, item, eight + query, group + sum) + block, largest);
        }
    }
}

/* Writes what a warp has computed for a group of heads, the `sum`-th that ends in the part, and
 * clears its sums for the next group. By the whole warp. */
DEVICE void write_results(const struct indexer_logits_fwd_params *params, const struct item *item,
                          struct results *results, int query, int group, int first, int sum) {
    if (BLOCK_MAX <= 4) {
        write_own(params, item, results, query, group, first);
    } else {
        write_blocks(params, item, results, query, group, first, sum);
    }
    if (HEAD_GROUPS > 1) {
        clear_sums(results->sums);
    }
}

/* Fills the item's rows of groups outside `groups` with -inf, one warp per row. */
DEVICE void fill_others(const struct indexer_logits_fwd_params *params, const struct item *item,
                        u32 groups) {
    const float lowest[4] = {LOWEST_LOGIT, LOWEST_LOGIT, LOWEST_LOGIT, LOWEST_LOGIT};
    const int logits = (item->keys - 1) / BLOCK_MAX + 1; /* of a row */
    for (int query = (int)threadIdx.x / 32; query < item->queries; query += WARPS) {
        if (groups >> (query / GROUP_QUERIES) & 1) {
            continue;
        }
        for (int group = 0; group < HEAD_GROUPS; ++group) {
            stored_logit *const row = row_of(params, item, query, group);
            for (int i = (int)threadIdx.x % 32 * 4; i < logits; i += 128) {
                write_four(row + i, lowest, logits - i);
            }
        }
    }
}

/* ---- the item -------------------------------------------------------------------------------- */

/* Waits for all threads' copies of the oldest part in flight, then for all threads. */
DEVICE void wait_for_part(void) {
    cp_async_wait(STAGES - 2);
    __syncthreads();
}

/* The weight of a head of this thread's query, whose weights begin at element `first`. */
DEVICE float weight_of(const struct indexer_logits_fwd_params *params, i64 first, int head) {
    return WEIGHTS ? head_weight(params->weights, first + head, params->weights_bf16)
                   : params->scale;
}

/* Adds a part's heads to the logits of this thread's query, whose weights begin at `weights`, and
 * writes the logits of groups of heads that end in it. (One pair at a time: several at once spill.) */
DEVICE void add_part(const struct indexer_logits_fwd_params *params, const struct item *item,
                     const struct key_block *keys, struct results *results, i64 weights, int query,
                     int part, int first, int stage) {
    const int lane = (int)threadIdx.x % 32, first_head = part * STAGE_HEADS;
    const int heads = minimum(STAGE_HEADS, HEADS - first_head),
              first_group = first_head / SUM_HEADS;
    u32 address = stage_queries(stage) + query_chunk(lane / 4, lane % 4);
#pragma unroll 1
    for (int head = 0; head < heads; head += 2) {
        const int next = minimum(first_head + head + 1, HEADS - 1);
        const float pair[2] = {weight_of(params, weights, first_head + head),
                               weight_of(params, weights, next)};
        float d[KEY_TILES][4];
        multiply_tiles(d, keys, address);
        if (SUM_HEADS % 2 == 0 || HEAD_GROUPS == 1) {
            add_pair(results->sums, d, pair, HEADS % 2 == 0 ? 2 : heads - head);
        } else {
            add_one(results->sums, d, pair[0], 0);
            if ((first_head + head + 1) % SUM_HEADS == 0) {
                const int group = (first_head + head) / SUM_HEADS;
                write_results(params, item, results, query, group, first, group - first_group);
            }
            if (head + 1 < heads) {
                add_one(results->sums, d, pair[1], 1);
            }
        }
        if (HEAD_GROUPS > 1 && head + 1 < heads && (first_head + head + 2) % SUM_HEADS == 0) {
            const int group = (first_head + head + 1) / SUM_HEADS;
            write_results(params, item, results, query, group, first, group - first_group);
        }
        address += 2 * GROUP_QUERIES * ROW_BYTES;
    }
}

/* Of a warp without a key in the windows of the eight queries: writes -inf for the groups of heads
 * that end in a part. */
DEVICE void write_nothing(const struct indexer_logits_fwd_params *params, const struct item *item,
                          struct results *results, int query, int part, int first) {
    const int first_group = part * STAGE_HEADS / SUM_HEADS;
    for (int sum = 0; sum < sums_of(part); ++sum) {
        write_results(params, item, results, query, first_group + sum, first, sum);
    }
}

/* The logits of the item's `groups`; the warp has keys of those in `mine`. By the whole block. */
DEVICE void compute_groups(const struct indexer_logits_fwd_params *params, const struct item *item,
                           u32 groups, u32 mine, int first) {
    struct key_block keys;
    struct results results;
    struct cursor copied = first_part(groups), used = copied;
    int stage = 0, free_stage = STAGES - 1;
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) {
        if (copied.left) {
            load_part(params, item, &copied, i);
            next_part(&copied);
        }
        cp_async_commit();
    }
    load_keys(&keys, params, item, first);
    if (FP8) {
        load_scales(results.scales, params, item, first);
    }
#pragma unroll 1
    while (used.left) {
        const int query = used.group * GROUP_QUERIES + (int)threadIdx.x % 32 / 4;
        wait_for_part();
        if (copied.left) {
            load_part(params, item, &copied, free_stage);
            next_part(&copied);
        }
        cp_async_commit();
        if (used.part == 0) {
            clear_sums(results.sums);
        }
        if (mine >> used.group & 1) {
            const i64 weights = (item->first_query + minimum(query, item->queries - 1)) *
                                params->weights_token_stride;
            add_part(params, item, &keys, &results, weights, query, used.part, first, stage);
        } else if (HEAD_GROUPS > 1) {
            write_nothing(params, item, &results, query, used.part, first);
        }
        if (HEAD_GROUPS == 1 && used.part == PARTS - 1) {
            write_results(params, item, &results, query, 0, first, 0);
        }
        if (WIDE_BLOCKS && sums_of(used.part) > 0) {
            __syncthreads(); /* the warps' largest logits are there */
            write_wide_blocks(params, item, used.group * GROUP_QUERIES,
                              used.part * STAGE_HEADS / SUM_HEADS, sums_of(used.part));
        }
        free_stage = stage;
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        next_part(&used);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_logits_fwd_params params) {
    const i64 key_blocks = (params.rows - 1) / BLOCK_KEYS + 1;
    const i64 items = key_blocks * ((params.tokens - 1) / BLOCK_QUERIES + 1);
    const int first = (int)threadIdx.x / 32 * WARP_KEYS; /* the warp's first key of the item */
    if (PDL && params.launch_dependents) {
        grid_launch_dependents();
    }
    if (PDL && params.pdl) {
        grid_wait();
    }
#pragma unroll 1
    for (i64 number = blockIdx.x; number < items; number += gridDim.x) {
        const int first_query = (int)(number / key_blocks) * BLOCK_QUERIES;
        const int first_key = (int)(number % key_blocks) * BLOCK_KEYS;
        const struct item item = {first_query, first_key,
                                  minimum(params.tokens - first_query, BLOCK_QUERIES),
                                  minimum(params.rows - first_key, BLOCK_KEYS)};
        u32 mine;
        const u32 groups = groups_with_keys(&params, &item, first, &mine);
        if (params.fills) {
            fill_others(&params, &item, groups);
        }
        if (groups) {
            __syncthreads(); /* the previous item may still be read */
            compute_groups(&params, &item, groups, mine, first);
        }
    }
}
