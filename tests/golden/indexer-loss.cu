/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_loss_rows:topk=2048 --arch sm_90a
 *
 * spec     indexer_loss_rows:topk=2048
 * arch     sm_90a
 * variant  rows
 * kernel   smelt_indexer_loss_rows_k2048
 * knobs (by the spec, or by rule)
 *   BLOCKS_PER_MULTIPROCESSOR        4  rule     resident at once, at least
 *   VECTORS                          2  rule     of 4 slots that a thread has of a part
 * shared memory (offset, bytes)
 *   MAXIMA_OFFSET                    0       32  each warp's largest logit
 *   TARGETS_OFFSET                  32       32  each warp's sum of targets
 *   SUMS_OFFSET                     64       32  each warp's sum of exponentials
 *   LOSSES_OFFSET                   96       32  each warp's part of the loss
 *   SHARED_BYTES                   128  of 232448 that a block may have on sm_90a
 * launch
 *   256 threads a block, 4 blocks resident per multiprocessor, at most 64 registers a thread
 *   grid: 1 block a query
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 4,  /* resident at once, at least */
    VECTORS = 2,                    /* of 4 slots that a thread has of a part */
    PARTS = 1,                      /* of a row of topk slots; 1: it stays in registers */
    DEPENDENT_LAUNCH = 1,           /* 1: the next kernel may begin before this one has ended */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    MAXIMA_OFFSET = 0,              /* each warp's largest logit */
    TARGETS_OFFSET = 32,            /* each warp's sum of targets */
    SUMS_OFFSET = 64,               /* each warp's sum of exponentials */
    LOSSES_OFFSET = 96,             /* each warp's part of the loss */
    SHARED_BYTES = 128,             /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_loss_rows_k2048

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

#line 3 "templates/common/block_sums.cuh"

/*
 * The sum and the maximum of a float of each thread, the same bits in all of them, in an order that
 * THREADS alone fixes. `warps`: a float of each warp, in shared memory. block_begin by all threads;
 * a barrier; block_sum or block_maximum by whole warps.
 */

/* `own`: the same in all lanes of a warp. */
DEVICE void block_begin(float *warps, float own) {
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = own;
    }
}

DEVICE float block_sum(const float *warps) {
    const int lane = (int)threadIdx.x % 32;
    return warp_sum(lane < THREADS / 32 ? warps[lane] : 0.0f);
}

DEVICE float block_maximum(const float *warps) {
    const int lane = (int)threadIdx.x % 32;
    return warp_maximum(warps[lane < THREADS / 32 ? lane : 0]);
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

#line 2 "templates/ptx/stream.cuh"

/* 16 bytes of global memory that no thread writes while the kernel runs, nor reads again soon: they
 * take no place in L1 (PTX ISA, "ld.global.nc", .L1::no_allocate). The address is a multiple of 16.
 */
DEVICE void load_streaming_16(u32 *values, const void *from) {
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
        : "l"(from));
}

#line 1 "templates/indexer_loss_rows.params.h"
/*
 * Arguments of the indexer_loss_rows kernel. Included by the host code and, by the generator, by
 * the CUDA source: plain C types only. Strides count elements.
 */
struct indexer_loss_rows_params {
    const float *logits;    /* [queries, width] */
    const float *target;    /* [queries, width] */
    const int *indices;     /* [queries, width] */
    const int *topk_length; /* [queries], or null */
    const float *weight;    /* [queries], or null: 1 */
    const float *grad_loss; /* one number, or null: 1 */
    float *losses;          /* [queries] */
    float *grad;            /* [queries, width], or null */
    long long logits_stride, target_stride, indices_stride, topk_length_stride, grad_stride;
    int queries, rows, width;
    float query_weight;
    int whole; /* 1: rows of all matrices start at multiples of 16 bytes, width is one of 4 */
};

#line 8 "templates/indexer_loss_rows.cu"
/*
 * The indexer's loss, a number a query, and its gradient. Meaning: include/smelt/indexer_loss.h.
 *
 * Grid: a block a query, or fewer, each taking some in turn. A thread has VECTORS vectors of four
 * neighbouring slots of each PART of the row. A row of one part stays in registers, so that each
 * matrix is read once; a longer one is read three times, part after part, out of L2 where it fits.
 *
 *   1. the largest logit and the targets' sum        one barrier
 *   2. the sum of exp(logit - largest)               one barrier
 *   3. the gradient, and the sum of the loss         one barrier
 *
 * Shared memory: a float of each warp for each of the four sums. Each is read behind one barrier
 * and written again two barriers later at the earliest.
 *
 * Knobs: vectors, blocks.
 */

enum {
    VECTOR = 4, /* slots of 16 bytes */
    LANE_SLOTS = VECTORS * VECTOR,
    STEP = THREADS * VECTOR, /* slots of a vector of each thread */
    PART = VECTORS * STEP
};

#define LARGEST_FLOAT __int_as_float(0x7f7fffff)
#define LEAST_NORMAL __int_as_float(0x00800000)

/* A query's rows. */
struct row {
    const float *logits, *target;
    const int *indices;
    float *grad;  /* or null */
    int slots;    /* that may be valid */
    float weight; /* of its loss; 0 where it has none */
    float factor; /* of its gradient */
};

/* A thread's slots of a part: a masked one has the logit -inf and the target 0. */
struct part {
    float logits[LANE_SLOTS], targets[LANE_SLOTS];
};

/* What a row's slots are divided by and held against. */
struct norms {
    float largest;     /* logit; 0 where all are -inf */
    float log_sum;     /* ln of the sum of exp(logit - largest); 0 where that is 0 */
    float share, unit; /* 1 / that sum, or 0 there; 1 / the targets' sum */
    bool live;         /* there is a loss */
};

/* Where vector `vector` of this thread begins in part number `number`. */
DEVICE int first_slot(int number, int vector) {
    return number * PART + vector * STEP + (int)threadIdx.x * VECTOR;
}

DEVICE struct row open_row(const struct indexer_loss_rows_params *params, i64 query) {
    struct row row;
    const float weight = params->query_weight * (params->weight ? params->weight[query] : 1.0f);
    const int length = params->topk_length ? params->topk_length[query * params->topk_length_stride]
                                           : params->width;
    row.logits = params->logits + query * params->logits_stride;
    row.target = params->target + query * params->target_stride;
    row.indices = params->indices + query * params->indices_stride;
    row.grad = params->grad ? params->grad + query * params->grad_stride : 0;
    row.slots = minimum(maximum(length, 0), params->width);
    row.weight = fabsf(weight) <= LARGEST_FLOAT ? weight : 0.0f; /* not of NaN */
    row.factor = row.weight * (params->grad_loss ? *params->grad_loss : 1.0f);
    return row;
}

/* What a slot's numbers count as. */
DEVICE void take_slot(struct part *part, int i, u32 logit, u32 target, bool valid) {
    const float larger = fmaxf(__uint_as_float(logit), MINUS_INFINITY); /* not of NaN */
    part->logits[i] = valid ? fminf(larger, LARGEST_FLOAT) : MINUS_INFINITY;
    part->targets[i] = valid ? fmaxf(__uint_as_float(target), 0.0f) : 0.0f;
}

/* Part number `number` out of whole vectors: all loads are under way before the first is needed. */
DEVICE void load_vectors(struct part *part, const struct indexer_loss_rows_params *params,
                         const struct row *row, int number) {
    u32 logits[LANE_SLOTS], targets[LANE_SLOTS], indices[LANE_SLOTS];
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        const int slot = first_slot(number, i);
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            logits[i * VECTOR + c] = targets[i * VECTOR + c] = 0;
            indices[i * VECTOR + c] = ~0u; /* masked */
        }
        if (slot < row->slots) {
            load_streaming_16(&indices[i * VECTOR], row->indices + slot);
            load_streaming_16(&logits[i * VECTOR], row->logits + slot);
            load_streaming_16(&targets[i * VECTOR], row->target + slot);
        }
    }
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        const int slot = first_slot(number, i / VECTOR) + i % VECTOR;
        take_slot(part, i, logits[i], targets[i],
                  slot < row->slots && indices[i] < (u32)params->rows);
    }
}

/* The same slot by slot, for rows that start anywhere. */
DEVICE void load_slots(struct part *part, const struct indexer_loss_rows_params *params,
                       const struct row *row, int number) {
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        const int slot = first_slot(number, i / VECTOR) + i % VECTOR;
        u32 logit = 0, target = 0, index = ~0u;
        if (slot < row->slots) {
            index = (u32)row->indices[slot];
            logit = __float_as_uint(row->logits[slot]);
            target = __float_as_uint(row->target[slot]);
        }
        take_slot(part, i, logit, target, index < (u32)params->rows);
    }
}

DEVICE void load_part(struct part *part, const struct indexer_loss_rows_params *params,
                      const struct row *row, int number) {
    if (params->whole) {
        load_vectors(part, params, row, number);
    } else {
        load_slots(part, params, row, number);
    }
}

/* The block's sum of a float of each thread; a barrier. */
DEVICE float add_up(float value, int offset) {
    float *const warps = (float *)(arena + offset);
    block_begin(warps, warp_sum(value));
    __syncthreads();
    return block_sum(warps);
}

/* The same of the targets and, behind the same barrier, of the largest logit. */
DEVICE float survey(float *largest, float targets) {
    float *const maxima = (float *)(arena + MAXIMA_OFFSET);
    block_begin(maxima, warp_maximum(*largest));
    const float sum = add_up(targets, TARGETS_OFFSET);
    *largest = block_maximum(maxima);
    return sum;
}

/* A part of the sum of exp(logit - largest), this thread's. */
DEVICE float sum_exponentials(const struct part *part, float largest) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < LANE_SLOTS; ++i) {
        sum += exp2_approximate((part->logits[i] - largest) * LOG2_E);
    }
    return sum;
}

DEVICE struct norms find_norms(const struct row *row, float largest, float sum, float targets) {
    struct norms norms;
    norms.largest = largest;
    norms.log_sum = sum > 0.0f ? LN_2 * log2_approximate(sum) : 0.0f;
    norms.share = sum > 0.0f ? 1.0f / sum : 0.0f;
    norms.unit = 1.0f / targets;
    norms.live = row->weight != 0.0f && targets >= LEAST_NORMAL && targets <= LARGEST_FLOAT;
    return norms;
}

/* The gradient at a vector of this thread's slots of a part; returns their share of the loss. */
DEVICE float differentiate(float *grads, const struct part *part, int vector, const struct row *row,
                           const struct norms *norms) {
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) {
        const float score = part->logits[vector * VECTOR + c] - norms->largest;
        const float q = exp2_approximate(score * LOG2_E) * norms->share;
        const float p = part->targets[vector * VECTOR + c] * norms->unit;
        const float surprise = LN_2 * log2_approximate(p) - (score - norms->log_sum);
        const bool moves = norms->live && q != p;
        grads[c] = moves ? row->factor * (q - p) : 0.0f;
        sum += norms->live && p > 0.0f ? p * surprise : 0.0f;
    }
    return sum;
}

DEVICE void store_vector(const struct indexer_loss_rows_params *params, const struct row *row,
                         const float *grads, int slot) {
    if (params->whole && slot < params->width) {
        const float4 vector = {grads[0], grads[1], grads[2], grads[3]};
        *(float4 *)(row->grad + slot) = vector;
    }
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) {
        if (!params->whole && slot + c < params->width) {
            row->grad[slot + c] = grads[c];
        }
    }
}

/* The gradient of a part, if it is asked for; returns this thread's share of the loss. */
DEVICE float finish_part(const struct indexer_loss_rows_params *params, const struct row *row,
                         const struct part *part, const struct norms *norms, int number) {
    float loss = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        float grads[VECTOR];
        loss += differentiate(grads, part, i, row, norms);
        if (row->grad) {
            store_vector(params, row, grads, first_slot(number, i));
        }
    }
    return loss;
}

/* A query, by the whole block. */
DEVICE void take_query(const struct indexer_loss_rows_params *params, i64 query) {
    const struct row row = open_row(params, query);
    const int parts = PARTS > 1 ? (params->width - 1) / PART + 1 : 1; /* that there are */
    struct part part;
    float largest = MINUS_INFINITY, targets = 0.0f, sum = 0.0f, loss = 0.0f;
#pragma unroll 1
    for (int number = 0; number < parts; ++number) {
        load_part(&part, params, &row, number);
#pragma unroll
        for (int i = 0; i < LANE_SLOTS; ++i) {
            largest = fmaxf(largest, part.logits[i]);
            targets += part.targets[i];
        }
    }
    targets = survey(&largest, targets);
    largest = largest == MINUS_INFINITY ? 0.0f : largest;
#pragma unroll 1
    for (int number = 0; number < parts; ++number) {
        if (PARTS > 1) {
            load_part(&part, params, &row, number);
        }
        sum += sum_exponentials(&part, largest);
    }
    sum = add_up(sum, SUMS_OFFSET);
    const struct norms norms = find_norms(&row, largest, sum, targets);
#pragma unroll 1
    for (int number = 0; number < parts; ++number) {
        if (PARTS > 1) {
            load_part(&part, params, &row, number);
        }
        loss += finish_part(params, &row, &part, &norms, number);
    }
    loss = add_up(loss, LOSSES_OFFSET);
    if (threadIdx.x == 0) {
        params->losses[query] = norms.live ? row.weight * loss : 0.0f;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_loss_rows_params params) {
    if (DEPENDENT_LAUNCH && threadIdx.x == 0) {
        grid_launch_dependents(); /* the sum, which waits for all of it */
    }
#pragma unroll 1
    for (i64 query = blockIdx.x; query < params.queries; query += gridDim.x) {
        take_query(&params, query);
    }
}
