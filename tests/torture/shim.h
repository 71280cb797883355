/*
 * A layer between the program and the C library that fails a call on order: the Nth of the system
 * calls the library makes, or the Nth allocation. Linked into the program, it stands before the C
 * library for everything that is loaded, the fakes included.
 */
#pragma once

#include <stdbool.h>

enum shim_target { SHIM_NOTHING, SHIM_CALLS, SHIM_MEMORY };

/* Not an error number: reads and writes do a part of what was asked. */
enum { SHIM_SHORT = -1 };

struct shim_order {
    enum shim_target target;
    long first, last; /* calls first..last fail; 0: they are only counted */
    int error;        /* of system calls: an errno, or SHIM_SHORT */
};

/* From now on; counting begins anew. */
void shim_begin(const struct shim_order *order);
/* Ends it. Returns how many calls were counted; *failed (may be NULL) is the name of the first one
 * that was made to fail, "" when none was. */
long shim_end(const char **failed);

/* Files that were renamed since shim_begin, and how many of those were not yet written for good:
 * open, or with bytes that no fsync had put on the disk. A crash then leaves half of the file under
 * its final name. */
struct shim_renames {
    long files, unfinished;
};
struct shim_renames shim_renames(void);

/* Allocations made and not freed so far; 0 where they cannot be counted. */
long shim_live_allocations(void);
/* Whether allocations can be counted and failed: not under a sanitizer, which has its own. */
bool shim_has_memory(void);
