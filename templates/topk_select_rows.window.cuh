//@use common/base.cuh
//@use ptx/once.cuh
//@use ptx/order.cuh
//@use topk_select_rows.params.h
/*
 * A row's window, its blocks, and scores as ordered keys: unsigned numbers in the order of the
 * scores.
 *
 * Elements are numbered from the last 16-byte boundary at or before the window's begin, so the
 * window is elements [first, last) with `first` from 0 to 3. They are read in blocks of BLOCK
 * elements, one block per warp: vector i of lane l holds elements 128 * i + 4 * l to + 3. In a
 * mask of a lane's 32 elements, element c of vector i is bit 31 - (4 * i + c).
 */

enum {
    WARPS = THREADS / 32,
    VECTOR = 4,  /* elements of 16 bytes */
    VECTORS = 8, /* a lane's loads in flight */
    STEP = 32 * VECTOR,
    BLOCK = VECTORS * STEP
};

/* Key of a negative number: all bits inverted; of another number: the sign bit set. No element has
 * the key of -0, which counts as +0, or a key below that of -inf, which NaN counts as. */
#define KEY_MINUS_INFINITY 0x007fffffu
#define KEY_MINUS_ZERO 0x7fffffffu
#define KEY_PLUS_INFINITY 0xff800000u
#define NAN_BITS 0x7fffffffu

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

struct window {
    const float *data; /* element 0, which may lie before the tensor */
    int first, last;   /* its elements */
    int blocks;        /* that contain elements of the window */
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

/* A vector that is partly inside the window. Elements outside become NaN and are not read. */
DEVICE void load_part(const struct window *window, int element, u32 values[VECTOR]) {
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) {
        const bool inside = element + c >= window->first && element + c < window->last;
        values[c] = inside ? __float_as_uint(window->data[element + c]) : NAN_BITS;
    }
}

DEVICE void load_vector(const struct window *window, int element, u32 values[VECTOR]) {
    if (element >= window->first && element + VECTOR <= window->last) {
        load_once_16(values, window->data + element);
    } else {
        load_part(window, element, values);
    }
}

/* Loads this lane's part of a block. */
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
