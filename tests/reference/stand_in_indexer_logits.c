/* indexer_logits of the stand-in. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/indexer_logits_table.h"
#include "reference/operators.h"
#include "smelt/smelt.h"
#include "stand_in_operator.h"

static void store(const struct smelt__indexer_logits_spec *spec,
                  const smelt_indexer_logits_args *args, int64_t query, const double *logits) {
    const int64_t columns = smelt__indexer_logits_columns(spec, args);
    for (int64_t group = 0; group < spec->groups; group++) {
        float *const row = (float *)args->logits.data + query * args->logits.strides[0] +
                           (spec->groups > 1 ? group * args->logits.strides[1] : 0);
        for (int64_t i = 0; i < columns; i++)
            row[i] = (float)logits[group * columns + i] + 0.0F; /* +0 if too small for fp32 */
    }
}

smelt_status stand_in_logits(const smelt_operator *indexer,
                             const smelt_indexer_logits_args *given) {
    if (!given->q.data)
        return stand_in_fail(SMELT_ERROR_INVALID_ARGUMENT, "q is NULL");
    smelt_indexer_logits_args args = *given;
    const struct smelt__indexer_logits_spec spec = indexer->logits;
    const struct smelt__args_table *table =
        &smelt__indexer_logits_table[smelt__indexer_logits_table_number(
            spec.dtype == SMELT__DTYPE_FP8, spec.weights_dtype, spec.groups, spec.block_max,
            spec.candidate_block)];
    const int64_t columns = smelt__indexer_logits_columns(&spec, &args);
    const int64_t extents[SMELT__INDEXER_LOGITS_SYMBOLS] = {
        args.tokens, args.rows,      spec.heads,           spec.dim,
        spec.groups, spec.block_max, args.candidate_count, spec.candidate_block,
        columns};
    for (int i = 0; i < table->count; i++)
        smelt__tensor_pack(&table->rows[i], extents, smelt__tensor_of(&table->rows[i], &args));
    smelt_status status = stand_in_launch(indexer->knobs);
    double *const logits = malloc((size_t)(spec.groups * columns + 1) * sizeof *logits);
    if (!logits)
        status = SMELT_ERROR_OUT_OF_MEMORY;
    for (int64_t query = 0; query < args.tokens && status == SMELT_OK; query++) {
        if (smelt__indexer_logits_reference(&spec, &args, query, logits, NULL) != 0)
            status = SMELT_ERROR_OUT_OF_MEMORY;
        else
            store(&spec, &args, query, logits);
    }
    free(logits);
    return status;
}
