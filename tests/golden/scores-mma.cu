/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_scores_fwd:heads=64,dim=128,variant=mma --arch sm_80
 *
 * spec     indexer_scores_fwd:heads=64,dim=128,variant=mma
 * arch     sm_80
 * variant  mma
 * kernel   smelt_indexer_scores_fwd_mma_h64_d128
 * knobs (by the spec, or by rule)
 *   WARPS                            8  rule     of a thread block
 *   WARP_KEYS                       32  rule     slots that a warp looks at together
 *   BLOCKS_PER_MULTIPROCESSOR        2  rule     resident at once, at least
 * shared memory (offset, bytes)
 *   QUERY_OFFSET                     0    32768  heads of two queries
 *   SHARED_BYTES                 32768  of 166912 that a block may have on sm_80
 * launch
 *   256 threads a block, 2 blocks resident per multiprocessor, at most 128 registers a thread
 *   grid: 1 block a query, but no more than are resident at once
 *   persistent: in a grid-stride loop a block does the work of several
 */

enum {
    HEADS = 64,                     /* indexer heads */
    DIM = 128,                      /* width of a head and of a key, elements */
    BLOCK_HEADS = 64,               /* heads, in eights */
    WARPS = 8,                      /* of a thread block */
    WARP_KEYS = 32,                 /* slots that a warp looks at together */
    STAGES = 2,                     /* queries in shared memory */
    ROW_BYTES = 256,                /* of a key, and of a head of a query */
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 2,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    QUERY_OFFSET = 0,               /* heads of two queries */
    SHARED_BYTES = 32768,           /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_scores_fwd_mma_h64_d128

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

#line 2 "templates/common/query_rows.cuh"
/*
 * Rows of ROW_BYTES in shared memory, heads of queries as mma.sync's operand: a lane reads 16 bytes
 * at a time, four neighbouring chunks of each of eight rows. They serve two k-steps, in both
 * operands: along a row, columns only have to agree.
 */

enum {
    CHUNK_BYTES = 16,
    ROW_CHUNKS = ROW_BYTES / CHUNK_BYTES,
    ROW_LOADS = ROW_BYTES / 64 /* 16 bytes of a lane, 64 of the four lanes of a row */
};

/* Where chunk `chunk` of a row stands: of two neighbouring rows four chunks then lie in different
 * banks. */
DEVICE u32 query_place(int row, int chunk) {
    const int exchanged = ROW_CHUNKS > 4 ? chunk ^ (row % 2 * 4) : chunk;
    return (u32)(row * ROW_BYTES + exchanged * CHUNK_BYTES);
}

#line 2 "templates/ptx/maximum.cuh"

/* The larger; NaN when one of them is (PTX ISA, "max", .NaN). */
DEVICE float maximum_nan(float x, float y) {
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

#line 3 "templates/common/logit.cuh"
/*
 * The indexer's logits and windows, the same in every kernel (include/smelt/indexer_logits.h).
 */

#define LOWEST_LOGIT (-__int_as_float(0x7f800000))

/* A logit as it is written: +0 for -0, -inf for NaN. */
DEVICE float canonical_logit(float logit) {
    return fmaxf(logit, LOWEST_LOGIT) + 0.0f;
}

/* weight * max(0, product) added to a sum; NaN stays. */
DEVICE float add_head(float sum, float weight, float product) {
    return fmaf(weight, maximum_nan(product, 0.0f), sum);
}

/* Whether a window has at least so many of `rows` keys. */
DEVICE bool has_keys(int window_begin, int window_end, int rows, int least) {
    return minimum(maximum(window_end, 0), rows) - maximum(window_begin, 0) >= least;
}

/* A query's window among `keys` keys from number `first` on, relative to that; empty when it does
 * not begin before its end. first + keys <= rows. */
struct key_range {
    int begin, end;
};

DEVICE struct key_range window_among(int window_begin, int window_end, int first, int keys) {
    const struct key_range range = {maximum(maximum(window_begin, 0) - first, 0),
                                    minimum(maximum(window_end, 0) - first, keys)};
    return range;
}

#line 2 "templates/common/quad_sum.cuh"

/* The sums over a quad (four neighbouring threads of a warp): of x in its even lanes, of y in its
 * odd ones; in a fixed order. */
DEVICE float quad_sum_pair(float x, float y) {
    const bool odd = threadIdx.x & 1;
    float sum = odd ? y : x;
    sum += __shfl_xor_sync(0xffffffffu, odd ? x : y, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

#line 2 "templates/indexer_scores_fwd.params.h"
/*
 * Arguments of the indexer_scores_fwd kernels, every variant. Included by the host code (behind
 * common/work.params.h) and, by the generator, by the CUDA source: plain C types only. Strides
 * count elements. See include/smelt/indexer_scores.h for what the tensors hold.
 */
struct indexer_scores_fwd_params {
    struct work_params work; /* one batch, no query list */
    const void *q;           /* [tokens, HEADS, DIM] bf16 */
    const void *k;           /* [rows, DIM] bf16 */
    const float *weights;    /* [tokens, HEADS] */
    float *logits;           /* [tokens, width] */
    long long q_token_stride, q_head_stride;
    long long weights_token_stride;
    long long logits_token_stride;
    unsigned k_row_bytes; /* from one key to the next */
};

#line 5 "templates/indexer_scores_fwd.heads.cuh"
/*
 * From products to logits, the same in every variant of indexer_scores_fwd. Products are of slots
 * by heads, and lie as mma.sync and wgmma leave them: a thread's rows are g and g + 8 of 16 slots,
 * its columns two of every eight heads, 2 * c and the next; g = lane / 4, c = lane % 4. So a thread
 * adds up its heads by itself, in ascending order, and then a quad's four threads meet.
 */

enum { EIGHTS = BLOCK_HEADS / 8 };

/* A thread's first head of each eight. */
DEVICE int thread_head(void) {
    return (int)(threadIdx.x % 4 * 2);
}

/* Adds the products with eight heads from number `first` on: `sums` and `d` of row g, then of row
 * g + 8. Columns past the last head are nobody's. */
DEVICE void add_eight(float *sums, const float *d, const float *weights, int first) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (HEADS % 8 == 0 || first + thread_head() + i < HEADS) {
            sums[0] = add_head(sums[0], weights[i], d[i]);
            sums[1] = add_head(sums[1], weights[i], d[2 + i]);
        }
    }
}

/* Which of its 16 slots' logits a lane writes; the upper half of each quad writes none. */
enum { NO_SLOT = 1 << 30 };

DEVICE int written_slot(void) {
    const int lane = (int)(threadIdx.x % 32);
    return lane % 4 < 2 ? lane / 4 + lane % 2 * 8 : NO_SLOT;
}

/* Writes a lane's logit to its slot of a query's row, -inf where it is masked. `sums`: this
 * thread's two. By the whole warp. */
DEVICE void write_logit(float *row, int slot, int width, const float *sums, bool valid) {
    const float logit = canonical_logit(quad_sum_pair(sums[0], sums[1]));
    if (slot < width) {
        row[slot] = valid ? logit : LOWEST_LOGIT;
    }
}

#line 2 "templates/ptx/cp_async.cuh"

/* Copies 16 bytes from global to shared memory without registers, past L1; the last 16 - `bytes`
 * are filled with zeros, and with bytes = 0 the source is not read (PTX ISA, "cp.async"). */
DEVICE void cp_async_16(u32 address, const void *source, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(address), "l"(source), "r"(bytes)
                 : "memory");
}

/* Closes this thread's group of copies (PTX ISA, "cp.async.commit_group"). */
DEVICE void cp_async_commit(void) {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Waits until at most so many of this thread's groups are under way (PTX ISA,
 * "cp.async.wait_group"). */
#line 20 "templates/ptx/cp_async.cuh"
DEVICE void cp_async_wait_0(void) {
    asm volatile("cp.async.wait_group 0;" : : : "memory");
}

#line 2 "templates/ptx/cp_async_mbarrier.cuh"

/* One of the barrier's expected arrivals, made when all earlier cp.async copies of this thread have
 * landed (PTX ISA, "cp.async.mbarrier.arrive", .noinc). It orders the copies alone: plain stores of
 * this thread need an arrival of their own. */
DEVICE void cp_async_arrive_noinc(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
                 :
                 : "r"(barrier)
                 : "memory");
}

/* Waits for all of this thread's copies, committed or not (PTX ISA, "cp.async.wait_all"). */
DEVICE void cp_async_wait_all(void) {
    asm volatile("cp.async.wait_all;" : : : "memory");
}

#line 2 "templates/ptx/mma.cuh"

/*
 * d += a * b for one 16 x 8 tile, depth 16, bf16 in, fp32 accumulation (PTX ISA, "Matrix
 * Multiply-Accumulate Instruction: mma", m16n8k16). Fragments, by lane = 4 * g + t:
 *   a[0..3]: rows g, g + 8, g, g + 8; columns 2t, 2t + 1 (+ 8 in a[2], a[3])
 *   b[0..1]: rows 2t, 2t + 1 (+ 8 in b[1]); column g
 *   d[0..3]: rows g, g, g + 8, g + 8; columns 2t, 2t + 1, 2t, 2t + 1
 */
DEVICE void mma_m16n8k16_bf16(float *d, const u32 *a, const u32 *b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#line 11 "templates/indexer_scores_fwd.mma.cu"
/*
 * The lightning indexer's logits at the selected slots, with mma.sync. Mathematics and shapes:
 * include/smelt/indexer_scores.h.
 *
 * Grid: a block for each query, or fewer, each taking every gridDim.x-th. WARPS warps, all of one
 * role: a warp takes WARP_KEYS slots and every WARPS-th such piece after them. It gathers their
 * keys straight into registers, as operand A, and goes through the query's heads in shared memory,
 * as operand B, eight at a time:
 *
 *   D[16 slots, 8 heads] = K[16 slots, DIM] Q[8 heads, DIM]^T
 *
 * A piece without a valid slot is only filled. What hides the gather are the other warps.
 *
 * Shared memory (offset and size: the plan above):
 *   QUERY [STAGES][BLOCK_HEADS][ROW_BYTES], chunks of 16 bytes exchanged by query_place. Past the
 *         last head stands the last one's row: nothing comes of it
 *
 * The block's next query comes while one is computed. At the top of a query: own copies of it done,
 * then a barrier: everybody's have landed, and nobody reads the other buffer any more.
 *
 * Knobs: WARPS, WARP_KEYS, blocks per multiprocessor:
 * src/codegen/families/indexer_scores_fwd_mma.c.
 */

enum {
    ALL_LANES = -1,
    MASKED = -1,
    KEY_TILES = WARP_KEYS / 16, /* rows of D, by sixteens */
    KEY_WORDS = ROW_LOADS * 4,  /* of a lane and a row */
    QUERY_BYTES = BLOCK_HEADS * ROW_BYTES
};

/* Starts the copy of a query's heads into a buffer. */
DEVICE void load_query(const struct indexer_scores_fwd_params *params, int query, int buffer) {
    const u32 base = shared_address((u32)(QUERY_OFFSET + buffer * QUERY_BYTES));
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < BLOCK_HEADS * ROW_CHUNKS; i += THREADS) {
        const int head = i / ROW_CHUNKS, chunk = i % ROW_CHUNKS;
        const char *const row =
            (const char *)params->q +
            2 * (query * params->q_token_stride + minimum(head, HEADS - 1) * params->q_head_stride);
        cp_async_16(base + query_place(head, chunk), row + chunk * CHUNK_BYTES, CHUNK_BYTES);
    }
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* A piece's keys, a lane's part: of rows g and g + 8 of each sixteen. */
struct key_piece {
    u32 words[KEY_TILES][2][KEY_WORDS];
    u32 valid[KEY_TILES]; /* a bit a slot, the same in every lane */
};

/* Gathers a row's part; of a masked slot zeros, and nothing is read. */
DEVICE void load_key(u32 *words, const struct indexer_scores_fwd_params *params, int number) {
    const char *const row = (const char *)params->k + (u64)(u32)number * params->k_row_bytes;
#pragma unroll
    for (int i = 0; i < ROW_LOADS; ++i) {
        u32 *const to = &words[i * 4];
        to[0] = to[1] = to[2] = to[3] = 0;
        if (number != MASKED) {
            load_read_only_16(to, row + (i * 4 + (int)(threadIdx.x % 4)) * CHUNK_BYTES);
        }
    }
}

/* The keys of a piece, which begins at slot `first` of a row with `slots` to look at. Whether there
 * is any. */
DEVICE bool load_piece(struct key_piece *piece, const struct indexer_scores_fwd_params *params,
                       const int *row, int slots, int first) {
    const int lane = (int)(threadIdx.x % 32);
    bool any = false;
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
        const int slot = first + tile * 16 + lane % 16;
        const int found = slot < slots ? row[slot] : MASKED;
        const bool valid = found >= 0 && found < params->work.rows;
        piece->valid[tile] = __ballot_sync((u32)ALL_LANES, valid) & 0xffffu;
        any |= piece->valid[tile] != 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int number =
                __shfl_sync((u32)ALL_LANES, valid ? found : MASKED, lane / 4 + half * 8);
            load_key(piece->words[tile][half], params, number);
        }
    }
    return any;
}

/* ---- products -------------------------------------------------------------------------------- */

/* D of eight heads; `address`: of this lane's chunk 0 in the row of head number lane / 4 of them.
 */
DEVICE void multiply_eight(float (*d)[4], const struct key_piece *piece, u32 address) {
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
        d[tile][0] = d[tile][1] = d[tile][2] = d[tile][3] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < ROW_LOADS; ++i) {
        u32 heads[4];
        load_shared_16(heads, address ^ (u32)(i * 64));
#pragma unroll
        for (int step = 0; step < 2; ++step) {
#pragma unroll
            for (int tile = 0; tile < KEY_TILES; ++tile) {
                const u32 *const low = &piece->words[tile][0][i * 4 + 2 * step];
                const u32 *const high = &piece->words[tile][1][i * 4 + 2 * step];
                const u32 a[4] = {low[0], high[0], low[1], high[1]};
                mma_m16n8k16_bf16(d[tile], a, &heads[2 * step]);
            }
        }
    }
}

/* The logits of a piece. `weights`: the query's; `query_rows`: its buffer's address. */
DEVICE void add_heads(float (*sums)[2], const struct key_piece *piece, const float *weights,
                      u32 query_rows) {
    const int lane = (int)(threadIdx.x % 32);
    u32 address = query_rows + query_place(lane / 4, lane % 4);
#pragma unroll 1
    for (int eight = 0; eight < EIGHTS; ++eight) {
        const int first = eight * 8, head = first + thread_head();
        const float pair[2] = {weights[minimum(head, HEADS - 1)],
                               weights[minimum(head + 1, HEADS - 1)]};
        float d[KEY_TILES][4];
        multiply_eight(d, piece, address);
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; ++tile) {
            add_eight(sums[tile], &d[tile][0], pair, first);
        }
        address += 8 * ROW_BYTES;
    }
}

/* ---- the query ------------------------------------------------------------------------------- */

/* Computes the warp's pieces of a query, whose heads are in a buffer. */
DEVICE void compute_query(const struct indexer_scores_fwd_params *params, int query, int buffer) {
    const int *const row = index_row(&params->work, query);
    const int slots = index_slots(&params->work, query, query);
    const float *const weights = params->weights + query * params->weights_token_stride;
    float *const logits = params->logits + query * params->logits_token_stride;
    const u32 heads = shared_address((u32)(QUERY_OFFSET + buffer * QUERY_BYTES));
#pragma unroll 1
    for (int first = (int)threadIdx.x / 32 * WARP_KEYS; first < params->work.width;
         first += WARPS * WARP_KEYS) {
        struct key_piece piece;
        float sums[KEY_TILES][2];
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; ++tile) {
            sums[tile][0] = sums[tile][1] = 0.0f;
        }
        if (load_piece(&piece, params, row, slots, first)) {
            add_heads(sums, &piece, weights, heads);
        }
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; ++tile) {
            write_logit(logits, first + tile * 16 + written_slot(), params->work.width, sums[tile],
                        piece.valid[tile] >> written_slot() % 16 & 1);
        }
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_scores_fwd_params params) {
    int buffer = 0;
    load_query(&params, (int)blockIdx.x, buffer);
#pragma unroll 1
    for (u32 query = blockIdx.x; query < (u32)params.work.tokens; query += gridDim.x) {
        cp_async_wait_all();
        __syncthreads();
        if (query + gridDim.x < (u32)params.work.tokens) {
            load_query(&params, (int)(query + gridDim.x), buffer ^ 1);
        }
        compute_query(&params, (int)query, buffer);
        buffer ^= 1;
    }
}
