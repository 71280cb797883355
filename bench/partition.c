/*
 * The partition of queries into buckets: microseconds, and TB/s of index bytes, compared with one
 * plain pass over the same bytes. A figure is the time of many calls on a stream divided by their
 * number, median and minimum of several rounds; it includes the launch overhead on the GPU. Several
 * index arrays alternate, which together exceed the L2 cache. "just written": the previous kernel
 * wrote the array; its time, measured separately, is subtracted. Needs a GPU and NVRTC; exit status
 * 3 without.
 *
 *   partition INDICES.CU     bench/indices.cu
 */
#include <string.h>

#include "measure.h"
#include "ops/sparse_attn_partition.h"
#include "runtime/compiler/compile.h"
#include "runtime/context.h"
#include "runtime/specs.h"
#include "smelt/smelt.h"

enum {
    WIDTH = 2048,
    ROWS = 8192,
    BUCKETS = 5,
    ROUNDS = 15,
    WARM_UP = 2,
    MOST_ARRAYS = 8,
    THREADS = 512,     /* of indices.cu's blocks */
    READ_BLOCKS = 2112 /* 16 per multiprocessor of an H200 */
};
enum mode { READ, WRITE_FORWARD, WRITE_BACKWARD }; /* indices.cu's */

static const int bounds[BUCKETS] = {256, 512, 1024, 1536, 2048};

struct bench {
    smelt_context *context;
    struct smelt__partition_kernels kernels;
    CUfunction indices; /* of indices.cu */
    struct CUstream_st *stream;
    struct CUevent_st *begin, *end;
    int64_t queries;
    int arrays, repeat;
    void *array[MOST_ARRAYS], *workspace, *sum;
};

/* One measured call, number `number` of its round. */
typedef void (*call_function)(struct bench *bench, int number);

static void check(const struct bench *bench, CUresult result) {
    if (result != CUDA_SUCCESS)
        require(smelt__driver_fail(bench->context->driver, "indices.cu", result));
}

/* ---- the calls ---- */

static void launch_indices(struct bench *bench, int number, enum mode mode) {
    void *array = bench->array[number % bench->arrays];
    long long count = bench->queries * WIDTH;
    int width = WIDTH, form = (int)mode;
    void *parameters[] = {&array, &count, &width, &form, &bench->sum};
    const unsigned blocks = mode == READ ? READ_BLOCKS : (unsigned)(bench->queries / 4);
    const CUlaunchConfig config = {.gridDimX = blocks,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = THREADS,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = bench->stream};
    check(bench,
          bench->context->driver->cuLaunchKernelEx(&config, bench->indices, parameters, NULL));
}

static struct sparse_attn_partition_params params_of(const struct bench *bench, int number) {
    const struct work_params work = {
        .indices = bench->array[number % bench->arrays],
        .indices_batch_stride = bench->queries * WIDTH,
        .indices_token_stride = WIDTH,
        .batches = 1,
        .tokens = (int)bench->queries,
        .rows = ROWS,
        .width = WIDTH,
        .query_capacity = (int)bench->queries,
    };
    return smelt__partition_params(&work, bounds, BUCKETS, bench->workspace);
}

static void read_once(struct bench *bench, int number) {
    launch_indices(bench, number, READ);
}

static void count_alone(struct bench *bench, int number) {
    const struct sparse_attn_partition_params params = params_of(bench, number);
    const struct smelt__launch launch = {.blocks = {(uint32_t)params.runs}, .params = &params};
    require(smelt__kernel_launch(bench->context, bench->kernels.count, &launch, bench->stream));
}

static void partition(struct bench *bench, int number) {
    const struct sparse_attn_partition_params params = params_of(bench, number);
    require(smelt__partition_launch(bench->context, &bench->kernels, &params, bench->stream));
}

/* Both passes without PDL. */
static void partition_in_order(struct bench *bench, int number) {
    const struct sparse_attn_partition_params params = params_of(bench, number);
    const uint32_t blocks =
        (uint32_t)((params.runs + params.runs_at_once - 1) / params.runs_at_once);
    const struct smelt__launch launch = {.blocks = {blocks}, .params = &params};
    count_alone(bench, number);
    require(smelt__kernel_launch(bench->context, bench->kernels.place, &launch, bench->stream));
}

static void write_forward(struct bench *bench, int number) {
    launch_indices(bench, number, WRITE_FORWARD);
}

static void write_backward(struct bench *bench, int number) {
    launch_indices(bench, number, WRITE_BACKWARD);
}

static void partition_after_forward(struct bench *bench, int number) {
    write_forward(bench, number);
    partition(bench, number);
}

static void partition_after_backward(struct bench *bench, int number) {
    write_backward(bench, number);
    partition(bench, number);
}

/* ---- measuring ---- */

struct figure {
    double median, least; /* microseconds of a call */
};

static struct figure measure(struct bench *bench, call_function call) {
    double times[ROUNDS];
    for (int round = -WARM_UP; round < ROUNDS; round++) {
        float milliseconds;
        require(smelt_event_record(bench->context, bench->begin, bench->stream));
        for (int i = 0; i < bench->repeat; i++)
            call(bench, i);
        require(smelt_event_record(bench->context, bench->end, bench->stream));
        require(smelt_event_elapsed(bench->context, bench->begin, bench->end, &milliseconds));
        times[round < 0 ? 0 : round] = 1e3 * (double)milliseconds / bench->repeat;
    }
    const double middle = median(times, ROUNDS);
    return (struct figure){middle, times[0]};
}

static void measure_rows(struct bench *bench) {
    static const struct {
        const char *what;
        call_function call, less; /* `less`: its time is subtracted */
    } rows[] = {
        {"read once", read_once, NULL},
        {"count", count_alone, NULL},
        {"count, place", partition, NULL},
        {"count, place in plain order", partition_in_order, NULL},
        {"just written, first to last", partition_after_forward, write_forward},
        {"just written, last to first", partition_after_backward, write_backward},
    };
    const double bytes = (double)bench->queries * WIDTH * sizeof(int32_t);
    double read = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct figure figure = measure(bench, rows[i].call), less = {0, 0};
        if (rows[i].less)
            less = measure(bench, rows[i].less);
        figure.median -= less.median;
        figure.least -= less.least;
        read = i == 0 ? figure.median : read;
        printf("%7lld  %-32s %8.2f %8.2f %6.2f  %5.2f\n", (long long)bench->queries, rows[i].what,
               figure.median, figure.least, bytes / figure.median * 1e-6, figure.median / read);
    }
}

static void run_size(struct bench *bench, int64_t queries, int arrays, int repeat) {
    const size_t bytes = (size_t)queries * WIDTH * sizeof(int32_t);
    bench->queries = queries;
    bench->arrays = arrays;
    bench->repeat = repeat;
    require(smelt_device_alloc(bench->context, smelt__partition_layout(queries, BUCKETS).bytes,
                               &bench->workspace));
    for (int i = 0; i < arrays; i++) {
        require(smelt_device_alloc(bench->context, bytes, &bench->array[i]));
        write_forward(bench, i);
    }
    measure_rows(bench);
    require(smelt_stream_synchronize(bench->context, bench->stream));
    for (int i = 0; i < arrays; i++)
        smelt_device_free(bench->context, bench->array[i]);
    smelt_device_free(bench->context, bench->workspace);
}

/* ---- set-up ---- */

static void compile_indices(struct bench *bench, const char *path) {
    const char *arch = smelt_context_arch(bench->context);
    const struct smelt__nvrtc_file *compiler = smelt__context_compiler(bench->context);
    const struct smelt__nvrtc *nvrtc;
    struct smelt__compile_options options;
    struct smelt__compiled compiled = {0};
    char *source = NULL;
    size_t capacity = 0;
    CUmodule module;
    FILE *file = fopen(path, "r");
    if (!file || getdelim(&source, &capacity, '\0', file) < 0)
        require(smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s cannot be read", path));
    require(compiler ? smelt__nvrtc_open(compiler, &nvrtc)
                     : smelt__context_compiler_problem(bench->context));
    smelt__compile_options(&options, arch, NULL);
    require(smelt__compile_source(nvrtc, source, path, "smelt_bench_indices", arch, &options,
                                  &compiled));
    check(bench, bench->context->driver->cuModuleLoadData(&module, compiled.cubin));
    check(bench, bench->context->driver->cuModuleGetFunction(&bench->indices, module,
                                                             "smelt_bench_indices"));
    fclose(file);
    free(source);
    free(compiled.cubin);
}

static const struct smelt__kernel *get_kernel(struct bench *bench, const char *spec) {
    const struct smelt__kernel *kernel;
    struct smelt__plan plan;
    require(smelt__plan_from_text(spec, smelt_context_arch(bench->context), &plan));
    require(smelt__kernel_get(bench->context, &plan, &kernel));
    return kernel;
}

int main(int argc, char **argv) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    struct bench bench = {0};
    int pushed;
    if (argc != 2) {
        fprintf(stderr, "usage: partition INDICES.CU\n");
        return 2;
    }
    options.kind = SMELT_CONTEXT_DEVICE;
    require(smelt_context_create(&bench.context, &options));
    require(smelt__context_enter(bench.context, &pushed)); /* current from here on */
    bench.kernels.count = get_kernel(&bench, "sparse_attn_partition:pass=count");
    bench.kernels.place = get_kernel(&bench, "sparse_attn_partition:pass=place");
    compile_indices(&bench, argv[1]);
    require(smelt_stream_create(bench.context, &bench.stream));
    require(smelt_event_create(bench.context, &bench.begin));
    require(smelt_event_create(bench.context, &bench.end));
    require(smelt_device_alloc(bench.context, sizeof(unsigned), &bench.sum));
    printf("queries  %-32s %8s %8s %6s  %5s\n", "width 2048", "us", "least", "TB/s", "/read");
    run_size(&bench, 8192, MOST_ARRAYS, 40);
    run_size(&bench, 131072, 2, 6);
    return 0;
}
