//@use common/base.cuh
//@use common/descriptor.cuh
//@use common/ring.cuh
//@use common/slot_blocks.cuh
//@use common/warp_arrival.cuh
//@use indexer_scores_fwd.heads.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/shared.cuh
//@use ptx/warp.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_ss.cuh n = BLOCK_HEADS, ta = 0, tb = 0
//@use indexer_scores_fwd.params.h
/*
 * The lightning indexer's logits at the selected slots, with wgmma. Mathematics and shapes:
 * include/smelt/indexer_scores.h.
 *
 * Grid: one block a multiprocessor, each taking every gridDim.x-th query. Three warpgroups:
 *
 *   math    two of them. Of each pair of blocks of 64 slots the first takes the first, the second
 *           the second:
 *             X[64 slots, BLOCK_HEADS] = K[64 slots, DIM] Q[BLOCK_HEADS, DIM]^T
 *           and adds up max(0, X) by weights along a thread's own columns
 *   gather  common/slot_blocks.cuh: looks at the slots, copies the keys of pairs with a valid one,
 *           as far ahead as the ring has room, and the heads and weights of their queries. It
 * writes the -inf of pairs without one by itself: math never sees them
 *
 * What binds is the gather: a key's 256 bytes out of L2, then through shared memory.
 *
 * Shared memory (offsets and sizes: the plan above):
 *   KEYS    [STAGES] blocks, a ring; math warpgroup g uses every second from number g on
 *   QUERY   [QUERIES][ROW_TILES] tiles of BLOCK_HEADS rows, 128-byte swizzled. Past the last head
 *           stands the last one's row: nothing comes of it
 *   WEIGHTS [QUERIES][BLOCK_HEADS] fp32, likewise
 *   WORDS   [STAGES]: struct block_word
 *
 * Barriers (parity counts uses):
 *   barrier         count  who arrives                                     who waits
 *   FULL[stage]     128+1  gather: every thread when its copies have       its math warpgroup
 *                          landed, and one for the word
 *   EMPTY[stage]        4  math: the warps that used it                    gather
 *   QUERY_FULL[q]   128+4  gather: every thread when its copies have       math
 *                          landed; every warp for its weights
 *   QUERY_EMPTY[q]      8  math: every warp, when it comes to the next     gather
 *                          query
 * (Counts are of warps where warps arrive: common/warp_arrival.cuh.)
 *
 * Knobs: STAGES: src/codegen/families/indexer_scores_fwd_sm90.c.
 */

enum {
    WARPGROUP = 128, /* threads */
    MATH_GROUPS = 2,
    QUERIES = 2, /* in shared memory */
    GROUP_STAGES = STAGES / MATH_GROUPS,
    QUERY_TILE_BYTES = BLOCK_HEADS * TILE_PITCH,
    QUERY_BYTES = ROW_TILES * QUERY_TILE_BYTES,
    ATOM_BYTES = 8 * TILE_PITCH, /* eight rows of a tile */
    STEP_BYTES = 32,             /* 16 columns of a row: a k-step */
    VALUES = BLOCK_HEADS / 2,    /* of a thread: X of a block */
    NO_QUERY = -1
};

/* Places in BARRIERS. */
enum {
    FULL = 0,
    EMPTY = FULL + STAGES,
    QUERY_FULL = EMPTY + STAGES,
    QUERY_EMPTY = QUERY_FULL + QUERIES
};

DEVICE u32 barrier_at(int number) {
    return shared_address((u32)(BARRIERS_OFFSET + number * 8));
}

/* What a block is. */
struct __align__(16) block_word {
    int query; /* NO_QUERY: there are no more blocks */
    int first; /* its first slot */
    u32 low;   /* which slots are valid, a bit each */
    u32 high;  /* of the last 32 */
};

DEVICE struct block_word *block_word(int stage) {
    return (struct block_word *)(arena + WORDS_OFFSET) + stage;
}

DEVICE float *query_weights(int buffer) {
    return (float *)(arena + WEIGHTS_OFFSET) + buffer * BLOCK_HEADS;
}

DEVICE void initialise(void) {
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(barrier_at(FULL + stage), WARPGROUP + 1);
            mbarrier_init(barrier_at(EMPTY + stage), 4 * WARP_ARRIVALS);
        }
        for (int buffer = 0; buffer < QUERIES; ++buffer) {
            mbarrier_init(barrier_at(QUERY_FULL + buffer), WARPGROUP + 4 * WARP_ARRIVALS);
            mbarrier_init(barrier_at(QUERY_EMPTY + buffer), MATH_GROUPS * 4 * WARP_ARRIVALS);
        }
    }
    __syncthreads();
}

/* ---- gather ---------------------------------------------------------------------------------- */

/* Starts the copy of a query's heads into its buffer, and stores its weights. */
DEVICE void load_query(const struct indexer_scores_fwd_params *params, int query,
                       struct ring_place *place) {
    enum { CHUNKS = DIM / 8 };
    const int thread = (int)(threadIdx.x % WARPGROUP), full = QUERY_FULL + place->index;
    const u32 to = shared_address((u32)(QUERY_OFFSET + place->index * QUERY_BYTES));
    mbarrier_wait(barrier_at(QUERY_EMPTY + place->index), place->parity ^ 1);
    if (thread < BLOCK_HEADS) {
        query_weights(place->index)[thread] =
            params->weights[query * params->weights_token_stride + minimum(thread, HEADS - 1)];
    }
#pragma unroll 1
    for (int i = thread; i < BLOCK_HEADS * CHUNKS; i += WARPGROUP) {
        const int head = i / CHUNKS, chunk = i % CHUNKS;
        const char *const row =
            (const char *)params->q +
            2 * (query * params->q_token_stride + minimum(head, HEADS - 1) * params->q_head_stride);
        cp_async_16(to + (u32)(chunk / 8 * QUERY_TILE_BYTES + head * TILE_PITCH +
                               ((chunk ^ head) & 7) * 16),
                    row + chunk * 16, 16);
    }
    cp_async_arrive_noinc(barrier_at(full));
    arrive_warp(barrier_at(full), 1);
    ring_advance(place, QUERIES);
}

/* Hands a pair of blocks to the math warpgroups, copies what they need. */
DEVICE void push_pair(const struct indexer_scores_fwd_params *params, const struct slot_pair *pair,
                      int query, int first, struct ring_place *place) {
#pragma unroll
    for (int block = 0; block < 2; ++block) {
        const int stage = place->index * 2 + block;
        mbarrier_wait(barrier_at(EMPTY + stage), place->parity ^ 1);
        if (threadIdx.x % WARPGROUP == 0) {
            const struct block_word word = {query, first + block * BLOCK_KEYS,
                                            pair->votes[2 * block], pair->votes[2 * block + 1]};
            *block_word(stage) = word;
            mbarrier_arrive(barrier_at(FULL + stage));
        }
        if (block_has_any(pair, block)) {
            copy_block(pair, block, shared_address((u32)(KEYS_OFFSET + stage * BLOCK_BYTES)),
                       params->k, params->k_row_bytes);
        }
        cp_async_arrive_noinc(barrier_at(FULL + stage));
    }
    ring_advance(place, GROUP_STAGES);
}

/* A pair without a valid slot. */
DEVICE void fill_pair(const struct indexer_scores_fwd_params *params, int query, int first) {
    const int slot = first + (int)(threadIdx.x % WARPGROUP);
    if (slot < params->work.width) {
        params->logits[query * params->logits_token_stride + slot] = LOWEST_LOGIT;
    }
}

/* The gather's warpgroup. */
DEVICE void run_gather(const struct indexer_scores_fwd_params *params) {
    registers_decrease(GATHER_REGISTERS);
    struct ring_place place = {0, 0}, query_place = {0, 0};
    struct slot_row row = open_row(&params->work, (int)blockIdx.x);
    struct slot_pair ahead;
    load_pair(&ahead, &row, 0);
#pragma unroll 1
    for (i64 query = blockIdx.x; query < params->work.tokens; query += gridDim.x) {
        bool loaded = false;
#pragma unroll 1
        for (int first = 0; first < params->work.width; first += PAIR_SLOTS) {
            struct slot_pair pair = ahead;
            const bool any = vote_pair(&pair, params->work.rows);
            if (first + PAIR_SLOTS < params->work.width) {
                load_pair(&ahead, &row, first + PAIR_SLOTS);
            } else if (query + gridDim.x < params->work.tokens) {
                row = open_row(&params->work, (int)(query + gridDim.x));
                load_pair(&ahead, &row, 0);
            }
            if (!any) {
                fill_pair(params, (int)query, first);
                continue;
            }
            if (!loaded) {
                load_query(params, (int)query, &query_place);
                loaded = true;
            }
            push_pair(params, &pair, (int)query, first, &place);
        }
    }
    const struct slot_pair none = {{MASKED, MASKED, MASKED, MASKED}, {0, 0, 0, 0}};
    push_pair(params, &none, NO_QUERY, 0, &place);
    cp_async_wait_all();
}

/* ---- math ------------------------------------------------------------------------------------ */

/* The product's shape: as many columns as heads. */
// clang-format off
//@for n in BLOCK_HEADS..BLOCK_HEADS + 1
#define multiply wgmma_ss_n${n}_t00
//@end
// clang-format on

/* Where a math warpgroup is. */
struct math {
    int group;               /* 0 or 1 */
    struct ring_place place; /* of its next block among its stages */
    int query;               /* the last block's, whose weights it has */
    struct ring_place heads; /* of the next query's */
    float weights[EIGHTS][2];
};

DEVICE int query_buffer(const struct math *math) {
    return math->heads.index ^ 1;
}

/* Gives back the query before, if there was one, waits for a block's and takes its weights. */
DEVICE void begin_query(struct math *math, int query) {
    if (math->query != NO_QUERY) {
        arrive_warp(barrier_at(QUERY_EMPTY + query_buffer(math)), 1);
    }
    math->query = query;
    mbarrier_wait(barrier_at(QUERY_FULL + math->heads.index), math->heads.parity);
#pragma unroll
    for (int i = 0; i < EIGHTS; ++i) {
        const float *const pair = query_weights(math->heads.index) + i * 8 + thread_head();
        math->weights[i][0] = pair[0];
        math->weights[i][1] = pair[1];
    }
    ring_advance(&math->heads, QUERIES);
}

/* X = K Q^T of the block in a stage. */
DEVICE void multiply_block(float *x, int block_stage, int query_heads) {
    /* The same in every lane, as the products' descriptors have to be. */
    const u32 stage = warp_reduce_or((u32)block_stage), heads = warp_reduce_or((u32)query_heads);
    const u64 a = shared_descriptor(shared_address((u32)KEYS_OFFSET + stage * BLOCK_BYTES), 16,
                                    ATOM_BYTES, 128);
    const u64 b = shared_descriptor(shared_address((u32)QUERY_OFFSET + heads * QUERY_BYTES), 16,
                                    ATOM_BYTES, 128);
    fence_proxy_async();
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < ROW_TILES * 4; ++step) {
        const int tile = step / 4, columns = step % 4 * STEP_BYTES;
        multiply(x, descriptor_advance(a, (u32)(tile * TILE_BYTES + columns)),
                 descriptor_advance(b, (u32)(tile * QUERY_TILE_BYTES + columns)), step > 0);
    }
    wgmma_commit();
    wgmma_wait_0();
}

/* One of the two math warpgroups. */
DEVICE void run_math(const struct indexer_scores_fwd_params *params, int group) {
    registers_increase(MATH_REGISTERS);
    const int warp = (int)(threadIdx.x % WARPGROUP / 32);
    struct math math = {group, {0, 0}, NO_QUERY, {0, 0}, {{0.0f, 0.0f}}};
    for (;;) {
        const int stage = math.place.index * MATH_GROUPS + group;
        mbarrier_wait(barrier_at(FULL + stage), math.place.parity);
        const struct block_word word = *block_word(stage);
        if (word.query == NO_QUERY) {
            return;
        }
        if (word.query != math.query) {
            begin_query(&math, word.query);
        }
        float sums[2] = {0.0f, 0.0f};
        if (warp_reduce_or(word.low | word.high) != 0) {
            float x[VALUES];
            multiply_block(x, stage, query_buffer(&math));
            arrive_warp(barrier_at(EMPTY + stage), 1);
#pragma unroll
            for (int i = 0; i < EIGHTS; ++i) {
                add_eight(sums, &x[i * 4], math.weights[i], i * 8);
            }
        } else {
            arrive_warp(barrier_at(EMPTY + stage), 1);
        }
        write_logits(params, word.query, word.first + warp * 16, sums,
                     (warp < 2 ? word.low : word.high) >> (warp % 2 * 16) & 0xffffu);
        ring_advance(&math.place, GROUP_STAGES);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_scores_fwd_params params) {
    initialise();
    const int warpgroup = (int)warp_reduce_or(threadIdx.x / WARPGROUP);
    if (warpgroup < MATH_GROUPS) {
        run_math(&params, warpgroup);
    } else {
        run_gather(&params);
    }
}
