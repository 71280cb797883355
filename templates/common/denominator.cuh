//@use common/softmax.cuh
//@use ptx/math.cuh
/*
 * -log2 of a head's softmax denominator, from lse and the sink in powers of two.
 */

DEVICE float denominator_offset_with_sink(float lse, float sink) {
    const float highest = fmaxf(sink, lse);
    return highest == -MINUS_INFINITY
               ? MINUS_INFINITY
               : -highest - log2_approximate(exp2_approximate(sink - highest) +
                                             exp2_approximate(lse - highest));
}
