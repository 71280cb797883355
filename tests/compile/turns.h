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

/* Whether the architecture must have a plan of an operator or a kernel: specs with knobs of Hopper's kernels
 * are for sm_90a, and compute capabilities below 8.9 have no e4m3 products. */
int spec_is_for(const char *spec, const char *arch);

/* A bit for each architecture among those in `supported`. It includes architectures without a plan
 * for the kernel, which are reported as failures. */
unsigned kernel_archs(const char *spec, int preset, unsigned supported);
