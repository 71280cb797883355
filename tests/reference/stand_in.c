#include "stand_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/family.h"
#include "smelt/smelt.h"

enum stand_in_defect stand_in_defect = STAND_IN_CORRECT;
double (*stand_in_ms)(const char *knobs);
const char *stand_in_defect_knobs;
static double last_ms = 0.5; /* of the last launch */

struct smelt_context {
    int unused;
};

static _Thread_local char last_error[256];

smelt_status stand_in_fail(smelt_status status, const char *what) {
    snprintf(last_error, sizeof last_error, "%s: refused by the stand-in", what);
    return status;
}

/* ---- status, context, specs ------------------------------------------------------------------ */

const char *smelt_last_error(void) {
    return last_error;
}

const char *smelt_status_name(smelt_status status) {
    return status == SMELT_OK ? "SMELT_OK" : "SMELT_ERROR";
}

void smelt_free(void *string) {
    free(string);
}

smelt_status smelt_context_create(smelt_context **context, const smelt_context_options *options) {
    (void)options;
    *context = calloc(1, sizeof **context);
    return *context ? SMELT_OK : SMELT_ERROR_OUT_OF_MEMORY;
}

void smelt_context_destroy(smelt_context **context) {
    free(*context);
    *context = NULL;
}

const char *smelt_context_arch(const smelt_context *context) {
    (void)context;
    return "stand-in";
}

smelt_status smelt_spec_expand(const smelt_context *context, const char *spec, const char *arch,
                               smelt_text_function each, void *user) {
    (void)context, (void)arch;
    return each(user, spec) ? SMELT_ERROR_CANCELLED : SMELT_OK;
}

smelt_status smelt_kernels_prepare(smelt_context *context, const smelt_kernel_request *requests,
                                   size_t count, int jobs, smelt_progress_function progress,
                                   void *user, smelt_kernel_info *infos) {
    (void)context, (void)requests, (void)count, (void)jobs, (void)progress, (void)user;
    (void)infos;
    return SMELT_OK;
}

/* ---- specs: the library's own parser ----------------------------------------------------------- */

static smelt_status parse(const char *text, struct smelt__spec *spec) {
    struct smelt__message message;
    return smelt__spec_parse(text, spec, &message) == 0
               ? SMELT_OK
               : stand_in_fail(SMELT_ERROR_INVALID_SPEC, message.text);
}

smelt_status smelt_spec_canonical(const char *text, char **canonical) {
    struct smelt__spec spec;
    char printed[SMELT__SPEC_TEXT];
    const smelt_status status = parse(text, &spec);
    if (status != SMELT_OK)
        return status;
    smelt__spec_print(&spec, printed);
    *canonical = strdup(printed);
    return *canonical ? SMELT_OK : SMELT_ERROR_OUT_OF_MEMORY;
}

smelt_status smelt_spec_get(const char *text, const char *key, int64_t *value) {
    struct smelt__spec spec;
    const smelt_status status = parse(text, &spec);
    if (status == SMELT_OK && smelt__spec_key(spec.schema, key) < 0)
        return stand_in_fail(SMELT_ERROR_INVALID_ARGUMENT, key);
    if (status == SMELT_OK)
        *value = smelt__spec_get(&spec, key);
    return status;
}

smelt_status smelt_operator_describe(const char *text, enum smelt_pass pass, unsigned *passes,
                                     smelt_pass_info *info) {
    struct smelt__spec spec;
    const smelt_status status = parse(text, &spec);
    (void)pass, (void)info;
    if (status == SMELT_OK)
        *passes = smelt__spec_passes(&spec);
    return status;
}

/* ---- operators ------------------------------------------------------------------------------- */

smelt_status smelt_operator_supported(const smelt_context *context, const char *spec,
                                      const char **why) {
    (void)context, (void)spec;
    if (why)
        *why = "";
    return SMELT_OK;
}

static int key(const struct smelt__spec *spec, const char *name) {
    const int64_t value = smelt__spec_get(spec, name);
    return value == SMELT__AUTO ? -1 : (int)value;
}

smelt_status smelt_operator_create(smelt_operator **op, smelt_context *context, const char *text) {
    struct smelt__spec spec;
    (void)context;
    *op = NULL;
    const smelt_status status = parse(text, &spec);
    if (status != SMELT_OK)
        return status;
    *op = calloc(1, sizeof **op);
    if (!*op)
        return SMELT_ERROR_OUT_OF_MEMORY;
    (*op)->attention = (struct smelt__attention_spec){.heads = key(&spec, "heads"),
                                                      .dqk = key(&spec, "dqk"),
                                                      .dv = key(&spec, "dv"),
                                                      .topk = key(&spec, "topk"),
                                                      .sink = key(&spec, "sink"),
                                                      .buckets = key(&spec, "buckets"),
                                                      .deterministic = key(&spec, "deterministic")};
    smelt__spec_print_knobs(&spec, (*op)->knobs);
    return SMELT_OK;
}

void smelt_operator_destroy(smelt_operator **op) {
    free(*op);
    *op = NULL;
}

smelt_status smelt_operator_launch(const smelt_operator *op, enum smelt_pass pass, const void *args,
                                   struct CUstream_st *stream) {
    (void)stream;
    if (!op || !args)
        return stand_in_fail(SMELT_ERROR_INVALID_ARGUMENT, op ? "args" : "op");
    last_ms = stand_in_ms ? stand_in_ms(op->knobs) : 0.5;
    if (last_ms < 0)
        return stand_in_fail(SMELT_ERROR_DRIVER, "the launch");
    return pass == SMELT_PASS_FORWARD ? stand_in_forward(op, args) : SMELT_OK;
}

smelt_status smelt_operator_workspace(const smelt_operator *op, enum smelt_pass pass,
                                      const void *args, size_t *bytes) {
    (void)op, (void)args, (void)pass;
    *bytes = 0;
    return SMELT_OK;
}

/* ---- device ---------------------------------------------------------------------------------- */

smelt_status smelt_device_get_info(const smelt_context *context, smelt_device_info *info) {
    (void)context;
    info->name = "stand-in";
    info->free_bytes = info->memory_bytes = 1U << 30;
    return SMELT_OK;
}

smelt_status smelt_device_alloc(const smelt_context *context, size_t bytes, void **pointer) {
    (void)context;
    *pointer = malloc(bytes);
    return *pointer ? SMELT_OK : stand_in_fail(SMELT_ERROR_DRIVER, "memory");
}

smelt_status smelt_device_free(const smelt_context *context, void *pointer) {
    (void)context;
    free(pointer);
    return SMELT_OK;
}

smelt_status smelt_device_upload(const smelt_context *context, void *device, const void *host,
                                 size_t bytes) {
    (void)context;
    memcpy(device, host, bytes);
    return SMELT_OK;
}

smelt_status smelt_device_download(const smelt_context *context, void *host, const void *device,
                                   size_t bytes) {
    (void)context;
    memcpy(host, device, bytes);
    return SMELT_OK;
}

smelt_status smelt_device_fill(const smelt_context *context, void *device, int byte, size_t bytes) {
    (void)context;
    memset(device, byte, bytes);
    return SMELT_OK;
}

/* Streams and events: any pointer that can be freed. */
smelt_status smelt_stream_create(const smelt_context *context, struct CUstream_st **stream) {
    (void)context;
    *stream = malloc(1);
    return *stream ? SMELT_OK : SMELT_ERROR_OUT_OF_MEMORY;
}

smelt_status smelt_stream_synchronize(const smelt_context *context, struct CUstream_st *stream) {
    (void)context, (void)stream;
    return SMELT_OK;
}

smelt_status smelt_stream_destroy(const smelt_context *context, struct CUstream_st *stream) {
    (void)context;
    free(stream);
    return SMELT_OK;
}

smelt_status smelt_event_create(const smelt_context *context, struct CUevent_st **event) {
    (void)context;
    *event = malloc(1);
    return *event ? SMELT_OK : SMELT_ERROR_OUT_OF_MEMORY;
}

smelt_status smelt_event_record(const smelt_context *context, struct CUevent_st *event,
                                struct CUstream_st *stream) {
    (void)context, (void)event, (void)stream;
    return SMELT_OK;
}

/* Every launch takes half a millisecond, so that the benchmark's arithmetic can be checked. */
smelt_status smelt_event_elapsed(const smelt_context *context, struct CUevent_st *begin,
                                 struct CUevent_st *end, float *milliseconds) {
    (void)context, (void)begin, (void)end;
    *milliseconds = (float)last_ms;
    return SMELT_OK;
}

smelt_status smelt_event_destroy(const smelt_context *context, struct CUevent_st *event) {
    (void)context;
    free(event);
    return SMELT_OK;
}
