/* See bf16.h. */
#include "reference/bf16.h"

#include <string.h>

float smelt__bf16_to_float(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

uint16_t smelt__bf16_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffU) > 0x7f800000U) /* NaN must not become infinite */
        return (uint16_t)((bits >> 16) | 0x40U);
    bits += 0x7fffU + ((bits >> 16) & 1U);
    return (uint16_t)(bits >> 16);
}
