//@use common/base.cuh
//@use ptx/once.cuh
//@use ptx/order.cuh
//@use topk_select_rows.params.h
/*
 * A row's window, its blocks, and scores as ordered keys: unsigned numbers in the order of the
 * scores.
 *
 * The kernel selects entries. An entry's score is one logit or, with LOAD_BLOCK above 1, the largest
 * of LOAD_BLOCK adjacent logits that belong to keys of the window. An entry stands for BLOCK_MAX
 * keys; the windows of the arguments count keys.
 *
 * Elements are entries, numbered from the last vector boundary at or before the window's begin, so
 * the window is elements [first, last) with `first` from 0 to 3. They are read in blocks of BLOCK
 * elements, one block per warp: vector i of lane l holds elements 128 * i + 4 * l to + 3. In a
 * mask of a lane's 32 elements, element c of vector i is bit 31 - (4 * i + c). With LOAD_BLOCK from 4
 * on, neighbouring lanes load an entry's logits together, and element c of vector i of a lane is
 * 32 * (4 * i + c) + lane_entry().
 *
 * The last PINNED entries of a window are selected without looking at their scores: they follow the
 * elements. With CANDIDATE_ENTRIES, element n of a row is entry n % CANDIDATE_ENTRIES of the block
 * that the row's list of candidates names, and the elements of entries outside the window are -inf.
 */

enum {
    WARPS = THREADS / 32,
    VECTOR = 4,  /* elements: 16 bytes, of bf16 8 */
    VECTORS = 8, /* a lane's loads in flight */
    STEP = 32 * VECTOR,
    BLOCK = VECTORS * STEP,
    EACH = CANDIDATE_ENTRIES > 0 ? CANDIDATE_ENTRIES : 1, /* entries of a candidate */
    JOINT = LOAD_BLOCK > 1 && LOAD_BLOCK % VECTOR == 0,   /* 1: lanes load entries together */
    LANES = JOINT ? LOAD_BLOCK / VECTOR : 1               /* that load an entry */
};

/* Key of a negative number: all bits inverted; of another number: the sign bit set. No element has
 * the key of -0, which counts as +0, or a key below that of -inf, which NaN counts as. */
#define KEY_MINUS_INFINITY 0x007fffffu
#define KEY_MINUS_ZERO 0x7fffffffu
#define KEY_PLUS_INFINITY 0xff800000u
#define NAN_BITS 0x7fffffffu

//@if LOGITS_BF16
typedef unsigned short logit; /* bf16 */
//@else
typedef float logit;
//@end

DEVICE float minus_infinity(void) {
    return __uint_as_float(0xff800000u);
}

DEVICE u32 ordered_key(u32 bits) {
    /* fmaxf drops a NaN; -0 + 0 is +0. */
    const u32 ordinary = __float_as_uint(fmaxf(__uint_as_float(bits), minus_infinity()) + 0.0f);
    return ordinary & 0x80000000u ? ~ordinary : ordinary | 0x80000000u;
}

DEVICE float key_score(u32 key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* The threshold that exactly the elements with this key or a larger one exceed. The key is above
 * that of -inf. */
DEVICE float score_below(u32 key) {
    return key_score(key - 1 == KEY_MINUS_ZERO ? key - 2 : key - 1);
}

DEVICE int lane_number(void) {
    return (int)threadIdx.x % 32;
}

struct window {
    const logit *data; /* element 0, which may lie before the tensor; with LOAD_BLOCK: entry 0 */
    int first, last;   /* its elements */
    int blocks;        /* that contain elements of the window */
    int column;        /* of element 0 */
    int pinned;        /* entries that follow element last - 1 */
    /* With LOAD_BLOCK the logits of the window, with CANDIDATE_ENTRIES its entries: [low, high). */
    int low, high;
    const int *candidates; /* of the query */
    int valid;             /* elements that are entries of the window */
};

DEVICE int clamp(int value, int least, int most) {
    return minimum(maximum(value, least), most);
}

DEVICE int query_of(int row) {
    return row / GROUPS;
}

/* A number of keys as entries, rounded up. */
DEVICE int entries_of(int keys) {
    return BLOCK_MAX == 1 ? keys : (int)(((i64)keys + BLOCK_MAX - 1) / BLOCK_MAX);
}

DEVICE int window_end_of(const struct topk_select_rows_params *params, int query) {
    return params->window_end ? clamp(params->window_end[query], 0, params->keys) : params->keys;
}

/* Places a window of `length` entries, whose first one's logit is data[0]. */
DEVICE void place_window(struct window *window, const logit *data, int length) {
    window->first = LOAD_BLOCK > 1 ? 0 : (int)((u64)data / sizeof(logit) % VECTOR);
    window->last = window->first + length;
    window->data = data - window->first;
    window->blocks = (window->last + BLOCK - 1) / BLOCK;
}

/* Of candidates the elements are placed later (place_candidates). */
DEVICE struct window open_window(const struct topk_select_rows_params *params, int row) {
    enum { KEYS = BLOCK_MAX / LOAD_BLOCK /* of a logit */ };
    struct window window;
    const int query = query_of(row);
    const int begin =
        params->window_begin ? clamp(params->window_begin[query], 0, params->keys) : 0;
    const int end = maximum(window_end_of(params, query), begin);
    const int from = begin / BLOCK_MAX, entries = end > begin ? entries_of(end) - from : 0;
    const logit *const data = (const logit *)params->logits + query * params->logits_stride +
                              row % GROUPS * params->logits_group;
    window.pinned = PINNED > 0 ? minimum(PINNED, entries) : 0;
    place_window(&window, LOAD_BLOCK > 1 ? data : data + from, entries - window.pinned);
    window.column = from - window.first;
    window.valid = entries - window.pinned;
    window.low = window.high = 0;
    window.candidates = 0;
    if (LOAD_BLOCK > 1) {
        window.low = begin / KEYS;
        window.high = (int)(((i64)end + KEYS - 1) / KEYS);
    }
    if (CANDIDATE_ENTRIES > 0) {
        window.low = from;
        window.high = from + entries;
        window.candidates = params->candidates + query * params->candidates_stride;
        window.data = data;
    }
    return window;
}

DEVICE int window_length(const struct window *window) {
    return window->last - window->first;
}

/* Entries that are to be selected beside the pinned ones. */
DEVICE int count_wanted(const struct window *window) {
    return minimum(window->valid, TOPK - window->pinned);
}

/* The entry that an element stands for. */
DEVICE int entry_of(const struct window *window, int element) {
    const int slot = element + window->column;
    if (CANDIDATE_ENTRIES == 0) {
        return slot;
    }
    return window->candidates[slot / EACH] * EACH + slot % EACH;
}

/* Whether an element of candidates is an entry of the window; others have no score. */
DEVICE bool is_entry(const struct window *window, int element) {
    const int slot = element + window->column, block = window->candidates[slot / EACH];
    const i64 entry = (i64)block * EACH + slot % EACH;
    return block >= 0 && entry >= window->low && entry < window->high;
}

/* The bits of one logit as fp32. */
DEVICE u32 load_logit(const logit *logits, i64 i) {
    //@if LOGITS_BF16
    return (u32)logits[i] << 16;
    //@else
    return __float_as_uint(logits[i]);
    //@end
}

/* Four adjacent logits, aligned. */
DEVICE void load_logits(u32 values[VECTOR], const logit *from) {
    //@if LOGITS_BF16
    u32 pairs[2];
    load_once_8(pairs, from);
    values[0] = pairs[0] << 16;
    values[1] = pairs[0] & 0xffff0000u;
    values[2] = pairs[1] << 16;
    values[3] = pairs[1] & 0xffff0000u;
    //@else
    load_once_16(values, from);
    //@end
}

DEVICE float larger_of(float score, u32 bits) {
    return fmaxf(score, __uint_as_float(bits)); /* drops a NaN */
}

/* With LOAD_BLOCK: the largest logit of an element. Blocks begin at vector boundaries. */
DEVICE u32 load_largest(const struct window *window, int element) {
    const int from = (window->column + element) * LOAD_BLOCK;
    float largest = minus_infinity();
    if (LOAD_BLOCK % VECTOR == 0 && from >= window->low && from + LOAD_BLOCK <= window->high) {
#pragma unroll 8
        for (int i = 0; i < LOAD_BLOCK; i += VECTOR) {
            u32 values[VECTOR];
            load_logits(values, window->data + from + i);
#pragma unroll
            for (int c = 0; c < VECTOR; ++c) {
                largest = larger_of(largest, values[c]);
            }
        }
    } else {
#pragma unroll 1
        for (int i = maximum(from, window->low); i < minimum(from + LOAD_BLOCK, window->high);
             ++i) {
            largest = larger_of(largest, load_logit(window->data, i));
        }
    }
    return __float_as_uint(largest);
}

/* One element of the window. */
DEVICE u32 load_element(const struct window *window, int element) {
    return LOAD_BLOCK > 1 ? load_largest(window, element) : load_logit(window->data, element);
}

/* A vector inside the window. */
DEVICE void load_inside(const struct window *window, i64 element, u32 values[VECTOR]) {
    if (LOAD_BLOCK == 1) {
        load_logits(values, window->data + element);
        return;
    }
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) {
        values[c] = load_largest(window, (int)element + c);
    }
}

/* A vector that is partly inside the window. Elements outside become NaN and are not read. */
DEVICE void load_part(const struct window *window, int element, u32 values[VECTOR]) {
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) {
        const bool inside = element + c >= window->first && element + c < window->last;
        values[c] = inside ? load_element(window, element + c) : NAN_BITS;
    }
}

DEVICE void load_vector(const struct window *window, int element, u32 values[VECTOR]) {
    if (element >= window->first && element + VECTOR <= window->last) {
        load_inside(window, element, values);
    } else {
        load_part(window, element, values);
    }
}

DEVICE int lane_entry(void) {
    const int lane = lane_number();
    return 32 / LANES * (lane % LANES) + lane / LANES;
}

/* The largest of the vector of logits at a column, -inf outside the window. */
DEVICE float load_joint(const struct window *window, int column, bool inside) {
    u32 values[VECTOR];
    float largest = minus_infinity();
    if (inside) {
        load_logits(values, window->data + column);
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            largest = larger_of(largest, values[c]);
        }
        return largest;
    }
#pragma unroll 1
    for (int i = maximum(column, window->low); i < minimum(column + VECTOR, window->high); ++i) {
        largest = larger_of(largest, load_logit(window->data, i));
    }
    return largest;
}

/* A block of entries. In load n of an element LANES lanes share an entry, and the n-th of them keeps its
 * score. */
DEVICE void load_entries(const struct window *window, int block, bool inside,
                         u32 values[VECTORS][VECTOR]) {
    const int lane = lane_number(), first = block * BLOCK;
    const int column = (window->column + first) * LOAD_BLOCK + lane * VECTOR;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        float scores[VECTOR];
#pragma unroll 1
        for (int n = 0; n < LANES; ++n) {
            float largest[VECTOR];
#pragma unroll
            for (int c = 0; c < VECTOR; ++c) {
                largest[c] =
                    load_joint(window, column + ((i * VECTOR + c) * LANES + n) * STEP, inside);
            }
#pragma unroll
            for (int c = 0; c < VECTOR; ++c) {
#pragma unroll
                for (int apart = 1; apart < LANES; apart *= 2) {
                    largest[c] =
                        fmaxf(largest[c], __shfl_xor_sync((u32)ALL_LANES, largest[c], apart));
                }
                scores[c] = n == 0 || lane % LANES == n ? largest[c] : scores[c];
            }
        }
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
            const bool there =
                inside || first + (i * VECTOR + c) * 32 + lane_entry() < window->last;
            values[i][c] = there ? __float_as_uint(scores[c]) : NAN_BITS;
        }
    }
}

/* Loads this lane's part of a block. */
DEVICE void load_block(const struct window *window, int block, u32 values[VECTORS][VECTOR]) {
    const int element = block * BLOCK + lane_number() * VECTOR;
    if (JOINT) {
        const int column = (window->column + block * BLOCK) * LOAD_BLOCK;
        const bool inside = (block + 1) * BLOCK <= window->last && column >= window->low &&
                            column + BLOCK * LOAD_BLOCK <= window->high;
        if (inside) {
            load_entries(window, block, true, values);
        } else {
            load_entries(window, block, false, values);
        }
        return;
    }
    if (block * BLOCK >= window->first && (block + 1) * BLOCK <= window->last) {
#pragma unroll
        for (int i = 0; i < VECTORS; ++i) {
            load_inside(window, element + i * STEP, values[i]);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
        load_vector(window, element + i * STEP, values[i]);
    }
}

/* The mask of the lane's elements above the threshold. */
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
