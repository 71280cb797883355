/*
 * Kernels: plans turned into loaded functions, kept in the context's table, and their launch.
 */
#pragma once

#include <stdint.h>

#include "codegen/family.h"
#include "runtime/context.h"
#include "smelt/context.h"
#include "smelt/kernels.h"

struct CUstream_st;

/* A launch's attributes: the cluster's size, and programmatic dependent launch. */
enum smelt__attribute { SMELT__CLUSTER, SMELT__PDL, SMELT__ATTRIBUTES };

/* One loaded kernel. Owned by its context's table, which outlives operators; immutable once it is
 * handed out, so launching takes no lock. */
struct smelt__kernel {
    struct smelt__loaded loaded; /* first */
    void *function;              /* the driver's CUfunction */
    struct smelt__plan plan;     /* its own; a later plan of the same spec may differ, because
                                    tuning entries change */
    int threads, shared_bytes;
    int pdl;          /* 1: the architecture has programmatic dependent launch */
    const char *item; /* the unit that determines the grid (plan.h); NULL: none */
    int64_t blocks_per_item;
    int cluster;               /* blocks per cluster; 0: none */
    int64_t most_blocks;       /* maximum of a launch; INT32_MAX when not persistent */
    int64_t resident_blocks;   /* at once on the device, */
    int multiprocessor_blocks; /* and on one multiprocessor */
    CUlaunchAttribute attributes[SMELT__ATTRIBUTES]; /* the first: where there are clusters */
    smelt_kernel_info info;
};

/* Gets the cubin from the cache or the compiler, without loading it. The caller frees
 * compiled->cubin. `info` may be NULL; its strings are the context's. Threads of this process that
 * request the same key compile it once. */
smelt_status smelt__kernel_compile(smelt_context *context, const struct smelt__plan *plan,
                                   struct smelt__compiled *compiled, smelt_kernel_info *info);

/* What to do when another process is compiling the kernel. */
enum smelt__lock_policy {
    SMELT__LOCK_WAIT,  /* wait, until the cache's time-out */
    SMELT__LOCK_SKIP,  /* return with *busy set and no kernel */
    SMELT__LOCK_POLL,  /* the same, for a kernel that was busy before */
    SMELT__LOCK_IGNORE /* compile it as well */
};
/* smelt__kernel_compile with a lock policy. *busy is always set. */
smelt_status smelt__kernel_compile_unless(smelt_context *context, const struct smelt__plan *plan,
                                          enum smelt__lock_policy policy,
                                          struct smelt__compiled *compiled, smelt_kernel_info *info,
                                          int *busy);

/* The loaded kernel of a plan for this context's architecture. Thread-safe; threads that request
 * the same kernel load it once. */
smelt_status smelt__kernel_get(smelt_context *context, const struct smelt__plan *plan,
                               const struct smelt__kernel **kernel);

/* Plans and gets `count` kernels (at most SMELT__MAX_KERNELS) in parallel. On failure the status is
 * that of the lowest-numbered kernel that failed, and kernels[] is undefined. */
smelt_status smelt__kernels_get(smelt_context *context, const struct smelt__spec *specs, int count,
                                const struct smelt__kernel **kernels);

/* One launch. */
struct smelt__launch {
    uint32_t blocks[3]; /* the grid's extents, 1..2^31 - 1 in x, 2^16 - 1 in y and z; 0 in y and z
                           counts as 1. With clusters, x must be a multiple of their size */
    int pdl;            /* 1: with programmatic dependent launch, see below */
    const void *params; /* the params struct, copied before the call returns */
};

/*
 * Launches a kernel on a stream. The caller has called smelt__context_enter. No allocation, lock,
 * synchronisation or file access.
 *
 * Programmatic dependent launch (PDL): the kernel may start while the previous kernel in the stream
 * still runs, once all thread blocks of the previous kernel have executed
 * griddepcontrol.launch_dependents or ended. Before it accesses memory that earlier work may still
 * use it must execute griddepcontrol.wait, which waits until the previous kernel has ended and its
 * results are visible. The first kernel of a call may be launched with PDL, too, if it waits before
 * it reads or writes anything, as the forward kernels do. Below 9.0, which lacks PDL, `pdl` has no
 * effect: kernels run one after another.
 */
smelt_status smelt__kernel_launch(const smelt_context *context, const struct smelt__kernel *kernel,
                                  const struct smelt__launch *launch, struct CUstream_st *stream);

/* Sets `words` 32-bit words of device memory (4-byte aligned) on a stream, asynchronously;
 * capturable. The caller has called smelt__context_enter. */
smelt_status smelt__fill_async(const smelt_context *context, void *device, uint32_t word,
                               size_t words, struct CUstream_st *stream);
