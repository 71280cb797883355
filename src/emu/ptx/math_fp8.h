/* templates/ptx/math_fp8.cuh, emulated. */

unsigned emu_pack_e4m3x2(float low, float high);

#define pack_e4m3x2(low, high) emu_pack_e4m3x2(low, high)
