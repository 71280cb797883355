/*
 * What an architecture leaves a kernel: registers of a thread, shared memory of a block. And the
 * nearest misses of a search among configurations, for the message when none fits.
 */
#ifndef SMELT_CODEGEN_LIMITS_H
#define SMELT_CODEGEN_LIMITS_H

#include "codegen/arch.h"
#include "codegen/plan/plan.h"

/* With so many blocks of so many threads resident on a multiprocessor. */
int smelt__registers_of_thread(const struct smelt__arch *arch, int threads, int blocks);
/* With so many resident blocks: bytes, of a block. */
int smelt__shared_of_block(const struct smelt__arch *arch, int blocks);

/* Sets the plan's threads, resident blocks and the registers that leaves, and adds the constants
 * THREADS and BLOCKS_PER_MULTIPROCESSOR, which are knobs, `threads` and `blocks`, of the families
 * that have them. */
void smelt__plan_set_threads(struct smelt__plan *plan, int threads, int blocks);

/* Refuses variant sm90 where there is no wgmma: -1, else 0. */
int smelt__refuse_without_warpgroups(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                     struct smelt__message *message);

struct smelt__misses {
    int shared_bytes; /* of the configuration that missed its limit by least; INT_MAX: none */
    int shared_limit; /* the limit it missed */
    int registers;    /* likewise, registers */
    int register_limit;
};

#define SMELT__NO_MISSES                                                                           \
    { INT_MAX, 0, INT_MAX, 0 }

/* Whether a configuration fits that needs so much; notes a miss that is nearer than those before.
 */
int smelt__limits_hold(const struct smelt__arch *arch, int threads, int blocks, int shared_bytes,
                       int registers, struct smelt__misses *misses);

/* Says what the nearest miss lacked. `less_shared`, `less_registers`: knobs by which less is
 * needed; `legal`: what knobs must be, for when nothing came so far as to miss a limit. */
void smelt__misses_explain(const struct smelt__misses *misses, const struct smelt__spec *spec,
                           const struct smelt__arch *arch, const char *less_shared,
                           const char *less_registers, const char *legal,
                           struct smelt__message *message);

#endif
