//@use common/base.cuh
//@use common/descriptor.cuh
//@use common/logit.cuh
//@use common/ring.cuh
//@use common/stored_logit.cuh
//@use common/warp_arrival.cuh
//@use ptx/mbarrier.cuh
//@use ptx/registers.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma.cuh
//@use indexer_logits_fwd.params.h
//@use indexer_logits_fwd.sm90_copies.cuh
//@use indexer_logits_fwd.sm90_kernel.cuh columns = BLOCK_KEYS
/*
 * The lightning indexer's logits with wgmma where each head is a group of its own and only the largest
 * logit of each block of keys is written: a matrix product with a maximum behind it. Mathematics and
 * shapes: include/smelt/indexer_logits.h.
 *
 * Queries with their heads are the products' rows, a KV tile's keys the columns, so that a thread has a
 * quarter of a block's keys of its rows and finds most of the maximum alone:
 *
 *   D[64 of BLOCK_QUERIES x HEADS, BLOCK_KEYS] = Q[64, DIM] K[BLOCK_KEYS, DIM]^T
 *
 * in PARTS per KV tile. A thread's rows are g and g + 8 of its warp's 16, g = lane / 4, its columns
 * 8 j + 2 c and the next, c = lane % 4. A tile has whole blocks of keys.
 *
 * Schedule, roles of the warps, shared memory and barriers are those of indexer_logits_fwd.sm90.cu, whose
 * files _runs, _copies and _tiles this kernel shares; LANE_QUERIES queries of a lane are looked at
 * together, since a block has more than 32. WARPGROUPS alternate KV tiles: the maxima of one overlap the
 * products of the other. The tensor cores are the bottleneck.
 *
 * Knob: WARPGROUPS: src/codegen/families/indexer_logits_fwd_sm90_heads.c.
 */

enum {
    PART_ROWS = PART_COLUMNS,    /* of a product */
    VALUES = TILE_KEYS / 2,      /* of D, per thread */
    TILE_EIGHTS = TILE_KEYS / 8, /* of columns */
    BLOCK_EIGHTS = BLOCK_MAX / 8,
    /* Whether a maximum is found before it is weighted: rounding is monotonic, so that the bits are the
     * same if the weight is above 0. */
    WEIGHTS_LAST = !WEIGHTS && !FP8
};

/* Where a warpgroup is. */
struct cursor {
    int buffer; /* of the block */
    int query;  /* its first */
    int key;    /* this thread's first key of the tile */
    bool inner; /* the tile is inside the windows of all the block's queries */
    float scale[FP8 ? TILE_EIGHTS : 1][2]; /* of this thread's keys, with FP8 */
};

/* Loads the scales of this thread's keys; past the last key that one's. */
DEVICE void load_scales(const struct indexer_logits_fwd_params *params, struct cursor *at) {
    if (FP8) {
        const u32 last = (u32)params->rows - 1;
#pragma unroll
        for (int i = 0; i < TILE_EIGHTS; ++i) {
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const u32 key = (u32)(at->key + i * 8 + k);
                at->scale[i][k] = __ldg(params->k_scale + (key < last ? key : last));
            }
        }
    }
}

DEVICE float weigh(float weight, float product) {
    return weight * (RELU ? maximum_nan(product, 0.0f) : product);
}

/* The logit of a product with key `eight` * 8 + 2 c + k. */
DEVICE float logit_of(const struct cursor *at, float weight, float product, int eight, int k) {
    const float sum = weigh(weight, product);
    return FP8 ? sum * at->scale[FP8 ? eight : 0][k] : sum;
}

/* The largest logit, of a thread's columns of block `block`, in row g (`upper` 0) or g + 8 of a tile
 * inside all windows; with WEIGHTS_LAST the largest product. NaN only if all are. */
DEVICE float inner_largest(const struct cursor *at, const float *d, float weight, int block,
                           int upper) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < BLOCK_EIGHTS; ++i) {
        const int eight = block * BLOCK_EIGHTS + i;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const float product = d[eight * 4 + upper * 2 + k];
            const float logit = WEIGHTS_LAST ? product : logit_of(at, weight, product, eight, k);
            largest = i + k == 0 ? logit : fmaxf(largest, logit);
        }
    }
    return largest;
}

/* The same of a tile at the edge of a window or tensor, or of any. */
DEVICE float edge_largest(const struct cursor *at, const float *d, float weight, int block,
                          int upper, const struct key_range *window) {
    float largest = LOWEST_LOGIT;
#pragma unroll
    for (int i = 0; i < BLOCK_EIGHTS; ++i) {
        const int eight = block * BLOCK_EIGHTS + i;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const int key = at->key + eight * 8 + k;
            const float logit = logit_of(at, weight, d[eight * 4 + upper * 2 + k], eight, k);
            if (key >= window->begin && key < window->end) {
                largest = fmaxf(largest, logit);
            }
        }
    }
    return largest;
}

/* The largest of a quad's four: even lanes get that of x, odd ones that of y. */
DEVICE float quad_largest(float x, float y) {
    const bool odd = threadIdx.x & 1;
    float largest = odd ? y : x;
    largest = fmaxf(largest, __shfl_xor_sync((u32)ALL_LANES, odd ? x : y, 1));
    return fmaxf(largest, __shfl_xor_sync((u32)ALL_LANES, largest, 2));
}

/* Finds and writes the largest logits of a part's rows. */
DEVICE void finish_part(const struct indexer_logits_fwd_params *params, const struct cursor *at,
                        const float *d, int part) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % WARPGROUP / 32;
    const int row = part * PART_ROWS + warp * 16 + lane / 4; /* its second is 8 further */
    const float *const all = weights_at(at->buffer);
    const float weights[2] = {all[row], all[row + 8]};
    const bool last = at->inner && WEIGHTS_LAST;
    const int written = row + lane % 2 * 8;
    const int query = at->query + written / HEADS;
    stored_logit *const to = (stored_logit *)params->logits + query * params->logits_token_stride +
                             written % HEADS * params->logits_group_stride;
#pragma unroll
    for (int block = 0; block < TILE_KEYS / BLOCK_MAX; ++block) {
        float largest;
        if (at->inner) {
            largest = quad_largest(inner_largest(at, d, weights[0], block, 0),
                                   inner_largest(at, d, weights[1], block, 1));
        } else {
            const struct key_range *const windows = windows_at(at->buffer);
            const struct key_range window[2] = {windows[row / HEADS], windows[(row + 8) / HEADS]};
            largest = quad_largest(edge_largest(at, d, weights[0], block, 0, &window[0]),
                                   edge_largest(at, d, weights[1], block, 1, &window[1]));
        }
        const int key = at->key - lane % 4 * 2 + block * BLOCK_MAX; /* the block's first */
        if (lane % 4 < 2 && query < params->tokens && key < params->rows) {
            store_logit(&to[key / BLOCK_MAX],
                        canonical_logit(last ? weigh(params->scale, largest) : largest));
        }
    }
}

DEVICE void run_math(const struct indexer_logits_fwd_params *params, int group) {
    const u64 all_keys = operand_at(keys_at(0)), all_queries = operand_at(queries_at(0));
    struct ring_place stage = {group, 0}, buffer = {0, 0};
    struct cursor at;
    int tile = group; /* the warpgroup's next tile of the run */
    for (;;) {
        at.buffer = buffer.index;
        mbarrier_wait(barrier_at(QUERY_FULL + buffer.index), buffer.parity);
        const struct run run = *run_at(buffer.index);
        if (run.tiles == 0) {
            return;
        }
        at.query = run.query;
        const u64 queries = descriptor_advance(all_queries, (u32)(buffer.index * QUERY_BYTES));
#pragma unroll 1
        for (; tile < run.tiles; tile += WARPGROUPS) {
            const int first = run.key + tile * TILE_KEYS;
            at.inner = first >= run.inner && run.outer - first >= TILE_KEYS &&
                       (!WEIGHTS_LAST || params->scale > 0.0f);
            at.key = first + (int)threadIdx.x % 4 * 2;
            load_scales(params, &at);
            mbarrier_wait(barrier_at(FULL + stage.index), stage.parity);
            const u64 keys = descriptor_advance(all_keys, (u32)(stage.index * KEY_BYTES));
#pragma unroll 1
            for (int part = 0; part < PARTS; ++part) {
                float d[VALUES];
                issue_product(d, descriptor_advance(queries, (u32)(part * PART_ROWS * SWIZZLE)),
                              QUERY_HALF_BYTES, keys, KEY_HALF_BYTES);
                wgmma_wait(0);
                if (part == PARTS - 1) {
                    arrive_warp(barrier_at(EMPTY + stage.index), 1);
                }
                finish_part(params, &at, d, part);
            }
            stage.index += WARPGROUPS;
            if (stage.index >= STAGES) {
                stage.index -= STAGES;
                stage.parity ^= 1;
            }
        }
        tile -= run.tiles;
        arrive_warp(barrier_at(QUERY_EMPTY + buffer.index), 1);
        ring_advance(&buffer, QUERY_BUFFERS);
    }
}
