/* templates/ptx/maximum.cuh, emulated. */

float emu_maximum_nan(float x, float y);

#define maximum_nan(x, y) emu_maximum_nan(x, y)
