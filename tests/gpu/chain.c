/* See chain.h. */
#include "chain.h"

#include <stdio.h>
#include <string.h>

#include "driver.h"
#include "smelt/device.h"

enum { CAPTURE_MODE_GLOBAL = 0 };

static int works(smelt_status status, const char *call, char *message, size_t size) {
    return suite_ok(status, call, message, size) == 0;
}

static int open_chain(struct suite *suite, const struct chain_plan *plan, int64_t tokens,
                      struct chain *chain, char *message, size_t size) {
    for (int i = 0; i < plan->links; i++) {
        struct smelt__problem_options options = {
            .seed = suite->seed + (uint64_t)i, .tokens = tokens, .rows = tokens};
        plan->problem(i, tokens, &options);
        if (workload_open(&chain->links[i], suite, plan->specs[i], &options, message, size) != 0)
            return 0;
        chain->open++;
    }
    plan->connect(chain);
    return works(smelt_stream_create(suite->context, &chain->stream), "stream", message, size);
}

static void close_chain(struct suite *suite, struct chain *chain) {
    smelt_stream_destroy(suite->context, chain->stream);
    while (chain->open > 0)
        workload_close(&chain->links[--chain->open]);
}

static int launch(struct chain *chain, char *message, size_t size) {
    for (int i = 0; i < chain->open; i++)
        if (!works(smelt_operator_launch(chain->links[i].object, chain->links[i].pass->pass,
                                         chain_args(chain, i), chain->stream),
                   chain->links[i].spec.op->name, message, size))
            return 0;
    return 1;
}

static int poison(struct suite *suite, struct chain *chain, char *message, size_t size) {
    for (int i = 0; i < chain->open; i++)
        if (!works(smelt__placed_poison(&chain->links[i].placed), "poison", message, size))
            return 0;
    return works(smelt_stream_synchronize(suite->context, NULL), "wait", message, size);
}

/* Computes a digest of each link's results after they are complete. */
static int digest(struct suite *suite, struct chain *chain, uint64_t *digests, char *message,
                  size_t size) {
    if (!works(smelt_stream_synchronize(suite->context, chain->stream), "wait", message, size))
        return 0;
    for (int i = 0; i < chain->open; i++) {
        if (!works(smelt__placed_download(&chain->links[i].placed), "download", message, size))
            return 0;
        digests[i] = smelt__placed_digest(&chain->links[i].placed);
    }
    return 1;
}

static int change_inputs(const struct chain_plan *plan, struct chain *chain, int round,
                         char *message, size_t size) {
    for (int i = plan->first_changed; i <= plan->last_changed; i++) {
        struct workload *link = &chain->links[i];
        uint16_t *x = smelt__problem_data(&link->problem, 0);
        for (size_t k = (size_t)round; k < link->problem.buffers[0].elements; k += 3)
            x[k] ^= 0x8000;
        if (!works(smelt__placed_refresh(&link->placed), "upload", message, size))
            return 0;
    }
    return 1;
}

/* Runs the calls one by one and records their results. */
static int run_alone(struct suite *suite, struct chain *chain, uint64_t *digests, char *message,
                     size_t size) {
    return poison(suite, chain, message, size) && launch(chain, message, size) &&
           digest(suite, chain, digests, message, size);
}

static void compare(const struct chain *chain, const uint64_t *expected, const uint64_t *got,
                    char *message, size_t size) {
    for (int i = 0; i < chain->open && !message[0]; i++)
        if (expected[i] != got[i])
            snprintf(message, size, "%s: other bits than of the calls one by one",
                     chain->links[i].spec.op->name);
}

static struct CUgraphExec_st *capture(struct driver *driver, struct chain *chain, char *message,
                                      size_t size) {
    struct CUgraph_st *graph = NULL;
    struct CUgraphExec_st *executable = NULL;
    int code = driver->stream_begin_capture(chain->stream, CAPTURE_MODE_GLOBAL);
    const int launched = code == 0 && launch(chain, message, size);
    code = code ? code : driver->stream_end_capture(chain->stream, &graph);
    code = code ? code : driver->graph_instantiate(&executable, graph, 0);
    if (code && !message[0])
        snprintf(message, size, "capture: driver error %d", code);
    if (graph)
        driver->graph_destroy(graph);
    return launched ? executable : NULL;
}

static void replay(struct suite *suite, const struct chain_plan *plan, struct driver *driver,
                   struct chain *chain, char *message, size_t size) {
    struct CUctx_st *context = NULL;
    uint64_t expected[CHAIN_MOST_LINKS], got[CHAIN_MOST_LINKS], before = 0;
    driver->stream_get_ctx(chain->stream, &context);
    driver->ctx_set_current(context);
    struct CUgraphExec_st *executable = capture(driver, chain, message, size);
    for (int round = 0; round < 3 && executable && !message[0]; round++) {
        if (!change_inputs(plan, chain, round, message, size) ||
            !run_alone(suite, chain, expected, message, size) ||
            !poison(suite, chain, message, size))
            break;
        if (driver->graph_launch(executable, chain->stream) != 0)
            snprintf(message, size, "graph launch failed");
        else if (digest(suite, chain, got, message, size))
            compare(chain, expected, got, message, size);
        if (!message[0] && expected[plan->decided] == before)
            snprintf(message, size, "other inputs gave the same");
        before = expected[plan->decided];
    }
    if (executable)
        driver->graph_exec_destroy(executable);
    driver->ctx_set_current(NULL);
}

/* Without graphs: runs the calls one by one twice. */
static void repeat(struct suite *suite, struct chain *chain, char *message, size_t size) {
    uint64_t first[CHAIN_MOST_LINKS], second[CHAIN_MOST_LINKS];
    if (run_alone(suite, chain, first, message, size) &&
        run_alone(suite, chain, second, message, size))
        compare(chain, first, second, message, size);
}

void run_chain(struct suite *suite, const struct chain_plan *plan) {
    /* Not 6 modulo 8 or 4 modulo 16: the harness's quantize then has no y, or no scale (given()). */
    enum { QUICK_TOKENS = 72, EMULATED_TOKENS = 90, TOKENS = 3000 };
    const int64_t emulated = suite->quick ? QUICK_TOKENS : EMULATED_TOKENS;
    const int without_driver = suite->without_driver || suite->emulated;
    struct chain chain = {.open = 0};
    struct driver driver;
    char message[1024] = "";
    if (!suite_wants(suite, plan->name))
        return;
    if (without_driver || driver_open(&driver, message, sizeof message) == 0) {
        if (open_chain(suite, plan, suite->emulated ? emulated : TOKENS, &chain, message,
                       sizeof message)) {
            if (without_driver)
                repeat(suite, &chain, message, sizeof message);
            else
                replay(suite, plan, &driver, &chain, message, sizeof message);
        }
        close_chain(suite, &chain);
        if (!without_driver)
            driver_close(&driver);
    }
    suite_report(suite, plan->name, message);
}
