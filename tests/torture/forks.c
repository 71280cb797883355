/*
 * What a forked child may do (smelt/context.h): only inspect and destroy its parent's contexts, and
 * everything with its own. Also if the parent's threads were compiling, that is, holding locks,
 * during the fork.
 */
#include "torture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 24, KEYS = 16, COMPILE_MS = 2, CUBIN_BYTES = 3000, CHILD_SECONDS = 30 };

static const char *folder;
static struct fake_driver *driver;

/* Runs `body` in a child, which must end in time. */
static void in_child(void (*body)(void *), void *user) {
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(CHILD_SECONDS);
        body(user);
        _exit(0);
    }
    expect_success(child);
}

static smelt_context *make_context(smelt_context_kind kind) {
    smelt_context_options options = torture_options(folder, NULL);
    options.kind = kind;
    if (kind != SMELT_CONTEXT_COMPILE_ONLY)
        options.arch = NULL;
    return torture_context(&options);
}

static void obtain_from(int first) {
    smelt_context *context = make_context(SMELT_CONTEXT_COMPILE_ONLY);
    for (int n = first; n < first + 4; n++)
        REQUIRE(obtain(context, n) == RIGHT);
    REQUIRE(cache_errors(context) == 0);
    smelt_context_destroy(&context);
}

static void use_own(void *user) {
    (void)user;
    obtain_from(0);
}

static void require_refused(smelt_status status) {
    REQUIRE(status == SMELT_ERROR_INVALID_ARGUMENT);
    REQUIRE(strstr(smelt_last_error(), "fork"));
}

/* A child with its parent's compile-only context. */
static void use_inherited(void *user) {
    smelt_context *context = user;
    smelt_kernel_request request = SMELT_KERNEL_REQUEST_INIT;
    smelt_kernel_info info = SMELT_KERNEL_INFO_INIT;
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    request.spec = "sparse_attn_fwd:heads=16,dqk=128,dv=128,topk=3";
    REQUIRE(obtain(context, 0) == FAILED);
    require_refused(SMELT_ERROR_INVALID_ARGUMENT);
    require_refused(smelt_kernels_prepare(context, &request, 1, 1, NULL, NULL, &info));
    REQUIRE(info.state == SMELT_KERNEL_FAILED && strstr(info.error, "fork"));
    REQUIRE(!strcmp(smelt_context_arch(context), TORTURE_ARCH));
    REQUIRE(smelt_cache_get_stats(context, &stats) == SMELT_OK && stats.entries > 0);
    REQUIRE(cache_errors(context) == 0);
    smelt_context_destroy(&context);
    REQUIRE(context == NULL);
    use_own(NULL);
}

struct device_use {
    smelt_context *context;
    smelt_operator *attn;
};

/* A child with its parent's device context and operator makes no driver calls. */
static void use_inherited_device(void *user) {
    struct device_use *use = user;
    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT;
    smelt_operator *attn;
    static _Alignas(16) char inputs[8192], out[8192], lse[8192];
    void *memory;
    int calls = driver->calls;

    args.tokens = args.rows = args.width = 1;
    args.scale = 1;
    args.q.data = args.kv.data = args.indices.data = inputs;
    args.out.data = out;
    args.lse.data = lse;
    require_refused(smelt_sparse_attn_forward(use->attn, &args, NULL));
    require_refused(
        smelt_operator_create(&attn, use->context, "sparse_attn:heads=64,dqk=64,dv=64,topk=9"));
    REQUIRE(attn == NULL);
    require_refused(smelt_device_alloc(use->context, 64, &memory));
    smelt_operator_destroy(&use->attn);
    smelt_context_destroy(&use->context);
    REQUIRE(driver->calls == calls);
    use_own(NULL);
}

static void fork_after_use(void) {
    smelt_context *compiler = make_context(SMELT_CONTEXT_COMPILE_ONLY);
    struct device_use use = {make_context(SMELT_CONTEXT_DEVICE), NULL};
    REQUIRE(smelt_operator_create(&use.attn, use.context,
                                  "sparse_attn:heads=64,dqk=64,dv=64,topk=8") == SMELT_OK);
    REQUIRE(obtain(compiler, 1) == RIGHT);
    in_child(use_inherited, compiler);
    in_child(use_inherited_device, &use);
    /* The parent is not affected. */
    REQUIRE(obtain(compiler, 2) == RIGHT);
    smelt_operator_destroy(&use.attn);
    smelt_context_destroy(&use.context);
    smelt_context_destroy(&compiler);
    REQUIRE(driver->modules == 0 && driver->retained == 0);
}

static void *open_compiler(void *user) {
    (void)user;
    obtain_from(KEYS);
    return NULL;
}

static void open_compiler_too(void *user) {
    (void)user;
    obtain_from(2 * KEYS);
}

/* A process forks a child while another of its threads opens NVRTC. */
static void fork_while_opening(void *user) {
    enum { OPEN_MS = 100 };
    pthread_t thread;
    fakes_nvrtc()->open_ms = OPEN_MS;
    REQUIRE(pthread_create(&thread, NULL, open_compiler, NULL) == 0);
    pause_ms(OPEN_MS / 2.0);
    in_child(open_compiler_too, user);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

/* ---- forks while threads work ---------------------------------------------------------------- */

static atomic_int stop;
static atomic_long obtained;

static void *compile_and_forget(void *user) {
    smelt_context *context = user;
    static atomic_int seat;
    uint64_t random = (uint64_t)atomic_fetch_add(&seat, 1);
    while (!atomic_load(&stop)) {
        int n = (int)(next_random(&random) % KEYS);
        REQUIRE(obtain(context, n) == RIGHT);
        atomic_fetch_add(&obtained, 1);
        if (next_random(&random) % 2)
            forget(folder, n);
    }
    return NULL;
}

/* The child requests kernels that its parent's threads are compiling, and waits for their locks
 * like any other process. */
static void fork_while_compiling(long forks) {
    smelt_context *contexts[2] = {make_context(SMELT_CONTEXT_COMPILE_ONLY),
                                  make_context(SMELT_CONTEXT_DEVICE)};
    pthread_t threads[THREADS];
    atomic_store(&stop, 0);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, compile_and_forget, contexts[i % 2]) == 0);
    for (long i = 0; i < forks; i++)
        in_child(i % 2 ? use_own : use_inherited, contexts[0]);
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < 2; i++) {
        REQUIRE(cache_errors(contexts[i]) == 0);
        smelt_context_destroy(&contexts[i]);
    }
}

int row_forks(const struct arguments *arguments) {
    long forks = argument(arguments, "forks", 1000);
#ifdef TORTURE_SANITIZED
    skip("the sanitizer's allocator does not survive a fork among threads");
#endif
    folder = scratch_folder(false);
    in_child(use_own, NULL); /* before any use of the library here */
    in_child(fork_while_opening, NULL);
    driver = fakes_driver();
    fakes_nvrtc()->sleep_ms = COMPILE_MS;
    fakes_nvrtc()->cubin_bytes = CUBIN_BYTES;
    for (int n = 0; n < KEYS; n++)
        (void)kernel_hash(n);
    fork_after_use();
    fork_while_compiling(forks);
    figure("forks before use, while NVRTC was being opened, after use, and %ld while %d threads "
           "compiled %ld kernels: parents' "
           "contexts refused in the child, its own give the right kernels",
           forks, THREADS, atomic_load(&obtained));
    return 0;
}
