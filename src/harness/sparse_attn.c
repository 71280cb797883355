/* The harness's row of sparse_attn. */
#include <stdlib.h>

#include "harness/attention.h"
#include "ops/sparse_attn_table.h"

#define TENSOR(name) SMELT__SPARSE_ATTN_##name
#define GRAD_TENSOR(name) SMELT__SPARSE_ATTN_GRAD_##name

/* Inputs of both passes have the same row numbers in both tables. */
#define SAME(name) _Static_assert((int)TENSOR(name) == (int)GRAD_TENSOR(name), #name)
SAME(Q);
SAME(KV);
SAME(INDICES);
SAME(TOPK_LENGTH);
SAME(SINK);
SAME(QUERIES);
SAME(QUERY_COUNT);
#undef SAME

static const char *const options[] = {"width",      "valid", "documents",       "lists",
                                      "query-list", "scale", "spiky",           "topk-length",
                                      "max-logits", "dkv",   "workspace-limit", NULL};

/* ---- what is compared ------------------------------------------------------------------------ */

#define OUT SMELT__OF(TENSOR(OUT))
#define DQ SMELT__OF(GRAD_TENSOR(DQ))
#define DKV SMELT__KEY_ROWS(GRAD_TENSOR(DKV), GRAD_TENSOR(DKV_FP32), GRAD_TENSOR(DKV_SUM))
#define DSINK SMELT__OF(GRAD_TENSOR(DSINK))

#define UNNAMED "a row that no query selects, or without weight, is not 0 or its previous value"

static const struct smelt__comparison comparisons[] = {
    SMELT__OUT_COMPARISON(
        SMELT__METRIC_ROWS(SMELT__OUT_METRIC_ROWS(OUT, SMELT__OF(TENSOR(LSE))),
                           [SMELT__OUT_MAX_LOGITS] = {"max_abs_error", "max_logits", NULL,
                                                      "error of max_logits", SMELT__LARGEST,
                                                      SMELT__OF(TENSOR(MAX_LOGITS))}),
        SMELT__RULE_ROWS(SMELT__OUT_RULE_ROWS(OUT, "slot"),
                         [SMELT__OUT_SINGLE] = {"single_slot", OUT,
                                                "out of a query with one valid slot is not that "
                                                "row's value"}),
        TENSOR(B), TENSOR(T)),
};
static const struct smelt__comparison grad_comparisons[] = {
    SMELT__DQ_COMPARISON(DQ, "a query without a valid slot, or without weight, is not 0", TENSOR(B),
                         TENSOR(T)),
    SMELT__KEY_COMPARISON(dk, "dkv", DKV, UNNAMED, TENSOR(B), TENSOR(S)),
    SMELT__DSINK_COMPARISON(DSINK),
};

/* ---- the shapes that other libraries' kernels are compared at: FlashMLA's forward and 8, 16, 32
 * heads; cuDNN's backward ---- */

#define MLA(heads, topk) "sparse_attn:heads=" #heads ",dqk=576,dv=512,topk=" #topk
#define WITH_SINK(heads, topk) "sparse_attn:heads=" #heads ",dqk=512,dv=512,topk=" #topk ",sink=1"
#define AT(text, T, S) .spec = text, .tokens = T, .rows = S
#define TOPKS(heads, S)                                                                            \
    {AT(MLA(heads, 256), 4096, S)}, {AT(MLA(heads, 512), 4096, S)},                                \
        {AT(MLA(heads, 1024), 4096, S)}, {                                                         \
        AT(MLA(heads, 2048), 4096, S)                                                              \
    }
#define GRAD(spec, T, S) AT(spec ",passes=backward", T, S)
#define DRIFT .lists = SMELT__LISTS_DRIFT
#define DETERMINISTIC(spec) spec ",passes=backward,deterministic=1"

static const struct smelt__harness_shape peers[] = {
    TOPKS(64, 8192),
    TOPKS(128, 8192),
    TOPKS(64, 32768),
    TOPKS(128, 32768),
    TOPKS(64, 131072),
    TOPKS(128, 131072),
    {AT(WITH_SINK(64, 640), 4096, 8192)},
    {AT(WITH_SINK(64, 1152), 4096, 8192)},
    {AT(WITH_SINK(128, 640), 4096, 8192)},
    {AT(WITH_SINK(128, 1152), 4096, 8192)},
    {AT(MLA(8, 2048), 4096, 8192)},
    {AT(MLA(16, 2048), 4096, 8192)},
    {AT(MLA(32, 2048), 4096, 8192)},
    {GRAD(MLA(64, 2048), 4096, 4096)},
    {GRAD(MLA(64, 2048), 8192, 8192)},
    {AT(DETERMINISTIC(MLA(64, 2048)), 8192, 8192)},
    {GRAD(MLA(64, 2048), 16384, 16384)},
    {GRAD(MLA(64, 2048), 32768, 32768)},
    {AT(DETERMINISTIC(MLA(64, 2048)), 32768, 32768)},
    {GRAD(MLA(64, 2048), 8192, 131072)},
    {GRAD(MLA(64, 2048), 8192, 8192), DRIFT},
    {GRAD(MLA(64, 2048), 32768, 32768), DRIFT},
    {GRAD(MLA(64, 2048), 8192, 131072), DRIFT},
    {GRAD(MLA(128, 2048), 8192, 8192)},
    {AT(DETERMINISTIC(MLA(128, 2048)), 8192, 8192)},
    {GRAD(MLA(8, 2048), 8192, 8192)},
    {GRAD(MLA(16, 2048), 8192, 8192)},
    {GRAD(MLA(32, 2048), 8192, 8192)},
    {GRAD(MLA(8, 2048), 8192, 8192), DRIFT},
    {GRAD(MLA(16, 2048), 8192, 8192), DRIFT},
    {GRAD(MLA(32, 2048), 8192, 8192), DRIFT},
    {GRAD(WITH_SINK(64, 640), 8192, 8192)},
    {GRAD(WITH_SINK(128, 1152), 8192, 8192)},
    {GRAD(MLA(64, 2048), 8192, 8192), .lists = SMELT__LISTS_CAUSAL, .documents = 1,
     .topk_length = 1},
    {GRAD(MLA(64, 2048), 8192, 8192), .valid = 1024},
    {GRAD(MLA(64, 2048), 8192, 8192), .lists = SMELT__LISTS_PACKED, .documents = 16},
    {GRAD(MLA(64, 2048) ",buckets=auto", 8192, 8192), .lists = SMELT__LISTS_PACKED,
     .documents = 16},
    {AT(MLA(64, 2048) ",passes=backward,bwd.variant=mma", 4096, 4096)},
};

/* ---- the row --------------------------------------------------------------------------------- */

static const struct smelt__harness_key keys[] = {
    SMELT__SPEC_KEY(attention, heads),
    SMELT__SPEC_KEY(attention, dqk),
    SMELT__SPEC_KEY(attention, dv),
    SMELT__SPEC_KEY(attention, topk),
    SMELT__SPEC_KEY(attention, sink),
    SMELT__SPEC_APART(attention, buckets),
    SMELT__SPEC_APART(attention, deterministic),
    {NULL, 0, 0},
};

#define PARTLY SMELT__OF(TENSOR(KV)) | SMELT__OF(TENSOR(INDICES)) | SMELT__OF(TENSOR(QUERIES))

static const struct smelt__harness_pass passes[] = {
    {SMELT__ATTENTION_PASS(FORWARD, "forward", forward, smelt__sparse_attn_attention,
                           &smelt__sparse_attn_table, comparisons),
     .partly = PARTLY},
    {SMELT__ATTENTION_PASS(BACKWARD, "backward", backward, smelt__sparse_attn_grad_attention,
                           &smelt__sparse_attn_grad_table, grad_comparisons),
     .partly = PARTLY},
};

const struct smelt__harness_operator smelt__harness_sparse_attn = {
    SMELT__HARNESS_ROW(sparse_attn),
    SMELT__HARNESS_KEYS(attention),
    SMELT__ATTENTION_OPTIONS,
    .bench = {.tokens = 4096, .rows = 8192},
};
