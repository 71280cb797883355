/* What libsmelt_emu.so exports: the driver's and NVRTC's functions, and what compiled kernels call.
 */
#ifndef SMELT_EMU_EXPORT_H
#define SMELT_EMU_EXPORT_H

#define EMU_EXPORT __attribute__((visibility("default")))

#endif
