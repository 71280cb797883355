/* What the kernel family sparse_attn_partition and its callers agree on. */
#pragma once

#include "codegen/family.h"

extern const struct smelt__kernel_family smelt__sparse_attn_partition;

/* Values of the key `pass`. */
enum smelt__partition_pass { SMELT__PARTITION_COUNT = 0, SMELT__PARTITION_PLACE };

/* Threads of a block, on every architecture: what a block is given to do follows from them. */
enum { SMELT__PARTITION_COUNT_THREADS = 256, SMELT__PARTITION_PLACE_THREADS = 256 };
