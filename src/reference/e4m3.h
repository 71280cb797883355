/* e4m3 in the references and the harness: OCP's FP8 with four exponent bits, three fraction bits
 * and no infinity; the largest is 448. */
#pragma once

#include <stdint.h>

/* NaN for 0x7f and 0xff. */
float smelt__e4m3_to_float(uint8_t value);
/* Rounds to nearest, ties to even; saturates at the largest, also for infinities; NaN becomes
 * 0x7f. */
uint8_t smelt__e4m3_from_float(float value);
