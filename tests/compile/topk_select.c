/* The compile matrix's cells of topk_select. */
#include <stdio.h>

#include "cells.h"

/* The ends of each size of the list, and a topk that is no multiple of anything; what lists hold. */
static int odd_shape(int number, char *spec, size_t size) {
    static const int topk[] = {1, 512, 513, 1001, 2048, 2049, 4096};
    static const char *const lists[] = {"topk=7200", "topk=512,expand=4,tail=1,groups=4,pinned=1",
                                        "topk=16,dtype=bf16,expand=128,pinned=16"};
    enum { COUNT = sizeof topk / sizeof topk[0], LISTS = sizeof lists / sizeof lists[0] };
    if (number >= COUNT + LISTS)
        return 0;
    if (number >= COUNT) {
        snprintf(spec, size, "topk_select:%s", lists[number - COUNT]);
        return 1;
    }
    snprintf(spec, size, "topk_select:topk=%d,order=%s", topk[number],
             number % 2 ? "score" : "index");
    return 1;
}

const struct compile_cells compile_cells_topk_select = {.shape = odd_shape};
