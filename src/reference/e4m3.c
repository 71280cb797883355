/* See e4m3.h. */
#include "reference/e4m3.h"

#include <math.h>

enum { NOT_A_NUMBER = 0x7f, LARGEST = 0x7e, SIGN = 0x80 };

float smelt__e4m3_to_float(uint8_t value) {
    const int exponent = value >> 3 & 15, fraction = value & 7;
    if ((value & NOT_A_NUMBER) == NOT_A_NUMBER)
        return NAN;
    const float size =
        exponent ? ldexpf((float)(8 + fraction), exponent - 10) : ldexpf((float)fraction, -9);
    return value & SIGN ? -size : size;
}

/* Positive codes ascend with their values: bisection finds the two neighbours of a magnitude; the
 * result is the nearer one, or the even one of two equally near. */
uint8_t smelt__e4m3_from_float(float value) {
    const float size = fabsf(value);
    if (isnan(value))
        return NOT_A_NUMBER;
    int low = 0, high = LARGEST;
    while (low + 1 < high) {
        const int middle = (low + high) / 2;
        if (smelt__e4m3_to_float((uint8_t)middle) <= size)
            low = middle;
        else
            high = middle;
    }
    const double below = (double)size - (double)smelt__e4m3_to_float((uint8_t)low);
    const double above = (double)smelt__e4m3_to_float((uint8_t)high) - (double)size;
    const int code = above < below || (!(below < above) && high % 2 == 0) ? high : low;
    return (uint8_t)(code | (signbit(value) ? SIGN : 0));
}
