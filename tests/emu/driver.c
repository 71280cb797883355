/*
 * The emulator's driver: fills on a stream, clusters, three-dimensional grids, and the errors of
 * refused calls.
 *
 *     emu_driver FOLDER      of the kernels; SMELT_CUDA names the emulator
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>

#include "../unit/test.h"
#include "emulator.h"

enum {
    INVALID_VALUE = 1,
    INVALID_HANDLE = 400,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
    INVALID_CLUSTER_SIZE = 912,
    WORDS = 256,
    MOST_KERNELS = 8
};

static const char *folder;

static int open_all(void **state) {
    (void)state;
    return open_emulator();
}

/* ---- kernels --------------------------------------------------------------------------------- */

static char *read_kernel(const char *name) {
    char path[4096], *text = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "%s/%s.cu", folder, name);
    FILE *file = fopen(path, "re");
    if (!file || getdelim(&text, &room, '\0', file) < 0)
        fail_msg("%s cannot be read", path);
    fclose(file);
    return text;
}

/* Kernels are compiled once. */
static CUfunction kernel(const char *name) {
    static struct {
        const char *name;
        CUfunction function;
    } kernels[MOST_KERNELS];
    int i = 0;
    for (; kernels[i].name; i++)
        if (strcmp(kernels[i].name, name) == 0)
            return kernels[i].function;
    char *text = read_kernel(name);
    const CUmodule module = load_kernel(text, "k.cu", name);
    if (!module)
        fail_msg("%s does not load: %s", name, smelt_last_error());
    assert_int_equal(driver->cuModuleGetFunction(&kernels[i].function, module, name), 0);
    kernels[i].name = name;
    free(text);
    return kernels[i].function;
}

static void use_capability(int major, int minor) {
    const struct emu_settings settings = {.size = sizeof settings, .major = major, .minor = minor};
    emulator->configure(&settings);
    emulator->clear();
}

/* WORDS words, numbered. */
static CUdeviceptr make_words(void) {
    int words[WORDS];
    CUdeviceptr data = 0;
    for (int i = 0; i < WORDS; i++)
        words[i] = i;
    use_capability(9, 0);
    assert_int_equal(driver->cuMemAlloc(&data, sizeof words), 0);
    assert_int_equal(driver->cuMemcpyHtoD(data, words, sizeof words), 0);
    return data;
}

static const int *read_words(CUdeviceptr data) {
    static int words[WORDS];
    assert_int_equal(driver->cuMemcpyDtoH(words, data, sizeof words), 0);
    return words;
}

static CUlaunchConfig shape(unsigned x, unsigned y, unsigned z) {
    return (CUlaunchConfig){.gridDimX = x,
                            .gridDimY = y,
                            .gridDimZ = z,
                            .blockDimX = 32,
                            .blockDimY = 1,
                            .blockDimZ = 1};
}

static int launch(const char *name, const CUlaunchConfig *config, CUdeviceptr data) {
    void *parameters[] = {&data};
    return driver->cuLaunchKernelEx(config, kernel(name), parameters, NULL);
}

/* ---- fills ----------------------------------------------------------------------------------- */

TEST(test_fills) {
    CUdeviceptr data = make_words();
    assert_int_equal(driver->cuMemsetD8(data + 5, 0xab, 2), 0);
    assert_int_equal(driver->cuMemsetD32Async(data + 16, 0x12345678, 3, NULL), 0);
    assert_int_equal(driver->cuMemsetD32Async(data, 0, 0, NULL), 0);
    const int *words = read_words(data);
    for (int i = 0; i < WORDS; i++)
        assert_int_equal(words[i], i == 1 ? 0x00abab01 : i >= 4 && i < 7 ? 0x12345678 : i);
    driver->cuMemFree(data);
}

TEST(test_fills_refused) {
    CUdeviceptr data = make_words();
    CUcontext context;
    assert_int_equal(driver->cuMemsetD32Async(data + 2, 1, 1, NULL), INVALID_VALUE);
    assert_int_equal(driver->cuMemsetD8(data + 4 * WORDS - 1, 1, 2), INVALID_VALUE);
    assert_int_equal(driver->cuMemsetD8(data - 1, 1, 2), INVALID_VALUE);
    assert_int_equal(driver->cuMemsetD32Async(data, 1, WORDS + 1, NULL), INVALID_VALUE);
    assert_int_equal(driver->cuMemsetD32Async(data, 1, SIZE_MAX / 2, NULL), INVALID_VALUE);
    assert_int_equal(driver->cuCtxPopCurrent(&context), 0);
    assert_int_equal(driver->cuMemsetD32Async(data, 1, 1, NULL), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(driver->cuCtxPushCurrent(context), 0);
    const int *words = read_words(data);
    for (int i = 0; i < WORDS; i++)
        assert_int_equal(words[i], i);
    assert_int_equal(emulator->report_count(), 0);
    driver->cuMemFree(data);
}

/* Memory that is forbidden for a kernel is also forbidden for the operator's fills. */
TEST(test_forbidden_fill) {
    CUdeviceptr data = make_words();
    emulator->forbid(data + 40, 4);
    assert_int_equal(driver->cuMemsetD32Async(data, 1, 10, NULL), 0);
    assert_int_equal(driver->cuMemsetD32Async(data + 44, 1, 10, NULL), 0);
    assert_int_equal(emulator->report_count(), 0);
    assert_int_equal(driver->cuMemsetD32Async(data + 40, 1, 1, NULL), LAUNCH_FAILED);
    assert_int_equal(emulator->report_count(), 1);
    assert_int_equal(emulator->report(0).kind, EMU_FORBIDDEN);
    driver->cuMemFree(data);
}

/* ---- how much there is ----------------------------------------------------------------------- */

static size_t free_bytes(void) {
    size_t left = 0, total = 0;
    assert_int_equal(driver->cuMemGetInfo(&left, &total), 0);
    assert_true(left <= total);
    return left;
}

/* Without free memory (the machine's) an allocation fails, as on a GPU; the process is not
 * killed. */
TEST(test_out_of_memory) {
    const size_t sizes[] = {(size_t)1 << 46, (size_t)1 << 38, SIZE_MAX, SIZE_MAX - 4096};
    CUdeviceptr data = 77;
    use_capability(9, 0);
    const size_t left = free_bytes();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(driver->cuMemAlloc(&data, sizes[i]), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(driver->cuMemAlloc(&data, left + 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(free_bytes() == left);
    assert_int_equal(driver->cuMemAlloc(&data, 1 << 20), 0);
    assert_true(free_bytes() == left - (1 << 20));
    assert_int_equal(driver->cuMemFree(data), 0);
    const uint64_t reserved = emulator->reserve((size_t)1 << 38);
    assert_true(reserved != 0);
    assert_true(free_bytes() == left);
    assert_int_equal(driver->cuMemFree(reserved), 0);
    assert_true(free_bytes() == left);
}

/* ---- memory of the host's that is lent ------------------------------------------------------- */

static int launch_chain(CUdeviceptr to, CUdeviceptr from, int wait, int pdl);

static int add_one(const int *words, int to, int from) {
    const CUdeviceptr first = (CUdeviceptr)(uintptr_t)words;
    return launch_chain(first + 4 * (CUdeviceptr)to, first + 4 * (CUdeviceptr)from, 1, 0);
}

/* Registered memory is the device's, exactly and until it is unregistered; overlapping ranges are
 * merged. */
TEST(test_lent_memory) {
    static int words[8] = {10};
    const uint64_t first = (uint64_t)(uintptr_t)words;
    use_capability(9, 0);
    assert_int_equal(add_one(words, 1, 0), LAUNCH_FAILED);
    assert_int_equal(emulator->report(0).kind, EMU_BOUNDS);
    emulator->clear();
    assert_true(emulator->lend(first, 8, "the first two"));
    assert_true(emulator->lend(first + 16, 8, "others"));
    assert_true(emulator->lend(first + 20, 0, "nothing"));
    assert_int_equal(add_one(words, 1, 0), 0);
    assert_int_equal(words[1], 11);
    assert_int_equal(add_one(words, 2, 1), LAUNCH_FAILED);
    assert_non_null(strstr(emulator->report(0).text, "the first two"));
    emulator->clear();
    assert_true(emulator->lend(first + 4, 16, "what joins them"));
    assert_int_equal(add_one(words, 5, 0), 0);
    assert_int_equal(words[5], 11);
    assert_int_equal(add_one(words, 6, 0), LAUNCH_FAILED);
    assert_int_equal(driver->cuMemFree(first), INVALID_VALUE);
    emulator->take_back();
    emulator->clear();
    assert_int_equal(add_one(words, 1, 0), LAUNCH_FAILED);
    emulator->clear();
}

/* ---- fills between launches that overlap ----------------------------------------------------- */

static int launch_on(CUstream stream, CUdeviceptr to, CUdeviceptr from, int wait, int pdl) {
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = pdl};
    CUlaunchConfig config = shape(1, 1, 1);
    void *parameters[] = {&to, &from, &wait};
    config.attrs = &attribute;
    config.numAttrs = 1;
    config.hStream = stream;
    return driver->cuLaunchKernelEx(&config, kernel("chain"), parameters, NULL);
}

static int launch_chain(CUdeviceptr to, CUdeviceptr from, int wait, int pdl) {
    return launch_on(NULL, to, from, wait, pdl);
}

/* Waits for all work and clears the reports. */
static void settle(CUdeviceptr data) {
    int word;
    driver->cuMemcpyDtoH(&word, data, sizeof word);
    emulator->clear();
}

/* A launch with PDL overlaps the previous one, unless a fill is between them. */
TEST(test_fill_between_launches) {
    CUdeviceptr data = make_words();
    assert_int_equal(launch_chain(data + 4, data, 1, 0), 0);
    assert_int_equal(launch_chain(data + 8, data + 4, 0, 1), LAUNCH_FAILED);
    assert_int_equal(emulator->report(0).kind, EMU_RACE);
    settle(data);
    assert_int_equal(launch_chain(data + 4, data, 1, 0), 0);
    assert_int_equal(driver->cuMemsetD32Async(data + 400, 0, 1, NULL), 0);
    assert_int_equal(launch_chain(data + 8, data + 4, 0, 1), 0);
    assert_int_equal(read_words(data)[2], 2);
    driver->cuMemFree(data);
}

/* A launch that does not wait may end before the previous one; the fill is ordered after it
 * only. */
TEST(test_fill_concurrent_with_a_launch) {
    CUdeviceptr data = make_words();
    assert_int_equal(launch_chain(data + 4, data, 1, 0), 0);
    assert_int_equal(launch_chain(data + 8, data + 40, 0, 1), 0);
    assert_int_equal(driver->cuMemsetD32Async(data + 8, 0, 1, NULL), 0);
    assert_int_equal(driver->cuMemsetD32Async(data, 0, 1, NULL), LAUNCH_FAILED); /* still read */
    assert_int_equal(driver->cuMemsetD32Async(data + 4, 0, 1, NULL), LAUNCH_FAILED);
    assert_int_equal(emulator->report(0).kind, EMU_RACE);
    settle(data);
    assert_int_equal(launch_chain(data + 4, data, 1, 0), 0);
    assert_int_equal(launch_chain(data + 8, data + 40, 1, 1), 0);
    assert_int_equal(driver->cuMemsetD32Async(data + 4, 0, 1, NULL), 0);
    assert_int_equal(emulator->report_count(), 0);
    driver->cuMemFree(data);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

TEST(test_three_dimensions) {
    CUdeviceptr data = make_words();
    CUlaunchConfig config = shape(5, 3, 4);
    assert_int_equal(launch("where", &config, data), 0);
    const int *words = read_words(data);
    for (int z = 0, block = 0; z < 4; z++)
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 5; x++, block++)
                assert_int_equal(words[block], x + 10 * y + 100 * z);
    assert_int_equal(words[60], 60);
    driver->cuMemFree(data);
}

/* The shape with one number replaced. */
static int refused_shape(CUdeviceptr data, size_t member, unsigned value) {
    CUlaunchConfig config = shape(2, 2, 2);
    memcpy((char *)&config + member, &value, sizeof value);
    return launch("where", &config, data);
}

TEST(test_shapes_refused) {
    static const struct {
        size_t member;
        unsigned value;
    } shapes[] = {
        {offsetof(CUlaunchConfig, gridDimX), 0},
        {offsetof(CUlaunchConfig, gridDimX), 1U << 31},
        {offsetof(CUlaunchConfig, gridDimY), 0},
        {offsetof(CUlaunchConfig, gridDimY), 65536},
        {offsetof(CUlaunchConfig, gridDimZ), 0},
        {offsetof(CUlaunchConfig, gridDimZ), 65536},
        {offsetof(CUlaunchConfig, blockDimX), 0},
        {offsetof(CUlaunchConfig, blockDimX), 1025},
        {offsetof(CUlaunchConfig, blockDimY), 33},
        {offsetof(CUlaunchConfig, blockDimZ), 65},
        {offsetof(CUlaunchConfig, sharedMemBytes), 48 * 1024 + 1},
    };
    CUdeviceptr data = make_words();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        assert_int_equal(refused_shape(data, shapes[i].member, shapes[i].value), INVALID_VALUE);
    assert_int_equal(read_words(data)[0], 0); /* none ran */
    assert_int_equal(refused_shape(data, offsetof(CUlaunchConfig, sharedMemBytes), 48 * 1024), 0);
    driver->cuMemFree(data);
}

/* More than 48 KB must be requested; each architecture has a maximum. */
TEST(test_shared_memory) {
    static const struct {
        int major, minor, kilobytes;
    } most[] = {{8, 0, 163}, {8, 6, 99}, {8, 9, 99}, {9, 0, 227}, {10, 0, 227}, {12, 0, 99}};
    const int attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    CUfunction function = kernel("where");
    CUdeviceptr data = make_words();
    assert_int_equal(driver->cuFuncSetAttribute(function, attribute, -1), INVALID_VALUE);
    assert_int_equal(driver->cuFuncSetAttribute(function, 1234, 1), INVALID_VALUE);
    for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
        const int bytes = most[i].kilobytes * 1024;
        CUlaunchConfig config = shape(1, 1, 1);
        config.sharedMemBytes = (unsigned)bytes;
        use_capability(most[i].major, most[i].minor);
        assert_int_equal(driver->cuFuncSetAttribute(function, attribute, bytes + 1), INVALID_VALUE);
        assert_int_equal(driver->cuFuncSetAttribute(function, attribute, bytes - 1), 0);
        assert_int_equal(launch("where", &config, data), INVALID_VALUE);
        assert_int_equal(driver->cuFuncSetAttribute(function, attribute, bytes), 0);
        assert_int_equal(launch("where", &config, data), 0);
    }
    assert_int_equal(driver->cuFuncSetAttribute(function, attribute, 48 * 1024), 0);
    driver->cuMemFree(data);
}

/* An access to shared memory that the launch did not request ends it, even if the source has no map
 * or another plan's; and later launches do not find an earlier launch's contents there. */
TEST(test_beyond_shared_memory) {
    CUdeviceptr data = make_words();
    CUlaunchConfig config = shape(1, 1, 1);
    config.sharedMemBytes = 128;
    assert_int_equal(launch("beyond", &config, data), 0);
    assert_int_equal(read_words(data)[0], 5);
    for (int i = 0; i < 2; i++) {
        config.sharedMemBytes = 127;
        assert_int_equal(launch("beyond", &config, data), LAUNCH_FAILED);
        assert_int_equal(emulator->report(0).kind, EMU_BOUNDS);
        settle(data);
    }
    driver->cuMemFree(data);
}

static void notice(int signal) {
    (void)signal;
}

/* Reports name a source line also while signal handlers of the program run. If the program ignores SIGCHLD,
 * or limits the size of files, a compilation fails with that reason. */
TEST(test_signals) {
    const struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    const struct sigaction handler = {.sa_handler = notice};
    static const char text[] = "#define KERNEL_NAME unseen\n"
                               "__global__ void KERNEL_NAME(int *words) { *words = 1; }\n";
    CUdeviceptr data = make_words();
    CUlaunchConfig config = shape(1, 1, 1);
    kernel("beyond");
    sigaction(SIGALRM, &handler, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(launch("beyond", &config, data), LAUNCH_FAILED);
        if (!strstr(emulator->report(0).text, "beyond.cu:"))
            fail_msg("%s", emulator->report(0).text);
        settle(data);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    unsetenv("SMELT_EMU_LAZY"); /* compile at once */
    signal(SIGCHLD, SIG_IGN);
    assert_null(load_kernel(text, "unseen.cu", "unseen"));
    signal(SIGCHLD, SIG_DFL);
    if (!strstr(smelt_last_error(), "ignores SIGCHLD"))
        fail_msg("%s", smelt_last_error());
    struct rlimit usual;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    const struct rlimit none = {0, usual.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    const CUmodule unwritten = load_kernel(text, "unseen.cu", "unseen");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    assert_null(unwritten);
    if (!strstr(smelt_last_error(), "kernel.c cannot be written: File too large"))
        fail_msg("%s", smelt_last_error());
    driver->cuMemFree(data);
}

TEST(test_launch_refused) {
    CUdeviceptr data = make_words();
    CUlaunchConfig config = shape(1, 1, 1);
    CUcontext context;
    void *parameters[] = {&data};
    CUfunction function = kernel("where");
    assert_int_equal(driver->cuLaunchKernelEx(&config, function, NULL, NULL), INVALID_VALUE);
    assert_int_equal(driver->cuLaunchKernelEx(NULL, function, parameters, NULL), INVALID_VALUE);
    assert_int_equal(driver->cuLaunchKernelEx(&config, NULL, parameters, NULL), INVALID_VALUE);
    assert_int_equal(driver->cuCtxPopCurrent(&context), 0);
    assert_int_equal(launch("where", &config, data), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(driver->cuMemAlloc(&data, 16), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(driver->cuCtxPushCurrent(context), 0);
    config.numAttrs = 1;
    assert_int_equal(launch("where", &config, data), INVALID_VALUE);
    driver->cuMemFree(data);
}

/* ---- several streams ------------------------------------------------------------------------- */

static void expect_race(int result) {
    assert_int_equal(result, LAUNCH_FAILED);
    assert_int_equal(emulator->report(0).kind, EMU_RACE);
    emulator->clear();
}

/* A stream may use another stream's results after the host has waited for that stream. */
TEST(test_streams) {
    CUdeviceptr data = make_words();
    CUstream one, other, blocking;
    CUevent event;
    assert_int_equal(driver->cuStreamCreate(&one, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(driver->cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(driver->cuStreamCreate(&blocking, 0), 0);
    assert_int_equal(driver->cuEventCreate(&event, CU_EVENT_DEFAULT), 0);
    assert_int_equal(launch_on(one, data + 4, data, 0, 0), 0);
    expect_race(launch_on(other, data + 100, data + 4, 1, 0));
    assert_int_equal(launch_on(one, data + 8, data + 4, 1, 0), 0);
    expect_race(launch_on(NULL, data + 4, data + 108, 1, 0)); /* which is still read */
    expect_race(driver->cuMemsetD32Async(data + 8, 0, 1, other));
    assert_int_equal(driver->cuStreamSynchronize(other), 0);
    expect_race(launch_on(other, data + 104, data + 8, 1, 0));
    assert_int_equal(driver->cuStreamSynchronize(one), 0);
    assert_int_equal(launch_on(other, data + 12, data + 8, 1, 0), 0);
    assert_int_equal(launch_on(one, data + 40, data + 44, 1, 0), 0); /* separate words */
    assert_int_equal(driver->cuEventRecord(event, other), 0);
    assert_int_equal(driver->cuEventSynchronize(event), 0);
    assert_int_equal(launch_on(one, data + 16, data + 12, 1, 0), 0);
    assert_int_equal(driver->cuStreamSynchronize(one), 0);
    assert_int_equal(launch_on(blocking, data + 20, data + 16, 1, 0), 0);
    assert_int_equal(launch_on(NULL, data + 24, data + 20, 1, 0), 0); /* ordered */
    assert_int_equal(read_words(data)[6], 6);
    assert_int_equal(emulator->report_count(), 0);
    driver->cuStreamDestroy(one);
    driver->cuStreamDestroy(other);
    driver->cuStreamDestroy(blocking);
    driver->cuEventDestroy(event);
    driver->cuMemFree(data);
}

/* A slow operation is ordered before later work on its own stream only, and not before a launch with
 * PDL that does not wait. */
TEST(test_slow_producer) {
    CUdeviceptr data = make_words();
    CUstream one, other;
    assert_int_equal(driver->cuStreamCreate(&one, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(driver->cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), 0);
    emulator->produce(data, one);
    expect_race(launch_on(other, data + 4, data, 1, 0));
    expect_race(driver->cuMemsetD32Async(data, 0, 1, other));
    emulator->produce(data, one);
    expect_race(launch_on(one, data + 4, data, 0, 1));
    emulator->produce(data, one);
    assert_int_equal(launch_on(one, data + 4, data, 1, 1), 0);
    emulator->produce(data, one);
    assert_int_equal(launch_on(one, data + 8, data + 4, 0, 0), 0);
    emulator->produce(data, one);
    assert_int_equal(driver->cuStreamSynchronize(one), 0);
    assert_int_equal(launch_on(other, data + 12, data + 8, 0, 0), 0);
    emulator->produce(data, one);
    assert_int_equal(driver->cuMemsetD8(data + 40, 0, 4), 0); /* the host waited, so this is
                                                                 ordered */
    assert_int_equal(launch_on(other, data + 16, data + 12, 0, 0), 0);
    assert_int_equal(read_words(data)[4], 4);
    driver->cuStreamDestroy(one);
    driver->cuStreamDestroy(other);
    driver->cuMemFree(data);
}

/* ---- several devices ------------------------------------------------------------------------- */

/* Makes device 1's context current on top of device 0's. */
static void enter_second(void) {
    CUcontext context;
    assert_int_equal(setenv("SMELT_EMU_DEVICES", "2", 1), 0);
    assert_int_equal(driver->cuDevicePrimaryCtxRetain(&context, 1), 0);
    assert_int_equal(driver->cuCtxPushCurrent(context), 0);
}

static void leave_second(void) {
    assert_int_equal(driver->cuCtxPopCurrent(NULL), 0);
    assert_int_equal(unsetenv("SMELT_EMU_DEVICES"), 0);
}

TEST(test_device_numbers) {
    static const int attribute = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    int number = 0;
    unsigned long long first = 0, second = 0;
    CUcontext context;
    CUdevice device;
    use_capability(9, 0);
    assert_int_equal(driver->cuDeviceGetCount(&number), 0);
    assert_int_equal(number, 1);
    assert_int_equal(driver->cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(driver->cuDevicePrimaryCtxRetain(&context, 1), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(driver->cuCtxGetCurrent(&context), 0);
    assert_int_equal(driver->cuCtxGetId(context, &first), 0);
    enter_second();
    assert_int_equal(driver->cuDeviceGetCount(&number), 0);
    assert_int_equal(number, 2);
    assert_int_equal(driver->cuCtxGetDevice(&device), 0);
    assert_int_equal(device, 1);
    assert_int_equal(driver->cuCtxGetCurrent(&context), 0);
    assert_int_equal(driver->cuCtxGetId(context, &second), 0);
    assert_true(first != second);
    assert_int_equal(driver->cuDeviceGetAttribute(&number, attribute, 1), 0);
    assert_int_equal(number, 3); /* one more than device 0 */
    assert_int_equal(driver->cuDeviceGetAttribute(&number, attribute, 2),
                     CUDA_ERROR_INVALID_DEVICE);
    leave_second();
}

TEST(test_events) {
    CUevent begin, end;
    float milliseconds = -1;
    assert_int_equal(driver->cuEventCreate(&begin, CU_EVENT_DEFAULT), 0);
    assert_int_equal(driver->cuEventCreate(&end, CU_EVENT_DEFAULT), 0);
    assert_int_equal(driver->cuEventSynchronize(end), 0); /* not recorded */
    assert_int_equal(driver->cuEventElapsedTime(&milliseconds, begin, end), INVALID_HANDLE);
    assert_int_equal(driver->cuEventRecord(begin, NULL), 0);
    assert_int_equal(driver->cuEventElapsedTime(&milliseconds, begin, end), INVALID_HANDLE);
    assert_true(milliseconds < 0);
    assert_int_equal(driver->cuEventRecord(end, NULL), 0);
    assert_int_equal(driver->cuEventElapsedTime(&milliseconds, begin, end), 0);
    assert_true(milliseconds >= 0);
    assert_int_equal(driver->cuEventDestroy(end), 0);
    assert_int_equal(driver->cuEventDestroy(end), INVALID_HANDLE);
    assert_int_equal(driver->cuEventRecord(end, NULL), INVALID_HANDLE);
    assert_int_equal(driver->cuEventSynchronize(end), INVALID_HANDLE);
    assert_int_equal(driver->cuEventElapsedTime(&milliseconds, begin, end), INVALID_HANDLE);
    assert_int_equal(driver->cuEventDestroy(begin), 0);
}

/* Functions, streams and events belong to the context that was current when they were made. */
TEST(test_contexts_not_mixed) {
    CUdeviceptr data = make_words();
    CUlaunchConfig config = shape(1, 1, 1);
    CUstream first, second;
    CUevent event;
    assert_int_equal(launch("where", &config, data), 0); /* loads it on device 0 */
    assert_int_equal(driver->cuStreamCreate(&first, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(driver->cuEventCreate(&event, CU_EVENT_DEFAULT), 0);
    enter_second();
    assert_int_equal(launch("where", &config, data), INVALID_HANDLE);
    assert_int_equal(driver->cuStreamCreate(&second, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(driver->cuMemsetD32Async(data, 0, 1, first), INVALID_HANDLE);
    assert_int_equal(driver->cuMemsetD32Async(data, 0, 1, second), INVALID_VALUE); /* its memory */
    assert_int_equal(driver->cuEventRecord(event, second), INVALID_HANDLE);
    leave_second();
    config.hStream = second;
    assert_int_equal(launch("where", &config, data), INVALID_HANDLE);
    assert_int_equal(driver->cuMemsetD32Async(data, 0, 1, second), INVALID_HANDLE);
    assert_int_equal(driver->cuEventRecord(event, second), INVALID_HANDLE);
    assert_int_equal(driver->cuEventRecord(event, first), 0);
    assert_int_equal(read_words(data)[0], 0);
    config.hStream = first;
    assert_int_equal(launch("where", &config, data), 0);
    assert_int_equal(driver->cuStreamDestroy(first), 0);
    assert_int_equal(driver->cuStreamDestroy(second), 0);
    assert_int_equal(launch("where", &config, data), INVALID_HANDLE); /* destroyed */
    assert_int_equal(driver->cuEventDestroy(event), 0);
    driver->cuMemFree(data);
}

/* A kernel accesses only its own device's memory: allocated, reserved and registered. */
TEST(test_memory_of_devices) {
    static int words[4], others[4];
    const uint64_t host = (uint64_t)(uintptr_t)words, other = (uint64_t)(uintptr_t)others;
    CUdeviceptr first = make_words(), second[3], data;
    enter_second();
    assert_int_equal(driver->cuMemAlloc(&data, 64), 0);
    leave_second();
    second[0] = data;
    second[1] = emulator->reserve_on(1, 64);
    second[2] = host;
    assert_true(emulator->lend_on(1, host, sizeof words, "lent to device 1"));
    assert_true(emulator->lend(other, sizeof others, "lent to device 0"));
    assert_false(emulator->lend(host + 4, sizeof words, "lent to both"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(launch_chain(first + 4, second[i], 0, 0), LAUNCH_FAILED);
        assert_int_equal(emulator->report(0).kind, EMU_BOUNDS);
        assert_non_null(strstr(emulator->report(0).text, "which is on device 1"));
        emulator->clear();
        assert_int_equal(launch_chain(second[i], first, 0, 0), LAUNCH_FAILED);
        emulator->clear();
    }
    assert_int_equal(launch_chain(other, first, 0, 0), 0);
    emulator->take_back();
    assert_int_equal(driver->cuMemFree(second[0]), 0);
    assert_int_equal(driver->cuMemFree(second[1]), 0);
    driver->cuMemFree(first);
}

/* ---- settings -------------------------------------------------------------------------------- */

TEST(test_bad_device_count) {
    const char *text = NULL;
    assert_int_equal(setenv("SMELT_EMU_DEVICES", "9", 1), 0);
    assert_int_equal(driver->cuInit(0), INVALID_VALUE);
    assert_int_equal(driver->cuGetErrorString(INVALID_VALUE, &text), 0);
    assert_non_null(strstr(text, "SMELT_EMU_DEVICES is \"9\"; legal: 1 to 8"));
    assert_int_equal(unsetenv("SMELT_EMU_DEVICES"), 0);
}

/* An invalid number of multiprocessors is refused, with the variable's name and the legal
 * values. */
TEST(test_multiprocessors) {
    static const char variable[] = "SMELT_EMU_MULTIPROCESSORS";
    static const char *const bad[] = {"0", "-1", "many", "3x", " 3", "1025", "4294967298"};
    const char *text = NULL;
    const struct emu_settings plain = {.size = sizeof plain, .major = 9};
    int number = 0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char quoted[32];
        snprintf(quoted, sizeof quoted, "is \"%s\"; legal: 1 to 1024", bad[i]);
        assert_int_equal(setenv(variable, bad[i], 1), 0);
        assert_int_equal(driver->cuInit(0), INVALID_VALUE);
        assert_int_equal(driver->cuGetErrorString(INVALID_VALUE, &text), 0);
        assert_non_null(strstr(text, variable));
        assert_non_null(strstr(text, quoted));
    }
    static const struct {
        const char *text;
        int number;
    } good[] = {{"1024", 1024}, {"1", 1}, {"007", 7}, {"", 2}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(setenv(variable, good[i].text, 1), 0);
        emulator->configure(&plain);
        assert_int_equal(driver->cuInit(0), 0);
        assert_int_equal(
            driver->cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0), 0);
        assert_int_equal(number, good[i].number);
    }
    assert_int_equal(unsetenv(variable), 0);
}

/* ---- results written twice ------------------------------------------------------------------- */

/* Writes of several blocks to one location are a race unless permitted; a block's read of another's
 * write always is. */
TEST(test_rewritable) {
    CUdeviceptr data = make_words();
    CUlaunchConfig config = shape(3, 1, 1);
    assert_int_equal(driver->cuMemsetD32Async(data, 0, 2, NULL), 0);
    assert_int_equal(launch("again", &config, data), LAUNCH_FAILED);
    assert_int_equal(emulator->report(0).kind, EMU_RACE);
    emulator->clear();
    emulator->rewritable(data, 1);
    assert_int_equal(launch("again", &config, data), 0);
    assert_int_equal(read_words(data)[0], 7);
    assert_int_equal(driver->cuMemsetD32Async(data + 4, 1, 1, NULL), 0);
    assert_int_equal(launch("again", &config, data), LAUNCH_FAILED);
    assert_int_equal(emulator->report(0).kind, EMU_RACE);
    assert_non_null(strstr(emulator->report(0).text, "read of"));
    emulator->clear();
    assert_int_equal(driver->cuMemsetD32Async(data + 4, 0, 1, NULL), 0);
    emulator->rewritable(data, 0);
    assert_int_equal(launch("again", &config, data), LAUNCH_FAILED);
    assert_int_equal(emulator->report(0).kind, EMU_RACE);
    emulator->clear();
    driver->cuMemFree(data);
}

/* ---- locals ---------------------------------------------------------------------------------- */

/* Unwritten locals are large numbers of varying sign, equal for a whole warp. Adjacent ones have
 * opposite signs; arrays differ from each other. */
TEST(test_unwritten) {
    enum {
        TURNS = 8,
        KINDS = 9,
        SECOND = 1,
        FIRST = 6 /* of a pair */,
        ARRAYS = 7, /* the same element of two arrays */
        ABOVE = 0x7f7f7f7f,
        BELOW = (int)0xfefefefe
    };
    CUdeviceptr data = make_words();
    CUlaunchConfig config = shape(1, 1, 1);
    assert_int_equal(launch("unwritten", &config, data), 0);
    const int *words = read_words(data);
    for (int kind = 0; kind < KINDS; kind++) {
        int above = 0, below = 0;
        for (int turn = 0; turn < TURNS; turn++) {
            const int *const first = words + 2 * turn * KINDS, *const last = first + KINDS;
            above += first[kind] == ABOVE;
            below += first[kind] == BELOW;
            assert_int_equal(last[kind], first[kind]);
        }
        assert_int_equal(above + below, TURNS);
        assert_true(above > 0 && below > 0);
    }
    int differ = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        const int *const first = words + 2 * turn * KINDS;
        assert_int_not_equal(first[FIRST], first[SECOND]);
        differ += first[ARRAYS] != first[ARRAYS + 1];
    }
    assert_true(differ > 0 && differ < TURNS);
    driver->cuMemFree(data);
}

/* ---- clusters -------------------------------------------------------------------------------- */

static int launch_cluster(const char *name, CUdeviceptr data, CUlaunchConfig config, unsigned x,
                          unsigned y, unsigned z) {
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value.clusterDim = {x, y, z}};
    config.attrs = &attribute;
    config.numAttrs = 1;
    return launch(name, &config, data);
}

TEST(test_clusters) {
    CUdeviceptr data = make_words();
    assert_int_equal(launch_cluster("rank", data, shape(4, 2, 1), 2, 2, 1), 0);
    static const int ranks[] = {0, 1, 0, 1, 2, 3, 2, 3};
    assert_memory_equal(read_words(data), ranks, sizeof ranks);
    assert_int_equal(launch_cluster("rank", data, shape(1, 1, 4), 1, 1, 4), 0);
    static const int column[] = {0, 1, 2, 3};
    assert_memory_equal(read_words(data), column, sizeof column);
    assert_int_equal(launch_cluster("rank", data, shape(5, 1, 1), 2, 1, 1), INVALID_VALUE);
    assert_int_equal(launch_cluster("rank", data, shape(4, 1, 1), 2, 0, 1), INVALID_VALUE);
    assert_int_equal(launch_cluster("rank", data, shape(16, 1, 1), 16, 1, 1), INVALID_CLUSTER_SIZE);
    use_capability(8, 9);
    assert_int_equal(launch_cluster("rank", data, shape(4, 1, 1), 2, 1, 1), NOT_SUPPORTED);
    driver->cuMemFree(data);
}

/* __cluster_dims__ applies without launch attributes, and a launch with another shape is
 * refused. */
TEST(test_cluster_of_the_kernel) {
    CUdeviceptr data = make_words();
    CUlaunchConfig config = shape(6, 1, 1);
    static const int ranks[] = {0, 1, 0, 1, 0, 1};
    assert_int_equal(launch("pair", &config, data), 0);
    assert_memory_equal(read_words(data), ranks, sizeof ranks);
    assert_int_equal(launch_cluster("pair", data, config, 2, 1, 1), 0);
    assert_int_equal(launch_cluster("pair", data, config, 1, 1, 1), INVALID_CLUSTER_SIZE);
    config.gridDimX = 5;
    assert_int_equal(launch("pair", &config, data), INVALID_VALUE);
    driver->cuMemFree(data);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: emu_driver FOLDER\n");
        return 2;
    }
    folder = argv[1];
    return RUN_TESTS("driver", .group_setup = open_all);
}
