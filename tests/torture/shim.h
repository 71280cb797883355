/*
 * A layer between the program and the C library that makes selected calls fail: the library's Nth
 * system call or the Nth allocation. Linked into the program, it precedes the C library for all
 * loaded code, including the fakes.
 */
#pragma once

#include <stdbool.h>

enum shim_target { SHIM_NOTHING, SHIM_CALLS, SHIM_MEMORY };

/* Not an error number: reads and writes are partial. */
enum { SHIM_SHORT = -1 };

struct shim_order {
    enum shim_target target;
    long first, last; /* calls first..last fail; 0: calls are only counted */
    int error;        /* of system calls: an errno, or SHIM_SHORT */
};

/* Starts an order; counting begins at 0. */
void shim_begin(const struct shim_order *order);
/* Ends it. Returns the number of counted calls; *failed (may be NULL): the name of the first call
 * that failed, "": none. */
long shim_end(const char **failed);

/* Files that were renamed since shim_begin, and the number of those that were still open or had
 * bytes without fsync. A crash then leaves a partial file under its final name. */
struct shim_renames {
    long files, unfinished;
};
struct shim_renames shim_renames(void);

/* Allocations that were not freed so far; 0 if they cannot be counted. */
long shim_live_allocations(void);
/* Whether allocations can be counted and made to fail; not with a sanitizer, which replaces
 * them. */
bool shim_has_memory(void);
