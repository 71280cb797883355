/*
 * The partition of queries into buckets: microseconds, and TB/s of index bytes, against one plain
 * pass over the same bytes. Each figure is the time of many calls on a stream divided by their
 * number, median and least of some rounds, so that it holds a launch's own cost on the GPU. Several
 * index arrays in turn, larger together than the L2 cache; "just written": the array is written by
 * the kernel before, whose own time, measured alone, is taken off. Needs a GPU and NVRTC; exit
 * status 3 without.
 *
 *   partition INDICES.CU     bench/indices.cu
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    THREADS = 512,      /* of indices.cu's blocks */
    READ_BLOCKS = 2112, /* 16 a multiprocessor of an H200 */
    NO_GPU = 3          /* exit status */
};
enum mode { READ, WRITE_FORWARD, WRITE_BACKWARD };

static const int bounds[BUCKETS] = {256, 512, 1024, 1536, 2048};

struct bench {
    smelt_context *context;
    struct smelt__partition_kernels kernels;
    CUmodule module; /* of indices.cu */
    CUfunction indices;
    struct CUstream_st *stream;
    struct CUevent_st *begin, *end;
    int64_t queries;
    int arrays;
    void *array[MOST_ARRAYS], *workspace, *sum;
    int repeat;
};

/* One call of something measured, `number` of its round. */
typedef smelt_status (*call_function)(struct bench *bench, int number);

/* ---- the calls ---- */

static smelt_status launch_indices(struct bench *bench, void *array, enum mode mode) {
    const struct smelt__driver *driver = bench->context->driver;
    long long count = bench->queries * WIDTH;
    int width = WIDTH, form = (int)mode, pushed;
    void *parameters[] = {&array, &count, &width, &form, &bench->sum};
    const CUlaunchConfig config = {.gridDimX =
                                       mode == READ ? READ_BLOCKS : (unsigned)(bench->queries / 4),
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = THREADS,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = bench->stream};
    smelt_status status = smelt__context_enter(bench->context, &pushed);
    if (status != SMELT_OK)
        return status;
    CUresult result = driver->cuLaunchKernelEx(&config, bench->indices, parameters, NULL);
    smelt__context_leave(bench->context, pushed);
    return result == CUDA_SUCCESS ? SMELT_OK : smelt__driver_fail(driver, "indices.cu", result);
}

static struct sparse_attn_partition_params params_of(const struct bench *bench, void *array) {
    const struct work_params work = {
        .indices = array,
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

static void *array_of(const struct bench *bench, int number) {
    return bench->array[number % bench->arrays];
}

static smelt_status read_once(struct bench *bench, int number) {
    return launch_indices(bench, array_of(bench, number), READ);
}

static smelt_status count_alone(struct bench *bench, int number) {
    const struct sparse_attn_partition_params params = params_of(bench, array_of(bench, number));
    const struct smelt__launch launch = {.blocks = {(uint32_t)params.runs}, .params = &params};
    return smelt__kernel_launch(bench->context, bench->kernels.count, &launch, bench->stream);
}

static smelt_status partition(struct bench *bench, int number) {
    const struct sparse_attn_partition_params params = params_of(bench, array_of(bench, number));
    return smelt__partition_launch(bench->context, &bench->kernels, &params, bench->stream);
}

/* Both passes in the stream's plain order. */
static smelt_status partition_in_order(struct bench *bench, int number) {
    const struct sparse_attn_partition_params params = params_of(bench, array_of(bench, number));
    const uint32_t blocks =
        (uint32_t)((params.runs + params.runs_at_once - 1) / params.runs_at_once);
    const struct smelt__launch launch = {.blocks = {blocks}, .params = &params};
    smelt_status status = count_alone(bench, number);
    return status == SMELT_OK
               ? smelt__kernel_launch(bench->context, bench->kernels.place, &launch, bench->stream)
               : status;
}

static smelt_status write_forward(struct bench *bench, int number) {
    return launch_indices(bench, array_of(bench, number), WRITE_FORWARD);
}

static smelt_status write_backward(struct bench *bench, int number) {
    return launch_indices(bench, array_of(bench, number), WRITE_BACKWARD);
}

static smelt_status partition_after_forward(struct bench *bench, int number) {
    smelt_status status = write_forward(bench, number);
    return status == SMELT_OK ? partition(bench, number) : status;
}

static smelt_status partition_after_backward(struct bench *bench, int number) {
    smelt_status status = write_backward(bench, number);
    return status == SMELT_OK ? partition(bench, number) : status;
}

/* ---- measuring ---- */

static int compare(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

struct figure {
    double median, least; /* microseconds of a call */
};

static smelt_status time_round(struct bench *bench, call_function call, double *microseconds) {
    float milliseconds = 0;
    smelt_status status = smelt_event_record(bench->context, bench->begin, bench->stream);
    for (int i = 0; i < bench->repeat && status == SMELT_OK; i++)
        status = call(bench, i);
    if (status == SMELT_OK)
        status = smelt_event_record(bench->context, bench->end, bench->stream);
    if (status == SMELT_OK)
        status = smelt_event_elapsed(bench->context, bench->begin, bench->end, &milliseconds);
    *microseconds = 1e3 * (double)milliseconds / bench->repeat;
    return status;
}

static smelt_status measure(struct bench *bench, call_function call, struct figure *figure) {
    double times[ROUNDS], ignored;
    smelt_status status = SMELT_OK;
    for (int i = 0; i < WARM_UP && status == SMELT_OK; i++)
        status = time_round(bench, call, &ignored);
    for (int i = 0; i < ROUNDS && status == SMELT_OK; i++)
        status = time_round(bench, call, &times[i]);
    if (status != SMELT_OK)
        return status;
    qsort(times, ROUNDS, sizeof *times, compare);
    *figure = (struct figure){times[ROUNDS / 2], times[0]};
    return status;
}

static void print_row(const struct bench *bench, const char *what, struct figure figure,
                      double read) {
    const double bytes = (double)bench->queries * WIDTH * sizeof(int32_t);
    printf("%7lld  %-32s %8.2f %8.2f %6.2f  %5.2f\n", (long long)bench->queries, what,
           figure.median, figure.least, bytes / figure.median * 1e-6, figure.median / read);
}

static smelt_status measure_rows(struct bench *bench) {
    static const struct {
        const char *what;
        call_function call, less; /* `less`: its time is taken off */
    } rows[] = {
        {"read once", read_once, NULL},
        {"count", count_alone, NULL},
        {"count, place", partition, NULL},
        {"count, place in plain order", partition_in_order, NULL},
        {"just written, first to last", partition_after_forward, write_forward},
        {"just written, last to first", partition_after_backward, write_backward},
    };
    smelt_status status = SMELT_OK;
    double read = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && status == SMELT_OK; i++) {
        struct figure figure = {0, 0}, less = {0, 0};
        status = measure(bench, rows[i].call, &figure);
        if (status == SMELT_OK && rows[i].less)
            status = measure(bench, rows[i].less, &less);
        figure.median -= less.median;
        figure.least -= less.least;
        read = i == 0 ? figure.median : read;
        if (status == SMELT_OK)
            print_row(bench, rows[i].what, figure, read);
    }
    return status;
}

/* ---- set-up ---- */

static char *read_file(const char *path) {
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    if (file && getdelim(&text, &room, '\0', file) < 0) {
        free(text);
        text = NULL;
    }
    if (file)
        fclose(file);
    return text;
}

static smelt_status load_module(struct bench *bench, const struct smelt__compiled *compiled) {
    const struct smelt__driver *driver = bench->context->driver;
    int pushed;
    smelt_status status = smelt__context_enter(bench->context, &pushed);
    if (status != SMELT_OK)
        return status;
    CUresult result = driver->cuModuleLoadData(&bench->module, compiled->cubin);
    if (result == CUDA_SUCCESS)
        result = driver->cuModuleGetFunction(&bench->indices, bench->module, "smelt_bench_indices");
    smelt__context_leave(bench->context, pushed);
    return result == CUDA_SUCCESS ? SMELT_OK : smelt__driver_fail(driver, "indices.cu", result);
}

static smelt_status compile_indices(struct bench *bench, const char *path) {
    const struct smelt__nvrtc_file *file = smelt__context_compiler(bench->context);
    const struct smelt__nvrtc *nvrtc;
    struct smelt__compile_options options;
    struct smelt__compiled compiled = {0};
    char *source = read_file(path);
    if (!source)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s cannot be read", path);
    smelt_status status =
        file ? smelt__nvrtc_open(file, &nvrtc) : smelt__context_compiler_problem(bench->context);
    smelt__compile_options(&options, smelt_context_arch(bench->context), NULL);
    if (status == SMELT_OK)
        status = smelt__compile_source(nvrtc, source, path, "smelt_bench_indices",
                                       smelt_context_arch(bench->context), &options, &compiled);
    if (status == SMELT_OK)
        status = load_module(bench, &compiled);
    free(compiled.cubin);
    free(source);
    return status;
}

static smelt_status get_kernel(struct bench *bench, const char *spec,
                               const struct smelt__kernel **kernel) {
    struct smelt__plan plan;
    smelt_status status = smelt__plan_from_text(spec, smelt_context_arch(bench->context), &plan);
    return status == SMELT_OK ? smelt__kernel_get(bench->context, &plan, kernel) : status;
}

static smelt_status set_up(struct bench *bench, const char *path) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    smelt_status status = smelt_context_create(&bench->context, &options);
    if (status == SMELT_OK)
        status = get_kernel(bench, "sparse_attn_partition:pass=count", &bench->kernels.count);
    if (status == SMELT_OK)
        status = get_kernel(bench, "sparse_attn_partition:pass=place", &bench->kernels.place);
    if (status == SMELT_OK)
        status = compile_indices(bench, path);
    if (status == SMELT_OK)
        status = smelt_stream_create(bench->context, &bench->stream);
    if (status == SMELT_OK)
        status = smelt_event_create(bench->context, &bench->begin);
    if (status == SMELT_OK)
        status = smelt_event_create(bench->context, &bench->end);
    return status == SMELT_OK ? smelt_device_alloc(bench->context, sizeof(unsigned), &bench->sum)
                              : status;
}

static smelt_status run_size(struct bench *bench, int64_t queries, int arrays, int repeat) {
    const size_t bytes = (size_t)queries * WIDTH * sizeof(int32_t);
    bench->queries = queries;
    bench->arrays = arrays;
    bench->repeat = repeat;
    smelt_status status = smelt_device_alloc(
        bench->context, smelt__partition_layout(queries, BUCKETS).bytes, &bench->workspace);
    for (int i = 0; i < arrays && status == SMELT_OK; i++) {
        status = smelt_device_alloc(bench->context, bytes, &bench->array[i]);
        if (status == SMELT_OK)
            status = write_forward(bench, i);
    }
    if (status == SMELT_OK)
        status = measure_rows(bench);
    smelt_stream_synchronize(bench->context, bench->stream);
    for (int i = 0; i < arrays; i++) {
        smelt_device_free(bench->context, bench->array[i]);
        bench->array[i] = NULL;
    }
    smelt_device_free(bench->context, bench->workspace);
    bench->workspace = NULL;
    return status;
}

/* The context goes with the process, and with it what was made in it. */
int main(int argc, char **argv) {
    struct bench bench = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: partition INDICES.CU\n");
        return 2;
    }
    smelt_status status = set_up(&bench, argv[1]);
    if (status == SMELT_OK) {
        printf("queries  %-32s %8s %8s %6s  %5s\n", "width 2048", "us", "least", "TB/s", "/read");
        status = run_size(&bench, 8192, MOST_ARRAYS, 40);
    }
    if (status == SMELT_OK)
        status = run_size(&bench, 131072, 2, 6);
    if (status == SMELT_OK)
        return 0;
    fprintf(stderr, "partition: %s\n", smelt_last_error());
    return status == SMELT_ERROR_NO_DRIVER || status == SMELT_ERROR_NO_DEVICE ? NO_GPU : 1;
}
