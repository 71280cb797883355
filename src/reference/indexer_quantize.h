/* The meaning of indexer_quantize: bit for bit, since every step rounds as said. */
#ifndef SMELT_REFERENCE_INDEXER_QUANTIZE_H
#define SMELT_REFERENCE_INDEXER_QUANTIZE_H

#include <stdint.h>

#include "reference/specs.h"
#include "smelt/indexer_quantize.h"

/* One row: y[dim], and its scale. */
void smelt__indexer_quantize_reference(const struct smelt__indexer_quantize_spec *spec,
                                       const uint16_t *x, uint8_t *y, float *scale);

#endif
