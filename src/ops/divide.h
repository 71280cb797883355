/* Division as launches need it. */
#pragma once

#include <stdint.h>

/* value / by, rounded up; of value >= 0 and by > 0. */
static inline int64_t smelt__divide_up(int64_t value, int64_t by) {
    return (value + by - 1) / by;
}
