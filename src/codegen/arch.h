/*
 * GPU architectures and the limits a plan must respect. Source: CUDA C++ Programming Guide,
 * "Compute Capabilities", technical specifications per compute capability.
 */
#pragma once

#include "codegen/text.h"

struct smelt__arch {
    const char *name; /* for the compiler's --gpu-architecture */
    int capability_major, capability_minor;
    int shared_per_block;          /* bytes per block with cuFuncSetAttribute */
    int shared_per_multiprocessor; /* bytes */
    int shared_reserved;           /* bytes of those that the driver reserves per resident block */
    int registers_per_multiprocessor;
    int threads_per_multiprocessor;
    int warpgroup_products; /* 1: has wgmma and setmaxnreg (sm_90a only) */
    int pdl;                /* 1: has programmatic dependent launch (griddepcontrol), 9.0 and up */
};

/* A GPU that an architecture may be named by. */
struct smelt__gpu {
    const char *name; /* "h100" */
    const char *arch; /* of its kernels, "sm_90a" */
};

/* The architecture of that name, or of the GPU of that name, in any case of letters; NULL with a
 * message that lists the known names and suggests one. */
const struct smelt__arch *smelt__arch_find(const char *name, struct smelt__message *message);
/* The architecture to build for on a device of this capability; from 9.0 on the `a` name. NULL with
 * a message below 8.0. A capability newer than the table gets the newest entry of the same major
 * version that does not exceed it, without the `a` (binary compatible within a major version); an
 * unknown major version is refused. */
const struct smelt__arch *smelt__arch_for_capability(int major, int minor,
                                                     struct smelt__message *message);
/* Entry `index` of the table; NULL past the end. */
const struct smelt__arch *smelt__arch_at(int index);
const struct smelt__gpu *smelt__gpu_at(int index);
