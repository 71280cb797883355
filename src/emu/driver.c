/*
 * The CUDA driver's entry points over the emulator: one device, one context, streams and events
 * that are always done. Values of the driver API's reference manual. Calls may come from several
 * threads; one lock makes them one after another.
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"
#include "layout.h"
#include "runtime/driver/cuda_abi.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum {
    ERROR_INVALID_VALUE = 1,
    ERROR_NOT_FOUND = 500,
    ERROR_LAUNCH_FAILED = 719,
    ERROR_NOT_SUPPORTED = 801,
    ERROR_INVALID_CLUSTER_SIZE = 912,
    STACK = 16,
    DRIVER_VERSION = 13000,
    DEFAULT_MULTIPROCESSORS = 2, /* so that a persistent kernel goes round */
    MOST_MULTIPROCESSORS = 1024, /* more than any GPU has */
};

struct CUctx_st {
    int unused;
};

struct CUmod_st {
    void *library;
    int memory; /* the file the object lies in */
    struct kernel kernel;
    const char *name;
    unsigned cluster[3];     /* of __cluster_dims__; 0: the kernel does not say */
    unsigned dynamic_shared; /* bytes a launch may ask for */
};

enum { /* of cuda.h, beside those the library uses */
       FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
       LAUNCH_ATTRIBUTE_IGNORE = 0,
       LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW = 1,
       LAUNCH_ATTRIBUTE_PRIORITY = 8
};

struct CUfunc_st {
    int unused; /* a function handle is its module's */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st primary;
static _Thread_local CUcontext stack[STACK];
static _Thread_local int depth;
static char handle; /* what streams and events point to */

/* ---- the device ------------------------------------------------------------------------------ */

static const char multiprocessors_variable[] = "SMELT_EMU_MULTIPROCESSORS";

/* How many multiprocessors the environment asks for; 0: it does not, -1: its text is no such
 * number. */
static int named_multiprocessors(void) {
    const char *text = secure_getenv(multiprocessors_variable);
    int number = 0;
    if (!text || !*text)
        return 0;
    for (const char *digit = text; *digit; digit++) {
        if (*digit < '0' || *digit > '9')
            return -1;
        number = number * 10 + *digit - '0';
        if (number > MOST_MULTIPROCESSORS)
            return -1;
    }
    return number > 0 ? number : -1;
}

EMU_EXPORT CUresult cuInit(unsigned int flags) {
    (void)flags;
    return named_multiprocessors() < 0 ? ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDriverGetVersion(int *version) {
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = error == ERROR_LAUNCH_FAILED          ? "CUDA_ERROR_LAUNCH_FAILED"
            : error == CUDA_ERROR_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == ERROR_INVALID_VALUE        ? "CUDA_ERROR_INVALID_VALUE"
            : error == CUDA_ERROR_INVALID_IMAGE   ? "CUDA_ERROR_INVALID_IMAGE"
            : error == ERROR_NOT_FOUND            ? "CUDA_ERROR_NOT_FOUND"
            : error == ERROR_NOT_SUPPORTED        ? "CUDA_ERROR_NOT_SUPPORTED"
            : error == CUDA_ERROR_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
            : error == ERROR_INVALID_CLUSTER_SIZE ? "CUDA_ERROR_INVALID_CLUSTER_SIZE"
                                                  : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}

static char error_text[512];
static CUresult refused; /* the last launch, with a report; CUDA_SUCCESS: it was not */

/* A launch's failure is described by its first report. */
EMU_EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    if (error == ERROR_INVALID_VALUE && named_multiprocessors() < 0) {
        snprintf(
            error_text, sizeof error_text,
            "the emulator: the environment variable %s is \"%.200s\"; legal: 1 to %d, or unset",
            multiprocessors_variable, secure_getenv(multiprocessors_variable),
            MOST_MULTIPROCESSORS);
        *text = error_text;
        return CUDA_SUCCESS;
    }
    snprintf(error_text, sizeof error_text, "the emulator: %.480s",
             error == ERROR_LAUNCH_FAILED || (refused && error == refused)
                 ? emu_first_report()
                 : "the call is not possible");
    *text = error_text;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDeviceGetCount(int *count) {
    *count = 1;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static void default_settings(void) {
    struct emu_settings *settings = &emu.settings;
    if (settings->major == 0) {
        settings->major = 9;
        settings->minor = 0;
    }
    if (settings->multiprocessors == 0) {
        const int named = named_multiprocessors();
        settings->multiprocessors = named > 0 ? named : DEFAULT_MULTIPROCESSORS;
    }
    if (settings->seconds <= 0)
        settings->seconds = 60;
}

EMU_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    (void)device;
    default_settings();
    snprintf(name, (size_t)length, "smelt's emulator of compute capability %d.%d",
             emu.settings.major, emu.settings.minor);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    (void)device;
    default_settings();
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = emu.settings.major;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = emu.settings.minor;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = emu.settings.multiprocessors;
        return CUDA_SUCCESS;
    default:
        *value = 0;
        return ERROR_INVALID_VALUE;
    }
}

EMU_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    (void)device;
    *bytes = (size_t)1 << 37;
    return CUDA_SUCCESS;
}

/* ---- contexts -------------------------------------------------------------------------------- */

EMU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    (void)device;
    *context = &primary;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    (void)device;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
    if (depth == STACK)
        return ERROR_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context)
        *context = stack[depth];
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    *device = 0;
    return depth ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EMU_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
    (void)context;
    *id = 1;
    return CUDA_SUCCESS;
}

/* ---- modules --------------------------------------------------------------------------------- */

/* Of dynamic shared memory, without asking for more (CUDA C Programming Guide, "Technical
 * Specifications per Compute Capability"). */
enum { SHARED_UNASKED = 48 * 1024 };

static unsigned most_shared(void) {
    const int capability = emu.settings.major * 10 + emu.settings.minor;
    const unsigned kilobytes = capability < 80                        ? 64
                               : capability == 80 || capability == 87 ? 163
                               : capability < 90 || capability >= 120 ? 99
                                                                      : 227;
    return kilobytes * 1024;
}

/* "QUERY 0 73728;LATENT 73728 131072;" */
static void read_map(struct kernel *kernel, const char *map) {
    while (map && *map && kernel->region_count < 32) {
        struct region *region = &kernel->regions[kernel->region_count];
        if (sscanf(map, "%47s %u %u", region->name, &region->offset, &region->bytes) == 3)
            kernel->region_count++;
        map = strchr(map, ';');
        map += map != NULL;
    }
}

/* From the object's first byte to the end of its last segment. */
static size_t loaded_bytes(const u8 *image) {
    const ElfW(Ehdr) *header = (const void *)image;
    const ElfW(Phdr) *segments = (const void *)(image + header->e_phoff);
    size_t end = 0;
    for (int i = 0; i < header->e_phnum; i++)
        if (segments[i].p_type == PT_LOAD && segments[i].p_vaddr + segments[i].p_memsz > end)
            end = segments[i].p_vaddr + segments[i].p_memsz;
    return end;
}

static CUresult describe_kernel(struct CUmod_st *module) {
    static atomic_uint modules;
    struct kernel *kernel = &module->kernel;
    Dl_info where;
    void *entry = dlsym(module->library, "emu_entry");
    const char *map = dlsym(module->library, "emu_map");
    const unsigned *cluster = dlsym(module->library, "emu_cluster_dims");
    module->name = dlsym(module->library, "emu_name");
    module->dynamic_shared = SHARED_UNASKED;
    for (int i = 0; i < 3 && cluster; i++)
        module->cluster[i] = cluster[i] ? cluster[i] : 1;
    if (!entry || !map || !module->name || !dladdr(entry, &where))
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&kernel->entry, &entry, sizeof entry);
    kernel->serial = ++modules;
    kernel->image = where.dli_fbase;
    kernel->image_bytes = loaded_bytes(kernel->image);
    read_map(kernel, map);
    return CUDA_SUCCESS;
}

static size_t object_bytes(const unsigned char *image);

EMU_EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image) {
    size_t bytes = object_bytes(image);
    CUresult result = CUDA_ERROR_INVALID_IMAGE;
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct CUmod_st *module = calloc(1, sizeof *module);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->memory = memfd_create("smelt-emu-kernel", MFD_CLOEXEC);
    if (bytes == 0 || module->memory < 0 || write(module->memory, image, bytes) != (ssize_t)bytes)
        goto out;
    snprintf(module->kernel.object, sizeof module->kernel.object, "/proc/%d/fd/%d", getpid(),
             module->memory);
    module->library = dlopen(module->kernel.object, RTLD_NOW | RTLD_LOCAL);
    if (!module->library) {
        fprintf(stderr, "smelt's emulator: %s\n", dlerror());
        goto out;
    }
    result = describe_kernel(module);
out:
    if (result == CUDA_SUCCESS) {
        *out = module;
    } else {
        if (module->library)
            dlclose(module->library);
        if (module->memory >= 0)
            close(module->memory);
        free(module);
    }
    return result;
}

EMU_EXPORT CUresult cuModuleUnload(CUmodule module) {
    dlclose(module->library);
    close(module->memory);
    free(module);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    *function = (CUfunction)module;
    return strcmp(name, module->name) == 0 ? CUDA_SUCCESS : ERROR_NOT_FOUND;
}

EMU_EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    struct CUmod_st *module = (struct CUmod_st *)function;
    default_settings();
    if (attribute == FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
        return value == 0 || value == 1 ? CUDA_SUCCESS : ERROR_INVALID_VALUE;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        (unsigned)value > most_shared())
        return ERROR_INVALID_VALUE;
    module->dynamic_shared = (unsigned)value;
    return CUDA_SUCCESS;
}

bool emu_kernel_holds(const void *pointer) {
    return emu.kernel &&
           (size_t)((const u8 *)pointer - emu.kernel->image) < emu.kernel->image_bytes;
}

/* ---- launches -------------------------------------------------------------------------------- */

/* What the launch says, else the kernel; both must agree (CUDA C Programming Guide, "Thread Block
 * Clusters"). */
static CUresult read_cluster(const struct CUmod_st *module, const unsigned *asked) {
    memcpy(emu.cluster, module->cluster, sizeof emu.cluster);
    if (!asked)
        return CUDA_SUCCESS;
    if (asked[0] == 0 || asked[1] == 0 || asked[2] == 0)
        return ERROR_INVALID_VALUE;
    if (module->cluster[0] && memcmp(module->cluster, asked, sizeof module->cluster) != 0)
        return ERROR_INVALID_CLUSTER_SIZE;
    memcpy(emu.cluster, asked, sizeof emu.cluster);
    return CUDA_SUCCESS;
}

static CUresult read_attributes(const struct CUmod_st *module, const CUlaunchConfig *config) {
    const unsigned *cluster = NULL;
    emu.early = false;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        switch (attribute->id) {
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            cluster = attribute->value.clusterDim;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            emu.early = attribute->value.programmaticStreamSerializationAllowed != 0;
            break;
        case LAUNCH_ATTRIBUTE_IGNORE:
        case LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case LAUNCH_ATTRIBUTE_PRIORITY:
            break;
        default:
            return ERROR_NOT_SUPPORTED;
        }
    }
    if (emu.settings.major < 9 && (emu.early || cluster || module->cluster[0]))
        return ERROR_NOT_SUPPORTED;
    return read_cluster(module, cluster);
}

static CUresult refuse(CUresult result, const char *what, unsigned value, unsigned most) {
    emu_reports_begin();
    emu_report(EMU_ILLEGAL, 0, 0, "a launch with %u %s: at most %u are possible", value, what,
               most);
    emu_reports_end();
    return result;
}

/* A launch that a driver does not begin. */
static CUresult check_launch(const struct CUmod_st *module, const CUlaunchConfig *config) {
    const CUresult result = read_attributes(module, config);
    const unsigned blocks = emu.cluster[0] * emu.cluster[1] * emu.cluster[2];
    if (result)
        return result;
    if (blocks > MAX_CLUSTER)
        return refuse(ERROR_INVALID_CLUSTER_SIZE, "blocks a cluster", blocks, MAX_CLUSTER);
    if (config->sharedMemBytes > module->dynamic_shared)
        return refuse(ERROR_INVALID_VALUE, "bytes of dynamic shared memory", config->sharedMemBytes,
                      module->dynamic_shared);
    emu_reports_begin();
    if (emu_launch_is_legal())
        return CUDA_SUCCESS;
    emu_reports_end();
    return ERROR_INVALID_VALUE;
}

EMU_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                                     void **parameters, void **extra) {
    struct CUmod_st *module = (struct CUmod_st *)function;
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!config || !module || extra || !parameters || (config->numAttrs > 0 && !config->attrs))
        return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    default_settings();
    memcpy(emu.grid, &config->gridDimX, sizeof emu.grid);
    memcpy(emu.block, &config->blockDimX, sizeof emu.block);
    emu.shared_bytes = config->sharedMemBytes;
    emu.stream = config->hStream;
    if (module->kernel.region_count == 0) { /* no map in the text: all of it is one region */
        struct region *region = &module->kernel.regions[0];
        snprintf(region->name, sizeof region->name, "shared memory");
        region->offset = 0;
        region->bytes = ARENA_SPAN;
        module->kernel.region_count = 1;
    }
    CUresult result = refused = check_launch(module, config);
    if (result == CUDA_SUCCESS && !emu_launch(&module->kernel, parameters))
        result = ERROR_LAUNCH_FAILED;
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- memory ---------------------------------------------------------------------------------- */

EMU_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (bytes == 0)
        return ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    *pointer = emu_memory_allocate(bytes, false);
    pthread_mutex_unlock(&lock);
    return *pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
    pthread_mutex_lock(&lock);
    bool freed = emu_memory_free(pointer);
    pthread_mutex_unlock(&lock);
    return freed ? CUDA_SUCCESS : ERROR_INVALID_VALUE;
}

/* Whether device memory has these bytes; `written` by the host. */
static bool touch(CUdeviceptr pointer, size_t bytes, bool written) {
    pthread_mutex_lock(&lock);
    const bool held = emu_memory_holds(pointer, bytes);
    if (held && written)
        emu_memory_overwritten(pointer, bytes);
    pthread_mutex_unlock(&lock);
    return held;
}

EMU_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    if (!touch(to, bytes, true))
        return ERROR_INVALID_VALUE;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    pthread_mutex_lock(&lock);
    const bool over = emu_chain_check_ended();
    pthread_mutex_unlock(&lock);
    if (!over)
        return ERROR_LAUNCH_FAILED;
    if (!touch(from, bytes, false))
        return ERROR_INVALID_VALUE;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t bytes) {
    if (!touch(pointer, bytes, true))
        return ERROR_INVALID_VALUE;
    memset((void *)(uintptr_t)pointer, value, bytes);
    return CUDA_SUCCESS;
}

/* A fill that belongs to a stream: after its launches so far, before those to come, which overlap
 * none of these. */
static CUresult fill(CUdeviceptr pointer, size_t bytes, CUstream stream) {
    CUresult result = CUDA_SUCCESS;
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    emu_reports_begin();
    if (bytes > 0 && !emu_memory_holds(pointer, bytes))
        result = ERROR_INVALID_VALUE;
    else if (bytes > 0 && !emu_memory_fill_begins(pointer, bytes, stream))
        result = ERROR_LAUNCH_FAILED;
    else
        emu_chain_interrupt(stream);
    if (result == CUDA_SUCCESS)
        emu_memory_overwritten(pointer, bytes);
    emu_reports_end();
    pthread_mutex_unlock(&lock);
    return result;
}

EMU_EXPORT CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t bytes,
                                    CUstream stream) {
    const CUresult result = fill(pointer, bytes, stream);
    if (result == CUDA_SUCCESS)
        memset((void *)(uintptr_t)pointer, value, bytes);
    return result;
}

/* `words`: of four bytes, to a multiple of four. */
EMU_EXPORT CUresult cuMemsetD32Async(CUdeviceptr pointer, unsigned value, size_t words,
                                     CUstream stream) {
    if (pointer % sizeof value != 0 || words > SIZE_MAX / sizeof value)
        return ERROR_INVALID_VALUE;
    const CUresult result = fill(pointer, words * sizeof value, stream);
    for (size_t i = 0; i < words && result == CUDA_SUCCESS; i++)
        ((unsigned *)(uintptr_t)pointer)[i] = value;
    return result;
}

EMU_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = *total_bytes = (size_t)1 << 37;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address,
                                           const uint64_t *dimensions, const uint64_t *strides,
                                           const uint32_t *box, const uint32_t *element_strides,
                                           int interleave, int swizzle, int promotion, int fill) {
    char why[256];
    if (!depth) /* as a driver for CUDA 13 has it, though no device takes part */
        return CUDA_ERROR_INVALID_CONTEXT;
    if (emu_tensor_map_encode(map, type, rank, (u64)(uintptr_t)address, dimensions, strides, box,
                              element_strides, interleave, swizzle, promotion, fill, why,
                              sizeof why))
        return CUDA_SUCCESS;
    fprintf(stderr, "smelt's emulator: cuTensorMapEncodeTiled: %s\n", why);
    return ERROR_INVALID_VALUE;
}

/* ---- streams and events ---------------------------------------------------------------------- */

EMU_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    (void)flags;
    *stream = (CUstream)(void *)&handle;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
    (void)stream;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
    (void)stream;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    (void)flags;
    *event = calloc(1, sizeof(struct timespec));
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, (struct timespec *)(void *)event);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuEventSynchronize(CUevent event) {
    (void)event;
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end) {
    const struct timespec *a = (void *)begin, *b = (void *)end;
    *milliseconds =
        (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
    free((void *)event);
    return CUDA_SUCCESS;
}

/* ---- the control interface ------------------------------------------------------------------- */

static void configure(const struct emu_settings *settings) {
    struct emu_settings taken = {.size = sizeof taken};
    memcpy(&taken, settings, settings->size < sizeof taken ? settings->size : sizeof taken);
    emu.settings = taken;
    default_settings();
}

static u64 reserve(size_t bytes) {
    return emu_memory_allocate(bytes, true);
}

static int lend(u64 pointer, size_t bytes, const char *name) {
    pthread_mutex_lock(&lock);
    const int lent = emu_memory_lend(pointer, bytes, name);
    pthread_mutex_unlock(&lock);
    return lent;
}

static void take_back(void) {
    pthread_mutex_lock(&lock);
    emu_memory_take_back();
    pthread_mutex_unlock(&lock);
}

static void get_statistics(struct emu_statistics *statistics) {
    *statistics = emu.statistics;
}

static const struct emu_interface interface = {
    .size = sizeof interface,
    .configure = configure,
    .report_count = emu_report_count,
    .report = emu_report_at,
    .clear = emu_reports_clear,
    .kind_name = emu_kind_name,
    .name = emu_memory_name,
    .forbid = emu_memory_forbid,
    .reserve = reserve,
    .statistics = get_statistics,
    .lend = lend,
    .take_back = take_back,
    .rewritable = emu_memory_rewritable,
};

EMU_EXPORT const struct emu_interface *emu_get(void) {
    return &interface;
}

/* ---- the object's size ----------------------------------------------------------------------- */

/* Of an ELF file as linkers write it: the section headers stand last. */
static size_t object_bytes(const unsigned char *image) {
    struct {
        unsigned char identification[16];
        u16 type, machine;
        u32 version;
        u64 entry, program_headers, section_headers;
        u32 flags;
        u16 header_bytes, program_header_bytes, program_header_count, section_header_bytes,
            section_header_count, names;
    } header;
    memcpy(&header, image, sizeof header);
    if (memcmp(header.identification, "\177ELF\2", 5) != 0)
        return 0;
    return (size_t)header.section_headers +
           (size_t)header.section_header_bytes * header.section_header_count;
}
