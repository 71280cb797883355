/* What the operator indexer_windows and its kernel family agree on. */
#ifndef SMELT_CODEGEN_INDEXER_WINDOWS_H
#define SMELT_CODEGEN_INDEXER_WINDOWS_H

#include "codegen/family.h"

extern const struct smelt__operator_family smelt__indexer_windows;
extern const struct smelt__kernel_family smelt__indexer_windows_build;

#endif
