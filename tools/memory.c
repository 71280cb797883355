/* Allocation that ends the program on failure. */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

void tool_die_of_memory(void) {
    fputs("smelt: out of memory\n", stderr);
    exit(TOOL_FAILED);
}

void *tool_allocate(void *old, size_t count, size_t size) {
    void *block = reallocarray(old, count ? count : 1, size);
    if (!block)
        tool_die_of_memory();
    return block;
}

char *tool_copy(const char *string) {
    char *copy = strdup(string);
    if (!copy)
        tool_die_of_memory();
    return copy;
}
