/* Loops over all processors, for making and checking large problems. */
#pragma once

#include <stdint.h>

/* Works on [begin, end); called from several threads at once. */
typedef void (*smelt__range_function)(void *user, int64_t begin, int64_t end);

/* Covers [0, count) with ranges of `grain` (1 and up), which threads take as they become free.
 * Returns when all are done. If no threads can be created, the caller's thread does the work. */
void smelt__parallel_for(int64_t count, int64_t grain, smelt__range_function each, void *user);
