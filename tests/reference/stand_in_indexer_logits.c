/* indexer_logits of the stand-in. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/indexer_logits_tensors.h"
#include "reference/indexer_logits.h"
#include "smelt/smelt.h"
#include "stand_in.h"

struct smelt_indexer_logits {
    smelt_indexer_logits_spec spec;
    char knobs[128];
};

/* ---- spec ------------------------------------------------------------------------------------ */

smelt_status smelt_indexer_logits_spec_print(const smelt_indexer_logits_spec *spec, char **text) {
    *text = malloc(128);
    if (!*text)
        return SMELT_ERROR_OUT_OF_MEMORY;
    snprintf(*text, 128, "indexer_logits:heads=%d,dim=%d,dtype=%s", spec->heads, spec->dim,
             spec->dtype == SMELT_INDEXER_FP8 ? "fp8" : "bf16");
    return SMELT_OK;
}

smelt_status smelt_indexer_logits_spec_parse(const char *text, smelt_indexer_logits_spec *spec,
                                             char **knobs) {
    char dtype[8] = "";
    int length = 0;
    if (knobs)
        *knobs = NULL;
    if (sscanf(text, "indexer_logits:heads=%d,dim=%d,dtype=%7[a-z0-9]%n", &spec->heads, &spec->dim,
               dtype, &length) != 3)
        return stand_in_fail(SMELT_ERROR_INVALID_SPEC, text);
    spec->dtype = strcmp(dtype, "fp8") == 0 ? SMELT_INDEXER_FP8 : SMELT_INDEXER_BF16;
    spec->knobs = NULL;
    if (knobs && text[length] == ',')
        spec->knobs = *knobs = strdup(text + length + 1);
    return SMELT_OK;
}

smelt_status smelt_indexer_logits_supported(const smelt_context *context,
                                            const smelt_indexer_logits_spec *spec,
                                            const char **why) {
    (void)context, (void)spec;
    if (why)
        *why = "";
    return SMELT_OK;
}

/* ---- the operator ---------------------------------------------------------------------------- */

smelt_status smelt_indexer_logits_create(smelt_indexer_logits **indexer, smelt_context *context,
                                         const smelt_indexer_logits_spec *spec) {
    (void)context;
    *indexer = calloc(1, sizeof **indexer);
    if (!*indexer)
        return SMELT_ERROR_OUT_OF_MEMORY;
    (*indexer)->spec = *spec;
    snprintf((*indexer)->knobs, sizeof(*indexer)->knobs, "%s", spec->knobs ? spec->knobs : "");
    return SMELT_OK;
}

void smelt_indexer_logits_destroy(smelt_indexer_logits **indexer) {
    free(*indexer);
    *indexer = NULL;
}

static void store(const smelt_indexer_logits_args *args, int64_t query, const double *logits) {
    float *const row = (float *)args->logits.data + query * args->logits.strides[0];
    for (int64_t key = 0; key < args->rows; key++)
        row[key] = (float)logits[key] + 0.0F; /* +0 if too small for fp32 */
}

smelt_status smelt_indexer_logits_forward(const smelt_indexer_logits *indexer,
                                          const smelt_indexer_logits_args *given,
                                          struct CUstream_st *stream) {
    (void)stream;
    if (!given->q.data)
        return stand_in_fail(SMELT_ERROR_INVALID_ARGUMENT, "q is NULL");
    smelt_indexer_logits_args args = *given;
    const smelt_indexer_logits_spec spec = indexer->spec;
    const struct smelt__tensor_table *table = &smelt__indexer_logits_tensors[spec.dtype];
    const int64_t extents[SMELT__INDEXER_LOGITS_SYMBOLS] = {args.tokens, args.rows, spec.heads,
                                                            spec.dim};
    for (int i = 0; i < table->count; i++)
        smelt__tensor_pack(&table->rows[i], extents, smelt__tensor_of(&table->rows[i], &args));
    smelt_status status = stand_in_launch(indexer->knobs);
    double *const logits = malloc((size_t)(args.rows + 1) * sizeof *logits);
    if (!logits)
        status = SMELT_ERROR_OUT_OF_MEMORY;
    for (int64_t query = 0; query < args.tokens && status == SMELT_OK; query++) {
        if (smelt__indexer_logits_reference(&spec, &args, query, logits, NULL) != 0)
            status = SMELT_ERROR_OUT_OF_MEMORY;
        else
            store(&args, query, logits);
    }
    free(logits);
    return status;
}
