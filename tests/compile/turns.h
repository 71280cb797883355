/*
 * For which architectures the compile matrix compiles a kernel. A preset's, for all: those are what
 * people run. Another, once for each text that its plans give, and for each generation of the
 * assembler, which allocates registers by rules of its own: where a generation has two
 * architectures and they get the same text, one of them takes it, drawn by the kernel's name. So
 * every text is compiled by the assembler of each generation that can have it; what is left out is
 * a text that the sister architecture has compiled.
 */
#pragma once

enum { ARCHS = 9 };
extern const char *const arch_names[ARCHS];

/* One bit an architecture, of those in `supported`. A kernel keeps one that it is not planned for:
 * that is a failure, to be shown. */
unsigned kernel_archs(const char *spec, int preset, unsigned supported);
