/* The harness's row of indexer_windows. */
#include <stddef.h>
#include <stdlib.h>

#include "harness/footprint.h"
#include "harness/operator.h"
#include "harness/placed.h"
#include "harness/random.h"
#include "ops/indexer_windows_table.h"
#include "reference/operators.h"
#include "smelt/indexer_windows.h"
#include "smelt/kernels.h"

#define TENSOR(name) SMELT__INDEXER_WINDOWS_##name

/* ---- options --------------------------------------------------------------------------------- */

/* The inputs that describe a batch, by the option `lists`. */
enum metadata {
    SHARD,      /* random: padded documents, and query_indices in any order */
    PACKED,     /* causal: cu_seqlens alone */
    OFFSET,     /* window: packed, each document after a prefix of keys, so documents have more keys
                   than tokens */
    WILD,       /* adversarial: any values; all inputs, except that cu_seqlens_padded is absent for
                   an even number of documents */
    PADDED,     /* packed: cu_seqlens_padded, too */
    COMPRESSED, /* log: a shard with one key per four tokens, at separate offsets */
    RATIO,      /* drift: padded, one key per four tokens, at the documents' offsets; with causal
                   offsets */
    METADATA_KINDS
};

static const char *const options[] = {"documents", "lists", NULL};

static enum metadata metadata_of(const struct smelt__problem_options *given) {
    static const enum metadata kinds[SMELT__LISTS_KINDS] = {
        [SMELT__LISTS_RANDOM] = SHARD,  [SMELT__LISTS_CAUSAL] = PACKED,
        [SMELT__LISTS_WINDOW] = OFFSET, [SMELT__LISTS_ADVERSARIAL] = WILD,
        [SMELT__LISTS_PACKED] = PADDED, [SMELT__LISTS_LOG] = COMPRESSED,
        [SMELT__LISTS_DRIFT] = RATIO,
    };
    return kinds[given->lists];
}

static int is_shard(const struct smelt__problem_options *given) {
    const enum metadata metadata = metadata_of(given);
    return metadata == SHARD || metadata == COMPRESSED || metadata == WILD;
}

static int has_keys(const struct smelt__problem_options *given) {
    const enum metadata metadata = metadata_of(given);
    return metadata == COMPRESSED || metadata == OFFSET || metadata == WILD;
}

static int64_t queries_of(const struct smelt__problem_options *given) {
    return given->batches * given->tokens;
}

/* The total number of the documents' rows, of which a shard has a third. */
static int64_t document_rows(const struct smelt__problem_options *given) {
    return (is_shard(given) ? 3 : 1) * queries_of(given);
}

static void draw(const void *spec, struct smelt__random *random,
                 struct smelt__problem_options *given) {
    enum { MOST_TOKENS = 700, MOST_DOCUMENTS = 5000 };
    (void)spec;
    given->tokens = 1 + smelt__random_below(random, MOST_TOKENS);
    given->documents =
        1 + smelt__random_below(random, smelt__random_below(random, 4) ? 20 : MOST_DOCUMENTS);
}

static const struct smelt__problem_options kinds[METADATA_KINDS] = {
    {.lists = SMELT__LISTS_RANDOM},      {.lists = SMELT__LISTS_CAUSAL},
    {.lists = SMELT__LISTS_WINDOW},      {.lists = SMELT__LISTS_PACKED},
    {.lists = SMELT__LISTS_LOG},         {.lists = SMELT__LISTS_DRIFT},
    {.lists = SMELT__LISTS_ADVERSARIAL},
};

/* ---- problems -------------------------------------------------------------------------------- */

static void shape(struct smelt__problem *problem) {
    const enum metadata metadata = metadata_of(&problem->options);
    ((smelt_indexer_windows_args *)problem->args)->ratio =
        metadata == RATIO || metadata == COMPRESSED ? 4
        : metadata == WILD                          ? 3
                                                    : 0;
}

static int given(const struct smelt__problem *problem, int tensor) {
    const struct smelt__problem_options *settings = &problem->options;
    const enum metadata metadata = metadata_of(settings);
    switch (tensor) {
    case TENSOR(CU_SEQLENS_PADDED):
        return metadata == PADDED || metadata == RATIO ||
               (is_shard(settings) && (metadata != WILD || settings->documents % 2));
    case TENSOR(CU_SEQLENS_KEYS):
        return has_keys(settings);
    case TENSOR(CAUSAL_OFFSET):
        return metadata == OFFSET || metadata == RATIO || metadata == WILD;
    default: /* query_indices */
        return is_shard(settings);
    }
}

static int by_value(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Any number, usually close to the valid one (entry `i` of `count` that ascend to `most`), so that
 * most entries are used but few ascend. */
static int32_t wild(struct smelt__random *random, int64_t i, int64_t count, int64_t most) {
    static const int32_t ends[] = {INT32_MIN, -1, 0, INT32_MAX};
    if (count <= 2) /* one document: no entry is above 0 */
        return ends[smelt__random_below(random, 3)];
    const int64_t kind = smelt__random_below(random, 32), reach = most / 4 + 10;
    if (kind < 3 || smelt__random_below(random, 4 * count) == 0)
        return ends[kind < 3 ? kind : 3];
    return (int32_t)(i * most / count + smelt__random_below(random, reach) - reach / 2);
}

static void fill_wildly(struct smelt__problem *problem, struct smelt__random *random) {
    for (int tensor = 0; tensor < TENSOR(BEGIN); tensor++) {
        const int64_t count = (int64_t)problem->buffers[tensor].elements;
        int32_t *to = smelt__problem_data(problem, tensor);
        for (int64_t i = 0; i < count; i++)
            to[i] = wild(random, i, count, document_rows(&problem->options));
    }
}

/* Documents of random lengths, some of them 0, that fill all rows; a random number of a padded
 * document's rows is real. */
static void fill_documents(struct smelt__problem *problem, struct smelt__random *random) {
    const int64_t documents = problem->options.documents, rows = document_rows(&problem->options);
    const int64_t ratio = ((const smelt_indexer_windows_args *)problem->args)->ratio;
    int32_t *lengths = smelt__problem_data(problem, TENSOR(CU_SEQLENS));
    int32_t *padded = smelt__problem_data(problem, TENSOR(CU_SEQLENS_PADDED));
    int32_t *keys = smelt__problem_data(problem, TENSOR(CU_SEQLENS_KEYS));
    int32_t *offsets = smelt__problem_data(problem, TENSOR(CAUSAL_OFFSET));
    int32_t *bounds = padded ? padded : lengths;
    for (int64_t d = 0; d <= documents; d++)
        bounds[d] = d == documents ? (int32_t)rows : (int32_t)smelt__random_below(random, rows + 1);
    bounds[0] = smelt__random_below(random, 4) ? 0 : bounds[0];
    qsort(bounds, (size_t)documents + 1, sizeof *bounds, by_value);
    lengths[0] = bounds[0];
    if (keys)
        keys[0] = offsets ? -3 : 0; /* the first document begins before row 0 */
    for (int64_t d = 0; d < documents; d++) {
        const int32_t available = bounds[d + 1] - bounds[d];
        const int64_t drawn = smelt__random_below(random, available + 1);
        const int32_t length =
            padded && smelt__random_below(random, 2) ? (int32_t)drawn : available;
        const int32_t offset = (int32_t)smelt__random_below(random, 50) - 5;
        lengths[d + 1] = lengths[d] + length;
        if (offsets) /* without cu_seqlens_keys keys are tokens, and any offset is legal */
            offsets[d] = keys || d % 4 != 3 ? offset : INT32_MAX;
        if (keys)
            keys[d + 1] = keys[d] + (offsets ? length + (offset > 0 ? offset : 0)
                                             : (int32_t)(length / ratio));
    }
}

static int fill(struct smelt__problem *problem) {
    struct smelt__random random = smelt__random_at(problem->options.seed, 1, 0);
    int32_t *indices = smelt__problem_data(problem, TENSOR(QUERY_INDICES));
    problem->computed = queries_of(&problem->options);
    if (metadata_of(&problem->options) == WILD) {
        fill_wildly(problem, &random);
        return 0;
    }
    fill_documents(problem, &random);
    for (int64_t t = 0; indices && t < problem->computed; t++)
        indices[t] =
            (int32_t)(smelt__random_below(&random, document_rows(&problem->options) + 4) - 2);
    return 0;
}

/* The steps of bisections; each takes the emulator as long as several multiplications. */
static double multiplications(const void *spec, const struct smelt__problem_options *given) {
    (void)spec;
    return (double)(queries_of(given) * 100 + given->documents * 10);
}

/* ---- comparison ------------------------------------------------------------------------------ */

enum { WINDOW_BEGIN, WINDOW_END, RULES };

static const struct smelt__rule rules[RULES] = {
    [WINDOW_BEGIN] = {"window_begin", SMELT__OF(TENSOR(BEGIN)), "the window's begin is wrong"},
    [WINDOW_END] = {"window_end", SMELT__OF(TENSOR(END)), "the window's end is wrong"},
};

static void compare_one(const struct smelt__placed *placed, int tensor, int rule, int64_t query,
                        int64_t expected, struct smelt__finding *finding) {
    const double number = (double)expected;
    const int32_t *const got = smelt__compared_row(placed, finding, tensor, query, 1, &number);
    smelt__finding_rule(finding, rule, *got == expected, 0);
}

static void compare(const struct smelt__placed *placed, const void *prepared, int64_t query,
                    struct smelt__finding *finding) {
    int64_t begin, end;
    (void)prepared;
    smelt__indexer_windows_reference(placed->problem->args, query, &begin, &end);
    compare_one(placed, TENSOR(BEGIN), WINDOW_BEGIN, query, begin, finding);
    compare_one(placed, TENSOR(END), WINDOW_END, query, end, finding);
}

static const struct smelt__comparison comparisons[] = {
    {SMELT__UNITS("query", "number", TENSOR(T)), SMELT__RULES(rules), .compare = compare},
};

/* ---- figures --------------------------------------------------------------------------------- */

/* Two numbers are written, and one is read if rows are given. The ceiling: copying in an H200's
 * memory. */
static int rates(const struct smelt__problem *problem,
                 struct smelt__rate found[SMELT__MOST_RATES]) {
    const double numbers = given(problem, TENSOR(QUERY_INDICES)) ? 3 : 2;
    found[0] = SMELT__TBS("memory", 3, numbers * 4 * (double)problem->computed / 1e12, 4.1);
    return 1;
}

#define AT(T, D)                                                                                   \
    { .spec = "indexer_windows", .tokens = T, .rows = T, .documents = D }

static const struct smelt__harness_shape peers[] = {AT(4096, 1), AT(65536, 16), AT(262144, 64),
                                                    AT(1048576, 1024)};

/* ---- the row --------------------------------------------------------------------------------- */

static const struct smelt__harness_pass passes[] = {
    {SMELT__PASS(FORWARD, "forward", &smelt__indexer_windows_table), .given = given,
     .shape = shape},
};

const struct smelt__harness_operator smelt__harness_indexer_windows = {
    SMELT__HARNESS_ROW(indexer_windows),
    .small = {.tokens = 300}, /* more queries than a thread block processes at a time */
    .most = {.rows = 2800},
    .draw = draw,
    SMELT__KINDS(kinds),
    .bench = {.tokens = 65536, .rows = 262144},
};
