/*
 * The emulator's control interface: what a program that loaded it as its CUDA driver (SMELT_CUDA)
 * and its NVRTC (SMELT_NVRTC) can tell it and ask it, beyond what a driver offers. The library
 * exports one function, found by dlsym in the file SMELT_CUDA names:
 *
 *     const struct emu_interface *emu_get(void);
 *
 * One launch runs at a time; the interface is called from the thread that launches, or between
 * launches.
 *
 * SMELT_EMU_DEVICES of the environment is the number of devices, 1 to 8, by default 1. Each has its
 * primary context. Memory belongs to a device; a kernel that touches another device's memory is
 * reported (EMU_BOUNDS). Functions, streams and events belong to a context: a call that mixes two
 * contexts is refused (CUDA_ERROR_INVALID_HANDLE).
 */
#ifndef SMELT_EMU_EMULATOR_H
#define SMELT_EMU_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

/* When an asynchronous operation takes effect, of the moments the rules allow. */
enum emu_timing {
    EMU_LATE = 0,   /* at the wait that needs it, or when nothing else can run */
    EMU_EARLY = 1,  /* at once */
    EMU_RANDOM = 2, /* at any moment in between, by the seed */
};

/* Which of the threads that can run does. */
enum emu_order {
    EMU_ASCENDING = 0, /* the lowest warp first */
    EMU_DESCENDING = 1,
    EMU_SHUFFLED = 2, /* by the seed, changing places at every call into the emulator */
};

struct emu_settings {
    size_t size;         /* of this struct */
    int major, minor;    /* compute capability of the device; default 9.0 */
    int multiprocessors; /* default SMELT_EMU_MULTIPROCESSORS of the environment, or 2, so that a
                            persistent kernel goes round; device n has n more, so that a program
                            that asks the wrong device is seen */
    enum emu_timing timing;
    enum emu_order order;
    uint64_t seed;
    double seconds; /* processor time a launch may take; default 60 */
};

/* What a report is about. */
enum emu_kind {
    EMU_RACE = 0,      /* two threads, one location, no order between them */
    EMU_UNWAITED,      /* a destination read or written before the wait that covers its copy */
    EMU_OVERWRITTEN,   /* a source changed while an asynchronous operation may still read it */
    EMU_PROXY,         /* a fence between the generic and the async proxy is missing */
    EMU_REGISTERS,     /* registers of a wgmma touched while it runs, or without a fence */
    EMU_UNINITIALIZED, /* a read of shared memory that nobody wrote */
    EMU_BOUNDS,        /* outside the plan's map, of an argument buffer, of a register array */
    EMU_FORBIDDEN,     /* inside a range that emu_interface.forbid named */
    EMU_ALIGNMENT,     /* an address the instruction does not take */
    EMU_CONVERGENCE,   /* lanes of a warp disagree about a collective instruction */
    EMU_BARRIER,       /* misuse of a barrier: counts, phases, transaction bytes, lifetime */
    EMU_DEADLOCK,      /* nothing can run; who waits where */
    EMU_LEFTOVER,      /* a block ended with copies, products or barriers outstanding */
    EMU_ARITHMETIC,    /* signed overflow, a shift too far, a division by zero */
    EMU_ILLEGAL,       /* an operand or a state that the PTX ISA does not allow */
    EMU_CRASH,         /* the compiled kernel faulted */
    EMU_TIME,          /* it took longer than settings.seconds */
    EMU_STALE,         /* a read through L1, which may hold what stood there before */
    EMU_KINDS
};

struct emu_report {
    enum emu_kind kind;
    const char *text; /* complete sentences: what, where (array, address), who, source lines */
};

struct emu_statistics {
    uint64_t launches, blocks, instructions /* calls into the emulator */, accesses, reports;
};

struct emu_interface {
    size_t size; /* of this struct */

    /* Takes the settings from the next launch on; zero fields mean the defaults. The capability
     * counts when a context is made. */
    void (*configure)(const struct emu_settings *settings);

    /* Reports since the last clear, a few of each launch; `text` lives until the next clear.
     * A launch that made a report returned CUDA_ERROR_LAUNCH_FAILED (719); later ones run. */
    size_t (*report_count)(void);
    struct emu_report (*report)(size_t index);
    void (*clear)(void);

    /* "race", "deadlock", ...: for tables and JSON. */
    const char *(*kind_name)(enum emu_kind kind);

    /* Gives device memory a name in reports. The string is copied. */
    void (*name)(uint64_t pointer, const char *name);
    /* Any access to these bytes of device memory is a report. Freed memory forgets it; so does the
     * whole allocation that `pointer` lies in when `bytes` is 0. */
    void (*forbid)(uint64_t pointer, size_t bytes);
    /* Reserves device memory whose pages exist when touched, for tensors of many gigabytes with
     * little in them; freed by cuMemFree. 0 when there is no address space. */
    uint64_t (*reserve)(size_t bytes);

    void (*statistics)(struct emu_statistics *statistics);

    /* Memory of the host's that is the device's until it is taken back: a framework's CPU tensors,
     * for one call of an operator. Ranges may overlap; together they are one buffer, by the first
     * one's name. 0: there is no memory to keep track of it. Then take_back forgets all of them. */
    int (*lend)(uint64_t pointer, size_t bytes, const char *name);
    void (*take_back)(void);

    /* Whether several threads of a launch may write the same bytes of the allocation that `pointer`
     * lies in, in any order: results of an item that the launch has several times. Otherwise, and
     * where one reads what another writes, that is a race. */
    void (*rewritable)(uint64_t pointer, int may);

    /* As `reserve` and `lend`, which mean the device of the calling thread's current context, and
     * device 0 without one. Memory lent on one device cannot be lent on another as well (0). */
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
