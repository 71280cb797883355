/* The runtime on a fake driver and a fake NVRTC: the order of calls, and failing calls. */

#include "../unit/test.h"
#include "fresh.h"
#include "runtime/compiler/compile.h"
#include "runtime/context.h"
#include "runtime/kernel.h"
#include "runtime/specs.h"
#include "runtime/tensor_map.h"
#include "smelt/device.h"
#include "smelt/kernels.h"
#include "smelt/operator.h"

static smelt_status launch_as(const smelt_context *context, const struct smelt__kernel *kernel,
                              const struct smelt__launch *launch, struct CUstream_st *stream) {
    int pushed;
    smelt_status status = smelt__context_enter(context, &pushed);
    if (status != SMELT_OK)
        return status;
    status = smelt__kernel_launch(context, kernel, launch, stream);
    smelt__context_leave(context, pushed);
    return status;
}

static smelt_status launch(const smelt_context *context, const struct smelt__kernel *kernel,
                           uint32_t blocks, const void *params, struct CUstream_st *stream) {
    const struct smelt__launch one = {.blocks = {blocks}, .params = params};
    return launch_as(context, kernel, &one, stream);
}

static smelt_status fill(const smelt_context *context, void *device, uint32_t word, size_t words) {
    int pushed;
    smelt_status status = smelt__context_enter(context, &pushed);
    if (status != SMELT_OK)
        return status;
    status = smelt__fill_async(context, device, word, words, NULL);
    smelt__context_leave(context, pushed);
    return status;
}

static void assert_logged(const char *const *names) {
    int count = 0;
    for (; names[count]; count++)
        assert_string_equal(driver->log[count], names[count]);
    assert_int_equal(driver->calls, count);
}

/* ---- order and arguments ---- */

TEST(launch_order_and_arguments) {
    static const char *const with_push[] = {"cuCtxGetCurrent",     "cuCtxGetId",
                                            "cuCtxPushCurrent_v2", "cuLaunchKernelEx",
                                            "cuCtxPopCurrent_v2",  NULL};
    unsigned char params[FAKE_PARAMS];
    CUcontext current;
    CUresult (*get_current)(CUcontext *);
    void *symbol = fakes_driver_symbol("cuCtxGetCurrent");
    memcpy(&get_current, &symbol, sizeof symbol);
    memset(params, 0x5A, sizeof params);

    smelt_context *context = make_context();
    assert_string_equal(smelt_context_arch(context), "sm_90a");
    const struct smelt__kernel *kernel = get_kernel(context);
    struct CUstream_st *stream = (struct CUstream_st *)(uintptr_t)0x1234;
    driver->calls = 0;
    assert_int_equal(launch(context, kernel, 77, params, stream), SMELT_OK);
    assert_logged(with_push);
    assert_int_equal(driver->launch.gridDimX, 77);
    assert_int_equal(driver->launch.gridDimY, 1);
    assert_int_equal(driver->launch.gridDimZ, 1);
    assert_int_equal(driver->launch.blockDimX, kernel->threads);
    assert_int_equal(driver->launch.blockDimY, 1);
    assert_int_equal(driver->launch.blockDimZ, 1);
    assert_int_equal(driver->launch.sharedMemBytes, kernel->shared_bytes);
    assert_int_equal(driver->shared_bytes, kernel->shared_bytes);
    assert_ptr_equal(driver->launch.hStream, stream);
    assert_int_equal(driver->launch.numAttrs, 0);
    assert_ptr_equal(driver->launched, kernel->function);
    assert_memory_equal(driver->params, params, sizeof params);
    /* This thread had no current context and has none again. */
    assert_int_equal(get_current(&current), CUDA_SUCCESS);
    assert_null(current);
}

/* A launch with PDL differs in its attribute only; without PDL in the GPU there is no
 * difference. */
TEST(pdl_launch_has_the_attribute) {
    unsigned char params[FAKE_PARAMS];
    struct CUstream_st *stream = (struct CUstream_st *)(uintptr_t)0x1234;
    memset(params, 0xA5, sizeof params);
    for (int major = 8; major <= 9; major++) {
        driver->capability_major = major;
        smelt_context *context = make_context();
        const struct smelt__kernel *kernel = get_kernel(context);
        const struct smelt__launch launch = {.blocks = {5}, .pdl = 1, .params = params};
        assert_int_equal(launch_as(context, kernel, &launch, stream), SMELT_OK);
        assert_int_equal(driver->launch.gridDimX, 5);
        assert_int_equal(driver->launch.blockDimX, kernel->threads);
        assert_int_equal(driver->launch.sharedMemBytes, kernel->shared_bytes);
        assert_ptr_equal(driver->launch.hStream, stream);
        assert_memory_equal(driver->params, params, sizeof params);
        assert_int_equal(driver->launch.numAttrs, major == 9);
        if (major == 9) {
            assert_int_equal(driver->attributes[0].id,
                             CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
            assert_int_equal(driver->attributes[0].value.programmaticStreamSerializationAllowed, 1);
        } else {
            assert_null(driver->launch.attrs);
        }
    }
}

/* A three-dimensional grid, a cluster with PDL, a fill on the stream, and a tensor map. */
TEST(grids_clusters_and_fills) {
    unsigned char params[FAKE_PARAMS] = {0};
    smelt_context *context = make_context();
    struct smelt__kernel kernel = *get_kernel(context);
    struct smelt__launch launch = {.blocks = {8, 3, 2}, .pdl = 1, .params = params};
    kernel.cluster = 4;
    kernel.attributes[SMELT__CLUSTER].value.clusterDim[0] = 4;
    assert_int_equal(launch_as(context, &kernel, &launch, NULL), SMELT_OK);
    assert_int_equal(driver->launch.gridDimX, 8);
    assert_int_equal(driver->launch.gridDimY, 3);
    assert_int_equal(driver->launch.gridDimZ, 2);
    assert_int_equal(driver->launch.numAttrs, 2);
    assert_int_equal(driver->attributes[0].id, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    assert_int_equal(driver->attributes[0].value.clusterDim[0], 4);
    assert_int_equal(driver->attributes[0].value.clusterDim[1], 1);
    assert_int_equal(driver->attributes[0].value.clusterDim[2], 1);
    assert_int_equal(driver->attributes[1].id,
                     CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
    launch.pdl = 0;
    assert_int_equal(launch_as(context, &kernel, &launch, NULL), SMELT_OK);
    assert_int_equal(driver->launch.numAttrs, 1);
    assert_int_equal(driver->attributes[0].id, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);

    uint32_t words[4] = {1, 2, 3, 4};
    assert_int_equal(fill(context, words, 0x7fc00000, 3), SMELT_OK);
    assert_true(words[0] == 0x7fc00000 && words[2] == 0x7fc00000 && words[3] == 4);
    struct tensor_map map;
    const struct smelt__tensor_box box = {.data = words,
                                          .element = SMELT__MAP_BF16,
                                          .dimensions = 3,
                                          .extents = {64, 5, 1},
                                          .strides = {0, 64, 3}, /* the last is ignored */
                                          .box = {64, 1, 1}};
    int pushed;
    assert_int_equal(smelt__context_enter(context, &pushed), SMELT_OK);
    assert_int_equal(smelt__tensor_map_make(context, &box, &map), SMELT_OK);
    smelt__context_leave(context, pushed);
    const struct smelt__tensor_box described = driver->box;
    assert_ptr_equal(described.data, words);
    assert_int_equal(described.dimensions, 3);
    assert_true(described.extents[0] == 64 && described.extents[1] == 5);
    assert_true(described.strides[1] == 128 && described.strides[2] % 16 == 0); /* bytes */
    assert_int_equal(described.box[0], 64);
}

/* The current context is used and not retained. */
TEST(launch_in_the_current_context) {
    static const char *const bare[] = {"cuCtxGetCurrent", "cuCtxGetId", "cuLaunchKernelEx", NULL};
    unsigned char params[FAKE_PARAMS] = {0};
    smelt_context_options options = fakes_options();
    smelt_context *context = NULL;
    CUcontext own = (CUcontext)(void *)params; /* any address will do */
    CUresult (*push)(CUcontext);
    CUresult (*pop)(CUcontext *);
    void *symbol = fakes_driver_symbol("cuCtxPushCurrent_v2");
    memcpy(&push, &symbol, sizeof symbol);
    symbol = fakes_driver_symbol("cuCtxPopCurrent_v2");
    memcpy(&pop, &symbol, sizeof symbol);

    options.kind = SMELT_CONTEXT_CURRENT;
    assert_int_equal(smelt_context_create(&context, &options), SMELT_ERROR_NO_DEVICE);
    assert_null(context);
    push(own);
    assert_int_equal(smelt_context_create(&context, &options), SMELT_OK);
    assert_int_equal(driver->retained, 0);
    const struct smelt__kernel *kernel = get_kernel(context);
    driver->calls = 0;
    assert_int_equal(launch(context, kernel, 1, params, NULL), SMELT_OK);
    assert_logged(bare);
    assert_ptr_equal(driver->launch_context, own);
    smelt_context_destroy(&context);
    pop(&own);
    assert_nothing_alive();
}

TEST(compile_options_and_report) {
    static const char *const options[] = {"--gpu-architecture=sm_90a", "--std=c++17",
                                          "--ptxas-options=-v", "--no-cache"};
    smelt_context *context = make_context();
    const smelt_kernel_info *info = &get_kernel(context)->info;
    assert_int_equal(nvrtc->option_count, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(nvrtc->options[i], options[i]);
    assert_string_equal(info->spec, FAKES_SPEC);
    assert_string_equal(info->arch, "sm_90a");
    assert_int_equal(info->state, SMELT_KERNEL_COMPILED);
    assert_int_equal(info->registers, 168);
    assert_int_equal(info->spill_bytes, 12);
    assert_int_equal(info->static_shared_bytes, 16);
    assert_int_equal(strlen(info->key), 32);
}

static smelt_status compile_plain(const struct smelt__nvrtc *by, struct smelt__compiled *compiled) {
    struct smelt__compile_options options;
    smelt__compile_options(&options, "sm_90a", NULL);
    memset(compiled, 0, sizeof *compiled);
    return smelt__compile_source(by, "#define KERNEL_NAME plain\n", "plain.cu", "plain", "sm_90a",
                                 &options, compiled);
}

/* NVRTC's own cache is disabled if NVRTC has the option. A result without the assembler's report is
 * compiled once more and then accepted. */
TEST(a_missing_report) {
    struct smelt__nvrtc_file file;
    const struct smelt__nvrtc *found;
    struct smelt__compiled compiled;
    assert_int_equal(smelt__nvrtc_find(getenv("SMELT_NVRTC"), 0, NULL, &file), SMELT_OK);
    assert_int_equal(smelt__nvrtc_open(&file, &found), SMELT_OK);
    struct smelt__nvrtc early = *found;
    early.major = 12;
    early.minor = 8;
    assert_int_equal(compile_plain(&early, &compiled), SMELT_OK);
    assert_int_equal(nvrtc->option_count, 3);
    free(compiled.cubin);
    for (int silent = 1; silent <= 2; silent++) {
        nvrtc->compiles = 0;
        nvrtc->silent = silent;
        assert_int_equal(compile_plain(found, &compiled), SMELT_OK);
        assert_string_equal(nvrtc->options[3], "--no-cache");
        assert_int_equal(nvrtc->compiles, 2);
        assert_int_equal(nvrtc->silent, 0);
        assert_int_equal(nvrtc->programs, 0);
        assert_int_equal(compiled.registers, silent == 1 ? 168 : 0);
        assert_non_null(compiled.cubin);
        free(compiled.cubin);
    }
}

/* ---- failures ---- */

/* After each call, also a failed one, this thread's current context is the same as before. */
static CUcontext context_before;

static void assert_same_context(void) {
    fake_driver_current_function current;
    void *symbol = fakes_driver_symbol("fake_driver_current");
    memcpy(&current, &symbol, sizeof symbol);
    assert_ptr_equal(current(), context_before);
}

static void keep_first(smelt_status *first, smelt_status status, char *message, size_t bytes) {
    assert_same_context();
    if (status && !*first) {
        *first = status;
        snprintf(message, bytes, "%s", smelt_last_error());
    }
}

/* Makes all kinds of driver calls; continues after a failure, like a careless caller. Returns the
 * first failure's status, its message, and the number of the first call of the destruction. */
static smelt_status whole_life(char *message, size_t bytes, int *destroy_begins) {
    smelt_context_options options = fakes_options();
    smelt_device_info info = SMELT_DEVICE_INFO_INIT;
    smelt_context *context = NULL;
    const struct smelt__kernel *kernel = NULL;
    struct smelt__plan plan;
    void *memory = NULL;
    struct CUstream_st *stream = NULL;
    struct CUevent_st *begin = NULL;
    struct CUevent_st *end = NULL;
    unsigned char params[FAKE_PARAMS] = {0};
    float milliseconds;
    smelt_status first = SMELT_OK;
#define KEEP(call) keep_first(&first, call, message, bytes)

    fakes_plan(FAKES_SPEC, &plan);
    KEEP(smelt_context_create(&context, &options));
    if (!context)
        return first;
    KEEP(smelt__kernel_get(context, &plan, &kernel));
    if (kernel)
        KEEP(launch(context, kernel, 1, params, NULL));
    KEEP(smelt_device_get_info(context, &info));
    KEEP(smelt_device_alloc(context, 64, &memory));
    if (memory) {
        KEEP(smelt_device_upload(context, memory, params, sizeof params));
        KEEP(smelt_device_fill(context, memory, 1, 64));
        KEEP(fill(context, memory, 1, 16));
        KEEP(smelt_device_download(context, params, memory, sizeof params));
    }
    KEEP(smelt_stream_create(context, &stream));
    KEEP(smelt_event_create(context, &begin));
    KEEP(smelt_event_create(context, &end));
    if (begin && end) {
        KEEP(smelt_event_record(context, begin, stream));
        KEEP(smelt_event_record(context, end, stream));
        KEEP(smelt_event_elapsed(context, begin, end, &milliseconds));
    }
    KEEP(smelt_stream_synchronize(context, stream));
    /* Releases again a handle whose release failed. */
#define GIVE_BACK(call, alive)                                                                     \
    do {                                                                                           \
        int before = alive;                                                                        \
        KEEP(call);                                                                                \
        if (before && alive == before)                                                             \
            KEEP(call);                                                                            \
    } while (0)
    if (end)
        GIVE_BACK(smelt_event_destroy(context, end), driver->events);
    if (begin)
        GIVE_BACK(smelt_event_destroy(context, begin), driver->events);
    if (stream)
        GIVE_BACK(smelt_stream_destroy(context, stream), driver->streams);
    GIVE_BACK(smelt_device_free(context, memory), driver->allocations);
    *destroy_begins = driver->calls + 1;
    smelt_context_destroy(&context);
    assert_same_context();
    return first;
#undef GIVE_BACK
#undef KEEP
}

/* Some failures are not reported, because callers cannot react: a failed pop after the work was
 * done, and failures during the context's destruction. */
static int is_silent(const char *name, int number, int destroy_begins) {
    return strcmp(name, "cuCtxPopCurrent_v2") == 0 || number >= destroy_begins;
}

/* "cuMemAlloc_v2" is called cuMemAlloc in messages. */
static void assert_names(const char *message, const char *export) {
    char name[FAKE_CALL];
    snprintf(name, sizeof name, "%s", export);
    char *suffix = strstr(name, "_v2");
    if (suffix)
        *suffix = '\0';
    if (!strstr(message, name))
        fail_msg("%s failed, but the message is: %s", name, message);
}

static void fail_every_driver_call(void) {
    char message[SMELT__ERROR_MESSAGE];
    int destroy_begins = 0;
    assert_int_equal(whole_life(message, sizeof message, &destroy_begins), SMELT_OK);
    int total = driver->calls;
    assert_in_range(total, 40, FAKE_LOGGED);
    assert_nothing_alive();
    driver->fail_with = FAKE_UNKNOWN_ERROR;
    for (int number = 1; number <= total; number++) {
        driver->calls = 0;
        driver->fail_at = number;
        message[0] = '\0';
        destroy_begins = FAKE_LOGGED;
        smelt_status status = whole_life(message, sizeof message, &destroy_begins);
        const char *name = driver->log[number - 1];
        driver->fail_at = 0;
        if (is_silent(name, number, destroy_begins)) {
            assert_int_equal(status, SMELT_OK);
            /* Without its CUDA context a module cannot be unloaded. */
            driver->modules = 0;
        } else {
            assert_names(message, name);
            assert_int_equal(status, SMELT_ERROR_DRIVER);
        }
        assert_nothing_alive();
    }
    print_message("%d driver calls failed in turn\n", total);
}

/* In a thread without a current context, and in one with another current context. */
TEST(every_driver_call_fails_in_turn) {
    CUcontext other = (CUcontext)(void *)&context_before; /* any address will do */
    CUresult (*push)(CUcontext);
    CUresult (*pop)(CUcontext *);
    void *symbol = fakes_driver_symbol("cuCtxPushCurrent_v2");
    memcpy(&push, &symbol, sizeof symbol);
    symbol = fakes_driver_symbol("cuCtxPopCurrent_v2");
    memcpy(&pop, &symbol, sizeof symbol);

    context_before = NULL;
    fail_every_driver_call();
    push(other);
    context_before = other;
    driver->calls = 0;
    fail_every_driver_call();
    context_before = NULL;
    pop(&other);
}

TEST(every_nvrtc_call_fails_in_turn) {
    static const char *const names[] = {"nvrtcCreateProgram",     "nvrtcCompileProgram",
                                        "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
                                        "nvrtcGetCUBINSize",      "nvrtcGetCUBIN"};
    static const int codes[] = {NVRTC_ERROR_OUT_OF_MEMORY, NVRTC_ERROR_COMPILATION, 11};
    struct smelt__plan plan;
    const struct smelt__kernel *kernel;
    fakes_plan(FAKES_SPEC, &plan);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (size_t j = 0; j < 3; j++) {
            smelt_context *context = make_context();
            snprintf(nvrtc->fail, sizeof nvrtc->fail, "%s", names[i]);
            nvrtc->fail_with = codes[j];
            assert_int_equal(smelt__kernel_get(context, &plan, &kernel),
                             j == 0 ? SMELT_ERROR_OUT_OF_MEMORY : SMELT_ERROR_COMPILE);
            assert_null(kernel);
            assert_names(smelt_last_error(), names[i]);
            if (i == 1 && j == 1)
                assert_non_null(strstr(smelt_last_error(), "kernel.cu(7): error: told to fail"));
            nvrtc->fail[0] = '\0';
            /* The next attempt works. */
            assert_int_equal(smelt__kernel_get(context, &plan, &kernel), SMELT_OK);
        }
}

/* If the library named as NVRTC does not make cubins, its output reaches neither the driver nor the
 * cache. */
TEST(not_a_cubin) {
    struct smelt__plan plan;
    const struct smelt__kernel *kernel;
    smelt_context *context = make_context();
    fakes_plan(FAKES_SPEC, &plan);
    nvrtc->machine = 62; /* EM_X86_64 */
    assert_refused(smelt__kernel_get(context, &plan, &kernel), SMELT_ERROR_COMPILE,
                   "should have made a cubin but made something else");
    assert_int_equal(driver->loads, 0);
    nvrtc->machine = 0;
    assert_int_equal(smelt__kernel_get(context, &plan, &kernel), SMELT_OK);
}

/* Kernels of a destroyed operator may still run: they stay loaded until the context is destroyed. */
TEST(destroyed_operator) {
    smelt_context *context = make_context();
    smelt_operator *op;
    assert_int_equal(
        smelt_operator_create(&op, context, "sparse_attn:heads=16,dqk=128,dv=128,topk=64"),
        SMELT_OK);
    driver->calls = 0;
    smelt_operator_destroy(&op);
    assert_null(op);
    assert_int_equal(driver->calls, 0);
}

TEST(unsupported_architecture) {
    smelt_context_options options = fakes_options();
    smelt_context *context = NULL;
    void *cubin;
    size_t bytes;
    options.kind = SMELT_CONTEXT_COMPILE_ONLY;
    options.arch = "sm_120a"; /* not in the fake's list */
    assert_int_equal(smelt_context_create(&context, &options), SMELT_OK);
    assert_refused(smelt_kernel_cubin(context, "sparse_attn_fwd:heads=16,dqk=128,dv=128,topk=64",
                                      NULL, &cubin, &bytes),
                   SMELT_ERROR_NO_COMPILER, "NVRTC 13.0");
    assert_non_null(strstr(smelt_last_error(), "sm_120a"));
    assert_non_null(strstr(smelt_last_error(), "sm_75 sm_80 sm_86 sm_90 sm_100"));
    smelt_context_destroy(&context);
}

TEST(bad_options) {
    smelt_context_options options = fakes_options();
    smelt_context *context = NULL;
    options.device = 3;
    assert_refused(smelt_context_create(&context, &options), SMELT_ERROR_INVALID_ARGUMENT, "3");
    options.device = -7;
    assert_int_equal(smelt_context_create(&context, &options), SMELT_ERROR_INVALID_ARGUMENT);
    options.device = 1;
    options.kind = SMELT_CONTEXT_CURRENT;
    assert_refused(smelt_context_create(&context, &options), SMELT_ERROR_INVALID_ARGUMENT,
                   "SMELT_CONTEXT_DEVICE");
    options.device = 0;
    options.kind = (smelt_context_kind)3;
    assert_refused(smelt_context_create(&context, &options), SMELT_ERROR_INVALID_ARGUMENT,
                   "options.kind is 3");
    options.kind = SMELT_CONTEXT_DEVICE;
    options.arch = "sm_80";
    assert_int_equal(smelt_context_create(&context, &options), SMELT_ERROR_INVALID_ARGUMENT);
    options.kind = SMELT_CONTEXT_COMPILE_ONLY;
    options.arch = "sm_9";
    assert_int_equal(smelt_context_create(&context, &options), SMELT_ERROR_INVALID_SPEC);
    options.size = 0;
    assert_int_equal(smelt_context_create(&context, &options), SMELT_ERROR_INVALID_ARGUMENT);
    driver->devices = 0;
    options = fakes_options();
    assert_int_equal(smelt_context_create(&context, &options), SMELT_ERROR_NO_DEVICE);
    setenv("SMELT_CACHE_CAP", "12Q", 1);
    assert_refused(smelt_context_create(&context, &options), SMELT_ERROR_INVALID_ARGUMENT,
                   "SMELT_CACHE_CAP");
    unsetenv("SMELT_CACHE_CAP");
    driver->devices = 1;
    static const struct {
        const char *seconds;
        int milliseconds; /* -1: refused */
    } timeouts[] = {{"60", 60000},
                    {"0", 0},
                    {"2.5", 2500},
                    {"0.0015", 1},
                    {"2147483", 2147483000},
                    {"7.", 7000},
                    {"2147484", -1},
                    {"", 60000},
                    {"99999999999999999999", -1},
                    {".5", -1},
                    {"2,5", -1},
                    {"1e3", -1},
                    {"-1", -1},
                    {"nan", -1},
                    {"1.2.3", -1},
                    {" 1", -1}};
    for (size_t i = 0; i < sizeof timeouts / sizeof *timeouts; i++) {
        setenv("SMELT_CACHE_LOCK_TIMEOUT", timeouts[i].seconds, 1);
        const smelt_status status = smelt_context_create(&context, &options);
        assert_int_equal(status == SMELT_OK, timeouts[i].milliseconds >= 0);
        if (context)
            assert_int_equal(context->settings.cache.lock_timeout_ms, timeouts[i].milliseconds);
        else
            assert_non_null(strstr(smelt_last_error(), "SMELT_CACHE_LOCK_TIMEOUT"));
        smelt_context_destroy(&context);
    }
    unsetenv("SMELT_CACHE_LOCK_TIMEOUT");
    assert_null(context);
    assert_nothing_alive();
}

/* ---- what calls that fail leave in the caller's pointers ---- */

static int unset; /* their previous value */

static void make_nothing(const smelt_context *context, smelt_status expected) {
    void *memory = &unset;
    struct CUstream_st *stream = (void *)&unset;
    struct CUevent_st *event = (void *)&unset;
    float milliseconds = 7;
    assert_int_equal(smelt_device_alloc(context, 64, &memory), expected);
    assert_null(memory);
    assert_int_equal(smelt_stream_create(context, &stream), expected);
    assert_null(stream);
    assert_int_equal(smelt_event_create(context, &event), expected);
    assert_null(event);
    event = (void *)&unset;
    assert_int_equal(smelt_event_elapsed(context, event, event, &milliseconds), expected);
    assert_true(milliseconds == 0);
}

TEST(arguments_that_are_null) {
    smelt_context *context = make_context();
    assert_refused(smelt_device_alloc(context, 64, NULL), SMELT_ERROR_INVALID_ARGUMENT, "pointer");
    assert_refused(smelt_device_upload(context, &unset, NULL, 4), SMELT_ERROR_INVALID_ARGUMENT,
                   "host is NULL");
    assert_refused(smelt_device_fill(context, NULL, 0, 4), SMELT_ERROR_INVALID_ARGUMENT, "device");
    assert_refused(smelt_stream_destroy(context, NULL), SMELT_ERROR_INVALID_ARGUMENT, "stream");
    assert_refused(smelt_event_record(context, NULL, NULL), SMELT_ERROR_INVALID_ARGUMENT, "event");
    assert_refused(smelt_stream_synchronize(NULL, NULL), SMELT_ERROR_INVALID_ARGUMENT, "context");
    assert_int_equal(smelt_device_free(context, NULL), SMELT_OK);
}

/* Makes the driver's call after the next `after` calls fail. */
static void fail_after(int after) {
    driver->calls = 0;
    driver->fail_at = after + 1;
}

TEST(outputs_of_failed_calls) {
    smelt_context *context = make_context();
    struct CUstream_st *stream;
    struct CUevent_st *event;
    float milliseconds;
    make_nothing(NULL, SMELT_ERROR_INVALID_ARGUMENT);
    driver->context_id = 2;
    make_nothing(context, SMELT_ERROR_DRIVER);
    driver->context_id = 1;
    driver->fail_with = FAKE_UNKNOWN_ERROR;
    for (int after = 0; fail_after(after), smelt_stream_create(context, &stream); after++)
        assert_null(stream);
    for (int after = 0; fail_after(after), smelt_event_create(context, &event); after++)
        assert_null(event);
    for (int after = 0;
         fail_after(after), smelt_event_elapsed(context, event, event, &milliseconds); after++)
        assert_true(milliseconds == 0);
    driver->fail_at = 0;
    assert_true(milliseconds > 0);
    assert_int_equal(smelt_event_destroy(context, event), SMELT_OK);
    assert_int_equal(smelt_stream_destroy(context, stream), SMELT_OK);
}

TESTS("runtime on fakes", .setup = fresh_fakes, .teardown = end_fakes)
