/* See kernel_alone.h. */
#include "kernel_alone.h"

#include "reference/bf16.h"

enum { MEMORIES = 4096 };

struct alone alone;

static struct memories {
    void *host[MEMORIES], *device[MEMORIES];
    int host_count, device_count;
} memories;

enum { RESULTS = 16 };

static struct result {
    const char *name;
    void *device;
    const void *wanted;
    struct rows rows;
    size_t element;
    int poison;
} results[RESULTS];

static int result_count;

int works(smelt_status status, const char *what) {
    const struct emu_interface *emulator = smelt__emulator();
    if (status == SMELT_OK)
        return 1;
    printf("    %s: %s: %s\n", what, smelt_status_name(status), smelt_last_error());
    for (size_t i = 0; emulator && i < emulator->report_count(); i++)
        printf("    report %s: %s\n", emulator->kind_name(emulator->report(i).kind),
               emulator->report(i).text);
    if (emulator)
        emulator->clear();
    return 0;
}

static void need(int there, const char *what) {
    if (there)
        return;
    fprintf(stderr, "no memory for %s\n", what);
    exit(1);
}

/* ---- memory ---------------------------------------------------------------------------------- */

void *take(size_t bytes) {
    void *const memory = malloc(bytes ? bytes : 1);
    need(memory && memories.host_count < MEMORIES, "the host's arrays");
    return memories.host[memories.host_count++] = memory;
}

void *filled(size_t bytes, int byte) {
    return memset(take(bytes), byte, bytes);
}

uint16_t *drawn_bf16(size_t count, int step) {
    uint16_t *const values = take(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = smelt__bf16_from_float((float)(below(65) - 32) / (float)step);
    return values;
}

static void free_memory(void) {
    result_count = 0;
    while (memories.device_count > 0)
        smelt_device_free(alone.context, memories.device[--memories.device_count]);
    while (memories.host_count > 0)
        free(memories.host[--memories.host_count]);
}

void *copy(const char *name, const void *host, size_t bytes) {
    return host ? copy_rows(name, host, packed(bytes)) : NULL;
}

static size_t extent(struct rows rows, size_t step) {
    return rows.count > 0 ? (size_t)(rows.count - 1) * step + rows.bytes : 0;
}

void *copy_rows(const char *name, const void *host, struct rows rows) {
    const struct emu_interface *const emulator = smelt__emulator();
    const size_t bytes = extent(rows, rows.step);
    const int packed = rows.step == rows.host_step;
    void *device = NULL;
    need(memories.device_count < MEMORIES, name);
    if (packed || !emulator)
        need(works(smelt_device_alloc(alone.context, bytes ? bytes : 1, &device), "alloc"), name);
    else
        device = (void *)(uintptr_t)emulator->reserve(bytes);
    need(device != NULL, name);
    memories.device[memories.device_count++] = device;
    if (emulator)
        emulator->name((uint64_t)(uintptr_t)device, name);
    if (host && packed)
        need(upload(device, host, bytes), name);
    for (int64_t row = 0; row < rows.count && host && !packed; row++)
        need(upload((char *)device + (size_t)row * rows.step,
                    (const char *)host + (size_t)row * rows.host_step, rows.bytes),
             name);
    return device;
}

void *fetch(const void *device, struct rows rows) {
    char *const host = filled(extent(rows, rows.host_step), 0);
    for (int64_t row = 0; row < rows.count; row++)
        need(
            works(smelt_device_download(alone.context, host + (size_t)row * rows.host_step,
                                        (const char *)device + (size_t)row * rows.step, rows.bytes),
                  "download"),
            "a copy");
    return host;
}

/* ---- the device ------------------------------------------------------------------------------ */

int fill(void *device, int byte, size_t bytes) {
    return bytes == 0 || works(smelt_device_fill(alone.context, device, byte, bytes), "fill");
}

int fill_rows(void *device, int byte, struct rows rows) {
    int good = 1;
    for (int64_t row = 0; row < rows.count && good; row++)
        good = fill((char *)device + (size_t)row * rows.step, byte, rows.bytes);
    return good;
}

int upload(void *device, const void *host, size_t bytes) {
    return works(smelt_device_upload(alone.context, device, host, bytes), "upload");
}

int get_kernel(const char *spec, const struct smelt__kernel **kernel) {
    struct smelt__plan plan;
    return works(smelt__plan_from_text(spec, smelt_context_arch(alone.context), &plan), spec) &&
           works(smelt__kernel_get(alone.context, &plan, kernel), spec);
}

int plan_constant(const char *spec, const char *name) {
    struct smelt__plan plan;
    int found = 0, value = 0;
    if (works(smelt__plan_from_text(spec, smelt_context_arch(alone.context), &plan), spec))
        value = smelt__plan_constant(&plan, name, &found);
    if (!found) {
        fprintf(stderr, "%s has no constant %s\n", spec, name);
        exit(1);
    }
    return value;
}

int run_kernel(const struct smelt__kernel *kernel, uint32_t blocks, const void *params) {
    const struct smelt__launch launch = {.blocks = {blocks}, .params = params};
    return works(smelt_stream_synchronize(alone.context, NULL), "synchronize") &&
           works(smelt__kernel_launch(alone.context, kernel, &launch, NULL), "launch") &&
           works(smelt_stream_synchronize(alone.context, NULL), "synchronize");
}

int make_map(const void *data, int dimensions, const int64_t *extents, uint32_t box_heads,
             struct tensor_map *map) {
    struct smelt__tensor_box box = {
        .data = data,
        .element = SMELT__MAP_BF16,
        .swizzle = SMELT__MAP_SWIZZLE_128,
        .dimensions = dimensions,
        .box = {64, box_heads, 1, 1},
    };
    uint64_t stride = 2;
    for (int i = 0; i < dimensions; i++) {
        box.extents[i] = (uint64_t)extents[i];
        box.strides[i] = stride;
        stride *= box.extents[i];
    }
    return works(smelt__tensor_map_make(alone.context, &box, map), "map");
}

static int same_bytes(const char *what, const unsigned char *got, const unsigned char *wanted,
                      size_t count, size_t element) {
    for (size_t i = 0; i < count; i++) {
        int is = 0, should = 0;
        memcpy(&is, got + i * element, element);
        memcpy(&should, wanted + i * element, element);
        if (is != should) {
            printf("    %s[%zu] is %d (%#x), not %d (%#x)\n", what, i, is, (unsigned)is, should,
                   (unsigned)should);
            return 0;
        }
    }
    return 1;
}

int same_rows(const char *what, const void *device, const void *wanted, struct rows rows,
              size_t element) {
    unsigned char *const got = malloc(rows.bytes ? rows.bytes : 1);
    int good = 1;
    need(got != NULL, what);
    for (int64_t row = 0; row < rows.count && good; row++)
        good =
            works(smelt_device_download(alone.context, got,
                                        (const char *)device + (size_t)row * rows.step, rows.bytes),
                  "download") &&
            same_bytes(what, got, (const unsigned char *)wanted + (size_t)row * rows.host_step,
                       rows.bytes / element, element);
    free(got);
    return good;
}

int same(const char *what, const void *device, const void *wanted, size_t count, size_t element) {
    const size_t bytes = count * element;
    return same_rows(what, device, wanted, packed(bytes), element);
}

/* ---- results --------------------------------------------------------------------------------- */

struct rows rows_of(int64_t count, int64_t bytes, int64_t step) {
    return (struct rows){count, (size_t)bytes, (size_t)bytes, (size_t)step};
}

struct rows packed(size_t bytes) {
    return (struct rows){1, bytes, bytes, bytes};
}

void *result_rows(const char *name, const void *wanted, struct rows rows, size_t element,
                  int poison) {
    if (!wanted)
        return NULL;
    need(result_count < RESULTS, name);
    void *const device = copy_rows(name, NULL, rows);
    results[result_count++] = (struct result){name, device, wanted, rows, element, poison};
    return device;
}

int poison_results(void) {
    int good = 1;
    for (int i = 0; i < result_count && good; i++)
        good = fill_rows(results[i].device, results[i].poison, results[i].rows);
    return good;
}

int same_results(void) {
    int good = 1;
    for (int i = 0; i < result_count && good; i++)
        good = same_rows(results[i].name, results[i].device, results[i].wanted, results[i].rows,
                         results[i].element);
    return good;
}

/* ---- programs -------------------------------------------------------------------------------- */

/* The number of schedules of a case; coverage.py requests fewer. */
static int schedules_to_run(const struct alone_test *test) {
    const char *asked = getenv("SMELT_TEST_SCHEDULES");
    return !smelt__emulator() ? 2 : asked ? atoi(asked) : test->schedules ? test->schedules : 3;
}

void count_case(int good, const char *name) {
    alone.cases++;
    alone.failures += !good;
    if (!good)
        printf("FAILED %s on %s\n", name, smelt_context_arch(alone.context));
}

static void check(const struct alone_test *test, const void *shape, const char *only) {
    const char *const name = *(const char *const *)shape;
    const uint64_t seed = alone.random.state;
    const int schedules = schedules_to_run(test);
    int good = 1;
    const int *const far = (const void *)((const char *)shape + test->far);
    if (alone.failures || !strstr(name, only) || (test->far && *far && !smelt__emulator()))
        return;
    test->prepare(shape);
    for (int i = 0; i < schedules && good; i++) {
        smelt__emulator_configure(smelt_context_arch(alone.context),
                                  smelt__schedule_at(seed, i + alone.cases % 2), 0);
        good = test->run(shape, i);
    }
    count_case(good, name);
    if (!good) {
        printf("    random state %llu, shape:", (unsigned long long)seed);
        for (int i = 0; i < test->ints; i++)
            printf(" %d", ((const int *)(const void *)((const char *)shape + test->first_int))[i]);
        printf("\n");
    }
    free_memory();
}

static void check_all(const struct alone_test *test, const void *shapes, int count,
                      const char *only) {
    for (int i = 0; i < count; i++)
        check(test, (const char *)shapes + (size_t)i * test->shape_bytes, only);
}

/* Runs on one architecture; 0: it has no such kernel. */
static int run_arch(const struct alone_test *test, int random_cases, const char *only) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    const int first = alone.cases == 0;
    options.kind = SMELT_CONTEXT_DEVICE;
    if (!works(smelt_context_create(&alone.context, &options), "context"))
        return 0;
    int good = 1;
    for (int i = 0; i < 4 && test->specs[i] && good; i++)
        good = get_kernel(test->specs[i], &alone.kernels[i]);
    good = good && (!test->read_plans || test->read_plans());
    if (good && first)
        check_all(test, test->shapes, test->shape_count, only);
    if (good && !smelt__emulator()) {
        check_all(test, test->large_shapes, test->large_count, only);
        if (test->run_large)
            test->run_large();
    }
    for (int i = 0; i < random_cases && good; i++) {
        char *const shape = malloc(test->shape_bytes);
        need(shape != NULL, "a shape");
        memset(shape, 0, test->shape_bytes);
        *(const char **)(void *)shape = "a random shape";
        test->draw(shape);
        check(test, shape, only);
        free(shape);
    }
    smelt_context_destroy(&alone.context);
    return good;
}

int run_alone(int argc, char **argv, const struct alone_test *test) {
    static const char *const archs[] = {"sm_90a", "sm_80"};
    const int random_cases = argc > 1             ? atoi(argv[1])
                             : test->random_cases ? test->random_cases
                                                  : 10;
    const char *const only = argc > 3 ? argv[3] : "";
    int good = 1;
    alone.option = argc > 4 ? argv[4] : "";
    alone.random = random_begin(test->name);
    if (!smelt__emulator())
        good = run_arch(test, random_cases, only);
    for (size_t i = 0; i < sizeof archs / sizeof *archs && smelt__emulator(); i++) {
        if (argc > 2 && strcmp(argv[2], archs[i]) != 0)
            continue;
        smelt__emulator_configure(archs[i], smelt__schedule_at(0, 0), 0);
        good = run_arch(test, random_cases, only) && good;
    }
    printf("%d cases, %d failed\n", alone.cases, alone.failures);
    return !good || alone.failures > 0 || alone.cases == 0;
}

int run_on_emulator(int argc, char **argv, const char *program,
                    int (*judge)(const char *spec, const char *option), const char *passed) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    const char *const spec = argc > 1 ? argv[1] : NULL;
    if (!spec || !smelt__emulator()) {
        fprintf(stderr, "usage: %s KERNEL_SPEC [OPTION], on the emulator\n", program);
        return 2;
    }
    alone.random = random_begin(program);
    options.kind = SMELT_CONTEXT_DEVICE;
    smelt__emulator_configure("sm_90a", smelt__schedule_at(0, 0), 0);
    const int good = works(smelt_context_create(&alone.context, &options), "context") &&
                     get_kernel(spec, &alone.kernels[0]) && judge(spec, argc > 2 ? argv[2] : "");
    free_memory();
    smelt_context_destroy(&alone.context);
    printf("%s: %s\n", spec, good ? passed : "FAILED");
    return !good;
}
