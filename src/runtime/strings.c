/*
 * See strings.h. A hash table whose chains only grow, at the front and by compare-and-swap. It
 * needs no lock, so a forked child can read its parent's context whatever the parent's threads were
 * doing.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/hash.h"
#include "runtime/log.h"
#include "runtime/strings.h"

/* Fixed: a context hands out some hundred strings; at 100,000 a chain is walked in a microsecond.
 */
enum { CHAINS = 512 };

struct link {
    struct link *next;
    uint64_t hash;
    char text[];
};

struct smelt__strings {
    _Atomic(struct link *) chains[CHAINS];
    atomic_size_t note_bytes;
};

struct smelt__strings *smelt__strings_new(void) {
    return calloc(1, sizeof(struct smelt__strings));
}

void smelt__strings_free(struct smelt__strings *strings) {
    if (!strings)
        return;
    for (int i = 0; i < CHAINS; i++)
        for (struct link *link = atomic_load(&strings->chains[i]), *next; link; link = next) {
            next = link->next;
            free(link);
        }
    free(strings);
}

/* Searches a chain up to but excluding `end`. */
static struct link *find(struct link *link, const struct link *end, uint64_t hash,
                         const char *text) {
    while (link != end && (link->hash != hash || strcmp(link->text, text) != 0))
        link = link->next;
    return link == end ? NULL : link;
}

/* Adds a link at the front of a chain that began with `seen`, unless another thread has added the
 * same text meanwhile. */
static struct link *add(_Atomic(struct link *) *chain, struct link *seen, struct link *link) {
    for (;;) {
        link->next = seen;
        if (atomic_compare_exchange_strong(chain, &seen, link))
            return link;
        struct link *found = find(seen, link->next, link->hash, link->text);
        if (found) {
            free(link);
            return found;
        }
    }
}

static int take_note_bytes(struct smelt__strings *strings, size_t bytes) {
    const size_t before = atomic_fetch_add(&strings->note_bytes, bytes);
    if (before + bytes <= SMELT__STRINGS_NOTES)
        return 1;
    atomic_fetch_sub(&strings->note_bytes, bytes);
    return 0;
}

/* NULL: out of memory, or no space for a note. */
static const char *keep(struct smelt__strings *strings, const char *text, int is_note) {
    const size_t bytes = strlen(text) + 1;
    const uint64_t hash = XXH3_64bits(text, bytes);
    _Atomic(struct link *) *chain = &strings->chains[hash % CHAINS];
    struct link *seen = atomic_load(chain);

    struct link *link = find(seen, NULL, hash, text);
    if (link)
        return link->text;
    if (is_note && !take_note_bytes(strings, bytes))
        return NULL;
    link = malloc(sizeof *link + bytes);
    if (!link)
        return NULL;
    memcpy(link->text, text, bytes);
    link->hash = hash;
    return add(chain, seen, link)->text;
}

const char *smelt__strings_keep(struct smelt__strings *strings, const char *text) {
    const char *kept = keep(strings, text, 0);
    if (!kept)
        smelt__fail(SMELT_ERROR_OUT_OF_MEMORY, "out of memory");
    return kept;
}

const char *smelt__strings_note(struct smelt__strings *strings, const char *text) {
    const char *kept = keep(strings, text, 1);
    return kept ? kept : "(text dropped: this context already holds too many)";
}
