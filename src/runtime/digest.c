/* See digest.h. */
#include <string.h>

#include "runtime/digest.h"
#include "runtime/hash.h"

/* The terminators separate names and texts, which have no NUL. */
static void add(void *user, const struct smelt__template *part) {
    XXH3_128bits_update(user, part->name, strlen(part->name) + 1);
    XXH3_128bits_update(user, part->text, part->length + 1);
}

int smelt__template_digest(const struct smelt__template *templates, int count, int index,
                           unsigned char digest[SMELT__TEMPLATE_DIGEST],
                           struct smelt__message *message) {
    XXH128_canonical_t canonical;
    XXH3_state_t state;
    memset(&state, 0, sizeof state);
    XXH3_128bits_reset(&state);
    if (smelt__parts_each(templates, count, index, add, &state, message))
        return -1;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(digest, canonical.digest, SMELT__TEMPLATE_DIGEST);
    return 0;
}
