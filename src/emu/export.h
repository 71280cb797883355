/* Exports of libsmelt_emu.so: the driver's and NVRTC's functions, and the functions that compiled
 * kernels call. */
#ifndef SMELT_EMU_EXPORT_H
#define SMELT_EMU_EXPORT_H

#define EMU_EXPORT __attribute__((visibility("default")))

#endif
