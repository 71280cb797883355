//@use common/base.cuh
//@use indexer_windows_build.params.h
/*
 * Windows of the lightning indexer from the metadata of packed documents: for each query the keys
 * it may choose from. Meaning: docs/operators.md, indexer_windows.
 *
 * Grid: as many blocks as the operator likes; a block takes THREADS queries at a time, one a
 * thread, and goes on a grid further. The document of a query's row is found by bisection in shared
 * memory, in where documents begin, ENTRIES of these at a time: all of them, once, when there are
 * no more.
 *
 * Entries of cu_seqlens that do not ascend count as the largest before them, so what is bisected
 * ascends whatever the caller gave; the others are only looked at beside a document's number.
 *
 * Shared memory: STARTS [1 + ENTRIES] int, where documents begin, behind the largest of those ahead
 * of them; LARGEST [WARPS] int, of each warp's entries.
 */

enum { NOT_FOUND = -2 /* so far */ };

/* The document that a row is in. */
struct document {
    int number;     /* -1: the row is ahead of the first */
    int begin, end; /* its rows */
};

DEVICE int *starts(void) {
    return (int *)(arena + STARTS_OFFSET);
}

/* The largest of `least` and the values of the block's threads before this one. */
DEVICE int largest_before(int value, int least) {
    int *const largest = (int *)(arena + LARGEST_OFFSET);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int running = value;
    for (int step = 1; step < 32; step *= 2) { /* lanes that have none before them get their own */
        running = maximum(running, __shfl_up_sync((u32)ALL_LANES, running, step));
    }
    if (lane == 31) {
        largest[warp] = running;
    }
    int before = __shfl_up_sync((u32)ALL_LANES, running, 1);
    before = lane > 0 ? maximum(before, least) : least;
    __syncthreads();
    for (int i = 0; i < warp; ++i) {
        before = maximum(before, largest[i]);
    }
    return before;
}

/* Puts the entries from number `first` on into shared memory, each as the largest up to it; those
 * behind the last repeat it. */
DEVICE void stage_starts(const int *entries, int count, int first) {
    const int own = (int)threadIdx.x * ENTRIES_A_THREAD;
    int values[ENTRIES_A_THREAD];
    int running = 0;
    const int carried = first > 0 ? starts()[ENTRIES] : 0;
#pragma unroll
    for (int i = 0; i < ENTRIES_A_THREAD; ++i) {
        const int entry = first + own + i; /* below 2^31: documents are at most 2^30 */
        running = maximum(running, entry < count ? entries[entry] : 0);
        values[i] = running;
    }
    const int before = largest_before(running, carried); /* all are done with the entries before */
#pragma unroll
    for (int i = 0; i < ENTRIES_A_THREAD; ++i) {
        starts()[1 + own + i] = maximum(values[i], before);
    }
    if (threadIdx.x == 0) {
        starts()[0] = carried;
    }
    __syncthreads();
}

/* Looks for the first entry beyond a row, among those from number `first` on. */
DEVICE void look_for(struct document *document, int row, int first) {
    int low = 0, high = ENTRIES;
    if (document->number != NOT_FOUND || starts()[ENTRIES] <= row) {
        return;
    }
    while (low < high) {
        const int middle = (low + high) / 2;
        if (starts()[1 + middle] > row) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    document->number = first + low - 1;
    document->begin = starts()[low];
    document->end = starts()[1 + low];
}

/* The document of each thread's row. *staged: number of the first entry in shared memory. */
DEVICE struct document find_document(const struct indexer_windows_build_params *params, int row,
                                     int *staged) {
    const int *const entries =
        params->cu_seqlens_padded ? params->cu_seqlens_padded : params->cu_seqlens;
    const int count = params->documents + 1;
    struct document document = {NOT_FOUND, 0, 0};
#pragma unroll 1
    for (int first = 0; first < count; first += ENTRIES) {
        if (*staged != first) {
            stage_starts(entries, count, first);
            *staged = first;
        }
        look_for(&document, row, first);
    }
    return document;
}

/* What entry d + 1 is above entry d: it need not be an int. */
DEVICE i64 length_of(const int *entries, int d) {
    return (i64)entries[d + 1] - entries[d];
}

/* Clipped to 0..most. */
DEVICE i64 clip(i64 value, i64 most) {
    return value < 0 ? 0 : value < most ? value : most;
}

/* A query's keys. */
struct window {
    int begin, end;
};

/* The window of the query at a row of a document. */
DEVICE struct window find_window(const struct indexer_windows_build_params *params,
                                 const struct document *document, int row) {
    const int d = document->number;
    const struct window empty = {0, 0};
    if (d < 0) {
        return empty;
    }
    const int position = row - document->begin;
    /* What is behind its length pads; where nothing does, that is no less than the rows. */
    const int length = (int)clip(length_of(params->cu_seqlens, d), document->end - document->begin);
    if (position >= length) {
        return empty;
    }
    i64 seen = (i64)position + 1 + (params->causal_offset ? params->causal_offset[d] : 0);
    i64 begin = document->begin, most = length;
    if (params->cu_seqlens_keys) {
        begin = params->cu_seqlens_keys[d];
        most = length_of(params->cu_seqlens_keys, d);
    } else {
        seen = seen < length ? seen : length;
    }
    const u32 keys = seen > 0 ? (u32)seen / (u32)params->ratio : 0; /* seen: at most 2^32 - 1 */
    const struct window window = {(int)clip(begin, params->rows),
                                  (int)clip(begin + clip(keys, most), params->rows)};
    return window.begin < window.end ? window : empty;
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_windows_build_params params) {
    const u32 tokens = (u32)params.tokens; /* below 2^31, so that a grid more is a u32, too */
    int staged = NOT_FOUND;
#pragma unroll 1
    for (u32 first = blockIdx.x * THREADS; first < tokens; first += gridDim.x * THREADS) {
        const u32 token = first + threadIdx.x;
        int row = -1; /* in no document */
        if (token < tokens) {
            row = params.query_indices ? params.query_indices[token] : (int)token;
        }
        const struct document document = find_document(&params, row, &staged);
        if (token < tokens) {
            const struct window window = find_window(&params, &document, row);
            params.window_begin[token] = window.begin;
            params.window_end[token] = window.end;
        }
    }
}
