/* The meaning of the operator indexer_windows (docs/operators.md), in scalar C. */
#ifndef SMELT_REFERENCE_INDEXER_WINDOWS_H
#define SMELT_REFERENCE_INDEXER_WINDOWS_H

#include <stdint.h>

#include "smelt/indexer_windows.h"

/* The window of query number `query`. *args: with host pointers. */
void smelt__indexer_windows_reference(const smelt_indexer_windows_args *args, int64_t query,
                                      int64_t *begin, int64_t *end);

#endif
