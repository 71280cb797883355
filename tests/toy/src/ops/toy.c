/* The tests' toy operator: see smelt/toy.h. */
#include "smelt/toy.h"

#include <math.h>

#include "ops/call.h"
#include "ops/toy_table.h"
#include "runtime/log.h"
#include "toy_scale.params.h"

/* Checks a call whose tensors are `from` and `to`, and launches its kernel. */
static smelt_status scale(struct smelt__call *call, const smelt_const_tensor *from,
                          const smelt_tensor *to, float factor) {
    const int64_t tokens = call->extents[SMELT__TOY_T];
    if (!isfinite(factor))
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "factor = %g is not legal; it must be finite", (double)factor);
    const smelt_status status = tokens ? smelt__call_check(call, 0, NULL, 0) : SMELT_OK;
    if (status != SMELT_OK || tokens == 0)
        return status;
    const struct toy_scale_params params = {.from = from->data,
                                            .to = to->data,
                                            .from_row_stride = from->strides[0],
                                            .to_row_stride = to->strides[0],
                                            .rows = (int)tokens,
                                            .factor = factor};
    return smelt__call_launch(call, smelt__operator_kernels(call->op, call->pass->pass)[0], tokens,
                              0, &params);
}

static smelt_status forward(struct smelt__call *call) {
    const smelt_toy_args *args = call->args;
    return scale(call, &args->x, &args->out, args->factor);
}

static smelt_status backward(struct smelt__call *call) {
    const smelt_toy_grad_args *args = call->args;
    return scale(call, &args->grad, &args->dx, args->factor);
}

static const struct smelt__pass passes[] = {
    SMELT__PASS(toy, forward, FORWARD, .tables = &smelt__toy_table, .launch = forward),
    SMELT__PASS(toy, backward, BACKWARD, .tables = &smelt__toy_grad_table, .launch = backward),
};

SMELT__TYPE(toy, smelt_operator, NULL)
SMELT__CALL(toy, forward, FORWARD, smelt_toy_args)
SMELT__CALL(toy, backward, BACKWARD, smelt_toy_grad_args)
