/*
 * What smelt costs the host: the CPU time of a launch above the driver's own, and the time from a
 * spec to a kernel ready to launch in a new process that finds it in the cache. Needs a GPU; exit
 * status 3 without one. The cache is the usual one (SMELT_CACHE_DIR).
 *
 *   launch_overhead           both measurements
 *   launch_overhead --ready   one new process of the second, as the first starts it
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "codegen/plan/plan.h"
#include "ops/sparse_attn_args.h"
#include "runtime/context.h"
#include "runtime/kernel.h"
#include "smelt/smelt.h"

enum {
    CALLS = 500,  /* between synchronisations: fewer than the driver queues, so that none waits */
    WINDOWS = 45, /* odd, and a multiple of the ways */
    WARM_UP = 3,
    PROCESSES = 9,
    HEADS = 8,
    DQK = 576,
    DV = 512,
    TOPK = 64,
    NO_GPU = 3, /* exit status */
};

static const char kernel_spec[] = "sparse_attn_fwd:heads=8,dqk=576,dv=512,topk=64";
static const smelt_sparse_attn_spec spec = {
    .size = sizeof spec, .heads = HEADS, .dqk = DQK, .dv = DV, .topk = TOPK};

/* One query's work, ready to be launched in each way. */
struct bench {
    smelt_context *context;
    smelt_sparse_attn *attn;
    const struct smelt__kernel *kernel; /* the operator's */
    smelt_sparse_attn_args args;
    struct sparse_attn_fwd_params params; /* the same arguments, packed */
    CUlaunchConfig config;
    struct CUstream_st *stream;
    void *memory;
};

static double nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static int compare(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Of an odd number of values, which it sorts. */
static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

/* Prints the last error; the exit status it means. */
static int report(const char *what, smelt_status status) {
    fprintf(stderr, "launch_overhead: %s: %s\n", what, smelt_last_error());
    return status == SMELT_ERROR_NO_DRIVER || status == SMELT_ERROR_NO_DEVICE ? NO_GPU : 1;
}

/* ---- the work ---- */

/* Zeroed memory is legal input: every slot names row 0. */
static smelt_status lay_out(struct bench *bench) {
    enum { KV = 1 << 16, INDICES = 1 << 18, OUT = 1 << 19, LSE = 3 << 18, BYTES = 1 << 20 };
    smelt_status status = smelt_device_alloc(bench->context, BYTES, &bench->memory);
    if (status == SMELT_OK)
        status = smelt_device_fill(bench->context, bench->memory, 0, BYTES);
    char *base = bench->memory;
    bench->args = (smelt_sparse_attn_args)SMELT_SPARSE_ATTN_ARGS_INIT;
    bench->args.tokens = 1;
    bench->args.rows = TOPK;
    bench->args.width = TOPK;
    bench->args.scale = 0.04F;
    if (status != SMELT_OK)
        return status;
    bench->args.q.data = base;
    bench->args.kv.data = base + KV;
    bench->args.indices.data = (const int32_t *)(void *)(base + INDICES);
    bench->args.out.data = base + OUT;
    bench->args.lse.data = (float *)(void *)(base + LSE);
    return SMELT_OK;
}

/* The kernel the operator launches: the context's table holds one for a spec. */
static smelt_status find_kernel(struct bench *bench) {
    struct smelt__message message;
    struct smelt__spec parsed;
    struct smelt__plan plan;
    if (smelt__spec_parse(kernel_spec, &parsed, &message) ||
        smelt__plan_make(&parsed, smelt__context_arch(bench->context), &plan, &message))
        return smelt__fail(SMELT_ERROR_INTERNAL, "%s", message.text);
    return smelt__kernel_get(bench->context, &plan, &bench->kernel);
}

static smelt_status pack(struct bench *bench) {
    static const struct smelt__sparse_attn_shape shape = {HEADS, DQK, DV, TOPK, 0, 0};
    struct smelt__sparse_attn_packed call;
    smelt_status status = smelt__sparse_attn_pack(&shape, &bench->args, &call);
    bench->params = call.params;
    bench->config = (CUlaunchConfig){
        .gridDimX = (unsigned)bench->kernel->blocks_per_item,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = (unsigned)bench->kernel->threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = (unsigned)bench->kernel->shared_bytes,
        .hStream = bench->stream,
    };
    return status;
}

static smelt_status set_up(struct bench *bench) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    smelt_status status = smelt_context_create(&bench->context, &options);
    if (status == SMELT_OK)
        status = smelt_sparse_attn_create(&bench->attn, bench->context, &spec);
    if (status == SMELT_OK)
        status = find_kernel(bench);
    if (status == SMELT_OK)
        status = smelt_stream_create(bench->context, &bench->stream);
    if (status == SMELT_OK)
        status = lay_out(bench);
    return status == SMELT_OK ? pack(bench) : status;
}

static void tear_down(struct bench *bench) {
    if (bench->memory)
        smelt_device_free(bench->context, bench->memory);
    if (bench->stream)
        smelt_stream_destroy(bench->context, bench->stream);
    smelt_sparse_attn_destroy(&bench->attn);
    smelt_context_destroy(&bench->context);
}

/* ---- launches ---- */

static smelt_status launch_bare(struct bench *bench) {
    const struct smelt__driver *driver = bench->context->driver;
    void *parameters[1] = {&bench->params};
    CUresult result = driver->cuLaunchKernelEx(&bench->config, (CUfunction)bench->kernel->function,
                                               parameters, NULL);
    return result == CUDA_SUCCESS ? SMELT_OK : smelt__driver_fail(driver, "bare launch", result);
}

/* What a caller of the driver does where the context is not current. */
static smelt_status launch_pushed(struct bench *bench) {
    const struct smelt__driver *driver = bench->context->driver;
    CUcontext popped;
    CUresult result = driver->cuCtxPushCurrent(bench->context->cuda);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(driver, "cuCtxPushCurrent", result);
    smelt_status status = launch_bare(bench);
    driver->cuCtxPopCurrent(&popped);
    return status;
}

static smelt_status launch_kernel(struct bench *bench) {
    const struct smelt__launch launch = {.blocks = {bench->config.gridDimX},
                                         .params = &bench->params};
    return smelt__kernel_launch(bench->context, bench->kernel, &launch, bench->stream);
}

static smelt_status launch_forward(struct bench *bench) {
    return smelt_sparse_attn_forward(bench->attn, &bench->args, bench->stream);
}

struct way {
    const char *name;
    smelt_status (*launch)(struct bench *bench);
};
enum { WAYS = 3 };

static smelt_status time_window(struct bench *bench, const struct way *way, double *per_call) {
    smelt_status status = SMELT_OK;
    const double begin = nanoseconds();
    for (int i = 0; i < CALLS && status == SMELT_OK; i++)
        status = way->launch(bench);
    *per_call = (nanoseconds() - begin) / CALLS;
    return status == SMELT_OK ? smelt_stream_synchronize(bench->context, bench->stream) : status;
}

/* The first way is what the others are compared with. */
static smelt_status compare_ways(struct bench *bench, const char *title,
                                 const struct way ways[WAYS]) {
    double times[WAYS][WINDOWS], above[WAYS][WINDOWS], unused;
    for (int window = -WARM_UP; window < WINDOWS; window++) {
        for (int turn = 0; turn < WAYS; turn++) {
            /* Each way comes first, second and third equally often. */
            const int way = (turn + window + WARM_UP) % WAYS;
            smelt_status status =
                time_window(bench, &ways[way], window < 0 ? &unused : &times[way][window]);
            if (status != SMELT_OK)
                return status;
        }
        for (int way = 0; way < WAYS && window >= 0; way++)
            above[way][window] = times[way][window] - times[0][window];
    }
    printf("%s: ns per call, median of %d windows of %d calls (min, max); above %s\n", title,
           WINDOWS, CALLS, ways[0].name);
    for (int way = 0; way < WAYS; way++) {
        const double middle = median(times[way], WINDOWS);
        printf("  %-28s %7.0f (%.0f, %.0f)  %+.0f\n", ways[way].name, middle, times[way][0],
               times[way][WINDOWS - 1], median(above[way], WINDOWS));
    }
    return SMELT_OK;
}

static smelt_status time_with_context(struct bench *bench) {
    static const struct way ways[WAYS] = {{"cuLaunchKernelEx", launch_bare},
                                          {"smelt__kernel_launch", launch_kernel},
                                          {"smelt_sparse_attn_forward", launch_forward}};
    const struct smelt__driver *driver = bench->context->driver;
    CUcontext popped;
    CUresult result = driver->cuCtxPushCurrent(bench->context->cuda);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(driver, "cuCtxPushCurrent", result);
    smelt_status status = compare_ways(bench, "context current", ways);
    driver->cuCtxPopCurrent(&popped);
    return status;
}

/* In a thread of its own, which never had a context. The result is NULL when all went well. */
static void *time_without_context(void *argument) {
    static const struct way ways[WAYS] = {{"push, cuLaunchKernelEx, pop", launch_pushed},
                                          {"smelt__kernel_launch", launch_kernel},
                                          {"smelt_sparse_attn_forward", launch_forward}};
    struct bench *bench = argument;
    CUcontext before = NULL, after = NULL;
    bench->context->driver->cuCtxGetCurrent(&before);
    smelt_status status = compare_ways(bench, "no context current", ways);
    bench->context->driver->cuCtxGetCurrent(&after);
    if (status == SMELT_OK && (before || after))
        status = smelt__fail(SMELT_ERROR_INTERNAL, "the thread had a context, or kept one");
    if (status == SMELT_OK)
        return NULL;
    report("launches without a context", status); /* the message is this thread's */
    return bench;
}

static int measure_launches(void) {
    struct bench bench = {0};
    pthread_t thread;
    void *failed = NULL;
    int result = 0;
    smelt_status status = set_up(&bench);
    if (status == SMELT_OK) {
        printf("%s on %s, 1 query\n", kernel_spec, smelt_context_arch(bench.context));
        status = time_with_context(&bench);
    }
    if (status != SMELT_OK) {
        result = report("launches", status);
    } else if (pthread_create(&thread, NULL, time_without_context, &bench)) {
        fprintf(stderr, "launch_overhead: no thread\n");
        result = 1;
    } else {
        pthread_join(thread, &failed);
        result = failed != NULL;
    }
    tear_down(&bench);
    return result;
}

/* ---- ready to launch, in a new process ---- */

/* Whether the file with this in its name is mapped; -1 when that cannot be told. */
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

static smelt_status start_driver(CUdevice *device) {
    const struct smelt__driver *driver = smelt__driver_get();
    CUcontext context;
    if (!driver)
        return SMELT_ERROR_NO_DRIVER;
    CUresult result = driver->cuInit(0);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGet(device, 0);
    if (result == CUDA_SUCCESS)
        result = driver->cuDevicePrimaryCtxRetain(&context, *device);
    return result == CUDA_SUCCESS ? SMELT_OK : smelt__driver_fail(driver, "driver start", result);
}

/* The new process: the driver's start is not timed. Prints microseconds of the context's creation
 * and of the operator's, and whether NVRTC is mapped. */
static int run_ready(void) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    smelt_kernel_info info = SMELT_KERNEL_INFO_INIT;
    smelt_context *context = NULL;
    smelt_sparse_attn *attn = NULL;
    CUdevice device;
    smelt_status status = start_driver(&device);
    if (status != SMELT_OK)
        return report("driver", status);
    options.kind = SMELT_CONTEXT_DEVICE;
    const double begin = nanoseconds();
    status = smelt_context_create(&context, &options);
    const double made = nanoseconds();
    if (status == SMELT_OK)
        status = smelt_sparse_attn_create(&attn, context, &spec);
    const double ready = nanoseconds();
    if (status == SMELT_OK)
        status = smelt_sparse_attn_get_kernel_info(attn, SMELT_PASS_FORWARD, 0, &info);
    int result = 0;
    if (status != SMELT_OK) {
        result = report("ready", status);
    } else if (info.state != SMELT_KERNEL_CACHED) {
        fprintf(stderr, "launch_overhead: the kernel was not in the cache\n");
        result = 1;
    } else {
        printf("%.1f %.1f %d\n", (made - begin) * 1e-3, (ready - made) * 1e-3,
               is_mapped("libnvrtc"));
    }
    smelt_sparse_attn_destroy(&attn);
    smelt_context_destroy(&context);
    smelt__driver_get()->cuDevicePrimaryCtxRelease(device);
    return result;
}

/* Starts this program anew with --ready and reads its line. 0, or an exit status. */
static int start_ready(double *context, double *create, int *mapped) {
    int ends[2], state;
    if (pipe(ends))
        return 1;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "launch_overhead", "--ready", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *lines = fdopen(ends[0], "r");
    const int fields = lines ? fscanf(lines, "%lf %lf %d", context, create, mapped) : 0;
    if (lines)
        fclose(lines);
    else
        close(ends[0]);
    if (child < 0 || waitpid(child, &state, 0) != child || !WIFEXITED(state))
        return 1;
    if (WEXITSTATUS(state))
        return WEXITSTATUS(state);
    return fields == 3 ? 0 : 1;
}

static int measure_ready(void) {
    double context[PROCESSES], create[PROCESSES];
    int any_mapped = 0;
    for (int i = 0; i < PROCESSES; i++) {
        int mapped = -1;
        int result = start_ready(&context[i], &create[i], &mapped);
        if (result)
            return result;
        any_mapped |= mapped != 0;
    }
    const double made = median(context, PROCESSES), ready = median(create, PROCESSES);
    printf("cached, new process, driver started: us, median of %d processes (min, max)\n"
           "  smelt_context_create         %7.0f (%.0f, %.0f)\n"
           "  smelt_sparse_attn_create     %7.0f (%.0f, %.0f)\n"
           "  libnvrtc mapped: %s\n",
           PROCESSES, made, context[0], context[PROCESSES - 1], ready, create[0],
           create[PROCESSES - 1], any_mapped ? "yes, or it cannot be told" : "no");
    return any_mapped;
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "--ready") == 0)
        return run_ready();
    if (count != 1) {
        fprintf(stderr, "usage: launch_overhead [--ready]\n");
        return 2;
    }
    int result = measure_launches(); /* leaves the kernel in the cache */
    fflush(stdout);
    return result ? result : measure_ready();
}
