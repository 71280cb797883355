/* templates/ptx/mma.cuh, emulated. */

void emu_op_mma_m16n8k16_bf16(float *d, const unsigned *a, const unsigned *b);

#define mma_m16n8k16_bf16(d, a, b) emu_op_mma_m16n8k16_bf16(d, a, b)
