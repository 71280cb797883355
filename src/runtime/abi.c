/* See abi.h. */
#include "runtime/abi.h"

#include <string.h>

#include "runtime/log.h"

enum { LARGEST = 64 << 10 }; /* bytes: no struct of ours ever comes near it */

static size_t size_of(const void *given) {
    size_t size;
    memcpy(&size, given, sizeof size); /* `size` is every public struct's first field */
    return size;
}

smelt_status smelt__struct_check(const struct smelt__struct *about, const void *to) {
    if (!to)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is NULL; fill one from %s",
                           about->argument, about->initialiser);
    const size_t size = size_of(to);
    if (size >= about->first && size <= LARGEST)
        return SMELT_OK;
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "%s.size is %zu, which no version of this struct has: legal are %zu (the "
                       "first version's) up to %d; fill it from %s",
                       about->argument, size, about->first, (int)LARGEST, about->initialiser);
}

/* The first byte beyond what this library knows that is not 0; `size` when there is none. */
static size_t find_unknown(const unsigned char *bytes, size_t known, size_t size) {
    size_t at = known;
    while (at < size && bytes[at] == 0)
        at++;
    return at;
}

smelt_status smelt__struct_read(const struct smelt__struct *about, const void *from, void *to) {
    smelt_status status = smelt__struct_check(about, from);
    if (status != SMELT_OK)
        return status;
    const size_t size = size_of(from);
    const size_t unknown = find_unknown(from, about->known, size);
    if (unknown < size)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "%s.size is %zu and this library (%s) knows %zu of it; byte %zu, which "
                           "it does not know, is not 0: the program asks for something newer than "
                           "the library it runs with",
                           about->argument, size, smelt_version(), about->known, unknown);
    const size_t shared = size < about->known ? size : about->known;
    memmove(to, from, shared);
    memset((unsigned char *)to + shared, 0, about->known - shared);
    memcpy(to, &about->known, sizeof about->known);
    return SMELT_OK;
}

void smelt__struct_write(const struct smelt__struct *about, const void *from, void *to) {
    const size_t size = size_of(to);
    const size_t shared = size < about->known ? size : about->known;
    memcpy((unsigned char *)to + sizeof size, (const unsigned char *)from + sizeof size,
           shared - sizeof size);
    if (size > about->known)
        memset((unsigned char *)to + about->known, 0, size - about->known);
}
