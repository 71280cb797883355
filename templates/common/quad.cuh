//@use common/base.cuh

/* Transposes a 4 x 4 matrix of words over a quad (four adjacent lanes): each lane holds a row
 * before and a column after. */
DEVICE void transpose_quad(u32 *x) {
    const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
    const u32 a = __shfl_xor_sync(0xffffffffu, odd ? x[0] : x[1], 1);
    const u32 b = __shfl_xor_sync(0xffffffffu, odd ? x[2] : x[3], 1);
    x[0] = odd ? a : x[0];
    x[1] = odd ? x[1] : a;
    x[2] = odd ? b : x[2];
    x[3] = odd ? x[3] : b;
    const u32 c = __shfl_xor_sync(0xffffffffu, upper ? x[0] : x[2], 2);
    const u32 d = __shfl_xor_sync(0xffffffffu, upper ? x[1] : x[3], 2);
    x[0] = upper ? c : x[0];
    x[1] = upper ? d : x[1];
    x[2] = upper ? x[2] : c;
    x[3] = upper ? x[3] : d;
}
