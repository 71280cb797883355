/* bf16 in the references and the harness. */
#pragma once

#include <stdint.h>

/* bf16 is the upper half of an IEEE single; rounding is to nearest, ties to even. NaN stays NaN. */
float smelt__bf16_to_float(uint16_t value);
uint16_t smelt__bf16_from_float(float value);
