/*
 * A CUDA driver without a device, for tests: a shared library with the exports that
 * src/runtime/driver/driver.c looks for. It records its calls, fails a selected one, and counts
 * live objects. Tests reach its state through dlsym("fake_driver_state").
 */
#pragma once

#include <stdatomic.h>

#include "runtime/driver/cuda_abi.h"
#include "runtime/tensor_map.h"

enum { FAKE_LOGGED = 256, FAKE_CALL = 48, FAKE_PARAMS = 64, FAKE_UNKNOWN_ERROR = 999 };
enum { FAKE_CHAIN = 48, FAKE_CHAIN_PARAMS = 512 };

/* One of the launches since the test last set `chain_length` to 0. */
struct fake_launch {
    CUfunction function;
    unsigned blocks, threads, cluster;       /* 0: no cluster attribute */
    int pdl;                                 /* programmatic dependent launch */
    unsigned char params[FAKE_CHAIN_PARAMS]; /* the first `chain_params` bytes */
};

struct fake_driver {
    atomic_int calls;   /* since the test last set it to 0 */
    atomic_int fail_at; /* number of the call that fails; 0: none */
    int fail_with;
    char log[FAKE_LOGGED][FAKE_CALL]; /* names of the first calls */
    /* Alive now. */
    atomic_int modules, retained, allocations, streams, events;
    atomic_int loads;              /* modules loaded in total */
    atomic_int reject_images;      /* so many further loads are refused as invalid images */
    unsigned long long context_id; /* of the primary context; another value: it was reset */
    CUcontext destroyed;           /* a destroyed context, or NULL */
    int devices, capability_major, capability_minor, version, multiprocessors;
    CUstream stream;   /* the stream expected for launches and fills */
    atomic_int strays; /* number of launches and fills on another stream */
    int no_fills;      /* fills write nothing, else their first and last word */
    int fills;         /* since the test last set it to 0; of the last one: */
    CUdeviceptr filled;
    size_t filled_words;
    atomic_int shared_bytes; /* last value of cuFuncSetAttribute */
    CUlaunchConfig launch;
    CUlaunchAttribute attributes[4]; /* the launch's; its own copy is gone by now */
    struct smelt__tensor_box box;    /* the last tensor described; strides in bytes */
    CUfunction launched;
    unsigned char params[FAKE_PARAMS]; /* the first bytes of the launched params struct */
    CUcontext launch_context;          /* current at the launch */
    struct fake_launch chain[FAKE_CHAIN];
    int chain_length;
    long launches;       /* since the test last set it to 0; */
    long most_launches;  /* further ones fail with `fail_with`; 0: no limit */
    size_t chain_params; /* bytes to keep of a params struct, at most FAKE_CHAIN_PARAMS, */
    int chain_from;      /* of the launches from this number on */
};

typedef struct fake_driver *(*fake_driver_function)(void);
/* "fake_driver_current": this thread's current context; not counted as a call. */
typedef CUcontext (*fake_driver_current_function)(void);
