/*
 * The emulator's control interface, beyond the CUDA driver's functions, for a program that loaded
 * the emulator as its CUDA driver (SMELT_CUDA) and NVRTC (SMELT_NVRTC). It exports one function,
 * found by dlsym in the library that SMELT_CUDA names:
 *
 *     const struct emu_interface *emu_get(void);
 *
 * One launch runs at a time; call the interface from the launching thread or between launches.
 *
 * The environment variable SMELT_EMU_DEVICES sets the number of devices, 1 to 8, by default 1. Each
 * has a primary context. Memory belongs to a device; a kernel that touches another device's memory
 * is reported (EMU_BOUNDS). Functions, streams and events belong to a context: a call that mixes
 * two contexts is refused (CUDA_ERROR_INVALID_HANDLE).
 */
#ifndef SMELT_EMU_EMULATOR_H
#define SMELT_EMU_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

/* When an asynchronous operation takes effect, within the rules. */
enum emu_timing {
    EMU_LATE = 0,   /* at the wait that needs it, or when no thread can run */
    EMU_EARLY = 1,  /* at once */
    EMU_RANDOM = 2, /* at any moment in between, by the seed */
};

/* The order in which runnable threads run. */
enum emu_order {
    EMU_ASCENDING = 0, /* the lowest warp first */
    EMU_DESCENDING = 1,
    EMU_SHUFFLED = 2, /* by the seed; may switch at every call into the emulator */
};

struct emu_settings {
    size_t size;         /* of this struct */
    int major, minor;    /* compute capability of the device; default 9.0 */
    int multiprocessors; /* default: environment variable SMELT_EMU_MULTIPROCESSORS, or 2, so that a
                          * persistent kernel runs several items per block. Device n has n more,
                          * which exposes a program that asks the wrong device */
    enum emu_timing timing;
    enum emu_order order;
    uint64_t seed;
    double seconds; /* limit of a launch's processor time; default 60 */
};

/* Kinds of reports. */
enum emu_kind {
    EMU_RACE = 0,      /* unordered accesses of two threads to one location */
    EMU_UNWAITED,      /* a destination read or written before the wait that covers its copy */
    EMU_OVERWRITTEN,   /* a source written while an asynchronous operation may still read it */
    EMU_PROXY,         /* a fence between the generic and the async proxy is missing */
    EMU_REGISTERS,     /* registers of a wgmma touched while it runs, or without a fence */
    EMU_UNINITIALIZED, /* a read of shared memory that was never written */
    EMU_BOUNDS,        /* outside the plan's map, a buffer or a register array */
    EMU_FORBIDDEN,     /* inside a range that emu_interface.forbid named */
    EMU_ALIGNMENT,     /* a misaligned address */
    EMU_CONVERGENCE,   /* lanes of a warp diverge at a collective instruction */
    EMU_BARRIER,       /* misuse of a barrier: counts, phases, transaction bytes, lifetime */
    EMU_DEADLOCK,      /* no thread can run; lists the waiting threads */
    EMU_LEFTOVER,      /* a block ended with asynchronous operations outstanding */
    EMU_ARITHMETIC,    /* signed overflow, an invalid shift, a division by zero */
    EMU_ILLEGAL,       /* an operand or a state that the PTX ISA does not allow */
    EMU_CRASH,         /* the compiled kernel faulted */
    EMU_TIME,          /* the launch took longer than settings.seconds */
    EMU_STALE,         /* a read through L1, which may hold an older value */
    EMU_KINDS
};

struct emu_report {
    enum emu_kind kind;
    const char *text; /* what, where (array, address), thread, source lines */
};

struct emu_statistics {
    uint64_t launches, blocks, instructions /* calls into the emulator */, accesses, reports;
};

struct emu_interface {
    size_t size; /* of this struct */

    /* Settings for the next launches; zero fields mean the defaults. The compute capability takes
     * effect when a context is created. */
    void (*configure)(const struct emu_settings *settings);

    /* Reports since the last clear, a few per launch; `text` lives until the next clear. A launch
     * that caused a report returned CUDA_ERROR_LAUNCH_FAILED (719); later launches run. */
    size_t (*report_count)(void);
    struct emu_report (*report)(size_t index);
    void (*clear)(void);

    /* "race", "deadlock", ...: for tables and JSON. */
    const char *(*kind_name)(enum emu_kind kind);

    /* Gives device memory a name in reports. The string is copied. */
    void (*name)(uint64_t pointer, const char *name);
    /* Reports any access to these bytes of device memory. Ends when the memory is freed, or for the
     * whole allocation that contains `pointer` when `bytes` is 0. */
    void (*forbid)(uint64_t pointer, size_t bytes);
    /* Reserves sparse device memory, whose pages exist once touched, for tensors of many gigabytes
     * with little data; freed by cuMemFree. 0 when there is no address space. */
    uint64_t (*reserve)(size_t bytes);

    void (*statistics)(struct emu_statistics *statistics);

    /* Lends host memory to the device until it is taken back: a framework's CPU tensors for one
     * call of an operator. Overlapping ranges become one buffer with the first one's name. 0: out
     * of memory for tracking it. take_back ends all loans. */
    int (*lend)(uint64_t pointer, size_t bytes, const char *name);
    void (*take_back)(void);

    /* Allows several threads of a launch to write the same bytes of the allocation that contains
     * `pointer`, for results of an item that the launch computes several times. Without this such
     * writes are a race; a read by another thread always is. */
    void (*rewritable)(uint64_t pointer, int may);

    /* Like `reserve` and `lend`, which use the device of the calling thread's context or device 0.
     * Memory lent to one device cannot be lent to another as well (0). */
    uint64_t (*reserve_on)(int device, size_t bytes);
    int (*lend_on)(int device, uint64_t pointer, size_t bytes, const char *name);

    /* Simulates a slow producer: an operation already on the stream (an existing CUstream) still
     * reads and writes the whole allocation that contains `pointer`. It ends when other work follows
     * it on the stream, when the host waits for the stream, or when the host writes the memory.
     * Until then an access is a race if it comes from a kernel on another stream, or from a kernel
     * launched with PDL that has not waited. */
    void (*produce)(uint64_t pointer, void *stream);
};

typedef const struct emu_interface *(*emu_get_function)(void);

/* A second exported function: checks that SMELT_EMU_SOURCE was used. Returns NULL, or a sentence if
 * this process compiled kernels, but not the one in that file. Reports the problem once; if a
 * program never calls it, the emulator prints the problem to standard error at exit. */
typedef const char *(*emu_source_problem_function)(void);

#endif
