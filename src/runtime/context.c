/* Creating, entering and destroying contexts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/abi.h"
#include "runtime/context.h"
#include "runtime/process.h"
#include "runtime/templates.h"

/* Frees the result of a compile flight. */
static void free_compiled(void *result) {
    struct smelt__compiled *compiled = result;
    free(compiled->cubin);
    free(compiled);
}

/* ---- the device ---- */

static smelt_status retain_primary(smelt_context *context) {
    const struct smelt__driver *driver = context->driver;
    int ordinal = context->settings.device;
    int count = 0;

    CUresult result = driver->cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(driver, "cuDeviceGetCount", result);
    if (count == 0)
        return smelt__fail(SMELT_ERROR_NO_DEVICE, "the CUDA driver sees no device");
    if (ordinal >= count)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "options.device is %d, but the CUDA driver sees %d device%s: legal are "
                           "0..%d",
                           ordinal, count, count == 1 ? "" : "s", count - 1);
    result = driver->cuDeviceGet(&context->device, ordinal);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(driver, "cuDeviceGet", result);
    result = driver->cuDevicePrimaryCtxRetain(&context->cuda, context->device);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(driver, "cuDevicePrimaryCtxRetain", result);
    context->retained = 1;
    return SMELT_OK;
}

static smelt_status take_current(smelt_context *context) {
    const struct smelt__driver *driver = context->driver;
    CUresult result = driver->cuCtxGetCurrent(&context->cuda);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(driver, "cuCtxGetCurrent", result);
    if (!context->cuda)
        return smelt__fail(SMELT_ERROR_NO_DEVICE,
                           "this thread has no current CUDA context: make one current first, or "
                           "choose a device with options.kind SMELT_CONTEXT_DEVICE");
    result = driver->cuCtxGetDevice(&context->device);
    return result == CUDA_SUCCESS ? SMELT_OK : smelt__driver_fail(driver, "cuCtxGetDevice", result);
}

static smelt_status read_arch(smelt_context *context) {
    const struct smelt__driver *driver = context->driver;
    struct smelt__message message;
    int major = 0;
    int minor = 0;

    CUresult result = driver->cuDeviceGetAttribute(
        &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, context->device);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                              context->device);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(driver, "cuDeviceGetAttribute", result);
    context->arch = smelt__arch_for_capability(major, minor, &message);
    if (!context->arch)
        return smelt__fail(SMELT_ERROR_UNSUPPORTED, "%s", message.text);
    return SMELT_OK;
}

static smelt_status open_device(smelt_context *context) {
    context->driver = smelt__driver_get();
    if (!context->driver)
        return SMELT_ERROR_NO_DRIVER;
    CUresult result = context->driver->cuInit(0);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(context->driver, "cuInit", result);
    smelt_status status = context->settings.kind == SMELT_CONTEXT_CURRENT ? take_current(context)
                                                                          : retain_primary(context);
    if (status)
        return status;
    result = context->driver->cuCtxGetId(context->cuda, &context->cuda_id);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(context->driver, "cuCtxGetId", result);
    result = context->driver->cuDeviceGetName(context->device_name, sizeof context->device_name,
                                              context->device);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(context->driver, "cuDeviceGetName", result);
    return read_arch(context);
}

static smelt_status choose_arch(smelt_context *context) {
    struct smelt__message message;
    if (context->settings.kind != SMELT_CONTEXT_COMPILE_ONLY)
        return open_device(context);
    memcpy(context->device_name, context->settings.tuning_device, sizeof context->device_name);
    context->arch = smelt__arch_find(context->settings.arch, &message);
    if (!context->arch)
        return smelt__fail(SMELT_ERROR_INVALID_SPEC, "%s", message.text);
    return SMELT_OK;
}

int smelt__context_alive(const smelt_context *context) {
    unsigned long long id = 0;
    return context->driver->cuCtxGetId(context->cuda, &id) == CUDA_SUCCESS &&
           id == context->cuda_id;
}

smelt_status smelt__context_check_process(const smelt_context *context) {
    if (context->process == smelt__process_number())
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "this context belongs to the parent process, which forked after making it: "
                       "make a context in the child");
}

smelt_status smelt__context_enter(const smelt_context *context, int *pushed) {
    const struct smelt__driver *driver = context->driver;
    CUcontext current = NULL;

    *pushed = 0;
    smelt_status status = smelt__context_check_process(context);
    if (status)
        return status;
    CUresult result = driver->cuCtxGetCurrent(&current);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(driver, "cuCtxGetCurrent", result);
    if (!smelt__context_alive(context))
        return smelt__fail(SMELT_ERROR_DRIVER,
                           "the CUDA context was destroyed or reset since this smelt context was "
                           "made (cuCtxGetId): destroy the smelt context and make a new one");
    if (current == context->cuda)
        return SMELT_OK;
    result = driver->cuCtxPushCurrent(context->cuda);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(driver, "cuCtxPushCurrent", result);
    *pushed = 1;
    return SMELT_OK;
}

void smelt__context_leave(const smelt_context *context, int pushed) {
    CUcontext popped;
    if (pushed)
        context->driver->cuCtxPopCurrent(&popped);
}

/* ---- the compiler ---- */

static void search_compiler(smelt_context *context) {
    struct smelt__compiler *compiler = &context->compiler;
    struct smelt__saved_error saved;

    smelt__error_save(&saved);
    /* A compile-only context also prefers an NVRTC that the driver supports, so that a cache warmed
     * without a device serves the same machine with it. */
    compiler->status = smelt__nvrtc_find(context->settings.nvrtc_path, smelt__driver_version(),
                                         &context->settings.log, &compiler->file);
    if (compiler->status && !context->driver && !compiler->file.in_doubt)
        compiler->status =
            smelt__nvrtc_find(context->settings.nvrtc_path, 0, NULL, &compiler->file);
    if (!compiler->status && context->driver && context->driver->output != compiler->file.output)
        compiler->status = smelt__fail(
            SMELT_ERROR_NO_COMPILER,
            "the compiler %s makes kernels that the driver %s cannot run: one of them is "
            "smelt's emulator, the other is not (see SMELT_NVRTC and SMELT_CUDA)",
            compiler->file.path, context->driver->path);
    if (compiler->status)
        snprintf(compiler->problem, sizeof compiler->problem, "%s", smelt_last_error());
    smelt__error_restore(&saved);
    smelt__log_write(&context->settings.log, SMELT_LOG_INFO, "%s%s",
                     compiler->status ? "" : "NVRTC is ",
                     compiler->status ? compiler->problem : compiler->file.path);
}

const struct smelt__nvrtc_file *smelt__context_compiler(smelt_context *context) {
    struct smelt__compiler *compiler = &context->compiler;

    pthread_mutex_lock(&compiler->mutex);
    if (!compiler->searched)
        search_compiler(context);
    compiler->searched = !compiler->file.in_doubt;
    const struct smelt__nvrtc_file *file = compiler->status ? NULL : &compiler->file;
    pthread_mutex_unlock(&compiler->mutex);
    return file;
}

smelt_status smelt__context_compiler_problem(smelt_context *context) {
    struct smelt__compiler *compiler = &context->compiler;
    smelt_status status = SMELT_OK;

    if (smelt__context_compiler(context))
        return SMELT_OK;
    pthread_mutex_lock(&compiler->mutex); /* another thread may be searching again */
    if (compiler->status)
        status = smelt__fail(compiler->status, "%s", compiler->problem);
    pthread_mutex_unlock(&compiler->mutex);
    return status;
}

enum smelt__output smelt__context_output(smelt_context *context) {
    const struct smelt__nvrtc_file *compiler;

    if (context->driver)
        return context->driver->output;
    compiler = smelt__context_compiler(context);
    return compiler ? compiler->output : SMELT__OUTPUT_CUBIN;
}

/* ---- the cache, and the tuning file in it ---- */

/* Without a cache folder and a named tuning file there is no tuning file. */
static smelt_status open_tuning(smelt_context *context) {
    const struct smelt__settings *settings = &context->settings;
    char file[SMELT__PATH + 8] = "", readonly[SMELT__PATH + 8] = "";
    const int cached = !settings->tuning_disable && !settings->cache.disable;
    const char *folder = smelt__cache_folder(context->cache);

    if (settings->tuning_path[0])
        snprintf(file, sizeof file, "%s", settings->tuning_disable ? "" : settings->tuning_path);
    else if (cached && !smelt__cache_problem(context->cache)[0] && strlen(folder) < SMELT__PATH)
        snprintf(file, sizeof file, "%.4095s/tuning", folder);
    if (cached && settings->cache_readonly[0])
        snprintf(readonly, sizeof readonly, "%s/tuning", settings->cache_readonly);
    struct smelt__tuning_settings tuning = {
        .file = file, .named = settings->tuning_path[0] != '\0', .readonly = readonly};
    char *text = NULL;
    tuning.readonly_is_text =
        cached && smelt__cache_archive_tuning(context->cache, &text, &tuning.readonly_bytes);
    tuning.readonly_text = text;
    context->tuning = smelt__tuning_open(&tuning, &settings->log);
    free(text);
    return context->tuning
               ? SMELT_OK
               : smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory for the tuning file");
}

static smelt_status open_cache(smelt_context *context) {
    context->cache = smelt__cache_open(&context->settings.cache, &context->settings.log);
    if (!context->cache)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory for the cache");
    return open_tuning(context);
}

static smelt_status read_templates(smelt_context *context) {
    const char *folder = context->settings.templates_folder;
    if (!*folder)
        return SMELT_OK;
    smelt__log_write(&context->settings.log, SMELT_LOG_INFO, "templates are read from %s", folder);
    return smelt__templates_read(folder, &context->templates);
}

/* ---- public ---- */

smelt_status smelt_context_create(smelt_context **out, const smelt_context_options *options) {
    if (!out)
        return smelt__fail_null("context");
    *out = NULL;
    smelt_context *context = calloc(1, sizeof *context);
    if (!context)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory for a context");
    context->process = smelt__process_number();
    context->strings = smelt__strings_new();
    pthread_mutex_init(&context->compiler.mutex, NULL);
    smelt__flights_init(&context->compiling, 0, free_compiled);
    smelt__flights_init(&context->kernels, 1, NULL);

    smelt_status status =
        context->strings ? smelt__settings_resolve(&context->settings, options)
                         : smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory for a context");
    if (!status)
        status = choose_arch(context);
    if (!status)
        status = read_templates(context);
    if (!status)
        status = open_cache(context);
    if (status) {
        smelt_context_destroy(&context);
        return status;
    }
    smelt__log_write(&context->settings.log, SMELT_LOG_INFO, "context for %s%s, cache %s",
                     context->arch->name, context->driver ? "" : ", compile-only",
                     smelt__cache_folder(context->cache));
    *out = context;
    return SMELT_OK;
}

static void unload_kernels(smelt_context *context) {
    int pushed = 0;
    struct smelt__saved_error saved;

    smelt__error_save(&saved); /* a CUDA context destroyed meanwhile is no error of this call */
    int usable = context->kernels.first && smelt__context_enter(context, &pushed) == SMELT_OK;
    smelt__error_restore(&saved);

    for (struct smelt__flight *flight = context->kernels.first; flight; flight = flight->next) {
        struct smelt__loaded *kernel = flight->result;
        /* A destroyed CUDA context has unloaded its modules. */
        if (usable)
            context->driver->cuModuleUnload(kernel->module);
        free(kernel);
        flight->result = NULL;
    }
    smelt__context_leave(context, pushed);
}

void smelt_context_destroy(smelt_context **pointer) {
    if (!pointer || !*pointer)
        return;
    smelt_context *context = *pointer;
    *pointer = NULL;
    /* In a forked child, its parent's threads may have been changing any of this. */
    if (context->process != smelt__process_number())
        return;
    unload_kernels(context);
    smelt__flights_finish(&context->kernels);
    smelt__flights_finish(&context->compiling);
    /* The device counts retains, even if the context was destroyed. */
    if (context->retained)
        context->driver->cuDevicePrimaryCtxRelease(context->device);
    smelt__tuning_close(context->tuning);
    if (context->cache)
        smelt__cache_close(context->cache);
    smelt__templates_free(&context->templates);
    smelt__strings_free(context->strings);
    pthread_mutex_destroy(&context->compiler.mutex);
    free(context);
}

const char *smelt_context_arch(const smelt_context *context) {
    return context ? context->arch->name : "";
}

smelt_status smelt__context_need_device(const smelt_context *context) {
    if (!context)
        return smelt__fail_null("context");
    if (!context->driver)
        return smelt__fail(SMELT_ERROR_NO_DEVICE,
                           "this context is compile-only (for %s): make one with a device to run "
                           "kernels",
                           context->arch->name);
    return SMELT_OK;
}

smelt_status smelt_context_get_info(const smelt_context *context, smelt_context_info *info) {
    const struct smelt__struct *about =
        SMELT__STRUCT(smelt_context_info, "info", "SMELT_CONTEXT_INFO_INIT", loaded);

    if (!context)
        return smelt__fail_null("context");
    smelt_status status = smelt__struct_check(about, info);
    if (status)
        return status;
    const struct smelt__cache_counts counts = smelt__cache_counts(context->cache);
    const smelt_context_info now = {
        .tuning_device = context->device_name,
        .tuning_path = smelt__tuning_file(context->tuning),
        .cache_hits = counts.hits,
        .cache_misses = counts.misses,
        .cache_errors = counts.errors,
        .compiled = atomic_load_explicit(&context->compiled, memory_order_relaxed),
        .loaded = atomic_load_explicit(&context->loaded, memory_order_relaxed)};
    smelt__struct_write(about, &now, info);
    return SMELT_OK;
}
