//@use common/base.cuh

/* Reductions over `lanes` adjacent lanes, a power of two; every lane gets the result. By whole
 * warps. */

DEVICE int lanes_sum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
}

/* (A minimum must not be built from this by negation: for a minimum of three with a negated operand
 * ptxas of CUDA 13.0 drops the sign.) */
DEVICE int lanes_maximum(int value, int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2) {
        value = maximum(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
    return value;
}
