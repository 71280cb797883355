/* Compares src/runtime/driver/cuda_abi.h, included under other names, with NVIDIA's headers; built
 * if they are installed. */
#define CUresult smelt_CUresult
#define CUdevice smelt_CUdevice
#define CUdeviceptr smelt_CUdeviceptr
#define CUcontext smelt_CUcontext
#define CUmodule smelt_CUmodule
#define CUfunction smelt_CUfunction
#define CUstream smelt_CUstream
#define CUevent smelt_CUevent
#define CUlaunchConfig_st smelt_CUlaunchConfig_st
#define CUlaunchConfig smelt_CUlaunchConfig
#define CUlaunchAttributeValue_union smelt_CUlaunchAttributeValue_union
#define CUlaunchAttributeValue smelt_CUlaunchAttributeValue
#define CUlaunchAttribute_st smelt_CUlaunchAttribute_st
#define CUlaunchAttribute smelt_CUlaunchAttribute
#define nvrtcResult smelt_nvrtcResult
#define nvrtcProgram smelt_nvrtcProgram
#define CUDA_SUCCESS OURS_SUCCESS
#define CUDA_ERROR_OUT_OF_MEMORY OURS_OUT_OF_MEMORY
#define CUDA_ERROR_NO_DEVICE OURS_NO_DEVICE
#define CUDA_ERROR_INVALID_DEVICE OURS_INVALID_DEVICE
#define CUDA_ERROR_INVALID_IMAGE OURS_INVALID_IMAGE
#define CUDA_ERROR_INVALID_CONTEXT OURS_INVALID_CONTEXT
#define CUDA_ERROR_NO_BINARY_FOR_GPU OURS_NO_BINARY_FOR_GPU
#define CUDA_ERROR_INVALID_SOURCE OURS_INVALID_SOURCE
#define CUDA_ERROR_NOT_FOUND OURS_NOT_FOUND
#define CUDA_ERROR_CONTEXT_IS_DESTROYED OURS_CONTEXT_IS_DESTROYED
#define CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT OURS_MULTIPROCESSOR_COUNT
#define CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR OURS_CAPABILITY_MAJOR
#define CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR OURS_CAPABILITY_MINOR
#define CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES OURS_MAX_DYNAMIC_SHARED
#define CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION OURS_CLUSTER_DIMENSION
#define CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION OURS_PROGRAMMATIC_SERIALIZATION
#define CU_STREAM_NON_BLOCKING OURS_STREAM_NON_BLOCKING
#define CU_EVENT_DEFAULT OURS_EVENT_DEFAULT
#define NVRTC_SUCCESS OURS_NVRTC_SUCCESS
#define NVRTC_ERROR_OUT_OF_MEMORY OURS_NVRTC_OUT_OF_MEMORY
#define NVRTC_ERROR_INVALID_OPTION OURS_NVRTC_INVALID_OPTION
#define NVRTC_ERROR_COMPILATION OURS_NVRTC_COMPILATION
#define NVRTC_ERROR_BUILTIN_OPERATION_FAILURE OURS_NVRTC_BUILTIN
#include "runtime/driver/cuda_abi.h"
#undef CUresult
#undef CUdevice
#undef CUdeviceptr
#undef CUcontext
#undef CUmodule
#undef CUfunction
#undef CUstream
#undef CUevent
#undef CUlaunchConfig_st
#undef CUlaunchConfig
#undef CUlaunchAttributeValue_union
#undef CUlaunchAttributeValue
#undef CUlaunchAttribute_st
#undef CUlaunchAttribute
#undef nvrtcResult
#undef nvrtcProgram
#undef CUDA_SUCCESS
#undef CUDA_ERROR_OUT_OF_MEMORY
#undef CUDA_ERROR_NO_DEVICE
#undef CUDA_ERROR_INVALID_DEVICE
#undef CUDA_ERROR_INVALID_IMAGE
#undef CUDA_ERROR_INVALID_CONTEXT
#undef CUDA_ERROR_NO_BINARY_FOR_GPU
#undef CUDA_ERROR_INVALID_SOURCE
#undef CUDA_ERROR_NOT_FOUND
#undef CUDA_ERROR_CONTEXT_IS_DESTROYED
#undef CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
#undef CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
#undef CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
#undef CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
#undef CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
#undef CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
#undef CU_STREAM_NON_BLOCKING
#undef CU_EVENT_DEFAULT
#undef NVRTC_SUCCESS
#undef NVRTC_ERROR_OUT_OF_MEMORY
#undef NVRTC_ERROR_INVALID_OPTION
#undef NVRTC_ERROR_COMPILATION
#undef NVRTC_ERROR_BUILTIN_OPERATION_FAILURE

#include <cuda.h>
#include <nvrtc.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
#define SAME_FIELD(field)                                                                          \
    _Static_assert(offsetof(smelt_CUlaunchConfig, field) == offsetof(CUlaunchConfig, field) &&     \
                       sizeof(((smelt_CUlaunchConfig *)0)->field) ==                               \
                           sizeof(((CUlaunchConfig *)0)->field),                                   \
                   #field)

SAME(sizeof(smelt_CUlaunchConfig), sizeof(CUlaunchConfig));
SAME_FIELD(gridDimX);
SAME_FIELD(gridDimY);
SAME_FIELD(gridDimZ);
SAME_FIELD(blockDimX);
SAME_FIELD(blockDimY);
SAME_FIELD(blockDimZ);
SAME_FIELD(sharedMemBytes);
SAME_FIELD(hStream);
SAME_FIELD(attrs);
SAME_FIELD(numAttrs);
SAME(sizeof(smelt_CUlaunchAttribute), sizeof(CUlaunchAttribute));
SAME(_Alignof(smelt_CUlaunchAttribute), _Alignof(CUlaunchAttribute));
SAME(offsetof(smelt_CUlaunchAttribute, id), offsetof(CUlaunchAttribute, id));
SAME(offsetof(smelt_CUlaunchAttribute, value), offsetof(CUlaunchAttribute, value));
SAME(OURS_CLUSTER_DIMENSION, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(OURS_PROGRAMMATIC_SERIALIZATION, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME(sizeof(smelt_CUresult), sizeof(CUresult));
SAME(sizeof(smelt_CUdevice), sizeof(CUdevice));
SAME(sizeof(smelt_CUdeviceptr), sizeof(CUdeviceptr));
SAME(sizeof(smelt_nvrtcResult), sizeof(nvrtcResult));
SAME(OURS_SUCCESS, CUDA_SUCCESS);
SAME(OURS_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(OURS_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(OURS_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(OURS_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(OURS_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(OURS_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(OURS_INVALID_SOURCE, CUDA_ERROR_INVALID_SOURCE);
SAME(OURS_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(OURS_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(OURS_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(OURS_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(OURS_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(OURS_MAX_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(OURS_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(OURS_EVENT_DEFAULT, CU_EVENT_DEFAULT);
SAME(OURS_NVRTC_SUCCESS, NVRTC_SUCCESS);
SAME(OURS_NVRTC_OUT_OF_MEMORY, NVRTC_ERROR_OUT_OF_MEMORY);
SAME(OURS_NVRTC_INVALID_OPTION, NVRTC_ERROR_INVALID_OPTION);
SAME(OURS_NVRTC_COMPILATION, NVRTC_ERROR_COMPILATION);
SAME(OURS_NVRTC_BUILTIN, NVRTC_ERROR_BUILTIN_OPERATION_FAILURE);

int main(void) {
    return 0;
}
