/* The arguments of sparse_attn: the kernel's params, and refusals in addition to those that follow
 * from the operator's table (tests/gpu/arguments.c). No device: pointers are not dereferenced. */
#include "ops/call.h"
#include "ops/sparse_attn_args.h"
#include "smelt/sparse_attn.h"
#include "smelt/status.h"
#include "test.h"

static const char shape[] = "sparse_attn:heads=8,dqk=128,dv=64,topk=48";
static const char shape_sink[] = "sparse_attn:heads=8,dqk=128,dv=64,topk=48,sink=1";
static const char one_head[] = "sparse_attn:heads=1,dqk=128,dv=64,topk=48";
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
    smelt__operator_begin(op, &type, NULL, &spec);
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

/* An address that is not dereferenced: `number` distinguishes addresses, which are far apart;
 * `offset` misaligns. */
static void *address(int number, uintptr_t offset) {
    return (void *)(((uintptr_t)number << 44) + offset); // NOLINT: never followed
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

/* Legal, with every stride given: each tensor has gaps. */
static smelt_sparse_attn_args strided_args(void) {
    smelt_sparse_attn_args args = legal_args();
    args.q.strides[2] = 136, args.q.strides[1] = 8 * 136 + 8, args.q.strides[0] = 4000;
    args.kv.strides[1] = 144, args.kv.strides[0] = 800;
    args.indices.strides[1] = 41, args.indices.strides[0] = 131;
    args.topk_length.strides[1] = 2, args.topk_length.strides[0] = 7;
    args.out.strides[2] = 72, args.out.strides[1] = 8 * 72 + 16, args.out.strides[0] = 2000;
    args.lse.strides[2] = 3, args.lse.strides[1] = 25, args.lse.strides[0] = 79;
    args.max_logits.strides[2] = 4, args.max_logits.strides[1] = 33;
    args.max_logits.strides[0] = 103;
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

/* One integer of the arguments, set to one value. */
struct refusal {
    size_t offset;
    int64_t value;
    const char *message;
};

#define SET(field, value, message)                                                                 \
    { offsetof(smelt_sparse_attn_args, field), value, message }

static void refuse_all(const smelt_sparse_attn_args *base, const struct refusal *cases,
                       size_t count) {
    struct sparse_attn_fwd_params params;
    expect_legal(shape, base, &params);
    for (size_t i = 0; i < count; i++) {
        smelt_sparse_attn_args args = *base;
        memcpy((char *)&args + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        expect_refusal(shape, &args, cases[i].message);
    }
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

TEST(extents) {
    static const struct refusal cases[] = {
        SET(batches, INT64_MAX,
            "batches = 9223372036854775807 is out of range; legal: 0..2147483647"),
        SET(tokens, INT64_MIN, "tokens = -9223372036854775808 is out of range"),
        SET(width, 49, "width = 49 is out of range; this operator was made for topk=48"),
        SET(tokens, INT32_MAX, "batches * tokens = 4294967294 exceeds 2^31 - 1"),
        SET(batches, 715827883, "batches * tokens = 2147483649 exceeds 2^31 - 1"),
    };
    smelt_sparse_attn_args args = legal_args();
    refuse_all(&args, cases, COUNT(cases));
    args.scale = 3e38F; /* times log2(e) it would be infinite */
    expect_refusal(shape, &args,
                   "scale = 3e+38 is not legal; it must be positive and at most 2e+38");
    args.scale = -1;
    expect_refusal(shape, &args, "scale = -1 is not legal");
    args.scale = 1;

    /* Their product exceeds 64 bits; each is refused by itself before. */
    args.batches = args.tokens = INT64_MAX / 2;
    expect_refusal(shape, &args, "batches = 4611686018427387903 is out of range");
    args.batches = args.tokens = INT32_MAX;
    expect_refusal(shape, &args, "batches * tokens = 4611686014132420609 exceeds");
}

/* Without optional tensors. */
TEST(few_tensors) {
    struct sparse_attn_fwd_params params;
    smelt_sparse_attn_args args = legal_args();
    args.topk_length.data = NULL, args.max_logits.data = NULL;
    assert_int_equal(expect_legal(shape, &args, &params), 6);
    assert_null(params.work.topk_length);
    assert_null(params.max_logits);
    args.kv.data = NULL, args.rows = 0;
    assert_int_equal(expect_legal(shape, &args, &params), 6);
    assert_null(params.kv);
}

TEST(strides) {
    static const struct refusal cases[] = {
        SET(q.strides[2], INT64_MIN, "q.strides[2] (head) = -9223372036854775808 is negative"),
        SET(kv.strides[1], 130, "kv.strides[1] (row) = 130 is not a multiple of 8 elements"),
        SET(kv.strides[1], 2147483648,
            "kv.strides[1] (row) = 2147483648 exceeds 2147483647 elements"),
        SET(indices.strides[1], 39, "indices.strides[1] (token) = 39 is below the row's 40"),
        SET(out.strides[0], 8, "out.strides[0] (batch) = 8 is below the row's 64 elements"),
        SET(out.strides[2], 0, "out.strides[2] (head) = 0 makes outputs overlap"),
        SET(out.strides[1], 512, "out.strides[1] (token) = 512 makes outputs overlap"),
        SET(out.strides[0], 1744, "out.strides[0] (batch) = 1744 makes outputs overlap"),
        SET(lse.strides[1], 21, "lse.strides[1] (token) = 21 makes outputs overlap"),
        SET(lse.strides[0], INT64_MAX,
            "lse.strides[0] (batch) = 9223372036854775807 reaches beyond"),
        SET(kv.strides[2], 1, "kv.strides[2] = 1 is not legal: a tensor of 3 dimensions has 2"),
        SET(topk_length.strides[3], -2, "topk_length.strides[3] = -2 is not legal"),
    };
    smelt_sparse_attn_args args = strided_args();
    refuse_all(&args, cases, COUNT(cases));
}

/* Unusual but legal strides. */
TEST(legal_strides) {
    struct sparse_attn_fwd_params params;
    smelt_sparse_attn_args args = strided_args();
    args.q.strides[1] = 0, args.kv.strides[0] = 0, args.kv.strides[1] = 0;
    args.indices.strides[1] = 0, args.topk_length.strides[1] = 0;
    expect_legal(shape, &args, &params); /* inputs may repeat a row */
    assert_int_equal(params.q_token_stride, 0);

    args = strided_args(); /* tensors stored [B,H,T,...] */
    args.q.strides[1] = 128, args.q.strides[2] = 3 * 128;
    args.out.strides[1] = 64, args.out.strides[2] = 3 * 64;
    expect_legal(shape, &args, &params);
    args.kv.strides[1] = INT32_MAX - 7;
    expect_legal(shape, &args, &params);
    assert_true(params.kv_row_bytes == 2U * (INT32_MAX - 7));

    args = strided_args(); /* extent 1: any stride */
    args.batches = args.tokens = args.rows = 1;
    args.q.strides[0] = args.q.strides[1] = args.q.strides[2] = -3;
    args.kv.strides[0] = args.kv.strides[1] = INT64_MIN;
    args.indices.strides[0] = args.indices.strides[1] = -1;
    args.topk_length.strides[0] = args.topk_length.strides[1] = INT64_MAX;
    args.out.strides[0] = args.out.strides[1] = args.out.strides[2] = 7;
    args.lse.strides[0] = args.lse.strides[1] = args.lse.strides[2] = -9;
    memcpy(args.max_logits.strides, args.lse.strides, sizeof args.lse.strides);
    assert_int_equal(expect_legal(one_head, &args, &params), 1);
    assert_true(params.kv_row_bytes == 0);

    args = strided_args(); /* one head: the tokens are the innermost rows */
    args.out.strides[1] = 56;
    expect_refusal(one_head, &args, "out.strides[1] (token) = 56 is below the row's 64 elements");
}

/* ---- tensors in one another's memory ---- */

/* A tensor's address: `bytes` after the start of another tensor of the call. */
struct placement {
    size_t moved, onto; /* offsets of smelt_tensors in the args struct */
    int64_t bytes;
    const char *message; /* NULL: legal */
};

#define AT(moved, onto, bytes, message)                                                            \
    {                                                                                              \
        offsetof(smelt_sparse_attn_args, moved), offsetof(smelt_sparse_attn_args, onto), bytes,    \
            message                                                                                \
    }

/* Packed, 6 queries: q has 12288 bytes, kv 2560, indices 960, topk_length 24, out 6144, lse and
 * max_logits 192 each. */
TEST(overlaps) {
    static const struct placement cases[] = {
        {0, 0, 0, NULL}, /* as it is */
        AT(out, q, 0, "out (6144 bytes from 0x100000000000) overlaps q (12288 bytes"),
        AT(out, q, 12272, "overlaps q"),
        AT(out, q, 12288, NULL),
        AT(out, q, -6128, "overlaps q"),
        AT(out, q, -6144, NULL),
        AT(out, kv, 2544, "overlaps kv"),
        AT(out, kv, 2560, NULL),
        AT(lse, indices, 956, "lse (192 bytes from 0x3000000003bc) overlaps indices (960"),
        AT(lse, indices, 960, NULL),
        AT(lse, topk_length, -188, "overlaps topk_length"),
        AT(lse, topk_length, -192, NULL),
        AT(lse, out, 6140, "overlaps lse"),
        AT(lse, out, 6144, NULL),
        AT(max_logits, lse, 0, "lse (192 bytes from 0x700000000000) overlaps max_logits"),
        AT(max_logits, lse, 188, "overlaps max_logits"),
        AT(max_logits, lse, 192, NULL),
        AT(q, kv, 0, NULL), /* both are read */
        AT(topk_length, indices, 4, NULL),
    };
    struct sparse_attn_fwd_params params;
    for (size_t i = 0; i < COUNT(cases); i++) {
        smelt_sparse_attn_args args = legal_args();
        smelt_tensor tensor;
        if (i > 0) {
            memcpy(&tensor, (char *)&args + cases[i].onto, sizeof tensor);
            tensor.data = (char *)tensor.data + cases[i].bytes;
            memcpy((char *)&args + cases[i].moved, &tensor, sizeof tensor);
        }
        if (cases[i].message)
            expect_refusal(shape, &args, cases[i].message);
        else
            expect_legal(shape, &args, &params);
    }
}

TEST(workspace_overlaps) {
    struct sparse_attn_fwd_params params;
    smelt_sparse_attn_args args = legal_args();
    size_t bytes;
    assert_int_equal(ask_of(bucketed, &args, &bytes), SMELT_OK);
    args.workspace_bytes = bytes;
    args.workspace = address(1, 0);
    expect_refusal(bucketed, &args, "workspace (");
    expect_refusal(bucketed, &args, "overlaps q (12288 bytes from");
    expect_legal(shape, &args, &params); /* a plain operator has none */
    args.workspace = address(1, 12288);
    expect_legal(bucketed, &args, &params);
    args.workspace = address(6, 6128);
    expect_refusal(bucketed, &args, "out (6144 bytes from 0x600000000000) overlaps workspace");
    args.workspace = address(6, 6144);
    expect_legal(bucketed, &args, &params);
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

TEST(packed_strides) {
    struct sparse_attn_fwd_params params;
    smelt_sparse_attn_args args = legal_args();
    assert_int_equal(expect_legal(shape, &args, &params), 6);
    assert_int_equal(params.q_head_stride, 128);
    assert_int_equal(params.q_token_stride, 8 * 128);
    assert_int_equal(params.q_batch_stride, 3 * 8 * 128);
    assert_true(params.kv_row_bytes == 256);
    assert_int_equal(params.kv_batch_stride, 5 * 128);
    assert_int_equal(params.work.indices_token_stride, 40);
    assert_int_equal(params.work.indices_batch_stride, 120);
    assert_int_equal(params.work.topk_length_token_stride, 1);
    assert_int_equal(params.work.topk_length_batch_stride, 3);
    assert_int_equal(params.out_head_stride, 64);
    assert_int_equal(params.out_token_stride, 8 * 64);
    assert_int_equal(params.out_batch_stride, 3 * 8 * 64);
    assert_int_equal(params.lse_head_stride, 1);
    assert_int_equal(params.lse_token_stride, 8);
    assert_int_equal(params.lse_batch_stride, 24);
    assert_int_equal(args.q.strides[2], 0); /* the caller's struct is not changed */

    args.batches = 1, args.tokens = args.rows = INT32_MAX; /* strides past 32 bits */
    assert_true(expect_legal(shape, &args, &params) == INT32_MAX);
    assert_true(params.q_batch_stride == (int64_t)INT32_MAX * 8 * 128);
    assert_true(params.kv_batch_stride == (int64_t)INT32_MAX * 128);
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

TEST(filled) {
    smelt_sparse_attn_args args = strided_args();
    args.sink.data = address(5, 0);
    args.queries.data = address(9, 0), args.query_count.data = address(10, 0),
    args.query_capacity = 11;
    struct sparse_attn_fwd_params params;
    assert_int_equal(expect_legal(shape_sink, &args, &params), 11);
    assert_ptr_equal(params.q, address(1, 0));
    assert_ptr_equal(params.kv, address(2, 0));
    assert_ptr_equal(params.work.indices, address(3, 0));
    assert_ptr_equal(params.work.topk_length, address(4, 0));
    assert_ptr_equal(params.sink, address(5, 0));
    assert_ptr_equal(params.out, address(6, 0));
    assert_ptr_equal(params.lse, address(7, 0));
    assert_ptr_equal(params.max_logits, address(8, 0));
    assert_ptr_equal(params.work.queries, address(9, 0));
    assert_ptr_equal(params.work.query_count, address(10, 0));
    const struct {
        long long found, expected;
    } pairs[] = {{params.q_batch_stride, 4000},
                 {params.q_token_stride, 1096},
                 {params.q_head_stride, 136},
                 {params.kv_batch_stride, 800},
                 {params.out_batch_stride, 2000},
                 {params.out_token_stride, 592},
                 {params.out_head_stride, 72},
                 {params.lse_batch_stride, 79},
                 {params.lse_token_stride, 25},
                 {params.lse_head_stride, 3},
                 {params.max_logits_batch_stride, 103},
                 {params.max_logits_token_stride, 33},
                 {params.max_logits_head_stride, 4},
                 {params.work.indices_batch_stride, 131},
                 {params.work.indices_token_stride, 41},
                 {params.work.topk_length_batch_stride, 7},
                 {params.work.topk_length_token_stride, 2},
                 {params.work.batches, 2},
                 {params.work.tokens, 3},
                 {params.work.rows, 5},
                 {params.work.width, 40},
                 {params.work.query_capacity, 11},
                 {params.kv_row_bytes, 288}};
    for (size_t i = 0; i < COUNT(pairs); i++)
        assert_int_equal(pairs[i].found, pairs[i].expected);
    assert_true(params.scale == 0.25F);
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
    assert_int_equal(ask_of(bucketed, &args, &bytes), SMELT_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(smelt_last_error(), "batches * tokens"));
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
