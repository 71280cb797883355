/* Strides that TMA does not support, on a fake driver: each operator whose kernel uses TMA for a
 * tensor refuses such a stride before its first launch, with a message that names it and the
 * remedy. */

#include "../unit/test.h"
#include "fakes.h"
#include "smelt/indexer_bwd.h"
#include "smelt/indexer_logits.h"
#include "smelt/indexer_topk.h"
#include "smelt/sparse_attn.h"

enum { TOKENS = 3, ROWS = 4, WIDTH = 64, INDEX_HEADS = 8, INDEX_DIM = 64 };

/* The smallest stride that is too long for tensors of bf16. */
static const int64_t TOO_LONG = INT64_C(1) << 39;

static struct fake_driver *driver;
static smelt_context *context;

static int make_context(void **unused) {
    (void)unused;
    smelt_context_options options = fakes_options();
    driver = fakes_driver();
    driver->devices = 1;
    driver->context_id = 1;
    driver->capability_major = 9;
    driver->chain_params = 0;
    return smelt_context_create(&context, &options);
}

static int destroy_context(void **unused) {
    (void)unused;
    smelt_context_destroy(&context);
    return 0;
}

static void *address(int number) {
    return (void *)((uintptr_t)number << 56); // NOLINT: never followed
}

static void begin(void) {
    driver->calls = driver->chain_length = 0;
    memset(driver->log, 0, sizeof driver->log);
}

/* A call with a stride that is too long is refused by name, and nothing was launched. */
static void refused(smelt_status status, const char *stride, const char *knob) {
    const int calls = driver->calls < FAKE_LOGGED ? driver->calls : FAKE_LOGGED;
    assert_int_equal(status, SMELT_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(smelt_last_error(), stride));
    assert_non_null(strstr(smelt_last_error(), "legal: below 549755813888 elements"));
    assert_non_null(strstr(smelt_last_error(), knob));
    assert_int_equal(driver->chain_length, 0);
    for (int i = 0; i < calls; i++)
        assert_null(strstr(driver->log[i], "cuMemset"));
}

TEST(attention_backward) {
    smelt_operator *attn;
    assert_int_equal(
        smelt_operator_create(&attn, context,
                              "sparse_attn:heads=64,dqk=576,dv=512,topk=64,passes=backward"),
        SMELT_OK);
    smelt_sparse_attn_grad_args args = SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
    args.tokens = TOKENS, args.rows = ROWS, args.width = WIDTH, args.scale = 1;
    args.q.data = address(1), args.kv.data = address(2), args.indices.data = address(3);
    args.out.data = address(4), args.lse.data = address(5), args.grad_out.data = address(6);
    args.dq.data = address(7), args.dkv.data = address(8);
    assert_int_equal(smelt_sparse_attn_backward_workspace(attn, &args, &args.workspace_bytes),
                     SMELT_OK);
    args.workspace = aligned_alloc(256, args.workspace_bytes);
    const int64_t strides[] = {TOKENS * TOO_LONG, TOO_LONG, 576};
    smelt_sparse_attn_grad_args bad = args;
    memcpy(bad.q.strides, strides, sizeof strides);
    begin();
    refused(smelt_sparse_attn_backward(attn, &bad, NULL), "q.strides[1] = 549755813888",
            "bwd.variant=mma");
    bad = args;
    memcpy(bad.grad_out.strides, strides, sizeof strides);
    begin();
    refused(smelt_sparse_attn_backward(attn, &bad, NULL), "grad_out.strides[1] = 549755813888",
            "bwd.variant=mma");
    begin();
    assert_int_equal(smelt_sparse_attn_backward(attn, &args, NULL), SMELT_OK);
    assert_true(driver->chain_length > 0);
    free(args.workspace);
    smelt_operator_destroy(&attn);
}

TEST(indexer_backward) {
    smelt_operator *indexer;
    assert_int_equal(smelt_operator_create(&indexer, context, "indexer_bwd:heads=8,dim=64,topk=64"),
                     SMELT_OK);
    smelt_indexer_bwd_args args = SMELT_INDEXER_BWD_ARGS_INIT;
    args.tokens = TOKENS, args.rows = ROWS, args.width = WIDTH;
    args.q.data = address(1), args.k.data = address(2), args.weights.data = address(3);
    args.indices.data = address(4), args.grad.data = address(5);
    args.dq.data = address(6), args.dweights.data = address(7), args.dk.data = address(8);
    assert_int_equal(smelt_indexer_bwd_backward_workspace(indexer, &args, &args.workspace_bytes),
                     SMELT_OK);
    args.workspace = aligned_alloc(256, args.workspace_bytes);
    smelt_indexer_bwd_args bad = args;
    bad.q.strides[0] = TOO_LONG, bad.q.strides[1] = INDEX_DIM;
    begin();
    refused(smelt_indexer_bwd_backward(indexer, &bad, NULL), "q.strides[0] = 549755813888",
            "main.variant=mma");
    begin();
    assert_int_equal(smelt_indexer_bwd_backward(indexer, &args, NULL), SMELT_OK);
    assert_true(driver->chain_length > 0);
    free(args.workspace);
    smelt_operator_destroy(&indexer);
}

TEST(indexer_logits) {
    smelt_operator *indexer;
    assert_int_equal(
        smelt_operator_create(&indexer, context, "indexer_logits:heads=8,dim=64,dtype=bf16"),
        SMELT_OK);
    smelt_indexer_logits_args args = SMELT_INDEXER_LOGITS_ARGS_INIT;
    args.tokens = TOKENS, args.rows = ROWS;
    args.q.data = address(1), args.k.data = address(2), args.weights.data = address(3);
    args.window_begin.data = address(4), args.window_end.data = address(5);
    args.logits.data = address(6);
    smelt_indexer_logits_args bad = args;
    bad.k.strides[0] = TOO_LONG;
    begin();
    refused(smelt_indexer_logits_forward(indexer, &bad, NULL), "k.strides[0] = 549755813888",
            "variant=mma");
    args.k.strides[0] = TOO_LONG - 8;
    begin();
    assert_int_equal(smelt_indexer_logits_forward(indexer, &args, NULL), SMELT_OK);
    assert_int_equal(driver->chain_length, 1);
    assert_true(driver->box.strides[1] == (uint64_t)(TOO_LONG - 8) * 2);
    smelt_operator_destroy(&indexer);
}

/* With chunks of one query each, a stride that is too long is refused before the first launch. */
TEST(indexer_topk) {
    smelt_operator *indexer;
    assert_int_equal(
        smelt_operator_create(&indexer, context, "indexer_topk:heads=8,dim=64,dtype=bf16,topk=4"),
        SMELT_OK);
    smelt_indexer_topk_args args = SMELT_INDEXER_TOPK_ARGS_INIT;
    args.tokens = TOKENS, args.rows = 64;
    args.q.data = address(1), args.k.data = address(2), args.weights.data = address(3);
    args.window_begin.data = address(4), args.window_end.data = address(5);
    args.indices.data = address(6);
    args.workspace_limit = 256; /* a row of logits */
    assert_int_equal(smelt_indexer_topk_forward_workspace(indexer, &args, &args.workspace_bytes),
                     SMELT_OK);
    args.workspace = aligned_alloc(256, args.workspace_bytes);
    begin();
    assert_int_equal(smelt_indexer_topk_forward(indexer, &args, NULL), SMELT_OK);
    assert_int_equal(driver->chain_length, 2 * TOKENS);
    smelt_indexer_topk_args bad = args;
    bad.q.strides[0] = TOO_LONG, bad.q.strides[1] = INDEX_DIM;
    begin();
    refused(smelt_indexer_topk_forward(indexer, &bad, NULL), "q.strides[0] = 549755813888",
            "variant=mma");
    bad = args;
    bad.k.strides[0] = TOO_LONG;
    begin();
    refused(smelt_indexer_topk_forward(indexer, &bad, NULL), "k.strides[0] = 549755813888",
            "variant=mma");
    free(args.workspace);
    smelt_operator_destroy(&indexer);
}

TESTS("strides that the copy engine cannot take", .group_setup = make_context,
      .group_teardown = destroy_context)
