/*
 * The emulated compiler: CUDA text to a shared object, by the machine's C compiler. The parts that
 * stand in the text under `#line N "templates/ptx/NAME.cuh"` are exchanged for
 * src/emu/ptx/NAME.h; everything else is compiled as it is.
 */
#ifndef SMELT_EMU_COMPILER_H
#define SMELT_EMU_COMPILER_H

#include <stddef.h>

/* One file of src/emu, embedded at build time: "device.h", "ptx/mma.h". */
struct emu_file {
    const char *name, *text;
};
extern const struct emu_file emu_files[];
extern const int emu_file_count;

/* The C text of a kernel's CUDA text, freed by the caller; NULL with the reason in `log`. */
char *emu_translate(const char *source, char *log, size_t log_size);

/* Compiles the C text; *object is freed by the caller. An edited text is compiled once and no more:
 * its object is not kept (objects.h). 0, or -1 with the compiler's words in `log`. */
int emu_compile(const char *text, int edited, unsigned char **object, size_t *bytes, char *log,
                size_t log_size);

#endif
