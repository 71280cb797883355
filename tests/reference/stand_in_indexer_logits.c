/* indexer_logits of the stand-in. */
#include "stand_in_indexer_logits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/indexer_logits_tensors.h"
#include "reference/e4m3.h"
#include "reference/indexer_logits.h"
#include "smelt/smelt.h"
#include "stand_in.h"

enum stand_in_logits_defect stand_in_logits_defect = STAND_IN_LOGITS_CORRECT;

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

/* The inputs as the defect sees them; the window's ends are the caller's memory. */
static void mistake_inputs(smelt_indexer_logits_spec *spec, smelt_indexer_logits_args *args) {
    if (stand_in_logits_defect == STAND_IN_LOGITS_NO_SCALE)
        args->k_scale.data = NULL;
    if (stand_in_logits_defect == STAND_IN_LOGITS_SKIPS_HEAD)
        spec->heads--;
}

static int in_window(const smelt_indexer_logits_args *args, int64_t query, int64_t key) {
    const int32_t *const begins = args->window_begin.data, *const ends = args->window_end.data;
    return key >= begins[query] && key < ends[query];
}

/* One logit as the defect has it. */
static float mistake(double logit, int inside, int last_inside, int64_t key) {
    switch (stand_in_logits_defect) {
    case STAND_IN_LOGITS_COARSE:
        return (float)(inside && key % 7 == 3 ? logit * 1.001 : logit);
    case STAND_IN_LOGITS_NO_WINDOW:
        return inside ? (float)logit : -3.0F;
    case STAND_IN_LOGITS_SHORT_WINDOW:
        return last_inside ? -INFINITY : (float)logit;
    case STAND_IN_LOGITS_ZERO_OUTSIDE:
        return inside ? (float)logit : 0.0F;
    case STAND_IN_LOGITS_PLUS_INFINITY:
        return inside ? (float)logit : INFINITY;
    case STAND_IN_LOGITS_MINUS_ZERO:
        return inside && logit == 0 ? -0.0F : (float)logit;
    case STAND_IN_LOGITS_NAN:
        return inside && isinf(logit) && logit < 0 ? NAN : (float)logit;
    default:
        return (float)logit;
    }
}

/* Of fp8, without max(0, .). */
static float without_relu(const smelt_indexer_logits_spec *spec,
                          const smelt_indexer_logits_args *args, int64_t query, int64_t key) {
    const uint8_t *const q = (const uint8_t *)args->q.data + query * args->q.strides[0];
    const uint8_t *const k = (const uint8_t *)args->k.data + key * args->k.strides[0];
    const float *const weights =
        (const float *)args->weights.data + query * args->weights.strides[0];
    double sum = 0;
    for (int h = 0; h < spec->heads; h++)
        for (int d = 0; d < spec->dim; d++)
            sum += (double)(weights[h] * smelt__e4m3_to_float(q[h * args->q.strides[1] + d]) *
                            smelt__e4m3_to_float(k[d]));
    return (float)(sum * (double)((const float *)args->k_scale.data)[key]);
}

static void store(const smelt_indexer_logits_spec *spec, const smelt_indexer_logits_args *args,
                  int64_t query, const double *logits) {
    float *const row = (float *)args->logits.data + query * args->logits.strides[0];
    int64_t inside = 0, count = args->rows;
    for (int64_t key = 0; key < args->rows; key++)
        inside += in_window(args, query, key);
    if (stand_in_logits_defect == STAND_IN_LOGITS_SKIPS_EMPTY && inside == 0)
        return;
    if (stand_in_logits_defect == STAND_IN_LOGITS_SKIPS_KEY)
        count--;
    for (int64_t key = 0; key < count; key++) {
        const int here = in_window(args, query, key);
        const double logit = (double)((float)logits[key] + 0.0F); /* +0 if too small for fp32 */
        row[key] = here && stand_in_logits_defect == STAND_IN_LOGITS_NO_RELU
                       ? without_relu(spec, args, query, key)
                       : mistake(logit, here, here && !in_window(args, query, key + 1), key);
    }
    if (stand_in_logits_defect == STAND_IN_LOGITS_WRITES_GAP)
        row[args->rows] = 0;
}

smelt_status smelt_indexer_logits_forward(const smelt_indexer_logits *indexer,
                                          const smelt_indexer_logits_args *given,
                                          struct CUstream_st *stream) {
    (void)stream;
    if (!given->q.data)
        return stand_in_fail(SMELT_ERROR_INVALID_ARGUMENT, "q is NULL");
    smelt_indexer_logits_args args = *given;
    smelt_indexer_logits_spec spec = indexer->spec;
    const struct smelt__tensor_table *table = &smelt__indexer_logits_tensors[spec.dtype];
    const int64_t extents[SMELT__INDEXER_LOGITS_SYMBOLS] = {args.tokens, args.rows, spec.heads,
                                                            spec.dim};
    for (int i = 0; i < table->count; i++)
        smelt__tensor_pack(&table->rows[i], extents, smelt__tensor_of(&table->rows[i], &args));
    smelt_status status = stand_in_launch(indexer->knobs);
    double *const logits = malloc((size_t)(args.rows + 1) * sizeof *logits);
    if (!logits)
        status = SMELT_ERROR_OUT_OF_MEMORY;
    mistake_inputs(&spec, &args);
    for (int64_t query = 0; query < args.tokens && status == SMELT_OK; query++) {
        if (smelt__indexer_logits_reference(&spec, &args, query, logits, NULL) != 0)
            status = SMELT_ERROR_OUT_OF_MEMORY;
        else
            store(&spec, &args, query, logits);
    }
    free(logits);
    return status;
}
