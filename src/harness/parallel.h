/* Loops over all processors, for making and checking large problems. */
#pragma once

#include <stdint.h>

/* Works on [begin, end); called from several threads at once. */
typedef void (*smelt__range_function)(void *user, int64_t begin, int64_t end);

/* Covers [0, count) by ranges of `grain` (1 and up), handed out as threads become free. Returns
 * when all are done. When threads cannot be made, the caller's does the work alone. */
void smelt__parallel_for(int64_t count, int64_t grain, smelt__range_function each, void *user);
