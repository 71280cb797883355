/* The kernel family indexer_bwd_lists, for the operator. */
#pragma once

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__indexer_bwd_lists;
