/*
 * The host's cost of a call of many launches, above these launches: what a call of the backward
 * pass asks of the driver is recorded once and then, in turn with the call itself, asked again as
 * it is, with nothing around it. Needs a GPU; exit status 3 without one.
 *
 *   call_overhead SPEC CALLS    makes so many calls and nothing else: for a profiler, with
 *                               bench/idle_driver.c in the driver's place
 *
 *   SMELT_CUDA=build/bench/libidle_driver.so SMELT_NVRTC=build/src/emu/libsmelt_emu.so valgrind
 * --tool=callgrind --toggle-collect=smelt_sparse_attn_backward build/bench/call_overhead SPEC 1000
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/context.h"
#include "smelt/smelt.h"

enum {
    LAUNCHES_QUEUED = 700, /* between synchronisations: fewer than the driver queues */
    WINDOWS = 45,
    WARM_UP = 3,
    MOST_STEPS = 64, /* of a call */
    MOST_ATTRIBUTES = 4,
    MOST_PARAMETERS = 4096, /* bytes of a kernel's */
    TOKENS = 8,
    TOPK = 64,
    NO_GPU = 3, /* exit status */
};

static const char *const specs[] = {
    "sparse_attn:heads=64,dqk=576,dv=512,topk=64,passes=backward",
    "sparse_attn:heads=16,dqk=576,dv=512,topk=64,passes=backward",
    "sparse_attn:heads=64,dqk=576,dv=512,topk=64,buckets=8,passes=backward",
    "sparse_attn:heads=64,dqk=576,dv=512,topk=64,passes=backward,deterministic=1",
    "sparse_attn:heads=64,dqk=576,dv=512,topk=64,passes=backward,bwd.variant=mma",
};

/* ---- what a call asks of the driver ---------------------------------------------------------- */

/* A launch, or a fill when there is no function. */
struct step {
    CUlaunchConfig config;
    CUlaunchAttribute attributes[MOST_ATTRIBUTES];
    CUfunction function;
    unsigned char parameters[MOST_PARAMETERS];
    CUdeviceptr filled;
    unsigned word;
    size_t words;
    CUstream stream;
};

static struct recording {
    const struct smelt__driver *driver; /* the real one */
    CUresult (*get_parameter)(CUfunction function, size_t index, size_t *offset, size_t *bytes);
    struct step steps[MOST_STEPS];
    int count, maps;
} recording;

static CUresult record_launch(const CUlaunchConfig *config, CUfunction function, void **parameters,
                              void **extra) {
    struct step *step = &recording.steps[recording.count];
    size_t offset, bytes;
    const CUresult result = recording.get_parameter(function, 0, &offset, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    if (recording.count == MOST_STEPS || bytes > MOST_PARAMETERS ||
        config->numAttrs > MOST_ATTRIBUTES)
        abort();
    recording.count++;
    step->config = *config;
    step->function = function;
    for (unsigned i = 0; i < config->numAttrs; i++)
        step->attributes[i] = config->attrs[i];
    step->config.attrs = config->numAttrs ? step->attributes : NULL;
    memcpy(step->parameters, parameters[0], bytes);
    return recording.driver->cuLaunchKernelEx(config, function, parameters, extra);
}

static CUresult record_fill(CUdeviceptr pointer, unsigned word, size_t words, CUstream stream) {
    if (recording.count == MOST_STEPS)
        abort();
    recording.steps[recording.count++] =
        (struct step){.filled = pointer, .word = word, .words = words, .stream = stream};
    return recording.driver->cuMemsetD32Async(pointer, word, words, stream);
}

static CUresult record_map(CUtensorMap *map, int type, unsigned rank, void *address,
                           const unsigned long long *extents, const unsigned long long *strides,
                           const unsigned *box, const unsigned *element_strides, int interleave,
                           int swizzle, int promotion, int fill) {
    recording.maps++;
    return recording.driver->cuTensorMapEncodeTiled(map, type, rank, address, extents, strides, box,
                                                    element_strides, interleave, swizzle, promotion,
                                                    fill);
}

/* ---- a call ---------------------------------------------------------------------------------- */

struct bench {
    smelt_context *context;
    smelt_sparse_attn *attn;
    smelt_sparse_attn_grad_args args;
    struct CUstream_st *stream;
    void *memory;
};

static smelt_status call(struct bench *bench) {
    return smelt_sparse_attn_backward(bench->attn, &bench->args, bench->stream);
}

static smelt_status replay(struct bench *bench) {
    const struct smelt__driver *driver = bench->context->driver;
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < recording.count && result == CUDA_SUCCESS; i++) {
        struct step *step = &recording.steps[i];
        void *parameters[1] = {step->parameters};
        result =
            step->function
                ? driver->cuLaunchKernelEx(&step->config, step->function, parameters, NULL)
                : driver->cuMemsetD32Async(step->filled, step->word, step->words, step->stream);
    }
    return result == CUDA_SUCCESS ? SMELT_OK : smelt__driver_fail(driver, "replay", result);
}

/* Zeroed memory is legal input: every slot names row 0. */
static smelt_status lay_out(struct bench *bench) {
    enum { TENSOR = 1 << 20, TENSORS = 8, WORKSPACE = 1 << 26 };
    smelt_sparse_attn_grad_args *const args = &bench->args;
    const size_t bytes = (size_t)TENSORS * TENSOR + WORKSPACE;
    smelt_status status = smelt_device_alloc(bench->context, bytes, &bench->memory);
    if (status == SMELT_OK)
        status = smelt_device_fill(bench->context, bench->memory, 0, bytes);
    char *const base = bench->memory;
    *args = (smelt_sparse_attn_grad_args)SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
    if (status != SMELT_OK)
        return status;
    args->tokens = TOKENS;
    args->rows = args->width = TOPK;
    args->scale = 0.04F;
    args->q.data = base;
    args->kv.data = base + TENSOR;
    args->indices.data = (const int32_t *)(void *)(base + 2 * TENSOR);
    args->out.data = base + 3 * TENSOR;
    args->lse.data = (float *)(void *)(base + 4 * TENSOR);
    args->grad_out.data = base + 5 * TENSOR;
    args->dq.data = base + 6 * TENSOR;
    args->dkv.data = base + 7 * TENSOR;
    args->workspace = base + (size_t)TENSORS * TENSOR;
    args->workspace_bytes = WORKSPACE;
    args->workspace_limit = WORKSPACE / 2;
    return SMELT_OK;
}

/* One call, with its driver calls kept. */
static smelt_status record(struct bench *bench) {
    struct smelt__driver between = *bench->context->driver;
    recording.driver = bench->context->driver;
    recording.count = recording.maps = 0;
    between.cuLaunchKernelEx = record_launch;
    between.cuMemsetD32Async = record_fill;
    between.cuTensorMapEncodeTiled = record_map;
    bench->context->driver = &between;
    const smelt_status status = call(bench);
    bench->context->driver = recording.driver;
    return status;
}

/* ---- timing ---------------------------------------------------------------------------------- */

static double nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static int compare(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *values) {
    qsort(values, WINDOWS, sizeof *values, compare);
    return values[WINDOWS / 2];
}

static smelt_status time_window(struct bench *bench, smelt_status (*way)(struct bench *bench),
                                double *per_call) {
    const int calls = LAUNCHES_QUEUED / recording.count;
    smelt_status status = SMELT_OK;
    const double begin = nanoseconds();
    for (int i = 0; i < calls && status == SMELT_OK; i++)
        status = way(bench);
    *per_call = (nanoseconds() - begin) / calls;
    return status == SMELT_OK ? smelt_stream_synchronize(bench->context, bench->stream) : status;
}

static smelt_status measure(struct bench *bench, const char *spec) {
    double calls[WINDOWS], bare[WINDOWS], above[WINDOWS];
    smelt_status status = record(bench);
    for (int window = -WARM_UP; window < WINDOWS && status == SMELT_OK; window++) {
        const int at = window < 0 ? 0 : window;
        const int first = window & 1; /* each way comes first in every second window */
        status = time_window(bench, first ? call : replay, first ? &calls[at] : &bare[at]);
        if (status == SMELT_OK)
            status = time_window(bench, first ? replay : call, first ? &bare[at] : &calls[at]);
        above[at] = calls[at] - bare[at];
    }
    if (status == SMELT_OK)
        printf("%-90s %2d launches and fills, %d maps: %6.0f ns, bare %6.0f, above %+.0f\n", spec,
               recording.count, recording.maps, median(calls), median(bare), median(above));
    return status;
}

static smelt_status repeat(struct bench *bench, int calls) {
    smelt_status status = call(bench);
    const double begin = nanoseconds();
    for (int i = 1; i < calls && status == SMELT_OK; i++)
        status = call(bench);
    printf("%.0f ns a call\n", (nanoseconds() - begin) / (calls - 1));
    return status;
}

/* Makes `calls` of them and says what one took; 0: measures. */
static smelt_status measure_spec(struct bench *bench, const char *text, int calls) {
    smelt_sparse_attn_spec spec = SMELT_SPARSE_ATTN_SPEC_INIT;
    char *knobs = NULL;
    smelt_status status = smelt_sparse_attn_spec_parse(text, &spec, &knobs);
    if (status == SMELT_OK)
        status = smelt_sparse_attn_create(&bench->attn, bench->context, &spec);
    smelt_free(knobs);
    if (status == SMELT_OK)
        status = calls ? repeat(bench, calls) : measure(bench, text);
    smelt_sparse_attn_destroy(&bench->attn);
    return status;
}

/* The context stays current: that is a caller of the driver's part in any case. */
static smelt_status run(struct bench *bench, const char *spec, int calls) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    int pushed = 0;
    options.kind = SMELT_CONTEXT_DEVICE;
    smelt_status status = smelt_context_create(&bench->context, &options);
    if (status == SMELT_OK)
        status = smelt_stream_create(bench->context, &bench->stream);
    if (status == SMELT_OK)
        status = lay_out(bench);
    if (status == SMELT_OK)
        status = smelt__context_enter(bench->context, &pushed);
    if (status != SMELT_OK)
        return status;
    if (spec) {
        status = measure_spec(bench, spec, calls);
        smelt__context_leave(bench->context, pushed);
        return status;
    }
    void *const library = dlopen(bench->context->driver->path, RTLD_NOW);
    void *const symbol = library ? dlsym(library, "cuFuncGetParamInfo") : NULL;
    memcpy(&recording.get_parameter, &symbol, sizeof symbol);
    if (!symbol)
        status = smelt__driver_fail(bench->context->driver, "cuFuncGetParamInfo: not there", 1);
    printf("ns a call, medians of %d windows\n", WINDOWS);
    for (size_t i = 0; i < sizeof specs / sizeof *specs && status == SMELT_OK; i++)
        status = measure_spec(bench, specs[i], 0);
    smelt__context_leave(bench->context, pushed);
    return status;
}

int main(int argc, char **argv) {
    struct bench bench = {0};
    const int calls = argc == 3 ? atoi(argv[2]) : 0;
    if (argc > 1 && calls < 2) {
        fprintf(stderr, "usage: call_overhead [SPEC CALLS]\n");
        return 2;
    }
    const smelt_status status = run(&bench, argc > 1 ? argv[1] : NULL, calls);
    if (status != SMELT_OK)
        fprintf(stderr, "call_overhead: %s\n", smelt_last_error());
    if (bench.memory)
        smelt_device_free(bench.context, bench.memory);
    if (bench.stream)
        smelt_stream_destroy(bench.context, bench.stream);
    smelt_context_destroy(&bench.context);
    return status == SMELT_OK                                                   ? 0
           : status == SMELT_ERROR_NO_DRIVER || status == SMELT_ERROR_NO_DEVICE ? NO_GPU
                                                                                : 1;
}
