/*
 * Kernels: plans turned into loaded functions, kept in the context's table, and their launch.
 */
#ifndef SMELT_RUNTIME_KERNEL_H
#define SMELT_RUNTIME_KERNEL_H

#include <stdint.h>

#include "codegen/family.h"
#include "runtime/context.h"
#include "smelt/context.h"
#include "smelt/kernels.h"

struct CUstream_st;

/* What launches say beside their shape: the kernel's cluster, and that they begin early. */
enum smelt__attribute { SMELT__CLUSTER, SMELT__EARLY, SMELT__ATTRIBUTES };

/* One loaded kernel. Owned by its context's table, which outlives operators; immutable once it is
 * handed out, so launching takes no lock. */
struct smelt__kernel {
    struct smelt__loaded loaded; /* first */
    void *function;              /* the driver's CUfunction */
    struct smelt__plan plan;     /* that it was made by. Another plan of its spec may differ: tuning
                                    entries come and go */
    int threads, shared_bytes;
    int may_be_early; /* the architecture knows such launches */
    const char *item; /* what a launch has blocks for (plan.h), NULL: none */
    int64_t blocks_per_item;
    int cluster;             /* blocks of a cluster, 0: none */
    int64_t most_blocks;     /* of a launch: more are never needed; INT32_MAX when not persistent */
    int64_t resident_blocks; /* the device holds at once, */
    int multiprocessor_blocks;                       /* of which one multiprocessor so many */
    CUlaunchAttribute attributes[SMELT__ATTRIBUTES]; /* the first: where there are clusters */
    smelt_kernel_info info;
};

/* Source, then cubin from cache or compiler, without loading it: *compiled is the caller's to free
 * (its cubin). `info` may be NULL; its strings are the context's. Two threads of this process
 * asking for one key compile it once.
 */
smelt_status smelt__kernel_compile(smelt_context *context, const struct smelt__plan *plan,
                                   struct smelt__compiled *compiled, smelt_kernel_info *info);

/* What to do about a kernel that another process is compiling. */
enum smelt__lock_policy {
    SMELT__WAIT,       /* wait for it, until the cache's time-out */
    SMELT__DO_ELSE,    /* come back with *busy set and nothing else */
    SMELT__POLL,       /* the same, of a kernel that was busy before */
    SMELT__COMPILE_TOO /* compile it here as well */
};
/* smelt__kernel_compile, which waits, with a choice. *busy is always set. */
smelt_status smelt__kernel_compile_unless(smelt_context *context, const struct smelt__plan *plan,
                                          enum smelt__lock_policy policy,
                                          struct smelt__compiled *compiled, smelt_kernel_info *info,
                                          int *busy);

/* The loaded kernel of a plan made for this context's architecture. Thread-safe; two threads asking
 * for one kernel load it once. */
smelt_status smelt__kernel_get(smelt_context *context, const struct smelt__plan *plan,
                               const struct smelt__kernel **kernel);

/* The plan of a kernel spec on the context's architecture, tuning entries and all (tuned.h), at
 * this moment. UNSUPPORTED with the reason. */
smelt_status smelt__kernel_plan(const smelt_context *context, const struct smelt__spec *spec,
                                struct smelt__plan *plan);

/* Plans and gets `count` kernels (at most SMELT__MAX_KERNELS) side by side; a failure is that of
 * the first of them that failed, and kernels[] then has no meaning. */
smelt_status smelt__kernels_get(smelt_context *context, const struct smelt__spec *specs, int count,
                                const struct smelt__kernel **kernels);

/* One launch. */
struct smelt__launch {
    uint32_t blocks[3]; /* the grid's extents, 1..2^31 - 1 in x, 2^16 - 1 in y and z; 0 in y and z
                           counts as 1. With clusters, x is a multiple of their size */
    int early;          /* 1: see below */
    int entered;        /* 1: the caller is within smelt__context_enter */
    const void *params; /* the one params struct: read before the call returns */
};

/*
 * Launches a kernel on a stream. No allocation, lock, synchronisation or file access. Makes the
 * context's CUDA context current when this thread has none or another and restores what was there.
 *
 * Early (programmatic dependent launch, PDL): the kernel may begin while the kernel before it in the
 * stream still runs, once all blocks of that one said so (griddepcontrol.launch_dependents) or
 * ended. Before it touches memory that earlier work may still use it must execute
 * griddepcontrol.wait, which waits for the end and the results of the kernel before it. So the first
 * kernel of a call may be launched early, too, if it waits before it reads or writes anything, as
 * the forward kernels do. Below 9.0, which has no such launch, the stream's plain order.
 */
smelt_status smelt__kernel_launch(const smelt_context *context, const struct smelt__kernel *kernel,
                                  const struct smelt__launch *launch, struct CUstream_st *stream);

/* Sets `words` 32-bit words of device memory (aligned to them) on a stream, without waiting: part
 * of a call as a kernel is, capturable. entered: as of a launch. */
smelt_status smelt__fill_async(const smelt_context *context, void *device, uint32_t word,
                               size_t words, int entered, struct CUstream_st *stream);

#endif
