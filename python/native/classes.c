/* The operators there are. */
#include <string.h>

#include "native.h"

static const struct operator_class *const classes[] = {
    &sparse_attn_class,      &indexer_logits_class, &indexer_windows_class, &indexer_clean_class,
    &indexer_quantize_class, &topk_select_class,    &indexer_topk_class,    &indexer_loss_class,
    &indexer_scores_class,   &indexer_bwd_class,    &sparse_scores_class,
};

const struct operator_class *find_operator_class(const char *spec) {
    const size_t length = strcspn(spec, ":");
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (strlen(classes[i]->name) == length && memcmp(classes[i]->name, spec, length) == 0)
            return classes[i];
    PyErr_Format(PyExc_ValueError, "smelt: %s is no operator that this package binds", spec);
    return NULL;
}
