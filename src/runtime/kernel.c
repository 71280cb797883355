/*
 * From a plan to a loaded kernel, and its launch. Compilation is a single flight per cache key,
 * loading one per spec (flight.h): threads that request the same kernel compile and load it once,
 * different kernels proceed in parallel.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/clock.h"
#include "runtime/compiler/compile.h"
#include "runtime/context.h"
#include "runtime/kernel.h"
#include "runtime/specs.h"

/* One kernel's compilation. */
struct job {
    smelt_context *context;
    const struct smelt__plan *plan;
    struct smelt__compile_options options;
    struct smelt__cache_key key;
    const struct smelt__nvrtc_file *compiler; /* NULL: none was found */
    char spec[SMELT__SPEC_TEXT];
    enum smelt__lock_policy policy;
};

/* The result of a compile flight. `compiled` must be first: the context frees the result through
 * it. */
struct outcome {
    struct smelt__compiled compiled;
    smelt_kernel_state state;
    double seconds;
    int kept;                        /* stored in the cache */
    char not_kept[SMELT__CACHE_WHY]; /* why it is not stored */
    int busy; /* no kernel: another process is compiling it and the policy does not wait */
};

/* ---- plan to cubin ---- */

static smelt_status begin_job(struct job *job, smelt_context *context,
                              const struct smelt__plan *plan) {
    memset(job, 0, sizeof *job);
    job->context = context;
    job->plan = plan;
    smelt__spec_print_asked(&plan->spec, job->spec);
    smelt__compile_options(&job->options, plan->arch->name, context->settings.nvrtc_debug);
    return smelt__plan_key(plan, context->templates, job->options.list,
                           smelt__context_output(context), &job->key);
}

static const struct smelt__compiler_id *compiler_id(const struct job *job) {
    return job->compiler ? &job->compiler->id : NULL;
}

/* Writes the source, opens NVRTC and compiles, without the cache. */
static smelt_status compile_job(struct job *job, struct smelt__compiled *compiled) {
    const struct smelt__plan *plan = job->plan;
    struct smelt__text source = {0};
    const struct smelt__nvrtc *nvrtc;

    smelt_status status = smelt__plan_emit(plan, job->context->templates, &source);
    if (!status)
        status = smelt__nvrtc_open(job->compiler, &nvrtc);
    if (status)
        goto out;
    memset(compiled, 0, sizeof *compiled);
    smelt__log_write(&job->context->settings.log, SMELT_LOG_INFO, "compiling %s for %s", job->spec,
                     plan->arch->name);
    status = smelt__compile_source(nvrtc, source.data, plan->template_name, plan->kernel_name,
                                   plan->arch->name, &job->options, compiled);
    if (status)
        goto out;
    snprintf(compiled->spec, sizeof compiled->spec, "%s", job->spec);
    snprintf(compiled->kernel_name, sizeof compiled->kernel_name, "%s", plan->kernel_name);
    compiled->dynamic_shared_bytes = plan->shared_bytes;
    compiled->threads = plan->threads;
    atomic_fetch_add_explicit(&job->context->compiled, 1, memory_order_relaxed);
    smelt__log_write(&job->context->settings.log, SMELT_LOG_INFO,
                     "compiled %s for %s in %.2f s with NVRTC %d.%d", job->spec, plan->arch->name,
                     compiled->compile_seconds, nvrtc->major, nvrtc->minor);
    if (compiled->serialised)
        smelt__log_write(
            &job->context->settings.log, SMELT_LOG_WARNING,
            "%s for %s: the assembler serialised wgmma (warning C%d): the kernel is correct but "
            "slow; try another version of NVRTC, and please report this",
            job->spec, plan->arch->name, compiled->serialised);
out:
    smelt__text_free(&source);
    return status;
}

/* Result as for smelt__cache_lock; -1: busy. */
static int lock_job(struct job *job, struct smelt__cache_lock *lock,
                    struct smelt__compiled *compiled) {
    struct smelt__cache *cache = job->context->cache;

    if (job->policy == SMELT__LOCK_IGNORE)
        return 0;
    return smelt__cache_lock(cache, &job->key, compiler_id(job), job->policy == SMELT__LOCK_WAIT,
                             lock, compiled);
}

/* A kernel that is not cached, in an offline context. Without a lookup (cache_recompile) there was no
 * miss: a caller that needs only the keys uses it. */
static smelt_status refuse_offline(struct job *job) {
    const struct smelt__settings *settings = &job->context->settings;

    if (!settings->cache.recompile)
        smelt__cache_missed(job->context->cache, &job->key);
    return smelt__fail(
        SMELT_ERROR_NO_COMPILER,
        "%s for %s is not in the cache, and nothing is compiled, because the context "
        "is offline (SMELT_OFFLINE=1 or options.offline)",
        job->spec, job->plan->arch->name);
}

/* Cache lookup, lock (which looks up again), compilation, store. Waiting for the lock includes
 * lookups, so a kernel that was busy before (SMELT__LOCK_POLL) skips the first one. `fresh`: the
 * driver refused the cached kernel, so the cache is skipped. */
static smelt_status produce(struct job *job, int fresh, struct outcome *outcome) {
    struct smelt__cache *cache = job->context->cache;
    struct smelt__compiled *compiled = &outcome->compiled;
    struct smelt__cache_lock lock = {-1};
    smelt_status status = SMELT_OK;

    /* Without a compiler any compiler's entry is accepted, so a missing compiler matters on a miss
     * only. */
    job->compiler = smelt__context_compiler(job->context);
    outcome->state = SMELT_KERNEL_CACHED;
    outcome->kept = 1;
    if (!fresh && job->policy != SMELT__LOCK_POLL &&
        smelt__cache_lookup(cache, &job->key, compiler_id(job), compiled))
        return SMELT_OK;
    if (job->context->settings.offline)
        return refuse_offline(job);
    int locked = fresh || !job->compiler ? 0 : lock_job(job, &lock, compiled);
    outcome->busy = locked < 0;
    if (locked)
        goto out;
    if (!fresh)
        smelt__cache_missed(cache, &job->key);
    if (!job->compiler) {
        status = smelt__context_compiler_problem(job->context);
        if (status)
            return status;
        job->compiler = smelt__context_compiler(job->context); /* found by the repeated search */
    }
    outcome->state = SMELT_KERNEL_COMPILED;
    status = compile_job(job, compiled);
    if (!status)
        outcome->kept = smelt__cache_store(cache, &job->key, compiler_id(job), compiled,
                                           outcome->not_kept) == 0;
out:
    smelt__cache_unlock(cache, &lock);
    return status;
}

static smelt_status fill_info(const struct job *job, const struct outcome *outcome,
                              smelt_kernel_info *info) {
    const struct smelt__compiled *compiled = &outcome->compiled;
    const struct smelt__plan *plan = job->plan;
    struct smelt__strings *strings = job->context->strings;
    char hex[33];

    smelt__cache_key_hex(&job->key, hex);
    *info = (smelt_kernel_info){.size = sizeof *info,
                                .spec = smelt__strings_keep(strings, job->spec),
                                .arch = plan->arch->name,
                                .kernel = smelt__strings_keep(strings, plan->kernel_name),
                                .key = smelt__strings_keep(strings, hex),
                                .error = ""};
    info->state = outcome->state;
    info->seconds = outcome->seconds;
    info->compile_seconds = compiled->compile_seconds;
    info->assembler_seconds = compiled->assembler_seconds;
    info->registers = compiled->registers;
    info->spill_bytes = compiled->spill_bytes;
    info->static_shared_bytes = compiled->static_shared_bytes;
    info->dynamic_shared_bytes = plan->shared_bytes;
    info->threads = plan->threads;
    info->serialised = outcome->state == SMELT_KERNEL_COMPILED ? compiled->serialised : 0;
    info->cubin_bytes = compiled->cubin_bytes;
    info->emulated = job->key.output == SMELT__OUTPUT_EMULATED;
    info->kept = outcome->kept;
    if (!outcome->kept)
        info->error = smelt__strings_note(strings, outcome->not_kept);
    return info->spec && info->kernel && info->key ? SMELT_OK : SMELT_ERROR_OUT_OF_MEMORY;
}

static smelt_status copy_compiled(const struct smelt__compiled *from, struct smelt__compiled *to) {
    *to = *from;
    to->cubin = malloc(from->cubin_bytes);
    if (!to->cubin)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory for a cubin of %zu bytes",
                           from->cubin_bytes);
    memcpy(to->cubin, from->cubin, from->cubin_bytes);
    return SMELT_OK;
}

/* The leader's part of a compile flight. */
static smelt_status lead_compilation(struct job *job, struct outcome **result) {
    const int64_t begin = smelt__now_ns();
    struct outcome *outcome = calloc(1, sizeof *outcome);
    if (!outcome)
        return smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    smelt_status status = produce(job, 0, outcome);
    outcome->seconds = smelt__seconds_since(begin);
    if (status) {
        free(outcome);
        return status;
    }
    *result = outcome;
    return SMELT_OK;
}

/* Leads the flight of this key or waits for its leader. */
static smelt_status compile_or_wait(struct job *job, struct outcome *outcome) {
    struct smelt__flights *flights = &job->context->compiling;
    struct smelt__flight *flight;
    struct outcome *result = NULL;
    char hex[33];

    smelt__cache_key_hex(&job->key, hex);
    int leads = smelt__flight_join(flights, hex, &flight);
    if (!flight)
        return SMELT_ERROR_OUT_OF_MEMORY;
    if (leads) {
        smelt_status status = lead_compilation(job, &result);
        smelt__flight_complete(flights, flight, status, result);
    }
    smelt_status status = flight->status;
    if (!status) {
        *outcome = *(const struct outcome *)flight->result;
        if (!outcome->busy)
            status = copy_compiled(&((const struct outcome *)flight->result)->compiled,
                                   &outcome->compiled);
    }
    smelt__flight_leave(flights, flight);
    return status;
}

/* Repeats while busy: the flight's leader may have had a policy that does not wait. */
static smelt_status compile_once(struct job *job, struct outcome *outcome) {
    smelt_status status;
    do
        status = compile_or_wait(job, outcome);
    while (!status && outcome->busy &&
           (job->policy == SMELT__LOCK_WAIT || job->policy == SMELT__LOCK_IGNORE));
    return status;
}

smelt_status smelt__kernel_compile(smelt_context *context, const struct smelt__plan *plan,
                                   struct smelt__compiled *compiled, smelt_kernel_info *info) {
    int busy;
    return smelt__kernel_compile_unless(context, plan, SMELT__LOCK_WAIT, compiled, info, &busy);
}

smelt_status smelt__kernel_compile_unless(smelt_context *context, const struct smelt__plan *plan,
                                          enum smelt__lock_policy policy,
                                          struct smelt__compiled *compiled, smelt_kernel_info *info,
                                          int *busy) {
    struct job job;
    struct outcome outcome;
    char key[33];

    *busy = 0;
    memset(compiled, 0, sizeof *compiled);
    smelt_status status = smelt__context_check_process(context);
    if (status)
        return status;
    status = begin_job(&job, context, plan);
    job.policy = policy;
    if (!status)
        status = compile_once(&job, &outcome);
    if (!status) {
        *busy = outcome.busy;
        *compiled = outcome.compiled;
    }
    if (!status && info && !outcome.busy)
        status = fill_info(&job, &outcome, info);
    if (status && info && job.key.input_bytes) {
        smelt__cache_key_hex(&job.key, key);
        info->key = smelt__strings_keep(context->strings, key);
    }
    if (status) {
        free(compiled->cubin);
        compiled->cubin = NULL;
    }
    return status;
}

/* ---- cubin to kernel ---- */

/* Loads a cubin; the CUDA context is current. Nothing stays loaded on failure. */
static smelt_status load_cubin(const struct smelt__driver *driver,
                               const struct smelt__compiled *compiled,
                               struct smelt__kernel *kernel) {
    CUmodule module = NULL;
    CUfunction function = NULL;

    CUresult result = driver->cuModuleLoadData(&module, compiled->cubin);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(driver, "cuModuleLoadData", result);
    const char *call = "cuModuleGetFunction";
    result = driver->cuModuleGetFunction(&function, module, compiled->kernel_name);
    if (result == CUDA_SUCCESS) {
        /* Needed above 48 KB, harmless below. */
        call = "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)";
        result = driver->cuFuncSetAttribute(
            function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel->shared_bytes);
    }
    if (result != CUDA_SUCCESS) {
        smelt_status status = smelt__driver_fail(driver, call, result);
        driver->cuModuleUnload(module);
        return status;
    }
    kernel->loaded.module = module;
    kernel->function = function;
    return SMELT_OK;
}

/* A valid entry that the driver refuses is compiled again, once: it may have been made with another
 * machine's driver. */
static smelt_status load_or_recompile(struct job *job, struct outcome *outcome,
                                      struct smelt__kernel *kernel) {
    const struct smelt__driver *driver = job->context->driver;
    struct smelt__saved_error saved;
    const int64_t begin = smelt__now_ns();

    smelt__error_save(&saved);
    smelt_status status = load_cubin(driver, &outcome->compiled, kernel);
    if (!status || outcome->state != SMELT_KERNEL_CACHED)
        return status;
    smelt__log_write(&job->context->settings.log, SMELT_LOG_WARNING,
                     "the driver refused the cached %s, compiling it again: %s", job->spec,
                     smelt_last_error());
    job->compiler = smelt__context_compiler(job->context);
    if (job->compiler) /* else it cannot be replaced here, and another driver may accept it */
        smelt__cache_forget(job->context->cache, &job->key, compiler_id(job));
    free(outcome->compiled.cubin);
    outcome->compiled.cubin = NULL;
    status = produce(job, 1, outcome);
    outcome->seconds += smelt__seconds_since(begin);
    if (!status)
        status = load_cubin(driver, &outcome->compiled, kernel);
    if (!status)
        smelt__error_restore(&saved);
    return status;
}

/* Sets the number of resident blocks, and the maximum number of blocks of a launch. */
static smelt_status find_most_blocks(const smelt_context *context, const struct smelt__plan *plan,
                                     struct smelt__kernel *kernel) {
    int multiprocessors = 0;

    CUresult result = context->driver->cuDeviceGetAttribute(
        &multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, context->device);
    if (result != CUDA_SUCCESS)
        return smelt__driver_fail(context->driver, "cuDeviceGetAttribute(MULTIPROCESSOR_COUNT)",
                                  result);
    kernel->multiprocessor_blocks = plan->blocks_per_multiprocessor;
    kernel->resident_blocks = (int64_t)multiprocessors * plan->blocks_per_multiprocessor;
    if (plan->cluster > 0 && kernel->resident_blocks > plan->cluster)
        kernel->resident_blocks -= kernel->resident_blocks % plan->cluster;
    else if (plan->cluster > 0)
        kernel->resident_blocks = plan->cluster;
    kernel->most_blocks = plan->persistent ? kernel->resident_blocks : INT32_MAX;
    return SMELT_OK;
}

static smelt_status load_kernel(smelt_context *context, const struct smelt__plan *plan,
                                struct smelt__kernel *kernel) {
    struct job job;
    struct outcome outcome = {0};
    int pushed = 0;

    smelt_status status = begin_job(&job, context, plan);
    if (!status)
        status = compile_once(&job, &outcome);
    if (status)
        goto out;
    kernel->plan = *plan;
    kernel->threads = plan->threads;
    kernel->shared_bytes = plan->shared_bytes;
    kernel->item = plan->item;
    kernel->blocks_per_item = plan->blocks_per_item;
    kernel->cluster = plan->cluster;
    kernel->pdl = plan->arch->pdl;
    kernel->attributes[SMELT__CLUSTER] =
        (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                            .value.clusterDim = {(unsigned)plan->cluster, 1, 1}};
    kernel->attributes[SMELT__PDL] =
        (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                            .value.programmaticStreamSerializationAllowed = 1};
    status = find_most_blocks(context, plan, kernel);
    if (!status)
        status = smelt__context_enter(context, &pushed);
    if (status)
        goto out;
    status = load_or_recompile(&job, &outcome, kernel);
    if (!status) {
        status = fill_info(&job, &outcome, &kernel->info);
        if (status)
            context->driver->cuModuleUnload(kernel->loaded.module);
    }
    smelt__context_leave(context, pushed);
    if (!status)
        atomic_fetch_add_explicit(&context->loaded, 1, memory_order_relaxed);
out:
    free(outcome.compiled.cubin);
    return status;
}

smelt_status smelt__kernel_get(smelt_context *context, const struct smelt__plan *plan,
                               const struct smelt__kernel **out) {
    struct smelt__flight *flight;
    char spec[SMELT__SPEC_TEXT], key[SMELT__FLIGHT_KEY];

    *out = NULL;
    smelt_status status = smelt__context_need_device(context);
    if (!status)
        status = smelt__context_check_process(context);
    if (status)
        return status;
    if (plan->arch != context->arch)
        return smelt__fail(SMELT_ERROR_INTERNAL, "a plan for %s in a context for %s",
                           plan->arch->name, context->arch->name);
    /* Tuned knobs and the same knobs given in the spec are separate kernels: their infos report the
     * spec as requested. */
    smelt__spec_print(&plan->spec, spec);
    snprintf(key, sizeof key, "%s%s", plan->spec.tuned ? "tuned " : "", spec);
    int leads = smelt__flight_join(&context->kernels, key, &flight);
    if (!flight)
        return SMELT_ERROR_OUT_OF_MEMORY;
    if (leads) {
        struct smelt__kernel *kernel = calloc(1, sizeof *kernel);
        status = kernel ? load_kernel(context, plan, kernel)
                        : smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory for a kernel");
        if (status) {
            free(kernel);
            kernel = NULL;
        }
        smelt__flight_complete(&context->kernels, flight, status, kernel);
    }
    status = flight->status;
    *out = flight->result;
    smelt__flight_leave(&context->kernels, flight);
    return status;
}

/* ---- launch ---- */

smelt_status smelt__kernel_launch(const smelt_context *context, const struct smelt__kernel *kernel,
                                  const struct smelt__launch *launch, struct CUstream_st *stream) {
    const struct smelt__driver *driver = context->driver;
    const unsigned clusters = kernel->cluster != 0,
                   attributes = clusters + (launch->pdl && kernel->pdl);
    CUlaunchConfig config = {
        .gridDimX = launch->blocks[0],
        .gridDimY = launch->blocks[1] ? launch->blocks[1] : 1,
        .gridDimZ = launch->blocks[2] ? launch->blocks[2] : 1,
        .blockDimX = (unsigned)kernel->threads,
        .blockDimY = 1,
        .blockDimZ = 1,
        .sharedMemBytes = (unsigned)kernel->shared_bytes,
        .hStream = stream,
        /* The driver only reads the attributes. */
        .attrs = attributes ? (CUlaunchAttribute *)(uintptr_t)kernel->attributes +
                                  (clusters ? SMELT__CLUSTER : SMELT__PDL)
                            : NULL,
        .numAttrs = attributes,
    };
    void *parameters[1];
    memcpy(&parameters[0], &launch->params, sizeof launch->params);

    CUresult result =
        driver->cuLaunchKernelEx(&config, (CUfunction)kernel->function, parameters, NULL);
    return result == CUDA_SUCCESS ? SMELT_OK
                                  : smelt__driver_fail(driver, "cuLaunchKernelEx", result);
}

smelt_status smelt__fill_async(const smelt_context *context, void *device, uint32_t word,
                               size_t words, struct CUstream_st *stream) {
    const struct smelt__driver *driver = context->driver;
    CUresult result = driver->cuMemsetD32Async((CUdeviceptr)(uintptr_t)device, word, words, stream);
    return result == CUDA_SUCCESS ? SMELT_OK
                                  : smelt__driver_fail(driver, "cuMemsetD32Async", result);
}
