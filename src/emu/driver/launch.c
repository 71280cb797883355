/* The driver's launches. */
#include <stdio.h>
#include <string.h>

#include "emu/driver/driver.h"
#include "emu/launch/launch.h"
#include "emu/machine/report.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { /* of cuda.h, beside those the library uses */
       LAUNCH_ATTRIBUTE_IGNORE = 0,
       LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW = 1,
       LAUNCH_ATTRIBUTE_PRIORITY = 8
};

/* The launch's cluster size, else the kernel's; if both are given they must agree (CUDA C
 * Programming Guide, "Thread Block Clusters"). */
static CUresult read_cluster(const struct CUmod_st *module, const unsigned *requested) {
    memcpy(emu.cluster, module->cluster, sizeof emu.cluster);
    if (!requested)
        return CUDA_SUCCESS;
    if (requested[0] == 0 || requested[1] == 0 || requested[2] == 0)
        return ERROR_INVALID_VALUE;
    if (module->cluster[0] && memcmp(module->cluster, requested, sizeof module->cluster) != 0)
        return ERROR_INVALID_CLUSTER_SIZE;
    memcpy(emu.cluster, requested, sizeof emu.cluster);
    return CUDA_SUCCESS;
}

static CUresult read_attributes(const struct CUmod_st *module, const CUlaunchConfig *config) {
    const unsigned *cluster = NULL;
    emu.pdl = false;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        switch (attribute->id) {
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            cluster = attribute->value.clusterDim;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            emu.pdl = attribute->value.programmaticStreamSerializationAllowed != 0;
            break;
        case LAUNCH_ATTRIBUTE_IGNORE:
        case LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case LAUNCH_ATTRIBUTE_PRIORITY:
            break;
        default:
            return ERROR_NOT_SUPPORTED;
        }
    }
    if (emu.settings.major < 9 && (emu.pdl || cluster || module->cluster[0]))
        return ERROR_NOT_SUPPORTED;
    return read_cluster(module, cluster);
}

static CUresult refuse(CUresult result, const char *what, unsigned value, unsigned max) {
    emu_reports_begin();
    emu_report(EMU_ILLEGAL, 0, 0, "a launch with %u %s: at most %u are possible", value, what, max);
    emu_reports_end();
    return result;
}

/* Refuses launches that a driver refuses. */
static CUresult check_launch(const struct CUmod_st *module, const CUlaunchConfig *config) {
    const CUresult result = read_attributes(module, config);
    const unsigned blocks = emu.cluster[0] * emu.cluster[1] * emu.cluster[2];
    if (result)
        return result;
    if (blocks > MAX_CLUSTER)
        return refuse(ERROR_INVALID_CLUSTER_SIZE, "blocks per cluster", blocks, MAX_CLUSTER);
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
    const CUcontext context = emu_context_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!config || !module || extra || !parameters || (config->numAttrs > 0 && !config->attrs))
        return ERROR_INVALID_VALUE;
    const void *stream = emu_stream_find(config->hStream);
    if (module->context != context || !stream)
        return ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&emu_driver_lock);
    const CUresult completed = emu_module_complete(module);
    if (completed != CUDA_SUCCESS) {
        pthread_mutex_unlock(&emu_driver_lock);
        return completed;
    }
    emu_default_settings();
    memcpy(emu.grid, &config->gridDimX, sizeof emu.grid);
    memcpy(emu.block, &config->blockDimX, sizeof emu.block);
    emu.shared_bytes = config->sharedMemBytes;
    emu.stream = stream;
    emu.device = context->device;
    if (module->kernel.region_count == 0) { /* no map in the text: one region */
        struct region *region = &module->kernel.regions[0];
        snprintf(region->name, sizeof region->name, "shared memory");
        region->offset = 0;
        region->bytes = ARENA_SPAN;
        module->kernel.region_count = 1;
    }
    CUresult result = check_launch(module, config);
    emu_note_refusal(result);
    if (result == CUDA_SUCCESS && !emu_launch(&module->kernel, parameters))
        result = ERROR_LAUNCH_FAILED;
    pthread_mutex_unlock(&emu_driver_lock);
    return result;
}
