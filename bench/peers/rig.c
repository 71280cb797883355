/* The device, the contenders and their operators. */
#include <dlfcn.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/parallel.h"
#include "internal.h"
#include "runtime/compiler/compile.h"

enum { KERNEL_THREADS = 256 };

static _Thread_local char problem[PEERS_MESSAGE];

const char *peers_problem(void) {
    return problem;
}

int peers_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, sizeof problem, format, arguments);
    va_end(arguments);
    return -1;
}

int peers_fail_smelt(const char *what) {
    return peers_fail("%s: %s", what, smelt_last_error());
}

const char *peers_machine(const struct peers_rig *rig) {
    return rig->machine;
}

smelt_context *peers_context(const struct peers_rig *rig) {
    return rig->context;
}

struct CUstream_st *peers_stream(const struct peers_rig *rig) {
    return rig->stream;
}

int peers_wait(struct peers_rig *rig) {
    return smelt_stream_synchronize(rig->context, rig->stream) == SMELT_OK
               ? 0
               : peers_fail_smelt("waiting for the stream");
}

/* ---- kernels.cu ---- */

static char *read_kernels(char *path, size_t path_bytes) {
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    snprintf(path, path_bytes, "%s/kernels.cu", dirname(self));
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

static int load_module(struct peers_rig *rig, const void *cubin) {
    static const char *const names[] = {"peers_fill", "peers_lists", "peers_reference",
                                        "peers_compare"};
    const struct smelt__driver *driver = rig->context->driver;
    int pushed;
    if (smelt__context_enter(rig->context, &pushed) != SMELT_OK)
        return peers_fail_smelt("the CUDA context");
    CUresult result = driver->cuModuleLoadData(&rig->module, cubin);
    for (int i = 0; i < PEERS_KERNELS && result == CUDA_SUCCESS; i++)
        result = driver->cuModuleGetFunction(&rig->kernels[i], rig->module, names[i]);
    smelt__context_leave(rig->context, pushed);
    if (result == CUDA_SUCCESS)
        return 0;
    smelt__driver_fail(driver, "loading kernels.cu", result);
    return peers_fail_smelt("the program's own kernels");
}

static int compile_kernels(struct peers_rig *rig) {
    const char *arch = smelt_context_arch(rig->context);
    const struct smelt__nvrtc_file *file = smelt__context_compiler(rig->context);
    const struct smelt__nvrtc *nvrtc;
    struct smelt__compile_options options;
    struct smelt__compiled compiled = {0};
    char path[4200], *source = read_kernels(path, sizeof path);
    if (!source)
        return peers_fail("%s cannot be read", path);
    smelt_status status =
        file ? smelt__nvrtc_open(file, &nvrtc) : smelt__context_compiler_problem(rig->context);
    smelt__compile_options(&options, arch, NULL);
    if (status == SMELT_OK)
        status = smelt__compile_source(nvrtc, source, path, "peers_reference", arch, &options,
                                       &compiled);
    int result =
        status == SMELT_OK ? load_module(rig, compiled.cubin) : peers_fail_smelt("kernels.cu");
    free(compiled.cubin);
    free(source);
    return result;
}

int peers_launch(struct peers_rig *rig, enum peers_kernel kernel, unsigned blocks,
                 void **parameters) {
    const struct smelt__driver *driver = rig->context->driver;
    const CUlaunchConfig config = {.gridDimX = blocks,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = KERNEL_THREADS,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .hStream = rig->stream};
    int pushed;
    if (smelt__context_enter(rig->context, &pushed) != SMELT_OK)
        return peers_fail_smelt("the CUDA context");
    CUresult result = driver->cuLaunchKernelEx(&config, rig->kernels[kernel], parameters, NULL);
    smelt__context_leave(rig->context, pushed);
    if (result == CUDA_SUCCESS)
        return 0;
    smelt__driver_fail(driver, "launching a kernel of kernels.cu", result);
    return peers_fail_smelt("the program's own kernels");
}

int peers_open(struct peers_rig **made) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    smelt_device_info info = {.size = sizeof info};
    struct peers_rig *rig = calloc(1, sizeof *rig);
    if (!rig)
        return peers_fail("out of memory");
    options.kind = SMELT_CONTEXT_DEVICE;
    *made = rig;
    if (smelt_context_create(&rig->context, &options) != SMELT_OK)
        return peers_fail_smelt("no GPU");
    /* Until the end: contenders launch from this thread, and some ask the driver without the
     * runtime. */
    if (smelt__context_enter(rig->context, &rig->pushed) != SMELT_OK)
        return peers_fail_smelt("the CUDA context");
    rig->entered = 1;
    if (smelt_stream_create(rig->context, &rig->stream) != SMELT_OK ||
        smelt_device_get_info(rig->context, &info) != SMELT_OK)
        return peers_fail_smelt("the device");
    snprintf(rig->machine, sizeof rig->machine, "%s, driver CUDA %d.%d", info.name,
             info.driver_version / 1000, info.driver_version % 1000 / 10);
    return compile_kernels(rig);
}

/* ---- contenders ---- */

int peers_contender_open(struct peers_contender *contender, const char *text) {
    const char *equals = strchr(text, '='), *colon = equals ? strchr(equals, ':') : NULL;
    char path[4096];
    if (!equals || equals == text || !equals[1])
        return peers_fail("--with %s: expected NAME=FILE[:OPTIONS]", text);
    snprintf(contender->name, sizeof contender->name, "%.*s", (int)(equals - text), text);
    snprintf(contender->options, sizeof contender->options, "%s", colon ? colon + 1 : "");
    size_t length = colon ? (size_t)(colon - equals - 1) : strlen(equals + 1);
    /* dlopen looks for a name without a slash in the loader's path. */
    snprintf(path, sizeof path, "%s%.*s", memchr(equals + 1, '/', length) ? "" : "./", (int)length,
             equals + 1);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return peers_fail("%s: %s", contender->name, dlerror());
    contender->functions = dlsym(library, CONTENDER_SYMBOL);
    if (!contender->functions)
        return peers_fail("%s: %s", contender->name, dlerror());
    if (contender->functions->version != CONTENDER_VERSION)
        return peers_fail("%s: a contender of version %d, expected %d", path,
                          contender->functions->version, CONTENDER_VERSION);
    return 0;
}

int peers_padded_heads(const struct peers_contender *contender,
                       const struct contender_shape *shape) {
    const int unit = contender->functions->heads_unit;
    return (shape->heads + unit - 1) / unit * unit;
}

int peers_can(const struct peers_contender *contender, const struct contender_shape *shape,
              int pad) {
    return shape->topk % contender->functions->topk_unit == 0 &&
           (pad || peers_padded_heads(contender, shape) == shape->heads);
}

/* ---- operators ---- */

struct peers_made {
    const struct contender *functions;
    const char *options;
    struct contender_shape shape;
    void *operation;
    char problem[PEERS_MESSAGE];
};

static int same(const struct peers_made *made, const struct peers_contender *contender,
                const struct contender_shape *shape) {
    return made->functions == contender->functions &&
           strcmp(made->options, contender->options) == 0 &&
           memcmp(&made->shape, shape, sizeof *shape) == 0;
}

static struct peers_made *find(struct peers_rig *rig, const struct peers_contender *contender,
                               const struct contender_shape *shape) {
    for (int i = 0; i < rig->made_count; i++)
        if (same(&rig->made[i], contender, shape))
            return &rig->made[i];
    return NULL;
}

static void make_range(void *user, int64_t begin, int64_t end) {
    struct peers_made *made = user;
    for (int64_t i = begin; i < end; i++)
        if (made[i].functions->open(&made[i].operation, &made[i].shape, made[i].options,
                                    made[i].problem, sizeof made[i].problem) != 0)
            made[i].operation = NULL;
}

static int list_operators(struct peers_rig *rig, const struct peers_contender *contenders,
                          int count, const struct peers_case *cases, int case_count, int pad) {
    rig->made = calloc((size_t)count * (size_t)case_count, sizeof *rig->made);
    if (!rig->made)
        return peers_fail("out of memory");
    for (int i = 0; i < case_count; i++)
        for (int k = 0; k < count; k++) {
            struct contender_shape shape = cases[i].shape;
            if (!peers_can(&contenders[k], &shape, pad))
                continue;
            shape.heads = peers_padded_heads(&contenders[k], &shape);
            if (find(rig, &contenders[k], &shape))
                continue;
            struct peers_made *made = &rig->made[rig->made_count++];
            made->functions = contenders[k].functions;
            made->options = contenders[k].options;
            made->shape = shape;
        }
    return 0;
}

int peers_prepare(struct peers_rig *rig, const struct peers_contender *contenders, int count,
                  const struct peers_case *cases, int case_count, int pad) {
    int failed = 0;
    if (list_operators(rig, contenders, count, cases, case_count, pad) != 0)
        return -1;
    smelt__parallel_for(rig->made_count, 1, make_range, rig->made);
    for (int i = 0; i < rig->made_count; i++)
        if (!rig->made[i].operation) {
            fprintf(stderr, "%s\n", rig->made[i].problem);
            failed++;
        }
    return failed ? peers_fail("%d of %d operators could not be made", failed, rig->made_count) : 0;
}

void peers_close(struct peers_rig *rig) {
    if (!rig)
        return;
    for (int i = 0; i < rig->made_count; i++)
        if (rig->made[i].operation)
            rig->made[i].functions->close(rig->made[i].operation);
    free(rig->made);
    if (rig->stream)
        smelt_stream_destroy(rig->context, rig->stream);
    if (rig->module)
        rig->context->driver->cuModuleUnload(rig->module);
    if (rig->entered)
        smelt__context_leave(rig->context, rig->pushed);
    smelt_context_destroy(&rig->context);
    free(rig);
}

void *peers_operation(struct peers_rig *rig, const struct peers_contender *contender,
                      const struct contender_shape *shape) {
    struct contender_shape padded = *shape;
    padded.heads = peers_padded_heads(contender, shape);
    struct peers_made *made = find(rig, contender, &padded);
    if (!made || !made->operation)
        peers_fail("%s: %s", contender->name, made ? made->problem : "not prepared");
    return made ? made->operation : NULL;
}
