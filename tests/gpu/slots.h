/* Index rows for tests of kernels that build lists from them. */
#pragma once

#include <limits.h>

#include "kernel_alone.h"

/* Contents of an index row. */
enum fill {
    DISTINCT,   /* valid rows, distinct if there are enough; some slots masked */
    ANY,        /* valid rows, masked slots in between */
    FEW,        /* few rows, repeated */
    ONE,        /* row 0 in every slot */
    LAST,       /* the table's last rows */
    CAUSAL,     /* rows up to the query's own number, ascending, the rest masked */
    NONE,       /* no valid slot */
    NEIGHBOURS, /* almost the same rows for neighbouring queries */
    FILLS
};

static inline int draw_masked(int rows) {
    const int masked[] = {-1, rows, INT_MIN, INT_MAX, rows < INT_MAX ? rows + 1 : -2};
    return rows == INT_MAX ? -1 - below(INT_MAX) : masked[below(5)];
}

/* A slot of rows of `width` slots, one row for each of `tokens` queries of each batch. */
static inline int draw_slot(enum fill fill, int rows, int width, int tokens, int64_t query,
                            int slot) {
    const int step = rows / width;
    if (rows == 0 || fill == NONE)
        return draw_masked(rows);
    switch (fill) {
    case ONE:
        return 0;
    case LAST:
        return rows - 1 - below(step < 2 ? rows : 2 * width);
    case FEW:
        return below(5) ? below(rows < 9 ? rows : 9) * (rows / 9) : draw_masked(rows);
    case CAUSAL:
        return slot <= query % tokens && slot < rows ? slot : draw_masked(rows);
    case NEIGHBOURS: /* in a different order, with a few different rows */
        return below(10) ? (int)((slot * 7LL + query) % (rows < width ? rows : width))
                         : below(rows);
    case DISTINCT:
        if (below(6) == 0)
            return draw_masked(rows);
        return step > 0 ? (int)((slot * 5LL % width) * step + query % step) : slot % rows;
    default:
        return below(4) ? below(rows) : draw_masked(rows);
    }
}
