/* Checks and compares the downloaded outputs: see placed.h. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "harness/guards.h"
#include "harness/parallel.h"
#include "harness/placed.h"
#include "smelt/device.h"

enum { GUARD = SMELT__GUARD };

struct scan {
    struct smelt__placed *placed;
    int tensor;
    const struct smelt__tensor_row *row;
    unsigned char *host;   /* the tensor's first byte */
    int poison;            /* the byte that filled it */
    _Atomic int64_t nan;   /* an element that is NaN or was not written; or -1 */
    _Atomic int64_t stray; /* a byte written outside the footprint, relative to the tensor;
                              INT64_MIN: none */
};

/* Whether an element is NaN, or still poison. */
static int is_unwritten(const struct smelt__tensor_row *row, int poison, const unsigned char *at) {
    uint16_t half;
    float single;
    switch (row->element) {
    case SMELT__BF16:
        memcpy(&half, at, sizeof half);
        return row->may_be_nan ? half == 0xffff : (half & 0x7fff) > 0x7f80;
    case SMELT__FP32:
        memcpy(&single, at, sizeof single);
        return isnan(single);
    case SMELT__E4M3:
        return *at == 0xff;
    default:
        return at[0] == poison && at[1] == poison && at[2] == poison && at[3] == poison;
    }
}

/* Searches the computed elements for NaN and poisons them again; then all bytes must be poison. */
static void erase(struct scan *scan, int64_t begin, int64_t end) {
    const int64_t bytes = (int64_t)smelt__element_bytes(scan->row->element);
    for (int64_t at = begin; at < end; at += bytes)
        if (is_unwritten(scan->row, scan->poison, scan->host + at)) {
            atomic_store(&scan->nan, at / bytes);
            break;
        }
    memset(scan->host + begin, scan->poison, (size_t)(end - begin));
}

enum { PIECE = 1 << 20 }; /* bytes that a thread checks at a time; whole elements */

static void erase_intervals(void *user, int64_t begin, int64_t end) {
    struct scan *scan = user;
    const struct smelt__footprint *footprint = &scan->placed->footprints.tensors[scan->tensor];
    for (int64_t i = begin; i < end; i++)
        erase(scan, footprint->intervals[i].begin, footprint->intervals[i].end);
}

static void erase_pieces(void *user, int64_t begin, int64_t end) {
    erase(user, begin * PIECE, end * PIECE);
}

static void erase_computed(struct scan *scan) {
    const struct smelt__footprint *footprint = &scan->placed->footprints.tensors[scan->tensor];
    if (footprint->count != 1 || footprint->intervals[0].begin != 0) {
        smelt__parallel_for((int64_t)footprint->count, 1024, erase_intervals, scan);
        return;
    }
    const int64_t pieces = footprint->intervals[0].end / PIECE; /* one packed tensor */
    smelt__parallel_for(pieces, 1, erase_pieces, scan);
    if (footprint->intervals[0].end > pieces * PIECE)
        erase(scan, pieces * PIECE, footprint->intervals[0].end);
}

static void scan_bytes(void *user, int64_t begin, int64_t end) {
    struct scan *scan = user;
    const int64_t front = (int64_t)scan->placed->buffers[scan->tensor].front;
    const unsigned char *bytes = scan->host - front;
    /* The fast path: all bytes equal the first, which is poison. */
    if (bytes[begin] == scan->poison &&
        memcmp(bytes + begin, bytes + begin + 1, (size_t)(end - begin - 1)) == 0)
        return;
    for (int64_t i = begin; i < end; i++)
        if (bytes[i] != scan->poison) {
            atomic_store(&scan->stray, i - front);
            return;
        }
}

/* Prints "out[1, 4, 0, 17]" for an element: its indices, from the largest stride to the
 * smallest. */
static void print_element(const struct scan *scan, int64_t element, char *text, size_t size) {
    const struct smelt__problem *problem = scan->placed->problem;
    const int64_t *strides = problem->layout[scan->tensor].strides;
    const int last = scan->row->dimensions - 1;
    int64_t indices[SMELT__MOST_DIMENSIONS] = {0};
    for (int round = 0; round < last; round++) { /* the largest remaining stride */
        int next = -1;
        for (int i = 0; i < last; i++)
            if (indices[i] == 0 && problem->extents[scan->row->shape[i]] > 1 &&
                strides[i] <= element && (next < 0 || strides[i] > strides[next]))
                next = i;
        if (next < 0)
            break;
        indices[next] = element / strides[next];
        element %= strides[next];
    }
    indices[last] = element;
    int length = snprintf(text, size, "%s[", scan->row->name);
    for (int i = 0; i <= last && length > 0 && (size_t)length < size; i++)
        length += snprintf(text + length, size - (size_t)length, "%s%lld", i ? ", " : "",
                           (long long)indices[i]);
    if (length > 0 && (size_t)length < size)
        snprintf(text + length, size - (size_t)length, "]");
}

static const char *verify_output(struct smelt__placed *placed, int tensor, char *message,
                                 size_t size) {
    const struct smelt__device_buffer *buffer = &placed->buffers[tensor];
    char name[128];
    struct scan scan = {.placed = placed,
                        .tensor = tensor,
                        .row = &placed->pass->tensors->rows[tensor],
                        .host = buffer->host + buffer->front,
                        .poison = buffer->poison};
    atomic_init(&scan.nan, -1);
    atomic_init(&scan.stray, INT64_MIN);
    erase_computed(&scan);
    if (!placed->far) /* the emulator checks those */
        smelt__parallel_for((int64_t)(buffer->front + buffer->bytes + GUARD), PIECE, scan_bytes,
                            &scan);
    const int64_t stray = atomic_load(&scan.stray), nan = atomic_load(&scan.nan);
    if (nan >= 0) {
        print_element(&scan, nan, name, sizeof name);
        snprintf(message, size, "%s: NaN, or not written at all", name);
        return "unwritten";
    }
    if (stray == INT64_MIN)
        return NULL;
    const int outside = stray < 0 || stray >= (int64_t)buffer->bytes;
    snprintf(message, size,
             "%s: byte %lld of %zu was written but does not belong to a computed element%s",
             scan.row->name, (long long)stray, buffer->bytes,
             outside ? " (outside the tensor)" : "");
    return "stray";
}

/* Whether both guards of the workspace are unchanged. */
static int workspace_kept(const struct smelt__placed *placed) {
    const struct smelt__device_buffer *workspace = &placed->workspace;
    const size_t offsets[] = {0, GUARD + workspace->bytes};
    unsigned char guard[GUARD];
    for (int i = 0; i < 2 && workspace->allocation; i++) {
        if (smelt_device_download(placed->context, guard, workspace->allocation + offsets[i],
                                  sizeof guard) != SMELT_OK)
            return 0;
        for (int k = 0; k < GUARD; k++)
            if (guard[k] != workspace->poison)
                return 0;
    }
    return 1;
}

const char *smelt__placed_verify_extent(struct smelt__placed *placed, char *message, size_t size) {
    const char *found = NULL;
    for (int i = 0; i < placed->pass->tensors->count && !found; i++)
        if (placed->buffers[i].host)
            found = verify_output(placed, i, message, size);
    if (found || workspace_kept(placed))
        return found;
    snprintf(message, size, "a byte before or after the workspace was written");
    return "workspace_guard";
}

/* FNV-1a. */
static uint64_t mix(uint64_t hash, const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Whether an output was downloaded and has the same bits in every run. */
static int is_reproducible(const struct smelt__placed *placed, int tensor) {
    const struct smelt__harness_pass *pass = placed->pass;
    return placed->buffers[tensor].host &&
           (!pass->reproducible || pass->reproducible(placed->problem, tensor));
}

uint64_t smelt__placed_digest(const struct smelt__placed *placed) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < placed->pass->tensors->count; i++) {
        const struct smelt__footprint *footprint = &placed->footprints.tensors[i];
        for (size_t k = 0; is_reproducible(placed, i) && k < footprint->count; k++)
            hash = mix(hash,
                       placed->buffers[i].host + placed->buffers[i].front +
                           footprint->intervals[k].begin,
                       (size_t)(footprint->intervals[k].end - footprint->intervals[k].begin));
    }
    return hash;
}

const char *smelt__placed_difference(const struct smelt__placed *first,
                                     const struct smelt__placed *second) {
    for (int i = 0; i < first->pass->tensors->count; i++) {
        const struct smelt__footprint *footprint = &first->footprints.tensors[i];
        for (size_t k = 0; is_reproducible(first, i) && k < footprint->count; k++) {
            const int64_t begin = footprint->intervals[k].begin;
            if (memcmp(first->buffers[i].host + first->buffers[i].front + begin,
                       second->buffers[i].host + second->buffers[i].front + begin,
                       (size_t)(footprint->intervals[k].end - begin)) != 0)
                return first->pass->tensors->rows[i].name;
        }
    }
    return NULL;
}
