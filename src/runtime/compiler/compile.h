/* Compiles one CUDA source to a cubin with NVRTC. Stateless and thread-safe; no cache. */
#pragma once

#include "runtime/compiled.h"
#include "runtime/compiler/nvrtc.h"
#include "smelt/status.h"

enum { SMELT__MAX_OPTIONS = 5, SMELT__OPTION = 48 };

/* The options for every kernel, in the order that enters the cache key. */
struct smelt__compile_options {
    char arch_option[SMELT__OPTION];
    const char *list[SMELT__MAX_OPTIONS]; /* NULL-terminated */
    int count;
};
/* `debug`: an additional option, or NULL. */
void smelt__compile_options(struct smelt__compile_options *options, const char *arch,
                            const char *debug);

/*
 * Compiles a NUL-terminated source, called `file_name` in messages, whose one kernel is the extern
 * "C" `kernel_name`. Fills these members of *compiled: cubin (malloc'ed; must be NULL before),
 * registers, spill bytes, static shared memory and compile seconds. A compilation without the
 * assembler's report is repeated once; then the figures are read from the cubin. Errors:
 * NO_COMPILER (this NVRTC cannot target the architecture), COMPILE with the compiler's log,
 * OUT_OF_MEMORY.
 */
smelt_status smelt__compile_source(const struct smelt__nvrtc *nvrtc, const char *source,
                                   const char *file_name, const char *kernel_name, const char *arch,
                                   const struct smelt__compile_options *options,
                                   struct smelt__compiled *compiled);
