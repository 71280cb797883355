/*
 * The emulator (src/emu) as the driver of this process: found, and told how to run.
 *
 * The environment variable SMELT_CUDA names the driver library; it is the emulator when it exports
 * emu_get.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "emu/emulator.h"

/* The emulator this process's driver is, or NULL when it is another. Looked up at the first call:
 * SMELT_CUDA must be set before. Any thread. */
const struct emu_interface *smelt__emulator(void);

/* A problem with SMELT_EMU_SOURCE, known once the kernels are compiled; reported once. NULL: none. */
const char *smelt__emulator_source_problem(void);

/* For tests: the interface that smelt__emulator returns from now on. */
void smelt__emulator_use(const struct emu_interface *interface);

/* One way through a kernel among those the rules allow. */
struct smelt__schedule {
    enum emu_timing timing;
    enum emu_order order;
    uint64_t seed; /* of what is random or shuffled in it; else unused */
};

/* Schedule number 0, 1, ... of a check: the extremes first, then random ones by the check's seed.
 */
struct smelt__schedule smelt__schedule_at(uint64_t seed, int number);

enum { SMELT__SCHEDULE_TEXT = 48 };

/* "late,ascending" or, where something is random, "random,shuffled,SEED"; and back: 0, or -1 with a
 * message that says what is legal. */
void smelt__schedule_print(struct smelt__schedule schedule, char text[SMELT__SCHEDULE_TEXT]);
int smelt__schedule_parse(const char *text, struct smelt__schedule *schedule, char *message,
                          size_t size);

/* Sets how the next launches run, on a device that runs kernels for `arch` ("sm_90a"). `seconds` is
 * the processor time one may take, to end a loop without an end; 0: the emulator's own limit, which
 * is for small problems. */
void smelt__emulator_configure(const char *arch, struct smelt__schedule schedule, double seconds);
