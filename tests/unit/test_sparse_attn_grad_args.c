/* The arguments of sparse_attn's backward pass: refusals in addition to those that follow from its
 * table (tests/gpu/arguments.c), and the size of the workspace. No device: pointers are not
 * dereferenced, and nothing is launched. */
#include "no_device.h"
#include "ops/cuts.h"
#include "ops/sparse_attn_grad_params.h"
#include "ops/sparse_attn_table.h"
#include "smelt/status.h"
#include "test.h"

enum { HEADS = 8, DQK = 128, DV = 64, TOPK = 48 };

static const int bounds[] = {16, TOPK};

/* For a main kernel without groups; tests change it. */
static struct smelt__sparse_attn_backward backward_of(int sink, int buckets, int deterministic) {
    return (struct smelt__sparse_attn_backward){
        .shape = {HEADS, DQK, DV, TOPK, sink, buckets},
        .bounds = bounds,
        .deterministic = deterministic,
        .main = {.group_queries = 1, .query_rows = 16, .head_blocks = 1, .block_heads = 16},
        .sides = 1,
    };
}

static smelt_sparse_attn_grad_args legal_args(void) {
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

/* An operator without kernels: its calls are checked with `subject`. */
static struct smelt__sparse_attn_backward subject;

static smelt_status check(struct smelt__call *given) {
    struct smelt__grad_call call;
    return smelt__grad_check(&subject, given, &call);
}

static smelt_status ask(const struct smelt__call *given, size_t *bytes) {
    return smelt__grad_workspace(&subject, given, bytes);
}

static const struct smelt__pass backward_pass = {.pass = SMELT_PASS_BACKWARD,
                                                 .call = "smelt_sparse_attn_backward",
                                                 .tables = &smelt__sparse_attn_grad_table,
                                                 .workspace = ask,
                                                 .launch = check};

/* bytes NULL: the call, else the workspace function. */
static smelt_status call_of(const struct smelt__sparse_attn_backward *backward,
                            const smelt_sparse_attn_grad_args *args, size_t *bytes) {
    char text[160];
    struct smelt__spec spec;
    struct smelt__message message;
    smelt_operator op = {.count = 0};
    struct smelt__operator_type type = smelt__sparse_attn_type;
    snprintf(text, sizeof text, "sparse_attn:heads=%d,dqk=%d,dv=%d,topk=%d,passes=backward%s%s%s",
             HEADS, DQK, DV, backward->shape.topk, backward->shape.sink ? ",sink=1" : "",
             backward->shape.buckets ? ",buckets=16" : "",
             backward->deterministic ? ",deterministic=1" : "");
    assert_int_equal(smelt__spec_parse(text, &spec, &message), 0);
    type.passes = &backward_pass, type.pass_count = 1;
    smelt__operator_begin(&op, &type, no_device(), &spec);
    subject = *backward;
    subject.op = &op;
    return bytes ? smelt_operator_workspace(&op, SMELT_PASS_BACKWARD, args, bytes)
                 : smelt_operator_launch(&op, SMELT_PASS_BACKWARD, args, NULL);
}

static void expect_refusal(const struct smelt__sparse_attn_backward *backward,
                           const smelt_sparse_attn_grad_args *args, const char *message) {
    const smelt_status status = call_of(backward, args, NULL);
    if (status != SMELT_ERROR_INVALID_ARGUMENT || !strstr(smelt_last_error(), message))
        fail_msg("expected '%s', got status %d '%s'", message, (int)status, smelt_last_error());
}

TEST(combinations) {
    const struct smelt__sparse_attn_backward plain = backward_of(0, 0, 0),
                                             sink = backward_of(1, 0, 0),
                                             buckets = backward_of(0, 2, 0);
    smelt_sparse_attn_grad_args args = legal_args();
    args.dkv_sum.data = address(10, 0);
    expect_refusal(&plain, &args,
                   "several of dkv (bf16), dkv_fp32 (fp32) and dkv_sum (fp32, added to) are given");
    args.dkv_sum.data = args.dkv.data = NULL;
    expect_refusal(
        &plain, &args,
        "none of dkv (bf16), dkv_fp32 (fp32) and dkv_sum (fp32, added to) is given; give");
    args = legal_args();
    args.rows = INT32_MAX;
    expect_refusal(&plain, &args, "batches = 2 times rows = 2147483647 exceeds 2^31 - 1");
    args = legal_args();
    args.dsink.data = address(10, 0);
    expect_refusal(&plain, &args, "dsink is given but the operator was made with sink=0");
    expect_refusal(&sink, &args, "sink is NULL; it must point to device memory");
    args = legal_args();
    args.query_capacity = 2;
    expect_refusal(&plain, &args, "queries is NULL but query_capacity is given");
    args = legal_args();
    args.partition = address(10, 0);
    expect_refusal(&plain, &args, "partition is given but the operator has no buckets");
    expect_refusal(&buckets, &args, "partition_bytes = 0 is too small");
    args.partition = address(10, 4);
    expect_refusal(&buckets, &args, "partition = 0xa00000000004 is not aligned");
}

/* Also memory other than tensors. */
TEST(overlaps) {
    const struct smelt__sparse_attn_backward backward = backward_of(0, 2, 0);
    smelt_sparse_attn_grad_args args = legal_args();
    args.dkv.data = address(2, 256);
    expect_refusal(&backward, &args, "overlaps kv (");
    args = legal_args();
    args.partition = address(9, 256), args.partition_bytes = 1 << 16;
    expect_refusal(&backward, &args, "overlaps partition (");
    args = legal_args(); /* to the end of all memory */
    args.workspace = address(1, 1 << 20), args.workspace_bytes = SIZE_MAX;
    expect_refusal(&backward, &args, "overlaps workspace (");
}

static size_t bytes_of(const struct smelt__sparse_attn_backward *backward,
                       const smelt_sparse_attn_grad_args *args) {
    size_t bytes = 77;
    if (call_of(backward, args, &bytes) != SMELT_OK)
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
    assert_int_equal(call_of(&backward, &args, &bytes), SMELT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(bytes, 0);
}

static struct smelt__grad_layout layout_of(const struct smelt__sparse_attn_backward *backward,
                                           const smelt_sparse_attn_grad_args *args) {
    const struct smelt__sparse_attn_call call = SMELT__SPARSE_ATTN_CALL(args);
    return smelt__grad_find_layout(backward, &call, &args->dq, args->workspace_limit);
}

/* The distance between a call's lists in dq; 0: they are in the workspace, which must have space
 * for them. */
static int64_t lists_in_dq(const struct smelt__sparse_attn_backward *backward,
                           const smelt_sparse_attn_grad_args *args) {
    const struct smelt__grad_layout there = layout_of(backward, args);
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
    smelt_sparse_attn_grad_args args = legal_args();
    assert_int_equal(lists_in_dq(&plain, &args), PACKED);
    args.dq.data = NULL;
    assert_int_equal(lists_in_dq(&plain, &args), 0);
    args = legal_args();
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
    args = legal_args();
    args.dq.strides[0] = 3 * (INT64_C(1) << 31), args.dq.strides[1] = INT64_C(1) << 31;
    args.dq.strides[2] = DQK;
    assert_int_equal(lists_in_dq(&plain, &args), 0);

    args = legal_args();
    other.deterministic = 1;
    assert_int_equal(lists_in_dq(&other, &args), 0);
    other = plain, other.main.head_blocks = 2, other.main.block_heads = HEADS / 2;
    assert_int_equal(lists_in_dq(&other, &args), 0); /* items that have one list */
    other.main.tensor_maps = 1;
    assert_int_equal(lists_in_dq(&other, &args), PACKED);
    assert_int_equal(layout_of(&other, &args).dq_side_stride, PACKED / 2);
    assert_int_equal(layout_of(&plain, &args).dq_side_stride, 0);
    other.shape.topk = PACKED;
    args.width = PACKED / 2;
    assert_int_equal(lists_in_dq(&other, &args), PACKED);
    args.width++; /* longer than an item's rows */
    assert_int_equal(lists_in_dq(&other, &args), 0);
    args = legal_args();
    other.shape.topk = TOPK, other.main.block_heads = HEADS; /* the second item has no head */
    assert_int_equal(lists_in_dq(&other, &args), 0);
    other = plain, other.main.group_queries = 2;
    assert_int_equal(lists_in_dq(&other, &args), 0);
    other = plain, other.shape.buckets = 2;
    assert_int_equal(lists_in_dq(&other, &args), 0);
    args.queries.data = address(10, 0), args.query_capacity = 6;
    assert_int_equal(lists_in_dq(&plain, &args), 0);
    args = legal_args();
    args.rows = SMELT__CUT_LOOSE_ROWS;
    assert_int_equal(lists_in_dq(&plain, &args), PACKED);
    args.rows++;
    assert_int_equal(lists_in_dq(&plain, &args), 0);
    /* A list that fills a query's rows, or is longer. */
    args = legal_args();
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
    const struct smelt__sparse_attn_call call = SMELT__SPARSE_ATTN_CALL(&args);
    const struct smelt__grad_layout layout = smelt__grad_find_layout(backward, &call, &args.dq, 0);
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
    assert_true(most >= less && less >= least);
    assert_true(less - least <= 1001 * group + (1U << 20) * 64);
    assert_true(most - least <= (1536U << 20) + (1U << 20) * 64);
}

TESTS("sparse_attn_grad_args")
