/* The kernel family key_grads_finish, for the operators sparse_attn and indexer_bwd. */
#ifndef SMELT_CODEGEN_KEY_GRADS_FINISH_H
#define SMELT_CODEGEN_KEY_GRADS_FINISH_H

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__key_grads_finish;

#endif
