/* The operators there are. */
#include <string.h>

#include "native.h"

static const struct operator_class *const classes[] = {
    &sparse_attn_class,      &indexer_logits_class, &indexer_windows_class, &indexer_clean_class,
    &indexer_quantize_class, &topk_select_class,    &indexer_topk_class,    &indexer_loss_class,
    &indexer_scores_class,   &indexer_bwd_class,    &sparse_scores_class,
};

static int name_arguments(struct pass *pass) {
    for (int i = 0; i < pass->tensor_count + pass->scalar_count; i++) {
        const char *name = i < pass->tensor_count ? pass->tensors[i].name
                                                  : pass->scalars[i - pass->tensor_count].name;
        if (!pass->names[i] && !(pass->names[i] = PyUnicode_InternFromString(name)))
            return -1;
    }
    return 0;
}

const struct operator_class *find_operator_class(const char *spec) {
    const size_t length = strcspn(spec, ":");
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (strlen(classes[i]->name) != length || memcmp(classes[i]->name, spec, length) != 0)
            continue;
        for (int pass = 0; pass < MAX_PASSES; pass++)
            if (classes[i]->passes[pass] && name_arguments(classes[i]->passes[pass]))
                return NULL;
        return classes[i];
    }
    PyErr_Format(PyExc_ValueError, "smelt: %s is no operator that this package binds", spec);
    return NULL;
}
