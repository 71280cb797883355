/*
 * From cu_seqlens to attention without the host: windows, quantised keys and queries, the choice,
 * attention. Captured in one graph and replayed on changed inputs, the chain gives the bits that
 * its calls give one by one. (That these are right examples/indexer.c shows.)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "indexer_topk_groups.h"
#include "ops/indexer_topk_tensors.h"
#include "smelt/device.h"

enum { HEADS = 8, WINDOWS = 0, KEYS, QUERIES, CHOICE, ATTENTION, LINKS };
enum { CAPTURE_MODE_GLOBAL = 0 };

struct chain {
    struct workload links[LINKS];
    int open; /* how many of them are */
    struct CUstream_st *stream;
};

static int works(smelt_status status, const char *call, char *message, size_t size) {
    return suite_ok(status, call, message, size) == 0;
}

static void *args_of(struct chain *chain, int link) {
    return chain->links[link].placed.args;
}

/* One call's outputs are the next one's inputs. */
static void connect(struct chain *chain) {
    const smelt_indexer_windows_args *windows = args_of(chain, WINDOWS);
    const smelt_indexer_quantize_args *keys = args_of(chain, KEYS);
    smelt_indexer_quantize_args *queries = args_of(chain, QUERIES);
    smelt_indexer_topk_args *choice = args_of(chain, CHOICE);
    smelt_sparse_attn_args *attention = args_of(chain, ATTENTION);
    queries->factor.data = choice->weights.data;
    choice->q.data = queries->y.data;
    choice->k.data = keys->y.data;
    choice->weights.data = queries->scale.data;
    choice->k_scale.data = keys->scale.data;
    choice->window_begin.data = windows->window_begin.data;
    choice->window_end.data = windows->window_end.data;
    choice->offset.data = NULL;
    choice->index_offset = 0;
    attention->indices.data = choice->indices.data;
    attention->topk_length.data = choice->lengths.data;
}

static int open_chain(struct suite *suite, int64_t tokens, struct chain *chain, char *message,
                      size_t size) {
    static const char *const specs[LINKS] = {
        [WINDOWS] = "indexer_windows",
        [KEYS] = "indexer_quantize:dim=128",
        [QUERIES] = "indexer_quantize:dim=128",
        [CHOICE] = "indexer_topk:heads=8,dim=128,dtype=fp8,topk=64",
        [ATTENTION] = "sparse_attn:heads=16,dqk=128,dv=64,topk=64",
    };
    for (int i = 0; i < LINKS; i++) {
        const struct smelt__problem_options options = {
            .seed = suite->seed + (uint64_t)i,
            .tokens = i == QUERIES ? tokens * HEADS : tokens,
            .rows = tokens,
            .lists = i == WINDOWS ? SMELT__LISTS_CAUSAL : SMELT__LISTS_RANDOM,
            .topk_length = i == CHOICE || i == ATTENTION};
        if (workload_open(&chain->links[i], suite, specs[i], &options, message, size) != 0)
            return 0;
        chain->open++;
    }
    connect(chain);
    return works(smelt_stream_create(suite->context, &chain->stream), "stream", message, size);
}

static void close_chain(struct suite *suite, struct chain *chain) {
    smelt_stream_destroy(suite->context, chain->stream);
    while (chain->open > 0)
        workload_close(&chain->links[--chain->open]);
}

static int launch(struct chain *chain, char *message, size_t size) {
    for (int i = 0; i < LINKS; i++)
        if (!works(chain->links[i].pass->launch(chain->links[i].object, args_of(chain, i),
                                                chain->stream),
                   chain->links[i].spec.op->name, message, size))
            return 0;
    return 1;
}

static int poison(struct suite *suite, struct chain *chain, char *message, size_t size) {
    for (int i = 0; i < LINKS; i++)
        if (!works(smelt__placed_poison(&chain->links[i].placed), "poison", message, size))
            return 0;
    return works(smelt_stream_synchronize(suite->context, NULL), "wait", message, size);
}

/* A number made of the bits of what was chosen and of the attention's outputs, once it is there. */
static int digest(struct suite *suite, struct chain *chain, uint64_t digests[2], char *message,
                  size_t size) {
    if (!works(smelt_stream_synchronize(suite->context, chain->stream), "wait", message, size))
        return 0;
    for (int i = CHOICE; i <= ATTENTION; i++) {
        if (!works(smelt__placed_download(&chain->links[i].placed), "download", message, size))
            return 0;
        digests[i - CHOICE] = smelt__placed_digest(&chain->links[i].placed);
    }
    return 1;
}

/* Turns the signs of some of the rows that are quantised: other keys are chosen. */
static int change_inputs(struct chain *chain, int round, char *message, size_t size) {
    for (int i = KEYS; i <= QUERIES; i++) {
        struct workload *link = &chain->links[i];
        uint16_t *x = smelt__problem_data(&link->problem, 0); /* x: the table's first row */
        for (size_t k = (size_t)round; k < link->problem.buffers[0].elements; k += 3)
            x[k] ^= 0x8000;
        if (!works(smelt__placed_refresh(&link->placed), "upload", message, size))
            return 0;
    }
    return 1;
}

/* The calls one by one, the first and the second time; and what they gave. */
static int run_alone(struct suite *suite, struct chain *chain, uint64_t digests[2], char *message,
                     size_t size) {
    return poison(suite, chain, message, size) && launch(chain, message, size) &&
           digest(suite, chain, digests, message, size);
}

static void compare(const uint64_t *expected, const uint64_t *got, char *message, size_t size) {
    if (memcmp(expected, got, 2 * sizeof *got) != 0)
        snprintf(message, size, "%s differs in its bits from the calls one by one",
                 expected[0] != got[0] ? "the choice" : "attention");
}

/* ---- in a graph ------------------------------------------------------------------------------ */

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

static void replay(struct suite *suite, struct driver *driver, struct chain *chain, char *message,
                   size_t size) {
    struct CUctx_st *context = NULL;
    uint64_t expected[2], got[2], before = 0;
    driver->stream_get_ctx(chain->stream, &context);
    driver->ctx_set_current(context);
    struct CUgraphExec_st *executable = capture(driver, chain, message, size);
    for (int round = 0; round < 3 && executable && !message[0]; round++) {
        if (!change_inputs(chain, round, message, size) ||
            !run_alone(suite, chain, expected, message, size) ||
            !poison(suite, chain, message, size))
            break;
        if (driver->graph_launch(executable, chain->stream) != 0)
            snprintf(message, size, "graph launch failed");
        else if (digest(suite, chain, got, message, size))
            compare(expected, got, message, size);
        if (!message[0] && expected[0] == before)
            snprintf(message, size, "other inputs chose the same keys");
        before = expected[0];
    }
    if (executable)
        driver->graph_exec_destroy(executable);
    driver->ctx_set_current(NULL);
}

/* Without graphs: the calls one by one twice. */
static void repeat(struct suite *suite, struct chain *chain, char *message, size_t size) {
    uint64_t first[2], second[2];
    if (run_alone(suite, chain, first, message, size) &&
        run_alone(suite, chain, second, message, size))
        compare(first, second, message, size);
}

void run_chain(struct suite *suite) {
    static const char name[] = "chain: windows, quantise, choose, attend";
    const int without_driver = suite->without_driver || suite->emulated;
    struct chain chain = {.open = 0};
    struct driver driver;
    char message[1024] = "";
    if (!suite_wants(suite, name))
        return;
    if (without_driver || driver_open(&driver, message, sizeof message) == 0) {
        if (open_chain(suite, suite->emulated ? 90 : 3000, &chain, message, sizeof message)) {
            if (without_driver)
                repeat(suite, &chain, message, sizeof message);
            else
                replay(suite, &driver, &chain, message, sizeof message);
        }
        close_chain(suite, &chain);
        if (!without_driver)
            driver_close(&driver);
    }
    suite_report(suite, name, message);
}
