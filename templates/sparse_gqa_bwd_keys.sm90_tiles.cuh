//@use common/base.cuh
//@use common/ring.cuh
//@use common/softmax.cuh
//@use common/warp_arrival.cuh
//@use ptx/math.cuh
//@use ptx/mbarrier.cuh
//@use ptx/named_barrier.cuh
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/stmatrix.cuh
//@use ptx/wgmma.cuh
//@use ptx/wgmma_ss.cuh n = SCORE_ROWS, ta = 0, tb = 0
//@use ptx/wgmma_ss.cuh n = 64, ta = 1, tb = 1
//@use ptx/wgmma_rs.cuh n = DV, tb = 1
//@use ptx/wgmma_rs.cuh n = DQK, tb = 1
//@use sparse_gqa_bwd_keys.block.params.h
//@use sparse_gqa_bwd_keys.sm90_shared.cuh
/* The teams of sparse_gqa_bwd_keys.sm90.cu. */

enum {
    SCORE_VALUES = SCORE_ROWS / 2, /* S^T and dP^T of a thread, at once */
    SCORE_UNITS = SCORE_ROWS / 8,
    SCORE_STEPS = SCORE_ROWS / 16,
    TIMES = 64 / SCORE_ROWS,
    COLUMN_UNROLL = TIMES > 1 ? 1 : 4, /* registers are short */
    QUERY_VALUES = 32,                 /* a column tile of dQ of a thread */
    KEY_VALUES = DQK / 2,              /* dK of a thread */
    VALUE_VALUES = DV / 2,
    UNIT_BYTES = UNIT_ROWS * DQK * 2,
    VECTORS = (DQK + DV) / 8 /* of a thread in KEY_PARTIALS */
};

/* A warpgroup's place. */
struct place {
    int team, part;
};

/* Issues a[64 rows of keys or values] b^T, where b are SCORE_ROWS rows of a stage: S^T or dP^T. */
DEVICE void issue_scores(float *s, u64 a, u64 b, int steps) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        const u32 along = (u32)(step % 4 * STEP_BYTES);
        // clang-format off
        wgmma_ss_n${SCORE_ROWS}_t00(s,
                                    descriptor_advance(a, (u32)(step / 4 * BLOCK_TILE_BYTES) + along),
                                    descriptor_advance(b, (u32)(step / 4 * TILE_BYTES) + along),
                                    step > 0);
        // clang-format on
    }
    wgmma_commit();
}

/* P^T from S^T, in place; `first`: of the tile's units. */
DEVICE void compute_probabilities(float *s, int stage, int first, const struct place *place,
                                  float scale_log2) {
    const int lane = (int)(threadIdx.x % 32), column = lane % 4 * 2;
    const float4 *const rows = (const float4 *)(rows_at(stage) + first * UNIT_ROWS + column);
    const struct tile *const tile = tile_at(stage);
#pragma unroll
    for (int unit = 0; unit < SCORE_UNITS; ++unit) {
        const float4 two = rows[unit * 4];
        float *const values = &s[unit * 4];
        values[0] = exp2_approximate(fmaf(values[0], scale_log2, -two.x));
        values[1] = exp2_approximate(fmaf(values[1], scale_log2, -two.z));
        values[2] = exp2_approximate(fmaf(values[2], scale_log2, -two.x));
        values[3] = exp2_approximate(fmaf(values[3], scale_log2, -two.z));
    }
    if (tile->masked) {
        const int key = place->part * 64 + (int)(threadIdx.x % WARPGROUP / 32 * 16) + lane / 4;
#pragma unroll
        for (int i = 0; i < SCORE_VALUES; ++i) {
            if (key + i / 2 % 2 * 8 >= tile->keys[first + i / 4]) {
                s[i] = 0.0f;
            }
        }
    }
}

/* dS^T from P^T and dP^T, in place of the latter. */
DEVICE void compute_ds(float *dp, const float *p, int stage, int first) {
    const int column = (int)(threadIdx.x % 4 * 2);
    const float4 *const rows = (const float4 *)(rows_at(stage) + first * UNIT_ROWS + column);
#pragma unroll
    for (int unit = 0; unit < SCORE_UNITS; ++unit) {
        const float4 two = rows[unit * 4];
        float *const values = &dp[unit * 4];
        values[0] = p[unit * 4] * (values[0] - two.y);
        values[1] = p[unit * 4 + 1] * (values[1] - two.w);
        values[2] = p[unit * 4 + 2] * (values[2] - two.y);
        values[3] = p[unit * 4 + 3] * (values[3] - two.w);
    }
}

DEVICE void pack(u32 *words, const float *values) {
#pragma unroll
    for (int i = 0; i < SCORE_VALUES / 2; ++i) {
        words[i] = pack_bf16x2(values[2 * i], values[2 * i + 1]);
    }
}

/* Stores dS^T in the team's buffer, for dQ; `time`: which SCORE_ROWS of the rows. */
DEVICE void store_ds(const u32 *words, u32 buffer, const struct place *place, int time) {
    const u32 warp = threadIdx.x % WARPGROUP / 32, lane = threadIdx.x % 32;
    const u32 base =
        shared_address(buffer + (place->part * 64 + warp * 16 + lane % 16) * TILE_PITCH +
                       ((lane / 16) ^ (lane % 8)) * 16);
#pragma unroll
    for (int i = 0; i < SCORE_STEPS; ++i) {
        stmatrix_x4(base ^ (u32)((time * SCORE_STEPS + i) * STEP_BYTES), &words[4 * i]);
    }
}

/* Issues dV += P^T dO and dK += dS^T Q of SCORE_ROWS rows from byte `from` of a stage's column tiles
 * on. */
DEVICE void issue_keys(float *dk, float *dv, const u32 *p, const u32 *ds, int stage, u32 from) {
    const u64 q = columns_descriptor(query_at(stage) + from);
    const u64 grad = columns_descriptor(grad_at(stage) + from);
#pragma unroll
    for (int step = 0; step < SCORE_STEPS; ++step) {
        // clang-format off
        wgmma_rs_n${DV}_t01(dv, &p[4 * step],
                            descriptor_advance(grad, (u32)(step * ROW_STEP_BYTES)), 1);
        // clang-format on
    }
#pragma unroll
    for (int step = 0; step < SCORE_STEPS; ++step) {
        // clang-format off
        wgmma_rs_n${DQK}_t01(dk, &ds[4 * step],
                             descriptor_advance(q, (u32)(step * ROW_STEP_BYTES)), 1);
        // clang-format on
    }
    wgmma_commit();
}

/* SCORE_ROWS of a tile's rows: scores, dV and dK, whose products may be under way at the end; dS. */
DEVICE void run_rows(const struct sparse_gqa_bwd_block_params *params, float *dk, float *dv,
                     int stage, u32 buffer, const struct place *place, int time) {
    const u32 from = (u32)(time * SCORE_ROWS * TILE_PITCH);
    float s[SCORE_VALUES], dp[SCORE_VALUES];
    u32 p[SCORE_VALUES / 2], ds[SCORE_VALUES / 2];
    wgmma_fence();
    issue_scores(s, tile_descriptor((u32)(KEYS_OFFSET + place->part * TILE_BYTES)),
                 tile_descriptor(query_at(stage) + from), DQK / 16);
    issue_scores(dp, tile_descriptor((u32)(VALUES_OFFSET + place->part * TILE_BYTES)),
                 tile_descriptor(grad_at(stage) + from), DV / 16);
    wgmma_wait(1);
    compute_probabilities(s, stage, time * SCORE_UNITS, place, params->scale * LOG2_E);
    pack(p, s);
    wgmma_wait(0);
    compute_ds(dp, s, stage, time * SCORE_UNITS);
    pack(ds, dp);
    wgmma_fence();
    issue_keys(dk, dv, p, ds, stage, from);
    if (DS_BUFFERS == 1 && time == 0) { /* the previous tile's dQ is complete in all warps */
        barrier_sync(TEAM_BARRIER + place->team, PARTS * WARPGROUP);
    }
    store_ds(ds, buffer, place, time);
    if (TIMES > 1) { /* the operands' registers are needed */
        wgmma_wait(0);
    }
}

/* Computes 64 columns of dQ and stores them as partial results of the pairs. */
DEVICE void issue_queries(float *dq, u32 buffer, int column_tile) {
    const u64 ds = columns_descriptor(buffer);
    const u64 keys = columns_descriptor((u32)(KEYS_OFFSET + column_tile * BLOCK_TILE_BYTES));
#pragma unroll
    for (int step = 0; step < BLOCK_KEYS / 16; ++step) {
        wgmma_ss_n64_t11(dq, descriptor_advance(ds, (u32)(step * ROW_STEP_BYTES)),
                         descriptor_advance(keys, (u32)(step * ROW_STEP_BYTES)), step > 0);
    }
    wgmma_commit();
}

DEVICE void store_queries(const struct sparse_gqa_bwd_block_params *params, const float *dq,
                          const int *units, int column_tile) {
    const int lane = (int)(threadIdx.x % 32);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        uint4 *const to = (uint4 *)((char *)params->dq_partials + (i64)units[r] * UNIT_BYTES) +
                          column_tile * 64 + lane;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            u32 x[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float *const pair = &dq[i * 16 + k * 4 + 2 * r];
                x[k] = pack_bf16x2(pair[0] * params->scale, pair[1] * params->scale);
            }
            const uint4 words = {x[0], x[1], x[2], x[3]};
            if (units[r] >= 0 && column_tile * 64 + i * 32 < DQK) {
                to[i * 32] = words;
            }
        }
    }
}

/* A tile of a stage, which it releases. */
DEVICE void run_tile(const struct sparse_gqa_bwd_block_params *params, float *dk, float *dv,
                     int stage, u32 buffer, const struct place *place, bool last) {
    const int warp = (int)(threadIdx.x % WARPGROUP / 32);
    int units[2];
#pragma unroll
    for (int time = 0; time < TIMES; ++time) {
        run_rows(params, dk, dv, stage, buffer, place, time);
    }
    units[0] = tile_at(stage)->unit[2 * warp]; /* late: registers are short */
    units[1] = tile_at(stage)->unit[2 * warp + 1];
    fence_proxy_async();
    barrier_sync(TEAM_BARRIER + place->team, PARTS * WARPGROUP); /* dS is written */
#pragma unroll COLUMN_UNROLL
    for (int i = 0; i < (KEY_TILES + PARTS - 1) / PARTS; ++i) {
        const int column_tile = i * PARTS + place->part;
        if (KEY_TILES % PARTS == 0 || column_tile < KEY_TILES) {
            float dq[QUERY_VALUES];
            wgmma_fence();
            issue_queries(dq, buffer, column_tile);
            wgmma_wait(0);
            if (i == 0) {
                arrive_warp(barrier_at(EMPTY + stage), 1);
            }
            store_queries(params, dq, units, column_tile);
        } else if (i == 0) { /* fewer column tiles than warpgroups */
            wgmma_wait(0);
            arrive_warp(barrier_at(EMPTY + stage), 1);
        }
    }
    if (last) {
        arrive_warp(barrier_at(KV_EMPTY), 1);
    }
}

/* Stores the sums of an item. */
DEVICE void store_sums(float *to, const float *sums, int values, float scale) {
#pragma unroll
    for (int i = 0; i < values / 4; ++i) {
        const float *const from = &sums[i / 2 * 8 + i % 2 * 2];
        const float4 vector = {from[0] * scale, from[1] * scale, from[4] * scale, from[5] * scale};
        ((float4 *)to)[i * WARPGROUP] = vector;
    }
}

DEVICE void store_keys(const struct sparse_gqa_bwd_block_params *params, const float *dk,
                       const float *dv, int item, const struct place *place) {
    const int warpgroup = place->team * PARTS + place->part;
    float *const to =
        params->key_partials + (((i64)item * (TEAMS * PARTS) + warpgroup) * VECTORS * WARPGROUP +
                                threadIdx.x % WARPGROUP) *
                                   4;
    store_sums(to, dk, KEY_VALUES, params->scale);
    store_sums(to + DQK / 8 * WARPGROUP * 4, dv, VALUE_VALUES, 1.0f);
}

DEVICE void set_zeros(float *values, int count) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
        values[i] = 0.0f;
    }
}

DEVICE void run_consumer(const struct sparse_gqa_bwd_block_params *params, int team, int part) {
    struct ring_place stage = {team, 0};
    const struct place place = {team, part};
    float dk[KEY_VALUES], dv[VALUE_VALUES];
    int parity = 0, buffer = 0;
    while (true) {
        mbarrier_wait(barrier_at(FULL + stage.index), stage.parity);
        const int flags = tile_at(stage.index)->flags, item = tile_at(stage.index)->item;
        if (flags & NO_MORE_TILES) {
            break;
        }
        if (flags & FIRST_TILE) {
            set_zeros(dk, KEY_VALUES);
            set_zeros(dv, VALUE_VALUES);
            mbarrier_wait(barrier_at(KV_FULL), parity);
            parity ^= 1;
        }
        if (!(flags & NO_ROWS)) {
            run_tile(params, dk, dv, stage.index, ds_at(team, buffer), &place, flags & LAST_TILE);
            buffer = (buffer + 1) % DS_BUFFERS;
        } else {
            arrive_warp(barrier_at(EMPTY + stage.index), 1);
            if (flags & LAST_TILE) {
                arrive_warp(barrier_at(KV_EMPTY), 1);
            }
        }
        if (flags & LAST_TILE) {
            store_keys(params, dk, dv, item, &place);
        }
        stage.index += TEAMS;
        if (stage.index >= STAGES) {
            stage.index -= STAGES;
            stage.parity ^= 1;
        }
    }
}
