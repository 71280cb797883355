/* The arguments of sparse_attn: the kernel's params, and refusals in addition to those that follow
 * from the operator's table (tests/gpu/arguments.c, tests/fault/arguments.c). There is no device: pointers
 * are not dereferenced. */
#include "no_device.h"
#include "ops/call.h"
#include "ops/sparse_attn_args.h"
#include "smelt/sparse_attn.h"
#include "smelt/status.h"
#include "test.h"

static const char shape[] = "sparse_attn:heads=8,dqk=128,dv=64,topk=48";
static const char bucketed[] = "sparse_attn:heads=8,dqk=128,dv=64,topk=48,buckets=16/32";

/* The operator of a spec without kernels: its calls are checked and packed, not launched. */
static struct {
    struct sparse_attn_fwd_params params;
    int64_t queries;
} packed;

static smelt_status pack(struct smelt__call *call) {
    const int buckets = smelt__spec_get(&call->op->spec, "buckets") ? 3 : 0;
    return smelt__sparse_attn_pack(call, buckets, &packed.params, &packed.queries);
}

static struct smelt__pass forward_pass;
static struct smelt__operator_type type;

static smelt_operator *operator_of(const char *text) {
    struct smelt__spec spec;
    struct smelt__message message;
    forward_pass = smelt__sparse_attn_type.passes[0];
    forward_pass.launch = pack;
    type = smelt__sparse_attn_type;
    type.passes = &forward_pass, type.pass_count = 1;
    smelt_operator *op = calloc(1, type.bytes);
    assert_non_null(op);
    assert_int_equal(smelt__spec_parse(text, &spec, &message), 0);
    smelt__operator_begin(op, &type, no_device(), &spec);
    type.prepare(op);
    return op;
}

static smelt_status pack_of(const char *text, const smelt_sparse_attn_args *args) {
    smelt_operator *op = operator_of(text);
    const smelt_status status = smelt_operator_launch(op, SMELT_PASS_FORWARD, args, NULL);
    smelt_operator_destroy(&op);
    return status;
}

static smelt_status ask_of(const char *text, const smelt_sparse_attn_args *args, size_t *bytes) {
    smelt_operator *op = operator_of(text);
    const smelt_status status = smelt_operator_workspace(op, SMELT_PASS_FORWARD, args, bytes);
    smelt_operator_destroy(&op);
    return status;
}

/* Legal and packed, with all optional tensors except the sink and the query list. */
static smelt_sparse_attn_args legal_args(void) {
    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT;
    args.batches = 2;
    args.tokens = 3;
    args.rows = 5;
    args.width = 40;
    args.scale = 0.25F;
    args.q.data = address(1, 0);
    args.kv.data = address(2, 0);
    args.indices.data = address(3, 0);
    args.topk_length.data = address(4, 0);
    args.out.data = address(6, 0);
    args.lse.data = address(7, 0);
    args.max_logits.data = address(8, 0);
    return args;
}

static void expect_refusal(const char *spec, const smelt_sparse_attn_args *args,
                           const char *message) {
    packed.queries = 0;
    const smelt_status status = pack_of(spec, args);
    if (status != SMELT_ERROR_INVALID_ARGUMENT || !strstr(smelt_last_error(), message))
        fail_msg("expected '%s', got status %d '%s'", message, (int)status, smelt_last_error());
    assert_int_equal(packed.queries, 0);
}

static int64_t expect_legal(const char *spec, const smelt_sparse_attn_args *args,
                            struct sparse_attn_fwd_params *params) {
    packed.queries = -1;
    if (pack_of(spec, args) != SMELT_OK)
        fail_msg("refused: %s", smelt_last_error());
    *params = packed.params;
    return packed.queries;
}

TEST(numbers) {
    smelt_sparse_attn_args args = legal_args();
    args.scale = 3e38F; /* times log2(e) it would be infinite */
    expect_refusal(shape, &args,
                   "scale = 3e+38 is not legal; it must be positive and at most 2e+38");
    args.scale = -1;
    expect_refusal(shape, &args, "scale = -1 is not legal");
    args.scale = 1;
    args.batches = args.tokens = INT32_MAX;
    expect_refusal(shape, &args, "batches * tokens = 4611686014132420609 exceeds");
}

/* Tensors may share a buffer and have different columns of its rows. */
TEST(interleaved) {
    struct sparse_attn_fwd_params params;
    smelt_sparse_attn_args args = legal_args();
    /* [6 * 8][192] bf16: q in the first 128 columns, out in the last 64. */
    args.q.strides[2] = args.out.strides[2] = 192;
    args.q.strides[1] = args.out.strides[1] = 8 * 192;
    args.q.strides[0] = args.out.strides[0] = 3 * 8 * 192;
    args.out.data = address(1, 256);
    expect_legal(shape, &args, &params);
    args.out.data = address(1, 240);
    expect_refusal(shape, &args, "out (18176 bytes from 0x1000000000f0) overlaps q (18304 bytes");
    args.out.data = address(1, 272); /* its rows reach the next ones of q */
    expect_refusal(shape, &args, "overlaps q");

    /* lse and max_logits in turn, one fp32 each. */
    args = legal_args();
    args.lse.strides[2] = 2, args.lse.strides[1] = 16, args.lse.strides[0] = 48;
    memcpy(args.max_logits.strides, args.lse.strides, sizeof args.lse.strides);
    args.max_logits.data = address(7, 4);
    expect_legal(shape, &args, &params);
    args.max_logits.data = address(7, 8);
    expect_refusal(shape, &args, "overlaps max_logits");
}

TEST(query_list) {
    struct sparse_attn_fwd_params params;
    smelt_sparse_attn_args args = legal_args();
    args.query_capacity = 4;
    expect_refusal(shape, &args, "queries is NULL but query_capacity is given");
    args.query_capacity = 0, args.query_count.data = address(10, 0);
    expect_refusal(shape, &args, "queries is NULL but query_count");
    args.queries.data = address(9, 4), args.query_count.data = address(10, 4);
    args.query_capacity = 9; /* more than there are queries: entries may repeat or be skipped */
    assert_int_equal(expect_legal(shape, &args, &params), 9);
    assert_int_equal(params.work.query_capacity, 9);
    args.query_count.data = NULL;
    assert_int_equal(expect_legal(shape, &args, &params), 9);
    assert_null(params.work.query_count);
    args.query_capacity = 0;
    assert_int_equal(expect_legal(shape, &args, &params), 0);
}

TEST(nothing_to_do) {
    struct sparse_attn_fwd_params params;
    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT; /* an empty batch has no memory */
    args.width = 1, args.scale = 1;
    assert_int_equal(expect_legal(shape, &args, &params), 0);
    args.batches = 3;
    assert_int_equal(expect_legal(shape, &args, &params), 0);
    args.batches = 0, args.tokens = 5; /* B = 0 is not such a case */
    expect_refusal(shape, &args, "q is NULL");
    args.tokens = 0;
    args.scale = 0; /* still checked */
    expect_refusal(shape, &args, "scale = 0");
}

/* ---- buckets ---- */

static size_t workspace_of(const char *given, const smelt_sparse_attn_args *args) {
    size_t bytes = 77;
    if (ask_of(given, args, &bytes) != SMELT_OK)
        fail_msg("refused: %s", smelt_last_error());
    return bytes;
}

TEST(workspace_size) {
    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT; /* no tensor or scale yet */
    size_t bytes = 77, before = 0;
    args.tokens = 10, args.width = 1;
    assert_int_equal(workspace_of(shape, &args), 0);
    for (int64_t tokens = 1; tokens < 100000; tokens += 1 + tokens / 7) {
        args.tokens = tokens;
        bytes = workspace_of(bucketed, &args);
        assert_true(bytes >= (size_t)tokens * 8 && before <= (size_t)tokens * 64);
        before = bytes;
    }
    args.batches = 3, args.tokens = 100;
    bytes = workspace_of(bucketed, &args);
    args.batches = 1, args.tokens = 300;
    assert_int_equal(workspace_of(bucketed, &args), bytes);
    args.tokens = 5, args.queries.data = address(9, 0), args.query_capacity = 300;
    assert_int_equal(workspace_of(bucketed, &args), bytes);
    args.query_capacity = 0;
    assert_int_equal(workspace_of(bucketed, &args), 0);
    args.queries.data = NULL, args.batches = 0, args.tokens = 300; /* counts as 1 */
    assert_int_equal(workspace_of(bucketed, &args), bytes);
    args.batches = 1 << 20, args.tokens = 1 << 20;
    assert_refused(ask_of(bucketed, &args, &bytes), SMELT_ERROR_INVALID_ARGUMENT,
                   "batches * tokens");
    args.size = 8;
    assert_int_equal(ask_of(bucketed, &args, &bytes), SMELT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(smelt_sparse_attn_forward_workspace(NULL, &args, &bytes),
                     SMELT_ERROR_INVALID_ARGUMENT);
}

TEST(workspace_and_width) {
    struct sparse_attn_fwd_params params;
    smelt_sparse_attn_args args = legal_args();
    args.workspace_bytes = SIZE_MAX;
    expect_refusal(bucketed, &args, "workspace is NULL; this call needs");
    args.workspace = address(12, 8), args.workspace_bytes = 1 << 20;
    expect_refusal(bucketed, &args, "workspace = 0xc00000000008 is not aligned");
    args.workspace = address(12, 16);
    const size_t bytes = workspace_of(bucketed, &args);
    args.workspace_bytes = bytes - 1;
    expect_refusal(bucketed, &args, "workspace_bytes = ");
    args.workspace_bytes = bytes;
    assert_int_equal(expect_legal(bucketed, &args, &params), args.batches * args.tokens);
    args.indices.strides[1] = 0, args.indices.strides[0] = 0;
    args.width = 49; /* above topk */
    assert_int_equal(expect_legal(bucketed, &args, &params), args.batches * args.tokens);
    assert_int_equal(params.work.width, 49);
    expect_refusal(shape, &args, "width = 49 is out of range");
    args.width = 0;
    expect_refusal(bucketed, &args, "width = 0 is out of range; legal: 1..268435455");
    args.width = 1 << 28;
    expect_refusal(bucketed, &args, "width = 268435456 is out of range");
    args.width = 49, args.indices.strides[1] = 48, args.indices.strides[0] = 4800;
    expect_refusal(bucketed, &args,
                   "indices.strides[1] (token) = 48 is below the row's 49 elements");
    args = legal_args(), args.workspace = address(12, 1); /* a plain operator ignores it */
    assert_int_equal(expect_legal(shape, &args, &params), args.batches * args.tokens);
    assert_null(params.work.query_range);
    assert_null(params.work.extents);
    assert_int_equal(params.work.pdl_wait_at_end, 0);
}

/* The number of blocks does not wrap around at 2^31 and 2^32, and the largest legal number is
 * accepted. */
TEST(grids) {
    for (int64_t each = 1; each <= 64; each *= 4) {
        const struct smelt__kernel kernel = {.item = "query", .blocks_per_item = each};
        const struct smelt_operator one = {.passes = SMELT_PASS_FORWARD,
                                           .count = 1,
                                           .pass = {SMELT_PASS_FORWARD},
                                           .kernels = {&kernel}};
        const int64_t most = INT32_MAX / each,
                      more[] = {most + 1, (INT64_C(1) << 32) / each, (INT64_C(1) << 32) / each + 1};
        assert_int_equal(smelt__operator_check_grid(&one, SMELT_PASS_FORWARD, most), SMELT_OK);
        assert_int_equal(smelt__operator_check_grid(&one, SMELT_PASS_BACKWARD, more[0]), SMELT_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(smelt__operator_check_grid(&one, SMELT_PASS_FORWARD, more[i]),
                             SMELT_ERROR_INVALID_ARGUMENT);
    }
}

TESTS("sparse_attn_args")
