/* templates/ptx/math.cuh, emulated. */

float emu_exp2_approximate(float x);
float emu_log2_approximate(float x);
float emu_minimum_nan(float x, float y);
unsigned emu_pack_bf16x2(float low, float high);

#define exp2_approximate(x) emu_exp2_approximate(x)
#define log2_approximate(x) emu_log2_approximate(x)
#define minimum_nan(x, y) emu_minimum_nan(x, y)
#define pack_bf16x2(low, high) emu_pack_bf16x2(low, high)
