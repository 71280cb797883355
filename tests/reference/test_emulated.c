/*
 * The harness on the emulator, tested with an interface that records its calls and the stand-in for
 * the library: forbidden memory, schedules, failures of a check.
 */

#include "../unit/test.h"
#include "harness/attention.h"
#include "harness/check.h"
#include "harness/random.h"
#include "ops/sparse_attn_table.h"
#include "reference/operators.h"
#include "smelt/kernels.h"
#include "stand_in.h"

static uint64_t seed;
static smelt_context *context;

/* ---- an interface that remembers ------------------------------------------------------------- */

enum { MOST_FORBIDDEN = 4096, MOST_NAMES = 32, MOST_RUNS = 16 };

static struct {
    struct {
        uint64_t begin, end;
    } forbidden[MOST_FORBIDDEN];
    size_t forbidden_count;
    struct {
        uint64_t pointer;
        char name[16];
        int rewritable;
    } names[MOST_NAMES];
    size_t name_count;
    struct emu_settings runs[MOST_RUNS];
    size_t run_count;
    size_t bad_run;              /* in this run, counted from 1, ... */
    enum stand_in_defect defect; /* ... the library does this, */
    size_t reports;              /* and the emulator makes so many reports */
} told;

static void configure(const struct emu_settings *settings) {
    assert_true(told.run_count < MOST_RUNS);
    told.runs[told.run_count++] = *settings;
    stand_in_defect = told.run_count == told.bad_run ? told.defect : STAND_IN_CORRECT;
}

static size_t report_count(void) {
    return told.run_count == told.bad_run ? told.reports : 0;
}

static struct emu_report report(size_t index) {
    return (struct emu_report){EMU_PROXY, index == 0 ? "The first." : "Another."};
}

static void clear(void) {}

static const char *kind_name(enum emu_kind kind) {
    assert_int_equal(kind, EMU_PROXY);
    return "proxy";
}

static void name(uint64_t pointer, const char *text) {
    assert_true(told.name_count < MOST_NAMES);
    told.names[told.name_count].pointer = pointer;
    strcpy(told.names[told.name_count++].name, text);
}

static void rewritable(uint64_t pointer, int may) {
    for (size_t i = told.name_count; i-- > 0;)
        if (told.names[i].pointer == pointer) {
            told.names[i].rewritable = may;
            return;
        }
    fail_msg("rewritable: a pointer that was given no name");
}

static uint64_t named(const char *text) {
    for (size_t i = told.name_count; i-- > 0;)
        if (strcmp(told.names[i].name, text) == 0)
            return told.names[i].pointer;
    return 0;
}

/* 0 bytes remove the ranges from the pointer on, up to the next named memory. */
static void forbid(uint64_t pointer, size_t bytes) {
    size_t kept = 0;
    uint64_t end = UINT64_MAX;
    if (bytes > 0) {
        assert_true(told.forbidden_count < MOST_FORBIDDEN);
        told.forbidden[told.forbidden_count].begin = pointer;
        told.forbidden[told.forbidden_count++].end = pointer + bytes;
        return;
    }
    for (size_t i = 0; i < told.name_count; i++)
        if (told.names[i].pointer > pointer && told.names[i].pointer < end)
            end = told.names[i].pointer;
    for (size_t i = 0; i < told.forbidden_count; i++)
        if (told.forbidden[i].begin < pointer || told.forbidden[i].begin >= end)
            told.forbidden[kept++] = told.forbidden[i];
    told.forbidden_count = kept;
}

static int is_forbidden(uint64_t pointer) {
    for (size_t i = 0; i < told.forbidden_count; i++)
        if (pointer >= told.forbidden[i].begin && pointer < told.forbidden[i].end)
            return 1;
    return 0;
}

/* Must be the problem's memory and the stream of its launch. */
static void produce(uint64_t pointer, void *stream) {
    assert_true(pointer != 0);
    (void)stream;
}

static const struct emu_interface recorder = {
    .size = sizeof recorder,
    .configure = configure,
    .report_count = report_count,
    .report = report,
    .clear = clear,
    .kind_name = kind_name,
    .name = name,
    .forbid = forbid,
    .rewritable = rewritable,
    .produce = produce,
};

static int begin(void **state) {
    (void)state;
    memset(&told, 0, sizeof told);
    stand_in_defect = STAND_IN_CORRECT;
    smelt__emulator_use(&recorder);
    return smelt_context_create(&context, NULL) == SMELT_OK ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    smelt_context_destroy(&context);
    smelt__emulator_use(NULL);
    return 0;
}

/* ---- what must not be touched ---------------------------------------------------------------- */

static const struct smelt__attention_spec spec = {
    .heads = 3, .dqk = 128, .dv = 64, .topk = 20, .sink = 1};

/* By byte: whether a pass's kernel may access it. compared/ tests the footprints. */
struct touched {
    const struct smelt__problem *problem;
    uint8_t *bytes[SMELT__MOST_TENSORS];
    size_t sizes[SMELT__MOST_TENSORS];
};

static void touch_all(struct touched *touched, const struct smelt__placed *placed) {
    for (int i = 0; i < placed->pass->tensors->count; i++) {
        const struct smelt__footprint *footprint = &placed->footprints.tensors[i];
        for (size_t k = 0; touched->sizes[i] && k < footprint->count; k++) {
            assert_true(footprint->intervals[k].end <= (int64_t)touched->sizes[i]);
            memset(touched->bytes[i] + footprint->intervals[k].begin, 1,
                   (size_t)(footprint->intervals[k].end - footprint->intervals[k].begin));
        }
    }
}

static void expect_buffer(const struct touched *touched, int buffer, uint64_t tensor) {
    int64_t wrong = -1;
    for (size_t i = 0; i < touched->sizes[buffer] && wrong < 0; i++)
        if (is_forbidden(tensor + i) == touched->bytes[buffer][i])
            wrong = (int64_t)i;
    if (wrong >= 0)
        print_message("seed %llu: byte %lld of %s\n", (unsigned long long)seed, (long long)wrong,
                      touched->problem->pass->tensors->rows[buffer].name);
    assert_true(wrong < 0);
}

/* The forbidden bytes of every tensor are exactly those that a kernel must not access. */
static void expect_forbidden(const struct smelt__placed *placed) {
    const struct smelt__problem *problem = placed->problem;
    const struct smelt__args_table *table = problem->pass->tensors;
    const struct smelt__tensor_row *rows = table->rows;
    struct touched touched = {.problem = problem};
    for (int i = 0; i < table->count; i++) {
        touched.sizes[i] = smelt__problem_bytes(problem, i);
        touched.bytes[i] = touched.sizes[i] ? calloc(touched.sizes[i], 1) : NULL;
    }
    touch_all(&touched, placed);
    for (int i = 0; i < table->count; i++) {
        uint64_t tensor = named(rows[i].name);
        if (!touched.sizes[i])
            continue;
        assert_true(tensor != 0);
        /* The name covers the guards and the bytes that reduce the alignment. */
        const size_t front = placed->buffers[i].front;
        const size_t guard = rows[i].role == SMELT__INPUT ? 0 : 4096;
        assert_true(front >= guard && front - guard <= 16);
        assert_true((front > guard) == problem->options.strided);
        assert_true(front == 0 || (is_forbidden(tensor) && is_forbidden(tensor + front - 1)));
        tensor += front;
        assert_true(guard == 0 || (is_forbidden(tensor + touched.sizes[i]) &&
                                   is_forbidden(tensor + touched.sizes[i] + guard - 1)));
        expect_buffer(&touched, i, tensor);
        free(touched.bytes[i]);
    }
}

static struct smelt__problem_options draw_options(uint64_t number) {
    struct smelt__random random = smelt__random_at(seed, 1, number);
    return (struct smelt__problem_options){
        .seed = seed + number,
        .batches = 1 + smelt__random_below(&random, 3),
        .tokens = 1 + smelt__random_below(&random, 6),
        .rows = 1 + smelt__random_below(&random, 60),
        .width = 1 + smelt__random_below(&random, 20),
        .lists = (enum smelt__lists)(number % 4),
        .query_list = (enum smelt__query_list)(number / 4 % 6),
        .topk_length = (int)smelt__random_below(&random, 2),
        .strided = (int)smelt__random_below(&random, 2),
        .max_logits = (int)smelt__random_below(&random, 2),
        .dkv = (enum smelt__dkv)smelt__random_below(&random, 3),
    };
}

static void make(struct smelt__problem *problem, int pass,
                 const struct smelt__problem_options *options) {
    assert_int_equal(smelt__problem_create(problem, &smelt__harness_sparse_attn,
                                           &smelt__harness_sparse_attn.passes[pass], &spec,
                                           options),
                     0);
}

/* Only results of queries that are listed repeatedly may be written again. */
static void expect_rewritable(const struct smelt__placed *placed) {
    const int repeated = placed->problem->options.query_list == SMELT__QUERY_LIST_REPEATED;
    for (size_t i = 0; i < told.name_count; i++) {
        int output = -1;
        for (int tensor = 0; tensor < placed->pass->tensors->count; tensor++)
            if (strcmp(placed->pass->tensors->rows[tensor].name, told.names[i].name) == 0)
                output = placed->pass->tensors->rows[tensor].role != SMELT__INPUT;
        assert_int_not_equal(output, -1);
        assert_int_equal(told.names[i].rewritable, repeated && output);
    }
}

TEST(test_forbidden) {
    for (uint64_t number = 0; number < 120; number++) {
        struct smelt__problem_options options = draw_options(number / 2);
        struct smelt__problem problem, other;
        struct smelt__placed placed;
        memset(&told, 0, sizeof told);
        make(&problem, (int)(number % 2), &options);
        assert_int_equal(smelt__placed_create(&placed, context, &problem), SMELT_OK);
        expect_forbidden(&placed);
        expect_rewritable(&placed);
        /* Other lists at the same address: earlier prohibitions are removed. */
        options.seed += 1000;
        make(&other, (int)(number % 2), &options);
        memcpy(smelt__problem_data(&problem, SMELT__SPARSE_ATTN_INDICES),
               smelt__problem_data(&other, SMELT__SPARSE_ATTN_INDICES),
               smelt__problem_bytes(&problem, SMELT__SPARSE_ATTN_INDICES));
        assert_int_equal(smelt__placed_refresh(&placed), SMELT_OK);
        expect_forbidden(&placed);
        smelt__placed_destroy(&placed);
        smelt__problem_destroy(&other);
        smelt__problem_destroy(&problem);
    }
}

/* ---- schedules ------------------------------------------------------------------------------- */

TEST(test_schedule_text) {
    static const char *const bad[] = {"",
                                      "late",
                                      "late,",
                                      ",late",
                                      "late,ascending,",
                                      "late,ascending,x",
                                      "late,ascending,-1",
                                      "late ,ascending",
                                      "random,shuffled,1,2",
                                      "random,shuffled,99999999999999999999"};
    char text[SMELT__SCHEDULE_TEXT], message[256];
    struct smelt__schedule parsed;
    for (int i = 0; i < 50; i++) {
        struct smelt__schedule schedule = smelt__schedule_at(seed, i);
        smelt__schedule_print(schedule, text);
        assert_int_equal(smelt__schedule_parse(text, &parsed, message, sizeof message), 0);
        assert_memory_equal(&parsed, &schedule, sizeof parsed);
    }
    smelt__schedule_print(smelt__schedule_at(seed, 0), text);
    assert_string_equal(text, "late,ascending");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(smelt__schedule_parse(bad[i], &parsed, message, sizeof message), -1);
        assert_non_null(strstr(message, "--schedule: '"));
    }
}

/* With unite=1 the neighbours of a query that is listed several times differ, and with them its results' bits. */
TEST(test_united_bits) {
    const struct smelt__harness_pass *const pass = smelt__harness_sparse_attn.passes;
    for (int list = SMELT__QUERY_LIST_NONE; list <= SMELT__QUERY_LIST_REPEATED; list++)
        for (int unite = 0; unite < 2; unite++) {
            struct smelt__attention_spec united = {.unite = unite};
            const struct smelt__problem problem = {
                .pass = pass,
                .spec = &united,
                .options = {.query_list = (enum smelt__query_list)list},
            };
            assert_int_equal(pass->reproducible(&problem, 0),
                             !unite || list != SMELT__QUERY_LIST_REPEATED);
        }
}

enum { RUNS = 5 };

/* A check under five schedules, where run number `bad_run` fails. */
static int run(size_t bad_run, enum stand_in_defect defect, size_t reports,
               struct smelt__check_result *result) {
    struct smelt__schedule schedules[RUNS];
    struct smelt__check_options options = {.spec =
                                               "sparse_attn:heads=3,dqk=128,dv=64,topk=20,sink=1",
                                           .schedules = schedules,
                                           .schedule_count = RUNS};
    for (int i = 0; i < RUNS; i++)
        schedules[i] = smelt__schedule_at(seed, i);
    options.problem.seed = seed;
    options.problem.rows = 50;
    memset(&told, 0, sizeof told);
    told.bad_run = bad_run;
    told.defect = defect;
    told.reports = reports;
    int failed = smelt__check_run(context, &options, result);
    assert_int_equal(failed, result->passed ? 0 : -1);
    assert_int_equal(result->status, SMELT_OK);
    assert_true(result->emulated);
    return failed;
}

TEST(test_every_schedule_runs) {
    struct smelt__check_result result;
    assert_int_equal(run(0, STAND_IN_CORRECT, 0, &result), 0);
    assert_int_equal(told.run_count, RUNS);
    for (int i = 0; i < RUNS; i++) {
        struct smelt__schedule schedule = smelt__schedule_at(seed, i);
        assert_true(told.runs[i].timing == schedule.timing &&
                    told.runs[i].order == schedule.order && told.runs[i].seed == schedule.seed);
    }
    assert_null(strstr(result.command, "--schedule"));
}

/* The failing run ends the check, and the command contains its schedule. */
static void expect_failure(size_t bad_run, enum stand_in_defect defect, size_t reports,
                           const char *message) {
    struct smelt__check_result result;
    char expected[64] = "--emulate --arch stand-in --schedule ";
    assert_int_equal(run(bad_run, defect, reports, &result), -1);
    assert_int_equal(told.run_count, bad_run);
    assert_int_equal(result.reports, reports);
    if (!strstr(result.message, message))
        print_message("%s\n", result.message);
    assert_non_null(strstr(result.message, message));
    if (defect != STAND_IN_LAST_BIT)
        smelt__schedule_print(smelt__schedule_at(seed, (int)bad_run - 1),
                              expected + strlen(expected));
    assert_non_null(strstr(result.command, expected));
}

TEST(test_failures) {
    for (size_t bad_run = 1; bad_run <= RUNS; bad_run++) {
        expect_failure(bad_run, STAND_IN_LSE_BASE_2, 0, "lse");
        expect_failure(bad_run, STAND_IN_CORRECT, 3, "proxy: The first.");
        expect_failure(bad_run, STAND_IN_WRITES_INPUT, 0, "the input sink was written to");
    }
}

TEST(test_other_bits) {
    struct smelt__check_result result;
    char text[SMELT__SCHEDULE_TEXT], both[160];
    for (size_t bad_run = 2; bad_run <= RUNS; bad_run++) {
        expect_failure(bad_run, STAND_IN_LAST_BIT, 0, "gives other bits than late,ascending");
        run(bad_run, STAND_IN_LAST_BIT, 0, &result);
        smelt__schedule_print(smelt__schedule_at(seed, (int)bad_run - 1), text);
        snprintf(both, sizeof both, " --schedule late,ascending --schedule %s", text);
        assert_non_null(strstr(result.command, both));
    }
}

TESTS("emulated", .setup = begin, .teardown = end, .seed = &seed)
