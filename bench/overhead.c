/*
 * smelt's host time: the time of a call above that of its bare launches, and the time from a spec
 * to a kernel that is ready to launch, in a new process with a cache hit (in SMELT_CACHE_DIR). A
 * call's launches, fills and parameters are recorded once; then the call and the bare driver calls
 * run alternately. Needs a GPU; exit status 3 without one.
 *
 *   overhead               all measurements
 *   overhead --ready       one start, as the first form runs them
 *   overhead SPEC CALLS    only that many calls, for a profiler; also without a GPU:
 *
 *   SMELT_CUDA=build/bench/libidle_driver.so SMELT_NVRTC=build/src/emu/libsmelt_emu.so valgrind --tool=callgrind
 *       --toggle-collect=smelt_sparse_attn_backward build/bench/overhead SPEC 1000
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"
#include "runtime/context.h"
#include "runtime/kernel.h"
#include "runtime/specs.h"
#include "smelt/smelt.h"

enum {
    LAUNCHES = 500, /* between synchronisations; fewer than the driver's queue holds, so that none
                       waits */
    WINDOWS = 45,
    WARM_UP = 3,
    MOST_WAYS = 3,
    MOST_STEPS = 64, /* of a call */
    MOST_ATTRIBUTES = 4,
    MOST_PARAMETERS = 4096, /* bytes of a kernel's */
    TOPK = 64,
    PROCESSES = 9
};

/* The first one's kernel is also launched by the runtime only. */
static const char forward_kernel[] = "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=64";
static const char *const specs[] = {
    "sparse_attn:heads=8,dqk=576,dv=512,topk=64",
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

/* ---- the ways of a call ---------------------------------------------------------------------- */

struct bench {
    smelt_context *context;
    smelt_operator *attn;
    smelt_sparse_attn_args args;
    smelt_sparse_attn_grad_args grad_args;
    int backward;
    struct CUstream_st *stream;
    const struct smelt__kernel *kernel; /* forward_kernel's */
};

static smelt_status call(struct bench *bench) {
    return bench->backward
               ? smelt_sparse_attn_backward(bench->attn, &bench->grad_args, bench->stream)
               : smelt_sparse_attn_forward(bench->attn, &bench->args, bench->stream);
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

/* Replays the calls of a caller whose context is not current. */
static smelt_status replay_pushed(struct bench *bench) {
    const struct smelt__driver *driver = bench->context->driver;
    CUcontext popped;
    CUresult result = driver->cuCtxPushCurrent(bench->context->cuda);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(driver, "cuCtxPushCurrent", result);
    smelt_status status = replay(bench);
    driver->cuCtxPopCurrent(&popped);
    return status;
}

static smelt_status launch_kernel(struct bench *bench) {
    const struct smelt__launch launch = {.blocks = {recording.steps[0].config.gridDimX},
                                         .pdl = recording.steps[0].config.numAttrs > 0,
                                         .params = recording.steps[0].parameters};
    return smelt__kernel_launch(bench->context, bench->kernel, &launch, bench->stream);
}

/* Makes one call and records its driver calls. */
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

struct way {
    const char *name;
    smelt_status (*run)(struct bench *bench);
};

/* Nanoseconds per call. */
static double time_window(struct bench *bench, const struct way *way) {
    const int calls = LAUNCHES / recording.count;
    const double begin = nanoseconds();
    for (int i = 0; i < calls; i++)
        require(way->run(bench));
    const double taken = nanoseconds() - begin;
    require(smelt_stream_synchronize(bench->context, bench->stream));
    return taken / calls;
}

/* The others are compared with the first way. */
static void compare_ways(struct bench *bench, const struct way *ways, int count) {
    double times[MOST_WAYS][WINDOWS], above[MOST_WAYS][WINDOWS];
    for (int window = -WARM_UP; window < WINDOWS; window++) {
        const int at = window < 0 ? 0 : window;
        for (int i = 0; i < count; i++) {
            const int way = (i + window + WARM_UP) % count; /* each comes first equally often */
            times[way][at] = time_window(bench, &ways[way]);
        }
        for (int way = 0; way < count; way++)
            above[way][at] = times[way][at] - times[0][at];
    }
    for (int way = 0; way < count; way++) {
        const double middle = median(times[way], WINDOWS);
        printf("  %-28s %7.0f (%.0f, %.0f)  %+.0f\n", ways[way].name, middle, times[way][0],
               times[way][WINDOWS - 1], median(above[way], WINDOWS));
    }
}

/* Runs in a thread that never had a context. */
static void *time_without_context(void *argument) {
    static const struct way ways[] = {{"push, cuLaunchKernelEx, pop", replay_pushed},
                                      {"smelt__kernel_launch", launch_kernel},
                                      {"smelt_sparse_attn_forward", call}};
    struct bench *bench = argument;
    CUcontext before = NULL, after = NULL;
    bench->context->driver->cuCtxGetCurrent(&before);
    printf(" in a thread without a context\n");
    compare_ways(bench, ways, 3);
    bench->context->driver->cuCtxGetCurrent(&after);
    if (before || after)
        require(smelt__fail(SMELT_ERROR_INTERNAL, "the thread had a context, or kept one"));
    return NULL;
}

static void measure_forward(struct bench *bench) {
    static const struct way ways[] = {{"cuLaunchKernelEx", replay},
                                      {"smelt__kernel_launch", launch_kernel},
                                      {"smelt_sparse_attn_forward", call}};
    struct smelt__plan plan;
    pthread_t thread;
    require(smelt__plan_from_text(forward_kernel, smelt_context_arch(bench->context), &plan));
    require(smelt__kernel_get(bench->context, &plan, &bench->kernel));
    compare_ways(bench, ways, 3);
    if (pthread_create(&thread, NULL, time_without_context, bench))
        require(smelt__fail(SMELT_ERROR_INTERNAL, "no thread"));
    pthread_join(thread, NULL);
}

static void measure(struct bench *bench, const char *spec) {
    static const struct way ways[] = {{"bare launches and fills", replay},
                                      {"smelt_sparse_attn_backward", call}};
    require(record(bench));
    printf("%s: %d launches and fills, %d maps\n", spec, recording.count, recording.maps);
    if (bench->backward)
        compare_ways(bench, ways, 2);
    else
        measure_forward(bench);
}

static void repeat(struct bench *bench, int calls) {
    require(call(bench));
    const double begin = nanoseconds();
    for (int i = 1; i < calls; i++)
        require(call(bench));
    printf("%.0f ns a call\n", (nanoseconds() - begin) / (calls - 1));
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* Zeroed memory is legal input: every slot names row 0. */
static void lay_out(struct bench *bench) {
    enum { TENSOR = 1 << 20, TENSORS = 8, WORKSPACE = 1 << 26 };
    smelt_sparse_attn_args *const args = &bench->args;
    smelt_sparse_attn_grad_args *const grad = &bench->grad_args;
    const size_t bytes = (size_t)TENSORS * TENSOR + WORKSPACE;
    void *memory;
    require(smelt_device_alloc(bench->context, bytes, &memory));
    require(smelt_device_fill(bench->context, memory, 0, bytes));
    char *const base = memory;
    *args = (smelt_sparse_attn_args)SMELT_SPARSE_ATTN_ARGS_INIT;
    *grad = (smelt_sparse_attn_grad_args)SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
    args->tokens = 1;
    grad->tokens = 8;
    args->rows = args->width = grad->rows = grad->width = TOPK;
    args->scale = grad->scale = 0.04F;
    args->q.data = grad->q.data = base;
    args->kv.data = grad->kv.data = base + TENSOR;
    args->indices.data = grad->indices.data = base + 2 * TENSOR;
    grad->out.data = args->out.data = base + 3 * TENSOR;
    grad->lse.data = args->lse.data = base + 4 * TENSOR;
    grad->grad_out.data = base + 5 * TENSOR;
    grad->dq.data = base + 6 * TENSOR;
    grad->dkv.data = base + 7 * TENSOR;
    grad->workspace = base + (size_t)TENSORS * TENSOR;
    grad->workspace_bytes = WORKSPACE;
    grad->workspace_limit = WORKSPACE / 2;
}

static smelt_operator *create(smelt_context *context, const char *text) {
    smelt_operator *made;
    require(smelt_operator_create(&made, context, text));
    return made;
}

/* Makes `calls` calls and prints the time of one; 0: measures. */
static void measure_spec(struct bench *bench, const char *spec, int calls) {
    bench->backward = strstr(spec, "passes=backward") != NULL;
    bench->attn = create(bench->context, spec);
    if (calls)
        repeat(bench, calls);
    else
        measure(bench, spec);
    smelt_operator_destroy(&bench->attn);
}

static void measure_all(struct bench *bench) {
    const char *const named = getenv("SMELT_CUDA"); /* has its own cuFuncGetParamInfo */
    void *const library = dlopen(named ? named : bench->context->driver->path, RTLD_NOW);
    void *const symbol = library ? dlsym(library, "cuFuncGetParamInfo") : NULL;
    memcpy(&recording.get_parameter, &symbol, sizeof symbol); /* POSIX: a function's address */
    if (!symbol)
        require(smelt__driver_fail(bench->context->driver, "cuFuncGetParamInfo: not there", 1));
    printf("ns per call, median of %d windows (min, max); above the first\n", WINDOWS);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        measure_spec(bench, specs[i], 0);
}

/* The context stays current, which is the caller's task with the bare driver, too. */
static void set_up(struct bench *bench) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    int pushed;
    options.kind = SMELT_CONTEXT_DEVICE;
    require(smelt_context_create(&bench->context, &options));
    require(smelt_stream_create(bench->context, &bench->stream));
    lay_out(bench);
    require(smelt__context_enter(bench->context, &pushed));
}

/* ---- ready to launch, in a new process ------------------------------------------------------- */

/* Whether a file with this text in its name is mapped; -1: unknown. */
static int is_mapped(const char *name) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps)
        return -1;
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

static void start_driver(void) {
    const struct smelt__driver *driver = smelt__driver_get();
    CUcontext context;
    CUdevice device;
    if (!driver)
        require(SMELT_ERROR_NO_DRIVER);
    CUresult result = driver->cuInit(0);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGet(&device, 0);
    if (result == CUDA_SUCCESS)
        result = driver->cuDevicePrimaryCtxRetain(&context, device);
    if (result != CUDA_SUCCESS)
        require(smelt__driver_fail(driver, "driver start", result));
}

/* The new process; the driver's start is not timed. Prints the microseconds for creating the
 * context and the operator, and whether NVRTC is mapped. */
static void run_ready(void) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    smelt_kernel_info info = SMELT_KERNEL_INFO_INIT;
    smelt_context *context;
    start_driver();
    options.kind = SMELT_CONTEXT_DEVICE;
    const double begin = nanoseconds();
    require(smelt_context_create(&context, &options));
    const double made = nanoseconds();
    smelt_operator *attn = create(context, specs[0]);
    const double ready = nanoseconds();
    require(smelt_operator_get_kernel_info(attn, SMELT_PASS_FORWARD, 0, &info));
    if (info.state != SMELT_KERNEL_CACHED)
        require(smelt__fail(SMELT_ERROR_INTERNAL, "the kernel was not in the cache"));
    printf("%.1f %.1f %d\n", (made - begin) * 1e-3, (ready - made) * 1e-3, is_mapped("libnvrtc"));
    smelt_operator_destroy(&attn);
    smelt_context_destroy(&context);
}

static void measure_ready(void) {
    double context[PROCESSES], ready[PROCESSES];
    char command[4200], self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    snprintf(command, sizeof command, "'%s' --ready", self);
    for (int i = 0; i < PROCESSES; i++) {
        int mapped = 0;
        FILE *lines = popen(command, "r");
        const int fields = lines ? fscanf(lines, "%lf %lf %d", &context[i], &ready[i], &mapped) : 0;
        if (!lines || pclose(lines) || fields != 3)
            require(smelt__fail(SMELT_ERROR_INTERNAL, "%s failed", command));
        if (mapped)
            require(smelt__fail(SMELT_ERROR_INTERNAL, "libnvrtc was mapped, or may have been"));
    }
    const double made = median(context, PROCESSES), middle = median(ready, PROCESSES);
    printf("cached, new process, driver started: us, median of %d processes (min, max); libnvrtc "
           "not mapped\n"
           "  smelt_context_create         %7.0f (%.0f, %.0f)\n"
           "  smelt_operator_create        %7.0f (%.0f, %.0f)\n",
           PROCESSES, made, context[0], context[PROCESSES - 1], middle, ready[0],
           ready[PROCESSES - 1]);
}

int main(int argc, char **argv) {
    const int calls = argc == 3 ? atoi(argv[2]) : 0;
    struct bench bench = {0};
    if (argc == 2 && strcmp(argv[1], "--ready") == 0) {
        run_ready();
        return 0;
    }
    if (argc > 1 && calls < 2) {
        fprintf(stderr, "usage: overhead [--ready | SPEC CALLS]; CALLS: at least 2\n");
        return 2;
    }
    set_up(&bench);
    if (argc > 1) {
        measure_spec(&bench, argv[1], calls);
        return 0;
    }
    measure_all(&bench); /* leaves the kernels in the cache */
    fflush(stdout);
    measure_ready();
    return 0;
}
