/* The stand-in's sparse_attn, between its files. */
#ifndef SMELT_TEST_STAND_IN_SPARSE_ATTN_H
#define SMELT_TEST_STAND_IN_SPARSE_ATTN_H

#include "smelt/sparse_attn.h"
#include "stand_in.h"

struct smelt_sparse_attn {
    smelt_sparse_attn_spec spec;
    char knobs[128];
};

#endif
