/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit sparse_attn_bwd_rows:heads=64,dv=512 --arch sm_90a
 *
 * spec     sparse_attn_bwd_rows:heads=64,dv=512
 * arch     sm_90a
 * variant  rows
 * kernel   smelt_sparse_attn_bwd_rows_h64_v512
 * knobs (by the spec, or by rule)
 * shared memory (offset, bytes)
 *   SHARED_BYTES                     0  of 232448 that a block may have on sm_90a
 * launch
 *   256 threads a block, 2 blocks resident per multiprocessor, at most 128 registers a thread
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 2,  /* resident at once, at least */
    HEADS = 64,                     /* query heads */
    DV = 512,                       /* width of a value, elements */
    DEPENDENT_LAUNCH = 1,           /* 1: it may be launched early */
    ENTRIES = 16,                   /* queries of a thread block */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    SHARED_BYTES = 0,               /* the arena's size */
};

#define KERNEL_NAME smelt_sparse_attn_bwd_rows_h64_v512

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

#line 2 "templates/common/softmax.cuh"
/*
 * Numbers of a streaming softmax (Milakov and Gimelshein, arXiv 1805.02867) in powers of two, whose
 * exponentials are one instruction. P is relative to a maximum, which begins as the true one of the
 * first scores, so that the largest P is 1 and loses nothing when it is rounded.
 */

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
#define MINUS_INFINITY (-__int_as_float(0x7f800000))

/* The maximum may lag behind the true one by so many powers of two before sums and outputs are
 * rescaled: P then stays below 2^8, and most blocks rescale nothing. */
#define RESCALE_THRESHOLD 8.0f

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

#line 2 "templates/ptx/shared.cuh"

/* The arena's 32-bit address in the shared state space, which the wrappers below take (PTX ISA,
 * "State Spaces", .shared). */
DEVICE u32 shared_address(u32 offset) {
    return (u32)__cvta_generic_to_shared(arena) + offset;
}

#line 2 "templates/ptx/memory.cuh"

/* 16 bytes to global memory that nobody reads soon: gone first from the caches (PTX ISA, "st",
 * .cs). The address is a multiple of 16. */
DEVICE void store_streaming_16(void *to, const u32 *values) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3])
                 : "memory");
}

/* The same of 8 bytes, at a multiple of 8. */
DEVICE void store_streaming_8(void *to, const u32 *values) {
    asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};"
                 :
                 : "l"(to), "r"(values[0]), "r"(values[1])
                 : "memory");
}

/* 16 bytes of global memory that no thread writes while the kernel runs (PTX ISA, "ld.global.nc").
 */
DEVICE void load_read_only_16(u32 *values, const void *from) {
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
        : "l"(from));
}

/* 4 bytes of global memory past L1, which may be stale (PTX ISA, "ld", .cg). */
DEVICE u32 load_l2_32(const void *from) {
    u32 value;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

/* 16 bytes of shared memory at once, 16-byte aligned (PTX ISA, "ld", .shared). */
DEVICE void load_shared_16(u32 *values, u32 address) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
                 : "r"(address)
                 : "memory");
}

#line 1 "templates/common/work.params.h"
/*
 * Which queries a kernel computes and where their index rows are: the part of the arguments that
 * all kernels driven by queries have in common, what common/work.cuh reads. Included by the host
 * code and, by the generator, by the CUDA source: plain C types only. Strides count elements.
 */
struct work_params {
    const int *indices;     /* [batches, tokens, width] */
    const int *topk_length; /* [batches, tokens] or null */
    const int *queries;     /* query list: batch * tokens + token, or null for all queries */
    const int *query_count; /* its length in device memory, or null for query_capacity */
    const int *query_range; /* the first entry to take and how many, in device memory, instead of
                               query_count; or null */
    const int *extents;     /* with entry i of `queries`: slots up to its last valid one; or null */
    long long indices_batch_stride, indices_token_stride;
    long long topk_length_batch_stride, topk_length_token_stride;
    int batches, tokens, rows, width;
    int query_capacity; /* entries of `queries`, or batches * tokens */
    int overlaps;       /* 1: launched early, behind a kernel of the same call: all it reads was
                           there when it began, and it must not end before that one */
};

#line 4 "templates/common/queries.cuh"
/*
 * Which entries of the query list a kernel takes, and a query's index row. The list and what
 * belongs to it are read past L1: an earlier kernel of the stream may have written them while this
 * one began.
 */

/* A part of the list. */
struct query_range {
    int first; /* entry */
    int queries;
};

DEVICE struct query_range find_query_range(const struct work_params *params) {
    struct query_range range = {0, params->query_capacity};
    if (params->query_range) {
        range.first = (int)load_l2_32(&params->query_range[0]);
        range.queries = (int)load_l2_32(&params->query_range[1]);
    } else if (params->query_count) {
        range.queries = maximum(minimum((int)load_l2_32(params->query_count), range.queries), 0);
    }
    return range;
}

/* A query's batch, without a division in the common case of one. */
DEVICE int query_batch(const struct work_params *params, int query) {
    return params->batches > 1 ? query / params->tokens : 0;
}

/* Where a query's index row begins. */
DEVICE const int *index_row(const struct work_params *params, int query) {
    const int batch = query_batch(params, query), token = query - batch * params->tokens;
    return params->indices + batch * params->indices_batch_stride +
           token * params->indices_token_stride;
}

/* How many of its slots are to be looked at: up to the last valid one where the list tells it, else
 * the width, cut by topk_length. `entry`: of the list, the query's. */
DEVICE int index_slots(const struct work_params *params, int entry, int query) {
    if (params->extents) {
        return (int)load_l2_32(&params->extents[entry]);
    }
    if (!params->topk_length) {
        return params->width;
    }
    const int batch = query_batch(params, query), token = query - batch * params->tokens;
    const int length = params->topk_length[batch * params->topk_length_batch_stride +
                                           token * params->topk_length_token_stride];
    return minimum(maximum(length, 0), params->width);
}

#line 5 "templates/sparse_attn_bwd_lists.queries.cuh"
/*
 * Which query each entry is that the backward pass takes, for the kernels that take groups of them.
 */

/* The query of entry number `item` of those taken, or -1; `entry`: where it stands in the query
 * list. last_range: as sparse_attn_bwd_lists.params.h has it. */
DEVICE int find_query(const struct work_params *work, const int *last_range, u32 item, int *entry) {
    struct query_range range = find_query_range(work);
    if (last_range) {
        range.queries = (int)load_l2_32(&last_range[0]) + (int)load_l2_32(&last_range[1]);
    }
    *entry = 0;
    if (range.queries <= 0 || item >= (u32)range.queries) {
        return -1;
    }
    *entry = range.first + (int)item;
    const int query = work->queries ? (int)load_l2_32(&work->queries[*entry]) : *entry;
    return query >= 0 && query < work->batches * work->tokens ? query : -1;
}

#line 2 "templates/sparse_attn_bwd_rows.params.h"
/*
 * Arguments of the sparse_attn_bwd_rows kernel. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. Strides
 * count elements. See sparse_attn_bwd.params.h for what groups and statistics are.
 */
struct sparse_attn_bwd_rows_params {
    struct work_params work; /* overlaps: the kernel before it makes the lists, of which it reads
                                nothing */
    const int *last_range;   /* as sparse_attn_bwd_lists.params.h has it */
    const void *out;         /* [batches, tokens, HEADS, DV] bf16 */
    const void *grad_out;    /* [batches, tokens, HEADS, DV] bf16 */
    const float *lse;        /* [batches, tokens, HEADS] natural, without the sink */
    const float *sink;       /* [HEADS], or null */
    float *statistics;       /* [entries, query_rows, 2] */
    float *dsink_parts;      /* [ceil(entries / ENTRIES), HEADS], or null: no dsink is wanted */
    long long out_batch_stride, out_token_stride, out_head_stride;
    long long grad_out_batch_stride, grad_out_token_stride, grad_out_head_stride;
    long long lse_batch_stride, lse_token_stride, lse_head_stride;
    int entries;    /* groups times their queries */
    int query_rows; /* heads, and what the main kernel pads them to */
};

#line 9 "templates/sparse_attn_bwd_rows.cu"
/*
 * What the backward pass of sparse attention must know of each row (a query and a head) before it
 * begins: the base of its probabilities and delta, and its part in the sink's gradient. Meaning:
 * include/smelt/sparse_attn.h.
 *
 *   base  = log2( exp(lse) + exp(sink) )     p = 2^(score in powers of two - base)
 *   delta = sum over d of out[d] * grad_out[d]
 *   dsink = -sum over queries of delta * exp(sink) / (exp(lse) + exp(sink))
 *
 * Rows that do not exist (of no query, or past the last head) get base = +inf, delta = 0: they then
 * have no probability above 0. Grid: a block for ENTRIES entries. A warp takes a head at a time and
 * goes through the entries, LOADED of them under way; lane i keeps what was found of entry i. A
 * block's share of dsink is summed in the entries' order, whatever the grid.
 *
 * It runs beside the kernel that makes the lists, since it finds its queries by itself: what binds
 * here is the memory, and there it is not. The main kernel behind it waits for both.
 */

enum {
    WARPS = THREADS / 32,
    ALL_LANES = -1,
    CHUNKS = DV / 8, /* of 16 bytes in a row */
    LANE_CHUNKS = (CHUNKS + 31) / 32,
    LOADED = 4
};

/* The product of two pairs of bf16, added up. */
DEVICE float multiply_pairs(u32 a, u32 b) {
    return fmaf(__int_as_float((int)(a << 16)), __int_as_float((int)(b << 16)),
                __int_as_float((int)(a & 0xffff0000u)) * __int_as_float((int)(b & 0xffff0000u)));
}

/* Where a row begins, in bytes. */
DEVICE i64 row_offset(const struct sparse_attn_bwd_rows_params *params, int query, int head,
                      i64 batch_stride, i64 token_stride, i64 head_stride) {
    const int batch = query_batch(&params->work, query),
              token = query - batch * params->work.tokens;
    return 2 * (batch * batch_stride + token * token_stride + head * head_stride);
}

/* This lane's 16-byte chunks of a row of out and of grad_out; zeros where there are none. */
DEVICE void load_row(u32 *out, u32 *grad, const struct sparse_attn_bwd_rows_params *params,
                     int query, int head) {
    const int lane = (int)threadIdx.x % 32;
    const char *const out_row =
        (const char *)params->out + row_offset(params, query, head, params->out_batch_stride,
                                               params->out_token_stride, params->out_head_stride);
    const char *const grad_row =
        (const char *)params->grad_out +
        row_offset(params, query, head, params->grad_out_batch_stride,
                   params->grad_out_token_stride, params->grad_out_head_stride);
#pragma unroll
    for (int i = 0; i < LANE_CHUNKS; ++i) {
        const int chunk = lane + i * 32;
        if (chunk < CHUNKS) {
            load_read_only_16(&out[i * 4], out_row + chunk * 16);
            load_read_only_16(&grad[i * 4], grad_row + chunk * 16);
        }
    }
}

/* delta of this lane's entry, lane i's being entry i; 0 of no query. By whole warps. */
DEVICE float find_delta(const struct sparse_attn_bwd_rows_params *params, int query, int head) {
    const int lane = (int)threadIdx.x % 32;
    float delta = 0.0f;
#pragma unroll 1
    for (int begin = 0; begin < ENTRIES; begin += LOADED) {
        u32 out[LOADED][LANE_CHUNKS * 4], grad[LOADED][LANE_CHUNKS * 4];
#pragma unroll
        for (int i = 0; i < LOADED; ++i) {
            const int other = __shfl_sync((u32)ALL_LANES, query, begin + i);
#pragma unroll
            for (int k = 0; k < LANE_CHUNKS * 4; ++k) {
                out[i][k] = grad[i][k] = 0;
            }
            if (other >= 0) {
                load_row(out[i], grad[i], params, other, head);
            }
        }
#pragma unroll
        for (int i = 0; i < LOADED; ++i) {
            float sum = 0.0f;
#pragma unroll
            for (int k = 0; k < LANE_CHUNKS * 4; ++k) {
                sum += multiply_pairs(out[i][k], grad[i][k]);
            }
            sum = warp_sum(sum);
            delta = lane == begin + i ? sum : delta;
        }
    }
    return delta;
}

/* The base of a row of a query with a valid slot, and the sink's share in its probabilities. */
DEVICE float find_base(const struct sparse_attn_bwd_rows_params *params, float lse, int head,
                       float *share) {
    const float own = lse * LOG2_E;
    const float sink = params->sink ? params->sink[head] * LOG2_E : MINUS_INFINITY;
    const float larger = fmaxf(own, sink), smaller = fminf(own, sink);
    *share = 0.0f;
    if (sink == MINUS_INFINITY) {
        return own;
    }
    if (sink == -MINUS_INFINITY) {
        *share = 1.0f;
        return sink;
    }
    const float base = larger + log2_approximate(1.0f + exp2_approximate(smaller - larger));
    *share = exp2_approximate(sink - base);
    return base;
}

/* A head of all this block's entries: statistics, and dsink's part. By whole warps; `query`: of
 * this lane's entry. */
DEVICE void find_head(const struct sparse_attn_bwd_rows_params *params, int query, int head) {
    const int lane = (int)threadIdx.x % 32, entry = (int)blockIdx.x * ENTRIES + lane;
    float base = -MINUS_INFINITY, delta = 0.0f, share = 0.0f;
    if (head < HEADS) {
        delta = find_delta(params, query, head);
        if (query >= 0) {
            const int batch = query_batch(&params->work, query);
            const int token = query - batch * params->work.tokens;
            const float lse =
                params->lse[batch * params->lse_batch_stride + token * params->lse_token_stride +
                            head * params->lse_head_stride];
            if (lse != MINUS_INFINITY) { /* a query with a valid slot */
                base = find_base(params, lse, head, &share);
            }
        }
    }
    if (lane < ENTRIES && entry < params->entries) {
        const float2 row = {base, delta};
        *(float2 *)&params->statistics[2 * ((i64)entry * params->query_rows + head)] = row;
    }
    if (params->dsink_parts && head < HEADS) {
        const float part = warp_sum(share > 0.0f ? -delta * share : 0.0f);
        if (lane == 0) {
            params->dsink_parts[(i64)blockIdx.x * HEADS + head] = part;
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct sparse_attn_bwd_rows_params params) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int entry = (int)blockIdx.x * ENTRIES + lane;
    int query = -1, listed;
    if (lane < ENTRIES && entry < params.entries) {
        query = find_query(&params.work, params.last_range, (u32)entry, &listed);
    }
#pragma unroll 1
    for (int head = warp; head < params.query_rows; head += WARPS) {
        find_head(&params, query, head);
    }
    /* It ends after the kernel that it overlaps. */
    if (DEPENDENT_LAUNCH && params.work.overlaps && blockIdx.x == gridDim.x - 1 &&
        threadIdx.x == 0) {
        grid_wait();
    }
}
