#include "harness/placed.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/emulated.h"
#include "harness/parallel.h"
#include "reference/sparse_attn.h"
#include "smelt/device.h"

enum { GUARD = 4096, POISON = 0xff }; /* bytes of ones are NaN as bf16 and as fp32 */

struct input {
    const void *host;
    size_t bytes;
};

static void list_inputs(const struct smelt__problem *problem, struct input inputs[SMELT__INPUTS]) {
    inputs[SMELT__BUFFER_Q] = (struct input){problem->q, problem->q_elements * sizeof *problem->q};
    inputs[SMELT__BUFFER_KV] =
        (struct input){problem->kv, problem->kv_elements * sizeof *problem->kv};
    inputs[SMELT__BUFFER_INDICES] =
        (struct input){problem->indices, problem->indices_elements * sizeof *problem->indices};
    inputs[SMELT__BUFFER_TOPK_LENGTH] = (struct input){
        problem->topk_length, problem->topk_length_elements * sizeof *problem->topk_length};
    inputs[SMELT__BUFFER_SINK] =
        (struct input){problem->sink, (size_t)problem->spec.heads * sizeof *problem->sink};
    inputs[SMELT__BUFFER_QUERIES] = (struct input){
        problem->queries, (size_t)problem->args.query_capacity * sizeof *problem->queries};
    inputs[SMELT__BUFFER_QUERY_COUNT] =
        (struct input){problem->args.query_count.data, sizeof *problem->query_count};
}

/* Memory for a tensor; for one with far strides, the emulator's, whose pages exist when touched. */
static smelt_status allocate(const struct smelt__placed *placed, size_t bytes, void **pointer) {
    const struct emu_interface *emulator = smelt__emulator();
    if (!placed->problem->options.far)
        return smelt_device_alloc(placed->context, bytes, pointer);
    *pointer = emulator ? (void *)(uintptr_t)emulator->reserve(bytes) : NULL;
    return *pointer ? SMELT_OK : SMELT_ERROR_OUT_OF_MEMORY;
}

static smelt_status place_output(struct smelt__placed *placed, struct smelt__output *output,
                                 size_t bytes) {
    void *pointer = NULL;
    output->bytes = bytes;
    smelt_status status = allocate(placed, bytes + 2 * GUARD, &pointer);
    output->allocation = pointer;
    return status;
}

static smelt_status place_outputs(struct smelt__placed *placed) {
    const struct smelt__problem *problem = placed->problem;
    size_t lse_bytes = problem->lse_elements * sizeof(float);
    smelt_status status =
        place_output(placed, &placed->out, problem->out_elements * sizeof(uint16_t));
    if (status == SMELT_OK)
        status = place_output(placed, &placed->lse, lse_bytes);
    if (status == SMELT_OK && problem->options.max_logits)
        status = place_output(placed, &placed->max_logits, lse_bytes);
    if (status != SMELT_OK)
        return status;
    placed->args.out.data = placed->out.allocation + GUARD;
    placed->args.lse.data = (float *)(void *)(placed->lse.allocation + GUARD);
    if (placed->max_logits.allocation)
        placed->args.max_logits.data = (float *)(void *)(placed->max_logits.allocation + GUARD);
    return SMELT_OK;
}

/* ---- what the emulator is told ----------------------------------------------------------------
 */

/* Forbids what of an allocation lies outside a footprint, which starts `offset` bytes into it. */
static void forbid_rest(const struct emu_interface *emulator, const void *allocation, size_t bytes,
                        size_t offset, const struct smelt__footprint *footprint, const char *name) {
    uint64_t begin = (uint64_t)(uintptr_t)allocation, at = begin;
    if (!allocation)
        return;
    emulator->name(begin, name);
    emulator->forbid(begin, 0); /* forgets what was forbidden before */
    for (size_t i = 0; i < footprint->count; i++) {
        uint64_t next = begin + offset + (uint64_t)footprint->intervals[i].begin;
        if (next > at)
            emulator->forbid(at, next - at);
        at = begin + offset + (uint64_t)footprint->intervals[i].end;
    }
    if (begin + bytes > at)
        emulator->forbid(at, begin + bytes - at);
}

static smelt_status survey(struct smelt__placed *placed) {
    const struct emu_interface *emulator = smelt__emulator();
    const struct smelt__output *outputs[] = {&placed->out, &placed->lse, &placed->max_logits};
    struct input inputs[SMELT__INPUTS];
    if (!emulator)
        return SMELT_OK;
    smelt__footprint_free(placed->footprints);
    if (smelt__footprint_make(placed->problem, placed->footprints) != 0)
        return SMELT_ERROR_OUT_OF_MEMORY;
    list_inputs(placed->problem, inputs);
    for (int i = 0; i < SMELT__INPUTS; i++)
        forbid_rest(emulator, placed->inputs[i], inputs[i].bytes, 0, &placed->footprints[i],
                    smelt__buffer_name((enum smelt__buffer)i));
    for (int i = 0; i < 3; i++)
        forbid_rest(emulator, outputs[i]->allocation, outputs[i]->bytes + 2 * GUARD, GUARD,
                    &placed->footprints[SMELT__BUFFER_OUT + i],
                    smelt__buffer_name((enum smelt__buffer)(SMELT__BUFFER_OUT + i)));
    return SMELT_OK;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

typedef smelt_status (*piece_function)(const struct smelt__placed *placed, unsigned char *device,
                                       unsigned char *host, size_t bytes);

/* A whole tensor; of one with far strides what its footprint holds. */
static smelt_status each_piece(const struct smelt__placed *placed, enum smelt__buffer buffer,
                               void *device, void *host, size_t bytes, piece_function each) {
    const struct smelt__footprint *footprint = &placed->footprints[buffer];
    unsigned char *to = device, *from = host;
    smelt_status status = SMELT_OK;
    if (!placed->problem->options.far)
        return each(placed, to, from, bytes);
    for (size_t i = 0; i < footprint->count && status == SMELT_OK; i++) {
        struct smelt__interval interval = footprint->intervals[i];
        status = each(placed, to + interval.begin, from ? from + interval.begin : NULL,
                      (size_t)(interval.end - interval.begin));
    }
    return status;
}

static smelt_status upload(const struct smelt__placed *placed, unsigned char *device,
                           unsigned char *host, size_t bytes) {
    return smelt_device_upload(placed->context, device, host, bytes);
}

smelt_status smelt__placed_refresh(struct smelt__placed *placed) {
    struct input inputs[SMELT__INPUTS];
    list_inputs(placed->problem, inputs);
    smelt_status status = survey(placed);
    for (int i = 0; i < SMELT__INPUTS && status == SMELT_OK; i++)
        if (placed->inputs[i])
            status = each_piece(placed, (enum smelt__buffer)i, placed->inputs[i],
                                (void *)(uintptr_t)inputs[i].host, inputs[i].bytes, upload);
    return status;
}

static smelt_status compare(const struct smelt__placed *placed, unsigned char *device,
                            unsigned char *host, size_t bytes) {
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
    struct input inputs[SMELT__INPUTS];
    list_inputs(placed->problem, inputs);
    *status = SMELT_OK;
    for (int i = 0; i < SMELT__INPUTS && *status == SMELT_OK; i++) {
        if (!placed->inputs[i])
            continue;
        *status = each_piece(placed, (enum smelt__buffer)i, placed->inputs[i],
                             (void *)(uintptr_t)inputs[i].host, inputs[i].bytes, compare);
        if (*status == SMELT_ERROR_CANCELLED) {
            *status = SMELT_OK;
            return smelt__buffer_name((enum smelt__buffer)i);
        }
    }
    return NULL;
}

/* ---- workspace ------------------------------------------------------------------------------- */

/* The emulator is told its name and that its guards are nobody's. */
static void guard_workspace(const struct smelt__output *workspace) {
    const struct emu_interface *emulator = smelt__emulator();
    const uint64_t begin = (uint64_t)(uintptr_t)workspace->allocation;
    if (!emulator)
        return;
    emulator->name(begin, "workspace");
    emulator->forbid(begin, 0);
    emulator->forbid(begin, GUARD);
    emulator->forbid(begin + GUARD + workspace->bytes, GUARD);
}

smelt_status smelt__placed_workspace(struct smelt__placed *placed, const smelt_sparse_attn *attn) {
    struct smelt__output *workspace = &placed->workspace;
    void *pointer = NULL;
    size_t bytes;
    smelt_status status = smelt_sparse_attn_forward_workspace(attn, &placed->args, &bytes);
    if (status == SMELT_OK && bytes > workspace->bytes) {
        status = smelt_device_alloc(placed->context, bytes + 2 * GUARD, &pointer);
        if (status != SMELT_OK)
            return status;
        if (workspace->allocation)
            smelt_device_free(placed->context, workspace->allocation);
        workspace->allocation = pointer;
        workspace->bytes = bytes;
        guard_workspace(workspace);
    }
    if (workspace->allocation) { /* whatever the caller did to the arguments */
        placed->args.workspace = workspace->allocation + GUARD;
        placed->args.workspace_bytes = workspace->bytes;
    }
    return status;
}

static smelt_status poison_workspace(const struct smelt__placed *placed) {
    const struct smelt__output *workspace = &placed->workspace;
    return workspace->allocation ? smelt_device_fill(placed->context, workspace->allocation, POISON,
                                                     workspace->bytes + 2 * GUARD)
                                 : SMELT_OK;
}

/* Whether both guards still hold what they were filled with. */
static int workspace_kept(const struct smelt__placed *placed) {
    const struct smelt__output *workspace = &placed->workspace;
    const size_t offsets[] = {0, GUARD + workspace->bytes};
    unsigned char guard[GUARD];
    for (int i = 0; i < 2 && workspace->allocation; i++) {
        if (smelt_device_download(placed->context, guard, workspace->allocation + offsets[i],
                                  sizeof guard) != SMELT_OK)
            return 0;
        for (int k = 0; k < GUARD; k++)
            if (guard[k] != POISON)
                return 0;
    }
    return 1;
}

/* ---- the whole ------------------------------------------------------------------------------- */

smelt_status smelt__placed_create(struct smelt__placed *placed, smelt_context *context,
                                  const struct smelt__problem *problem) {
    struct input inputs[SMELT__INPUTS];
    memset(placed, 0, sizeof *placed);
    placed->context = context;
    placed->problem = problem;
    placed->args = problem->args;
    list_inputs(problem, inputs);
    smelt_status status = SMELT_OK;
    for (int i = 0; i < SMELT__INPUTS && status == SMELT_OK; i++)
        if (inputs[i].host && inputs[i].bytes > 0)
            status = allocate(placed, inputs[i].bytes, &placed->inputs[i]);
    if (status == SMELT_OK)
        status = place_outputs(placed);
    if (status == SMELT_OK)
        status = smelt__placed_refresh(placed);
    if (status != SMELT_OK) {
        smelt__placed_destroy(placed);
        return status;
    }
    placed->args.q.data = placed->inputs[SMELT__BUFFER_Q];
    placed->args.kv.data = placed->inputs[SMELT__BUFFER_KV];
    placed->args.indices.data = placed->inputs[SMELT__BUFFER_INDICES];
    placed->args.topk_length.data = placed->inputs[SMELT__BUFFER_TOPK_LENGTH];
    placed->args.sink.data = placed->inputs[SMELT__BUFFER_SINK];
    placed->args.queries.data = placed->inputs[SMELT__BUFFER_QUERIES];
    placed->args.query_count.data = placed->inputs[SMELT__BUFFER_QUERY_COUNT];
    return SMELT_OK;
}

void smelt__placed_destroy(struct smelt__placed *placed) {
    struct smelt__output *outputs[] = {&placed->out, &placed->lse, &placed->max_logits};
    const int far = placed->problem && placed->problem->options.far;
    for (int i = 0; i < SMELT__INPUTS; i++)
        if (placed->inputs[i])
            smelt_device_free(placed->context, placed->inputs[i]);
    for (int i = 0; i < 3; i++) {
        if (outputs[i]->allocation)
            smelt_device_free(placed->context, outputs[i]->allocation);
        smelt__host_free(outputs[i]->host, outputs[i]->bytes + 2 * GUARD, far);
    }
    if (placed->workspace.allocation)
        smelt_device_free(placed->context, placed->workspace.allocation);
    smelt__footprint_free(placed->footprints);
    memset(placed, 0, sizeof *placed);
}

static smelt_status poison(const struct smelt__placed *placed, unsigned char *device,
                           unsigned char *host, size_t bytes) {
    (void)host;
    return smelt_device_fill(placed->context, device, POISON, bytes);
}

static smelt_status download(const struct smelt__placed *placed, unsigned char *device,
                             unsigned char *host, size_t bytes) {
    return smelt_device_download(placed->context, host, device, bytes);
}

/* The guards belong to a whole tensor, not to one with far strides: there the emulator watches. */
static smelt_status each_output(struct smelt__placed *placed, int host, piece_function each) {
    struct smelt__output *outputs[] = {&placed->out, &placed->lse, &placed->max_logits};
    const int far = placed->problem->options.far;
    const size_t guard = far ? GUARD : 0;
    smelt_status status = SMELT_OK;
    for (int i = 0; i < 3 && status == SMELT_OK; i++) {
        size_t bytes = outputs[i]->bytes + 2 * GUARD;
        if (!outputs[i]->allocation)
            continue;
        if (host && !outputs[i]->host)
            outputs[i]->host = smelt__host_allocate(bytes, far);
        if (host && !outputs[i]->host)
            return SMELT_ERROR_OUT_OF_MEMORY;
        status = each_piece(placed, (enum smelt__buffer)(SMELT__BUFFER_OUT + i),
                            outputs[i]->allocation + guard,
                            outputs[i]->host ? outputs[i]->host + guard : NULL, bytes, each);
    }
    return status;
}

smelt_status smelt__placed_poison(struct smelt__placed *placed) {
    smelt_status status = poison_workspace(placed);
    return status == SMELT_OK ? each_output(placed, 0, poison) : status;
}

smelt_status smelt__placed_download(struct smelt__placed *placed) {
    return each_output(placed, 1, download);
}

smelt_status smelt__placed_run(struct smelt__placed *placed, smelt_sparse_attn *attn,
                               struct CUstream_st *stream) {
    if (smelt__emulator())
        smelt__emulator()->clear(); /* reports from here on are this run's */
    smelt_status status = smelt__placed_workspace(placed, attn);
    if (status == SMELT_OK)
        status = smelt__placed_poison(placed);
    /* The fill ran on the default stream, which a non-blocking one does not wait for. */
    if (status == SMELT_OK)
        status = smelt_stream_synchronize(placed->context, NULL);
    if (status == SMELT_OK)
        status = smelt_sparse_attn_forward(attn, &placed->args, stream);
    if (status == SMELT_OK)
        status = smelt_stream_synchronize(placed->context, stream);
    if (status == SMELT_OK)
        status = smelt__placed_download(placed);
    return status;
}

/* ---- reading the copy ------------------------------------------------------------------------ */

static uint16_t *out_at(const struct smelt__placed *placed, int64_t query, int head) {
    smelt_sparse_attn_args a = placed->args;
    smelt__sparse_attn_resolve_strides(&placed->problem->spec, &a);
    uint16_t *out = (uint16_t *)(void *)(placed->out.host + GUARD);
    return out + query / a.tokens * a.out.strides[0] + query % a.tokens * a.out.strides[1] +
           head * a.out.strides[2];
}

static float *lse_at(const struct smelt__placed *placed, const struct smelt__output *output,
                     int64_t query, int head) {
    smelt_sparse_attn_args a = placed->args;
    smelt__sparse_attn_resolve_strides(&placed->problem->spec, &a);
    float *lse = (float *)(void *)(output->host + GUARD);
    return lse + query / a.tokens * a.lse.strides[0] + query % a.tokens * a.lse.strides[1] +
           head * a.lse.strides[2];
}

const uint16_t *smelt__placed_out(const struct smelt__placed *placed, int64_t query, int head) {
    return out_at(placed, query, head);
}

float smelt__placed_lse(const struct smelt__placed *placed, int64_t query, int head) {
    return *lse_at(placed, &placed->lse, query, head);
}

float smelt__placed_max_logit(const struct smelt__placed *placed, int64_t query, int head) {
    return *lse_at(placed, &placed->max_logits, query, head);
}

/* ---- what was touched ------------------------------------------------------------------------ */

struct extent {
    struct smelt__placed *placed;
    const struct smelt__output *scanned;
    _Atomic int64_t nan_row; /* query * heads + head of a computed NaN, or -1 */
    _Atomic int64_t stray;   /* byte touched outside, relative to the tensor; INT64_MIN: none */
};

/* Looks for NaN in what was computed, then poisons it again: what remains must be poison all over.
 */
static void erase_computed(void *user, int64_t begin, int64_t end) {
    struct extent *extent = user;
    struct smelt__placed *placed = extent->placed;
    const struct smelt__problem *problem = placed->problem;
    for (int64_t row = begin; row < end; row++) {
        int64_t query = row / problem->spec.heads;
        int head = (int)(row % problem->spec.heads);
        if (problem->listed && !problem->listed[query])
            continue;
        uint16_t *out = out_at(placed, query, head);
        float *lse = lse_at(placed, &placed->lse, query, head);
        int bad = isnan(*lse);
        for (int d = 0; d < problem->spec.dv; d++)
            bad |= (out[d] & 0x7fff) > 0x7f80;
        memset(out, POISON, (size_t)problem->spec.dv * sizeof *out);
        memset(lse, POISON, sizeof *lse);
        if (placed->max_logits.host) {
            float *max_logit = lse_at(placed, &placed->max_logits, query, head);
            bad |= isnan(*max_logit);
            memset(max_logit, POISON, sizeof *max_logit);
        }
        if (bad)
            atomic_store(&extent->nan_row, row);
    }
}

static void scan_bytes(void *user, int64_t begin, int64_t end) {
    struct extent *extent = user;
    const unsigned char *bytes = extent->scanned->host;
    /* All equal to the first, and the first is poison: one fast pass. */
    if (bytes[begin] == POISON &&
        memcmp(bytes + begin, bytes + begin + 1, (size_t)(end - begin - 1)) == 0)
        return;
    for (int64_t i = begin; i < end; i++)
        if (bytes[i] != POISON) {
            atomic_store(&extent->stray, i - GUARD);
            return;
        }
}

static int scan(struct extent *extent, const struct smelt__output *output, const char *name,
                char *message, size_t size) {
    if (!output->host || extent->placed->problem->options.far)
        return 0;
    extent->scanned = output;
    smelt__parallel_for((int64_t)(output->bytes + 2 * GUARD), 1 << 20, scan_bytes, extent);
    int64_t stray = atomic_load(&extent->stray);
    if (stray == INT64_MIN)
        return 0;
    snprintf(message, size, "%s: byte %lld of %zu was written and is none of a computed query's%s",
             name, (long long)stray, output->bytes,
             stray < 0 || stray >= (int64_t)output->bytes ? " (outside the tensor)" : "");
    return -1;
}

int smelt__placed_verify_extent(struct smelt__placed *placed, char *message, size_t size) {
    struct extent extent = {.placed = placed};
    const struct smelt__problem *problem = placed->problem;
    int heads = problem->spec.heads;
    atomic_init(&extent.nan_row, -1);
    atomic_init(&extent.stray, INT64_MIN);
    smelt__parallel_for(problem->args.batches * problem->args.tokens * heads, 1024, erase_computed,
                        &extent);
    int64_t row = atomic_load(&extent.nan_row);
    if (row >= 0) {
        snprintf(message, size, "query %lld head %lld: NaN, or not written at all",
                 (long long)(row / heads), (long long)(row % heads));
        return -1;
    }
    if (scan(&extent, &placed->out, "out", message, size) != 0 ||
        scan(&extent, &placed->lse, "lse", message, size) != 0)
        return -1;
    if (scan(&extent, &placed->max_logits, "max_logits", message, size) != 0)
        return -1;
    if (workspace_kept(placed))
        return 0;
    snprintf(message, size, "a byte before or behind the workspace was written");
    return -1;
}
