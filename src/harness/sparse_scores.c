/* The harness's row of sparse_scores. Its problems are those of the attention whose probabilities it
 * computes. */
#include "harness/attention.h"
#include "ops/sparse_scores_table.h"

#define TARGET SMELT__OF(SMELT__SPARSE_SCORES_TARGET)

static const char *const options[] = {"width", "valid", "documents",   "lists", "query-list",
                                      "scale", "spiky", "topk-length", NULL};

static const struct smelt__comparison comparisons[] = {SMELT__TARGET_COMPARISON(TARGET, "query")};

static const struct smelt__harness_key keys[] = {
    SMELT__SPEC_KEY(attention, heads), SMELT__SPEC_KEY(attention, dqk),
    SMELT__SPEC_APART(attention, dv),  SMELT__SPEC_KEY(attention, topk),
    SMELT__SPEC_KEY(attention, sink),  {NULL, 0, 0},
};

static const struct smelt__harness_pass passes[] = {
    {SMELT__ATTENTION_PASS(FORWARD, "forward", target, smelt__sparse_scores_attention,
                           &smelt__sparse_scores_table, comparisons),
     .leaves_free = 1,
     .partly = SMELT__OF(SMELT__SPARSE_SCORES_KV) | SMELT__OF(SMELT__SPARSE_SCORES_INDICES) |
               SMELT__OF(SMELT__SPARSE_SCORES_QUERIES)},
};

/* Shapes of cuDNN's sparse attention score recompute, and smaller numbers of heads. */
#define MLA(heads)                                                                                 \
    {                                                                                              \
        .spec = "sparse_scores:heads=" #heads ",dqk=576,dv=512,topk=2048", .tokens = 8192,         \
        .rows = 8192                                                                               \
    }
#define WITH_SINK(heads, topk)                                                                     \
    {                                                                                              \
        .spec = "sparse_scores:heads=" #heads ",dqk=512,dv=512,topk=" #topk ",sink=1",             \
        .tokens = 8192, .rows = 8192                                                               \
    }

static const struct smelt__harness_shape peers[] = {
    MLA(64), MLA(128), MLA(32), MLA(16), MLA(8), WITH_SINK(64, 640), WITH_SINK(128, 1152),
};

const struct smelt__harness_operator smelt__harness_sparse_scores = {
    SMELT__HARNESS_ROW(sparse_scores),
    SMELT__HARNESS_KEYS(attention),
    SMELT__ATTENTION_OPTIONS,
    .bench = {.tokens = 8192, .rows = 8192},
};
