/*
 * Written by smelt; do not edit. To write it again:
 *   smelt emit topk_select_rows:topk=2048,pass=parts --arch sm_90a
 *
 * spec     topk_select_rows:topk=2048,pass=parts
 * arch     sm_90a
 * variant  parts
 * kernel   smelt_topk_select_parts_k2048_index
 * knobs (by the spec, or by rule)
 *   THREADS                        256  rule     of a thread block
 *   BLOCKS_PER_MULTIPROCESSOR        4  rule     resident at once, at least
 *   LEAST_SAMPLES                  512  rule     of a short window
 * shared memory (offset, bytes)
 *   LIST_OFFSET                      0    32768  samples, entries, elements
 *   HISTOGRAM_OFFSET             32768     4096  entries of each bin
 *   WARPS_OFFSET                 36864      384  a number of each warp
 *   NUMBERS_OFFSET               37248       24  what one thread found
 *   KNOWN_OFFSET                 37272       20  what earlier rounds found out
 *   SHARED_BYTES                 37292  of 232448 that a block may have on sm_90a
 * launch
 *   256 threads a block, 4 blocks resident per multiprocessor, at most 64 registers a thread
 */

enum {
    THREADS = 256,                  /* of a thread block */
    BLOCKS_PER_MULTIPROCESSOR = 4,  /* resident at once, at least */
    TOPK = 2048,                    /* elements that are selected of a row */
    ORDER_BY_SCORE = 0,             /* 1: descending by score, 0: ascending by index */
    LIST = 4096,                    /* entries that the list has room for */
    MOST_SAMPLES = 4096,            /* of a window */
    LEAST_SAMPLES = 512,            /* of a short window */
    SAMPLED = 128,                  /* elements for each sample of a long window */
    LONG_SAMPLED = 128,             /* the same, of a window that has more than the least samples */
    BINS = 1024,                    /* of a histogram */
    LOG_BINS = 10,                  /* their number's logarithm */
    PART_LIST = 4096,               /* entries that a part of a row leaves */
    DEPENDENT_LAUNCH = 1,           /* 1: may begin before the kernel ahead of it has ended */
    ALONE = 12288,                  /* elements of windows that the pass merge reads alone */
};

/* Shared memory, in bytes from the arena's start. */
enum {
    LIST_OFFSET = 0,                /* samples, entries, elements */
    HISTOGRAM_OFFSET = 32768,       /* entries of each bin */
    WARPS_OFFSET = 36864,           /* a number of each warp */
    NUMBERS_OFFSET = 37248,         /* what one thread found */
    KNOWN_OFFSET = 37272,           /* what earlier rounds found out */
    SHARED_BYTES = 37292,           /* the arena's size */
};

#define KERNEL_NAME smelt_topk_select_parts_k2048_index

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

#line 3 "templates/topk_select_rows.parts.cu"
/*
 * Exact top-k of few rows, first pass: several thread blocks a row, each of which reads a part of
 * the row's window and leaves a list of what is above a bound. All of them draw the same sample, so
 * that they agree on the bound. See topk_select_rows.cu, whose pass `merge` comes after.
 *
 * Grid: params.parts blocks a row. WARPS warps of one role. Windows of at most ALONE elements are
 * left to the second pass.
 *
 * Shared memory: LIST, HISTOGRAM, WARPS, NUMBERS as there.
 */

/* The lists are the second pass's alone: it begins when this one's blocks have ended. Of a list
 * that was too short, which may have gaps, it wants nothing but the count. */
DEVICE void store_part(const struct topk_select_rows_params *params, i64 part, struct bound bound,
                       int equal) {
    const int count = shared_numbers()[LIST_COUNT], kept = count <= PART_LIST ? count : 0;
    u64 *const entries = params->lists + part * PART_LIST;
    for (int i = (int)thread_number(); i < kept; i += THREADS) {
        entries[i] = list()[i];
    }
    if (thread_number() == 0) {
        const struct topk_select_rows_header header = {
            count, equal, bound.key, (u32)shared_numbers()[SAMPLE_TOP], bound.counted};
        params->headers[part] = header;
    }
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct topk_select_rows_params params) {
    const int row = (int)blockIdx.x / params.parts, part = (int)blockIdx.x % params.parts;
    const struct window window = open_window(&params, row);
    if (DEPENDENT_LAUNCH && params.early) {
        grid_wait();
    }
    if (DEPENDENT_LAUNCH) {
        grid_launch_dependents();
    }
    if (window_length(&window) <= ALONE) {
        return;
    }
    if (thread_number() == 0) {
        shared_numbers()[LIST_COUNT] = 0;
    }
    const struct bound bound = choose_bound(&window, minimum(window_length(&window), TOPK), 0);
    const int begin = (int)((i64)window.blocks * part / params.parts);
    const int end = (int)((i64)window.blocks * (part + 1) / params.parts);
    __syncthreads(); /* the sample was read, the count is 0 */
    const int equal = sum_threads(read_blocks(&window, begin, end, bound));
    store_part(&params, blockIdx.x, bound, equal);
}
