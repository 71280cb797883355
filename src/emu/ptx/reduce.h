/* templates/ptx/reduce.cuh, emulated. */

void emu_reduce_add_f32(float *to, const float *values, int count);

#define reduce_add_f32(to, value) emu_reduce_add_f32(to, (const float[1]){value}, 1)
#define reduce_add_f32x4(to, values) emu_reduce_add_f32(to, values, 4)
