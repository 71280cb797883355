/* Problems of sparse_attn's backward pass: its tensors in addition to the forward pass's inputs. */
#include "harness/normal.h"
#include "harness/sparse_attn.h"

#define TENSOR(name) SMELT__SPARSE_ATTN_GRAD_##name

enum { STREAM_GRAD_OUT = 11, STREAM_SUM = 13 };

/* ---- shape ----------------------------------------------------------------------------------- */

void smelt__sparse_attn_grad_shape_problem(struct smelt__problem *problem) {
    smelt__sparse_attn_shape_extents(problem);
    if (problem->options.far) /* all partial rows at once */
        ((smelt_sparse_attn_grad_args *)problem->args)->workspace_limit = SIZE_MAX;
}

struct smelt__key_rows smelt__sparse_attn_dkv_rows(const struct smelt__problem *problem) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    return (struct smelt__key_rows){TENSOR(DKV), TENSOR(DKV_FP32), TENSOR(DKV_SUM), spec->dqk};
}

int smelt__sparse_attn_grad_given(const struct smelt__problem *problem, int tensor) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    const struct smelt__key_rows dkv = smelt__sparse_attn_dkv_rows(problem);
    switch (tensor) {
    case TENSOR(DKV):
    case TENSOR(DKV_FP32):
    case TENSOR(DKV_SUM):
        return smelt__key_rows_given(problem, &dkv, tensor);
    case TENSOR(DSINK):
        return spec->sink;
    default: /* inputs have the forward pass's numbers */
        return smelt__sparse_attn_given(problem, tensor);
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

int smelt__sparse_attn_grad_fill(struct smelt__problem *problem) {
    const struct smelt__key_rows dkv = smelt__sparse_attn_dkv_rows(problem);
    if (smelt__sparse_attn_fill(problem) != 0)
        return -1;
    smelt__normals_fill(problem, TENSOR(GRAD_OUT), STREAM_GRAD_OUT);
    smelt__unlisted_fill(problem, TENSOR(GRAD_OUT));
    return smelt__sparse_attn_fill_results(problem, TENSOR(OUT), TENSOR(LSE)) != 0
               ? -1
               : smelt__key_rows_fill(problem, &dkv, STREAM_SUM);
}
