/* Graphs, streams, threads and contexts around a launch. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "harness/defaults.h"
#include "smelt/device.h"
#include "suite.h"

enum { CAPTURE_MODE_GLOBAL = 0, THREADS = 8, ROUNDS = 20, QUICK_ROUNDS = 2 };

struct launch_test {
    struct suite *suite;
    struct driver *driver; /* NULL when the suite runs without it */
    const struct suite_operator *op;
    const char *spec;
    struct workload *workload;
    struct CUstream_st *stream;
    char *message;
    size_t size;
};

static struct smelt__problem_options launch_options(const struct launch_test *test) {
    const int small = test->suite->quick || test->suite->emulated;
    struct smelt__problem_options options = small ? test->op->quick_launch : test->op->launch;
    options.seed = test->suite->seed;
    return options;
}

static int works(const struct launch_test *test, smelt_status status, const char *call) {
    return suite_ok(status, call, test->message, test->size) == 0;
}

static int driven(const struct launch_test *test, int code, const char *call) {
    if (code)
        snprintf(test->message, test->size, "%s: driver error %d", call, code);
    return code == 0;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static struct CUgraphExec_st *capture(struct launch_test *test) {
    struct driver *driver = test->driver;
    struct CUgraph_st *graph = NULL;
    struct CUgraphExec_st *executable = NULL;
    if (!driven(test, driver->stream_begin_capture(test->stream, CAPTURE_MODE_GLOBAL),
                "begin capture"))
        return NULL;
    smelt_status status = smelt_operator_launch(test->workload->object, test->workload->pass->pass,
                                                test->workload->placed.args, test->stream);
    int code = driver->stream_end_capture(test->stream, &graph);
    if (works(test, status, "forward while capturing") && driven(test, code, "end capture"))
        driven(test, driver->graph_instantiate(&executable, graph, 0), "instantiate");
    if (graph)
        driver->graph_destroy(graph);
    return executable;
}

static void replay(struct launch_test *test, struct CUgraphExec_st *executable) {
    struct smelt__placed *placed = &test->workload->placed;
    if (works(test, smelt__placed_poison(placed), "poison") &&
        works(test, smelt_stream_synchronize(test->suite->context, NULL), "wait") &&
        driven(test, test->driver->graph_launch(executable, test->stream), "graph launch") &&
        works(test, smelt_stream_synchronize(test->suite->context, test->stream), "wait") &&
        works(test, smelt__placed_download(placed), "download"))
        workload_judge(test->workload, test->message, test->size);
}

static int same_tensors(const struct smelt__problem *a, const struct smelt__problem *b) {
    for (int i = 0; i < a->pass->tensors->count; i++)
        if (!a->buffers[i].elements != !b->buffers[i].elements)
            return 0;
    return 1;
}

/* Other data for a graph with the same arguments: of another kind if it has the same tensors. */
static int vary(struct launch_test *test, uint64_t number, struct smelt__problem *problem) {
    const struct workload *workload = test->workload;
    const struct smelt__harness_operator *op = workload->spec.op;
    for (int other_kind = 1; other_kind >= 0; other_kind--) {
        struct smelt__problem_options options = launch_options(test);
        options.seed += number;
        if (other_kind && !smelt__options_kind(op, (int)number, &options))
            continue;
        if (smelt__problem_create(problem, op, workload->pass, workload->spec.spec, &options) != 0)
            break;
        if (same_tensors(problem, &workload->problem))
            return 1;
        smelt__problem_destroy(problem);
    }
    snprintf(test->message, test->size, "no other data");
    return 0;
}

/* Captured once; replayed with the same data and with other data at the same addresses. */
static void graph(struct launch_test *test) {
    struct CUctx_st *context = NULL;
    if (!driven(test, test->driver->stream_get_ctx(test->stream, &context), "stream's context") ||
        !driven(test, test->driver->ctx_set_current(context), "set current"))
        return;
    struct CUgraphExec_st *executable = capture(test);
    if (executable)
        replay(test, executable);
    for (uint64_t i = 1; i <= 3 && executable && !test->message[0]; i++) {
        struct smelt__problem other;
        if (!vary(test, i, &other))
            break;
        smelt__problem_destroy(&test->workload->problem);
        test->workload->problem = other;
        if (works(test, smelt__placed_refresh(&test->workload->placed), "upload"))
            replay(test, executable);
    }
    if (executable)
        test->driver->graph_exec_destroy(executable);
    test->driver->ctx_set_current(NULL);
}

static int same_bytes(struct launch_test *test, const void *a, const void *b, size_t bytes) {
    if (memcmp(a, b, bytes) == 0)
        return 1;
    snprintf(test->message, test->size, "a copy behind the call is not its result");
    return 0;
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Two problems on two streams, launched alternately without waiting. */
static void two_streams(struct launch_test *test) {
    struct workload second;
    struct CUstream_st *streams[2] = {test->stream, NULL};
    struct smelt__problem_options options = launch_options(test);
    options.seed += 77;
    smelt__options_kind(test->workload->spec.op, 2, &options);
    if (workload_open(&second, test->suite, test->spec, &options, test->message, test->size) != 0)
        return;
    struct workload *workloads[2] = {test->workload, &second};
    smelt_context *context = test->suite->context;
    const int quick = test->suite->quick || test->suite->emulated;
    int launches = 2 * (quick ? QUICK_ROUNDS : ROUNDS);
    int good = works(test, smelt_stream_create(context, &streams[1]), "stream_create");
    for (int i = 0; i < 2 && good; i++)
        good = works(test, smelt__placed_poison(&workloads[i]->placed), "poison");
    good = good && works(test, smelt_stream_synchronize(context, NULL), "wait");
    for (int i = 0; i < launches && good; i++)
        good = works(test,
                     smelt_operator_launch(test->workload->object, test->workload->pass->pass,
                                           workloads[i % 2]->placed.args, streams[i % 2]),
                     "forward");
    for (int i = 0; i < 2 && good; i++) {
        good = works(test, smelt_stream_synchronize(context, streams[i]), "wait") &&
               works(test, smelt__placed_download(&workloads[i]->placed), "download");
        if (good)
            workload_judge(workloads[i], test->message, test->size);
        good = good && !test->message[0];
    }
    if (streams[1])
        smelt_stream_destroy(context, streams[1]);
    workload_close(&second);
}

static int first_output(const struct smelt__placed *placed) {
    int row = 0;
    while (placed->pass->tensors->rows[row].role == SMELT__INPUT)
        row++;
    return row;
}

/* Work after a call in the stream must find all of its results: the buckets' kernels overlap, and
 * the last one, which often has no items, must not end before the first. */
static void followed_at_once(struct launch_test *test) {
    const struct smelt__problem_options options = {
        .seed = test->suite->seed, .tokens = 6000, .rows = 5000};
    struct workload long_one;
    smelt_context *context = test->suite->context;
    void *copy = NULL, *host[2] = {NULL, NULL};
    if (workload_open(&long_one, test->suite, test->spec, &options, test->message, test->size) != 0)
        return;
    const struct smelt__placed *placed = &long_one.placed;
    const int output = first_output(placed);
    const size_t bytes = placed->buffers[output].bytes;
    const void *const results =
        smelt__tensor_in(&placed->pass->tensors->rows[output], placed->args)->data;
    host[0] = malloc(bytes), host[1] = malloc(bytes);
    int good =
        host[0] && host[1] && works(test, smelt_device_alloc(context, bytes, &copy), "alloc");
    for (int i = 0; i < ROUNDS && good; i++)
        good = works(test, smelt__placed_poison(&long_one.placed), "poison") &&
               works(test, smelt_stream_synchronize(context, NULL), "wait") &&
               works(test,
                     smelt_operator_launch(long_one.object, long_one.pass->pass, placed->args,
                                           test->stream),
                     "forward") &&
               driven(test,
                      test->driver->copy_async((unsigned long long)(uintptr_t)copy,
                                               (unsigned long long)(uintptr_t)results, bytes,
                                               test->stream),
                      "copy") &&
               works(test, smelt_stream_synchronize(context, test->stream), "wait") &&
               works(test, smelt_device_download(context, host[0], copy, bytes), "download") &&
               works(test, smelt_device_download(context, host[1], results, bytes), "download") &&
               same_bytes(test, host[0], host[1], bytes);
    if (copy)
        smelt_device_free(context, copy);
    free(host[0]);
    free(host[1]);
    workload_close(&long_one);
}

static void default_stream(struct launch_test *test) {
    if (works(test, smelt__placed_run(&test->workload->placed, test->workload->object, NULL),
              "forward"))
        workload_judge(test->workload, test->message, test->size);
}

/* ---- threads and the current context --------------------------------------------------------- */

/* This thread's current context, which the launch must not change. */
static void launch_under(struct launch_test *test, struct CUctx_st *context, const char *what) {
    struct CUctx_st *after = NULL;
    if (!driven(test, test->driver->ctx_set_current(context), "set current"))
        return;
    smelt_status status =
        smelt__placed_run(&test->workload->placed, test->workload->object, test->stream);
    driven(test, test->driver->ctx_get_current(&after), "get current");
    test->driver->ctx_set_current(NULL);
    if (!works(test, status, what))
        return;
    if (after != context)
        snprintf(test->message, test->size, "%s: the current context was not restored", what);
    else
        workload_judge(test->workload, test->message, test->size);
}

static void *launch_without_context(void *user) {
    launch_under(user, NULL, "a thread without a current context");
    return NULL;
}

static void *launch_with_context(void *user) {
    struct launch_test *test = user;
    struct CUctx_st *context = NULL;
    if (driven(test, test->driver->stream_get_ctx(test->stream, &context), "stream's context"))
        launch_under(test, context, "a thread with the operator's context");
    return NULL;
}

static void in_a_thread(struct launch_test *test, void *(*body)(void *user)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, test) != 0)
        snprintf(test->message, test->size, "pthread_create failed");
    else
        pthread_join(thread, NULL);
}

static void thread_without_context(struct launch_test *test) {
    in_a_thread(test, launch_without_context);
}

static void thread_with_context(struct launch_test *test) {
    in_a_thread(test, launch_with_context);
}

/* ---- SMELT_CONTEXT_CURRENT ------------------------------------------------------------------ */

static void adopt_current(struct launch_test *test, struct smelt_context **adopted) {
    struct suite suite = *test->suite;
    struct workload workload;
    struct smelt__problem_options options = launch_options(test);
    if (!works(test, smelt_context_create(adopted, NULL), "context_create on the current context"))
        return;
    suite.context = *adopted;
    if (workload_open(&workload, &suite, test->spec, &options, test->message, test->size) != 0)
        return;
    if (works(test, smelt__placed_run(&workload.placed, workload.object, NULL), "forward"))
        workload_judge(&workload, test->message, test->size);
    workload_close(&workload);
}

static void current_context(struct launch_test *test) {
    struct smelt_context *adopted = NULL;
    struct CUctx_st *context = NULL;
    if (!driven(test, test->driver->stream_get_ctx(test->stream, &context), "stream's context"))
        return;
    test->driver->ctx_set_current(NULL);
    if (smelt_context_create(&adopted, NULL) != SMELT_ERROR_NO_DEVICE)
        snprintf(test->message, test->size, "no current context: NO_DEVICE was expected");
    smelt_context_destroy(&adopted);
    if (!test->message[0] && driven(test, test->driver->ctx_set_current(context), "set current"))
        adopt_current(test, &adopted);
    smelt_context_destroy(&adopted);
    test->driver->ctx_set_current(NULL);
}

/* ---- many threads, one operator -------------------------------------------------------------- */

struct shared {
    struct launch_test *test;
    uint64_t seed;
    char message[512];
};

static void *share(void *user) {
    struct shared *shared = user;
    struct smelt__problem_options options = launch_options(shared->test);
    struct smelt__placed placed;
    struct smelt__problem problem;
    struct smelt__check_result result;
    struct launch_test test = *shared->test;
    memset(&result, 0, sizeof result);
    test.message = shared->message;
    test.size = sizeof shared->message;
    test.stream = NULL;
    options.seed = shared->seed;
    if (smelt__problem_create(&problem, test.workload->spec.op, test.workload->pass,
                              test.workload->spec.spec, &options) != 0) {
        snprintf(test.message, test.size, "out of memory");
        return NULL;
    }
    if (works(&test, smelt__placed_create(&placed, test.suite->context, &problem), "placing")) {
        if (works(&test, smelt_stream_create(test.suite->context, &test.stream), "stream") &&
            works(&test, smelt__placed_run(&placed, test.workload->object, test.stream),
                  "forward") &&
            smelt__check_compare(&placed, 4, &result) != 0)
            snprintf(test.message, test.size, "%.500s", result.message);
        if (test.stream)
            smelt_stream_destroy(test.suite->context, test.stream);
        smelt__placed_destroy(&placed);
    }
    smelt__problem_destroy(&problem);
    return NULL;
}

static void many_threads(struct launch_test *test) {
    struct shared shared[THREADS];
    pthread_t threads[THREADS];
    int started = 0;
    for (; started < THREADS; started++) {
        shared[started] = (struct shared){test, test->suite->seed + 100 + (uint64_t)started, ""};
        if (pthread_create(&threads[started], NULL, share, &shared[started]) != 0)
            break;
    }
    if (started < THREADS)
        snprintf(test->message, test->size, "pthread_create failed");
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        if (shared[i].message[0])
            snprintf(test->message, test->size, "thread %d: %s", i, shared[i].message);
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(struct launch_test *test);
    int needs_driver;
    const char *not_emulated; /* why the emulator cannot run it; NULL: it can */
} tests[] = {
    {"launches: default stream", default_stream, 0, NULL},
    {"launches: two streams", two_streams, 0, NULL},
    {"launches: eight threads, one operator", many_threads, 0,
     "what must not be touched is told to the emulator between launches"},
    {"launches: graph captured and replayed on changed data", graph, 1, "it has no graphs"},
    {"launches: what follows in the stream waits", followed_at_once, 1, "launches do not overlap"},
    {"launches: thread without a current context", thread_without_context, 1,
     "libcuda itself is needed"},
    {"launches: thread with the operator's context", thread_with_context, 1,
     "libcuda itself is needed"},
    {"launches: smelt context on the current CUDA context", current_context, 1,
     "libcuda itself is needed"},
};

static void run_one(struct launch_test *test, void (*run)(struct launch_test *test)) {
    struct workload workload;
    struct smelt__problem_options options = launch_options(test);
    if (workload_open(&workload, test->suite, test->spec, &options, test->message, test->size) != 0)
        return;
    test->workload = &workload;
    if (works(test, smelt_stream_create(test->suite->context, &test->stream), "stream_create")) {
        run(test);
        smelt_stream_destroy(test->suite->context, test->stream);
    }
    workload_close(&workload);
}

static void run_test(struct suite *suite, struct driver *driver, const char *missing, size_t test,
                     const struct suite_operator *op, const char *spec) {
    char name[256], message[1024] = "";
    snprintf(name, sizeof name, "%s, %s", tests[test].name, spec);
    if (suite->emulated && tests[test].not_emulated) {
        suite_skip(suite, name, tests[test].not_emulated);
        return;
    }
    if ((tests[test].needs_driver && suite->without_driver) || !suite_wants(suite, name))
        return;
    struct launch_test launch = {.suite = suite,
                                 .driver = driver,
                                 .op = op,
                                 .spec = spec,
                                 .message = message,
                                 .size = sizeof message};
    if (tests[test].needs_driver && missing[0])
        snprintf(message, sizeof message, "%s", missing);
    else
        run_one(&launch, tests[test].run);
    suite_report(suite, name, message);
}

void run_launches(struct suite *suite) {
    struct driver driver;
    char missing[512] = "";
    const int without_driver = suite->without_driver || suite->emulated;
    if (!without_driver && !suite->list)
        driver_open(&driver, missing, sizeof missing);
    for (suite->op = 0; suite_operators[suite->op]; suite->op++) {
        const struct suite_operator *op = suite_operators[suite->op];
        for (const char *const *spec = op->launches; *spec; spec++)
            for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
                run_test(suite, without_driver ? NULL : &driver, missing, i, op, *spec);
    }
    if (!without_driver && !suite->list && !missing[0])
        driver_close(&driver);
}
