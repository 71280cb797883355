/* 24 threads of one process request the same kernels and different ones at the same time: each
 * kernel is compiled once and loaded once per context, and all threads get the same kernel. */
#include "torture.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 24, KINDS = 6, COMPILE_MS = 4, CUBIN_BYTES = 3000 };

enum manner { SAME_OPERATOR, DIFFERENT_OPERATORS, PREPARE, OWN_CONTEXTS, MANNERS };
static const char *const manner_names[MANNERS] = {
    "one operator", "six operators", "six kernels prepared", "a context a thread, six kernels"};

struct thread {
    pthread_t handle;
    pthread_barrier_t *barrier;
    smelt_context *context; /* NULL: makes its own */
    const char *folder;
    enum manner manner;
    int number, base; /* kernels base..base + KINDS - 1 */
};

static void create_operator(const struct thread *thread, int n) {
    char spec[TORTURE_SPEC];
    smelt_kernel_info info = SMELT_KERNEL_INFO_INIT;
    smelt_operator *attn;
    char text[TORTURE_SPEC];

    snprintf(spec, sizeof spec, "sparse_attn:heads=16,dqk=128,dv=128,topk=%d", n + 1);
    REQUIRE(smelt_operator_create(&attn, thread->context, spec) == SMELT_OK);
    REQUIRE(smelt_operator_get_kernel_info(attn, SMELT_PASS_FORWARD, 0, &info) == SMELT_OK);
    REQUIRE(!strcmp(info.spec, kernel_spec(n, text)));
    smelt_operator_destroy(&attn);
}

static void prepare(const struct thread *thread) {
    char texts[KINDS][TORTURE_SPEC];
    smelt_kernel_request requests[KINDS] = {SMELT_KERNEL_REQUEST_INIT};
    smelt_kernel_info infos[KINDS] = {SMELT_KERNEL_INFO_INIT};
    for (int i = 0; i < KINDS; i++)
        requests[i].spec = kernel_spec(thread->base + (i + thread->number) % KINDS, texts[i]);
    REQUIRE(smelt_kernels_prepare(thread->context, requests, KINDS, 1 + thread->number % 3, NULL,
                                  NULL, infos) == SMELT_OK);
    for (int i = 0; i < KINDS; i++)
        REQUIRE(!strcmp(infos[i].spec, requests[i].spec) && infos[i].state != SMELT_KERNEL_FAILED);
}

static void use_own_context(struct thread *thread) {
    smelt_context_options options = torture_options(thread->folder, NULL);
    smelt_context *context = torture_context(&options);
    for (int i = 0; i < KINDS; i++)
        REQUIRE(obtain(context, thread->base + (i + thread->number) % KINDS) == RIGHT);
    REQUIRE(cache_errors(context) == 0);
    smelt_context_destroy(&context);
}

static void *run_thread(void *user) {
    struct thread *thread = user;
    pthread_barrier_wait(thread->barrier);
    switch (thread->manner) {
    case SAME_OPERATOR:
        create_operator(thread, thread->base);
        break;
    case DIFFERENT_OPERATORS:
        for (int i = 0; i < KINDS; i++)
            create_operator(thread, thread->base + (i + thread->number) % KINDS);
        break;
    case PREPARE:
        prepare(thread);
        break;
    default:
        use_own_context(thread);
        break;
    }
    return NULL;
}

static void run_threads(smelt_context *context, const char *folder, enum manner manner, int base) {
    struct thread threads[THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.barrier = &barrier,
                                     .context = manner == OWN_CONTEXTS ? NULL : context,
                                     .folder = folder,
                                     .manner = manner,
                                     .number = i,
                                     .base = base};
        REQUIRE(pthread_create(&threads[i].handle, NULL, run_thread, &threads[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_join(threads[i].handle, NULL) == 0);
    pthread_barrier_destroy(&barrier);
}

int row_threads(const struct arguments *arguments) {
    int rounds = (int)argument(arguments, "rounds", 100);
    const char *folder = scratch_folder(false);
    struct fake_nvrtc *nvrtc = fakes_nvrtc();
    smelt_context_options options = torture_options(folder, NULL);
    long compiled = 0;
    nvrtc->sleep_ms = COMPILE_MS;
    nvrtc->cubin_bytes = CUBIN_BYTES;
    options.kind = SMELT_CONTEXT_DEVICE;
    options.arch = NULL;
    for (int round = 0; round < rounds; round++) {
        smelt_context *context = torture_context(&options);
        REQUIRE(!strcmp(smelt_context_arch(context), TORTURE_ARCH));
        for (enum manner manner = 0; manner < MANNERS; manner++) {
            int kinds = manner == SAME_OPERATOR ? 1 : KINDS, before = nvrtc->compiles;
            int loads = fakes_driver()->loads;
            run_threads(context, folder, manner, (round * MANNERS + (int)manner) * KINDS);
            if (nvrtc->compiles - before != kinds)
                fprintf(stderr, "%s: %d compilations\n", manner_names[manner],
                        nvrtc->compiles - before);
            REQUIRE(nvrtc->compiles - before == kinds);
            REQUIRE(fakes_driver()->loads - loads == (manner <= DIFFERENT_OPERATORS ? kinds : 0));
            compiled += kinds;
        }
        REQUIRE(cache_errors(context) == 0);
        smelt_context_destroy(&context);
        REQUIRE(fakes_driver()->modules == 0 && fakes_driver()->retained == 0);
    }
    figure("%d threads, %d rounds of: one operator, six operators, six kernels prepared, a context "
           "a thread: %ld kernels, each compiled once and loaded once a context",
           THREADS, rounds, compiled);
    return 0;
}
