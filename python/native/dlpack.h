/*
 * The part of DLPack's C exchange interface (version 1.3, the capsule `__dlpack_c_exchange_api__`
 * of a tensor type) that reads a tensor and a device's current stream: PyTorch has it from 2.10 on.
 * It gives a tensor's address, shape and strides without a Python call and without PyTorch's
 * headers. The layouts are the standard's.
 */
#pragma once

#include <stdint.h>

enum { DLPACK_MAJOR = 1 };
enum { DLPACK_CPU = 1, DLPACK_CUDA = 2 };
enum {
    DLPACK_INT = 0,
    DLPACK_UINT = 1,
    DLPACK_FLOAT = 2,
    DLPACK_BFLOAT = 4,
    DLPACK_E4M3FN = 10,
};

struct dlpack_device {
    int32_t type, index;
};

struct dlpack_type {
    uint8_t code, bits;
    uint16_t lanes;
};

struct dlpack_tensor {
    void *data;
    struct dlpack_device device;
    int32_t dims;
    struct dlpack_type type;
    int64_t *sizes, *strides;
    uint64_t byte_offset;
};

struct dlpack_exchange {
    struct {
        uint32_t major, minor;
    } version;
    const struct dlpack_exchange *previous;
    void (*allocate)(void); /* these three are not used */
    void (*export_tensor)(void);
    void (*import_tensor)(void);
    int (*view)(void *object,
                struct dlpack_tensor *tensor); /* -1: with an exception; may be NULL */
    int (*current_stream)(int32_t device_type, int32_t device, void **stream);
};
