/* sparse_attn's own groups of cases. */
#pragma once

#include "suite.h"

void run_boundaries(struct suite *suite); /* no queries, no rows, empty lists */
void run_heads(struct suite *suite);      /* numbers of heads that do not fill a block */
void run_rises(struct suite *suite);      /* scores that increase beyond fp32's exponents along a
                                             list */
void run_buckets(struct suite *suite);    /* bucketed operators against plain ones */
