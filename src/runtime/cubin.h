/* The kinds of compiled kernels, and the figures that a cubin holds about its kernels. */
#pragma once

#include <stddef.h>

/* The kind of a compiler's output. A driver runs one kind or the other, never both. */
enum smelt__output {
    SMELT__OUTPUT_UNKNOWN = 0,
    SMELT__OUTPUT_CUBIN = 1,   /* NVRTC's: GPU machine code */
    SMELT__OUTPUT_EMULATED = 2 /* the emulator's: a shared object for the CPU */
};

/* The kind of an ELF file, from its header. */
enum smelt__output smelt__output_of(const void *bytes, size_t count);
/* "a cubin", "a kernel for the emulator", "something else". */
const char *smelt__output_name(enum smelt__output output);

/* Registers and bytes of stack frame per thread; 0 bytes when nothing was spilled. */
struct smelt__cubin_figures {
    int registers, frame_bytes;
};

/* Reads a kernel's figures from an ELF image, which may be damaged: reads stay inside it. 1; 0 when
 * the image does not hold them. */
int smelt__cubin_read(const void *cubin, size_t bytes, const char *kernel_name,
                      struct smelt__cubin_figures *figures);
