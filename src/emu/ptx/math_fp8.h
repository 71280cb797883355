/* templates/ptx/math_fp8.cuh, emulated. */
#ifndef EMU_PTX_MATH_FP8
#define EMU_PTX_MATH_FP8

unsigned emu_pack_e4m3x2(float low, float high);

#define pack_e4m3x2(low, high) emu_pack_e4m3x2(low, high)

#endif
