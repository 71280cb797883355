/* The driver's modules: each is a shared object with one kernel. */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emu/compiler/compiler.h"
#include "emu/driver/driver.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14 };

/* Dynamic shared memory available without cuFuncSetAttribute (CUDA C Programming Guide, "Technical
 * Specifications per Compute Capability"). */
enum { DEFAULT_SHARED = 48 * 1024 };

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

/* Bytes from the object's base to the end of its last segment. */
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

/* Size of an ELF file; linkers write the section headers last. */
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

/* After dlopen failed: notes the kernel's name, which is read from the object loaded with lazy binding, and the undefined
 * symbol. (The C compiler reports undeclared functions.) */
static CUresult refuse_object(struct CUmod_st *module) {
    static const char undefined[] = "undefined symbol: ";
    char why[256];
    snprintf(why, sizeof why, "%s", dlerror());
    const char *const symbol = strstr(why, undefined);
    module->library = dlopen(module->kernel.object, RTLD_LAZY | RTLD_LOCAL);
    const char *const name = module->library ? dlsym(module->library, "emu_name") : NULL;
    if (symbol)
        emu_note_image("the kernel %s uses %s, which is declared but not defined: define it in a "
                       "template, or call another function",
                       name ? name : "", symbol + sizeof undefined - 1);
    else
        emu_note_image("the kernel cannot be loaded: %s", why);
    return CUDA_ERROR_INVALID_IMAGE;
}

static CUresult load_object(struct CUmod_st *module, const void *image, size_t bytes) {
    module->memory = memfd_create("smelt-emu-kernel", MFD_CLOEXEC);
    if (module->memory < 0 || write(module->memory, image, bytes) != (ssize_t)bytes)
        return CUDA_ERROR_INVALID_IMAGE;
    snprintf(module->kernel.object, sizeof module->kernel.object, "/proc/%d/fd/%d", getpid(),
             module->memory);
    module->library = dlopen(module->kernel.object, RTLD_NOW | RTLD_LOCAL);
    return module->library ? describe_kernel(module) : refuse_object(module);
}

static CUresult keep_lazy(struct CUmod_st *module, const void *image, size_t bytes) {
    module->lazy = malloc(bytes);
    if (!module->lazy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(module->lazy, image, bytes);
    module->name = emu_lazy_name(module->lazy);
    return CUDA_SUCCESS;
}

CUresult emu_module_complete(struct CUmod_st *module) {
    static char log[16 * 1024]; /* under the driver's lock */
    unsigned char *object = NULL;
    CUresult result = CUDA_ERROR_INVALID_IMAGE;
    size_t bytes;
    if (!module->lazy)
        return CUDA_SUCCESS;
    if (emu_compile_lazy(module->lazy, &object, &bytes, log, sizeof log) == 0)
        result = load_object(module, object, bytes);
    else
        emu_note_image("the kernel %s does not compile:\n%s", module->name, log);
    free(object);
    if (result == CUDA_SUCCESS) {
        free(module->lazy);
        module->lazy = NULL;
    }
    return result;
}

static void free_module(struct CUmod_st *module) {
    if (module->library)
        dlclose(module->library);
    if (module->memory >= 0)
        close(module->memory);
    free(module->lazy);
    free(module);
}

EMU_EXPORT CUresult cuModuleLoadData(CUmodule *out, const void *image) {
    const size_t bytes = object_bytes(image);
    if (!emu_context_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (bytes == 0)
        return CUDA_ERROR_INVALID_IMAGE;
    struct CUmod_st *module = calloc(1, sizeof *module);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->context = emu_context_current();
    module->memory = -1;
    module->dynamic_shared = DEFAULT_SHARED;
    const CUresult result =
        emu_lazy_name(image) ? keep_lazy(module, image, bytes) : load_object(module, image, bytes);
    if (result == CUDA_SUCCESS)
        *out = module;
    else
        free_module(module);
    return result;
}

EMU_EXPORT CUresult cuModuleUnload(CUmodule module) {
    free_module(module);
    return CUDA_SUCCESS;
}

EMU_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    *function = (CUfunction)module;
    return strcmp(name, module->name) == 0 ? CUDA_SUCCESS : ERROR_NOT_FOUND;
}

static unsigned max_shared(void) {
    const int capability = emu.settings.major * 10 + emu.settings.minor;
    const unsigned kilobytes = capability < 80                        ? 64
                               : capability == 80 || capability == 87 ? 163
                               : capability < 90 || capability >= 120 ? 99
                                                                      : 227;
    return kilobytes * 1024;
}

EMU_EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    struct CUmod_st *module = (struct CUmod_st *)function;
    emu_default_settings();
    if (attribute == FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
        return value == 0 || value == 1 ? CUDA_SUCCESS : ERROR_INVALID_VALUE;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        (unsigned)value > max_shared())
        return ERROR_INVALID_VALUE;
    module->dynamic_shared = (unsigned)value;
    return CUDA_SUCCESS;
}
