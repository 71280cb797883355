/*
 * An architecture's limits for a kernel: registers per thread, shared memory per block. Also
 * the smallest excess over them in a search over configurations, for the message when none fits.
 */
#pragma once

#include <limits.h>

#include "codegen/arch.h"
#include "codegen/plan/plan.h"

enum {
    SMELT__WARP = 32,       /* threads */
    SMELT__WARPGROUP = 128, /* threads */
    SMELT__MMA_TILE = 16,   /* rows of an mma tile, columns of a k-step, keys of two n8 tiles */
    SMELT__TILE_ALIGNMENT = 1024, /* bytes of shared memory: the swizzle repeats every 1024 */
    SMELT__SMALL_ALIGNMENT = 128  /* likewise, of regions without tiles */
};

/* Registers per thread with `blocks` resident blocks of `threads` threads per multiprocessor. */
int smelt__registers_of_thread(const struct smelt__arch *arch, int threads, int blocks);
/* Bytes of shared memory per block with `blocks` resident blocks. */
int smelt__shared_of_block(const struct smelt__arch *arch, int blocks);

/* Sets the plan's threads, resident blocks and the resulting register limit, and adds the constants
 * THREADS and BLOCKS_PER_MULTIPROCESSOR (from the knobs `threads` and `blocks` in families that
 * have them). */
void smelt__plan_set_threads(struct smelt__plan *plan, int threads, int blocks);

/* For each limit: the need of the configuration that exceeds the limit least (INT_MAX: none exceeds it), and
 * the limit. */
struct smelt__excess {
    int shared_bytes, shared_limit;
    int registers, register_limit;
};

#define SMELT__NO_EXCESS                                                                           \
    { INT_MAX, 0, INT_MAX, 0 }

/* Whether a configuration with these needs fits; records the smallest excess. */
int smelt__limits_hold(const struct smelt__arch *arch, int threads, int blocks, int shared_bytes,
                       int registers, struct smelt__excess *excess);

/* Sets the message from the smallest excess. `less_shared`, `less_registers`: knobs that reduce the
 * need; `legal`: the legal knobs, for when no configuration got as far as a limit. */
void smelt__excess_explain(const struct smelt__excess *excess, const struct smelt__spec *spec,
                           const struct smelt__arch *arch, const char *less_shared,
                           const char *less_registers, const char *legal,
                           struct smelt__message *message);
