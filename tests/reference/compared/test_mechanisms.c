/*
 * Tests the faults that check finds for any operator independently of its comparison: writes around
 * outputs or into their gaps, unwritten elements, writes to inputs and workspace guards, and
 * differences between runs. A stand-in for each pass's launch writes correct results with one chosen
 * defect.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "compared.h"

enum { RUNS = 2, GUARD = 4096, WORKSPACE = 512 };

static const char *folder; /* of the operators' files */
static const struct smelt__harness_operator *const *all;
static uint64_t seed;

/* ---- the launch ------------------------------------------------------------------------------ */

enum defect {
    NOTHING,
    SKIPS,       /* an output */
    SKIPS_LAST,  /* its last element */
    WRITES_BYTE, /* of the tensor, or the workspace, at an offset */
    OTHER_BIT,   /* of an element */
    DOES_NOT_ADD
};

static struct {
    const struct bench *bench;
    enum defect defect;
    int when;   /* number of the run; 0: every run */
    int tensor; /* -1: the workspace */
    int64_t at; /* the byte, or the element */
    int run;    /* so far */
    int poison[RUNS + 1][SMELT__MOST_TENSORS];
} act;

static const struct smelt__tensor_row *row_of(int tensor) {
    return &act.bench->pass.tensors->rows[tensor];
}

static unsigned char *data_of(const void *args, int tensor) {
    return smelt__tensor_in(row_of(tensor), args)->data;
}

static int is_output(int tensor) {
    return row_of(tensor)->role != SMELT__INPUT && act.bench->right[tensor];
}

/* Before a launch all bytes of an output and its guards are equal and form no valid result: neither
 * an index, a length, -1 nor a number. */
static void expect_poison(const void *args, int tensor) {
    const unsigned char *data = data_of(args, tensor);
    const int64_t bytes = (int64_t)act.bench->placed.buffers[tensor].bytes;
    const int added = row_of(tensor)->role == SMELT__ACCUMULATED;
    const int byte = data[-1];
    int32_t word;
    float number;
    memset(&word, byte, sizeof word);
    memcpy(&number, &word, sizeof number);
    for (int64_t i = -GUARD; i < bytes + GUARD; i++)
        if (data[i] != byte && !(added && i >= 0 && i < bytes))
            fail_msg("%s: byte %lld is %d before a run, not %d", row_of(tensor)->name, (long long)i,
                     data[i], byte);
    switch (row_of(tensor)->element) {
    case SMELT__INT32:
        assert_true(word < -1);
        break;
    case SMELT__E4M3:
        assert_int_equal(byte, 0xff); /* conversions map NaN to 0x7f */
        break;
    default: /* as bf16, too */
        assert_true(isnan(number) && (word & 0x7fff) > 0x7f80);
        break;
    }
    act.poison[act.run][tensor] = byte;
}

static void write_output(const void *args, int tensor, int now) {
    const struct smelt__footprint *footprint = &act.bench->placed.footprints.tensors[tensor];
    const unsigned char *right = act.bench->right[tensor] + act.bench->placed.buffers[tensor].front;
    const float *before = smelt__problem_data(&act.bench->problem, tensor);
    const int64_t last = (int64_t)smelt__element_bytes(row_of(tensor)->element);
    for (size_t i = 0; i < footprint->count; i++) {
        const struct smelt__interval interval = footprint->intervals[i];
        const int64_t left_out =
            now && act.defect == SKIPS_LAST && i + 1 == footprint->count ? last : 0;
        memcpy(data_of(args, tensor) + interval.begin, right + interval.begin,
               (size_t)(interval.end - interval.begin - left_out));
    }
    if (now && act.defect == DOES_NOT_ADD)
        for (int64_t i = 0; i < (int64_t)act.bench->problem.buffers[tensor].elements; i++)
            ((float *)(void *)data_of(args, tensor))[i] -= before[i];
}

static smelt_status launch(const smelt_operator *object, enum smelt_pass ran, const void *args,
                           struct CUstream_st *stream) {
    const struct smelt__harness_pass *pass = act.bench->problem.pass;
    (void)object, (void)ran, (void)stream;
    act.run++;
    const int due = act.when == 0 || act.when == act.run;
    for (int i = 0; i < pass->tensors->count; i++) {
        const int now = due && i == act.tensor;
        if (!is_output(i))
            continue;
        expect_poison(args, i);
        if (!(now && act.defect == SKIPS))
            write_output(args, i, now);
    }
    if (!due || (act.defect != WRITES_BYTE && act.defect != OTHER_BIT))
        return SMELT_OK;
    unsigned char *to = NULL;
    if (act.tensor < 0)
        memcpy(&to, (const char *)args + pass->tensors->workspace, sizeof to);
    else
        to = data_of(args, act.tensor);
    to[act.at] ^= 1;
    return SMELT_OK;
}

static smelt_status workspace(const smelt_operator *object, enum smelt_pass pass, const void *args,
                              size_t *bytes) {
    (void)object, (void)pass, (void)args;
    *bytes = act.bench->pass.tensors->workspace ? WORKSPACE : 0;
    return SMELT_OK;
}

static smelt_status create(smelt_operator **object, smelt_context *context_, const char *spec) {
    (void)context_, (void)spec;
    *object = NULL;
    return SMELT_OK;
}

static void destroy(smelt_operator **object) {
    *object = NULL;
}

/* ---- a check --------------------------------------------------------------------------------- */

static struct smelt__check_result run(enum defect defect, int when, int tensor, int64_t at) {
    static const struct smelt__schedule schedules[RUNS];
    /* Elements without contributions are valid numbers, too. */
    const int added = tensor >= 0 && row_of(tensor)->role == SMELT__ACCUMULATED;
    const struct smelt__harness_operator *const list[] = {act.bench->spec.op, NULL};
    const struct smelt__check_options options = {.spec = act.bench->spec_text,
                                                 .pass = act.bench->pass.pass,
                                                 .problem = act.bench->problem.options,
                                                 .sample = added ? 100 : 1,
                                                 .schedules = schedules,
                                                 .schedule_count = RUNS};
    struct smelt__check_result result;
    static const struct smelt__harness_calls calls = {create, destroy, launch, workspace};
    const struct smelt__harness_calls *const library = smelt__harness_calls;
    smelt__harness_calls = &calls;
    act.defect = defect;
    act.when = when;
    act.tensor = tensor;
    act.at = at;
    act.run = 0;
    smelt__harness_operators = list;
    smelt__check_run(compared_context, &options, &result);
    smelt__harness_operators = all;
    smelt__harness_calls = library;
    return result;
}

/* `culprit` NULL: any. */
static void expect_seen(enum defect defect, int when, int tensor, int64_t at, const char *culprit) {
    const struct smelt__check_result result = run(defect, when, tensor, at);
    if (result.passed || !result.culprit || (culprit && strcmp(result.culprit, culprit) != 0))
        fail_msg("%s, %s, seed %llu: defect %d of %s at %lld in run %d: %s expected, %s found: %s",
                 act.bench->spec_text, act.bench->pass.name,
                 (unsigned long long)act.bench->problem.options.seed, (int)defect,
                 tensor < 0 ? "the workspace" : row_of(tensor)->name, (long long)at, when,
                 culprit ? culprit : "something", result.culprit ? result.culprit : "nothing",
                 result.message);
}

static void what_is_right_passes(void) {
    const struct smelt__check_result result = run(NOTHING, 0, -1, 0);
    if (!result.passed)
        fail_msg("%s: %s", act.bench->spec_text, result.message);
    assert_int_equal(act.run, RUNS);
    for (int i = 0; i < act.bench->pass.tensors->count; i++)
        if (is_output(i) && row_of(i)->element == SMELT__INT32)
            assert_int_not_equal(act.poison[1][i], act.poison[2][i]);
}

/* ---- defects --------------------------------------------------------------------------------- */

/* Whether an output to which a pass adds keeps its values: no query has a part in it. */
static int adds_nothing(int tensor) {
    const struct smelt__device_buffer *buffer = &act.bench->placed.buffers[tensor];
    return row_of(tensor)->role == SMELT__ACCUMULATED &&
           memcmp(act.bench->right[tensor] + buffer->front,
                  smelt__problem_data(&act.bench->problem, tensor), buffer->bytes) == 0;
}

/* The defect is in the first run, or only in the second; check must detect both. */
static void not_written(int tensor) {
    const struct smelt__footprint *footprint = &act.bench->placed.footprints.tensors[tensor];
    const int64_t element = footprint->intervals[footprint->count - 1].end /
                                (int64_t)smelt__element_bytes(row_of(tensor)->element) -
                            1;
    const struct piece *piece = &act.bench->pieces[act.bench->piece_of[tensor][element]];
    const int sampled =
        piece->unit == 0 || act.bench->problem.pass->comparisons[piece->comparison].choose != NULL;
    if (adds_nothing(tensor))
        return;
    for (int when = 1; when <= RUNS; when++) {
        expect_seen(SKIPS, when, tensor, 0, NULL);
        if (row_of(tensor)->role == SMELT__OUTPUT)
            expect_seen(SKIPS_LAST, when, tensor, 0, when == 1 && !sampled ? "unwritten" : NULL);
    }
}

static void written_outside(int tensor) {
    const int64_t bytes = (int64_t)act.bench->placed.buffers[tensor].bytes;
    const struct smelt__footprint *footprint = &act.bench->placed.footprints.tensors[tensor];
    const int64_t outside[] = {-1, -GUARD, bytes, bytes + GUARD - 1};
    for (int i = 0; i < 4; i++)
        expect_seen(WRITES_BYTE, 1 + i % RUNS, tensor, outside[i], "stray");
    if (footprint->count > 1) {
        const size_t last = footprint->count - 1;
        expect_seen(WRITES_BYTE, 1, tensor, footprint->intervals[0].end, "stray");
        expect_seen(WRITES_BYTE, 2, tensor, footprint->intervals[last].begin - 1, "stray");
    }
}

/* The order of summation of gradients with respect to keys is not fixed unless the operator is
 * deterministic. */
static int is_reproducible(int tensor) {
    static const char *const sums[] = {
        "dkv", "dkv_fp32", "dkv_sum", "dk",       "dk_fp32",       "dk_sum",
        "dv",  "dv_fp32",  "dv_sum",  "index_dk", "index_dk_fp32", "index_dk_sum"};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (strcmp(row_of(tensor)->name, sums[i]) == 0)
            return strstr(act.bench->spec_text, "deterministic=1") != NULL;
    return 1;
}

/* The largest number, whose last bit hardly affects the error. */
static int64_t largest_of(int tensor) {
    int64_t largest = -1;
    for (int64_t i = 0; i < (int64_t)act.bench->problem.buffers[tensor].elements; i++) {
        const double *expected = act.bench->expected[tensor];
        if (isfinite(expected[i]) && (largest < 0 || fabs(expected[i]) > fabs(expected[largest])))
            largest = i;
    }
    return largest;
}

static void other_bits(int tensor) {
    const int64_t element = largest_of(tensor);
    const int64_t byte = element * (int64_t)smelt__element_bytes(row_of(tensor)->element);
    if (element < 0)
        return;
    if (is_reproducible(tensor))
        expect_seen(OTHER_BIT, 2, tensor, byte, NULL);
    else if (row_of(tensor)->role == SMELT__OUTPUT && act.bench->expected[tensor][element] != 0 &&
             !run(OTHER_BIT, 2, tensor, byte).passed)
        fail_msg("%s: the last bit of %s may be another", act.bench->spec_text,
                 row_of(tensor)->name);
    /* The same between two separate runs. */
    struct smelt__placed other = act.bench->placed;
    unsigned char *const copy = malloc(other.buffers[tensor].front + other.buffers[tensor].bytes);
    assert_non_null(copy);
    memcpy(copy, act.bench->right[tensor],
           other.buffers[tensor].front + other.buffers[tensor].bytes);
    other.buffers[tensor].host = copy;
    assert_null(smelt__placed_difference(&act.bench->placed, &other));
    copy[(int64_t)other.buffers[tensor].front + byte] ^= 1;
    const char *name = smelt__placed_difference(&act.bench->placed, &other);
    free(copy);
    if (is_reproducible(tensor) ? !name || strcmp(name, row_of(tensor)->name) != 0 : name != NULL)
        fail_msg("%s: a bit of %s is another: %s", act.bench->spec_text, row_of(tensor)->name,
                 name ? name : "nothing");
}

static void inputs_written(int tensor) {
    const int64_t bytes = (int64_t)act.bench->placed.buffers[tensor].bytes;
    expect_seen(WRITES_BYTE, 1, tensor, 0, "input_written");
    expect_seen(WRITES_BYTE, 2, tensor, bytes - 1, "input_written");
}

static void defects_of(const struct bench *bench) {
    act.bench = bench;
    what_is_right_passes();
    for (int i = 0; i < bench->pass.tensors->count; i++) {
        if (bench->placed.buffers[i].bytes == 0)
            continue;
        if (!is_output(i)) {
            inputs_written(i);
            continue;
        }
        not_written(i);
        written_outside(i);
        other_bits(i);
        if (row_of(i)->role == SMELT__ACCUMULATED && !adds_nothing(i))
            expect_seen(DOES_NOT_ADD, 1, i, 0, NULL);
    }
    static const int64_t outside[] = {-1, -GUARD, WORKSPACE, WORKSPACE + GUARD - 1};
    for (int i = 0; bench->pass.tensors->workspace && i < 4; i++)
        expect_seen(WRITES_BYTE, 1 + i % RUNS, -1, outside[i], "workspace_guard");
}

/* Whether no earlier problem of the pass's table had the same outputs with the same setting of
 * deterministic. */
static int is_new(const struct bench *bench, unsigned *seen, int *count) {
    unsigned outputs = 0;
    act.bench = bench;
    for (int i = 0; i < bench->pass.tensors->count; i++) {
        if (is_output(i) && bench->placed.footprints.tensors[i].count == 0)
            return 0; /* nothing is computed */
        outputs |= is_output(i) ? SMELT__OF(i) : 0;
    }
    outputs |= (unsigned)(bench->problem.pass - bench->spec.op->passes) << 30;
    outputs |= strstr(bench->spec_text, "deterministic=1") ? 1U << 29 : 0;
    for (int i = 0; i < *count; i++)
        if (seen[i] == outputs)
            return 0;
    seen[(*count)++] = outputs;
    return 1;
}

static void defects_of_pass(const struct compared_pass *about) {
    unsigned seen[16];
    int count = 0;
    for (int n = 0; n < about->spec_count; n++)
        for (int m = 0; m < about->problem_count; m++) {
            struct smelt__problem_options options = about->problems[m];
            struct bench bench;
            options.seed += seed;
            bench_open(&bench, about->pass, about->specs[n], &options);
            if (is_new(&bench, seen, &count))
                defects_of(&bench);
            bench_close(&bench);
        }
}

static void defects_of_operator(const struct compared_pass *passes, int count) {
    for (int i = 0; i < count; i++)
        defects_of_pass(&passes[i]);
}

static void defects_are_seen(void **state) {
    (void)state;
    compared_each(folder, NULL, defects_of_operator);
}

int main(int count, char **arguments) {
    const char *given = getenv("SMELT_TEST_SEED");
    if (count != 2)
        return 2;
    folder = arguments[1];
    all = smelt__harness_operators;
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    print_message("SMELT_TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {cmocka_unit_test(defects_are_seen)};
    return cmocka_run_group_tests_name("mechanisms of check", tests, compared_begin, compared_end);
}
