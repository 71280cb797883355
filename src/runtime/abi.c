/* See abi.h. */
#include "runtime/abi.h"

#include <string.h>

#include "runtime/log.h"

enum { LARGEST = 64 << 10 }; /* bytes: far larger than any of our structs */

static size_t size_of(const void *given) {
    size_t size;
    memcpy(&size, given, sizeof size); /* `size` is every public struct's first field */
    return size;
}

/* A struct that holds pointers has a multiple of a pointer's size. */
static int is_possible(const struct smelt__struct *about, size_t size) {
    return size >= about->first && size <= LARGEST && size % sizeof(void *) == 0;
}

smelt_status smelt__struct_check(const struct smelt__struct *about, const void *to) {
    if (!to)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL; fill one from %s",
                           about->argument, about->initialiser);
    const size_t size = size_of(to);
    if (is_possible(about, size))
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "%s.size is %zu, which no version of this struct has; legal: %zu (the first "
                       "version's) to %d, in multiples of %zu; fill it from %s",
                       about->argument, size, about->first, (int)LARGEST, sizeof(void *),
                       about->initialiser);
}

/* The first nonzero byte beyond the `known` ones; `size` when there is none. */
static size_t find_unknown(const unsigned char *bytes, size_t known, size_t size) {
    size_t at = known;
    while (at < size && bytes[at] == 0)
        at++;
    return at;
}

/* One element; its own `size` field is ignored. */
static smelt_status read_element(const struct smelt__struct *about, const unsigned char *from,
                                 size_t size, unsigned char *to) {
    const size_t unknown = find_unknown(from, about->known, size);
    if (unknown < size)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%s.size is %zu and this library (%s) knows the first %zu bytes; byte "
                           "%zu, which it does not know, is not 0: the program was built with a "
                           "newer smelt than it runs with",
                           about->argument, size, smelt_version(), about->known, unknown);
    const size_t shared = size < about->known ? size : about->known;
    memmove(to, from, shared);
    memset(to + shared, 0, about->known - shared);
    memcpy(to, &about->known, sizeof about->known);
    return SMELT_OK;
}

smelt_status smelt__struct_read(const struct smelt__struct *about, const void *from, void *to) {
    smelt_status status = smelt__struct_check(about, from);
    return status ? status : read_element(about, from, size_of(from), to);
}

smelt_status smelt__structs_read(const struct smelt__struct *about, const void *from, size_t count,
                                 void *to) {
    smelt_status status = count ? smelt__struct_check(about, from) : SMELT_OK;
    const size_t size = !status && count ? size_of(from) : 0;
    for (size_t i = 0; i < count && !status; i++)
        status = read_element(about, (const unsigned char *)from + i * size, size,
                              (unsigned char *)to + i * about->known);
    return status;
}

static void write_element(const struct smelt__struct *about, const unsigned char *from, size_t size,
                          unsigned char *to) {
    const size_t shared = size < about->known ? size : about->known;
    memcpy(to, &size, sizeof size);
    memcpy(to + sizeof size, from + sizeof size, shared - sizeof size);
    if (size > about->known)
        memset(to + about->known, 0, size - about->known);
}

void smelt__struct_write(const struct smelt__struct *about, const void *from, void *to) {
    write_element(about, from, size_of(to), to);
}

void smelt__structs_write(const struct smelt__struct *about, const void *from, void *array,
                          size_t index) {
    const size_t size = size_of(array);
    write_element(about, from, size, (unsigned char *)array + index * size);
}
