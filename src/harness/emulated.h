/*
 * Finds the emulator (src/emu) if it is this process's driver, and configures it.
 *
 * The environment variable SMELT_CUDA names the driver library, which is the emulator if it exports
 * emu_get.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "emu/emulator.h"

/* The emulator, or NULL if this process has another driver. The first call looks it up, so set
 * SMELT_CUDA before. Thread-safe. */
const struct emu_interface *smelt__emulator(void);

/* A problem with SMELT_EMU_SOURCE, known once the kernels are compiled; reported once. NULL: none. */
const char *smelt__emulator_source_problem(void);

/* For tests: the interface that smelt__emulator returns from now on. */
void smelt__emulator_use(const struct emu_interface *interface);

/* One of the permitted orders of a kernel's warps and asynchronous operations. */
struct smelt__schedule {
    enum emu_timing timing;
    enum emu_order order;
    uint64_t seed; /* for random timing and shuffled orders */
};

/* Schedule number 0, 1, ... of a check: the extreme ones first, then random ones from the check's
 * seed. */
struct smelt__schedule smelt__schedule_at(uint64_t seed, int number);

enum { SMELT__SCHEDULE_TEXT = 48 };

/* "late,ascending" or, where something is random, "random,shuffled,SEED"; and back: 0, or -1 with a
 * message that says what is legal. */
void smelt__schedule_print(struct smelt__schedule schedule, char text[SMELT__SCHEDULE_TEXT]);
int smelt__schedule_parse(const char *text, struct smelt__schedule *schedule, char *message,
                          size_t size);

/* Sets how the next launches run, on a device that runs kernels for `arch` ("sm_90a"). `seconds`:
 * the limit of a launch's processor time, which ends endless loops; 0: the emulator's default, for
 * small problems. */
void smelt__emulator_configure(const char *arch, struct smelt__schedule schedule, double seconds);
