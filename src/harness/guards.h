/* What stands around and in outputs before a run: see placed.h. */
#ifndef SMELT_HARNESS_GUARDS_H
#define SMELT_HARNESS_GUARDS_H

#include "ops/tensors.h"

enum { SMELT__GUARD = 4096 /* bytes before and behind an output, and the workspace */ };

/*
 * The byte that output elements of a type, their gaps and guards hold before run number `run`. What
 * four or two such bytes are is no result: NaN as bf16 and fp32; as int32 neither an index, nor a
 * length, nor -1; as e4m3 NaN, of which a conversion makes 0x7f alone. Where more than one byte
 * will do, runs take turns: an element that is never written differs from run to run.
 */
static inline int smelt__poison_of(enum smelt__element element, unsigned run) {
    switch (element) {
    case SMELT__INT32:
        return run % 2 ? 0xa5 : 0x80;
    case SMELT__E4M3:
        return run % 2 ? 0x7f : 0xff;
    default:
        return 0xff;
    }
}

#endif
