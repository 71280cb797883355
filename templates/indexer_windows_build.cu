//@use common/base.cuh
//@use indexer_windows_build.params.h
/*
 * Windows of the lightning indexer from the metadata of packed documents: for each query the range
 * of keys it may select. Meaning: docs/operators.md, indexer_windows.
 *
 * Any grid size; a CTA processes THREADS queries at a time, one per thread, with a grid stride. The
 * document of a query's row is found by bisection of the documents' starts in shared memory,
 * ENTRIES of them at a time, or all of them once if they fit.
 *
 * An entry of cu_seqlens below an earlier one counts as the largest before it (a running maximum),
 * so that the bisected entries ascend for any input. Lengths use the original entries.
 *
 * Shared memory: STARTS [1 + ENTRIES] int: the maximum of all earlier entries, then the documents'
 * starts; LARGEST [WARPS] int: the maximum of each warp's entries.
 */

enum { NOT_FOUND = -2 /* yet */ };

/* The document that contains a row. */
struct document {
    int number;     /* -1: the row is before the first document */
    int begin, end; /* its rows */
};

DEVICE int *starts(void) {
    return (int *)(arena + STARTS_OFFSET);
}

/* Exclusive maximum scan over the block's threads, starting with `least`. */
DEVICE int largest_before(int value, int least) {
    int *const largest = (int *)(arena + LARGEST_OFFSET);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int running = value;
    for (int step = 1; step < 32; step *= 2) { /* the first lanes get their own value, which
                                                  changes nothing */
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

/* Loads ENTRIES entries from `first` on into shared memory as a running maximum; entries past the
 * last repeat it. */
DEVICE void stage_starts(const int *entries, int count, int first) {
    const int own = (int)threadIdx.x * ENTRIES_A_THREAD;
    int values[ENTRIES_A_THREAD];
    int running = 0;
    const int carried = first > 0 ? starts()[ENTRIES] : 0;
#pragma unroll
    for (int i = 0; i < ENTRIES_A_THREAD; ++i) {
        const int entry = first + own + i; /* below 2^31: at most 2^30 documents */
        running = maximum(running, entry < count ? entries[entry] : 0);
        values[i] = running;
    }
    const int before = largest_before(running, carried); /* contains a barrier: the previous
                                                            entries have been read */
#pragma unroll
    for (int i = 0; i < ENTRIES_A_THREAD; ++i) {
        starts()[1 + own + i] = maximum(values[i], before);
    }
    if (threadIdx.x == 0) {
        starts()[0] = carried;
    }
    __syncthreads();
}

/* Searches the entries from `first` on for the first one above a row. */
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

/* The document of each thread's row. *staged: the first entry in shared memory. */
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

/* A document's length, which may exceed an int. */
DEVICE i64 length_of(const int *entries, int d) {
    return (i64)entries[d + 1] - entries[d];
}

/* Clamps to [0, most]. */
DEVICE i64 clip(i64 value, i64 most) {
    return value < 0 ? 0 : value < most ? value : most;
}

/* A query's window. */
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
    /* Rows past the length are padding; without padding the length is at least the document's rows.
     */
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
    const u32 keys = seen > 0 ? (u32)seen / (u32)params->ratio : 0; /* seen is at most 2^32 - 1 */
    const struct window window = {(int)clip(begin, params->rows),
                                  (int)clip(begin + clip(keys, most), params->rows)};
    return window.begin < window.end ? window : empty;
}

KERNEL void __launch_bounds__(THREADS, BLOCKS_PER_MULTIPROCESSOR)
    KERNEL_NAME(const __grid_constant__ struct indexer_windows_build_params params) {
    const u32 tokens = (u32)params.tokens; /* below 2^31, so that adding a grid stride does not
                                              overflow */
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
