/*
 * See candidates.h. A depth-first search over the knobs in declared order, each left to the plan or
 * set to every candidate value. It backtracks when the knobs set so far have no plan with the rest
 * left to the plan: setting more would not help.
 */
#include "codegen/candidates.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/family.h"
#include "codegen/spec/keys.h"

struct search {
    const struct smelt__arch *arch;
    struct smelt__candidates *candidates;
    char variant[16]; /* of the rule's plan */
    int keys[SMELT__MAX_KEYS];
    int key_count;
    int capacity;
    int out_of_memory;
};

/* ---- comparing plans ------------------------------------------------------------------------ */

/* FNV-1a. */
static uint64_t mix(uint64_t hash, const void *bytes, size_t count) {
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* A hash of everything in which the sources of two plans can differ, except numbers' origins. */
static uint64_t fingerprint(const struct smelt__plan *plan) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    hash = mix(hash, plan->template_name, strlen(plan->template_name));
    for (int i = 0; i < plan->constant_count; i++) {
        hash = mix(hash, plan->constants[i].name, strlen(plan->constants[i].name));
        hash = mix(hash, &plan->constants[i].value, sizeof plan->constants[i].value);
    }
    for (int i = 0; i < plan->region_count; i++)
        hash = mix(hash, &plan->regions[i].offset, sizeof plan->regions[i].offset);
    return mix(hash, &plan->shared_bytes, sizeof plan->shared_bytes);
}

static int plan_of(const struct search *search, const struct smelt__spec *spec,
                   struct smelt__plan *plan) {
    struct smelt__message ignored;
    return smelt__plan_make(spec, search->arch, plan, &ignored) == 0;
}

/* ---- results -------------------------------------------------------------------------------- */

static int is_known(const struct search *search, uint64_t print) {
    for (int i = 0; i < search->candidates->count; i++)
        if (search->candidates->list[i].fingerprint == print)
            return 1;
    return 0;
}

/* Removes every knob that the plan would choose with the same value; returns the number left. */
static int shorten(const struct search *search, struct smelt__spec *spec, uint64_t print) {
    int named = 0;
    for (int i = search->key_count - 1; i >= 0; i--) {
        int64_t *value = &spec->values[search->keys[i]];
        const int64_t before = *value;
        struct smelt__plan plan;
        if (before == SMELT__AUTO)
            continue;
        *value = SMELT__AUTO;
        if (plan_of(search, spec, &plan) && fingerprint(&plan) == print)
            continue;
        *value = before;
        named++;
    }
    return named;
}

/* Sets the variant if it is not the rule's, even if other knobs imply it. 1 if set: that counts as
 * a large distance. */
static int name_variant(const struct search *search, const struct smelt__plan *plan,
                        struct smelt__spec *spec) {
    const int key = smelt__spec_key(spec->schema, "variant");
    if (strcmp(plan->variant, search->variant) == 0)
        return 0;
    if (key >= 0)
        for (int i = 0; spec->schema->keys[key].choices[i]; i++)
            if (strcmp(spec->schema->keys[key].choices[i], plan->variant) == 0)
                spec->values[key] = i;
    return 1;
}

static void add(struct search *search, const struct smelt__spec *spec,
                const struct smelt__plan *plan) {
    struct smelt__candidates *candidates = search->candidates;
    const uint64_t print = fingerprint(plan);
    if (is_known(search, print) || search->out_of_memory)
        return;
    if (candidates->count == search->capacity) {
        const int capacity = search->capacity ? 2 * search->capacity : 32;
        struct smelt__candidate *list = realloc(candidates->list, (size_t)capacity * sizeof *list);
        search->out_of_memory = !list;
        if (!list)
            return;
        candidates->list = list;
        search->capacity = capacity;
    }
    struct smelt__candidate *candidate = &candidates->list[candidates->count];
    candidate->spec = *spec;
    candidate->fingerprint = print;
    candidate->found = candidates->count++;
    candidate->distance = shorten(search, &candidate->spec, print);
    if (name_variant(search, plan, &candidate->spec))
        candidate->distance += SMELT__MAX_KEYS;
}

static int compare_candidates(const void *left, const void *right) {
    const struct smelt__candidate *a = left, *b = right;
    return a->distance != b->distance ? a->distance - b->distance : a->found - b->found;
}

/* ---- the search ------------------------------------------------------------------------------ */

static void search_from(struct search *search, int next, const struct smelt__spec *spec) {
    struct smelt__plan plan;
    if (!plan_of(search, spec, &plan))
        return;
    if (next == search->key_count) {
        add(search, spec, &plan);
        return;
    }
    search_from(search, next + 1, spec);
    const int key = search->keys[next];
    struct smelt__spec named = *spec;
    for (int i = 0; !smelt__key_candidate(&spec->schema->keys[key], i, &named.values[key]); i++)
        search_from(search, next + 1, &named);
}

/* The parser sets the message. */
int smelt__candidates_check_knobs(const struct smelt__spec *spec, const char *knobs,
                                  struct smelt__message *message) {
    for (const char *at = knobs; *at;) {
        const size_t length = strcspn(at, ",");
        char item[64];
        struct smelt__spec scratch;
        smelt__spec_init(&scratch, spec->schema);
        snprintf(item, sizeof item, "%.*s=auto", length < 50 ? (int)length : 50, at);
        if (smelt__spec_parse_keys(item, 1, &scratch, message))
            return -1;
        at += length + (at[length] == ',');
    }
    return 0;
}

static void choose_keys(struct search *search, const struct smelt__spec *spec, const char *knobs) {
    for (int i = 0; i < spec->schema->key_count; i++) {
        const struct smelt__key *key = &spec->schema->keys[i];
        if (key->tuned && spec->values[i] == SMELT__AUTO &&
            (knobs ? smelt__name_listed(knobs, key->name) : !key->only_named))
            search->keys[search->key_count++] = i;
    }
}

int smelt__candidates_find(const struct smelt__spec *spec, const struct smelt__arch *arch,
                           const char *knobs, struct smelt__candidates *candidates,
                           struct smelt__message *message) {
    struct search search = {.arch = arch, .candidates = candidates};
    struct smelt__plan rule;
    memset(candidates, 0, sizeof *candidates);
    if ((knobs && smelt__candidates_check_knobs(spec, knobs, message)) ||
        smelt__plan_make(spec, arch, &rule, message))
        return -1;
    snprintf(search.variant, sizeof search.variant, "%s", rule.variant);
    choose_keys(&search, spec, knobs);
    search_from(&search, 0, spec);
    if (search.out_of_memory) {
        smelt__candidates_free(candidates);
        smelt__message_set_out_of_memory(message);
        return -1;
    }
    qsort(candidates->list, (size_t)candidates->count, sizeof *candidates->list,
          compare_candidates);
    return 0;
}

void smelt__candidates_free(struct smelt__candidates *candidates) {
    free(candidates->list);
    candidates->list = NULL;
    candidates->count = 0;
}
