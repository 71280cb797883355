/* The kernel family key_grads_finish, for the operators sparse_attn and indexer_bwd. */
#pragma once

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__key_grads_finish;
