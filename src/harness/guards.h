/* The guard zones around outputs, and the bytes that outputs hold before a run: see placed.h. */
#pragma once

#include "ops/args_table.h"

enum { SMELT__GUARD = 4096 /* bytes before and after each output and the workspace */ };

/*
 * The byte that fills output elements of a type, their gaps and guards before run number `run`. It
 * forms a value that no kernel computes: NaN in bf16 and fp32; in e4m3 the NaN that no conversion
 * produces; in int32 neither an index, nor a length, nor -1. In int32 it alternates between runs.
 */
static inline int smelt__poison_of(enum smelt__element element, unsigned run) {
    return element != SMELT__INT32 ? 0xff : run % 2 ? 0xa5 : 0x80;
}
