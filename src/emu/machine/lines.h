/* Source lines of a compiled kernel's addresses, by addr2line of the compiler's binutils. */
#pragma once

#include "emu/machine/machine.h"

struct lines;

/* Looks up all sites with one run of addr2line; without addr2line, lines are given as offsets. */
struct lines *lines_resolve(const struct kernel *kernel, const site *sites, size_t count);
/* "(templates/NAME.cu:12 in load_step, called from compute_scores)"; lives as long as `lines`. */
const char *lines_find(const struct lines *lines, site at);
void lines_free(struct lines *lines);

/* Whether two sites are on the same source line: compilers may duplicate a call. */
bool emu_same_line(site a, site b);
