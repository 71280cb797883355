/*
 * Autotuning candidates: the knobs of a kernel that give distinct plans. Pure.
 */
#pragma once

#include "codegen/family.h"

struct smelt__candidate {
    struct smelt__spec
        spec; /* the kernel's, and the knobs in which its plan differs from the rule's */
    uint64_t fingerprint; /* of its plan */
    int distance;         /* from the rule's plan: knobs set, a different variant above all */
    int found;            /* order of the search */
};

struct smelt__candidates {
    struct smelt__candidate *list; /* the rule's plan first, then the nearest to it first */
    int count;
};

/*
 * Every distinct plan of a kernel that the knobs in `knobs` ("stages,pv_overlap"; NULL: the default
 * ones) can give, each with as few knobs as possible. Knobs given in the spec are kept. For a knob
 * with many legal values, the values that its family lists are used. 0, or -1 with a message: the
 * spec has no plan, or `knobs` has an unknown name.
 */
int smelt__candidates_find(const struct smelt__spec *spec, const struct smelt__arch *arch,
                           const char *knobs, struct smelt__candidates *candidates,
                           struct smelt__message *message);
/* Checks that every name of the list is a knob of the kernel: 0, or -1 with a message. */
int smelt__candidates_check_knobs(const struct smelt__spec *spec, const char *knobs,
                                  struct smelt__message *message);
void smelt__candidates_free(struct smelt__candidates *candidates);
