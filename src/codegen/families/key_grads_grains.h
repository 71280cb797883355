/* The kernel family key_grads_grains, for the operators that use it. */
#pragma once

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__key_grads_grains;

/* Values of the key `pass`, in launch order. */
enum smelt__key_grads_grains_pass {
    SMELT__GRAINS_REACH,
    SMELT__GRAINS_BOUNDS,
    SMELT__GRAINS_GRAINS,
    SMELT__GRAINS_TOTALS, /* after the main kernel, where that is launched several times */
    SMELT__GRAINS_BINS    /* only in sparse_gqa */
};
