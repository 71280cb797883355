/* templates/ptx/mma_fp8.cuh, emulated. */

void emu_op_mma_m16n8k32_e4m3(float *d, const unsigned *a, const unsigned *b);

#define mma_m16n8k32_e4m3(d, a, b) emu_op_mma_m16n8k32_e4m3(d, a, b)
