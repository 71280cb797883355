/* See limits.h. */
#include "codegen/plan/limits.h"

#include <stdio.h>

enum {
    SCHEDULERS = 4,     /* per multiprocessor, each with a quarter of its registers */
    REGISTER_STEP = 8,  /* allocation unit per thread */
    MAX_REGISTERS = 255 /* per thread, on all architectures */
};

int smelt__registers_of_thread(const struct smelt__arch *arch, int threads, int blocks) {
    /* Warps of the scheduler with the most. */
    const int warps = (threads * blocks / SMELT__WARP + SCHEDULERS - 1) / SCHEDULERS;
    const int share = arch->registers_per_multiprocessor / (SCHEDULERS * warps * SMELT__WARP) /
                      REGISTER_STEP * REGISTER_STEP;
    return share < MAX_REGISTERS ? share : MAX_REGISTERS;
}

int smelt__shared_of_block(const struct smelt__arch *arch, int blocks) {
    const int share = arch->shared_per_multiprocessor / blocks - arch->shared_reserved;
    return share < arch->shared_per_block ? share : arch->shared_per_block;
}

/* The knob's origin in families that have it; else derived. */
static enum smelt__origin origin_of(const struct smelt__plan *plan, const char *knob) {
    return smelt__spec_key(plan->spec.schema, knob) < 0 ? SMELT__DERIVED
                                                        : smelt__plan_origin(&plan->spec, knob);
}

void smelt__plan_set_threads(struct smelt__plan *plan, int threads, int blocks) {
    plan->threads = threads;
    plan->blocks_per_multiprocessor = blocks;
    plan->max_registers = smelt__registers_of_thread(plan->arch, threads, blocks);
    smelt__plan_add(plan, "THREADS", threads, origin_of(plan, "threads"),
                    "threads of a thread block");
    smelt__plan_add(plan, "BLOCKS_PER_MULTIPROCESSOR", blocks, origin_of(plan, "blocks"),
                    "thread blocks resident at once, at least");
}

int smelt__limits_hold(const struct smelt__arch *arch, int threads, int blocks, int shared_bytes,
                       int registers, struct smelt__excess *excess) {
    const int shared_limit = smelt__shared_of_block(arch, blocks);
    const int register_limit = smelt__registers_of_thread(arch, threads, blocks);
    if (shared_bytes > shared_limit) {
        if (excess->shared_bytes == INT_MAX ||
            shared_bytes - shared_limit < excess->shared_bytes - excess->shared_limit) {
            excess->shared_bytes = shared_bytes;
            excess->shared_limit = shared_limit;
        }
        return 0;
    }
    if (registers <= register_limit)
        return 1;
    if (registers < excess->registers) {
        excess->registers = registers;
        excess->register_limit = register_limit;
    }
    return 0;
}

static int has_knobs(const struct smelt__spec *spec) {
    for (int i = 0; i < spec->schema->key_count; i++)
        if (spec->schema->keys[i].knob && spec->values[i] != SMELT__AUTO)
            return 1;
    return 0;
}

/* A knob is at fault, or the shape itself is too large for the architecture. */
void smelt__excess_explain(const struct smelt__excess *excess, const struct smelt__spec *spec,
                           const struct smelt__arch *arch, const char *less_shared,
                           const char *less_registers, const char *legal,
                           struct smelt__message *message) {
    const int knobs = has_knobs(spec);
    char text[SMELT__SPEC_TEXT], remedy[160] = "; a smaller shape may fit";
    smelt__spec_print(spec, text);
    if (excess->registers != INT_MAX) {
        if (knobs)
            snprintf(remedy, sizeof remedy,
                     " with these knobs; %s need fewer, auto finds a value that fits",
                     less_registers);
        smelt__message_set(message, "%s: needs %d registers per thread, but has only %d on %s%s",
                           text, excess->registers, excess->register_limit, arch->name, remedy);
    } else if (excess->shared_bytes != INT_MAX) {
        if (knobs)
            snprintf(remedy, sizeof remedy,
                     " with these knobs; %s need less, auto finds a value that fits", less_shared);
        smelt__message_set(message, "%s: needs %.1f KB of shared memory per block, %s has %.1f%s",
                           text, excess->shared_bytes / 1024.0, arch->name,
                           excess->shared_limit / 1024.0, remedy);
    } else {
        smelt__message_set(message, "%s: no kernel has these knobs: %s; auto finds values that fit",
                           text, legal);
    }
}
