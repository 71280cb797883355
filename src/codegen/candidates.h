/*
 * What tuning has to choose from: the knobs of a kernel that give plans which differ. Pure.
 */
#ifndef SMELT_CODEGEN_CANDIDATES_H
#define SMELT_CODEGEN_CANDIDATES_H

#include "codegen/family.h"

struct smelt__candidate {
    struct smelt__spec
        spec; /* the kernel's, and the knobs in which its plan differs from the rule's */
    uint64_t fingerprint; /* of its plan */
    int distance;         /* from the rule's plan: how much is named, another variant most of all */
    int found;            /* in which order */
};

struct smelt__candidates {
    struct smelt__candidate *list; /* the rule's plan first, then the nearest to it first */
    int count;
};

/*
 * Every plan of a kernel that the knobs named in `knobs` ("stages,turn_steps"; NULL: those that are
 * tried by default) can give, each once and with as few knobs named as possible. Knobs that the
 * spec itself names stay as they are. Of a knob with many legal values, those its family lists are
 * tried. 0, or -1 with a message: the spec has no plan, or `knobs` names what is none.
 */
int smelt__candidates_find(const struct smelt__spec *spec, const struct smelt__arch *arch,
                           const char *knobs, struct smelt__candidates *candidates,
                           struct smelt__message *message);
/* Whether every name of the list is a knob's of the kernel: 0, or -1 with a message. */
int smelt__candidates_check_knobs(const struct smelt__spec *spec, const char *knobs,
                                  struct smelt__message *message);
void smelt__candidates_free(struct smelt__candidates *candidates);

#endif
