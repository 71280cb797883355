/*
 * The architectures for which the compile matrix compiles a kernel. A preset's kernel: all of them.
 * Another kernel: once for each different source text and each generation of the assembler, since
 * generations allocate registers differently. If two architectures of a generation have the same
 * text, a hash of the kernel's name selects one of them. So the assembler of each generation
 * compiles every text that it can get.
 */
#pragma once

enum { ARCHS = 9 };
extern const char *const arch_names[ARCHS];

/* A bit for each architecture among those in `supported`. It includes architectures without a plan
 * for the kernel, which are reported as failures. */
unsigned kernel_archs(const char *spec, int preset, unsigned supported);
