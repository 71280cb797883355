/* The families there are: one line each, here and in registry.c. */
#ifndef SMELT_CODEGEN_REGISTRY_H
#define SMELT_CODEGEN_REGISTRY_H

#include "codegen/family.h"

extern const struct smelt__family smelt__sparse_attn;
extern const struct smelt__family smelt__sparse_attn_fwd;
extern const struct smelt__family smelt__sparse_attn_partition;

#endif
