/* The groups of cases that sparse_attn alone has. */
#pragma once

#include "suite.h"

void run_accuracy(struct suite *suite);   /* FlashMLA's problems and tolerances */
void run_boundaries(struct suite *suite); /* no queries, no rows, empty lists */
void run_heads(struct suite *suite);      /* heads that fill no block */
void run_rises(struct suite *suite);      /* scores that rise beyond fp32 along a list */
void run_invariance(struct suite *suite); /* the same bits wherever a query stands */
void run_nonfinite(struct suite *suite);  /* NaN and infinity */
void run_buckets(struct suite *suite);    /* bucketed operators against plain ones */
