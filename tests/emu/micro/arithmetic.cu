//@use micro/params.h
//@use ptx/math.cuh
//@use ptx/math_fp8.cuh
//@use ptx/maximum.cuh
//@use ptx/order.cuh
/* One function over `count` inputs: a holds floats (pairs for the packing forms, the maximum, the
 * minimum and the built-ins), out the results. */

enum {
    EXP2 = 0,
    LOG2 = 1,
    PACK_BF16 = 2,
    PACK_E4M3 = 3,
    BUILT_INS = 4,
    MAXIMUM = 5,
    MINIMUM = 6,
    GREATER = 7 /* than each of 32 thresholds, the first inputs: one bit each */
};

/* Replaces any NaN by one value, because its bits are unspecified. */
DEVICE float settled(float x) {
    return x != x ? __int_as_float(0x7fffffff) : x;
}

/* The results of C arithmetic and of functions that C and CUDA share, for two floats. */
DEVICE void built_ins(float *out, float x, float y) {
    out[0] = settled(x + y);
    out[1] = settled(x * y);
    out[2] = settled(x / y);
    out[3] = settled(fmaf(x, y, x));
    out[4] = settled(fmaxf(x, y));
    out[5] = settled(fminf(x, y));
    out[6] = settled(ceilf(x));
    out[7] = settled(floorf(y));
}

KERNEL void KERNEL_NAME(const __grid_constant__ struct micro_params params) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const float *const in = (const float *)params.a;
    const u32 *const words = (const u32 *)params.a;
    float *const out = (float *)params.out;
    u32 *const packed = (u32 *)params.out;
    if (i >= params.count) {
        return;
    }
    if (params.form == EXP2) {
        out[i] = exp2_approximate(in[i]);
    } else if (params.form == LOG2) {
        out[i] = log2_approximate(in[i]);
    } else if (params.form == PACK_BF16) {
        packed[i] = pack_bf16x2(in[2 * i], in[2 * i + 1]);
    } else if (params.form == PACK_E4M3) {
        packed[i] = pack_e4m3x2(in[2 * i], in[2 * i + 1]);
    } else if (params.form == BUILT_INS) {
        built_ins(out + 8 * i, in[2 * i], in[2 * i + 1]);
    } else if (params.form == MAXIMUM) {
        out[i] = settled(maximum_nan(in[2 * i], in[2 * i + 1]));
    } else if (params.form == MINIMUM) {
        out[i] = settled(minimum_nan(in[2 * i], in[2 * i + 1]));
    } else {
        u32 mask = 0;
        for (int j = 0; j < 32; ++j) {
            mask = push_greater(mask, in[j], words[i]);
        }
        packed[i] = mask;
    }
}
