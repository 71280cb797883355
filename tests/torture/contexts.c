/* Two CUDA contexts in one process, and CUDA contexts that are destroyed or reset before smelt's:
 * each launch uses its own context, a destroyed one is detected before a launch, and the others
 * work. */
#include "torture.h"

#include <stdio.h>
#include <string.h>

#include "runtime/driver/cuda_abi.h"

enum { HEADS = 16, WIDTH = 128, TOPK = 64 };

/* The application's contexts; the fake driver identifies a context by its address. */
static char application[2];
static struct fake_driver *driver;
static CUresult (*push_current)(CUcontext);
static CUresult (*pop_current)(CUcontext *);
static CUresult (*get_current)(CUcontext *);

static CUcontext own(int which) {
    return (CUcontext)(void *)&application[which];
}

static smelt_operator *make_operator(smelt_context *context) {
    smelt_operator *attn;
    char spec[TORTURE_SPEC];
    snprintf(spec, sizeof spec, "sparse_attn:heads=%d,dqk=%d,dv=%d,topk=%d", HEADS, WIDTH, WIDTH,
             TOPK);
    REQUIRE(smelt_operator_create(&attn, context, spec) == SMELT_OK);
    return attn;
}

static smelt_context *make_context(const char *folder, smelt_context_kind kind) {
    smelt_context_options options = torture_options(folder, NULL);
    options.kind = kind;
    options.arch = NULL;
    return torture_context(&options);
}

/* The fake driver launches nothing, so any buffers will do. */
static smelt_status launch(smelt_operator *attn) {
    static _Alignas(16) char inputs[4 * HEADS * WIDTH], out[4 * HEADS * WIDTH],
        lse[4 * HEADS * WIDTH];
    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT;
    args.tokens = args.rows = 1;
    args.width = TOPK;
    args.scale = 1;
    args.q.data = args.kv.data = args.indices.data = inputs;
    args.out.data = out;
    args.lse.data = lse;
    driver->launch_context = NULL;
    return smelt_sparse_attn_forward(attn, &args, NULL);
}

static void require_current(CUcontext wanted) {
    CUcontext current = NULL;
    REQUIRE(get_current(&current) == CUDA_SUCCESS);
    REQUIRE(current == wanted);
}

/* One context for each of two CUDA contexts, used from a thread in which either or none is current.
 */
static long two_contexts(const char *folder) {
    smelt_context *contexts[2];
    smelt_operator *attns[2];
    CUcontext popped;
    int compiles = fakes_nvrtc()->compiles, loads = driver->loads;
    long launches = 0;
    for (int i = 0; i < 2; i++) {
        push_current(own(i));
        contexts[i] = make_context(folder, SMELT_CONTEXT_CURRENT);
        attns[i] = make_operator(contexts[i]);
        pop_current(&popped);
    }
    REQUIRE(fakes_nvrtc()->compiles == compiles + 1); /* the second came from the cache */
    REQUIRE(driver->loads == loads + 2);
    for (int current = -1; current < 2; current++) {
        if (current >= 0)
            push_current(own(current));
        for (int i = 0; i < 2; i++, launches++) {
            REQUIRE(launch(attns[i]) == SMELT_OK);
            REQUIRE(driver->launch_context == own(i));
            require_current(current < 0 ? NULL : own(current));
        }
        if (current >= 0)
            pop_current(&popped);
    }

    /* The application destroys the first. */
    driver->destroyed = own(0);
    REQUIRE(launch(attns[0]) == SMELT_ERROR_DRIVER && driver->launch_context == NULL);
    REQUIRE(strstr(smelt_last_error(), "destroyed"));
    REQUIRE(launch(attns[1]) == SMELT_OK && driver->launch_context == own(1));
    for (int i = 0; i < 2; i++) {
        smelt_operator_destroy(&attns[i]);
        smelt_context_destroy(&contexts[i]);
    }
    REQUIRE(driver->modules == 1); /* the first one's were unloaded with its CUDA context */
    driver->modules = 0;
    driver->destroyed = NULL;
    return launches + 2;
}

/* The primary context is reset: another context at the same address. */
static long reset_context(const char *folder) {
    smelt_context *context = make_context(folder, SMELT_CONTEXT_DEVICE), *after;
    smelt_operator *attn = make_operator(context), *attn_after;
    smelt_operator *refused;
    void *memory;
    REQUIRE(launch(attn) == SMELT_OK);
    driver->context_id++;
    REQUIRE(launch(attn) == SMELT_ERROR_DRIVER && driver->launch_context == NULL);
    REQUIRE(smelt_device_alloc(context, 64, &memory) == SMELT_ERROR_DRIVER);
    REQUIRE(smelt_operator_create(&refused, context, "sparse_attn:heads=64,dqk=64,dv=64,topk=7") ==
            SMELT_ERROR_DRIVER);
    REQUIRE(refused == NULL);
    /* A context made afterwards works while the old one still exists. */
    after = make_context(folder, SMELT_CONTEXT_DEVICE);
    attn_after = make_operator(after);
    REQUIRE(launch(attn_after) == SMELT_OK);
    REQUIRE(launch(attn) == SMELT_ERROR_DRIVER);
    smelt_operator_destroy(&attn);
    smelt_context_destroy(&context);
    REQUIRE(launch(attn_after) == SMELT_OK);
    smelt_operator_destroy(&attn_after);
    smelt_context_destroy(&after);
    REQUIRE(driver->retained == 0);
    REQUIRE(driver->modules == 1);
    driver->modules = 0;
    return 5;
}

static void find(const char *name, void *function) {
    void *symbol = fakes_driver_symbol(name);
    memcpy(function, &symbol, sizeof symbol);
}

int row_contexts(const struct arguments *arguments) {
    int rounds = (int)argument(arguments, "rounds", 200);
    const char *scratch = scratch_folder(false);
    long launches = 0;
    driver = fakes_driver();
    find("cuCtxPushCurrent_v2", &push_current);
    find("cuCtxPopCurrent_v2", &pop_current);
    find("cuCtxGetCurrent", &get_current);
    for (int round = 0; round < rounds; round++) {
        char folder[TORTURE_PATH];
        snprintf(folder, sizeof folder, "%.4000s/cache-%d", scratch, round);
        launches += two_contexts(folder);
        launches += reset_context(folder);
        remove_tree(folder);
    }
    figure(
        "%d rounds of two CUDA contexts, one of them destroyed, and of a reset one: %ld launches, "
        "each in its own context or refused",
        rounds, launches);
    return 0;
}
