//@use common/base.cuh
//@use common/warp_arrival.cuh
//@use ptx/cluster.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/memory.cuh
//@use ptx/thread.cuh
//@use sparse_attn_bwd.sm90_blocks.cuh
/*
 * Pairs, of sparse_attn_bwd.sm90.cu: the two thread blocks of a cluster go through the same keys
 * with rows of their own, and add up what both have for dKV before it leaves for global memory,
 * which halves the additions there. Each is given half of the columns of every tile, the first half
 * or the second, as its rank says: of the other half it sends its sums, as bf16, to the other's
 * shared memory. Where there is no other room they land in P's tile: once P is in the sums'
 * registers nobody needs it there until the next block's is stored, which waits for the last
 * landing.
 *
 * There are LANDINGS places, taken in turn. A warpgroup's fragment of a chunk is sent and taken by
 * the same threads on both sides, 16 bytes each at a time, side by side.
 */

/* Of the kernel: told here and not by the launch alone, the compiler knows that there is a cluster,
 * and puts no __syncthreads beside each of its barriers for a launch without. */
//@if PAIR
#define CLUSTERED __cluster_dims__(2, 1, 1)
//@else
#define CLUSTERED
//@end

enum {
    LANDING_PART = WARPGROUP * 16, /* bytes: 8 values of each thread */
    LANDING_PARTS = 2,             /* of a chunk of 32 columns */
    LANDING_BYTES = LANDING_PART * LANDING_PARTS
};

/* The cluster's other thread block. */
DEVICE u32 other_rank(void) {
    return cluster_rank() ^ 1u;
}

/* A tile's landing is number tile % LANDINGS. Its phase's parity, in a block of these flags. */
DEVICE int landing_parity(int tile, int flags) {
    const int landing = tile % LANDINGS, uses = (TILES - landing + LANDINGS - 1) / LANDINGS;
    const int odd = uses % 2 == 1 && (flags & BLOCK_UNIT) ? 1 : 0;
    return (tile / LANDINGS + odd) % 2;
}

/* Where this thread's 16 bytes of a part of a landing stand. */
DEVICE u32 landing_place(int tile, int part) {
    const int landing = tile % LANDINGS;
    return shared_address((u32)(LANDING_OFFSET + landing * LANDING_BYTES + part * LANDING_PART)) +
           thread_number() % WARPGROUP * 16;
}

/*
 * Tells the other block that a tile's landing is free; by every warp of the sums. `read`: some bits
 * of what each load from there gave. The arrival's address is made to depend on them (a block's
 * flags are no negative number, which the compiler does not know): else it leaves before the loads
 * have read, which wait behind the additions to global memory, and the next sums land too early.
 */
DEVICE void free_landing(int tile, u32 read, int flags) {
    const u32 barrier = barrier_at(LANDING_FREE + tile % LANDINGS) + (read & (u32)flags >> 31);
    __syncwarp((u32)ALL_LANES);
    if (RACECHECK || threadIdx.x % 32 == 0) {
        mbarrier_give_back_remote(cluster_address(barrier, other_rank()));
    }
}

/* Sends a chunk's sums, 16 values of each thread, to the other block. */
DEVICE void send_chunk(const float *sums, int tile, int flags) {
    const int landing = tile % LANDINGS;
    const u32 landed = cluster_address(barrier_at(LANDED + landing), other_rank());
    mbarrier_wait_given_back(barrier_at(LANDING_FREE + landing),
                             landing_parity(tile, flags) ^ (LANDS_IN_P ? 0 : 1));
#pragma unroll
    for (int part = 0; part < LANDING_PARTS; ++part) {
        u32 words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            words[i] = pack_bf16x2(sums[8 * part + 2 * i], sums[8 * part + 2 * i + 1]);
        }
        const u32 to = cluster_address(landing_place(tile, part), other_rank());
        cluster_store_async_16(to, words, landed);
    }
}

/* Adds what the other block sent to a chunk's sums; some bits of it, for free_landing. */
DEVICE u32 take_chunk(float *sums, int tile, int flags) {
    const u32 landed = barrier_at(LANDED + tile % LANDINGS);
    u32 read = 0;
    if (thread_number() % WARPGROUP == 0) {
        mbarrier_arrive_expect(landed, LANDING_BYTES);
    }
    mbarrier_wait(landed, landing_parity(tile, flags));
#pragma unroll
    for (int part = 0; part < LANDING_PARTS; ++part) {
        u32 pairs[4]; /* of bf16 */
        load_shared_16(pairs, landing_place(tile, part));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sums[8 * part + 2 * i] += __int_as_float((int)(pairs[i] << 16));
            sums[8 * part + 2 * i + 1] += __int_as_float((int)(pairs[i] & 0xffff0000u));
        }
        read |= pairs[0];
    }
    return read;
}
