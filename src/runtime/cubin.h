/* What a compiler makes, and what a cubin tells of its kernels by itself. */
#ifndef SMELT_RUNTIME_CUBIN_H
#define SMELT_RUNTIME_CUBIN_H

#include <stddef.h>

/* What a compiler makes of a source. A driver runs the one or the other, never both. */
enum smelt__output {
    SMELT__OUTPUT_UNKNOWN = 0,
    SMELT__OUTPUT_CUBIN = 1,   /* NVRTC's: machine code of a GPU */
    SMELT__OUTPUT_EMULATED = 2 /* the emulator's: a shared object for this machine's processor */
};

/* What the bytes are, by the head of the ELF file that either of them is. */
enum smelt__output smelt__output_of(const void *bytes, size_t count);
/* "a cubin", "a kernel for the emulator", "no kernel". */
const char *smelt__output_name(enum smelt__output output);

/* Registers of a thread and bytes of its stack frame, 0 when nothing was spilled. */
struct smelt__cubin_figures {
    int registers, frame_bytes;
};

/* Reads a kernel's figures out of an ELF image, which need not be sound: nothing outside of it is
 * touched. 1, or 0 when they are not in it. */
int smelt__cubin_read(const void *cubin, size_t bytes, const char *kernel_name,
                      struct smelt__cubin_figures *figures);

#endif
