/* Calls in chunks, on a fake driver. Deterministic backward pass: the main kernel is launched chunk
 * by chunk, concurrently with the sums of the previous chunk, and leaves multiprocessors free for
 * the sums and for the caller's other streams. Clusters: devices with any number of
 * multiprocessors. */

#include "../unit/test.h"
#include "fakes.h"
#include "key_grads_grains.params.h"
#include "smelt/indexer_bwd.h"
#include "smelt/indexer_clean.h"
#include "smelt/sparse_attn.h"

enum { HEADS = 64, TOPK = 64, TOKENS = 1000, MULTIPROCESSORS = 132 };

static struct fake_driver *driver;
static smelt_context *context;
static smelt_operator *attn;

static int open_operator(void **unused) {
    (void)unused;
    smelt_context_options options = fakes_options();
    static const char spec[] =
        "sparse_attn:heads=64,dqk=576,dv=512,topk=64,passes=backward,deterministic=1";
    driver = fakes_driver();
    driver->devices = 1;
    driver->context_id = 1;
    driver->capability_major = 9;
    driver->chain_params = 0;
    const smelt_status status = smelt_context_create(&context, &options);
    return status ? status : smelt_operator_create(&attn, context, spec);
}

static int close_operator(void **unused) {
    (void)unused;
    smelt_operator_destroy(&attn);
    smelt_context_destroy(&context);
    return 0;
}

static void *address(int number) {
    return (void *)((uintptr_t)number << 40); // NOLINT: never followed
}

static smelt_sparse_attn_grad_args make_args(void) {
    smelt_sparse_attn_grad_args args = SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
    args.tokens = TOKENS, args.rows = 100, args.width = TOPK, args.scale = 1;
    args.q.data = address(1), args.kv.data = address(2), args.indices.data = address(3);
    args.out.data = address(4), args.lse.data = address(5), args.grad_out.data = address(6);
    args.dq.data = address(7), args.dkv.data = address(8), args.workspace = address(9);
    assert_int_equal(smelt_sparse_attn_backward_workspace(attn, &args, &args.workspace_bytes),
                     SMELT_OK);
    return args;
}

static unsigned main_threads(void) {
    smelt_kernel_info info = SMELT_KERNEL_INFO_INIT;
    int index = 0;
    do
        assert_int_equal(smelt_operator_get_kernel_info(attn, SMELT_PASS_BACKWARD, index++, &info),
                         SMELT_OK);
    while (strncmp(info.spec, "sparse_attn_bwd:", 16) != 0);
    return (unsigned)info.threads;
}

/* The free multiprocessors stay free unless they are all; no number is too large. */
TEST(multiprocessors_that_stay_free) {
    static const int frees[] = {0, 1, 50, MULTIPROCESSORS - 1, MULTIPROCESSORS, 1 << 20, INT32_MAX};
    smelt_sparse_attn_grad_args args = make_args();
    const unsigned threads = main_threads();
    for (size_t i = 0; i < sizeof frees / sizeof *frees; i++) {
        int chunks = 0;
        args.free_multiprocessors = frees[i];
        driver->chain_length = 0;
        assert_int_equal(smelt_sparse_attn_backward(attn, &args, NULL), SMELT_OK);
        assert_in_range(driver->chain_length, 1, FAKE_CHAIN - 1); /* all launches were recorded */
        for (int k = 0; k < driver->chain_length; k++) {
            const int64_t left = MULTIPROCESSORS - (int64_t)frees[i];
            if (driver->chain[k].threads != threads)
                continue;
            assert_in_range(driver->chain[k].blocks, 1, left > 1 ? left : 1);
            chunks++;
        }
        assert_true(chunks > 1);
    }
}

/* Multiprocessors stay free beside a kernel that is not persistent, too. */
TEST(multiprocessors_beside_any_kernel) {
    smelt_operator *clean = NULL;
    smelt_indexer_clean_args args = SMELT_INDEXER_CLEAN_ARGS_INIT;
    unsigned each = 0; /* thread blocks on a multiprocessor */
    args.tokens = 1 << 20, args.rows = TOKENS, args.window_begin.data = address(1);
    args.window_end.data = address(2), args.logits.data = address(3);
    assert_int_equal(smelt_operator_create(&clean, context, "indexer_clean"), SMELT_OK);
    for (int used = 1; used < MULTIPROCESSORS; used += MULTIPROCESSORS / 3) {
        args.free_multiprocessors = MULTIPROCESSORS - used;
        driver->chain_length = 0;
        assert_int_equal(smelt_indexer_clean_forward(clean, &args, NULL), SMELT_OK);
        assert_int_equal(driver->chain_length, 1);
        if (used == 1)
            each = driver->chain[0].blocks;
        assert_int_equal(driver->chain[0].blocks, each * (unsigned)used);
    }
    smelt_operator_destroy(&clean);
}

/* A persistent kernel with clusters has whole clusters, at least one, and fills the device. */
TEST(clusters_that_fit) {
    static const int multiprocessors[] = {1, 2, 3, 7, 131, 132};
    const int before = driver->multiprocessors;
    for (size_t i = 0; i < sizeof multiprocessors / sizeof *multiprocessors; i++) {
        const int number = multiprocessors[i];
        int clusters = 0;
        smelt_context_options options = fakes_options();
        smelt_operator *const kept = attn;
        smelt_context *one = NULL;
        driver->multiprocessors = number;
        assert_int_equal(smelt_context_create(&one, &options), SMELT_OK);
        assert_int_equal(
            smelt_operator_create(&attn, one,
                                  "sparse_attn:heads=128,dqk=512,dv=512,topk=64,passes=backward"),
            SMELT_OK);
        const smelt_sparse_attn_grad_args args = make_args();
        driver->chain_length = 0;
        assert_int_equal(smelt_sparse_attn_backward(attn, &args, NULL), SMELT_OK);
        for (int k = 0; k < driver->chain_length; k++)
            if (driver->chain[k].cluster) {
                assert_int_equal(driver->chain[k].cluster, 2);
                assert_int_equal(driver->chain[k].blocks, number < 2 ? 2 : number - number % 2);
                clusters++;
            }
        assert_int_equal(clusters, 1);
        smelt_operator_destroy(&attn);
        smelt_context_destroy(&one);
        attn = kept;
    }
    driver->multiprocessors = before;
}

/* The launches that find a part's grains read the lists and gradients of that part's groups: each
 * array continues where the part before ends. Returns how many parts there are. */
static int expect_parts(const smelt_indexer_bwd_args *args) {
    const struct key_grads_grains_params *before = NULL;
    int parts = 0;
    for (int i = 0; i < driver->chain_length; i++) {
        const struct key_grads_grains_params *is = (const void *)driver->chain[i].params;
        if (is->q != args->q.data || is->weights != args->weights.data)
            continue; /* another kernel's params */
        if (before && is->counts != before->counts) {
            const ptrdiff_t groups = before->groups, members = groups * is->group_queries;
            assert_ptr_equal(is->counts, before->counts + groups);
            assert_ptr_equal(is->members, before->members + members);
            assert_ptr_equal(is->keys, before->keys + groups * is->key_stride);
            assert_ptr_equal(is->grads, before->grads + members * is->key_stride);
            assert_ptr_equal(is->reach, before->reach + members);
        }
        parts += !before || is->counts != before->counts;
        assert_int_equal(is->first, parts == 1);
        before = is;
    }
    assert_true(before && before->last);
    return parts;
}

/* indexer_bwd's exact sums: for every part, the bounds of each row's addends must begin as zeros.
 * The lists kernel zeroes those of the first part; a fill before each other part zeroes its own. */
TEST(bounds_of_every_part) {
    enum { PARTS = 5, ROWS = 100, UNIT_KINDS = 2 };
    smelt_indexer_bwd_args args = SMELT_INDEXER_BWD_ARGS_INIT;
    smelt_operator *indexer = NULL;
    static const char spec[] = "indexer_bwd:heads=16,dim=64,topk=64,deterministic=1,"
                               "main.exact_groups=3,main.group=2,variant=mma";
    assert_int_equal(smelt_operator_create(&indexer, context, spec), SMELT_OK);
    args.rows = ROWS, args.width = TOPK;
    args.q.data = address(1), args.k.data = address(2), args.weights.data = address(3);
    args.indices.data = address(4), args.grad.data = address(5), args.dq.data = address(6);
    args.dweights.data = address(7), args.dk.data = address(8), args.workspace = address(9);
    driver->no_fills = 1;
    driver->chain_params = sizeof(struct key_grads_grains_params);
    for (args.tokens = 1; args.tokens < 200; args.tokens++) {
        driver->fills = driver->chain_length = 0;
        assert_int_equal(
            smelt_indexer_bwd_backward_workspace(indexer, &args, &args.workspace_bytes), SMELT_OK);
        assert_int_equal(smelt_indexer_bwd_backward(indexer, &args, NULL), SMELT_OK);
        if (driver->fills == PARTS - 1)
            break;
    }
    driver->no_fills = 0;
    driver->chain_params = 0;
    assert_int_equal(driver->fills, PARTS - 1);
    assert_int_equal(expect_parts(&args), PARTS);
    assert_int_equal(driver->filled_words, ROWS * UNIT_KINDS);
    assert_in_range(driver->filled, (uintptr_t)args.workspace,
                    (uintptr_t)args.workspace + args.workspace_bytes);
    smelt_operator_destroy(&indexer);
}

TESTS("chunks on fakes", .setup = open_operator, .teardown = close_operator)
