/* See device.h. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/template/engine.h"
#include "emu/compiler/compiler.h" /* the embedded templates' table */
#include "harness/emulated.h"
#include "runtime/compiler/compile.h"
#include "runtime/driver/driver.h"

enum {
    REGION_ALIGNMENT = 1024, /* the largest swizzle pattern's */
    MAP_UINT8 = 0,           /* CU_TENSOR_MAP_DATA_TYPE_UINT8, _UINT32, _BFLOAT16 */
    MAP_UINT32 = 2,
    MAP_BFLOAT16 = 9,
};

/* A compiled kernel. */
struct kernel {
    char *source;
    unsigned char *cubin;
    CUmodule module;
    CUfunction function;
    struct kernel *next;
};

static const struct smelt__driver *driver;
static const struct smelt__nvrtc *nvrtc;
static const struct emu_interface *emulator;
static struct kernel *kernels;
static CUcontext context;
static char description[256];

/* ---- source ---------------------------------------------------------------------------------- */

/* Where region `index` begins. */
static int region_offset(const struct micro_case *one, int index) {
    int offset = 0;
    for (int i = 0; i < index; i++)
        offset +=
            (one->regions[i].bytes + REGION_ALIGNMENT - 1) / REGION_ALIGNMENT * REGION_ALIGNMENT;
    return offset;
}

static int region_count(const struct micro_case *one) {
    int count = 0;
    while (count < CASE_REGIONS && one->regions[count].name)
        count++;
    return count;
}

static unsigned shared_bytes(const struct micro_case *one) {
    return (unsigned)region_offset(one, region_count(one));
}

static int lookup(const void *user, const char *name, int *found) {
    const struct micro_case *one = user;
    *found = 1;
    for (int i = 0; i < CASE_CONSTANTS && one->constants[i].name; i++)
        if (strcmp(one->constants[i].name, name) == 0)
            return one->constants[i].value;
    *found = 0;
    return 0;
}

/* The emulator checks bounds by the banner's map. */
static void put_prologue(const struct micro_case *one, struct smelt__text *out) {
    smelt__text_print(out,
                      "/*\n * Written by tests/emu/micro: micro --emit '%s'\n *\n"
                      " * shared memory (offset, bytes)\n",
                      one->name);
    for (int i = 0; i < region_count(one); i++)
        smelt__text_print(out, " *   %s_OFFSET %d %d -\n", one->regions[i].name,
                          region_offset(one, i), one->regions[i].bytes);
    smelt__text_append_string(out, " * launch\n */\n\n");
    if (region_count(one) > 0 || one->constants[0].name) {
        smelt__text_append_string(out, "enum {\n");
        for (int i = 0; i < CASE_CONSTANTS && one->constants[i].name; i++)
            smelt__text_print(out, "    %s = %d,\n", one->constants[i].name,
                              one->constants[i].value);
        for (int i = 0; i < region_count(one); i++)
            smelt__text_print(out, "    %s_OFFSET = %d,\n", one->regions[i].name,
                              region_offset(one, i));
        smelt__text_append_string(out, "};\n\n");
    }
    smelt__text_print(out, "#define KERNEL_NAME micro_%s\n\n", one->kernel);
}

/* smelt's templates and this suite's, as one table; NULL with a message printed. */
static const struct smelt__template *templates(int *count) {
    static struct smelt__template *table;
    static char names[32][48];
    struct smelt__message message;
    int index, line;
    *count = smelt__template_count + emu_file_count;
    if (table)
        return table;
    const struct smelt__template *const embedded = smelt__templates_embedded(&message);
    struct smelt__template *all = calloc((size_t)*count, sizeof *all);
    if (!all || !embedded || emu_file_count > 32) {
        fprintf(stderr, "micro: no memory for %d templates\n", *count);
        return NULL;
    }
    memcpy(all, embedded, (size_t)smelt__template_count * sizeof *all);
    for (int i = 0; i < emu_file_count; i++) {
        struct smelt__template *one = &all[smelt__template_count + i];
        snprintf(names[i], sizeof names[i], "micro/%.40s", emu_files[i].name);
        one->name = names[i];
        one->text = emu_files[i].text;
        one->length = strlen(emu_files[i].text);
    }
    if (smelt__parts_check(all, *count, &index, &line, &message)) {
        fprintf(stderr, "micro: %s:%d: %s\n", all[index].name, line, message.text);
        free(all);
        return NULL;
    }
    return table = all;
}

char *micro_source(const struct micro_case *one) {
    int count;
    const struct smelt__template *all = templates(&count);
    struct smelt__scope scope = {lookup, one};
    struct smelt__message message = {0};
    struct smelt__text text = {0};
    char root[64];
    if (!all)
        return NULL;
    put_prologue(one, &text);
    snprintf(root, sizeof root, "micro/%s.cu", one->kernel);
    if (smelt__parts_emit(all, count, root, &scope, &text, &message)) {
        fprintf(stderr, "micro: %s: %s\n", one->name, message.text);
        smelt__text_free(&text);
        return NULL;
    }
    return smelt__text_release(&text);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int failed(const char *what, CUresult result) {
    const char *text = NULL;
    if (result == CUDA_SUCCESS)
        return 0;
    driver->cuGetErrorString(result, &text);
    fprintf(stderr, "micro: %s: error %d (%s)\n", what, result, text ? text : "unknown");
    return -1;
}

static int open_device(void) {
    CUdevice device;
    char name[128] = "";
    driver = smelt__driver_get();
    if (!driver) {
        fprintf(stderr, "micro: %s\n", smelt_last_error());
        return -1;
    }
    emulator = smelt__emulator();
    if (failed("cuInit", driver->cuInit(0)) ||
        failed("cuDeviceGet", driver->cuDeviceGet(&device, 0)) ||
        failed("cuDeviceGetName", driver->cuDeviceGetName(name, sizeof name, device)) ||
        failed("cuDevicePrimaryCtxRetain", driver->cuDevicePrimaryCtxRetain(&context, device)) ||
        failed("cuCtxPushCurrent", driver->cuCtxPushCurrent(context)))
        return -1;
    snprintf(description, sizeof description, "%s, driver for CUDA %d.%d, ", name,
             driver->version / 1000, driver->version / 10 % 100);
    return 0;
}

int micro_open(int device) {
    struct smelt__nvrtc_file file;
    struct smelt__log log = {NULL, NULL, 0};
    if (device && open_device())
        return -1;
    if (smelt__nvrtc_find(getenv("SMELT_NVRTC"), driver ? driver->version : 0, &log, &file) ||
        smelt__nvrtc_open(&file, &nvrtc)) {
        fprintf(stderr, "micro: %s\n", smelt_last_error());
        return -1;
    }
    size_t used = strlen(description);
    snprintf(description + used, sizeof description - used, "NVRTC %d.%d", nvrtc->major,
             nvrtc->minor);
    return 0;
}

void micro_close(void) {
    while (kernels) {
        struct kernel *kernel = kernels;
        kernels = kernel->next;
        if (kernel->module)
            driver->cuModuleUnload(kernel->module);
        free(kernel->source);
        free(kernel->cubin);
        free(kernel);
    }
}

const char *micro_description(void) {
    return description;
}

const struct emu_interface *micro_emulator(void) {
    return emulator;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int load(const struct micro_case *one, struct kernel *kernel) {
    char name[64];
    snprintf(name, sizeof name, "micro_%s", one->kernel);
    return failed("cuModuleLoadData", driver->cuModuleLoadData(&kernel->module, kernel->cubin)) ||
                   failed("cuModuleGetFunction",
                          driver->cuModuleGetFunction(&kernel->function, kernel->module, name)) ||
                   failed("cuFuncSetAttribute",
                          driver->cuFuncSetAttribute(
                              kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                              (int)shared_bytes(one)))
               ? -1
               : 0;
}

/* The banner begins with the name of the kernel's first case, which does not matter; the text after
 * it, with the map of shared memory, identifies the kernel. */
static const char *after_name(const char *source) {
    return strstr(source, " * shared memory");
}

/* A case's kernel, compiled unless an earlier case had it; NULL with a message printed. */
static struct kernel *find_kernel(const struct micro_case *one) {
    struct smelt__compile_options options;
    struct smelt__compiled compiled;
    char name[64], file[64];
    char *source = micro_source(one);
    if (!source)
        return NULL;
    for (struct kernel *kernel = kernels; kernel; kernel = kernel->next)
        if (strcmp(after_name(kernel->source), after_name(source)) == 0) {
            free(source);
            return kernel;
        }
    snprintf(name, sizeof name, "micro_%s", one->kernel);
    snprintf(file, sizeof file, "%s.cu", one->kernel);
    memset(&compiled, 0, sizeof compiled);
    smelt__compile_options(&options, "sm_90a", NULL);
    struct kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel ||
        smelt__compile_source(nvrtc, source, file, name, "sm_90a", &options, &compiled)) {
        fprintf(stderr, "micro: %s: %s\n", one->name, kernel ? smelt_last_error() : "no memory");
        free(kernel);
        free(source);
        return NULL;
    }
    kernel->source = source;
    kernel->cubin = compiled.cubin;
    kernel->next = kernels;
    kernels = kernel;
    return kernel;
}

int micro_compile(const struct micro_case *one) {
    return find_kernel(one) ? 0 : -1;
}

/* ---- launches -------------------------------------------------------------------------------- */

struct buffers {
    CUdeviceptr a, b, out;
};

static int make_map(const struct case_map *it, const struct buffers *buffers,
                    struct tensor_map *map) {
    CUdeviceptr base = it->buffer == IN_A ? buffers->a : buffers->b;
    int swizzle = it->swizzle == 128 ? 3 : it->swizzle / 32; /* CU_TENSOR_MAP_SWIZZLE_* */
    int type = it->element_bytes == 2   ? MAP_BFLOAT16
               : it->element_bytes == 4 ? MAP_UINT32
                                        : MAP_UINT8;
    unsigned long long dimensions[CASE_RANK], strides[CASE_RANK - 1];
    uint32_t box[CASE_RANK], steps[CASE_RANK] = {1, 1, 1, 1};
    for (int i = 0; i < it->rank; i++) {
        dimensions[i] = (unsigned long long)it->dimensions[i];
        box[i] = (uint32_t)it->box[i];
        if (i > 0)
            strides[i - 1] = (unsigned long long)it->strides[i];
    }
    return failed("cuTensorMapEncodeTiled",
                  driver->cuTensorMapEncodeTiled((CUtensorMap *)map, type, (unsigned)it->rank,
                                                 (void *)(uintptr_t)(base + it->offset), dimensions,
                                                 strides, box, steps, 0, swizzle, 0, 0));
}

/* Memory with a buffer's contents; 0 for no buffer. */
static int make_buffer(const struct micro_case *one, enum fill fill, size_t bytes, char letter,
                       CUdeviceptr *buffer) {
    char name[2] = {letter, '\0'};
    if (fill == FILL_NOTHING || bytes == 0)
        return 0;
    void *contents = malloc(bytes);
    if (!contents || failed("cuMemAlloc", driver->cuMemAlloc(buffer, bytes))) {
        free(contents);
        return -1;
    }
    micro_fill(fill, contents, bytes, micro_seed(one->name, letter));
    if (emulator)
        emulator->name(*buffer, letter == 'o' ? "out" : name);
    int status = failed("cuMemcpyHtoD", driver->cuMemcpyHtoD(*buffer, contents, bytes));
    free(contents);
    return status;
}

static int launch(const struct micro_case *one, const struct kernel *kernel,
                  const struct buffers *buffers) {
    struct micro_params params = one->params;
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value.clusterDim = {(unsigned)one->cluster, 1, 1}};
    CUlaunchConfig config = {(unsigned)one->blocks, 1,    1,          (unsigned)one->threads, 1, 1,
                             shared_bytes(one),     NULL, &attribute, one->cluster > 1};
    void *arguments[] = {&params};
    params.a = (const void *)(uintptr_t)buffers->a;
    params.b = (const void *)(uintptr_t)buffers->b;
    params.out = (void *)(uintptr_t)buffers->out;
    for (int i = 0; i < one->map_count; i++)
        if (make_map(&one->maps[i], buffers, &params.maps[i]))
            return -1;
    return failed(one->name, driver->cuLaunchKernelEx(&config, kernel->function, arguments, NULL));
}

int micro_run(const struct micro_case *one, void *out) {
    struct kernel *kernel = find_kernel(one);
    struct buffers buffers = {0, 0, 0};
    int status = -1;
    if (!kernel || (!kernel->module && load(one, kernel)) ||
        make_buffer(one, one->a, one->a_bytes, 'a', &buffers.a) ||
        make_buffer(one, one->b, one->b_bytes, 'b', &buffers.b) ||
        make_buffer(one, one->out, one->out_bytes, 'o', &buffers.out))
        goto done;
    if (launch(one, kernel, &buffers) == 0)
        status = failed(one->name, driver->cuMemcpyDtoH(out, buffers.out, one->out_bytes));
done:
    if (buffers.a)
        driver->cuMemFree(buffers.a);
    if (buffers.b)
        driver->cuMemFree(buffers.b);
    if (buffers.out)
        driver->cuMemFree(buffers.out);
    return status;
}
