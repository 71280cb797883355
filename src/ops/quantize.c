/* The operator quantize: see smelt/quantize.h. */
#include "smelt/quantize.h"

#include "codegen/families/quantize.h"
#include "ops/call.h"
#include "ops/divide.h"
#include "ops/quantize_table.h"
#include "quantize_rows.params.h"
#include "runtime/log.h"

static smelt_status launch(struct smelt__call *call) {
    const smelt_quantize_args *args = call->args;
    if (args->rows == 0)
        return SMELT_OK; /* an empty call's tensors are not checked */
    SMELT__TRY(smelt__call_check(call, 0, NULL, 0));
    const struct quantize_rows_params params = {
        SMELT__TENSOR_S(x, args->x),
        SMELT__TENSOR_S(y, args->y),
        SMELT__TENSOR_S(dequantized, args->dequantized),
        SMELT__TENSOR_S(scale, args->scale),
        .factor = args->factor.data,
        .rows = (int)args->rows,
    };
    const int dim = (int)smelt__spec_get(&call->op->spec, "dim");
    const int groups = (int)smelt__spec_get(&call->op->spec, "groups");
    const int64_t items =
        smelt__divide_up(args->rows * groups, smelt__quantize_block_groups(dim, groups));
    return smelt__call_launch(call, call->op->kernels[0], items, args->free_multiprocessors,
                              &params);
}

SMELT__OPERATOR(quantize, forward, FORWARD, smelt_operator, NULL, .tables = &smelt__quantize_table,
                .launch = launch)
