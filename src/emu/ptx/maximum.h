/* templates/ptx/maximum.cuh, emulated. */
#ifndef EMU_PTX_MAXIMUM
#define EMU_PTX_MAXIMUM

float emu_maximum_nan(float x, float y);

#define maximum_nan(x, y) emu_maximum_nan(x, y)

#endif
