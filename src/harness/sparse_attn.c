/* See sparse_attn.h. */
#include "harness/sparse_attn.h"

#include <math.h>
#include <stddef.h>

#include "harness/random.h"

/* ---- options --------------------------------------------------------------------------------- */

static const char *const options[] = {"width",      "valid", "documents",       "lists",
                                      "query-list", "scale", "spiky",           "topk-length",
                                      "max-logits", "dkv",   "workspace-limit", NULL};

void smelt__sparse_attn_defaults(int dqk, int topk, struct smelt__problem_options *given) {
    if (given->rows == 0)
        given->rows = topk > 64 ? 4 * (int64_t)topk : 256;
    if (given->width == 0)
        given->width = topk;
    if (given->scale == 0.0F)
        given->scale = (float)(1.0 / sqrt(dqk));
}

static void defaults(const void *spec, struct smelt__problem_options *given) {
    const struct smelt__sparse_attn_spec *attn = spec;
    smelt__sparse_attn_defaults(attn->dqk, attn->topk, given);
}

void smelt__sparse_attn_small(int topk, struct smelt__problem_options *given) {
    enum { TOKENS = 3, PATTERNS = 10, WIDTH = 200 };
    if (given->tokens == 0) /* one for each pattern of adversarial lists */
        given->tokens = given->lists == SMELT__LISTS_ADVERSARIAL ? PATTERNS : TOKENS;
    if (given->width == 0)
        given->width = topk < WIDTH ? topk : WIDTH;
    if (given->rows == 0)
        given->rows = 4 * (given->width > WIDTH ? given->width : WIDTH);
}

static void small(const void *spec, struct smelt__problem_options *given) {
    smelt__sparse_attn_small(((const struct smelt__sparse_attn_spec *)spec)->topk, given);
}

static int one_in(struct smelt__random *random, int count) {
    return smelt__random_below(random, count) == 0;
}

void smelt__sparse_attn_draw(int topk, struct smelt__random *random,
                             struct smelt__problem_options *given) {
    enum { WIDEST = 330, MOST_ROWS = 700 };
    given->rows = 1 + smelt__random_below(random, MOST_ROWS) + (given->far ? 2 : 0);
    given->width = 1 + smelt__random_below(random, topk < WIDEST ? topk : WIDEST);
    given->lists = (enum smelt__lists)smelt__random_below(random, SMELT__LISTS_KINDS);
    /* Not repeated, because some of the drawn problems run on the emulator. */
    given->query_list = (enum smelt__query_list)smelt__random_below(random, 5);
    given->spiky = one_in(random, 3);
    given->topk_length = one_in(random, 3);
}

static void draw(const void *spec, struct smelt__random *random,
                 struct smelt__problem_options *given) {
    smelt__sparse_attn_draw(((const struct smelt__sparse_attn_spec *)spec)->topk, random, given);
    given->max_logits = one_in(random, 2);
    given->dkv = (enum smelt__dkv)smelt__random_below(random, 3);
}

/* The other lists are for benchmarks. The last two use the optional tensors. */
int smelt__sparse_attn_variation(int number, struct smelt__problem_options *given) {
    enum { PLAIN = SMELT__LISTS_ADVERSARIAL + 1, ALL = PLAIN + 2 };
    given->lists = number < PLAIN    ? (enum smelt__lists)number
                   : number == PLAIN ? SMELT__LISTS_CAUSAL
                                     : SMELT__LISTS_ADVERSARIAL;
    if (number >= PLAIN) {
        given->topk_length = given->max_logits = 1;
        given->dkv = number == PLAIN ? SMELT__DKV_ADD : SMELT__DKV_FP32;
    }
    return number < ALL;
}

/* Full lists, then adversarial ones: more key blocks than stages, the last one partial. */
int smelt__sparse_attn_trial(int topk, int number, struct smelt__problem_options *given) {
    enum { TOKENS = 6, WIDTH = 700 };
    static const enum smelt__lists lists[] = {SMELT__LISTS_RANDOM, SMELT__LISTS_ADVERSARIAL};
    if (number >= (int)(sizeof lists / sizeof lists[0]))
        return 0;
    given->tokens = TOKENS;
    given->width = topk < WIDTH ? topk : WIDTH;
    given->rows = 2 * given->width > 256 ? 2 * given->width : 256;
    given->lists = lists[number];
    return 1;
}

static int trial(const void *spec, int number, struct smelt__problem_options *given) {
    return smelt__sparse_attn_trial(((const struct smelt__sparse_attn_spec *)spec)->topk, number,
                                    given);
}

/* ---- figures --------------------------------------------------------------------------------- */

static double pairs(const struct smelt__sparse_attn_spec *spec,
                    const struct smelt__problem_options *given) {
    return (double)(given->batches * given->tokens * given->width) * spec->heads;
}

static double forward_multiplications(const void *spec,
                                      const struct smelt__problem_options *given) {
    const struct smelt__sparse_attn_spec *attn = spec;
    return pairs(attn, given) * (attn->dqk + attn->dv);
}

/* Includes one pass over dkv. */
static double backward_multiplications(const void *spec,
                                       const struct smelt__problem_options *given) {
    const struct smelt__sparse_attn_spec *attn = spec;
    return pairs(attn, given) * (3 * attn->dqk + 2 * attn->dv) +
           (double)(given->batches * given->rows) * attn->dqk;
}

/* Measured on one H200: a large bf16 matrix product under sustained load. */
static const double TFLOPS_CEILING = 690;

/* A rate measured on an H200, by rows of the table. */
struct measured {
    int64_t rows; /* for tables of at most so many rows */
    double tbs;
};

/* A gather of 1152-byte rows without arithmetic, and a reduction of fp32 rows of 2304 bytes. */
static const struct measured gather[] = {
    {16384, 9.5}, {32768, 9.0}, {65536, 6.5}, {INT64_MAX, 5.2}};
static const struct measured reduction[] = {{16384, 3.7}, {65536, 2.25}, {INT64_MAX, 1.55}};

static double ceiling_of(const struct measured *measured, int64_t rows) {
    while (rows > measured->rows)
        measured++;
    return measured->tbs;
}

int smelt__sparse_attn_rates(const struct smelt__problem *problem, int dqk, int multiplications,
                             struct smelt__rate found[SMELT__MOST_RATES]) {
    const double slots = (double)problem->valid_slots, tera = 1e12;
    found[0] = SMELT__TFLOPS(2 * slots * multiplications / tera, TFLOPS_CEILING);
    found[1] =
        SMELT__TBS("gather", 2, slots * dqk * 2 / tera, ceiling_of(gather, problem->options.rows));
    return 2;
}

/* Arithmetic: two products of each valid slot with each head. Gather: each slot's row once. */
static int forward_rates(const struct smelt__problem *problem,
                         struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    return smelt__sparse_attn_rates(problem, spec->dqk, spec->heads * (spec->dqk + spec->dv),
                                    found);
}

/* Five products: the scores, dp, dq, and two of dkv. Reduction: each slot's fp32 row once, although
 * queries that share a tile may reduce a common row. */
static int backward_rates(const struct smelt__problem *problem,
                          struct smelt__rate found[SMELT__MOST_RATES]) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    const int count = smelt__sparse_attn_rates(problem, spec->dqk,
                                               spec->heads * (3 * spec->dqk + 2 * spec->dv), found);
    found[count] = SMELT__TBS("reduction", 2, (double)problem->valid_slots * spec->dqk * 4 / 1e12,
                              ceiling_of(reduction, problem->options.rows));
    return count + 1;
}

/* dq and dsink are reproducible. dkv's order of summation is not fixed unless the operator is
 * deterministic. */
static int backward_reproducible(const struct smelt__problem *problem, int tensor) {
    const struct smelt__sparse_attn_spec *spec = problem->spec;
    return spec->deterministic || tensor == SMELT__SPARSE_ATTN_GRAD_DQ ||
           tensor == SMELT__SPARSE_ATTN_GRAD_DSINK;
}

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
    SMELT__SPEC_KEY(sparse_attn, heads),
    SMELT__SPEC_KEY(sparse_attn, dqk),
    SMELT__SPEC_KEY(sparse_attn, dv),
    SMELT__SPEC_KEY(sparse_attn, topk),
    SMELT__SPEC_KEY(sparse_attn, sink),
    SMELT__SPEC_APART(sparse_attn, buckets),
    SMELT__SPEC_APART(sparse_attn, deterministic),
    {NULL, 0, 0},
};

static const struct smelt__harness_pass passes[] = {
    {
        .pass = SMELT_PASS_FORWARD,
        .name = "forward",
        .tensors = &smelt__sparse_attn_table,
        .shape = smelt__sparse_attn_shape_extents,
        .given = smelt__sparse_attn_given,
        .fill = smelt__sparse_attn_fill,
        .partly = SMELT__SPARSE_ATTN_PARTLY,
        .footprint = smelt__sparse_attn_footprint,
        .multiplications = forward_multiplications,
        .comparisons = &smelt__sparse_attn_by_query,
        .comparison_count = 1,
        .rates = forward_rates,
    },
    {
        .pass = SMELT_PASS_BACKWARD,
        .name = "backward",
        .tensors = &smelt__sparse_attn_grad_table,
        .shape = smelt__sparse_attn_grad_shape_problem,
        .given = smelt__sparse_attn_grad_given,
        .fill = smelt__sparse_attn_grad_fill,
        .partly = SMELT__SPARSE_ATTN_PARTLY,
        .footprint = smelt__sparse_attn_footprint,
        .reproducible = backward_reproducible,
        .multiplications = backward_multiplications,
        .comparisons = smelt__sparse_attn_grad_comparisons,
        .comparison_count = SMELT__SPARSE_ATTN_GRAD_COMPARISONS,
        .rates = backward_rates,
    },
};

const struct smelt__harness_operator smelt__harness_sparse_attn = {
    SMELT__HARNESS_ROW(sparse_attn),
    SMELT__HARNESS_KEYS(sparse_attn),
    .defaults = defaults,
    .small = small,
    .draw = draw,
    .variation = smelt__sparse_attn_variation,
    .trial = trial,
    .bench = {.tokens = 4096, .rows = 8192},
};
