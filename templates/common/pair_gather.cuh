//@use common/base.cuh
//@use common/ring.cuh
//@use common/warp_slots.cuh
//@use common/work.cuh
//@use ptx/cp_async.cuh
//@use ptx/cp_async_mbarrier.cuh
//@use ptx/mbarrier.cuh
//@use ptx/prefetch.cuh
//@use ptx/registers.cuh
//@use sparse_attn_fwd.params.h
/*
 * Key blocks of two queries at a time, gathered into a ring of stages for the two math warpgroups
 * of sparse_attn_fwd.sm90_pair.cu; its head has the shared-memory map and the barriers. One warp of
 * the gather's warpgroup scans the slots of both queries and asks for a block of the one, then for
 * one of the other; COPY_WARPS copy the rows and never wait for a slot that is on its way.
 */

enum {
    WARPGROUP = 128,  /* threads */
    COPY_WARPS = 2,   /* of the gather's, the first ones; one more scans */
    COPY_ROWS = 8,    /* of a key block, copied at once */
    REQUESTS = 2,     /* key blocks that the scan is ahead of the copies */
    TILE_PITCH = 128, /* bytes of a row, 64 columns */
    TILES = DQK / 64,
    KEY_TILE_BYTES = BLOCK_KEYS * TILE_PITCH,
    LAST_HEAD = HEADS - 1
};

/* Places in BARRIERS. */
enum {
    FULL = 0,
    EMPTY_LOW = FULL + 2 * STAGES, /* FULL: by stage and math warpgroup */
    EMPTY_HIGH = EMPTY_LOW + STAGES,
    QUERY_FULL = EMPTY_HIGH + STAGES, /* by math warpgroup */
    READY = QUERY_FULL + 2,
    TAKEN = READY + REQUESTS
};

DEVICE u32 barrier_at(int place) {
    return shared_address((u32)(BARRIERS_OFFSET + place * 8));
}

/* What a stage holds: how many keys; whether they are their query's last, whether the math
 * warpgroup's next block follows at once, since the other has no query any more. */
enum { LAST_BLOCK = 256, ALONE = 512, COUNT_MASK = 255 };

struct block_word {
    int word;
    int next; /* of a last block: the warpgroup's next query, or -1 */
};

DEVICE struct block_word *block_word(int stage) {
    return (struct block_word *)(arena + WORDS_OFFSET) + stage;
}

/* A warp's arrival, when all of its threads have come so far. */
DEVICE void arrive_warp(int place) {
    __syncwarp((u32)ALL_LANES);
    if (threadIdx.x % 32 == 0) {
        mbarrier_arrive(barrier_at(place));
    }
}

/* The item that follows one, if that is one. */
DEVICE struct work work_after(const struct sparse_attn_fwd_params *params,
                              const struct work *work) {
    return work->query < 0 ? *work : next_work(params, work);
}

/* Where Q's row of a query's head is; a head past the last is the last again, and never stored. */
DEVICE const char *query_row(const struct sparse_attn_fwd_params *params, int query, int head) {
    const int batch = query_batch(params, query), token = query - batch * params->tokens;
    return (const char *)params->q +
           2 * (batch * params->q_batch_stride + token * params->q_token_stride +
                minimum(head, LAST_HEAD) * params->q_head_stride);
}

/* What the scan asks the copies for: a key block. */
struct request {
    int word;  /* the stage's, and SECOND or NO_MORE */
    int next;  /* the stage's */
    int batch; /* of the KV rows */
    int first; /* of its entries in the flow's ring */
};

enum { SECOND = 1024 /* math warpgroup */, NO_MORE = 2048 };

DEVICE struct request *request_at(int place) {
    return (struct request *)(arena + REQUESTS_OFFSET) + place;
}

/* A math warpgroup's queries, as the scan goes through them. */
struct flow {
    int query;          /* whose key blocks are asked for, or -1: there are no more */
    int start;          /* of its entries in the ring */
    int entries, taken; /* valid slots found so far; those in key blocks */
    bool ended;         /* there are no more; then the scan is of the next query */
    int next;
    struct slot_scan scan;
};

DEVICE void begin_flow(struct flow *flow, int start, int query) {
    flow->query = query;
    flow->start = start;
    flow->entries = 0;
    flow->taken = 0;
    flow->ended = false;
    flow->next = -1;
}

/* Brings a query's Q into the L2 cache, ahead of load_query. */
DEVICE void prefetch_query(const struct sparse_attn_fwd_params *params, int query) {
    const int head = (int)(threadIdx.x % 32);
    if (query >= 0 && head < HEADS) {
        prefetch_l2(query_row(params, query, head), DQK * 2);
    }
}

/* Scans until a flow's next key block is known, and whether it is the query's last; at the row's
 * end begins that of the next query. `latest`: the last item begun. */
DEVICE void look_ahead(const struct sparse_attn_fwd_params *params, struct flow *flow, int group,
                       struct work *latest) {
    while (!flow->ended && flow->entries - flow->taken <= BLOCK_KEYS) {
        flow->entries =
            scan_more(&flow->scan, slot_ring(group), flow->start, params->rows, flow->entries);
        flow->ended = scan_ended(&flow->scan, flow->entries);
        if (flow->ended) {
            *latest = work_after(params, latest);
            scan_open(&flow->scan, params, latest);
            prefetch_query(params, latest->query);
            flow->next = latest->query;
        }
    }
}

/* Asks for a key block, when the warp's lanes have met: all wrote its entries, and none still looks
 * at a phase that the request ends. */
DEVICE void ask(struct ring_place *place, const struct request *request) {
    mbarrier_wait(barrier_at(TAKEN + place->index), place->parity ^ 1);
    __syncwarp((u32)ALL_LANES);
    if (threadIdx.x % 32 == 0) {
        *request_at(place->index) = *request;
        mbarrier_arrive(barrier_at(READY + place->index));
    }
    ring_advance(place, REQUESTS);
}

/* Asks for a flow's next key block. */
DEVICE void ask_block(const struct sparse_attn_fwd_params *params, struct flow *flow,
                      const struct flow *other, int group, struct ring_place *place,
                      struct work *latest) {
    look_ahead(params, flow, group, latest);
    const int left = flow->entries - flow->taken, count = minimum(left, BLOCK_KEYS);
    const bool last = flow->ended && left <= BLOCK_KEYS;
    const struct request request = {count | (last ? LAST_BLOCK : 0) |
                                        (other->query < 0 ? ALONE : 0) | (group == 1 ? SECOND : 0),
                                    flow->next, query_batch(params, flow->query),
                                    flow->start + flow->taken};
    ask(place, &request);
    flow->taken += count;
    if (last) {
        begin_flow(flow, flow->start + flow->entries, flow->next);
    }
}

/* The warp that scans: a block of the one flow, then one of the other. Each has its own copy of the
 * code: a slot on its way stays in its register. */
DEVICE void run_scan(const struct sparse_attn_fwd_params *params) {
    struct ring_place place = {0, 0};
    struct flow flows[2];
    struct work latest = first_work(params);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        begin_flow(&flows[i], 0, latest.query);
        scan_open(&flows[i].scan, params, &latest);
        if (i == 0) {
            latest = work_after(params, &latest);
        }
    }
    while (flows[0].query >= 0 || flows[1].query >= 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (flows[i].query >= 0) {
                ask_block(params, &flows[i], &flows[1 - i], i, &place, &latest);
            }
        }
    }
    const struct request end = {NO_MORE, -1, 0, 0};
    ask(&place, &end);
}

/*
 * Copies a key block into its stage, when the stage is free (its lower rows are before the others).
 * Eight threads copy a row of a tile, COPY_ROWS rows at once; rows past the word's count become
 * zeros. `numbers`: the KV rows.
 */
DEVICE void fill_stage(const struct sparse_attn_fwd_params *params, const struct request *request,
                       const int *numbers, const struct ring_place *stage) {
    const u32 thread = threadIdx.x % WARPGROUP;
    const char *const source =
        (const char *)params->kv + 2 * (request->batch * params->kv_batch_stride) + thread % 8 * 16;
    const u32 tile =
        shared_address((u32)(KEYS_OFFSET + stage->index * STAGE_BYTES) + thread / 8 * TILE_PITCH +
                       ((thread % 8) ^ (thread / 8 % 8)) * 16);
    const u32 full = barrier_at(FULL + 2 * stage->index + (request->word & SECOND ? 1 : 0));
    const int first = (int)(thread / 8), count = request->word & COUNT_MASK;
    mbarrier_wait(barrier_at(EMPTY_LOW + stage->index), stage->parity ^ 1);
    if (thread == 0) {
        const struct block_word block = {request->word, request->next};
        *block_word(stage->index) = block;
        mbarrier_arrive(full);
    }
#pragma unroll
    for (int i = 0; i < BLOCK_KEYS / COPY_ROWS; ++i) {
        if (i == LOW_KEYS / COPY_ROWS) {
            mbarrier_wait(barrier_at(EMPTY_HIGH + stage->index), stage->parity ^ 1);
        }
        const bool present = first + i * COPY_ROWS < count;
        const char *const from = source + (u64)(u32)numbers[i] * params->kv_row_bytes;
#pragma unroll
        for (int k = 0; k < TILES; ++k) {
            cp_async_16(tile + (u32)(k * KEY_TILE_BYTES + i * COPY_ROWS * TILE_PITCH),
                        from + k * TILE_PITCH, present ? 16 : 0);
        }
    }
    cp_async_arrive_noinc(full);
}

/* The warps that copy. */
DEVICE void run_copies(const struct sparse_attn_fwd_params *params) {
    struct ring_place place = {0, 0}, stage = {0, 0};
    for (;;) {
        mbarrier_wait(barrier_at(READY + place.index), place.parity);
        const struct request request = *request_at(place.index);
        if (request.word & NO_MORE) {
            break;
        }
        const int *const ring = slot_ring(request.word & SECOND ? 1 : 0);
        int numbers[BLOCK_KEYS / COPY_ROWS];
#pragma unroll
        for (int i = 0; i < BLOCK_KEYS / COPY_ROWS; ++i) {
            const int key = (int)(threadIdx.x % WARPGROUP / 8) + i * COPY_ROWS;
            numbers[i] =
                key < (request.word & COUNT_MASK) ? ring[(request.first + key) & RING_MASK] : 0;
        }
        arrive_warp(TAKEN + place.index);
        fill_stage(params, &request, numbers, &stage);
        ring_advance(&place, REQUESTS);
        ring_advance(&stage, STAGES);
    }
    cp_async_wait_all();
}

/* The gather's warpgroup. */
DEVICE void run_gather(const struct sparse_attn_fwd_params *params) {
    registers_decrease(GATHER_REGISTERS);
    const int warp = __shfl_sync((u32)ALL_LANES, (int)(threadIdx.x % WARPGROUP / 32), 0);
    if (warp < COPY_WARPS) {
        run_copies(params);
    } else if (warp == COPY_WARPS) {
        run_scan(params);
    }
}
