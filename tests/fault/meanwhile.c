/* A tuning entry is stored while an operator is made, on fakes: the operator uses the plans of its
 * loaded kernels, not those of later ones, and has the kernels that go with them. */

#include <pthread.h>
#include <stdatomic.h>

#include "../unit/files.h"
#include "../unit/test.h"
#include "fake_cubin.h"
#include "fakes.h"
#include "smelt/indexer_bwd.h"
#include "smelt/indexer_logits.h"
#include "smelt/sparse_attn.h"
#include "smelt/tuning.h"

static struct fake_driver *driver;
static smelt_context *context;
static char folder[64], file[96];

/* The entry that is stored during a compilation, and the result. */
static struct meanwhile {
    const char *kernel, *knobs;
    uint64_t source_hash; /* of the kernel */
    smelt_status status;
    int stored;
} meanwhile;

static int set_up(void **unused) {
    (void)unused;
    smelt_context_options options = fakes_options();
    if (make_scratch(folder, sizeof folder))
        return -1;
    snprintf(file, sizeof file, "%s/tuning", folder);
    options.tuning = file;
    driver = fakes_driver();
    driver->devices = 1;
    driver->context_id = 1;
    driver->capability_major = 9;
    return smelt_context_create(&context, &options);
}

static int tear_down(void **unused) {
    (void)unused;
    fakes_nvrtc()->on_compile = NULL;
    smelt_context_destroy(&context);
    return remove_tree(folder);
}

/* Called by the thread that compiles the kernel, after it was planned. */
static void store(uint64_t source_hash) {
    smelt_tuning_entry entry = SMELT_TUNING_ENTRY_INIT;
    if (source_hash != meanwhile.source_hash || meanwhile.stored)
        return;
    entry.spec = meanwhile.kernel;
    entry.knobs = meanwhile.knobs;
    entry.microseconds = 1;
    meanwhile.stored = 1;
    meanwhile.status = smelt_tuning_store(context, &entry);
}

static void store_meanwhile(const char *kernel, const char *knobs) {
    char *source = NULL;
    assert_int_equal(smelt_kernel_source(context, kernel, NULL, &source), SMELT_OK);
    meanwhile = (struct meanwhile){
        .kernel = kernel, .knobs = knobs, .source_hash = fake_source_hash(source)};
    smelt_free(source);
    fakes_nvrtc()->on_compile = store;
}

/* Checks that the entry was stored and that a new kernel of the spec differs. */
static void was_stored(void) {
    smelt_tuning_entry entry = SMELT_TUNING_ENTRY_INIT;
    assert_true(meanwhile.stored);
    assert_int_equal(meanwhile.status, SMELT_OK);
    assert_int_equal(smelt_tuning_get_entry(context, meanwhile.kernel, &entry), SMELT_OK);
    assert_string_equal(entry.knobs, meanwhile.knobs);
}

static void *address(int number) {
    return (void *)((uintptr_t)number << 44); // NOLINT: never followed
}

static int called(const char *name) {
    const int calls = driver->calls < FAKE_LOGGED ? driver->calls : FAKE_LOGGED;
    for (int i = 0; i < calls; i++)
        if (strstr(driver->log[i], name))
            return 1;
    return 0;
}

/* The loaded kernel uses tensor maps; the entry's kernel would not. */
TEST(indexer_logits) {
    smelt_operator *indexer;
    store_meanwhile("indexer_logits_fwd:heads=8,dim=64,dtype=bf16", "variant=mma");
    assert_int_equal(
        smelt_operator_create(&indexer, context, "indexer_logits:heads=8,dim=64,dtype=bf16"),
        SMELT_OK);
    was_stored();
    smelt_indexer_logits_args args = SMELT_INDEXER_LOGITS_ARGS_INIT;
    args.tokens = 3, args.rows = 4;
    args.q.data = address(1), args.k.data = address(2), args.weights.data = address(3);
    args.window_begin.data = address(4), args.window_end.data = address(5);
    args.logits.data = address(6);
    driver->calls = 0;
    assert_int_equal(smelt_indexer_logits_forward(indexer, &args, NULL), SMELT_OK);
    assert_true(called("cuTensorMapEncodeTiled"));
    smelt_operator_destroy(&indexer);
}

static size_t indexer_workspace(void) {
    smelt_operator *indexer;
    smelt_indexer_bwd_args args = SMELT_INDEXER_BWD_ARGS_INIT;
    size_t bytes = 0;
    args.tokens = 1000, args.rows = 100, args.width = 10;
    assert_int_equal(smelt_operator_create(&indexer, context, "indexer_bwd:heads=8,dim=64,topk=64"),
                     SMELT_OK);
    assert_int_equal(smelt_indexer_bwd_backward_workspace(indexer, &args, &bytes), SMELT_OK);
    smelt_operator_destroy(&indexer);
    return bytes;
}

static size_t attention_workspace(void) {
    smelt_operator *attn;
    smelt_sparse_attn_grad_args args = SMELT_SPARSE_ATTN_GRAD_ARGS_INIT;
    size_t bytes = 0;
    args.tokens = 1000, args.rows = 100, args.width = 10;
    assert_int_equal(
        smelt_operator_create(&attn, context,
                              "sparse_attn:heads=8,dqk=576,dv=512,topk=64,passes=backward"),
        SMELT_OK);
    assert_int_equal(smelt_sparse_attn_backward_workspace(attn, &args, &bytes), SMELT_OK);
    smelt_operator_destroy(&attn);
    return bytes;
}

/* The workspace, which depends on the number of queries in a group, is the loaded kernel's: as
 * large as without the entry, and different from that of the entry's kernel. */
static void backward(const char *kernel, size_t (*workspace)(void)) {
    store_meanwhile(kernel, "group=2");
    const size_t meant = workspace();
    was_stored();
    const size_t tuned = workspace();
    fakes_nvrtc()->on_compile = NULL;
    assert_int_equal(
        smelt_tuning_store(context, &(const smelt_tuning_entry){.size = sizeof(smelt_tuning_entry),
                                                                .spec = kernel}),
        SMELT_OK);
    assert_true(workspace() == meant);
    assert_true(tuned != meant);
}

TEST(indexer_backward) {
    backward("indexer_bwd_main:heads=8,dim=64", indexer_workspace);
}

TEST(attention_backward) {
    backward("sparse_attn_bwd:heads=8,dqk=576,dv=512", attention_workspace);
}

/* A main kernel of another variant has other kernels after it. */

enum { MOST_KERNELS = 8 };
static const char *const main_kernel =
    "sparse_gqa_fwd:heads=8,kv_heads=2,dqk=64,dv=64,granularity=64";
static atomic_int stop;

static smelt_status store_variant(const char *knobs) {
    smelt_tuning_entry entry = SMELT_TUNING_ENTRY_INIT;
    entry.spec = main_kernel;
    entry.knobs = knobs;
    entry.microseconds = 1;
    return smelt_tuning_store(context, &entry);
}

static void *keep_storing(void *unused) {
    (void)unused;
    for (int i = 0; !stop; i++)
        if (store_variant(i % 2 ? "" : "variant=mma") != SMELT_OK)
            break;
    return NULL;
}

/* Makes an operator; returns the number of its kernels and the cache key of its main kernel. */
static int kernels_of(char key[64]) {
    smelt_operator *gqa;
    smelt_kernel_info info = SMELT_KERNEL_INFO_INIT;
    int count = 0;
    assert_int_equal(
        smelt_operator_create(&gqa, context,
                              "sparse_gqa:heads=8,kv_heads=2,dqk=64,dv=64,topk=4,granularity=64,"
                              "passes=forward"),
        SMELT_OK);
    assert_int_equal(smelt_operator_get_kernel_info(gqa, SMELT_PASS_FORWARD, 0, &info), SMELT_OK);
    snprintf(key, 64, "%s", info.key);
    while (count < MOST_KERNELS &&
           smelt_operator_get_kernel_info(gqa, SMELT_PASS_FORWARD, count, &info) == SMELT_OK)
        count++;
    smelt_operator_destroy(&gqa);
    return count;
}

TEST(kernels_go_together) {
    enum { ROUNDS = 2000 };
    char sm90[64], mma[64], key[64];
    pthread_t thread;
    const int many = kernels_of(sm90);
    assert_int_equal(store_variant("variant=mma"), SMELT_OK);
    assert_int_equal(kernels_of(mma), 1);
    assert_true(many > 1);
    assert_string_not_equal(sm90, mma);
    stop = 0;
    assert_int_equal(pthread_create(&thread, NULL, keep_storing, NULL), 0);
    int wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        const int count = kernels_of(key);
        wrong += count != (strcmp(key, mma) == 0 ? 1 : many);
    }
    stop = 1;
    pthread_join(thread, NULL);
    assert_int_equal(wrong, 0);
}

TESTS("stored meanwhile", .setup = set_up, .teardown = tear_down)
