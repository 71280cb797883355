#include "reference/operators.h"

#include <float.h>
#include <math.h>

#include "reference/bf16.h"
#include "reference/e4m3.h"

static const float LARGEST_E4M3 = 448.0F;

static float scale_of(const struct smelt__quantize_spec *spec, const uint16_t *x, int count) {
    float largest = 0;
    for (int d = 0; d < count; d++) {
        const float size = fabsf(smelt__bf16_to_float(x[d]));
        if (size > largest) /* ignores NaN; fmaxf would return a signalling one */
            largest = size;
    }
    float scale = largest / LARGEST_E4M3;
    if (spec->scale == SMELT__SCALE_POWER_OF_TWO && scale > 0 && !isinf(scale)) {
        int exponent;
        const float fraction = frexpf(scale, &exponent); /* in [1/2, 1) */
        scale = ldexpf(1, fraction == 0.5F ? exponent - 1 : exponent);
    }
    return fmaxf(scale, FLT_MIN);
}

void smelt__quantize_reference(const struct smelt__quantize_spec *spec, const uint16_t *x,
                               uint8_t *y, uint16_t *dequantized, float *scale) {
    const int count = spec->dim / spec->groups;
    for (int g = 0; g < spec->groups; g++)
        scale[g] = scale_of(spec, x + g * count, count);
    for (int d = 0; d < spec->dim; d++) {
        const float factor = 1 / scale[d / count];
        y[d] = smelt__e4m3_from_float(smelt__bf16_to_float(x[d]) * factor);
        dequantized[d] = smelt__bf16_from_float(smelt__e4m3_to_float(y[d]) * scale[d / count]);
    }
}
