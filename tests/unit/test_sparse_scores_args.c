/* The arguments of sparse_scores: what reaches the kernel, and what is refused beyond the checks
 * that sparse_attn has, too. No device: the pointers are never followed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops/sparse_scores_args.h"

static const struct smelt__sparse_attn_shape shape = {8, 128, 64, 48, 0, 0};

/* An address that is only looked at: so far from the others that no tensor reaches the next. */
static void *address(int number) {
    return (void *)((uintptr_t)number << 44); // NOLINT: never followed
}

static smelt_sparse_scores_args legal_args(void) {
    smelt_sparse_scores_args args = SMELT_SPARSE_SCORES_ARGS_INIT;
    args.batches = 2;
    args.tokens = 3;
    args.rows = 5;
    args.width = 40;
    args.scale = 0.25F;
    args.q.data = address(1);
    args.kv.data = address(2);
    args.indices.data = address(3);
    args.topk_length.data = address(4);
    args.lse.data = address(5);
    args.target.data = address(6);
    return args;
}

static struct smelt__sparse_scores_packed pack(const smelt_sparse_scores_args *args) {
    struct smelt__sparse_scores_packed packed;
    if (smelt__sparse_scores_pack(&shape, args, &packed) != SMELT_OK)
        fail_msg("refused: %s", smelt_last_error());
    return packed;
}

static void expect_refusal(const smelt_sparse_scores_args *args, const char *message) {
    struct smelt__sparse_scores_packed packed = {.queries = 77};
    const smelt_status status = smelt__sparse_scores_pack(&shape, args, &packed);
    if (status != SMELT_ERROR_INVALID_ARGUMENT || !strstr(smelt_last_error(), message))
        fail_msg("expected '%s', got status %d '%s'", message, (int)status, smelt_last_error());
    assert_int_equal(packed.queries, 0);
}

static void packed_strides(void **state) {
    (void)state;
    const smelt_sparse_scores_args args = legal_args();
    const struct smelt__sparse_scores_packed packed = pack(&args);
    const struct sparse_scores_fwd_params *params = &packed.params;
    assert_int_equal(packed.queries, 6);
    assert_ptr_equal(params->q, address(1));
    assert_ptr_equal(params->kv, address(2));
    assert_ptr_equal(params->work.indices, address(3));
    assert_ptr_equal(params->work.topk_length, address(4));
    assert_ptr_equal(params->lse, address(5));
    assert_ptr_equal(params->target, address(6));
    assert_null(params->sink);
    assert_int_equal(params->q_head_stride, 128);
    assert_int_equal(params->q_token_stride, 8 * 128);
    assert_int_equal(params->q_batch_stride, 3 * 8 * 128);
    assert_int_equal(params->kv_row_bytes, 256);
    assert_int_equal(params->kv_batch_stride, 5 * 128);
    assert_int_equal(params->lse_head_stride, 1);
    assert_int_equal(params->lse_token_stride, 8);
    assert_int_equal(params->lse_batch_stride, 24);
    assert_int_equal(params->target_token_stride, 40);
    assert_int_equal(params->target_batch_stride, 120);
    assert_int_equal(params->work.width, 40);
    assert_true(params->scale == 0.25F);
}

static void given_strides(void **state) {
    (void)state;
    smelt_sparse_scores_args args = legal_args();
    args.free_multiprocessors = 3;
    args.lse.strides[2] = 3, args.lse.strides[1] = 25, args.lse.strides[0] = 79;
    args.target.strides[1] = 41, args.target.strides[0] = 131;
    args.queries.data = address(7);
    args.query_capacity = 4;
    const struct smelt__sparse_scores_packed packed = pack(&args);
    assert_int_equal(packed.queries, 4);
    assert_int_equal(packed.free_multiprocessors, 3);
    assert_int_equal(packed.params.lse_head_stride, 3);
    assert_int_equal(packed.params.lse_token_stride, 25);
    assert_int_equal(packed.params.lse_batch_stride, 79);
    assert_int_equal(packed.params.target_token_stride, 41);
    assert_int_equal(packed.params.target_batch_stride, 131);
    assert_ptr_equal(packed.params.work.queries, address(7));
}

/* Nothing is looked at of a call without queries. */
static void empty_call(void **state) {
    (void)state;
    smelt_sparse_scores_args args = SMELT_SPARSE_SCORES_ARGS_INIT;
    args.width = 1;
    args.scale = 1;
    assert_int_equal(pack(&args).queries, 0);
    args.tokens = 3;
    expect_refusal(&args, "q is NULL");
}

static void refusals(void **state) {
    (void)state;
    smelt_sparse_scores_args args = legal_args();
    args.lse.data = NULL;
    expect_refusal(&args, "lse is NULL");
    args = legal_args();
    args.target.data = NULL;
    expect_refusal(&args, "target is NULL");
    args = legal_args();
    args.target.strides[1] = 39, args.target.strides[0] = 117;
    expect_refusal(&args, "target");
    args = legal_args();
    args.target.data = (void *)(uintptr_t)args.lse.data; /* on what is read */
    expect_refusal(&args, "overlap");
    args = legal_args();
    args.width = 49;
    expect_refusal(&args, "width = 49 is out of range; this operator was made for topk=48");
    args = legal_args();
    args.sink.data = address(8);
    expect_refusal(&args, "sink is given but the operator was made with sink=0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_strides),
        cmocka_unit_test(given_strides),
        cmocka_unit_test(empty_call),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("sparse_scores' arguments", tests, NULL, NULL);
}
