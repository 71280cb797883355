/* Exports of libsmelt_emu.so: the driver's and NVRTC's functions, and the functions that compiled
 * kernels call. */
#pragma once

#define EMU_EXPORT __attribute__((visibility("default")))
