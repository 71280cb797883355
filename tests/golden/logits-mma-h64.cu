/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit indexer_logits_fwd:heads=64,dim=128,dtype=bf16,variant=mma --arch sm_80
 *
 * spec     indexer_logits_fwd:heads=64,dim=128,dtype=bf16,variant=mma
 * arch     sm_80
 * variant  mma
 * kernel   smelt_indexer_logits_fwd_mma_h64_d128_bf16
 * knobs (by the spec, or by rule)
 *   WARPS                            4  rule     of a thread block
 *   WARP_KEYS                       64  rule     keys that a warp keeps in registers
 *   BLOCK_QUERIES                  128  rule     queries of an item
 *   STAGES                           3  rule     parts of queries in flight
 *   BLOCKS_PER_MULTIPROCESSOR        2  rule     resident at once, at least
 * shared memory (offset, bytes)
 *   QUERIES_OFFSET                   0    49152  stages: heads of eight queries
 *   SHARED_BYTES                 49152  of 166912 that a block may have on sm_80
 * launch
 *   128 threads a block, 2 blocks resident per multiprocessor, at most 255 registers a thread
 *   grid: 1 block a tile
 */

enum {
    HEADS = 64,                     /* indexer heads */
    DIM = 128,                      /* width of a head and of a key, elements */
    FP8 = 0,                        /* 1: e4m3 and scales of the keys; 0: bf16 */
    WARPS = 4,                      /* of a thread block */
    WARP_KEYS = 64,                 /* keys that a warp keeps in registers */
    BLOCK_QUERIES = 128,            /* queries of an item */
    STAGES = 3,                     /* parts of queries in flight */
    BLOCK_KEYS = 256,               /* keys of an item */
    ROW_BYTES = 256,                /* of a key, and of a head of a query */
    STAGE_HEADS = 8,                /* heads of eight queries in one stage */
    TENSOR_MAPS = 0,                /* nothing comes by the copy engine */
    DEPENDENT_LAUNCH = 0,           /* 1: may begin before the kernel ahead of it has ended */
    THREADS = 128,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 2,  /* resident at once, at least */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    QUERIES_OFFSET = 0,             /* stages: heads of eight queries */
    SHARED_BYTES = 49152,           /* the arena's size */
};

#define KERNEL_NAME smelt_indexer_logits_fwd_mma_h64_d128_bf16

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

#line 2 "templates/ptx/shared.cuh"

/* The arena's 32-bit address in the shared state space, which the wrappers below take (PTX ISA,
 * "State Spaces", .shared). */
DEVICE u32 shared_address(u32 offset) {
    return (u32)__cvta_generic_to_shared(arena) + offset;
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
#line 20 "templates/ptx/cp_async.cuh"
DEVICE void cp_async_wait_1(void) {
    asm volatile("cp.async.wait_group 1;" : : : "memory");
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

#line 2 "templates/ptx/mma_fp8.cuh"

/*
 * d += a * b for one 16 x 8 tile, depth 32, e4m3 in, fp32 accumulation (PTX ISA, "Matrix
 * Multiply-Accumulate Instruction: mma", m16n8k32), compute capability 8.9 and up. In bytes the
 * fragments are those of mma_m16n8k16_bf16 (ptx/mma.cuh), by lane = 4 * g + t:
 *   a[0..3]: rows g, g + 8, g, g + 8; columns 4t..4t + 3 (+ 16 in a[2], a[3])
 *   b[0..1]: rows 4t..4t + 3 (+ 16 in b[1]); column g
 *   d[0..3]: rows g, g, g + 8, g + 8; columns 2t, 2t + 1, 2t, 2t + 1
 */
DEVICE void mma_m16n8k32_e4m3(float *d, const u32 *a, const u32 *b) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#line 1 "templates/common/tensor_map.h"
/*
 * The description of a tensor in global memory and of the box that one tensor copy moves, written
 * by the driver (cuTensorMapEncodeTiled) and passed to a kernel by value, as a whole parameter or
 * inside its params struct. Included by the host code and, by the generator, by the CUDA source.
 */
#ifndef SMELT_TEMPLATES_TENSOR_MAP_H
#define SMELT_TEMPLATES_TENSOR_MAP_H

/* The attribute stands at the member: NVRTC takes no notice of one behind the struct. */
struct tensor_map {
    unsigned long long opaque[16] __attribute__((aligned(64)));
};

/* A misaligned map faults on the GPU; this does not compile. */
struct tensor_map_alignment {
    char first;
    struct tensor_map map;
};
typedef char tensor_map_is_aligned[sizeof(struct tensor_map_alignment) == 192 ? 1 : -1];

#endif

#line 2 "templates/indexer_logits_fwd.params.h"
/*
 * Arguments of the indexer_logits_fwd kernels, every variant. Included by the host code (behind
 * common/tensor_map.h) and, by the generator, by the CUDA source: plain C types only. Strides count
 * elements. See include/smelt/indexer_logits.h for what the tensors hold.
 */
struct indexer_logits_fwd_params {
    /* For the copy engine, of variants with TENSOR_MAPS alone: q as [tokens, HEADS, DIM], boxes of
     * MAP_QUERIES queries, MAP_HEADS heads and DIM columns (64 at most with bf16), or with
     * MAP_PAIRS above 0 as [HEADS / 2, tokens, 2, DIM], boxes of so many pairs; k as [rows,
     * DIM], boxes of MAP_KEYS keys and as many columns. The swizzle is as wide as a box: 64 or 128
     * bytes. What lies outside the tensors comes as zeros. */
    struct tensor_map q_map, k_map;
    const void *q;           /* [tokens, HEADS, DIM] bf16 or e4m3 */
    const void *k;           /* [rows, DIM] likewise */
    const float *weights;    /* [tokens, HEADS] */
    const float *k_scale;    /* [rows]; NULL with bf16 */
    const int *window_begin; /* [tokens] any number; what lies outside [0, rows) does not count */
    const int *window_end;   /* [tokens] */
    float *logits;           /* [tokens, rows] */
    long long q_token_stride, q_head_stride;
    long long k_row_stride;
    long long weights_token_stride;
    long long logits_token_stride;
    int tokens, rows; /* both above 0 */
    int least;   /* keys that a window must have to be looked at: a shorter one counts as empty */
    int fills;   /* 1: -inf is written outside of windows; 0: what stands there does not matter */
    int early;   /* 1: the kernel before may still read what is written here: it is waited for; then
                    nothing is filled in */
    int chained; /* 1: what is launched early behind it may begin: it waits */
};

#line 11 "templates/indexer_logits_fwd.mma.cu"
/*
 * The lightning indexer's logits with mma.sync: every query's rows against every key in its window,
 * heads added up, everything else -inf. Mathematics and shapes: include/smelt/indexer_logits.h.
 *
 * Grid: a block for each item, BLOCK_QUERIES queries and BLOCK_KEYS keys, those of the same queries
 * side by side; or fewer, each taking items in turn. WARPS warps, all of one role: a warp holds
 * WARP_KEYS keys in registers for the whole item, as operand B, and the queries stream past, as
 * operand A. The rows of a tile are eight queries twice, an even head and the next:
 *
 *   D[16, 8] = Q[8 queries x 2 heads, DIM] K[8 keys, DIM]^T
 *
 * A thread's two rows of D thus belong to one query and two heads, so that it adds up the heads of
 * its query by itself, in ascending order: logit += weight * max(0, D). Nothing is exchanged.
 *
 * Orders that only have to agree. Along DIM, a lane's 16 bytes of a row serve two k-steps, in both
 * operands. Along the keys, columns of two tiles stand such that a thread's four columns are four
 * neighbouring keys, written at once: key_of.
 *
 * Shared memory (offsets and sizes: the plan above):
 *   QUERIES [STAGES][STAGE_HEADS][8 queries][ROW_BYTES], chunks of 16 bytes exchanged by
 *           query_place
 *
 * An item's queries are taken in groups of eight; one whose windows meet no key of the item is only
 * filled. What is left comes in parts of STAGE_HEADS heads; part j uses stage j % STAGES. At its
 * top: own copies of part j done (STAGES - 2 later ones may be under way), then a barrier:
 * everybody's have landed, and nobody reads stage (j - 1) % STAGES any more, which is refilled.
 *
 * Knobs: WARPS, WARP_KEYS, BLOCK_QUERIES, STAGES, blocks per multiprocessor:
 * src/codegen/families/indexer_logits_fwd_mma.c.
 */

enum {
    ALL_LANES = -1,
    GROUP_QUERIES = 8,
    GROUPS = BLOCK_QUERIES / GROUP_QUERIES, /* at most 32: a bit each */
    KEY_TILES = WARP_KEYS / 8,              /* columns of D, by eights */
    KEY_WORDS = ROW_LOADS * 4,              /* of a lane and a tile */
    PARTS = (HEADS + STAGE_HEADS - 1) / STAGE_HEADS,
    STAGE_BYTES = STAGE_HEADS * GROUP_QUERIES * ROW_BYTES,
    EVEN_HEADS = (HEADS + 1) / 2 * 2 /* an odd last head has a row for the next */
};

/* What a block is at work on. */
struct item {
    int first_query, first_key;
    int queries, keys; /* of them, at most BLOCK_QUERIES and BLOCK_KEYS */
};

/* Which part comes next: `left`, bits of the groups from `group` on. */
struct cursor {
    u32 left; /* 0: none */
    int group, part;
};

DEVICE struct cursor first_part(u32 groups) {
    const struct cursor cursor = {groups, __ffs((int)groups) - 1, 0};
    return cursor;
}

DEVICE void next_part(struct cursor *cursor) {
    if (++cursor->part == PARTS) {
        *cursor = first_part(cursor->left & (cursor->left - 1));
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

/* The window of a query of the item, among its keys. */
DEVICE struct key_range window_of(const struct indexer_logits_fwd_params *params,
                                  const struct item *item, int query) {
    const int token = item->first_query + query;
    const int begin = params->window_begin[token], end = params->window_end[token];
    const struct key_range empty = {0, 0};
    return has_keys(begin, end, params->rows, params->least)
               ? window_among(begin, end, item->first_key, item->keys)
               : empty;
}

/* The groups of an item that have a query with a key in [first, first + count), a bit each: the
 * block's and the warp's. By whole warps, a lane a group. */
DEVICE u32 groups_with_keys(const struct indexer_logits_fwd_params *params, const struct item *item,
                            int first, u32 *within) {
    const int group = (int)threadIdx.x % 32;
    bool any = false, mine = false;
#pragma unroll 2
    for (int i = 0; i < GROUP_QUERIES; ++i) {
        const int query = group * GROUP_QUERIES + i;
        if (query < item->queries) {
            const struct key_range window = window_of(params, item, query);
            any |= window.begin < window.end;
            mine |= maximum(window.begin, first) < minimum(window.end, first + WARP_KEYS);
        }
    }
    *within = __ballot_sync((u32)ALL_LANES, mine);
    return __ballot_sync((u32)ALL_LANES, any);
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Starts the copy of a part into a stage. What is no query or head takes the last one's row:
 * nothing comes of it. */
DEVICE void load_part(const struct indexer_logits_fwd_params *params, const struct item *item,
                      const struct cursor *cursor, int stage) {
    const int bytes = FP8 ? 1 : 2, first_head = cursor->part * STAGE_HEADS;
    const int rows = minimum(STAGE_HEADS, EVEN_HEADS - first_head) * GROUP_QUERIES;
    const u32 base = shared_address(QUERIES_OFFSET + stage * STAGE_BYTES);
    for (int i = (int)threadIdx.x; i < rows * ROW_CHUNKS; i += THREADS) {
        const int row = i / ROW_CHUNKS, chunk = i % ROW_CHUNKS;
        const int head = minimum(first_head + row / GROUP_QUERIES, HEADS - 1);
        const int query =
            minimum(cursor->group * GROUP_QUERIES + row % GROUP_QUERIES, item->queries - 1);
        const char *const source = (const char *)params->q +
                                   bytes * ((item->first_query + query) * params->q_token_stride +
                                            head * params->q_head_stride) +
                                   chunk * CHUNK_BYTES;
        cp_async_16(base + query_place(row, chunk), source, CHUNK_BYTES);
    }
}

/* Which of its warp's keys stands in a column of a tile. */
DEVICE int key_of(int tile, int column) {
    return tile / 2 * 16 + column / 2 * 4 + tile % 2 * 2 + column % 2;
}

/* A warp's keys, a lane's part: for each tile its words of the key in its column. */
struct key_block {
    u32 words[KEY_TILES][KEY_WORDS];
};

/* The warp's keys, from number `first` of the item on; behind the last, that one again. */
DEVICE void load_keys(struct key_block *keys, const struct indexer_logits_fwd_params *params,
                      const struct item *item, int first) {
    const int lane = (int)threadIdx.x % 32, bytes = FP8 ? 1 : 2;
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
        const int key = minimum(first + key_of(tile, lane / 4), item->keys - 1);
        const char *const row =
            (const char *)params->k + bytes * ((item->first_key + key) * params->k_row_stride);
#pragma unroll
        for (int i = 0; i < ROW_LOADS; ++i) {
            load_read_only_16(&keys->words[tile][i * 4], row + (i * 4 + lane % 4) * CHUNK_BYTES);
        }
    }
}

/* What this thread's logits are multiplied by: those of its two columns of each tile. */
DEVICE void load_scales(float (*scales)[2], const struct indexer_logits_fwd_params *params,
                        const struct item *item, int first) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int key = minimum(first + key_of(tile, lane % 4 * 2 + i), item->keys - 1);
            scales[tile][i] = params->k_scale[item->first_key + key];
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

DEVICE void multiply(float *d, const u32 *a, const u32 *b) {
    if (FP8) {
        mma_m16n8k32_e4m3(d, a, b);
    } else {
        mma_m16n8k16_bf16(d, a, b);
    }
}

/* D of two heads of the group; `address`: of this lane's chunk 0 in the even head's row. */
DEVICE void multiply_tiles(float (*d)[4], const struct key_block *keys, u32 address) {
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
        d[tile][0] = d[tile][1] = d[tile][2] = d[tile][3] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < ROW_LOADS; ++i) {
        u32 even[4], odd[4];
        const u32 place = address ^ (u32)(i * 64);
        load_shared_16(even, place);
        load_shared_16(odd, place + GROUP_QUERIES * ROW_BYTES);
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            const u32 a[4] = {even[2 * step], odd[2 * step], even[2 * step + 1], odd[2 * step + 1]};
#pragma unroll
            for (int tile = 0; tile < KEY_TILES; ++tile) {
                multiply(d[tile], a, &keys->words[tile][i * 4 + 2 * step]);
            }
        }
    }
}

/* Adds two heads of a query to its logits; of an odd last pair one. */
DEVICE void add_pair(float (*sums)[2], const float (*d)[4], const float *weights, int heads) {
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; ++tile) {
        sums[tile][0] = add_head(sums[tile][0], weights[0], d[tile][0]);
        sums[tile][1] = add_head(sums[tile][1], weights[0], d[tile][1]);
        if (heads > 1) {
            sums[tile][0] = add_head(sums[tile][0], weights[1], d[tile][2]);
            sums[tile][1] = add_head(sums[tile][1], weights[1], d[tile][3]);
        }
    }
}

/* Adds the heads of a part to the logits of this thread's query; `weights`: that one's, of all
 * heads. (A pair at a time: of several at once some registers spill.) */
DEVICE void add_part(float (*sums)[2], const struct key_block *keys, const float *weights, int part,
                     int stage) {
    const int lane = (int)threadIdx.x % 32, first_head = part * STAGE_HEADS;
    const int heads = minimum(STAGE_HEADS, HEADS - first_head);
    u32 address =
        shared_address(QUERIES_OFFSET + stage * STAGE_BYTES) + query_place(lane / 4, lane % 4);
#pragma unroll 1
    for (int head = 0; head < heads; head += 2) {
        const float pair[2] = {weights[first_head + head],
                               weights[minimum(first_head + head + 1, HEADS - 1)]};
        float d[KEY_TILES][4];
        multiply_tiles(d, keys, address);
        add_pair(sums, d, pair, HEADS % 2 == 0 ? 2 : heads - head);
        address += 2 * GROUP_QUERIES * ROW_BYTES;
    }
}

/* ---- results --------------------------------------------------------------------------------- */

/* Four neighbouring logits of a row, of which `count` are keys. */
DEVICE void write_four(float *to, const float *values, int count) {
    if (count >= 4 && (u64)to % 16 == 0) {
        const float4 four = {values[0], values[1], values[2], values[3]};
        *(float4 *)to = four;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (i < count) {
            to[i] = values[i];
        }
    }
}

DEVICE float *row_of(const struct indexer_logits_fwd_params *params, const struct item *item,
                     int query) {
    return params->logits + (item->first_query + query) * params->logits_token_stride +
           item->first_key;
}

/* Writes this thread's logits of a query: those of the warp's keys, which begin at `first`. */
DEVICE void write_logits(const struct indexer_logits_fwd_params *params, const struct item *item,
                         int query, int first, const float (*sums)[2], const float (*scales)[2]) {
    if (query >= item->queries) {
        return;
    }
    const struct key_range window = window_of(params, item, query);
    float *const row = row_of(params, item, query);
#pragma unroll
    for (int tile = 0; tile < KEY_TILES; tile += 2) {
        const int key = first + key_of(tile, (int)threadIdx.x % 4 * 2);
        float values[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float sum = sums[tile + i / 2][i % 2];
            const float logit = canonical_logit(FP8 ? sum * scales[tile + i / 2][i % 2] : sum);
            const bool inside = key + i >= window.begin && key + i < window.end;
            values[i] = inside ? logit : LOWEST_LOGIT;
        }
        write_four(row + key, values, item->keys - key);
    }
}

/* Fills the item's rows of the groups that are not among `groups`. A warp a row. */
DEVICE void fill_others(const struct indexer_logits_fwd_params *params, const struct item *item,
                        u32 groups) {
    const float lowest[4] = {LOWEST_LOGIT, LOWEST_LOGIT, LOWEST_LOGIT, LOWEST_LOGIT};
    for (int query = (int)threadIdx.x / 32; query < item->queries; query += WARPS) {
        if (groups >> (query / GROUP_QUERIES) & 1) {
            continue;
        }
        float *const row = row_of(params, item, query);
        for (int key = (int)threadIdx.x % 32 * 4; key < item->keys; key += 128) {
            write_four(row + key, lowest, item->keys - key);
        }
    }
}

/* ---- the item -------------------------------------------------------------------------------- */

/* Waits until the oldest part under way has landed, everybody's share of it, and everybody has come
 * so far. */
DEVICE void wait_for_part(void) {
#line 302 "templates/indexer_logits_fwd.mma.cu"
    cp_async_wait_1();
#line 304 "templates/indexer_logits_fwd.mma.cu"
    __syncthreads();
}

/* The logits of the groups `groups`, of which the warp has keys in `mine`. By the whole block. */
DEVICE void compute_groups(const struct indexer_logits_fwd_params *params, const struct item *item,
                           u32 groups, u32 mine, int first) {
    struct key_block keys;
    float scales[KEY_TILES][2], sums[KEY_TILES][2];
    struct cursor copied = first_part(groups), used = copied;
    int stage = 0, free_stage = STAGES - 1;
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) {
        if (copied.left) {
            load_part(params, item, &copied, i);
            next_part(&copied);
        }
        cp_async_commit();
    }
    load_keys(&keys, params, item, first);
    if (FP8) {
        load_scales(scales, params, item, first);
    }
#pragma unroll 1
    while (used.left) {
        const int query = used.group * GROUP_QUERIES + (int)threadIdx.x % 32 / 4;
        wait_for_part();
        if (copied.left) {
            load_part(params, item, &copied, free_stage);
            next_part(&copied);
        }
        cp_async_commit();
        if (used.part == 0) {
#pragma unroll
            for (int tile = 0; tile < KEY_TILES; ++tile) {
                sums[tile][0] = sums[tile][1] = 0.0f;
            }
        }
        if (mine >> used.group & 1) {
            const float *const weights =
                params->weights + (item->first_query + minimum(query, item->queries - 1)) *
                                      params->weights_token_stride;
            add_part(sums, &keys, weights, used.part, stage);
        }
        if (used.part == PARTS - 1) {
            write_logits(params, item, query, first, sums, scales);
        }
        free_stage = stage;
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        next_part(&used);
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_logits_fwd_params params) {
    const i64 key_blocks = (params.rows - 1) / BLOCK_KEYS + 1;
    const i64 items = key_blocks * ((params.tokens - 1) / BLOCK_QUERIES + 1);
    const int first = (int)threadIdx.x / 32 * WARP_KEYS; /* of the item's keys, the warp's */
    if (DEPENDENT_LAUNCH && params.chained) {
        grid_launch_dependents();
    }
    if (DEPENDENT_LAUNCH && params.early) {
        grid_wait();
    }
#pragma unroll 1
    for (i64 number = blockIdx.x; number < items; number += gridDim.x) {
        const int first_query = (int)(number / key_blocks) * BLOCK_QUERIES;
        const int first_key = (int)(number % key_blocks) * BLOCK_KEYS;
        const struct item item = {first_query, first_key,
                                  minimum(params.tokens - first_query, BLOCK_QUERIES),
                                  minimum(params.rows - first_key, BLOCK_KEYS)};
        u32 mine;
        const u32 groups = groups_with_keys(&params, &item, first, &mine);
        if (params.fills) {
            fill_others(&params, &item, groups);
        }
        if (groups) {
            __syncthreads(); /* the item before may still be read */
            compute_groups(&params, &item, groups, mine, first);
        }
    }
}
