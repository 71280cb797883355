/* What a cubin tells of its kernels by itself. */
#ifndef SMELT_RUNTIME_CUBIN_H
#define SMELT_RUNTIME_CUBIN_H

#include <stddef.h>

/* Registers of a thread and bytes of its stack frame, 0 when nothing was spilled. */
struct smelt__cubin_figures {
    int registers, frame_bytes;
};

/* Reads a kernel's figures out of an ELF image, which need not be sound: nothing outside of it is
 * touched. 1, or 0 when they are not in it. */
int smelt__cubin_read(const void *cubin, size_t bytes, const char *kernel_name,
                      struct smelt__cubin_figures *figures);

#endif
