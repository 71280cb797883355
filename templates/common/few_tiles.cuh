//@use common/base.cuh
//@use common/few_ring.cuh united = united
//@use common/warp_arrival.cuh
//@use common/work.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/named_barrier.cuh
//@use ptx/proxy.cuh
//@use ptx/registers.cuh
//@use ptx/stmatrix.cuh
//@use ptx/warp.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_ss.cuh n = BLOCK_HEADS, ta = 0, tb = 0
//@use ptx/wgmma_ss.cuh n = BLOCK_HEADS, ta = 1, tb = 0
//@takes united
/*
 * What the kernels for few heads with wgmma share: keys are the rows of the products, heads their
 * columns. The two warpgroups of math, their barriers, and the products. A block's tiles are A of both
 * products; the scores' B is the item's Q, the output's B is P, stored transposed. What depends on the
 * operator, beside what common/few_ring.cuh asks for, is in the file that the kernel uses before this
 * one:
 *   ITEM_HEADS            heads of an item; BLOCK_HEADS are computed
 *   QUERY_TILES           tiles of 64 columns that the item's heads have in QUERY
 *   has_query_chunk       whether a head has the 16 bytes with this number; else zeros are stored
 *   query_chunk           the address of these 16 bytes
 *   LEADING_COLUMN        the tile of QUERY by which the first leading tile is multiplied; value tiles,
 *                         where scores need them, begin with tile 0
 * and in the file that it uses after this one:
 *   run_math              the work of math warpgroup `group`
 */

enum {
    MATH_BARRIER = 1, /* named; of math warpgroup 0, the next one's is 2 */
    GATHER_WARPGROUP = 2,
    QUERY_TILE_BYTES = BLOCK_HEADS * TILE_PITCH,
    QUERY_BYTES = QUERY_TILES * QUERY_TILE_BYTES,
    KEY_STEPS = BLOCK_KEYS / 16, /* of V^T P^T */

    GROUPS = BLOCK_HEADS / 8, /* a thread's heads: two of every eight */
    THREAD_HEADS = 2 * GROUPS,
    TILE_VALUES = BLOCK_HEADS / 2, /* per thread: S^T, or 64 rows of O^T */
    OUTPUT_VALUES = VALUE_TILES * TILE_VALUES
};

/* The products' shapes: as many columns as heads. */
// clang-format off
#define multiply_scores wgmma_ss_n${BLOCK_HEADS}_t00
#define multiply_output wgmma_ss_n${BLOCK_HEADS}_t10
// clang-format on

DEVICE void initialise(void) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < RING_BLOCKS * FULL_PARTS * 2; ++i) {
            const bool has_word = i / 2 % FULL_PARTS == 0;
            mbarrier_init(barrier_at(FULL + i), TEAM_THREADS + (has_word ? WORD_ARRIVALS : 0));
        }
        for (int i = 0; i < RING_BLOCKS * (PARTS + 1); ++i) {
            mbarrier_init(barrier_at(EMPTY + i), 4 * WARP_ARRIVALS);
        }
        for (int request = 0; request < REQUESTS; ++request) {
            mbarrier_init(barrier_at(READY + request), WARP_ARRIVALS);
            mbarrier_init(barrier_at(TAKEN + request), TEAM_WARPS * WARP_ARRIVALS);
        }
        for (int team = 0; team < COPY_TEAMS && COPY_TEAMS > 1; ++team) {
            mbarrier_init(barrier_at(ORDER + team), TEAM_WARPS * WARP_ARRIVALS);
        }
        mbarrier_init(barrier_at(QUERY_FULL), WARPGROUP);
        mbarrier_init(barrier_at(QUERY_FULL + 1), WARPGROUP);
    }
    __syncthreads();
}

/* A math thread's position. */
struct math_thread {
    int group;      /* math warpgroup, 0 or 1 */
    int warp, lane; /* in the warpgroup */
    int first_head; /* its heads: first_head + 8 * (k / 2) + k % 2, k < THREAD_HEADS */
};

DEVICE int thread_head(const struct math_thread *me, int k) {
    return me->first_head + 8 * (k / 2) + k % 2;
}

/* Synchronises the warpgroup. The barrier is a constant in each branch: a variable one would
 * reserve all 16. */
DEVICE void group_sync(const struct math_thread *me) {
    if (me->group == 0) {
        barrier_sync(MATH_BARRIER, WARPGROUP);
    } else {
        barrier_sync(MATH_BARRIER + 1, WARPGROUP);
    }
}

DEVICE bool group_or(const struct math_thread *me, bool condition) {
    return me->group == 0 ? barrier_or(MATH_BARRIER, WARPGROUP, condition)
                          : barrier_or(MATH_BARRIER + 1, WARPGROUP, condition);
}

/* Starts the copy of an item's Q. Its warpgroup calls it once it no longer reads the previous Q. */
DEVICE void load_query(const struct few_params *params, const struct few_item *item,
                       const struct math_thread *me) {
    enum { CHUNKS = QUERY_TILES * 8 };
    const u32 to = shared_address((u32)(QUERY_OFFSET + me->group * QUERY_BYTES));
#pragma unroll 1
    for (int i = (int)(threadIdx.x % WARPGROUP); i < BLOCK_HEADS * CHUNKS; i += WARPGROUP) {
        const int head = i / CHUNKS, chunk = i % CHUNKS;
        const bool present = has_query_chunk(params, item, head, chunk); /* else zeros */
        cp_async_16(to + (u32)(chunk / 8 * QUERY_TILE_BYTES + head * TILE_PITCH +
                               ((chunk ^ head) & 7) * 16),
                    query_chunk(params, item, head, present ? chunk : 0), present ? 16 : 0);
    }
    cp_async_arrive_noinc(barrier_at(QUERY_FULL + me->group));
}

/* The descriptor of a block's tile in the ring. */
DEVICE u64 ring_tile_descriptor(int first, int tile) {
    return descriptor_advance(tile_descriptor(KEYS_OFFSET),
                              (u32)(ring_tile(first, tile) * KEY_TILE_BYTES));
}

/* Issues the part of S^T = K Q^T that tiles [from, to) of a block contribute; `begin`: the tile that
 * contributes first; `query`: Q's address. */
DEVICE void issue_scores(float *s, int first, int begin, int from, int to, u32 query) {
    const u64 b = shared_descriptor(query, 16, ATOM_BYTES, 128);
    wgmma_fence();
#pragma unroll
    for (int tile = from; tile < to; ++tile) {
        const int column = tile < LEADING_TILES ? LEADING_COLUMN + tile : tile - LEADING_TILES;
        const u64 a = ring_tile_descriptor(first, tile);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            multiply_scores(
                s, descriptor_advance(a, (u32)(k * STEP_BYTES)),
                descriptor_advance(b, (u32)(column * QUERY_TILE_BYTES + k * STEP_BYTES)),
                tile > begin || k > 0);
        }
    }
    wgmma_commit();
}

/* The offset of a warpgroup's P. */
DEVICE u32 p_offset(const struct math_thread *me) {
    return (u32)(P_OFFSET + me->group * QUERY_TILE_BYTES);
}

/*
 * Stores an accumulator fragment transposed, as bf16, to a tile of heads by rows at `base`. Of
 * every eight columns (heads) a thread has four values, in rows g and g + 8 of its warp's 16.
 */
DEVICE void store_transposed(u32 base, const float *values, const struct math_thread *me) {
    const int row = me->lane % 8, chunk = me->warp * 2 + me->lane / 8 % 2;
    const u32 address = base + (u32)(row * TILE_PITCH + (chunk ^ row) * 16);
#pragma unroll
    for (int j = 0; j + 1 < GROUPS; j += 2) {
        const u32 pairs[4] = {pack_bf16x2(values[4 * j], values[4 * j + 1]),
                              pack_bf16x2(values[4 * j + 2], values[4 * j + 3]),
                              pack_bf16x2(values[4 * j + 4], values[4 * j + 5]),
                              pack_bf16x2(values[4 * j + 6], values[4 * j + 7])};
        stmatrix_x4_trans(address + (u32)((j + me->lane / 16) * 8 * TILE_PITCH), pairs);
    }
    if (GROUPS % 2 == 1) {
        const float *const last = &values[4 * (GROUPS - 1)];
        const u32 pairs[2] = {pack_bf16x2(last[0], last[1]), pack_bf16x2(last[2], last[3])};
        stmatrix_x2_trans(address + (u32)((GROUPS - 1) * 8 * TILE_PITCH), pairs);
    }
}

/* Issues O^T += V^T P^T, or O^T = V^T P^T, for V's tiles [from, to); `p`: P's address. */
DEVICE void issue_output(float *o, int first, int from, int to, u32 p, bool add) {
    const u64 b = shared_descriptor(p, 16, ATOM_BYTES, 128);
    wgmma_fence();
#pragma unroll
    for (int i = from; i < to; ++i) {
        const u64 a = ring_tile_descriptor(first, LEADING_TILES + i);
#pragma unroll
        for (int k = 0; k < KEY_STEPS; ++k) {
            multiply_output(&o[i * TILE_VALUES], descriptor_advance(a, (u32)(k * ROW_STEP_BYTES)),
                            descriptor_advance(b, (u32)(k * STEP_BYTES)), k > 0 || add);
        }
    }
    wgmma_commit();
}

/* A key block's position in the ring: its number % RING_BLOCKS, and its first tile. */
struct block_at {
    int index, first;
};

/* The position of the warpgroup's next key block. */
DEVICE struct block_at block_after(const struct block_at *at, int word) {
    const int blocks = word & ALONE ? 1 : 2;
    const struct block_at next = {(at->index + blocks) % RING_BLOCKS,
                                  (at->first + blocks * TILES) % RING_TILES};
    return next;
}

/* The tiles of a part with which a block is filled. */
DEVICE int part_begin(int part) {
    return part < LEADING_PARTS ? part * PART_TILES
           : part == 0          ? 0
                                : LEADING_TILES + (part - LEADING_PARTS) * PART_TILES;
}

DEVICE int part_end(int part) {
    return part < LEADING_PARTS
               ? minimum((part + 1) * PART_TILES, LEADING_TILES)
               : minimum(LEADING_TILES + (part - LEADING_PARTS + 1) * PART_TILES, TILES);
}

/* Waits until a part of a block has landed. */
DEVICE void await_part(const struct block_at *at, int part, u32 parities,
                       const struct math_thread *me) {
    mbarrier_wait(barrier_at(FULL + (at->index * FULL_PARTS + part) * 2 + me->group),
                  (int)(parities >> at->index & 1));
    fence_proxy_async();
}

/* Releases a part of a block, for one warp. */
DEVICE void release_part(const struct block_at *at, int part) {
    arrive_warp(barrier_at(EMPTY + at->index * (PARTS + 1) + part), 1);
}

DEVICE void run_math(const struct few_params *params, int group);

/* The kernel: two warpgroups of math and one that gathers. */
DEVICE void run_few_heads(const struct few_params *params) {
    begin_grid(&params->work);
    initialise();
    const int warpgroup = (int)warp_reduce_or(threadIdx.x / WARPGROUP);
    if (warpgroup < GATHER_WARPGROUP) {
        run_math(params, warpgroup);
    } else {
        run_gather(params);
    }
    end_grid(&params->work);
}
