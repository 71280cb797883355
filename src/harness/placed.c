/* See placed.h. */
#include "harness/placed.h"

#include <stdlib.h>
#include <string.h>

#include "harness/emulated.h"
#include "harness/guards.h"
#include "smelt/device.h"

enum {
    GUARD = SMELT__GUARD,
    MOST_FILLED = 1 << 30 /* bytes of a workspace */
};

static const struct smelt__tensor_row *row_of(const struct smelt__placed *placed, int tensor) {
    return &placed->pass->tensors->rows[tensor];
}

static int is_output(const struct smelt__placed *placed, int tensor) {
    return row_of(placed, tensor)->role != SMELT__INPUT;
}

/* Bytes of a tensor's allocation. */
static size_t all_bytes(const struct smelt__placed *placed, int tensor) {
    const struct smelt__device_buffer *buffer = &placed->buffers[tensor];
    return buffer->front + buffer->bytes + (is_output(placed, tensor) ? GUARD : 0);
}

/* Device memory; `far`: the emulator's, whose pages are allocated on access and zero. */
static smelt_status allocate(const struct smelt__placed *placed, int far, size_t bytes,
                             void **pointer) {
    const struct emu_interface *emulator = smelt__emulator();
    if (!far)
        return smelt_device_alloc(placed->context, bytes, pointer);
    *pointer = emulator ? (void *)(uintptr_t)emulator->reserve(bytes) : NULL;
    return *pointer ? SMELT_OK : SMELT_ERROR_OUT_OF_MEMORY;
}

/* Bytes before a tensor: an output's guard, and for a tensor with gaps one unit of the smallest
 * alignment, so that it has no larger one. */
static size_t front_of(const struct smelt__placed *placed, int tensor) {
    const struct smelt__tensor_row *row = row_of(placed, tensor);
    const size_t least = row->whole_rows ? SMELT__ROW_BYTES : smelt__element_bytes(row->element);
    const int odd =
        placed->problem->options.strided || placed->problem->options.odd == 1 + 2 * tensor;
    return (is_output(placed, tensor) ? GUARD : 0) + (odd ? least : 0);
}

static smelt_status place_tensor(struct smelt__placed *placed, int tensor) {
    struct smelt__device_buffer *buffer = &placed->buffers[tensor];
    smelt_tensor *argument = smelt__tensor_of(row_of(placed, tensor), placed->args);
    void *pointer = NULL;
    buffer->bytes = smelt__problem_bytes(placed->problem, tensor);
    argument->data = NULL;
    if (buffer->bytes == 0)
        return SMELT_OK;
    buffer->front = front_of(placed, tensor);
    smelt_status status = allocate(placed, placed->far, all_bytes(placed, tensor), &pointer);
    buffer->allocation = pointer;
    if (status == SMELT_OK)
        argument->data = buffer->allocation + buffer->front;
    return status;
}

/* ---- registering memory with the emulator ---------------------------------------------------- */

/* Forbids the bytes of an allocation outside the tensor's footprint. Permits several writes to
 * results of queries that are listed several times. */
static void forbid_rest(const struct emu_interface *emulator, const struct smelt__placed *placed,
                        int tensor) {
    const struct smelt__footprint *footprint = &placed->footprints.tensors[tensor];
    const uint64_t begin = (uint64_t)(uintptr_t)placed->buffers[tensor].allocation;
    const uint64_t first = begin + placed->buffers[tensor].front;
    uint64_t at = begin, end = begin + all_bytes(placed, tensor);
    if (!begin)
        return;
    emulator->name(begin, row_of(placed, tensor)->name);
    emulator->rewritable(begin, is_output(placed, tensor) && placed->problem->options.query_list ==
                                                                 SMELT__QUERY_LIST_REPEATED);
    emulator->forbid(begin, 0); /* removes earlier prohibitions */
    for (size_t i = 0; i < footprint->count; i++) {
        const uint64_t next = first + (uint64_t)footprint->intervals[i].begin;
        if (next > at)
            emulator->forbid(at, next - at);
        at = first + (uint64_t)footprint->intervals[i].end;
    }
    if (end > at)
        emulator->forbid(at, end - at);
}

smelt_status smelt__placed_survey(struct smelt__placed *placed) {
    const struct emu_interface *emulator = smelt__emulator();
    smelt__footprints_free(&placed->footprints);
    if (smelt__footprints_make(&placed->footprints, placed->problem, emulator != NULL) != 0)
        return SMELT_ERROR_OUT_OF_MEMORY;
    for (int i = 0; i < placed->pass->tensors->count && emulator; i++)
        forbid_rest(emulator, placed, i);
    return SMELT_OK;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

typedef smelt_status (*piece_function)(const struct smelt__placed *placed, int tensor,
                                       unsigned char *device, unsigned char *host, size_t bytes);

/* Calls `piece` for each interval of a tensor's footprint. */
static smelt_status each_interval(const struct smelt__placed *placed, int tensor,
                                  unsigned char *device, unsigned char *host, piece_function each) {
    const struct smelt__footprint *footprint = &placed->footprints.tensors[tensor];
    smelt_status status = SMELT_OK;
    for (size_t i = 0; i < footprint->count && status == SMELT_OK; i++) {
        const struct smelt__interval interval = footprint->intervals[i];
        status = each(placed, tensor, device + interval.begin, host ? host + interval.begin : NULL,
                      (size_t)(interval.end - interval.begin));
    }
    return status;
}

/* Calls `piece` for all inputs: for whole tensors, or with far strides for their footprints. */
static smelt_status each_input(const struct smelt__placed *placed, piece_function each,
                               const char **name) {
    smelt_status status = SMELT_OK;
    for (int i = 0; i < placed->pass->tensors->count && status == SMELT_OK; i++) {
        const struct smelt__device_buffer *buffer = &placed->buffers[i];
        unsigned char *host = smelt__problem_data(placed->problem, i);
        unsigned char *const device = buffer->allocation + buffer->front;
        if (!buffer->allocation || is_output(placed, i))
            continue;
        *name = row_of(placed, i)->name;
        status = placed->far ? each_interval(placed, i, device, host, each)
                             : each(placed, i, device, host, buffer->bytes);
    }
    return status;
}

static smelt_status upload(const struct smelt__placed *placed, int tensor, unsigned char *device,
                           unsigned char *host, size_t bytes) {
    (void)tensor;
    return smelt_device_upload(placed->context, device, host, bytes);
}

smelt_status smelt__placed_refresh(struct smelt__placed *placed) {
    const char *name;
    smelt_status status = smelt__placed_survey(placed);
    return status == SMELT_OK ? each_input(placed, upload, &name) : status;
}

static smelt_status compare(const struct smelt__placed *placed, int tensor, unsigned char *device,
                            unsigned char *host, size_t bytes) {
    (void)tensor;
    void *copy = malloc(bytes);
    if (!copy)
        return SMELT_ERROR_OUT_OF_MEMORY;
    smelt_status status = smelt_device_download(placed->context, copy, device, bytes);
    if (status == SMELT_OK && memcmp(copy, host, bytes) != 0)
        status = SMELT_ERROR_CANCELLED; /* changed */
    free(copy);
    return status;
}

const char *smelt__placed_changed_input(const struct smelt__placed *placed, smelt_status *status) {
    const char *name = NULL;
    *status = each_input(placed, compare, &name);
    if (*status != SMELT_ERROR_CANCELLED)
        return NULL;
    *status = SMELT_OK;
    return name;
}

/* ---- workspace ------------------------------------------------------------------------------- */

/* Registers the workspace's name with the emulator and forbids its guards. */
static void guard_workspace(const struct smelt__device_buffer *workspace) {
    const struct emu_interface *emulator = smelt__emulator();
    const uint64_t begin = (uint64_t)(uintptr_t)workspace->allocation;
    if (!emulator)
        return;
    emulator->name(begin, "workspace");
    emulator->forbid(begin, 0);
    emulator->forbid(begin, GUARD);
    emulator->forbid(begin + GUARD + workspace->bytes, GUARD);
}

/* With far strides, a workspace that is too large to be filled is allocated on access, too. */
static int is_far_workspace(const struct smelt__placed *placed, size_t bytes) {
    return placed->far && bytes > MOST_FILLED;
}

smelt_status smelt__placed_workspace(struct smelt__placed *placed, const smelt_operator *object) {
    struct smelt__device_buffer *workspace = &placed->workspace;
    void *pointer = NULL;
    size_t bytes = 0;
    smelt_status status =
        smelt__harness_calls->workspace(object, placed->pass->pass, placed->args, &bytes);
    if (status == SMELT_OK && bytes > workspace->bytes) {
        status = allocate(placed, is_far_workspace(placed, bytes), bytes + 2 * GUARD, &pointer);
        if (status != SMELT_OK)
            return status;
        if (workspace->allocation)
            smelt_device_free(placed->context, workspace->allocation);
        workspace->allocation = pointer;
        workspace->bytes = bytes;
        guard_workspace(workspace);
    }
    if (workspace->allocation) { /* in case the caller changed the arguments */
        pointer = workspace->allocation + GUARD;
        memcpy((char *)placed->args + placed->pass->tensors->workspace, &pointer, sizeof pointer);
        memcpy((char *)placed->args + placed->pass->tensors->workspace_bytes, &workspace->bytes,
               sizeof workspace->bytes);
    }
    return status;
}

/* Fills the workspace with words of 1, piece by piece. */
static smelt_status fill_ones(const struct smelt__placed *placed, unsigned char *device,
                              size_t bytes) {
    enum { PIECE = 1 << 16 };
    static const uint32_t one = 1;
    uint32_t *ones = malloc(PIECE);
    smelt_status status = ones ? SMELT_OK : SMELT_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; ones && i < PIECE / sizeof one; i++)
        ones[i] = one;
    for (size_t at = 0; at < bytes && status == SMELT_OK; at += PIECE)
        status = smelt_device_upload(placed->context, device + at, ones,
                                     bytes - at < PIECE ? bytes - at : PIECE);
    free(ones);
    return status;
}

/* Fills the workspace and its guards. The contents change from run to run, so that a kernel that
 * reads unwritten memory gives different results: poison, zeros (an empty list, query 0), large
 * numbers (sums overflow), and ones (plausible counts; not in a large workspace). A far workspace
 * keeps its contents. */
static smelt_status poison_workspace(struct smelt__placed *placed) {
    enum { LARGE = 1 << 26, ONES = -1, KINDS = 4 };
    static const int kinds[KINDS] = {0xff, 0, 0x7f, ONES};
    struct smelt__device_buffer *const workspace = &placed->workspace;
    const int kind = kinds[placed->poisonings % KINDS];
    smelt_status status;
    if (!workspace->allocation)
        return SMELT_OK;
    workspace->poison = smelt__poison_of(SMELT__INT32, placed->poisonings); /* the guards'
                                                                               contents */
    status = smelt_device_fill(placed->context, workspace->allocation, workspace->poison, GUARD);
    if (status == SMELT_OK)
        status =
            smelt_device_fill(placed->context, workspace->allocation + GUARD + workspace->bytes,
                              workspace->poison, GUARD);
    if (status != SMELT_OK || is_far_workspace(placed, workspace->bytes))
        return status;
    if (kind == ONES && workspace->bytes < LARGE)
        return fill_ones(placed, workspace->allocation + GUARD, workspace->bytes);
    return smelt_device_fill(placed->context, workspace->allocation + GUARD,
                             kind == ONES ? kinds[0] : kind, workspace->bytes);
}

/* ---- the whole ------------------------------------------------------------------------------- */

smelt_status smelt__placed_create(struct smelt__placed *placed, smelt_context *context,
                                  const struct smelt__problem *problem) {
    const size_t args_bytes = problem->pass->tensors->bytes;
    memset(placed, 0, sizeof *placed);
    placed->context = context;
    placed->problem = problem;
    placed->pass = problem->pass;
    placed->far = problem->options.far;
    placed->args = malloc(args_bytes);
    smelt_status status = placed->args ? SMELT_OK : SMELT_ERROR_OUT_OF_MEMORY;
    if (status == SMELT_OK)
        memcpy(placed->args, problem->args, args_bytes);
    for (int i = 0; i < placed->pass->tensors->count && status == SMELT_OK; i++)
        status = place_tensor(placed, i);
    if (status == SMELT_OK)
        status = smelt__placed_refresh(placed);
    if (status != SMELT_OK)
        smelt__placed_destroy(placed);
    return status;
}

void smelt__placed_destroy(struct smelt__placed *placed) {
    for (int i = 0; placed->pass && i < placed->pass->tensors->count; i++) {
        struct smelt__device_buffer *buffer = &placed->buffers[i];
        if (buffer->allocation)
            smelt_device_free(placed->context, buffer->allocation);
        smelt__host_free(buffer->host, all_bytes(placed, i), placed->far);
    }
    if (placed->workspace.allocation)
        smelt_device_free(placed->context, placed->workspace.allocation);
    smelt__footprints_free(&placed->footprints);
    free(placed->args);
    memset(placed, 0, sizeof *placed);
}

static smelt_status poison(const struct smelt__placed *placed, int tensor, unsigned char *device,
                           unsigned char *host, size_t bytes) {
    (void)host;
    return smelt_device_fill(placed->context, device, placed->buffers[tensor].poison, bytes);
}

static smelt_status download(const struct smelt__placed *placed, int tensor, unsigned char *device,
                             unsigned char *host, size_t bytes) {
    (void)tensor;
    return smelt_device_download(placed->context, host, device, bytes);
}

/* Calls `piece` for a whole output and its guards; with far strides for its footprint, since the
 * emulator checks the rest. */
static smelt_status whole_output(const struct smelt__placed *placed, int tensor,
                                 piece_function each) {
    const struct smelt__device_buffer *buffer = &placed->buffers[tensor];
    return placed->far
               ? each_interval(placed, tensor, buffer->allocation + buffer->front,
                               buffer->host ? buffer->host + buffer->front : NULL, each)
               : each(placed, tensor, buffer->allocation, buffer->host, all_bytes(placed, tensor));
}

smelt_status smelt__placed_poison(struct smelt__placed *placed) {
    smelt_status status = poison_workspace(placed);
    for (int i = 0; i < placed->pass->tensors->count && status == SMELT_OK; i++) {
        if (!is_output(placed, i) || !placed->buffers[i].allocation)
            continue;
        placed->buffers[i].poison =
            smelt__poison_of(row_of(placed, i)->element, placed->poisonings);
        status = whole_output(placed, i, poison);
        if (status == SMELT_OK && row_of(placed, i)->role == SMELT__ACCUMULATED)
            status =
                each_interval(placed, i, placed->buffers[i].allocation + placed->buffers[i].front,
                              smelt__problem_data(placed->problem, i), upload);
    }
    placed->poisonings++;
    return status;
}

smelt_status smelt__placed_download(struct smelt__placed *placed) {
    smelt_status status = SMELT_OK;
    for (int i = 0; i < placed->pass->tensors->count && status == SMELT_OK; i++) {
        struct smelt__device_buffer *buffer = &placed->buffers[i];
        if (!is_output(placed, i) || !buffer->allocation)
            continue;
        if (!buffer->host)
            buffer->host = smelt__host_allocate(all_bytes(placed, i), placed->far);
        status = buffer->host ? whole_output(placed, i, download) : SMELT_ERROR_OUT_OF_MEMORY;
    }
    return status;
}

/* On the emulator, acts as earlier work on the stream that may still access all memory of the
 * launch, like a slow producer of its inputs or an earlier call with the same workspace. */
static void delay(const struct smelt__placed *placed, struct CUstream_st *stream) {
    const struct emu_interface *emulator = smelt__emulator();
    for (int i = 0; i <= placed->pass->tensors->count && emulator; i++) {
        const unsigned char *memory = i < placed->pass->tensors->count
                                          ? placed->buffers[i].allocation
                                          : placed->workspace.allocation;
        if (memory)
            emulator->produce((uint64_t)(uintptr_t)memory, stream);
    }
}

smelt_status smelt__placed_run(struct smelt__placed *placed, const smelt_operator *object,
                               struct CUstream_st *stream) {
    if (smelt__emulator())
        smelt__emulator()->clear(); /* later reports belong to this run */
    smelt_status status = smelt__placed_workspace(placed, object);
    if (status == SMELT_OK)
        status = smelt__placed_poison(placed);
    /* The fill ran on the default stream, which a non-blocking one does not wait for. */
    if (status == SMELT_OK)
        status = smelt_stream_synchronize(placed->context, NULL);
    if (status == SMELT_OK)
        delay(placed, stream);
    if (status == SMELT_OK)
        status = smelt__harness_calls->launch(object, placed->pass->pass, placed->args, stream);
    if (status == SMELT_OK)
        status = smelt_stream_synchronize(placed->context, stream);
    if (status == SMELT_OK)
        status = smelt__placed_download(placed);
    return status;
}

/* NULL if the output is not given. */
const void *smelt__placed_element(const struct smelt__placed *placed, int tensor, int64_t element) {
    const struct smelt__device_buffer *buffer = &placed->buffers[tensor];
    const int64_t bytes = (int64_t)smelt__element_bytes(row_of(placed, tensor)->element);
    return buffer->host ? buffer->host + buffer->front + element * bytes : NULL;
}

const void *smelt__placed_row(const struct smelt__placed *placed, int tensor, int64_t i, int64_t k,
                              int64_t l) {
    return smelt__placed_element(placed, tensor,
                                 smelt__problem_at(placed->problem, tensor, i, k, l));
}

const void *smelt__compared_row(const struct smelt__placed *placed, struct smelt__finding *finding,
                                int tensor, int64_t first, int64_t count, const double *expected) {
    if (!placed->buffers[tensor].host)
        return NULL;
    if (placed->answer)
        placed->answer(placed->answer_user, placed, tensor, first, count, expected);
    finding->elements[tensor] += count;
    return smelt__placed_element(placed, tensor, first);
}

const void *smelt__compared_at(const struct smelt__placed *placed, struct smelt__finding *finding,
                               int tensor, int64_t i, int64_t k, int64_t count,
                               const double *expected) {
    return smelt__compared_row(placed, finding, tensor,
                               smelt__problem_at(placed->problem, tensor, i, k, 0), count,
                               expected);
}
