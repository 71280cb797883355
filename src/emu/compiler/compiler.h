/*
 * The emulated compiler: CUDA text to a shared object, by the machine's C compiler. The parts under
 * `#line N "templates/ptx/NAME.cuh"` are replaced by src/emu/ptx/NAME.h, each once, so that these have
 * no include guards; the rest is compiled unchanged.
 */
#pragma once

#include <stddef.h>

/* One file of src/emu, embedded at build time: "device.h", "ptx/mma.h". */
struct emu_file {
    const char *name, *text;
};
extern const struct emu_file emu_files[];
extern const int emu_file_count;

/* Translates a kernel's CUDA text to C text, freed by the caller; NULL with the reason in `log`. */
char *emu_translate(const char *source, char *log, size_t log_size);

/* Compiles the C text; the caller frees *object. `edited`: the text is a developer's edited copy,
 * which has an object cache of its own. 0, or -1 with the compiler's output in `log`. */
int emu_compile(const char *text, int edited, unsigned char **object, size_t *bytes, char *log,
                size_t log_size);

/* ---- kernels compiled at their first launch (SMELT_EMU_LAZY=1) ------------------------------- */

/* Whether SMELT_EMU_LAZY is 1. */
int emu_is_lazy(void);

/* Makes an image that the driver loads like an object and that holds the C text. `edited` as above;
 * the caller frees *object. 0, or -1 when out of memory. */
int emu_make_lazy(const char *name, const char *text, int edited, unsigned char **object,
                  size_t *bytes);

/* The kernel's name in such an image; NULL for an object. `image`: a 64-bit ELF file. */
const char *emu_lazy_name(const unsigned char *image);

/* Compiles such an image's text; otherwise like emu_compile. */
int emu_compile_lazy(const unsigned char *image, unsigned char **object, size_t *bytes, char *log,
                     size_t log_size);
