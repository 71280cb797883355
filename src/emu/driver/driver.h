/*
 * The CUDA driver's entry points over the emulator: one device, one context, streams and events
 * that are always done. Values of the driver API's reference manual. Calls may come from several
 * threads; one lock makes them one after another.
 */
#ifndef SMELT_EMU_DRIVER_H
#define SMELT_EMU_DRIVER_H

#include <pthread.h>

#include "emu/machine/machine.h"
#include "runtime/driver/cuda_abi.h"

enum { /* of cuda.h, beside those the library uses */
       ERROR_INVALID_VALUE = 1,
       ERROR_NOT_FOUND = 500,
       ERROR_LAUNCH_FAILED = 719,
       ERROR_NOT_SUPPORTED = 801,
       ERROR_INVALID_CLUSTER_SIZE = 912,
};

extern pthread_mutex_t emu_driver_lock;

/* ---- the device (device.c) ------------------------------------------------------------------- */

enum { MOST_MULTIPROCESSORS = 1024 }; /* more than any GPU has */

extern const char emu_multiprocessors_variable[];
/* How many multiprocessors the environment asks for; 0: it does not, -1: its text is no such
 * number. */
int emu_named_multiprocessors(void);
/* Fills in what the settings leave open. */
void emu_default_settings(void);

/* ---- contexts (context.c) -------------------------------------------------------------------- */

/* Whether the calling thread has a current one. */
bool emu_context_is_current(void);

/* ---- modules (module.c) ---------------------------------------------------------------------- */

struct CUmod_st { /* a function handle is its module's */
    void *library;
    int memory; /* the file the object lies in */
    struct kernel kernel;
    const char *name;
    unsigned cluster[3];     /* of __cluster_dims__; 0: the kernel does not say */
    unsigned dynamic_shared; /* bytes a launch may ask for */
};

/* ---- errors (error.c) ------------------------------------------------------------------------ */

/* How the last launch was refused, with a report; CUDA_SUCCESS: it was not. */
void emu_note_refusal(CUresult result);

#endif
