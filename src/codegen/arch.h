/*
 * GPU architectures and the limits a plan must respect. Source: CUDA C++ Programming Guide,
 * "Compute Capabilities", technical specifications per compute capability.
 */
#ifndef SMELT_CODEGEN_ARCH_H
#define SMELT_CODEGEN_ARCH_H

#include "codegen/text.h"

struct smelt__arch {
    const char *name; /* as the compiler's --gpu-architecture takes it: "sm_90a" */
    int capability_major, capability_minor;
    int shared_per_block;          /* bytes a block may ask for, opted in */
    int shared_per_multiprocessor; /* bytes, of which each resident block costs shared_reserved more
                                    */
    int shared_reserved;           /* bytes the driver keeps per resident block */
    int registers_per_multiprocessor;
    int threads_per_multiprocessor;
    int warpgroup_products; /* 1: has wgmma and setmaxnreg, which sm_90a alone has */
    int pdl;                /* 1: has programmatic dependent launch (griddepcontrol), 9.0 and up */
};

/* The architecture of that name, or NULL with a message naming what is known and the nearest. */
const struct smelt__arch *smelt__arch_find(const char *name, struct smelt__message *message);
/* The architecture kernels for a device of this capability are built for: 9.0 and up is the `a`
 * name. NULL with a message below 8.0. A capability newer than the table takes the newest entry of
 * the same major version that does not exceed it, without the `a` (binary compatible within a
 * major version); an unknown major is refused. */
const struct smelt__arch *smelt__arch_for_capability(int major, int minor,
                                                     struct smelt__message *message);
/* Number `index` of the table, NULL past the end. */
const struct smelt__arch *smelt__arch_at(int index);

#endif
