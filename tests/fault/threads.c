/* Kernels that several threads request concurrently, and that prepare makes with several threads:
 * the number of compilations, and each thread's status and message. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "../unit/test.h"
#include "fresh.h"
#include "runtime/context.h"
#include "runtime/flight.h"
#include "runtime/kernel.h"
#include "runtime/specs.h"
#include "smelt/kernels.h"

/* ---- one kernel, many threads ---- */

enum { THREADS = 24 };

struct asker {
    smelt_context *context;
    pthread_barrier_t *barrier;
    const char *spec;
    const struct smelt__kernel *kernel;
    smelt_status status;
    int compile_only;
    char message[SMELT__ERROR_MESSAGE];
};

static void *ask(void *user) {
    struct asker *asker = user;
    struct smelt__compiled compiled;
    struct smelt__plan plan;

    fakes_plan(asker->spec, &plan);
    pthread_barrier_wait(asker->barrier);
    if (asker->compile_only) {
        asker->status = smelt__kernel_compile(asker->context, &plan, &compiled, NULL);
        free(compiled.cubin);
    } else {
        asker->status = smelt__kernel_get(asker->context, &plan, &asker->kernel);
    }
    snprintf(asker->message, sizeof asker->message, "%s", smelt_last_error());
    return NULL;
}

/* Thread i requests specs[i % spec_count]. */
static void ask_at_once(struct asker *askers, int count, smelt_context *context,
                        const char *const *specs, int spec_count, int compile_only) {
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;

    pthread_barrier_init(&barrier, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        askers[i] = (struct asker){.context = context,
                                   .barrier = &barrier,
                                   .spec = specs[i % spec_count],
                                   .compile_only = compile_only};
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

static smelt_context *boarded;

/* The compilation lasts until every thread waits for it. */
static void wait_until_all_board(uint64_t source_hash) {
    struct smelt__flights *flights = &boarded->compiling;
    (void)source_hash;
    for (int i = 0, aboard = 0; i < 30000 && aboard < THREADS; i++) {
        usleep(1000);
        pthread_mutex_lock(&flights->mutex);
        aboard = flights->first ? flights->first->users : 0;
        pthread_mutex_unlock(&flights->mutex);
    }
}

TEST(threads_share_one_compile_and_load) {
    static const char *const specs[] = {FAKES_SPEC};
    struct asker askers[THREADS];
    nvrtc->sleep_ms = 20;
    smelt_context *context = make_context();
    ask_at_once(askers, THREADS, context, specs, 1, 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(askers[i].status, SMELT_OK);
        assert_ptr_equal(askers[i].kernel, askers[0].kernel);
    }
    assert_int_equal(nvrtc->compiles, 1);
    assert_int_equal(driver->loads, 1);
    /* Without a cache a thread that arrives after the landing compiles again, so all threads must
     * board. */
    boarded = context;
    nvrtc->on_compile = wait_until_all_board;
    ask_at_once(askers, THREADS, context, specs, 1, 1);
    assert_int_equal(nvrtc->compiles, 2);
}

TEST(threads_share_one_failure) {
    static const char *const specs[] = {FAKES_SPEC};
    static struct asker askers[THREADS];
    nvrtc->sleep_ms = 50;
    snprintf(nvrtc->fail, sizeof nvrtc->fail, "nvrtcCompileProgram");
    nvrtc->fail_with = NVRTC_ERROR_COMPILATION;
    smelt_context *context = make_context();
    /* For threads that wait for loading, and for threads that wait for compilation. */
    for (int compile_only = 0; compile_only < 2; compile_only++) {
        ask_at_once(askers, THREADS, context, specs, 1, compile_only);
        assert_non_null(strstr(askers[0].message, "kernel.cu(7): error: told to fail"));
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(askers[i].status, SMELT_ERROR_COMPILE);
            assert_string_equal(askers[i].message, askers[0].message);
        }
    }
}

/* The longest message a thread can have. */
static char long_message[SMELT__ERROR_MESSAGE];

static void make_long_message(void) {
    for (size_t i = 0; i + 1 < sizeof long_message; i++)
        long_message[i] = (char)('a' + i % 26);
}

static void *follow(void *user) {
    struct smelt__flights *flights = user;
    struct smelt__flight *flight;
    if (smelt__flight_join(flights, "key", &flight)) /* too late: this thread leads */
        smelt__flight_complete(flights, flight, SMELT_ERROR_COMPILE,
                               (smelt__fail(SMELT_ERROR_COMPILE, "%s", long_message), NULL));
    const int same =
        flight->status == SMELT_ERROR_COMPILE && !strcmp(smelt_last_error(), long_message);
    smelt__flight_leave(flights, flight);
    return same ? user : NULL;
}

/* Waiting threads get the complete message. */
TEST(followers_have_the_whole_message) {
    struct smelt__flights flights;
    struct smelt__flight *flight;
    pthread_t threads[THREADS];
    void *same;
    make_long_message();
    smelt__flights_init(&flights, 0, free);
    assert_int_equal(smelt__flight_join(&flights, "key", &flight), 1);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, follow, &flights), 0);
    while (1) {
        pthread_mutex_lock(&flights.mutex);
        const int aboard = flight->users;
        pthread_mutex_unlock(&flights.mutex);
        if (aboard == THREADS + 1)
            break;
        sched_yield();
    }
    smelt__fail(SMELT_ERROR_COMPILE, "%s", long_message);
    smelt__flight_complete(&flights, flight, SMELT_ERROR_COMPILE, NULL);
    smelt__flight_leave(&flights, flight);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &same);
        assert_non_null(same);
    }
    smelt__flights_finish(&flights);
}

TEST(different_kernels_compile_in_parallel) {
    static const char *const specs[] = {"sparse_attn_fwd:heads=16,dqk=128,dv=128,topk=64",
                                        "sparse_attn_fwd:heads=32,dqk=128,dv=128,topk=64",
                                        "sparse_attn_fwd:heads=48,dqk=128,dv=128,topk=64",
                                        "sparse_attn_fwd:heads=64,dqk=128,dv=128,topk=64"};
    struct asker askers[THREADS];
    fakes_compile_together(2);
    smelt_context *context = make_context();
    ask_at_once(askers, THREADS, context, specs, 4, 0);
    assert_int_equal(nvrtc->compiles, 4);
    assert_int_equal(driver->loads, 4);
    assert_in_range(nvrtc->max_running, 2, 4);
}

/* ---- prepare ---- */

TEST(prepare_reports_each_kernel) {
    static const smelt_kernel_request requests[] = {
        {.size = sizeof *requests, .spec = FAKES_SPEC},
        {.spec = "sparse_attn:heads=64,dqk=576,dv=512,topk=2048"},
        {.spec = "sparse_attn_fwd:heads=16,dqk=128,dv=128,topk=64", .arch = "sm_80"},
        {.spec = NULL}};
    smelt_kernel_info infos[4] = {SMELT_KERNEL_INFO_INIT};
    smelt_context *context = make_context();
    assert_int_equal(smelt_kernels_prepare(context, requests, 4, 3, NULL, NULL, infos),
                     SMELT_ERROR_INVALID_SPEC);
    assert_int_equal(infos[0].state, SMELT_KERNEL_COMPILED);
    assert_true(infos[0].assembler_seconds == 0.002);
    assert_int_equal(infos[1].status, SMELT_ERROR_INVALID_SPEC);
    assert_non_null(strstr(infos[1].error, "operator"));
    assert_int_equal(infos[2].state, SMELT_KERNEL_COMPILED);
    assert_string_equal(infos[2].arch, "sm_80");
    assert_int_equal(infos[3].status, SMELT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(driver->loads, 0);
}

/* Replaces the C library's function: the number of processors is the test's. */
static int processors = 1;

int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t *set) {
    (void)process;
    CPU_ZERO_S(bytes, set);
    for (int i = 0; i < processors; i++)
        CPU_SET_S((size_t)i, bytes, set);
    return 0;
}

TEST(prepare_uses_the_threads_it_may) {
    enum { KERNELS = 8 };
    /* processors, jobs, maximum number of working threads */
    static const int cases[][3] = {{3, 0, 3}, {1, 0, 1}, {64, 0, KERNELS}, {1, 4, 4}, {3, 1, 1}};
    smelt_kernel_request requests[KERNELS];
    char specs[KERNELS][64];
    for (int i = 0; i < KERNELS; i++) {
        snprintf(specs[i], sizeof specs[i], "sparse_attn_fwd:heads=16,dqk=64,dv=64,topk=%d",
                 64 * (i + 1));
        requests[i] = (smelt_kernel_request)SMELT_KERNEL_REQUEST_INIT;
        requests[i].spec = specs[i];
    }
    nvrtc->sleep_ms = 20; /* long enough to detect an additional thread */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        smelt_context *context = make_context();
        processors = cases[i][0];
        fakes_compile_together(cases[i][2]);
        assert_int_equal(
            smelt_kernels_prepare(context, requests, KERNELS, cases[i][1], NULL, NULL, NULL),
            SMELT_OK);
        assert_int_equal(nvrtc->max_running, cases[i][2]);
    }
}

/* The order in which failures occur is random. The call's status and message are those of the
 * lowest failed request; each info has its own. */
TEST(failures_keep_their_messages) {
    enum { REQUESTS = 6, ROUNDS = 40 };
    static const struct {
        const char *spec, *arch, *says;
        smelt_status status;
    } cases[REQUESTS] = {
        {FAKES_SPEC, NULL, "", SMELT_OK},
        {FAKES_SPEC, "sm_120a", "cannot compile for sm_120a", SMELT_ERROR_NO_COMPILER},
        {"sparse_attn:heads=64,dqk=576,dv=512,topk=2048", NULL, "operator",
         SMELT_ERROR_INVALID_SPEC},
        {"sparse_attn_fwd:heads=8,dqk=64,dv=64,topk=64,variant=sm90", NULL, "with dv=64;",
         SMELT_ERROR_UNSUPPORTED},
        {"sparse_attn_fwd:heads=8,dqk=128,dv=128,topk=64,variant=sm90", NULL, "with dv=128;",
         SMELT_ERROR_UNSUPPORTED},
        {NULL, NULL, "NULL", SMELT_ERROR_INVALID_ARGUMENT}};
    smelt_kernel_request requests[REQUESTS];
    smelt_kernel_info infos[REQUESTS];
    smelt_context *context = make_context();

    for (int i = 0; i < REQUESTS; i++) {
        requests[i] = (smelt_kernel_request)SMELT_KERNEL_REQUEST_INIT;
        requests[i].spec = cases[i].spec;
        requests[i].arch = cases[i].arch;
    }
    for (int round = 0; round < ROUNDS; round++) {
        infos[0].size = sizeof infos[0];
        assert_refused(
            smelt_kernels_prepare(context, requests, REQUESTS, 1 + round % 8, NULL, NULL, infos),
            SMELT_ERROR_NO_COMPILER, cases[1].says);
        for (int i = 0; i < REQUESTS; i++) {
            assert_int_equal(infos[i].status, cases[i].status);
            assert_non_null(strstr(infos[i].error, cases[i].says));
        }
    }
}

/* The same for an operator's kernels, which are made concurrently. */
TEST(first_failed_kernel_speaks) {
    enum { KERNELS = 4, ROUNDS = 40 };
    static const char *const texts[KERNELS] = {
        FAKES_SPEC, "sparse_attn_fwd:heads=8,dqk=128,dv=128,topk=64,variant=sm90",
        "sparse_attn_fwd:heads=16,dqk=64,dv=64,topk=64",
        "sparse_attn_fwd:heads=8,dqk=64,dv=64,topk=64,variant=sm90"};
    const struct smelt__kernel *kernels[KERNELS];
    struct smelt__spec specs[KERNELS];
    const struct smelt__arch *arch;
    for (int i = 0; i < KERNELS; i++)
        assert_int_equal(smelt__kernel_from_text(texts[i], "sm_90a", &specs[i], &arch), SMELT_OK);
    snprintf(nvrtc->fail, sizeof nvrtc->fail, "nvrtcCompileProgram");
    nvrtc->fail_with = NVRTC_ERROR_COMPILATION;
    for (int round = 0; round < ROUNDS; round++) {
        smelt_context *context = make_context();
        /* Kernel 0 fails last but determines the message; then it does not fail. */
        nvrtc->sleep_ms = round % 2 ? 0 : 2;
        if (round == ROUNDS / 2)
            nvrtc->fail[0] = '\0';
        smelt_status status = smelt__kernels_get(context, specs, KERNELS, kernels);
        assert_int_equal(status,
                         round < ROUNDS / 2 ? SMELT_ERROR_COMPILE : SMELT_ERROR_UNSUPPORTED);
        assert_non_null(
            strstr(smelt_last_error(), round < ROUNDS / 2 ? "told to fail" : "with dv=128;"));
    }
}

/* ---- the program's signals ---- */

static pthread_t main_thread;
static atomic_int helpers, masked, faults_reach;

static void look_at_mask(uint64_t source_hash) {
    sigset_t mask;
    (void)source_hash;
    if (pthread_equal(pthread_self(), main_thread))
        return;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    helpers++;
    masked += sigismember(&mask, SIGINT) && sigismember(&mask, SIGCHLD) &&
              sigismember(&mask, SIGALRM) && sigismember(&mask, SIGUSR1);
    faults_reach += !sigismember(&mask, SIGSEGV) && !sigismember(&mask, SIGBUS);
}

/* The library's threads take no signals except their own faults; the caller's mask does not
 * change. */
TEST(threads_leave_signals_alone) {
    enum { KERNELS = 3 };
    struct smelt__spec specs[KERNELS];
    smelt_kernel_request requests[KERNELS];
    const struct smelt__kernel *kernels[KERNELS];
    char texts[KERNELS][64];
    struct smelt__message message;
    sigset_t mask;
    main_thread = pthread_self();
    helpers = masked = faults_reach = 0;
    nvrtc->on_compile = look_at_mask;
    nvrtc->sleep_ms = 20; /* so that the helpers start before this thread has done all the work */
    for (int i = 0; i < KERNELS; i++) {
        snprintf(texts[i], sizeof texts[i], "sparse_attn_fwd:heads=16,dqk=64,dv=64,topk=%d",
                 64 * (i + 1));
        requests[i] = (smelt_kernel_request)SMELT_KERNEL_REQUEST_INIT;
        requests[i].spec = texts[i];
        assert_int_equal(smelt__spec_parse(texts[i], &specs[i], &message), 0);
    }
    smelt_context *context = make_context();
    assert_int_equal(smelt_kernels_prepare(context, requests, KERNELS, KERNELS, NULL, NULL, NULL),
                     SMELT_OK);
    const int prepared = helpers;
    assert_true(prepared > 0);
    assert_int_equal(smelt__kernels_get(context, specs, KERNELS, kernels), SMELT_OK);
    assert_true(helpers > prepared);
    assert_int_equal(masked, helpers);
    assert_int_equal(faults_reach, helpers);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_false(sigismember(&mask, SIGINT));
    nvrtc->on_compile = NULL;
}

TESTS("threads on fakes", .setup = fresh_fakes, .teardown = end_fakes)
