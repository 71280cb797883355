//@use common/base.cuh
//@use common/gqa_products.cuh
//@use common/warp_arrival.cuh
//@use ptx/mbarrier.cuh
/* Shared memory and barriers of sparse_gqa_united.sm90.cu, whose head explains them. */

enum {
    PART_ENTRIES = TILE_UNITS / UNITS, /* of a consumer */
    TILE_ENTRIES = CONSUMERS * PART_ENTRIES
};

/* mbarriers, as indices into BARRIERS. */
enum {
    Q_FULL = 0,
    Q_EMPTY = Q_FULL + Q_BUFFERS * CONSUMERS,
    K_FULL = Q_EMPTY + Q_BUFFERS * CONSUMERS,
    K_EMPTY = K_FULL + STAGES,
    V_FULL = K_EMPTY + STAGES,
    V_EMPTY = V_FULL + STAGES,
    ALL_BARRIERS = V_EMPTY + STAGES
};

/* A block that is in a buffer. */
struct step {
    u32 entries; /* of the tile, which read it: a bit each */
    int first_key;
};

/* An item, for the consumer whose Q is in the buffer. */
struct posted_item {
    int blocks; /* 0: there is no further item */
    int kv_head;
    int query[PART_ENTRIES]; /* -1: there is none */
    int limit[PART_ENTRIES]; /* keys that it may read */
};

DEVICE struct posted_item *item_at(int buffer, int consumer) {
    return (struct posted_item *)(arena + ITEMS_OFFSET) + buffer * CONSUMERS + consumer;
}

/* Q_FULL or Q_EMPTY of a consumer. */
DEVICE u32 query_barrier(int barriers, int buffer, int consumer) {
    return barrier_at((u32)(barriers + buffer * CONSUMERS + consumer));
}

DEVICE struct step *step_at(int buffer) {
    return (struct step *)(arena + STEPS_OFFSET) + buffer;
}

DEVICE u32 query_at(int buffer, int consumer) {
    return (u32)(QUERY_OFFSET + (buffer * CONSUMERS + consumer) * QUERY_BYTES);
}

DEVICE u32 keys_at(int buffer) {
    return (u32)(KEYS_OFFSET + buffer * KEY_BYTES);
}

DEVICE u32 values_at(int buffer) {
    return (u32)(VALUES_OFFSET + buffer * VALUE_BYTES);
}

DEVICE void initialise_barriers(void) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < ALL_BARRIERS; ++i) {
            const bool full =
                i < Q_EMPTY || (i >= K_FULL && i < K_EMPTY) || (i >= V_FULL && i < V_EMPTY);
            const int consumers = i < K_FULL ? 1 : CONSUMERS;
            mbarrier_init(barrier_at((u32)i), (full ? 1 : 4 * consumers) * WARP_ARRIVALS);
        }
        mbarrier_fence_init();
    }
    __syncthreads();
}
