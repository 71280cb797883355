/* Compares src/runtime/driver/cuda_abi.h with NVIDIA's headers, if they are installed: meson.build
 * compiles this file with each, and links both. */
#include <stddef.h>
#include <stdio.h>

#ifdef THEIRS
#include <cuda.h>
#include <nvrtc.h>
#define VALUES abi_theirs
#else
#include "runtime/driver/cuda_abi.h"
#define VALUES abi_ours
#endif

struct value {
    const char *name;
    size_t value;
};
extern const struct value abi_ours[], abi_theirs[];

#define VALUE(expression)                                                                          \
    { #expression, (size_t)(expression) }
#define FIELD(type, field) VALUE(offsetof(type, field)), VALUE(sizeof(((type *)NULL)->field))

const struct value VALUES[] = {
    VALUE(sizeof(CUlaunchConfig)),
    FIELD(CUlaunchConfig, gridDimX),
    FIELD(CUlaunchConfig, gridDimY),
    FIELD(CUlaunchConfig, gridDimZ),
    FIELD(CUlaunchConfig, blockDimX),
    FIELD(CUlaunchConfig, blockDimY),
    FIELD(CUlaunchConfig, blockDimZ),
    FIELD(CUlaunchConfig, sharedMemBytes),
    FIELD(CUlaunchConfig, hStream),
    FIELD(CUlaunchConfig, attrs),
    FIELD(CUlaunchConfig, numAttrs),
    VALUE(sizeof(CUlaunchAttribute)),
    VALUE(_Alignof(CUlaunchAttribute)),
    FIELD(CUlaunchAttribute, id),
    FIELD(CUlaunchAttribute, value),
    FIELD(CUlaunchAttributeValue, clusterDim),
    FIELD(CUlaunchAttributeValue, programmaticStreamSerializationAllowed),
    VALUE(sizeof(CUresult)),
    VALUE(sizeof(CUdevice)),
    VALUE(sizeof(CUdeviceptr)),
    VALUE(sizeof(nvrtcResult)),
    VALUE(CUDA_SUCCESS),
    VALUE(CUDA_ERROR_OUT_OF_MEMORY),
    VALUE(CUDA_ERROR_NO_DEVICE),
    VALUE(CUDA_ERROR_INVALID_DEVICE),
    VALUE(CUDA_ERROR_INVALID_IMAGE),
    VALUE(CUDA_ERROR_INVALID_CONTEXT),
    VALUE(CUDA_ERROR_NO_BINARY_FOR_GPU),
    VALUE(CUDA_ERROR_INVALID_SOURCE),
    VALUE(CUDA_ERROR_NOT_FOUND),
    VALUE(CUDA_ERROR_CONTEXT_IS_DESTROYED),
    VALUE(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
    VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
    VALUE(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    VALUE(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
    VALUE(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION),
    VALUE(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION),
    VALUE(CU_STREAM_NON_BLOCKING),
    VALUE(CU_EVENT_DEFAULT),
    VALUE(NVRTC_SUCCESS),
    VALUE(NVRTC_ERROR_OUT_OF_MEMORY),
    VALUE(NVRTC_ERROR_INVALID_OPTION),
    VALUE(NVRTC_ERROR_COMPILATION),
    VALUE(NVRTC_ERROR_BUILTIN_OPERATION_FAILURE),
};

#ifndef THEIRS
int main(void) {
    int differences = 0;
    for (size_t i = 0; i < sizeof abi_ours / sizeof *abi_ours; i++)
        if (abi_ours[i].value != abi_theirs[i].value) {
            printf("%s: %zu here, %zu in NVIDIA's header\n", abi_ours[i].name, abi_ours[i].value,
                   abi_theirs[i].value);
            differences++;
        }
    return differences != 0;
}
#endif
