/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit topk_select_rows:topk=2048,pass=rows --arch sm_90a
 *
 * spec     topk_select_rows:topk=2048,pass=rows
 * arch     sm_90a
 * variant  rows
 * kernel   smelt_topk_select_rows_k2048_index
 * knobs (by the spec, or by rule)
 *   THREADS                        256  rule     of a thread block
 *   BLOCKS_PER_MULTIPROCESSOR        4  rule     resident at once, at least
 *   LEAST_SAMPLES                  512  rule     of a short window
 *   PREFETCH_BYTES               65536  rule     of a window that are prefetched at once
 * shared memory (offset, bytes)
 *   LIST_OFFSET                      0    32768  samples, entries, elements
 *   HISTOGRAM_OFFSET             32768     4096  entries of each bin
 *   EQUAL_OFFSET                 36864     1024  masks of a warp's lanes
 *   WARPS_OFFSET                 37888      384  a number of each warp
 *   NUMBERS_OFFSET               38272       24  what one thread found
 *   KNOWN_OFFSET                 38296       20  what earlier rounds found out
 *   SHARED_BYTES                 38316  of 232448 that a block may have on sm_90a
 * launch
 *   256 threads a block, 4 blocks resident per multiprocessor, at most 64 registers a thread
 *   grid: 1 block a row
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 4,  /* resident at once, at least */
    TOPK = 2048,                    /* elements that are selected of a row */
    ORDER_BY_SCORE = 0,             /* 1: descending by score, 0: ascending by index */
    LIST = 4096,                    /* entries that the list has room for */
    MOST_SAMPLES = 4096,            /* of a window */
    LEAST_SAMPLES = 512,            /* of a short window */
    SAMPLED = 64,                   /* elements for each sample of a long window */
    LONG_SAMPLED = 32,              /* the same, of a window that has more than the least samples */
    BINS = 1024,                    /* of a histogram */
    LOG_BINS = 10,                  /* their number's logarithm */
    PART_LIST = 4096,               /* entries that a part of a row leaves */
    DEPENDENT_LAUNCH = 1,           /* 1: may begin before the kernel ahead of it has ended */
    MERGE = 0,                      /* 1: behind the pass parts */
    MAP_BLOCKS = 128,               /* of 1024 elements that the map of bits has */
    PREFETCH_BYTES = 65536,         /* of a window that are prefetched at once */
    MAP_OFFSET = 16384,             /* bytes to the map, over the list's end */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    LIST_OFFSET = 0,                /* samples, entries, elements */
    HISTOGRAM_OFFSET = 32768,       /* entries of each bin */
    EQUAL_OFFSET = 36864,           /* masks of a warp's lanes */
    WARPS_OFFSET = 37888,           /* a number of each warp */
    NUMBERS_OFFSET = 38272,         /* what one thread found */
    KNOWN_OFFSET = 38296,           /* what earlier rounds found out */
    SHARED_BYTES = 38316,           /* the arena's size */
};

#define KERNEL_NAME smelt_topk_select_rows_k2048_index

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

#line 2 "templates/ptx/prefetch.cuh"

/* Brings `bytes` of global memory into the L2 cache, without waiting; the address and the number
 * are multiples of 16 (PTX ISA, "cp.async.bulk.prefetch"). */
DEVICE void prefetch_l2(const void *from, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" : : "l"(from), "r"(bytes) : "memory");
}

#line 2 "templates/ptx/shared.cuh"

/* The arena's 32-bit address in the shared state space, which the wrappers below take (PTX ISA,
 * "State Spaces", .shared). */
DEVICE u32 shared_address(u32 offset) {
    return (u32)__cvta_generic_to_shared(arena) + offset;
}

#line 2 "templates/ptx/append.cuh"

/* Where `wanted` is not 0, stores two words at a multiple of 8 bytes in shared memory; the address
 * behind what was stored. Predicated, without a branch (PTX ISA, "st", .shared). */
DEVICE u32 append_shared_8(u32 address, u32 wanted, u32 low, u32 high) {
    asm volatile("{.reg .pred wanted;\n\t"
                 "setp.ne.u32 wanted, %1, 0;\n\t"
                 "@wanted st.shared.v2.u32 [%0], {%2, %3};\n\t"
                 "@wanted add.u32 %0, %0, 8;}"
                 : "+r"(address)
                 : "r"(wanted), "r"(low), "r"(high)
                 : "memory");
    return address;
}

#line 2 "templates/ptx/atomic.cuh"

/* One thread after another changes a word; the result is what was there before. Nothing else is
 * ordered by it (PTX ISA, "atom", "red", .relaxed). Shared memory is named by 32-bit addresses
 * (ptx/shared.cuh). */
DEVICE u32 atomic_or_shared(u32 address, u32 bits) {
    u32 before;
    asm volatile("atom.relaxed.cta.shared.or.b32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"(address), "r"(bits)
                 : "memory");
    return before;
}

DEVICE u32 atomic_add_shared(u32 address, u32 value) {
    u32 before;
    asm volatile("atom.relaxed.cta.shared.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"(address), "r"(value)
                 : "memory");
    return before;
}

/* Without a result: nobody waits for it. */
DEVICE void reduce_add_global(u32 *to, u32 value) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" : : "l"(to), "r"(value) : "memory");
}

#line 2 "templates/ptx/redux.cuh"

/* The sum, the smallest and the largest of all 32 lanes' values, the same in every lane (PTX ISA,
 * "redux.sync"). */
DEVICE u32 warp_reduce_add(u32 value) {
    u32 all;
    asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
}

DEVICE u32 warp_reduce_min(u32 value) {
    u32 all;
    asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
}

DEVICE u32 warp_reduce_max(u32 value) {
    u32 all;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
}

#line 2 "templates/ptx/thread.cuh"

/* This thread's number in its block, read anew at each call: what follows from it stays in no
 * register in between (PTX ISA, "Special Registers: %tid"). */
DEVICE u32 thread_number(void) {
    u32 number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
}

#line 2 "templates/ptx/once.cuh"

/* 16 bytes of global memory that nobody reads again soon: they take no place in L1 (PTX ISA, "ld",
 * .L1::no_allocate). Unlike load_streaming_16 also of what a kernel before this one wrote after
 * this one had begun, behind grid_wait (ptx/grid.cuh). The address is a multiple of 16. */
DEVICE void load_once_16(u32 *values, const void *from) {
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
                 : "l"(from));
}

#line 2 "templates/ptx/order.cuh"

/* Shifts a mask one bit to the left and puts in whether x > threshold: the sign of their
 * difference, one addition and one shift. A NaN is not greater: the difference is then the
 * canonical NaN, whose sign is clear (PTX ISA, "sub", "Floating Point Comparisons"; 0x7fffffff). */
DEVICE u32 push_greater(u32 mask, float threshold, u32 x) {
    asm("{.reg .f32 difference;\n\t"
        ".reg .b32 bits;\n\t"
        "mov.b32 difference, %2;\n\t"
        "sub.rn.f32 difference, %1, difference;\n\t"
        "mov.b32 bits, difference;\n\t"
        "shf.l.wrap.b32 %0, bits, %0, 1;}"
        : "+r"(mask)
        : "f"(threshold), "r"(x));
    return mask;
}

#line 1 "templates/topk_select_rows.params.h"
/*
 * Arguments of the topk_select_rows kernels, all passes. Included by the host code and, by the
 * generator, by the CUDA source: plain C types only. Strides count elements.
 *
 * A part of a row leaves its list and its header to the pass `merge`: `lists` holds PART_LIST
 * entries for each part, of which the first ones are there, `headers` one for each part.
 */
struct topk_select_rows_header {
    int above;    /* entries of the part's list; more than PART_LIST: it did not fit */
    int equal;    /* elements at the bound that the list lacks, where they are counted */
    unsigned key; /* the bound, the same in all parts of a row */
    unsigned top; /* hardly a key is above */
    int counted;  /* 1: the list has what is above the bound; 0: also what is equal to it */
};

struct topk_select_rows_params {
    const float *logits;                     /* [rows, columns] */
    const int *window_begin;                 /* [rows], or null: 0 */
    const int *window_end;                   /* [rows], or null: columns */
    const int *offset;                       /* [rows] added to a row's indices, or null */
    int *indices;                            /* [rows, TOPK] */
    float *values;                           /* [rows, TOPK], or null */
    int *lengths;                            /* [rows], or null */
    unsigned long long *lists;               /* [rows, parts, PART_LIST] */
    struct topk_select_rows_header *headers; /* [rows, parts] */
    long long logits_stride, indices_stride, values_stride;
    int rows, columns;
    int index_offset; /* added to all indices */
    int parts;        /* of a row: blocks of the pass `parts` */
    int early;   /* 1: the matrix may still be written when the first kernel begins: it waits */
    int chained; /* 1: what is launched early behind the last kernel may begin: it waits */
};

#line 5 "templates/topk_select_rows.window.cuh"
/*
 * A row's window, and its scores as keys whose order as unsigned numbers is the scores'.
 *
 * Elements of a window are counted from the last multiple of 16 bytes that is not behind its
 * beginning: it has elements `first`, 0 to 3, up to `last`. They come in blocks of BLOCK, of which
 * a warp reads one at a time: vector i of lane l is elements 128 * i + 4 * l and the next three. A
 * mask of a lane's 32 elements has element c of vector i at bit 31 - (4 * i + c).
 */

enum {
    WARPS = THREADS / 32,
    ALL_LANES = -1,
    VECTOR = 4,  /* elements of 16 bytes */
    VECTORS = 8, /* that a lane has under way */
    STEP = 32 * VECTOR,
    BLOCK = VECTORS * STEP
};

/* Keys: negative numbers with all bits turned, others with the sign's set. No element has the key
 * of -0, which counts as +0, nor one below that of -inf, which NaN counts as. */
#define KEY_MINUS_INFINITY 0x007fffffu
#define KEY_MINUS_ZERO 0x7fffffffu
#define KEY_PLUS_INFINITY 0xff800000u
#define NAN_BITS 0x7fffffffu

DEVICE float minus_infinity(void) {
    return __uint_as_float(0xff800000u);
}

DEVICE u32 ordered_key(u32 bits) {
    /* The larger of NaN and a number is the number, and -0 + 0 is 0. */
    const u32 ordinary = __float_as_uint(fmaxf(__uint_as_float(bits), minus_infinity()) + 0.0f);
    return ordinary & 0x80000000u ? ~ordinary : ordinary | 0x80000000u;
}

DEVICE float key_score(u32 key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* A number that the elements from this key on exceed, and no others; the key is above -inf's. */
DEVICE float score_below(u32 key) {
    return key_score(key - 1 == KEY_MINUS_ZERO ? key - 2 : key - 1);
}

struct window {
    const float *data; /* element 0, which need not be there */
    int first, last;   /* its elements */
    int blocks;        /* that hold them */
    int column;        /* of element 0 */
};

DEVICE int clamp(int value, int least, int most) {
    return minimum(maximum(value, least), most);
}

DEVICE struct window open_window(const struct topk_select_rows_params *params, int row) {
    struct window window;
    const int begin =
        params->window_begin ? clamp(params->window_begin[row], 0, params->columns) : 0;
    const int end =
        params->window_end ? clamp(params->window_end[row], 0, params->columns) : params->columns;
    const float *const data = params->logits + row * params->logits_stride + begin;
    window.first = (int)((u64)data / sizeof(float) % VECTOR);
    window.last = window.first + maximum(end - begin, 0);
    window.data = data - window.first;
    window.column = begin - window.first;
    window.blocks = (window.last + BLOCK - 1) / BLOCK;
    return window;
}

DEVICE int window_length(const struct window *window) {
    return window->last - window->first;
}

/* A vector that the window has a part of; elements outside are NaN, and not read. */
DEVICE void load_part(const struct window *window, int element, u32 values[VECTOR]) {
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) {
        const bool inside = element + c >= window->first && element + c < window->last;
        values[c] = inside ? __float_as_uint(window->data[element + c]) : NAN_BITS;
    }
}

/* Any vector. */
DEVICE void load_vector(const struct window *window, int element, u32 values[VECTOR]) {
    if (element >= window->first && element + VECTOR <= window->last) {
        load_once_16(values, window->data + element);
    } else {
        load_part(window, element, values);
    }
}

/* A warp's block. */
DEVICE void load_block(const struct window *window, int block, u32 values[VECTORS][VECTOR]) {
    const int element = block * BLOCK + (int)threadIdx.x % 32 * VECTOR;
    if (block * BLOCK >= window->first && (block + 1) * BLOCK <= window->last) {
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            load_once_16(values[i], window->data + element + i * STEP);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        load_vector(window, element + i * STEP, values[i]);
    }
}

/* Which of a lane's elements exceed the threshold. */
DEVICE u32 mask_greater(u32 values[VECTORS][VECTOR], float threshold) {
    u32 mask = 0;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            mask = push_greater(mask, threshold, values[i][c]);
        }
    }
    return mask;
}

#line 6 "templates/topk_select_rows.rank.cuh"
/*
 * The list of entries in shared memory, and the one of a rank among them. An entry is 64 bits: a
 * key above, below it what tells equal keys apart. Sums over the block.
 *
 * Threads read their number anew wherever they need it (ptx/thread.cuh): kept, what follows from it
 * would take registers that those who read a window do not have.
 */

DEVICE u64 *list(void) {
    return (u64 *)(arena + LIST_OFFSET);
}

DEVICE u32 *histogram(void) {
    return (u32 *)(arena + HISTOGRAM_OFFSET);
}

/* One number of each warp, of several kinds. */
enum warp_number { WARP_SUM, WARP_LEAST, WARP_MOST };

DEVICE u32 *warp_numbers(enum warp_number kind) {
    return (u32 *)(arena + WARPS_OFFSET) + (int)kind * 32;
}

/* What one thread found and all need. */
enum shared_number {
    FOUND_BIN,
    FOUND_RANK,
    FOUND_COUNT,
    LIST_COUNT,
    FEW_COUNT,
    SAMPLE_TOP, /* hardly a key is above; -inf's: nothing is known */
    SHARED_NUMBERS
};

DEVICE int *shared_numbers(void) {
    return (int *)(arena + NUMBERS_OFFSET);
}

DEVICE u32 shared_number_address(enum shared_number which) {
    return shared_address(NUMBERS_OFFSET) + (u32)which * 4;
}

DEVICE int lane_number(void) {
    return (int)thread_number() % 32;
}

DEVICE int warp_number(void) {
    return (int)thread_number() / 32;
}

/* The sum of this lane's value and those of the lanes before it. */
DEVICE int sum_lanes_before(int value) {
    const int lane = lane_number();
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int before = __shfl_up_sync((u32)ALL_LANES, value, step);
        value += lane >= step ? before : 0;
    }
    return value;
}

/* The values of the threads before this one. A barrier, and one is needed before the next use of
 * the warps' sums. */
DEVICE int sum_threads_before(int value) {
    u32 *const sums = warp_numbers(WARP_SUM);
    const int inclusive = sum_lanes_before(value);
    if (lane_number() == 31) {
        sums[warp_number()] = (u32)inclusive;
    }
    __syncthreads();
    const u32 earlier = lane_number() < warp_number() ? sums[lane_number()] : 0;
    return (int)warp_reduce_add(earlier) + inclusive - value;
}

/* Likewise all threads' values. */
DEVICE int sum_threads(int value) {
    u32 *const sums = warp_numbers(WARP_SUM);
    const u32 sum = warp_reduce_add((u32)value);
    if (lane_number() == 0) {
        sums[warp_number()] = sum;
    }
    __syncthreads();
    return (int)warp_reduce_add(lane_number() < WARPS ? sums[lane_number()] : 0);
}

/* The smallest and the largest of all threads' keys, likewise. */
struct range {
    u64 low, high; /* entries */
};

DEVICE struct range range_of(u32 least, u32 most) {
    u32 *const all_least = warp_numbers(WARP_LEAST), *const all_most = warp_numbers(WARP_MOST);
    least = warp_reduce_min(least);
    most = warp_reduce_max(most);
    if (lane_number() == 0) {
        all_least[warp_number()] = least;
        all_most[warp_number()] = most;
    }
    __syncthreads();
    least = warp_reduce_min(lane_number() < WARPS ? all_least[lane_number()] : ~0u);
    most = warp_reduce_max(lane_number() < WARPS ? all_most[lane_number()] : 0);
    const struct range range = {(u64)least << 32, (u64)most << 32 | 0xffffffffu};
    return range;
}

/* Bits that a number has. */
DEVICE int bit_count(u64 number) {
    const u32 high = (u32)(number >> 32);
    return high ? 64 - __clz(high) : 32 - __clz((u32)number);
}

DEVICE void clear_histogram(void) {
#pragma unroll
    for (int i = (int)thread_number(); i < BINS; i += THREADS) {
        histogram()[i] = 0;
    }
}

/* How many entries of the range each bin has. Bins are of 2^shift entries from the range's low end,
 * and counted from its high end, so that a thread's are side by side. */
DEVICE void count_bins(int count, const struct range *range, int shift) {
    const u32 bins = shared_address(HISTOGRAM_OFFSET);
    clear_histogram();
    __syncthreads();
#pragma unroll 2
    for (int i = (int)thread_number(); i < count; i += THREADS) {
        const u64 entry = list()[i];
        if (entry >= range->low && entry <= range->high) {
            const u32 bin = (u32)((entry - range->low) >> shift);
            atomic_add_shared(bins + (BINS - 1 - bin) * 4, 1);
        }
    }
    __syncthreads();
}

/* Finds the bin in which the rank falls: the thread that has it tells all. */
DEVICE void find_bin(int rank) {
    enum { OWN = BINS / THREADS };
    u32 counts[OWN];
    int sum = 0;
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        counts[i] = histogram()[(int)thread_number() * OWN + i];
        sum += (int)counts[i];
    }
    int before = sum_threads_before(sum);
    if (before < rank && rank <= before + sum) {
        int bin = 0;
#pragma unroll
        for (int i = 0; i < OWN - 1; ++i) {
            const bool past = bin == i && before + (int)counts[i] < rank;
            before += past ? (int)counts[i] : 0;
            bin += past;
        }
        shared_numbers()[FOUND_BIN] = BINS - 1 - ((int)thread_number() * OWN + bin);
        shared_numbers()[FOUND_RANK] = rank - before;
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            if (i == bin) {
                shared_numbers()[FOUND_COUNT] = (int)counts[i];
            }
        }
    }
    __syncthreads();
}

/* A threshold: `count` entries of the range are not below it. */
struct threshold {
    u64 entry;
    int count;
};

/*
 * The threshold with at least `rank` entries, and at most `slack` more unless bins of 2^least_shift
 * entries do not tell them apart. The range holds `rank` entries or more. Ends without a barrier
 * behind its last reads of shared numbers.
 */
DEVICE struct threshold find_threshold(int count, int rank, struct range range, int least_shift,
                                       int slack) {
    struct threshold threshold;
    int left = rank;
    for (;;) {
        const int shift = maximum(bit_count(range.high - range.low) - LOG_BINS, least_shift);
        count_bins(count, &range, shift);
        find_bin(left);
        const int in_bin = shared_numbers()[FOUND_COUNT];
        left = shared_numbers()[FOUND_RANK];
        range.low += (u64)shared_numbers()[FOUND_BIN] << shift;
        const u64 high = range.low + (((u64)1 << shift) - 1);
        range.high = high < range.high ? high : range.high;
        threshold.entry = range.low;
        threshold.count = rank - left + in_bin;
        if (in_bin - left <= slack || shift == least_shift) {
            return threshold;
        }
    }
}

#line 2 "templates/topk_select_rows.guess.cuh"
/*
 * From a window to a bound, below which hardly one of its best is: a guess from a sample. What is
 * above it is then counted exactly (topk_select_rows.list.cuh), which proves the guess or tells
 * where the next is to be looked for. So whatever is guessed here, good or bad, costs time alone.
 */

/* Standard deviations by which the bound is below the rank that the sample shows: of 100 to 200
 * rows one is read again because too few elements are above it. Of long windows, for which there
 * may be no more blocks than are resident at once, so that all wait for one that reads again,
 * hardly any is: more samples leave the list room for more elements. */
#define DEVIATIONS 2.5f
#define LONG_DEVIATIONS 3.25f
enum { LONG = LEAST_SAMPLES * SAMPLED };

/* Where the key of the wanted rank is known to be. Neither end is the key of -0. */
struct known {
    u32 low, high; /* it is one of these and what is between */
    int above;     /* elements above high */
    int at_least;  /* elements from low on */
    int kept;      /* entries of the list that are of the latter, the first ones that were found */
};

/* What the list is to hold: elements from the key on; or those above it, the equal ones counted. */
struct bound {
    u32 key;
    int counted;
};

DEVICE struct known know_nothing(const struct window *window) {
    const struct known known = {KEY_MINUS_INFINITY, KEY_PLUS_INFINITY, 0, window_length(window), 0};
    return known;
}

DEVICE u32 hash(u32 number) {
    number = number * 0x9e3779b1u + 0x7f4a7c15u;
    number = (number ^ number >> 15) * 0x85ebca6bu;
    return number ^ number >> 13;
}

DEVICE int sample_count(const struct window *window) {
    const int each = window_length(window) > LONG ? LONG_SAMPLED : SAMPLED;
    int count = LEAST_SAMPLES;
    while (count < MOST_SAMPLES && count * each < window_length(window)) {
        count *= 2;
    }
    return count;
}

/* Keys of which some are possible. */
struct sample {
    int count, possible;
    struct range range; /* of the possible ones */
};

/* Puts `count` keys into the list: whole vectors, each somewhere in its part of the window, in each
 * round elsewhere. Clears the histogram. */
DEVICE struct sample draw_sample(const struct window *window, int count, int round,
                                 const struct known *known) {
    const u32 begin = (u32)(window->first + VECTOR - 1) / VECTOR;
    const u32 vectors = (u32)window->last / VECTOR - begin, groups = (u32)count / VECTOR;
    const int shift = 31 - __clz(groups) + 10; /* groups are a power of two */
    struct sample sample = {count};
    u32 least = ~0u, most = 0;
    int possible = 0;
    clear_histogram();
    for (u32 group = thread_number(); group < groups; group += THREADS) {
        const u64 place = ((u64)group << 10) + (hash(group + (u32)round * groups) & 1023u);
        const u32 vector = begin + (u32)(place * vectors >> shift);
        u32 values[VECTOR];
        load_once_16(values, window->data + vector * (u64)VECTOR);
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            const u32 key = ordered_key(values[c]);
            const bool inside = key >= known->low && key <= known->high;
            list()[group * VECTOR + (u32)c] = (u64)key << 32;
            least = inside && key < least ? key : least;
            most = inside && key > most ? key : most;
            possible += inside;
        }
    }
    sample.range = range_of(least, most);
    sample.possible = round == 0 ? count : sum_threads(possible);
    return sample;
}

/* Makes a sample of what a list that was too short kept. Clears the histogram. */
DEVICE struct sample take_kept(int count) {
    struct sample sample = {count, count};
    u32 least = ~0u, most = 0;
    clear_histogram();
#pragma unroll 1
    for (int i = (int)thread_number(); i < count; i += THREADS) {
        const u32 key = ordered_key((u32)(list()[i] >> 32));
        list()[i] = (u64)key << 32;
        least = key < least ? key : least;
        most = key > most ? key : most;
    }
    sample.range = range_of(least, most);
    return sample;
}

/* The middle of what is possible. */
DEVICE struct bound halve(const struct known *known) {
    struct bound bound = {known->low + (known->high - known->low) / 2, 1};
    bound.key += bound.key == KEY_MINUS_ZERO;
    return bound;
}

/* Guesses a score that `target` samples are not below, and at most `slack` more: from bins of equal
 * width, by the histogram that was cleared. False if one bin has too many, or scores are infinite.
 */
DEVICE bool guess_bound(struct sample sample, int target, int slack, struct bound *bound) {
    const u32 counts = shared_address(HISTOGRAM_OFFSET);
    const float low = key_score((u32)(sample.range.low >> 32));
    const float width = (key_score((u32)(sample.range.high >> 32)) - low) / (float)(BINS - 1);
    const float scale = 1.0f / width;
    const float most = 1e30f; /* so that no product of a difference and the scale overflows */
    if (!(width < most && scale < most)) {
        return false;
    }
    for (int i = (int)thread_number(); i < sample.count; i += THREADS) {
        const u64 entry = list()[i];
        if (entry >= sample.range.low && entry <= sample.range.high) {
            const float place = (key_score((u32)(entry >> 32)) - low) * scale;
            atomic_add_shared(counts + (u32)(BINS - 1 - minimum((int)place, BINS - 1)) * 4, 1);
        }
    }
    __syncthreads();
    find_bin(target);
    if (shared_numbers()[FOUND_COUNT] - shared_numbers()[FOUND_RANK] > slack) {
        return false;
    }
    bound->key = ordered_key(__float_as_uint(low + (float)shared_numbers()[FOUND_BIN] * width));
    return true;
}

/* What was found out is in shared memory, so that reading a window needs no registers for it;
 * before the first round it is nothing. */
DEVICE struct known *shared_known(void) {
    return (struct known *)(arena + KNOWN_OFFSET);
}

DEVICE struct known load_known(const struct window *window, int round) {
    return round == 0 ? know_nothing(window) : *shared_known();
}

/* The next bound: so far below the wanted rank that it is hardly missed. All threads agree. */
DEVICE struct bound choose_bound(const struct window *window, int wanted, int round) {
    const struct known known = load_known(window, round);
    struct bound bound = {known.low, 1};
    if (thread_number() == 0) {
        shared_numbers()[SAMPLE_TOP] = KEY_MINUS_INFINITY;
    }
    if (known.at_least <= LIST) {
        return bound;
    }
    const struct sample sample = known.kept > 0 && round % 2
                                     ? take_kept(known.kept)
                                     : draw_sample(window, sample_count(window), round, &known);
    if (sample.possible == 0 || round % 8 == 7) {
        return halve(&known);
    }
    const float share = (float)(wanted - known.above) / (float)(known.at_least - known.above);
    const float rank = share * (float)sample.possible;
    const float deviation = sqrtf(fmaxf(rank * (1.0f - share), 0.0f));
    const float below =
        LONG_SAMPLED < SAMPLED && window_length(window) > LONG ? LONG_DEVIATIONS : DEVIATIONS;
    const int target = clamp((int)ceilf(rank + below * deviation + 1.0f), 1, sample.possible);
    const int slack = target / 8;
    if (thread_number() == 0) {
        shared_numbers()[SAMPLE_TOP] = (int)(u32)(sample.range.high >> 32);
    }
    bound.counted = 0;
    if (!guess_bound(sample, target, slack, &bound)) {
        const struct threshold threshold =
            find_threshold(sample.count, target, sample.range, 32, slack);
        bound.key = (u32)(threshold.entry >> 32);
        /* Many equal samples: the list is to do without those elements. */
        bound.counted = threshold.count - target > slack;
    }
    bound.counted = bound.counted || bound.key <= known.low;
    return bound;
}

#line 3 "templates/topk_select_rows.list.cuh"
/*
 * From a window to a list of entries that holds its best: the window is read once, and what is
 * above the guessed bound kept. Exact counts tell whether that is enough; else once more with what
 * they told, so that the result is exact whatever the guesses.
 *
 * An entry of the list is a score's bits, later its key, above ~element: of equal keys the first
 * element is the largest entry.
 */

/* Keeps a lane's elements of the mask, in any order. A list that is too short is noticed by its
 * count. */
DEVICE void keep_elements(u32 values[VECTORS][VECTOR], u32 mask, int block) {
    const int count = __popc(mask);
    const int inclusive = sum_lanes_before(count);
    const u32 element = (u32)(block * BLOCK + lane_number() * VECTOR);
    const int total = __shfl_sync((u32)ALL_LANES, inclusive, 31);
    u32 at = 0;
    if (total == 0) {
        return;
    }
    if (lane_number() == 31) {
        at = atomic_add_shared(shared_number_address(LIST_COUNT), (u32)total);
    }
    at = __shfl_sync((u32)ALL_LANES, at, 31);
    if (at + (u32)total > LIST) {
        return;
    }
    u32 address = shared_address(LIST_OFFSET) + (at + (u32)(inclusive - count)) * 8;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            address = append_shared_8(address, mask & 0x80000000u >> (i * VECTOR + c),
                                      ~(element + (u32)(i * STEP + c)), values[i][c]);
        }
    }
}

/* Below -inf's key is nothing: with that as the bound, which is a counted one then, all that the
 * list lacks is equal to it, NaN too, and however many there are they are enough. */
DEVICE bool has_all(struct bound bound) {
    return bound.key == KEY_MINUS_INFINITY;
}

/* Reads blocks `begin` to `end` of the window, a warp a block; the list's count was cleared before
 * a barrier. How many equal elements this thread counted. */
DEVICE int read_blocks(const struct window *window, int begin, int end, struct bound bound) {
    const float below = score_below(bound.key);
    const float threshold = bound.counted ? key_score(bound.key) : below;
    int equal = 0;
#pragma unroll 1
    for (int block = begin + warp_number(); block < end; block += WARPS) {
        u32 values[VECTORS][VECTOR];
        load_block(window, block, values);
        const u32 above = mask_greater(values, threshold);
        if (bound.counted && !has_all(bound)) {
            equal += __popc(mask_greater(values, below)) - __popc(above);
        }
        keep_elements(values, above, block);
    }
    return equal;
}

/* Whether a list of `above` entries, with `equal` elements at the bound that it lacks, is enough.
 * `complete`: it had room for all of them. */
DEVICE bool is_enough(struct bound bound, int above, int equal, int wanted, bool complete) {
    return above >= wanted ? complete
                           : bound.counted && (has_all(bound) || above + equal >= wanted);
}

/* One thread: what follows where it is not. `kept`: entries that a list without room for all holds
 * at least. */
DEVICE void learn(const struct window *window, int round, struct bound bound, int above, int equal,
                  int wanted, int kept) {
    struct known known = load_known(window, round);
    if (above >= wanted) {
        known.low = bound.key + (u32)bound.counted;
        known.low += known.low == KEY_MINUS_ZERO;
        known.at_least = above;
        known.kept = kept;
    } else {
        known.high = bound.key - 1 - (bound.key - 1 == KEY_MINUS_ZERO);
        known.above = above + equal;
        known.kept = 0;
    }
    *shared_known() = known;
}

/* What the list holds. */
struct found {
    struct bound bound;
    int count;
};

/* The list of a window whose `wanted` best it has, but for those equal to the bound. From `round` 1
 * on shared memory says where to look. Begins and ends behind a barrier. */
DEVICE struct found find_list(const struct window *window, int wanted, int round) {
    struct found found;
    for (;; ++round) {
        if (thread_number() == 0) {
            shared_numbers()[LIST_COUNT] = 0;
        }
        found.bound = choose_bound(window, wanted, round);
        __syncthreads(); /* the sample was read, the count is 0 */
        const int equal = sum_threads(read_blocks(window, 0, window->blocks, found.bound));
        found.count = shared_numbers()[LIST_COUNT];
        if (is_enough(found.bound, found.count, equal, wanted, found.count <= LIST)) {
            return found;
        }
        __syncthreads(); /* the count was read */
        if (thread_number() == 0) {
            learn(window, round, found.bound, found.count, equal, wanted, LIST - BLOCK);
        }
        __syncthreads();
    }
}

#line 2 "templates/topk_select_rows.emit.cuh"
/*
 * From a list that holds a window's best to what is written. Entry i is thread i % THREADS's. Loops
 * over a thread's entries are unrolled only where it has to hold them in registers, since what is
 * written takes their place: those loops are most of the kernel's instructions, and of the time
 * that its compilation takes.
 *
 * Ascending by index: each chosen element is a bit of a map, and its place is the number of bits
 * before it. Else, or where a window is longer than the map, the chosen entries are sorted:
 * Batcher's bitonic network (K. E. Batcher, Sorting networks and their applications, 1968), which
 * takes any number of entries.
 */

enum {
    OWN = (LIST + THREADS - 1) / THREADS,    /* entries of a thread */
    CHOSEN = (TOPK + THREADS - 1) / THREADS, /* at most, of those that are written */
    PAIR = 64,                               /* elements of two words of the map */
    BLOCK_PAIRS = BLOCK / PAIR,
    ALL_WANTED = 1 /* as the least entry: no entry is 0 */
};

DEVICE u32 *map_words(void) {
    return (u32 *)(arena + MAP_OFFSET);
}

/* Two words of it at once, the first one below. */
DEVICE const u64 *map_pairs(void) {
    return (const u64 *)(arena + MAP_OFFSET);
}

/* Elements of the map before each two words: where the histogram was. */
DEVICE unsigned short *pair_places(void) {
    return (unsigned short *)(arena + HISTOGRAM_OFFSET);
}

/* What is written, over the list: elements in order, and behind them their keys. */
DEVICE u32 *chosen_elements(void) {
    return (u32 *)(arena + LIST_OFFSET);
}

DEVICE u32 *chosen_keys(void) {
    return chosen_elements() + TOPK;
}

DEVICE u32 *equal_words(void) {
    return (u32 *)(arena + EQUAL_OFFSET) + warp_number() * 32;
}

/* ---- the least entry that is wanted ---------------------------------------------------------- */

/* Entries are packed: a key above so many bits as elements need, in which earlier ones are larger.
 */
DEVICE int element_bits(const struct window *window) {
    return 32 - __clz((u32)window->last);
}

DEVICE u32 element_mask(const struct window *window) {
    return ~0u >> __clz((u32)window->last);
}

DEVICE u64 pack_entry(const struct window *window, u32 key, u32 element) {
    return (u64)key << element_bits(window) | (element_mask(window) - element);
}

DEVICE u32 packed_key(const struct window *window, u64 entry) {
    return (u32)(entry >> element_bits(window));
}

DEVICE u32 packed_element(const struct window *window, u64 entry) {
    return element_mask(window) - ((u32)entry & element_mask(window));
}

/* Keys in bins of 2^shift from `low` on; the last bin has all that is above. */
struct bins {
    u32 low, high; /* keys are in this range */
    int shift;
};

/* Bins for the list's keys: above the bound as far as the sample went, or as far as there are any.
 */
DEVICE struct bins choose_bins(struct found found) {
    struct bins bins = {found.bound.key, KEY_PLUS_INFINITY, 0};
    u32 top = (u32)shared_numbers()[SAMPLE_TOP];
    if (top == KEY_MINUS_INFINITY) {
        u32 least = ~0u, most = 0;
#pragma unroll 1
        for (int i = (int)thread_number(); i < found.count; i += THREADS) {
            const u32 key = ordered_key((u32)(list()[i] >> 32));
            least = key < least ? key : least;
            most = key > most ? key : most;
        }
        const struct range range = range_of(least, most);
        bins.low = (u32)(range.low >> 32);
        top = (u32)(range.high >> 32);
    }
    bins.shift = maximum(bit_count(top - bins.low) - LOG_BINS, 0);
    return bins;
}

/* Packs the list, a thread its own entries, and counts them by bins. Begins behind a barrier and
 * ends with one. */
DEVICE void pack_list(const struct window *window, int count, const struct bins *bins) {
    const u32 counts = shared_address(HISTOGRAM_OFFSET);
    clear_histogram();
    if (thread_number() == 0) {
        shared_numbers()[FEW_COUNT] = 0;
    }
    __syncthreads();
#pragma unroll 2
    for (int i = (int)thread_number(); i < count; i += THREADS) {
        const u64 entry = list()[i];
        const u32 key = ordered_key((u32)(entry >> 32));
        const u32 bin = (key - bins->low) >> bins->shift;
        list()[i] = pack_entry(window, key, ~(u32)entry);
        atomic_add_shared(counts + (BINS - 1 - (bin < BINS ? bin : BINS - 1)) * 4, 1);
    }
    __syncthreads();
}

/* The entry of a rank among the `in_range` of a range, THREADS at most: each is compared with all
 * others. */
DEVICE u64 rank_few(int count, struct range range, int in_range, int rank) {
    enum { RESULT = BINS / 2 - 1 };
    u64 *const few = (u64 *)histogram(); /* which is not needed any more */
#pragma unroll 4
    for (int i = (int)thread_number(); i < count; i += THREADS) {
        const u64 entry = list()[i];
        if (entry >= range.low && entry <= range.high) {
            few[atomic_add_shared(shared_number_address(FEW_COUNT), 1)] = entry;
        }
    }
    __syncthreads();
    if ((int)thread_number() < in_range) {
        const u64 one = few[thread_number()];
        int larger = 0;
        for (int i = 0; i < in_range; ++i) {
            larger += few[i] > one;
        }
        if (larger == rank - 1) {
            few[RESULT] = one;
        }
    }
    __syncthreads();
    return few[RESULT];
}

/* The least entry of those wanted, out of a packed list and its counts. */
DEVICE u64 find_least(const struct window *window, int count, int wanted, const struct bins *bins) {
    const int bits = element_bits(window);
    if (count <= wanted) {
        return ALL_WANTED;
    }
    find_bin(wanted);
    const int in_bin = shared_numbers()[FOUND_COUNT], rank = shared_numbers()[FOUND_RANK];
    const u32 bin = (u32)shared_numbers()[FOUND_BIN];
    const u32 low = bins->low + (bin << bins->shift);
    const u32 high = bin == BINS - 1 ? bins->high : low + ((1u << bins->shift) - 1u);
    const struct range range = {(u64)low << bits, (u64)high << bits | element_mask(window)};
    if (in_bin == rank) {
        return range.low;
    }
    if (in_bin <= minimum(THREADS, BINS / 2 - 1)) {
        return rank_few(count, range, in_bin, rank);
    }
    return find_threshold(count, rank, range, 0, 0).entry;
}

/* Moves the entries from `least` on to the list's beginning: each warp's together, in their order,
 * since lanes that write apart from one another would meet in a bank. Begins behind a barrier and
 * ends without one. */
DEVICE void gather_entries(int count, u64 least) {
    u64 own[OWN];
    int kept = 0;
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        const int i = (int)thread_number() + j * THREADS;
        own[j] = i < count ? list()[i] : 0;
        kept += own[j] >= least;
    }
    int place = __shfl_sync((u32)ALL_LANES, sum_threads_before(kept), 0);
    const u32 before = (1u << lane_number()) - 1u;
#pragma unroll
    for (int j = 0; j < OWN; ++j) {
        const u32 which = __ballot_sync((u32)ALL_LANES, own[j] >= least);
        if (own[j] >= least) {
            list()[place + __popc(which & before)] = own[j];
        }
        place += __popc(which);
    }
}

/* ---- elements equal to the bound ------------------------------------------------------------- */

/* Lane n's 32 elements from 32 * n on, out of all lanes' four of each vector: the first in bit 0 of
 * both. */
DEVICE u32 turn_masks(u32 mask) {
    u32 *const words = equal_words();
    const int shift = 4 * (lane_number() / 4);
    u32 word = 0;
    words[lane_number()] = mask;
    __syncwarp((u32)ALL_LANES);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        word |= (words[lane_number() % 4 * 8 + i] >> shift & 15u) << (4 * i);
    }
    __syncwarp((u32)ALL_LANES);
    return word;
}

/* A lane's elements of a block that are equal to the bound: element c of vector i in bit 4 * i + c.
 * A few vectors at a time, for which there are registers. */
DEVICE u32 equal_elements(const struct window *window, int block, u32 key) {
    const int element = block * BLOCK + lane_number() * VECTOR;
    u32 mask = 0;
    if (block >= window->blocks) {
        return 0;
    }
#pragma unroll 4
    for (int i = 0; i < VECTORS; ++i) {
        u32 values[VECTOR];
        load_vector(window, element + i * STEP, values);
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            const int at = element + i * STEP + c;
            const bool inside = at >= window->first && at < window->last;
            mask |= (u32)(inside && ordered_key(values[c]) == key) << (i * VECTOR + c);
        }
    }
    return mask;
}

/* Takes the first `wanted` elements equal to the bound into the map, a lane whole words of it; or,
 * packed, into the list behind its `count` entries. Ends with a barrier. */
DEVICE void take_equal(const struct window *window, u32 key, int wanted, bool mapped, int count) {
    u32 *const sums = warp_numbers(WARP_SUM);
    int taken = 0;
#pragma unroll 1
    for (int first = 0; first < window->blocks && taken < wanted; first += WARPS) {
        const int block = first + warp_number(), number = block * 32 + lane_number();
        u32 word = turn_masks(equal_elements(window, block, key)), chosen = 0;
        const int own = __popc(word), inclusive = sum_lanes_before(own);
        if (lane_number() == 31) {
            sums[warp_number()] = (u32)inclusive;
        }
        __syncthreads();
        const u32 sum = lane_number() < WARPS ? sums[lane_number()] : 0;
        int rank =
            taken + inclusive - own + (int)warp_reduce_add(lane_number() < warp_number() ? sum : 0);
        if (mapped && rank + own <= wanted) { /* all of them */
            chosen = word;
            word = 0;
        }
        while (word && rank < wanted) {
            const u32 bit = (u32)__ffs((int)word) - 1u;
            if (mapped) {
                chosen |= 1u << bit;
            } else {
                list()[count + rank] = pack_entry(window, key, (u32)number * 32 + bit);
            }
            word &= word - 1;
            ++rank;
        }
        if (mapped && chosen) {
            map_words()[number] |= chosen;
        }
        taken += (int)warp_reduce_add(sum);
        __syncthreads();
    }
}

/* ---- ascending by index ---------------------------------------------------------------------- */

/* The map of the list's `count` entries, over the list's end. Ends with a barrier. */
DEVICE void make_map(const struct window *window, int count) {
    const u32 words = shared_address(MAP_OFFSET);
    for (int i = (int)thread_number(); i < window->blocks * (BLOCK / 32); i += THREADS) {
        map_words()[i] = 0;
    }
    __syncthreads();
#pragma unroll 4
    for (int i = (int)thread_number(); i < count; i += THREADS) {
        const u32 element = packed_element(window, list()[i]);
        atomic_or_shared(words + element / 32 * 4, 1u << element % 32);
    }
    __syncthreads();
}

/* How many elements are before each pair of the map's words. Unless the map has nothing but
 * entries, also puts all its elements in order, and if keys are wanted the bound's key, which is
 * that of those which are none. Ends with a barrier. */
DEVICE void count_map(const struct window *window, bool entries, u32 key, bool keys) {
    const int pairs = window->blocks * BLOCK_PAIRS, each = (pairs + THREADS - 1) / THREADS;
    const int begin = minimum((int)thread_number() * each, pairs);
    const int end = minimum(begin + each, pairs);
    int count = 0;
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
        count += __popcll(map_pairs()[i]);
    }
    int place = sum_threads_before(count);
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
        pair_places()[i] = (unsigned short)place;
        place += __popcll(map_pairs()[i]);
    }
    __syncthreads();
    /* A word a thread, from the bit of its lane's number on: full words would else meet in the same
     * bank. */
    const u32 lane = (u32)lane_number();
#pragma unroll 1
    for (int i = (int)thread_number(); !entries && i < 2 * pairs; i += THREADS) {
        const u32 word = map_words()[i];
        const int first = pair_places()[i / 2] + (i % 2 ? __popc(map_words()[i - 1]) : 0);
        u32 left = word >> lane | word << 1 << (31 - lane);
#pragma unroll 1
        while (left) {
            const u32 bit = (u32)(__ffs((int)left) - 1 + (int)lane) % 32;
            const int at = first + __popc(word & ((1u << bit) - 1u));
            chosen_elements()[at] = (u32)i * 32 + bit;
            if (keys) {
                chosen_keys()[at] = key;
            }
            left &= left - 1;
        }
    }
    __syncthreads();
}

/* The thread's own of the list's first `count` entries, at most TOPK; 0 where there are no more. */
DEVICE void load_chosen(int count, u64 own[CHOSEN]) {
#pragma unroll
    for (int j = 0; j < CHOSEN; ++j) {
        const int i = (int)thread_number() + j * THREADS;
        own[j] = i < count ? list()[i] : 0;
    }
}

/* Puts them where the map says. Ends with a barrier. */
DEVICE void place_entries(const struct window *window, const u64 own[CHOSEN], bool keys) {
#pragma unroll
    for (int j = 0; j < CHOSEN; ++j) {
        if (own[j] != 0) {
            const u32 element = packed_element(window, own[j]), pair = element / PAIR;
            const u64 before = ((u64)1 << element % PAIR) - 1;
            const int place = pair_places()[pair] + __popcll(map_pairs()[pair] & before);
            chosen_elements()[place] = element;
            if (keys) {
                chosen_keys()[place] = packed_key(window, own[j]);
            }
        }
    }
    __syncthreads();
}

/* ---- sorted ---------------------------------------------------------------------------------- */

/* Makes a chosen entry one that is sorted by its element, a key below. */
DEVICE u64 turn_entry(const struct window *window, u64 entry) {
    return (u64)~packed_element(window, entry) << 32 | packed_key(window, entry);
}

/* Turns the list's `count` entries. A thread its own; ends with a barrier. */
DEVICE void turn_entries(const struct window *window, int count) {
#pragma unroll 1
    for (int i = (int)thread_number(); i < count; i += THREADS) {
        list()[i] = turn_entry(window, list()[i]);
    }
    __syncthreads();
}

/* One step of the network: entries `stride` apart in runs of 2 * stride, or mirrored in them. */
DEVICE void sort_step(int count, int stride, bool mirrored) {
    for (int i = (int)thread_number();; i += THREADS) {
        const int within = i & (stride - 1), low = 2 * i - within;
        const int high = mirrored ? low + 2 * (stride - within) - 1 : low + stride;
        if (low >= count) {
            break;
        }
        if (high < count && list()[low] < list()[high]) {
            const u64 larger = list()[high];
            list()[high] = list()[low];
            list()[low] = larger;
        }
    }
    __syncthreads();
}

/* Descending. Begins behind a barrier and ends with one. */
DEVICE void sort_list(int count) {
    for (int run = 1; run < count; run *= 2) {
        sort_step(count, run, true);
        for (int stride = run / 2; stride > 0; stride /= 2) {
            sort_step(count, stride, false);
        }
    }
}

/* ---- what is written ------------------------------------------------------------------------- */

/* A row of the results. */
struct target {
    int *indices;
    float *values; /* or null */
    u32 offset;    /* of element 0 */
};

DEVICE struct target open_target(const struct topk_select_rows_params *params,
                                 const struct window *window, int row) {
    struct target target = {params->indices + row * params->indices_stride, params->values, 0};
    if (target.values) {
        target.values += row * params->values_stride;
    }
    target.offset = (u32)window->column + (u32)params->index_offset +
                    (params->offset ? (u32)params->offset[row] : 0);
    return target;
}

/* Place i of a row: an element and its key, or none. */
DEVICE void store_place(const struct target *target, int i, bool there, u32 element, u32 key) {
    target->indices[i] = there ? (int)(element + target->offset) : -1;
    if (target->values) {
        target->values[i] = there ? key_score(key) : minus_infinity();
    }
}

/* The elements, or else the entries, that the list now begins with. */
DEVICE void store_row(const struct topk_select_rows_params *params, const struct window *window,
                      int row, int wanted, bool mapped) {
    const struct target target = open_target(params, window, row);
#pragma unroll 2
    for (int i = (int)thread_number(); i < TOPK; i += THREADS) {
        const bool there = i < wanted;
        if (mapped) {
            store_place(&target, i, there, there ? chosen_elements()[i] : 0,
                        there && target.values ? chosen_keys()[i] : 0);
        } else {
            const u64 entry = there ? list()[i] : 0;
            const u32 element =
                ORDER_BY_SCORE ? packed_element(window, entry) : ~(u32)(entry >> 32);
            const u32 key = ORDER_BY_SCORE ? packed_key(window, entry) : (u32)entry;
            store_place(&target, i, there, element, key);
        }
    }
}

/* Writes a row out of its list of scores. Begins behind a barrier. */
DEVICE void emit_row(const struct topk_select_rows_params *params, const struct window *window,
                     int row, int wanted, struct found found) {
    const bool mapped = !ORDER_BY_SCORE && window->blocks <= MAP_BLOCKS;
    const struct bins bins = choose_bins(found);
    pack_list(window, found.count, &bins);
    const u64 least = find_least(window, found.count, wanted, &bins);
    const int entries = minimum(found.count, wanted);
    if (found.count > wanted) {
        gather_entries(found.count, least);
    }
    if (mapped) {
        make_map(window, entries);
    }
    if (entries < wanted) {
        take_equal(window, found.bound.key, wanted - entries, mapped, entries);
    }
    if (mapped) {
        u64 own[CHOSEN];
        load_chosen(entries, own);
        count_map(window, entries == wanted, found.bound.key, params->values != 0);
        place_entries(window, own, params->values != 0);
    } else {
        __syncthreads(); /* the list was gathered */
        if (!ORDER_BY_SCORE) {
            turn_entries(window, wanted);
        }
        sort_list(wanted);
    }
    store_row(params, window, row, wanted, mapped);
}

/* A window of at most TOPK elements: all of it, in order. */
DEVICE void emit_whole(const struct topk_select_rows_params *params, const struct window *window,
                       int row) {
    const struct target target = open_target(params, window, row);
#pragma unroll 2
    for (int i = (int)thread_number(); i < TOPK; i += THREADS) {
        store_place(&target, i, i < window_length(window), (u32)(window->first + i), 0);
    }
}

#line 4 "templates/topk_select_rows.cu"
/*
 * Exact top-k of the rows of a matrix within windows, a thread block a row. Meaning:
 * include/smelt/topk_select.h.
 *
 * logits [rows, columns] fp32 -> indices [rows, TOPK] int32, ascending or, with ORDER_BY_SCORE, by
 * descending score; values and lengths where asked for. WARPS warps of one role.
 *
 *   1. bound    of a sample of the window, an element so far below the wanted rank that hardly ever
 *               too few are above it
 *   2. list     the window is read once; scores above the bound are kept, about one and a half
 *               times TOPK. If fewer than TOPK or more than LIST are, again with what the counts
 *               told
 *   3. rank     histograms of the list, each of the bin that the one before found, down to one
 *               entry
 *   4. emit     a map of bits and their sums, or a sort
 *
 * What many elements are equal to is not kept but counted, and the first of them are looked for at
 * the end. The result is exact whatever the sample, and nothing in it depends on the order of
 * atomics.
 *
 * With PARTS (pass `merge`) step 2 was done by the blocks of pass `parts`, a part of the row each;
 * this kernel collects their lists, and if they are not enough goes on alone.
 *
 * Shared memory:
 *   LIST          [LIST] u64: samples; then entries of the window; at last elements and keys in
 *                 order, [TOPK] u32 each, and at its end MAP, [MAP_BLOCKS * 32] u32: a bit an
 *                 element
 *   HISTOGRAM     [BINS] u32; of pass `merge` first where each part's entries begin; at last the
 *                 elements of the map before each 64
 *   EQUAL         [WARPS][32] u32: masks of a warp's lanes
 *   WARPS         [3][32] u32: a number of each warp
 *   NUMBERS       [SHARED_NUMBERS] int
 *   KNOWN         struct known: what earlier rounds of step 2 found out
 *
 * Barriers: all are the whole block's; each function says what it leaves open.
 *
 * Knobs: threads, blocks, samples, prefetch (src/codegen/families/topk_select_rows.c).
 */

/* Asks for the window's beginning, so that the memory is busy while samples are ranked. */
DEVICE void prefetch_window(const struct window *window) {
    const int begin = (window->first + VECTOR - 1) / VECTOR * VECTOR;
    const int vectors = minimum((window->last - begin) / VECTOR, PREFETCH_BYTES / 16);
    if (thread_number() == 0 && vectors > 0) {
        prefetch_l2(window->data + begin, (u32)vectors * 16);
    }
}

#line 93 "templates/topk_select_rows.cu"

DEVICE struct found find_row(const struct topk_select_rows_params *params,
                             const struct window *window, int row, int wanted) {
    int round = 0;
#line 106 "templates/topk_select_rows.cu"
    return find_list(window, wanted, round);
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct topk_select_rows_params params) {
    /* The longest windows, of causal rows the last ones, first. */
    const int row = params.rows - 1 - (int)blockIdx.x;
    const struct window window = open_window(&params, row);
    const int wanted = minimum(window_length(&window), TOPK);
    if (DEPENDENT_LAUNCH && (MERGE || params.early)) {
        grid_wait();
    }
    if (DEPENDENT_LAUNCH && params.chained) {
        grid_launch_dependents();
    }
    if (params.lengths && thread_number() == 0) {
        params.lengths[row] = wanted;
    }
    if (wanted == 0 || (!ORDER_BY_SCORE && !params.values && wanted == window_length(&window))) {
        emit_whole(&params, &window, row);
        return;
    }
    if (PREFETCH_BYTES > 0) {
        prefetch_window(&window);
    }
    emit_row(&params, &window, row, wanted, find_row(&params, &window, row, wanted));
}
