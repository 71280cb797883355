/* What stands around and in outputs before a run: see placed.h. */
#ifndef SMELT_HARNESS_GUARDS_H
#define SMELT_HARNESS_GUARDS_H

#include "ops/tensors.h"

enum { SMELT__GUARD = 4096 /* bytes before and behind an output, and the workspace */ };

/*
 * The byte that output elements of a type, their gaps and guards hold before run number `run`. What
 * such bytes make is no result: NaN as bf16 and fp32; as e4m3 the NaN that no conversion makes; as
 * int32 neither an index, nor a length, nor -1, and in every second run another number.
 */
static inline int smelt__poison_of(enum smelt__element element, unsigned run) {
    return element != SMELT__INT32 ? 0xff : run % 2 ? 0xa5 : 0x80;
}

#endif
