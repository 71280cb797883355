/* Generates, compiles and launches a micro-kernel on a GPU or on the emulator, with the driver and
 * the NVRTC that libsmelt opens. */
#pragma once

#include <stddef.h>

#include "emu/emulator.h"

#include "cases.h"

/* A case's CUDA text, freed by the caller; NULL with a message printed. */
char *micro_source(const struct micro_case *one);

/* Opens only NVRTC (device = 0), or also the driver, with device 0's primary context current. 0, or
 * -1 with a message printed. */
int micro_open(int device);
void micro_close(void);

/* The device's name and the compiler's version; "" before micro_open. */
const char *micro_description(void);

/* The emulator's control interface, or NULL on a GPU. */
const struct emu_interface *micro_emulator(void);

/* Compiles a case's kernel; kernels that cases share are compiled once. 0, or -1 with a message
 * printed. */
int micro_compile(const struct micro_case *one);

/* Runs a case; `out` receives its out_bytes. 0, or -1 with a message printed. */
int micro_run(const struct micro_case *one, void *out);
