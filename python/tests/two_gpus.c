/*
 * A CUDA driver with two GPUs for test_devices.py: the emulator without the control interface by
 * which the package recognises it. The package launches as on a GPU, and the test learns the device
 * and the stream of each launch. EMULATOR: the path of libsmelt_emu.so, with which this library is
 * linked.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

enum { LAUNCH_FAILED = 719 };
enum { RUN, FAILED, SKIPPED }; /* an observer's answer */

struct launch_config { /* the head of CUlaunchConfig */
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
};

/* Called before each operation on a stream, and after it if it ran. */
typedef int (*observer)(int after, int device, void *stream);

static observer observe;

void set_observer(observer function);
const void *emu_get(void);
int cuLaunchKernelEx(const struct launch_config *config, void *function, void **parameters,
                     void **extra);
int cuMemsetD32Async(unsigned long long pointer, unsigned value, size_t words, void *stream);

void set_observer(observer function) {
    observe = function;
}

const void *emu_get(void) {
    return NULL;
}

static void *find(const char *name) {
    static void *emulator;
    if (!emulator)
        emulator = dlopen(EMULATOR, RTLD_NOW | RTLD_LOCAL);
    return emulator ? dlsym(emulator, name) : NULL;
}

static int current_device(void) {
    void *symbol = find("cuCtxGetDevice");
    int (*get)(int *device);
    int device = -1;
    memcpy(&get, &symbol, sizeof get);
    return get(&device) ? -1 : device;
}

int cuLaunchKernelEx(const struct launch_config *config, void *function, void **parameters,
                     void **extra) {
    void *symbol = find("cuLaunchKernelEx");
    int (*launch)(const struct launch_config *, void *, void **, void **);
    memcpy(&launch, &symbol, sizeof launch);
    const int device = current_device(), what = observe(0, device, config->stream);
    if (what != RUN)
        return what == FAILED ? LAUNCH_FAILED : 0;
    const int result = launch(config, function, parameters, extra);
    observe(1, device, config->stream);
    return result;
}

int cuMemsetD32Async(unsigned long long pointer, unsigned value, size_t words, void *stream) {
    void *symbol = find("cuMemsetD32Async");
    int (*fill)(unsigned long long, unsigned, size_t, void *);
    memcpy(&fill, &symbol, sizeof fill);
    const int device = current_device(), what = observe(0, device, stream);
    if (what != RUN)
        return what == FAILED ? LAUNCH_FAILED : 0;
    const int result = fill(pointer, value, words, stream);
    observe(1, device, stream);
    return result;
}
