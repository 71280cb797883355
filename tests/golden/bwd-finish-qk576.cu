/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_attn_bwd_finish:dqk=576 --arch sm_90a
 *
 * spec     sparse_attn_bwd_finish:dqk=576
 * arch     sm_90a
 * variant  finish
 * kernel   smelt_sparse_attn_bwd_finish_qk576
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   SHARED_BYTES                     0  of 232448 that a block may have on sm_90a
 * launch
 *   256 threads a block, 6 blocks resident per multiprocessor, at most 40 registers a thread
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 6,  /* resident at once, at least */
    DQK = 576,                      /* width of a KV row, elements */
    DEPENDENT_LAUNCH = 1,           /* 1: is launched early, and waits */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    SHARED_BYTES = 0,               /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_attn_bwd_finish_qk576

#line 1 "templates/common/base.cuh"
/* Names every part uses: short integer types, function kinds, the shared-memory arena. */

typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#ifdef __cplusplus
#define KERNEL extern "C" __global__
#else
#define KERNEL __global__
#endif
#define DEVICE static __device__ __forceinline__

/* The one dynamic shared-memory array. The plan's *_OFFSET constants are byte offsets into it. */
extern __shared__ __align__(1024) unsigned char arena[];

DEVICE int minimum(int a, int b) {
    return a < b ? a : b;
}

DEVICE int maximum(int a, int b) {
    return a > b ? a : b;
}

#line 2 "templates/common/warp_sums.cuh"

/* The sum and the maximum of a float of each lane, the same bits in all of them. By whole warps. */

DEVICE float warp_sum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
}

DEVICE float warp_maximum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}

#line 2 "templates/ptx/grid.cuh"

/* Lets the next kernel of the stream start, when all blocks have said so or ended; nothing is
 * promised about this one's results (PTX ISA, "griddepcontrol"). Without effect where the launch
 * did not ask for it. */
DEVICE void grid_launch_dependents(void) {
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

/* Waits until the kernels before this one in the stream are complete and their results visible. */
DEVICE void grid_wait(void) {
    asm volatile("griddepcontrol.wait;" : : : "memory");
}

#line 2 "templates/ptx/math.cuh"

/* 2^x; 0 for -inf, +inf for +inf (PTX ISA, "ex2.approx.ftz.f32": within 2 ulp). */
DEVICE float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* log2(x); -inf for 0 (PTX ISA, "lg2.approx.f32": absolute error 2^-22 near 1). */
DEVICE float log2_approximate(float x) {
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* The smaller; NaN when one of them is (PTX ISA, "min", .NaN). */
DEVICE float minimum_nan(float x, float y) {
    float z;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

/* Two floats rounded to the nearest bf16, `low` in the lower half (PTX ISA, "cvt"). */
DEVICE u32 pack_bf16x2(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

#line 2 "templates/sparse_attn_bwd.columns.cuh"
/*
 * The order of columns in rows of dkv while they are summed. The fragment of a 16 x 32 accumulator
 * (four m16n8 tiles) gives lane 4r + c columns 8i + 2c + e, i = 0..3, e = 0..1, of its rows. They
 * stand at position 16 (i / 2) + 4c + 2 (i % 2) + e of every 32: a lane's values of i = 0, 1 and of
 * i = 2, 3 are 16 contiguous bytes each of fp32, and a quad's 64.
 */

/* Where the first of eight columns stands; the pairs behind it follow 4 positions apart each. */
DEVICE int position_of_eight(int eight) {
    return eight / 4 * 32 + eight % 4 / 2 * 16 + eight % 2 * 2;
}

#line 1 "templates/sparse_attn_bwd_finish.params.h"
/*
 * Arguments of the sparse_attn_bwd_finish kernel. Included by the host code and, by the generator,
 * by the CUDA source: plain C types only. Strides count elements.
 */
enum { FINISH_BF16, FINISH_FP32, FINISH_ADD };

/* Rows of dq that were computed in slices (sparse_attn_bwd.slices.cuh), as sparse_attn_bwd.params.h
 * has them. */
struct dq_slices {
    const void *slices;
    const int *members, *counts;
    void *dq;
    long long dq_batch_stride, dq_token_stride, dq_head_stride;
    int items; /* that are sliced, of pairs pairs; 0: none */
    int takers;
    int sides;                      /* 2: of pairs */
    int group_queries, head_blocks; /* queries and items of a group */
    int member_rows;                /* rows of a query in an item */
    int heads, tokens;
};

struct sparse_attn_bwd_finish_params {
    struct dq_slices dq;
    const float *sums;        /* [batches * rows, DQK] columns in the order of
                                 sparse_attn_bwd.columns.cuh */
    void *dkv;                /* [batches, rows, DQK], of the kind `mode` says */
    const float *dsink_parts; /* [parts, heads], or null */
    float *dsink;             /* [heads], or null */
    long long dkv_batch_stride, dkv_row_stride;
    int mode; /* bf16 or fp32 are overwritten, or fp32 is added to */
    int batches, rows;
    int heads, parts;
};

#line 2 "templates/sparse_attn_bwd.slices.cuh"
/*
 * Slices: items that are left when every thread block has had as many whole ones as each other are
 * shared between thread blocks, each of which takes a part of their keys. Item i is as long as
 * `takers`, whatever its list: of all lengths together each taker has its share, which so begins
 * and ends anywhere in an item, and is of two items at most where items are fewer than takers.
 *
 * What a taker has of an item's dq stands, as bf16, at slice number taker + item of `slices`, 64
 * rows of DQK. The kernel behind adds them up in the takers' order. (With pairs items and takers
 * are those of a cluster, two of each; slices are numbered accordingly.)
 */

/* How many of an item's key blocks are ahead of a taker's. */
DEVICE int blocks_before(int blocks, int item, int items, int taker, int takers) {
    const int position = minimum(maximum(taker * items - item * takers, 0), takers);
    return (int)((u32)blocks * (u32)position / (u32)takers);
}

#line 5 "templates/sparse_attn_bwd_finish.slices.cuh"
/*
 * Rows of dq out of their slices, of sparse_attn_bwd_finish.cu: a thread adds 8 columns of a row.
 */

enum {
    ITEM_ROWS = 64,
    ROW_CHUNKS = DQK / 8, /* of 16 bytes */
    BLOCK_KEYS = 64,
    LOADED = 2 /* slices under way */
};

/* An item's slices, those of its takers that have any of its key blocks. */
struct slice_walk {
    int item, blocks;  /* of pairs: of the cluster's; key blocks */
    int taker, before; /* the next one, and the key blocks ahead of it */
};

/* The next slice's number, or -1: none is left. */
DEVICE int next_slice(const struct dq_slices *slices, struct slice_walk *walk) {
    while (walk->before < walk->blocks) {
        const int taker = walk->taker++, before = walk->before;
        walk->before =
            blocks_before(walk->blocks, walk->item, slices->items, taker + 1, slices->takers);
        if (walk->before > before) {
            return taker + walk->item;
        }
    }
    return -1;
}

/* Where a row of dq begins, or null for none. */
DEVICE char *sliced_row(const struct dq_slices *slices, int item, int row) {
    const int group = item / slices->head_blocks, member = row / slices->member_rows;
    const int query = slices->members[group * slices->group_queries + member];
    const int head = item % slices->head_blocks * ITEM_ROWS + row % slices->member_rows;
    if (query < 0 || head >= slices->heads) {
        return 0;
    }
    return (char *)slices->dq +
           2 * (query / slices->tokens * slices->dq_batch_stride +
                query % slices->tokens * slices->dq_token_stride + head * slices->dq_head_stride);
}

DEVICE void store_bf16(void *to, const float *columns) {
    uint4 packed;
    packed.x = pack_bf16x2(columns[0], columns[1]);
    packed.y = pack_bf16x2(columns[2], columns[3]);
    packed.z = pack_bf16x2(columns[4], columns[5]);
    packed.w = pack_bf16x2(columns[6], columns[7]);
    *(uint4 *)to = packed;
}

/* Number `i` of the chunks of all sliced items' rows. */
DEVICE void add_slices(const struct dq_slices *slices, int i) {
    const int chunk = i % ROW_CHUNKS, row = i / ROW_CHUNKS % ITEM_ROWS;
    const int item = i / ROW_CHUNKS / ITEM_ROWS, side = item % slices->sides;
    const int keys = slices->counts[item / slices->head_blocks];
    char *const to = sliced_row(slices, item, row);
    if (keys == 0 || !to) {
        return; /* the main kernel has written zeros */
    }
    struct slice_walk walk = {item / slices->sides, (keys + BLOCK_KEYS - 1) / BLOCK_KEYS, 0, 0};
    walk.taker = walk.item * slices->takers / slices->items;
    float sums[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    while (walk.before < walk.blocks) {
        uint4 parts[LOADED];
#pragma unroll
        for (int k = 0; k < LOADED; ++k) {
            const int slice = next_slice(slices, &walk);
            const i64 at = ((i64)slice * slices->sides + side) * ITEM_ROWS + row;
            const uint4 nothing = {0, 0, 0, 0};
            parts[k] = nothing;
            if (slice >= 0) {
                parts[k] =
                    *(const uint4 *)((const char *)slices->slices + at * (DQK * 2) + chunk * 16);
            }
        }
#pragma unroll
        for (int k = 0; k < LOADED * 4; ++k) {
            const u32 words[4] = {parts[k / 4].x, parts[k / 4].y, parts[k / 4].z, parts[k / 4].w};
            const u32 pair = words[k % 4];
            sums[k % 4 * 2] += __int_as_float((int)(pair << 16));
            sums[k % 4 * 2 + 1] += __int_as_float((int)(pair & 0xffff0000u));
        }
    }
    store_bf16(to + chunk * 16, sums);
}

#line 8 "templates/sparse_attn_bwd_finish.cu"
/*
 * The last step of the backward pass of sparse attention: dkv out of its fp32 sums, whose columns
 * are in the order of sparse_attn_bwd.columns.cuh, dsink out of its parts, and rows of dq out of
 * their slices. Meaning: include/smelt/sparse_attn.h.
 *
 * Grid: as many blocks as the operator likes; a thread makes 8 columns of a row at a time, and goes
 * on a grid further. A warp sums a head's parts of dsink, in an order that their number alone
 * fixes. Launched early, it waits first for the kernels before it, whose sums it reads.
 */

enum { CHUNKS = DQK / 8 };

/* Eight columns of a row, out of their sums: pairs that stand 4 positions apart. */
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

/* Number `item` of all rows' chunks. */
DEVICE void finish_chunk(const struct sparse_attn_bwd_finish_params *params, i64 item) {
    const i64 key = item / CHUNKS;
    const int chunk = (int)(item - key * CHUNKS);
    const i64 batch = key / params->rows, row = key - batch * params->rows;
    const i64 to = batch * params->dkv_batch_stride + row * params->dkv_row_stride + chunk * 8;
    float columns[8];
    load_sums(columns, params->sums + key * DQK, chunk);
    if (params->mode == FINISH_BF16) {
        store_bf16((char *)params->dkv + 2 * to, columns);
    } else {
        store_fp32((float *)params->dkv + to, columns, params->mode == FINISH_ADD);
    }
}

/* By whole warps. */
DEVICE void finish_dsink(const struct sparse_attn_bwd_finish_params *params, int head) {
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
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_finish_params params) {
    if (DEPENDENT_LAUNCH) {
        grid_wait();
    }
    const i64 thread = (i64)blockIdx.x * THREADS + threadIdx.x, threads = (i64)gridDim.x * THREADS;
    const i64 items = (i64)params.batches * params.rows * CHUNKS;
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
