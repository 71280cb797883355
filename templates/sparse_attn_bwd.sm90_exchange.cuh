//@use common/base.cuh
//@use common/warp_arrival.cuh
//@use ptx/cluster.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/memory.cuh
//@use ptx/thread.cuh
//@use sparse_attn_bwd.sm90_shared.cuh
/*
 * Pairs, of sparse_attn_bwd.sm90.cu. The two CTAs of a cluster process the same keys with rows of
 * their own, and dKV of both is summed before it leaves for global memory, which halves the
 * additions there. Each CTA adds one half of every tile's columns, by its rank in the cluster; it
 * sends its sums of the other half, as bf16, to a receive buffer in the other CTA's shared memory.
 * If there is no other room, that buffer is P's tile: it is free from when the sums have P in
 * registers until the next block's P is stored, which waits for the last transfer.
 *
 * RECEIVE_BUFFERS buffers are used in turn. The same threads send and receive a chunk's fragment,
 * 16 contiguous bytes each at a time.
 */

/* The cluster's size must be known at compile time: otherwise the compiler adds a __syncthreads to
 * each cluster barrier for launches without a cluster. */
//@if PAIR
#define CLUSTERED __cluster_dims__(2, 1, 1)
//@else
#define CLUSTERED
//@end

enum {
    TRANSFER_BYTES = WARPGROUP * 16, /* 8 values of each thread */
    TRANSFERS = 2,                   /* per chunk of 32 columns */
    RECEIVE_BYTES = TRANSFER_BYTES * TRANSFERS
};

/* The cluster's other CTA. */
DEVICE u32 other_rank(void) {
    return cluster_rank() ^ 1u;
}

/* The parity of a tile's phase of its receive buffer, tile % RECEIVE_BUFFERS, in a block with these
 * flags. */
DEVICE int receive_parity(int tile, int flags) {
    const int buffer = tile % RECEIVE_BUFFERS,
              uses = (TILES - buffer + RECEIVE_BUFFERS - 1) / RECEIVE_BUFFERS;
    const int odd = uses % 2 == 1 && (flags & BLOCK_UNIT) ? 1 : 0;
    return (tile / RECEIVE_BUFFERS + odd) % 2;
}

/* The address of this thread's 16 bytes of a transfer. */
DEVICE u32 receive_address(int tile, int transfer) {
    const int buffer = tile % RECEIVE_BUFFERS;
    return shared_address(
               (u32)(RECEIVE_OFFSET + buffer * RECEIVE_BYTES + transfer * TRANSFER_BYTES)) +
           thread_number() % WARPGROUP * 16;
}

/*
 * Tells the other CTA that a tile's receive buffer is free. Every warp of the sums calls it.
 * `read`: some bits of each value loaded from the buffer. The arrival's address depends on them
 * (flags are never negative, which the compiler does not know): otherwise the arrival overtakes the
 * loads, which queue behind the additions to global memory, and the next transfer overwrites the
 * buffer too early.
 */
DEVICE void free_receive_buffer(int tile, u32 read, int flags) {
    const u32 barrier =
        barrier_at(RECEIVE_FREE + tile % RECEIVE_BUFFERS) + (read & (u32)flags >> 31);
    __syncwarp((u32)ALL_LANES);
    if (RACECHECK || threadIdx.x % 32 == 0) {
        mbarrier_give_back_remote(cluster_address(barrier, other_rank()));
    }
}

/* Sends a chunk's sums, 16 values of each thread, to the other CTA. */
DEVICE void send_chunk(const float *sums, int tile, int flags) {
    const int buffer = tile % RECEIVE_BUFFERS;
    const u32 received = cluster_address(barrier_at(RECEIVED + buffer), other_rank());
    mbarrier_wait_given_back(barrier_at(RECEIVE_FREE + buffer),
                             receive_parity(tile, flags) ^ (RECEIVES_IN_P ? 0 : 1));
#pragma unroll
    for (int transfer = 0; transfer < TRANSFERS; ++transfer) {
        u32 words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            words[i] = pack_bf16x2(sums[8 * transfer + 2 * i], sums[8 * transfer + 2 * i + 1]);
        }
        const u32 to = cluster_address(receive_address(tile, transfer), other_rank());
        cluster_store_async_16(to, words, received);
    }
}

/* Adds the other CTA's sums to a chunk's. Returns some bits of them, for free_receive_buffer. */
DEVICE u32 receive_chunk(float *sums, int tile, int flags) {
    const u32 received = barrier_at(RECEIVED + tile % RECEIVE_BUFFERS);
    u32 read = 0;
    if (thread_number() % WARPGROUP == 0) {
        mbarrier_arrive_expect(received, RECEIVE_BYTES);
    }
    mbarrier_wait(received, receive_parity(tile, flags));
#pragma unroll
    for (int transfer = 0; transfer < TRANSFERS; ++transfer) {
        u32 pairs[4]; /* of bf16 */
        load_shared_16(pairs, receive_address(tile, transfer));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sums[8 * transfer + 2 * i] += __int_as_float((int)(pairs[i] << 16));
            sums[8 * transfer + 2 * i + 1] += __int_as_float((int)(pairs[i] & 0xffff0000u));
        }
        read |= pairs[0];
    }
    return read;
}
