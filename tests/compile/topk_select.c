/* The compile matrix's cells of topk_select. */
#include <stdio.h>

#include "cells.h"

/* The ends of each size of the list, and a topk that is no multiple of anything. */
static int odd_shape(int number, char *spec, size_t size) {
    static const int topk[] = {1, 512, 513, 1001, 2048, 2049, 4096};
    enum { COUNT = sizeof topk / sizeof topk[0] };
    if (number >= COUNT)
        return 0;
    snprintf(spec, size, "topk_select:topk=%d,order=%s", topk[number],
             number % 2 ? "score" : "index");
    return 1;
}

const struct compile_cells compile_cells_topk_select = {.shape = odd_shape};
