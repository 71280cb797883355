/* The rig's own parts, for rig.c and tensors.c. */
#ifndef PEERS_INTERNAL_H
#define PEERS_INTERNAL_H

#include "rig.h"
#include "runtime/context.h"

enum peers_kernel { PEERS_FILL, PEERS_LISTS, PEERS_REFERENCE, PEERS_COMPARE, PEERS_KERNELS };

struct peers_rig {
    smelt_context *context;
    struct CUstream_st *stream;
    CUmodule module; /* kernels.cu */
    CUfunction kernels[PEERS_KERNELS];
    int entered, pushed; /* the CUDA context, by peers_open */
    char machine[320];
    struct peers_made *made; /* operators, by contender and shape */
    int made_count;
};

int peers_fail_smelt(const char *what); /* with the library's message */
int peers_launch(struct peers_rig *rig, enum peers_kernel kernel, unsigned blocks,
                 void **parameters);
int peers_wait(struct peers_rig *rig);

#endif
