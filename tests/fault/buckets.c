/* A bucketed operator on a fake driver: the launches of a call, their order and parameters; refused
 * arguments, which launch nothing; failed launches. */

#include "../unit/test.h"
#include "fakes.h"
#include "ops/sparse_attn_partition.h"
#include "smelt/sparse_attn.h"

enum { KERNELS = 5, MULTIPROCESSORS = 132, TOKENS = 1000 };

static struct fake_driver *driver;
static struct fake_nvrtc *nvrtc;
static smelt_context *context;
static smelt_operator *attn;

/* topk 100 in three buckets: 16, 40 and the rest. */
#define BUCKETED "sparse_attn:heads=64,dqk=576,dv=512,topk=100,buckets=16/40/100"

static void open_operator(int capability_major, const char *knobs) {
    smelt_context_options options = fakes_options();
    char spec[160];
    snprintf(spec, sizeof spec, BUCKETED "%s%s", knobs ? "," : "", knobs ? knobs : "");
    driver->capability_major = capability_major;
    assert_int_equal(smelt_context_create(&context, &options), SMELT_OK);
    assert_int_equal(smelt_operator_create(&attn, context, spec), SMELT_OK);
    driver->chain_length = 0;
}

static int close_operator(void **unused) {
    (void)unused;
    smelt_operator_destroy(&attn);
    smelt_context_destroy(&context);
    return 0;
}

static int reset(void **unused) {
    (void)unused;
    driver = fakes_driver();
    nvrtc = fakes_nvrtc();
    driver->fail_at = driver->calls = 0;
    driver->devices = 1;
    driver->context_id = 1;
    driver->chain_length = 0;
    driver->chain_params = 0;
    nvrtc->fail[0] = '\0';
    return 0;
}

static void *address(int number) {
    return (void *)((uintptr_t)number << 32); // NOLINT: never followed
}

/* Rows wider than topk. */
static smelt_sparse_attn_args make_args(void) {
    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT;
    args.tokens = TOKENS, args.rows = 5, args.width = 130, args.scale = 0.25F;
    args.q.data = address(1), args.kv.data = address(2), args.indices.data = address(3);
    args.out.data = address(4), args.lse.data = address(5);
    args.workspace = address(1000);
    assert_int_equal(smelt_sparse_attn_forward_workspace(attn, &args, &args.workspace_bytes),
                     SMELT_OK);
    return args;
}

static void launch(const smelt_sparse_attn_args *args) {
    driver->chain_length = 0;
    driver->chain_params = sizeof(struct sparse_attn_fwd_params);
    driver->chain_from = 2; /* after the partition */
    assert_true(driver->chain_params <= FAKE_CHAIN_PARAMS);
    assert_int_equal(smelt_sparse_attn_forward(attn, args, NULL), SMELT_OK);
    assert_int_equal(driver->chain_length, KERNELS);
}

static struct sparse_attn_fwd_params params_of(int number) {
    struct sparse_attn_fwd_params params;
    memcpy(&params, driver->chain[number].params, sizeof params);
    return params;
}

/* The partition's two passes, then the largest bound first; all but the first with PDL. */
TEST(the_chain) {
    open_operator(9, NULL);
    const smelt_sparse_attn_args args = make_args();
    const struct smelt__partition_layout layout = smelt__partition_layout(TOKENS, 3);
    assert_true(args.workspace_bytes == layout.bytes);
    launch(&args);
    for (int i = 0; i < KERNELS; i++)
        assert_int_equal(driver->chain[i].pdl, i > 0);
    for (int bucket = 2; bucket >= 0; bucket--) {
        const int number = 2 + 2 - bucket;
        const struct sparse_attn_fwd_params params = params_of(number);
        const char *const workspace = args.workspace;
        assert_ptr_equal(params.work.query_range, workspace + layout.ranges + 8 * (size_t)bucket);
        assert_ptr_equal(params.work.queries, workspace + layout.list);
        assert_ptr_equal(params.work.extents, workspace + layout.extents);
        assert_null(params.work.query_count);
        assert_int_equal(params.work.query_capacity, TOKENS);
        assert_int_equal(params.work.pdl_wait_at_end, bucket < 2);
        assert_int_equal(params.work.width, 130);
    }
}

/* In the order of smelt_operator_get_kernel_info. */
TEST(infos) {
    static const char *const specs[KERNELS] = {
        "sparse_attn_partition:pass=count",
        "sparse_attn_partition:pass=place",
        "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=100",
        "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=40",
        "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=16",
    };
    open_operator(9, NULL);
    smelt_kernel_info info = SMELT_KERNEL_INFO_INIT;
    for (int i = 0; i < KERNELS; i++) {
        assert_int_equal(smelt_operator_get_kernel_info(attn, SMELT_PASS_FORWARD, i, &info),
                         SMELT_OK);
        assert_string_equal(info.spec, specs[i]);
    }
    assert_refused(smelt_operator_get_kernel_info(attn, SMELT_PASS_FORWARD, KERNELS, &info),
                   SMELT_ERROR_INVALID_ARGUMENT, "no kernel number 5: legal are 0..4");
    assert_int_equal(smelt_operator_get_kernel_info(attn, SMELT_PASS_FORWARD, -1, &info),
                     SMELT_ERROR_INVALID_ARGUMENT);
    assert_refused(smelt_operator_get_kernel_info(attn, SMELT_PASS_BACKWARD, 0, &info),
                   SMELT_ERROR_INVALID_ARGUMENT, "not made for its backward pass");
    static const unsigned none[] = {0, SMELT_PASS_FORWARD | SMELT_PASS_BACKWARD, 4};
    for (int i = 0; i < 3; i++) {
        assert_refused(smelt_operator_get_kernel_info(attn, none[i], 0, &info),
                       SMELT_ERROR_INVALID_ARGUMENT, "legal: SMELT_PASS_FORWARD or");
    }
}

/* No PDL below 9.0; and no more blocks of a kernel than are resident, though
 * mma's plain operator has one for each query. */
TEST(older_architecture) {
    open_operator(8, NULL);
    const smelt_sparse_attn_args args = make_args();
    int multiprocessors = 0;
    CUresult (*attribute)(int *, int, CUdevice);
    void *symbol = fakes_driver_symbol("cuDeviceGetAttribute");
    memcpy(&attribute, &symbol, sizeof symbol);
    assert_int_equal(attribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0), 0);
    launch(&args);
    for (int i = 0; i < KERNELS; i++) {
        assert_int_equal(driver->chain[i].pdl, 0);
        if (i >= 2)
            assert_in_range(driver->chain[i].blocks, 1, 4 * multiprocessors);
    }
}

/* A query list: its capacity determines the grid, and the partition reads it. */
TEST(a_query_list) {
    open_operator(9, NULL);
    smelt_sparse_attn_args args = make_args();
    args.queries.data = address(9), args.query_count.data = address(10), args.query_capacity = 7;
    assert_int_equal(smelt_sparse_attn_forward_workspace(attn, &args, &args.workspace_bytes),
                     SMELT_OK);
    assert_true(args.workspace_bytes < 4096);
    launch(&args);
    assert_int_equal(params_of(2).work.query_capacity, 7);
    assert_int_equal(driver->chain[2].blocks, 7);
    args.query_capacity = 0;
    driver->chain_length = 0;
    assert_int_equal(smelt_sparse_attn_forward(attn, &args, NULL), SMELT_OK);
    assert_int_equal(driver->chain_length, 0);
}

/* Makes the driver's call number `number` from here on fail. */
static void fail_call(int number) {
    driver->calls = 0;
    driver->fail_at = number;
    driver->fail_with = FAKE_UNKNOWN_ERROR;
}

/* Whichever launch fails, the call reports it and launches no more kernels. */
TEST(a_launch_fails) {
    open_operator(9, NULL);
    const smelt_sparse_attn_args args = make_args();
    driver->calls = 0;
    launch(&args);
    const int calls = driver->calls;
    int failures = 0;
    for (int number = 1; number <= calls; number++) {
        fail_call(number);
        driver->chain_length = 0;
        if (smelt_sparse_attn_forward(attn, &args, NULL) == SMELT_OK)
            continue;
        failures++;
        assert_true(driver->chain_length < KERNELS);
    }
    assert_true(failures >= KERNELS);
    driver->fail_at = 0;
    launch(&args);
}

/* Whichever driver call fails while the kernels are made by several threads, nothing is leaked, and
 * the next attempt works. */
TEST(making_fails) {
    smelt_context_options options = fakes_options();
    static const char spec[] = BUCKETED ",variant=mma";
    driver->capability_major = 9;
    for (int number = 1; number < 60; number++) {
        assert_int_equal(smelt_context_create(&context, &options), SMELT_OK);
        fail_call(number);
        const smelt_status status = smelt_operator_create(&attn, context, spec);
        driver->fail_at = 0;
        assert_true((status == SMELT_OK) == (attn != NULL));
        smelt_operator_destroy(&attn);
        assert_int_equal(smelt_operator_create(&attn, context, spec), SMELT_OK);
        close_operator(NULL);
        assert_int_equal(driver->modules, 0);
    }
}

/* The kernels of one operator are compiled concurrently. */
TEST(made_side_by_side) {
    fakes_compile_together(2);
    open_operator(9, NULL);
    nvrtc->on_compile = NULL;
    assert_true(nvrtc->max_running > 1);
}

TEST(unsupported) {
    smelt_context_options options = fakes_options();
    static const char spec[] = BUCKETED ",variant=sm90";
    driver->capability_major = 8;
    assert_int_equal(smelt_context_create(&context, &options), SMELT_OK);
    assert_refused(smelt_operator_create(&attn, context, spec), SMELT_ERROR_UNSUPPORTED,
                   "sm_90a only");
    assert_null(attn);
}

TESTS("buckets on fakes", .setup = reset, .teardown = close_operator)
