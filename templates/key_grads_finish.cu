//@use common/base.cuh
//@use common/warp_sums.cuh
//@use ptx/grid.cuh
//@use ptx/math.cuh
//@use common/key_columns.cuh
//@use key_grads_finish.params.h
//@use key_grads_finish.slices.cuh
/*
 * The last kernel of a backward pass: stores a gradient by keys (sparse_attn's dkv, indexer_bwd's
 * dk; `dkv` below) from its fp32 sums, whose columns are in the order of
 * common/key_columns.cuh. For sparse_attn also dsink from its parts, and the rows of dq that
 * were computed in slices. Meaning: include/smelt/sparse_attn.h, include/smelt/indexer_bwd.h.
 *
 * Any grid size; a thread converts 8 columns of a row at a time, with a grid stride. A warp sums a
 * head's parts of dsink in an order that only their number determines. Launched with PDL, it first
 * waits for the previous kernels, whose sums it reads.
 */

enum { CHUNKS = DQK / 8 };

/* Loads eight columns of a row from their sums: pairs that are 4 positions apart. */
DEVICE void load_sums(float *columns, const float *row, int chunk) {
    const float *const from = row + position_of_eight(chunk);
#pragma unroll
    for (int c = 0; c < 4; ++c) {
        const float2 pair = *(const float2 *)&from[c * 4];
        columns[c * 2] = pair.x;
        columns[c * 2 + 1] = pair.y;
    }
}

DEVICE void store_fp32(float *to, const float *columns, bool add) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float4 *const place = (float4 *)&to[half * 4];
        const float *const from = &columns[half * 4];
        const float4 nothing = {0.0f, 0.0f, 0.0f, 0.0f};
        const float4 before = add ? *place : nothing;
        const float4 after = {before.x + from[0], before.y + from[1], before.z + from[2],
                              before.w + from[3]};
        *place = after;
    }
}

/* Converts chunk `item` of all rows' chunks. */
DEVICE void finish_chunk(const struct key_grads_finish_params *params, i64 item) {
    const i64 key = item / CHUNKS;
    const int chunk = (int)(item - key * CHUNKS);
    const i64 table = key / params->rows, row = key - table * params->rows;
    const i64 batch = params->key_heads > 1 ? table / params->key_heads : table;
    const i64 head = params->key_heads > 1 ? table - batch * params->key_heads : 0;
    const i64 to = batch * params->dkv_batch_stride + row * params->dkv_row_stride +
                   head * params->dkv_head_stride + chunk * 8;
    float columns[8];
    load_sums(columns, params->sums + key * DQK, chunk);
    if (params->mode == FINISH_BF16) {
        store_bf16((char *)params->dkv + 2 * to, columns);
    } else {
        store_fp32((float *)params->dkv + to, columns, params->mode == FINISH_ADD);
    }
}

/* The sum of a head's parts of dsink. By whole warps. */
DEVICE void finish_dsink(const struct key_grads_finish_params *params, int head) {
    const int lane = (int)threadIdx.x % 32;
    float sum = 0.0f;
#pragma unroll 8
    for (int part = lane; part < params->parts; part += 32) {
        sum += params->dsink_parts[(i64)part * params->heads + head];
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        params->dsink[head] = sum;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct key_grads_finish_params params) {
    if (PDL) {
        grid_wait();
    }
    const i64 thread = (i64)blockIdx.x * THREADS + threadIdx.x, threads = (i64)gridDim.x * THREADS;
    const i64 items = (i64)params.batches * maximum(params.key_heads, 1) * params.rows * CHUNKS;
    if (params.dsink) {
#pragma unroll 1
        for (i64 head = thread / 32; head < params.heads; head += threads / 32) {
            finish_dsink(&params, (int)head);
        }
    }
    const int sliced = params.dq.items * params.dq.sides * (ITEM_ROWS * ROW_CHUNKS);
#pragma unroll 1
    for (i64 i = thread; i < sliced; i += threads) {
        add_slices(&params.dq, (int)i);
    }
#pragma unroll 1
    for (i64 item = thread; item < items; item += threads) {
        finish_chunk(&params, item);
    }
}
