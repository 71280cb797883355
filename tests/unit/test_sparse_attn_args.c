/* The arguments of sparse_attn: the forward kernel's params, the backward pass's workspace and grid, and
 * refusals in addition to those of every operator (tests/fault/refusals.c). There is no device: pointers are not
 * dereferenced, and nothing is launched. */
#include "no_device.h"
#include "ops/sparse_attn.h"
#include "ops/split_sizes.h"
#include "smelt/sparse_attn.h"
#include "smelt/status.h"
#include "test.h"

/* Calls a pass of an operator without kernels: its workspace function or, if bytes is NULL, its launch. */
static smelt_status call_of(const char *text, const struct smelt__pass *pass, const void *args,
                            size_t *bytes) {
    struct smelt__operator_type type = smelt__sparse_attn_type;
    struct smelt__spec spec;
    struct smelt__message message;
    type.passes = pass, type.pass_count = 1;
    smelt_operator *const op = calloc(1, type.bytes);
    assert_non_null(op);
    assert_int_equal(smelt__spec_parse(text, &spec, &message), 0);
    smelt__operator_begin(op, &type, no_device(), &spec);
    if (pass->pass == SMELT_PASS_FORWARD)
        type.prepare(op);
    const smelt_status status = bytes ? smelt_operator_workspace(op, pass->pass, args, bytes)
                                      : smelt_operator_launch(op, pass->pass, args, NULL);
    free(op);
    return status;
}

/* ---- the forward pass ---- */

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

static smelt_status forward_of(const char *text, const smelt_sparse_attn_args *args,
                               size_t *bytes) {
    struct smelt__pass pass = smelt__sparse_attn_type.passes[0];
    pass.launch = pack;
    return call_of(text, &pass, args, bytes);
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
    assert_refused(forward_of(spec, args, NULL), SMELT_ERROR_INVALID_ARGUMENT, message);
    assert_int_equal(packed.queries, 0);
}

static int64_t expect_legal(const char *spec, const smelt_sparse_attn_args *args) {
    packed.queries = -1;
    if (forward_of(spec, args, NULL) != SMELT_OK)
        fail_msg("refused: %s", smelt_last_error());
    return packed.queries;
}

/* Tensors may share a buffer and have different columns of its rows. */
TEST(interleaved) {
    smelt_sparse_attn_args args = legal_args();
    /* [6 * 8][192] bf16: q in the first 128 columns, out in the last 64. */
    args.q.strides[2] = args.out.strides[2] = 192;
    args.q.strides[1] = args.out.strides[1] = 8 * 192;
    args.q.strides[0] = args.out.strides[0] = 3 * 8 * 192;
    args.out.data = address(1, 256);
    expect_legal(shape, &args);
    args.out.data = address(1, 240);
    expect_refusal(shape, &args, "out (18176 bytes from 0x1000000000f0) overlaps q (18304 bytes");
    args.out.data = address(1, 272); /* its rows reach the next ones of q */
    expect_refusal(shape, &args, "overlaps q");

    /* lse and max_logits in turn, one fp32 each. */
    args = legal_args();
    args.lse.strides[2] = 2, args.lse.strides[1] = 16, args.lse.strides[0] = 48;
    memcpy(args.max_logits.strides, args.lse.strides, sizeof args.lse.strides);
    args.max_logits.data = address(7, 4);
    expect_legal(shape, &args);
    args.max_logits.data = address(7, 8);
    expect_refusal(shape, &args, "overlaps max_logits");
}

TEST(query_list) {
    smelt_sparse_attn_args args = legal_args();
    args.query_capacity = 4;
    expect_refusal(shape, &args, "queries is NULL but query_capacity is given");
    args.query_capacity = 0, args.query_count.data = address(10, 0);
    expect_refusal(shape, &args, "queries is NULL but query_count");
    args.queries.data = address(9, 4), args.query_count.data = address(10, 4);
    args.query_capacity = 9; /* more than there are queries: entries may repeat or be skipped */
    assert_int_equal(expect_legal(shape, &args), 9);
    assert_int_equal(packed.params.work.query_capacity, 9);
    args.query_count.data = NULL;
    assert_int_equal(expect_legal(shape, &args), 9);
    assert_null(packed.params.work.query_count);
    args.query_capacity = 0;
    assert_int_equal(expect_legal(shape, &args), 0);
}

TEST(nothing_to_do) {
    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT; /* an empty batch has no memory */
    args.width = 1, args.scale = 1;
    assert_int_equal(expect_legal(shape, &args), 0);
    args.batches = 3;
    assert_int_equal(expect_legal(shape, &args), 0);
    args.batches = 0, args.tokens = 5; /* B = 0 is not such a case */
    expect_refusal(shape, &args, "q is NULL");
    args.tokens = 0;
    args.scale = 0; /* still checked */
    expect_refusal(shape, &args, "scale = 0");
}

static size_t workspace_of(const char *given, const smelt_sparse_attn_args *args) {
    size_t bytes = 77;
    if (forward_of(given, args, &bytes) != SMELT_OK)
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
    assert_refused(forward_of(bucketed, &args, &bytes), SMELT_ERROR_INVALID_ARGUMENT,
                   "batches * tokens");
    args.size = 8;
    assert_int_equal(forward_of(bucketed, &args, &bytes), SMELT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(smelt_sparse_attn_forward_workspace(NULL, &args, &bytes),
                     SMELT_ERROR_INVALID_ARGUMENT);
}

TEST(workspace_and_width) {
    smelt_sparse_attn_args args = legal_args();
    args.workspace = address(12, 16);
    const size_t bytes = workspace_of(bucketed, &args);
    args.workspace_bytes = bytes;
    assert_int_equal(expect_legal(bucketed, &args), args.batches * args.tokens);
    args.indices.strides[1] = 0, args.indices.strides[0] = 0;
    args.width = 49; /* above topk */
    assert_int_equal(expect_legal(bucketed, &args), args.batches * args.tokens);
    assert_int_equal(packed.params.work.width, 49);
    expect_refusal(shape, &args, "width = 49 is out of range");
    args.width = 0;
    expect_refusal(bucketed, &args, "width = 0 is out of range; legal: 1..268435455");
    args.width = 1 << 28;
    expect_refusal(bucketed, &args, "width = 268435456 is out of range");
    args.width = 49, args.indices.strides[1] = 48, args.indices.strides[0] = 4800;
    expect_refusal(bucketed, &args,
                   "indices.strides[1] (token) = 48 is below the row's 49 elements");
    args = legal_args(), args.workspace = address(12, 1); /* a plain operator ignores it */
    assert_int_equal(expect_legal(shape, &args), args.batches * args.tokens);
    assert_null(packed.params.work.query_range);
    assert_null(packed.params.work.extents);
    assert_int_equal(packed.params.work.pdl_wait_at_end, 0);
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

/* ---- the backward pass ---- */

enum { HEADS = 8, DQK = 128, DV = 64, TOPK = 48 };

static const int grad_bounds[] = {16, TOPK};

/* For a main kernel without groups; tests change it. */
static struct smelt__sparse_attn_backward backward_of(int sink, int buckets, int deterministic) {
    return (struct smelt__sparse_attn_backward){
        .shape = {HEADS, DQK, DV, TOPK, sink, buckets},
        .bounds = grad_bounds,
        .deterministic = deterministic,
        .main = {.group_queries = 1, .query_rows = 16, .head_blocks = 1, .block_heads = 16},
        .sides = 1,
    };
}

static smelt_sparse_attn_grad_args legal_grad_args(void) {
    smelt_sparse_attn_grad_args args = SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
    args.batches = 2;
    args.tokens = 3;
    args.rows = 5;
    args.width = 40;
    args.scale = 0.25F;
    args.q.data = address(1, 0);
    args.kv.data = address(2, 0);
    args.indices.data = address(3, 0);
    args.out.data = address(4, 0);
    args.lse.data = address(5, 0);
    args.grad_out.data = address(6, 0);
    args.dq.data = address(7, 0);
    args.dkv.data = address(8, 0);
    args.workspace = address(9, 0);
    args.workspace_bytes = 1 << 20;
    return args;
}

/* The operator of the calls. */
static struct smelt__sparse_attn_backward subject;

static smelt_status check(struct smelt__call *given) {
    return smelt__sparse_attn_backward_launch(&subject,
                                              given); /* refuses, so it launches nothing */
}

static smelt_status ask(const struct smelt__call *given, size_t *bytes) {
    return smelt__sparse_attn_backward_workspace(&subject, given, bytes);
}

/* bytes NULL: the call, else the workspace function. */
static smelt_status backward_call(const struct smelt__sparse_attn_backward *backward,
                                  const smelt_sparse_attn_grad_args *args, size_t *bytes) {
    struct smelt__pass pass = smelt__sparse_attn_type.passes[1];
    char text[160];
    smelt_operator without = {.count = 0};
    snprintf(text, sizeof text, "sparse_attn:heads=%d,dqk=%d,dv=%d,topk=%d,passes=backward%s%s%s",
             HEADS, DQK, DV, backward->shape.topk, backward->shape.sink ? ",sink=1" : "",
             backward->shape.buckets ? ",buckets=16" : "",
             backward->deterministic ? ",deterministic=1" : "");
    pass.launch = check, pass.workspace = ask;
    subject = *backward;
    subject.op = &without;
    return call_of(text, &pass, args, bytes);
}

static void expect_grad_refusal(const struct smelt__sparse_attn_backward *backward,
                                const smelt_sparse_attn_grad_args *args, const char *message) {
    assert_refused(backward_call(backward, args, NULL), SMELT_ERROR_INVALID_ARGUMENT, message);
}

TEST(combinations) {
    const struct smelt__sparse_attn_backward plain = backward_of(0, 0, 0),
                                             buckets = backward_of(0, 2, 0);
    smelt_sparse_attn_grad_args args = legal_grad_args();
    args.rows = INT32_MAX;
    expect_grad_refusal(&plain, &args, "batches = 2 times rows = 2147483647 exceeds 2^31 - 1");
    args = legal_grad_args();
    args.partition = address(10, 0);
    expect_grad_refusal(&plain, &args, "partition is given but the operator has no buckets");
    expect_grad_refusal(&buckets, &args, "partition_bytes = 0 is too small");
    args.partition = address(10, 4);
    expect_grad_refusal(&buckets, &args, "partition = 0xa00000000004 is not aligned");
}

/* Overlaps with memory that is not a tensor are also refused. */
TEST(overlaps) {
    const struct smelt__sparse_attn_backward backward = backward_of(0, 2, 0);
    smelt_sparse_attn_grad_args args = legal_grad_args();
    args.partition = address(9, 256), args.partition_bytes = 1 << 16;
    expect_grad_refusal(&backward, &args, "overlaps partition (");
    args = legal_grad_args(); /* to the end of all memory */
    args.workspace = address(1, 1 << 20), args.workspace_bytes = SIZE_MAX;
    expect_grad_refusal(&backward, &args, "overlaps workspace (");
}

static size_t bytes_of(const struct smelt__sparse_attn_backward *backward,
                       const smelt_sparse_attn_grad_args *args) {
    size_t bytes = 77;
    if (backward_call(backward, args, &bytes) != SMELT_OK)
        fail_msg("refused: %s", smelt_last_error());
    return bytes;
}

/* A larger extent never needs less workspace; a query list's capacity replaces the number of
 * queries. */
TEST(workspace) {
    for (int kind = 0; kind < 8; kind++) {
        struct smelt__sparse_attn_backward backward =
            backward_of(kind & 1, kind & 2 ? 2 : 0, kind & 4 ? 1 : 0);
        smelt_sparse_attn_grad_args args = SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
        size_t before = 0;
        backward.main.group_queries = kind & 1 ? 4 : 1;
        backward.main.slice_blocks = kind & 4 ? 0 : 1;
        backward.main_blocks = 132;
        args.rows = 100;
        args.width = TOPK;
        for (args.tokens = 0; args.tokens < 400; args.tokens += 7) {
            const size_t bytes = bytes_of(&backward, &args);
            assert_true(bytes >= before);
            before = bytes;
        }
        for (args.rows = 100; args.rows < 5000; args.rows *= 2) {
            const size_t bytes = bytes_of(&backward, &args);
            assert_true(bytes >= before);
            /* the sums of dkv are in it */
            assert_true(bytes >= (size_t)args.rows * DQK * sizeof(float));
            before = bytes;
        }
        args.queries.data = address(1, 0);
        args.query_capacity = 1, args.rows = 100;
        assert_true(bytes_of(&backward, &args) <= before);
    }
    smelt_sparse_attn_grad_args args = SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
    const struct smelt__sparse_attn_backward backward = backward_of(0, 0, 0);
    size_t bytes;
    args.width = 1;
    assert_int_equal(bytes_of(&backward, &args), 0); /* neither queries nor rows */
    args.tokens = args.rows = 1, args.width = -1;
    assert_int_equal(backward_call(&backward, &args, &bytes), SMELT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(bytes, 0);
}

/* The distance between a call's lists in dq; 0: they are in the workspace, which must have space
 * for them. */
static int64_t lists_in_dq(const struct smelt__sparse_attn_backward *backward,
                           const smelt_sparse_attn_grad_args *args) {
    const struct smelt__grad_layout there = smelt__grad_find_layout(backward, args);
    smelt_sparse_attn_grad_args without = *args;
    without.dq.data = NULL;
    const size_t saved = bytes_of(backward, &without) - bytes_of(backward, args);
    const size_t lists = (size_t)(there.dkv.groups * there.dkv.key_stride) * sizeof(int);
    assert_int_equal(bytes_of(backward, args), there.bytes);
    assert_int_equal(saved, there.dq_list_stride ? (lists + 255) / 256 * 256 : 0);
    return there.dq_list_stride;
}

/* Lists are in dq if each item is a whole query and query q's rows begin at q strides. */
TEST(lists) {
    enum { PACKED = HEADS * DQK / 2 }; /* of 4 bytes */
    const struct smelt__sparse_attn_backward plain = backward_of(0, 0, 0);
    struct smelt__sparse_attn_backward other = plain;
    smelt_sparse_attn_grad_args args = legal_grad_args();
    assert_int_equal(lists_in_dq(&plain, &args), PACKED);
    args.dq.data = NULL;
    assert_int_equal(lists_in_dq(&plain, &args), 0);
    args = legal_grad_args();
    args.dq.strides[0] = 3 * HEADS * DQK, args.dq.strides[1] = HEADS * DQK,
    args.dq.strides[2] = DQK;
    assert_int_equal(lists_in_dq(&plain, &args), PACKED);
    args.dq.strides[0] = 3 * (HEADS * DQK + 8), args.dq.strides[1] = HEADS * DQK + 8;
    assert_int_equal(lists_in_dq(&plain, &args), PACKED + 4);
    args.dq.strides[0] += 8; /* a gap between batches */
    assert_int_equal(lists_in_dq(&plain, &args), 0);
    args.batches = 1; /* whose stride is ignored */
    assert_int_equal(lists_in_dq(&plain, &args), PACKED + 4);
    args.batches = 2, args.tokens = 1;
    assert_int_equal(lists_in_dq(&plain, &args), 3 * (PACKED + 4) + 4);
    args.tokens = 3, args.dq.strides[0] -= 8, args.dq.strides[2] = DQK + 8; /* gaps between heads */
    assert_int_equal(lists_in_dq(&plain, &args), 0);
    args.dq.strides[0] = HEADS * DQK, args.dq.strides[1] = 2 * HEADS * DQK; /* batch by token */
    args.dq.strides[2] = DQK;
    assert_int_equal(lists_in_dq(&plain, &args), 0);
    args = legal_grad_args();
    args.dq.strides[0] = 3 * (INT64_C(1) << 31), args.dq.strides[1] = INT64_C(1) << 31;
    args.dq.strides[2] = DQK;
    assert_int_equal(lists_in_dq(&plain, &args), 0);

    args = legal_grad_args();
    other.deterministic = 1;
    assert_int_equal(lists_in_dq(&other, &args), 0);
    other = plain, other.main.head_blocks = 2, other.main.block_heads = HEADS / 2;
    assert_int_equal(lists_in_dq(&other, &args), 0); /* items that have one list */
    other.main.tensor_maps = 1;
    assert_int_equal(lists_in_dq(&other, &args), PACKED);
    assert_int_equal(smelt__grad_find_layout(&other, &args).dq_side_stride, PACKED / 2);
    assert_int_equal(smelt__grad_find_layout(&plain, &args).dq_side_stride, 0);
    other.shape.topk = PACKED;
    args.width = PACKED / 2;
    assert_int_equal(lists_in_dq(&other, &args), PACKED);
    args.width++; /* longer than an item's rows */
    assert_int_equal(lists_in_dq(&other, &args), 0);
    args = legal_grad_args();
    other.shape.topk = TOPK, other.main.block_heads = HEADS; /* the second item has no head */
    assert_int_equal(lists_in_dq(&other, &args), 0);
    other = plain, other.main.group_queries = 2;
    assert_int_equal(lists_in_dq(&other, &args), 0);
    other = plain, other.shape.buckets = 2;
    assert_int_equal(lists_in_dq(&other, &args), 0);
    args.queries.data = address(10, 0), args.query_capacity = 6;
    assert_int_equal(lists_in_dq(&plain, &args), 0);
    args = legal_grad_args();
    args.rows = SMELT__SPLIT_LOOSE_ROWS;
    assert_int_equal(lists_in_dq(&plain, &args), PACKED);
    args.rows++;
    assert_int_equal(lists_in_dq(&plain, &args), 0);
    /* A list that fills a query's rows, or is longer. */
    args = legal_grad_args();
    other = plain, other.shape.topk = PACKED + 1;
    args.width = PACKED;
    assert_int_equal(lists_in_dq(&other, &args), PACKED);
    args.width++;
    assert_int_equal(lists_in_dq(&other, &args), 0);
}

/* Every thread block has the same number of whole items; the remaining items are sliced for the
 * existing thread blocks, within the workspace. */
static void check_grid(const struct smelt__sparse_attn_backward *backward, int64_t tokens,
                       int64_t width, int64_t most) {
    const smelt_sparse_attn_grad_args args = {
        .batches = 1, .tokens = tokens, .rows = 4000, .width = width};
    const struct smelt__grad_layout layout = smelt__grad_find_layout(backward, &args);
    const struct smelt__grad_grid grid = smelt__grad_find_grid(backward, &layout, most);
    const int64_t items = tokens * backward->main.head_blocks, sides = backward->main.slice_blocks;
    const int64_t length = layout.dkv.key_stride / 64;
    const size_t slice = (size_t)(backward->main.block_heads * backward->shape.dqk) * 2;
    assert_in_range(grid.blocks, 1, most);
    if (grid.sliced == 0) {
        assert_int_equal(grid.blocks, items < most ? items : most);
        return;
    }
    assert_int_equal((items - grid.sliced) % most, 0);
    assert_true(grid.sliced < most && grid.sliced % sides == 0 && grid.blocks % sides == 0);
    assert_true(grid.sliced <= grid.slice_ctas * sides && grid.slice_ctas * sides <= grid.blocks);
    /* The longest slice is shorter than an item. */
    assert_true((length * grid.sliced + grid.slice_ctas * sides - 1) / (grid.slice_ctas * sides) <
                length);
    assert_true((layout.progress - layout.slices) / slice >=
                (size_t)(grid.slice_ctas * sides + grid.sliced));
}

TEST(slices) {
    for (int sides = 1; sides <= 2; sides++) {
        struct smelt__sparse_attn_backward backward = backward_of(0, 0, 0);
        backward.shape.topk = 4000;
        backward.main.slice_blocks = backward.main.head_blocks = sides;
        backward.main_blocks = 132;
        for (int64_t most = sides; most <= 132; most += most < 8 ? sides : 62)
            for (int64_t tokens = 1; tokens < 300; tokens += tokens < 20 ? 1 : 7)
                for (int64_t width = 1; width <= 4000; width = width * 3 + 20)
                    check_grid(&backward, tokens, width, most);
    }
    /* 4096 items of ten key blocks on 132 multiprocessors: four items remain, for forty thread
     * blocks. */
    struct smelt__sparse_attn_backward backward = backward_of(0, 0, 0);
    const struct smelt__grad_layout layout = {.dkv = {.groups = 4096, .key_stride = 640}};
    backward.main.slice_blocks = 1;
    const struct smelt__grad_grid grid = smelt__grad_find_grid(&backward, &layout, 132);
    assert_int_equal(grid.blocks, 132);
    assert_int_equal(grid.sliced, 4);
    assert_int_equal(grid.slice_ctas, 40);
}

/* Partial rows stay within the caller's limit if one group fits. */
TEST(limits) {
    const struct smelt__sparse_attn_backward backward = backward_of(0, 0, 1);
    smelt_sparse_attn_grad_args args = SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
    const size_t group = 64 * DQK * 2; /* partial rows of one, padded to 64 */
    args.tokens = 100000;
    args.rows = 1000;
    args.width = TOPK;
    const size_t most = bytes_of(&backward, &args);
    args.workspace_limit = 1000 * group;
    const size_t less = bytes_of(&backward, &args);
    args.workspace_limit = 1;
    const size_t least = bytes_of(&backward, &args);
    assert_true(most > less && less > least);
    assert_true(less - least <= 1001 * group + (1U << 20) * 64);
    assert_true(most - least <= (1536U << 20) + (1U << 20) * 64);
}

TESTS("sparse_attn_args")
