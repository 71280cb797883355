//@use common/base.cuh
//@use common/work.params.h
//@use common/key_columns.cuh
//@use sparse_gqa_sums.params.h
/*
 * Backward pass of sparse_gqa, after the block-stationary kernel: sums of dk and dv from the partial
 * sums of a list's items, in the order of its queries.
 *
 * A CTA takes a list, a KV head that shares it, 64 of its block's keys, and four vectors at a time; any
 * grid size. A thread has the values that the thread of its number had in the other kernel
 * (sparse_gqa_bwd_keys.sm90.cu, KEY_PARTIALS).
 */

enum {
    GROUPS = KV_HEADS / LIST_HEADS,
    PARTS = BLOCK_KEYS / 64,
    TEAMS = 2 / PARTS,
    VECTORS = (DQK + DV) / 8,
    AT_ONCE = 4, /* vectors of a CTA */
    STEPS = VECTORS / AT_ONCE
};

DEVICE void add_vector(float4 *sum, float4 value) {
    sum->x += value.x;
    sum->y += value.y;
    sum->z += value.z;
    sum->w += value.w;
}

/* Stores a vector of a key's row. */
DEVICE void store_vector(const struct sparse_gqa_sums_params *params, int vector, i64 row,
                         float4 sum) {
    const bool values = vector >= DQK / 8;
    const int columns = values ? DV : DQK, pair = (values ? vector - DQK / 8 : vector) / 2;
    float4 *const to = (float4 *)((values ? params->dv_sums : params->dk_sums) + row * columns +
                                  position_of_eight(2 * pair) + threadIdx.x % 4 * 4);
    if (params->adds) {
        add_vector(&sum, *to);
    }
    *to = sum;
}

/* Sums vectors from `first` on of a list's part, for one of its KV heads. */
DEVICE void sum_part(const struct sparse_gqa_sums_params *params, int list, int list_head, int part,
                     int first) {
    const int begin = params->items[list], end = params->items[list + 1];
    const int group = list / params->blocks, block = list - group * params->blocks;
    const int kv_head = group % GROUPS * LIST_HEADS + list_head;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    float4 sums[AT_ONCE];
    for (int i = 0; i < AT_ONCE; ++i) {
        const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f};
        sums[i] = zeros;
    }
    for (int item = begin; item < end; ++item) {
        for (int team = 0; team < TEAMS; ++team) {
            const i64 warpgroup =
                ((i64)item * LIST_HEADS + list_head) * (TEAMS * PARTS) + team * PARTS + part;
            const float4 *const from = (const float4 *)params->key_partials +
                                       (warpgroup * VECTORS + first) * WARPGROUP + threadIdx.x;
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                add_vector(&sums[i], from[i * WARPGROUP]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
        const int key = part * 64 + warp * 16 + lane / 4 + (first + i) % 2 * 8;
        const i64 row = (i64)block * BLOCK_KEYS + key;
        if (row < params->rows && (begin < end || !params->adds)) {
            store_vector(params, first + i,
                         ((i64)(group / GROUPS) * KV_HEADS + kv_head) * params->rows + row,
                         sums[i]);
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_gqa_sums_params params) {
    enum { OF_HEAD = STEPS * PARTS };
    const i64 heads = (i64)params.lists * LIST_HEADS; /* of all lists */
    for (i64 i = blockIdx.x; i < heads * OF_HEAD; i += gridDim.x) {
        const i64 head = i / OF_HEAD;
        const int step = (int)(i - head * OF_HEAD);
        sum_part(&params, (int)(head / LIST_HEADS), (int)(head % LIST_HEADS), step / STEPS,
                 step % STEPS * AT_ONCE);
    }
}
