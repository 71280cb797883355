/* The meaning of indexer_clean. */
#ifndef SMELT_REFERENCE_INDEXER_CLEAN_H
#define SMELT_REFERENCE_INDEXER_CLEAN_H

#include <stdint.h>

#include "smelt/indexer_clean.h"

/* Whether an element is to be filled. *args: host pointers. */
int smelt__indexer_clean_reference(const smelt_indexer_clean_args *args, int64_t query,
                                   int64_t key);

#endif
