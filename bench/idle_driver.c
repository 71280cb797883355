/*
 * The emulator as the driver, but launches do nothing and memory accesses are not checked: with it
 * bench/pytorch.py and bench/overhead.c time the host code of the package, PyTorch and the library
 * without a GPU.
 *
 *   SMELT_CUDA=build/bench/libidle_driver.so SMELT_NVRTC=build/src/emu/libsmelt_emu.so build/bench/overhead
 */
#include <dlfcn.h>
#include <string.h>

#include "emu/emulator.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int cuLaunchKernelEx(const void *config, void *function, void **params, void **extra);
EXPORTED int cuMemsetD32Async(uint64_t pointer, unsigned value, size_t count, void *stream);
EXPORTED int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes);
EXPORTED const struct emu_interface *emu_get(void);

int cuLaunchKernelEx(const void *config, void *function, void **params, void **extra) {
    (void)config, (void)function, (void)params, (void)extra;
    return 0;
}

int cuMemsetD32Async(uint64_t pointer, unsigned value, size_t count, void *stream) {
    (void)pointer, (void)value, (void)count, (void)stream;
    return 0;
}

/* The smallest size of a kernel's parameters; they are not read. */
int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes) {
    (void)function, (void)index;
    *offset = 0, *bytes = 8;
    return 0;
}

static int lend(uint64_t pointer, size_t bytes, const char *name) {
    (void)pointer, (void)bytes, (void)name;
    return 1;
}

static void nothing(void) {}

static size_t no_reports(void) {
    return 0;
}

/* All other driver calls are the emulator's. One is named here, so that the linker keeps the
 * library. */
int cuInit(unsigned flags);
__attribute__((used)) static int (*const of_the_emulator)(unsigned) = cuInit;

const struct emu_interface *emu_get(void) {
    static struct emu_interface made;
    void *symbol = dlsym(RTLD_NEXT, "emu_get");
    emu_get_function get;
    memcpy(&get, &symbol, sizeof get); /* POSIX: a function's address */
    made = *get();
    made.lend = lend;
    made.take_back = nothing;
    made.clear = nothing;
    made.report_count = no_reports;
    return &made;
}
