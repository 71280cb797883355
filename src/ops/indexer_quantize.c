/* The operator indexer_quantize: see smelt/indexer_quantize.h. */
#include "smelt/indexer_quantize.h"

#include "codegen/families/indexer_quantize.h"
#include "indexer_quantize_rows.params.h"
#include "ops/call.h"
#include "ops/divide.h"
#include "ops/indexer_quantize_table.h"

static smelt_status launch(struct smelt__call *call) {
    const smelt_indexer_quantize_args *args = call->args;
    if (args->rows == 0)
        return SMELT_OK; /* of an empty call no tensor is looked at */
    const smelt_status status = smelt__call_check(call, 0, NULL, 0);
    if (status != SMELT_OK)
        return status;
    const struct indexer_quantize_rows_params params = {
        .x = args->x.data,
        .y = args->y.data,
        .scale = args->scale.data,
        .factor = args->factor.data,
        .x_row_stride = args->x.strides[0],
        .y_row_stride = args->y.strides[0],
        .rows = (int)args->rows,
    };
    const int dim = (int)smelt__spec_get(&call->op->spec, "dim");
    const int64_t items = smelt__divide_up(args->rows, smelt__indexer_quantize_block_rows(dim));
    return smelt__call_launch(call, call->op->kernels[0], items, args->free_multiprocessors,
                              &params);
}

static const struct smelt__pass passes[] = {
    {.pass = SMELT_PASS_FORWARD,
     .call = "smelt_indexer_quantize_forward",
     .tables = &smelt__indexer_quantize_table,
     .launch = launch},
};

const struct smelt__operator_type smelt__indexer_quantize_type = {
    .family = &smelt__indexer_quantize,
    .bytes = sizeof(smelt_operator),
    .passes = passes,
    .pass_count = 1,
};

SMELT__CALL(indexer_quantize, forward, FORWARD, smelt_indexer_quantize_args)
