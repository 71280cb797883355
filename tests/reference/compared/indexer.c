/* The requirements on the logits and gradients of the indexer's operators: see compared.h. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compared.h"
#include "reference/operators.h"
#include "smelt/kernels.h"
#include "tables.h"

/* The permitted error of small logits in fp32: 129 times half of its smallest number. */
#define LEAST (129 * 0x1p-150)

static const struct smelt__problem_options window_problems[] = {
    {.tokens = 24, .rows = 90, .lists = SMELT__LISTS_ADVERSARIAL, .strided = 1},
    {.batches = 2, .tokens = 9, .rows = 70, .lists = SMELT__LISTS_RANDOM},
};

static const struct smelt__problem_options slot_problems[] = {
    {.batches = 2,
     .tokens = 10,
     .rows = 50,
     .lists = SMELT__LISTS_ADVERSARIAL,
     .topk_length = 1,
     .strided = 1},
    {.tokens = 9, .rows = 60, .lists = SMELT__LISTS_CAUSAL, .dkv = SMELT__DKV_FP32},
    {.tokens = 7, .rows = 70, .lists = SMELT__LISTS_RANDOM, .strided = 1, .dkv = SMELT__DKV_ADD},
};

/* own: [piece, columns], the sum of the sizes of what each logit is made of. A piece is a query's
 * row, or that of one of its groups. */
static void prepare_logits(struct bench *bench) {
    const int64_t columns = bench->pieces[0].count;
    double logits[MOST_NUMBERS], terms[MOST_NUMBERS];
    smelt_indexer_logits_args args;
    smelt__problem_arguments(&bench->problem, &args);
    bench->own = calloc((size_t)(bench->piece_count * columns), sizeof *bench->own);
    for (int i = 0; i < bench->piece_count; i++) {
        assert_int_equal(smelt__indexer_logits_reference(bench->spec.spec, &args,
                                                         bench->pieces[i].unit, logits, terms),
                         0);
        memcpy(bench->own + i * columns, terms + bench->pieces[i].number * columns,
               (size_t)columns * sizeof *terms);
    }
}

/* The slots of a piece's element. */
static int64_t slots_of(const struct bench *bench, const struct piece *piece, int64_t element,
                        int64_t *count) {
    *count = ((const struct smelt__indexer_scores_spec *)bench->spec.spec)->block_max;
    return (element - piece->first) * *count;
}

/* The row that a query's slot names, -1 where it is masked. */
static int64_t row_of_slot(const struct bench *bench, int64_t query, int64_t slot) {
    const int64_t size = ((const struct smelt__indexer_scores_spec *)bench->spec.spec)->granularity;
    smelt_indexer_scores_args args;
    smelt__problem_arguments(&bench->problem, &args);
    const int32_t *const lengths = args.topk_length.data, *const limits = args.limit.data;
    const int64_t entry =
        ((const int32_t *)args.indices.data)[query * args.indices.strides[0] + slot / size];
    const int64_t row = entry * size + slot % size;
    const int counts = (!lengths || slot / size < lengths[query * args.topk_length.strides[0]]) &&
                       (!limits || row < limits[query * args.limit.strides[0]]);
    return entry >= 0 && row < args.rows && counts ? row : -1;
}

/* own: the largest terms of an element's slots. */
static void prepare_scores(struct bench *bench) {
    const int64_t width = bench->pieces[0].count;
    double logits[MOST_NUMBERS], terms[MOST_NUMBERS];
    smelt_indexer_scores_args args;
    smelt__problem_arguments(&bench->problem, &args);
    bench->own = calloc((size_t)(bench->piece_count * width), sizeof *bench->own);
    for (int i = 0; i < bench->piece_count; i++) {
        const struct piece *piece = &bench->pieces[i];
        assert_int_equal(
            smelt__indexer_scores_reference(bench->spec.spec, &args, piece->unit, logits, terms),
            0);
        for (int64_t n = 0; n < width; n++) {
            int64_t count;
            const int64_t first = slots_of(bench, piece, piece->first + n, &count);
            for (int64_t slot = first; slot < first + count; slot++)
                if (isfinite(logits[slot]))
                    bench->own[i * width + n] = fmax(bench->own[i * width + n], terms[slot]);
        }
    }
}

static const double *terms_of(const struct bench *bench, const struct piece *piece) {
    return bench->own + (piece - bench->pieces) * piece->count;
}

static void size_of_logits(const struct bench *bench, const struct piece *piece, double *sizes) {
    for (int64_t i = 0; i < piece->count; i++)
        sizes[i] = terms_of(bench, piece)[i];
}

static double bar_of_bf16(const struct bench *bench, double parts) {
    (void)bench, (void)parts;
    return 1e-5;
}

static double bar_of_logits(const struct bench *bench, double parts) {
    const struct smelt__indexer_logits_spec *spec = bench->spec.spec;
    return spec->dtype == SMELT__DTYPE_FP8 ? 5e-4 : bar_of_bf16(bench, parts);
}

/* Whether one of the element's keys is in the window. */
static int is_inside(const struct bench *bench, const struct piece *piece, int64_t element) {
    const struct smelt__indexer_logits_spec *spec = bench->spec.spec;
    smelt_indexer_logits_args given, *const args = &given;
    smelt__problem_arguments(&bench->problem, args);
    const int64_t begin = ((const int32_t *)args->window_begin.data)[piece->unit];
    const int64_t end = ((const int32_t *)args->window_end.data)[piece->unit];
    const int64_t column = element - piece->first;
    const int64_t each = spec->candidate_block / spec->block_max;
    int64_t block = column;
    int inside = 0;
    if (each) {
        const int64_t number =
            ((const int32_t *)
                 args->candidates.data)[piece->unit * args->candidates.strides[0] + column / each];
        block = number * each + column % each;
        if (number < 0)
            return 0;
    }
    for (int64_t key = block * spec->block_max, i = 0; i < spec->block_max; i++)
        inside |= key + i >= begin && key + i < end && key + i < args->rows;
    return inside;
}

static int is_outside(const struct bench *bench, const struct piece *piece, int64_t element) {
    return !is_inside(bench, piece, element);
}

/* If either infinity is correct, only finite numbers are wrong. */
static int is_decided(const struct bench *bench, const struct piece *piece, int64_t element) {
    return is_inside(bench, piece, element) &&
           !(terms_of(bench, piece)[element - piece->first] < 0);
}

static const struct compared_metric logits_metrics[] = {
    {"logits", EACH_ELEMENT, size_of_logits, bar_of_logits, LEAST, {"logits"}}, {0}};

static const struct compared_rule logits_rules[] = {
    {"number", {"logits"}, NO_MINUS_0, is_inside},
    {"infinite", {"logits"}, SAME_INFINITY, is_decided},
    {"outside_window", {"logits"}, MINUS_INF, is_outside},
    {0},
};

static const char *const logits_specs[] = {
    "indexer_logits:heads=3,dim=64,dtype=bf16",
    "indexer_logits:heads=3,dim=64,dtype=fp8",
    "indexer_logits:heads=4,dim=64,dtype=bf16,activation=none,groups=2",
    "indexer_logits:heads=3,dim=64,dtype=fp8,weights=0,groups=3",
    "indexer_logits:heads=3,dim=64,dtype=bf16,block_max=4",
    "indexer_logits:heads=2,dim=64,dtype=fp8,block_max=2",
    "indexer_logits:heads=4,dim=64,dtype=bf16,weights=0,groups=4,block_max=16",
    "indexer_logits:heads=4,dim=64,dtype=fp8,activation=none,groups=2,block_max=8",
    "indexer_logits:heads=3,dim=64,dtype=bf16,candidate_block=4",
    "indexer_logits:heads=3,dim=64,dtype=fp8,weights=0,candidate_block=8",
    "indexer_logits:heads=4,dim=64,dtype=bf16,activation=none,groups=2,candidate_block=1",
    "indexer_logits:heads=2,dim=64,dtype=fp8,groups=2,block_max=4,candidate_block=16",
    "indexer_logits:heads=3,dim=64,dtype=bf16,weights_dtype=bf16",
    NULL};

static const struct compared_pass logits_passes[] = {{SMELT_PASS_FORWARD, logits_specs,
                                                      window_problems, 2, logits_metrics,
                                                      logits_rules, prepare_logits, NULL}};

const struct compared compared_indexer_logits = {"indexer_logits", logits_passes, 1};

/* ---- indexer_scores -------------------------------------------------------------------------- */

static int is_valid(const struct bench *bench, const struct piece *piece, int64_t element) {
    int64_t count;
    const int64_t first = slots_of(bench, piece, element, &count);
    for (int64_t slot = first; slot < first + count; slot++)
        if (row_of_slot(bench, piece->unit, slot) >= 0)
            return 1;
    return 0;
}

static int is_masked(const struct bench *bench, const struct piece *piece, int64_t element) {
    return !is_valid(bench, piece, element);
}

static int is_decided_slot(const struct bench *bench, const struct piece *piece, int64_t element) {
    return is_valid(bench, piece, element) && !(terms_of(bench, piece)[element - piece->first] < 0);
}

static const struct compared_metric scores_metrics[] = {
    {"logits", EACH_ELEMENT, size_of_logits, bar_of_bf16, LEAST, {"logits"}}, {0}};

static const struct compared_rule scores_rules[] = {
    {"number", {"logits"}, NO_MINUS_0, is_valid},
    {"infinite", {"logits"}, SAME_INFINITY, is_decided_slot},
    {"masked_slot", {"logits"}, MINUS_INF, is_masked},
    {"largest", {"keys"}, BY_HAND, NULL},
    {0},
};

/* In keys: no row where there is one and the reverse, rows whose logits are smaller, and of equal ones a
 * later one. */
static void plant_keys(struct bench *bench) {
    const int keys = bench_tensor(bench, "keys");
    double logits[MOST_NUMBERS];
    smelt_indexer_scores_args args;
    smelt__problem_arguments(&bench->problem, &args);
    for (int i = 0; i < bench->piece_count; i++) {
        const struct piece *piece = &bench->pieces[i];
        if (piece->tensor != keys ||
            smelt__indexer_scores_reference(bench->spec.spec, &args, piece->unit, logits, NULL))
            continue;
        for (int64_t element = piece->first; element < piece->first + piece->count; element += 3) {
            int64_t count;
            const int64_t first = slots_of(bench, piece, element, &count);
            const double best = bench->expected[keys][element];
            double largest = -INFINITY;
            int seen = 0;
            bench_set(bench, keys, element, best < 0 ? 0 : -1);
            expect_refused(bench, piece, "largest");
            count_plant(bench, "largest");
            for (int64_t slot = first; slot < first + count; slot++)
                largest = fmax(largest, logits[slot]);
            for (int64_t slot = first; slot < first + count && isfinite(largest); slot++) {
                const double row = (double)row_of_slot(bench, piece->unit, slot);
                seen |= row == best;
                if (row < 0 || row == best ||
                    !(logits[slot] < largest - 0.01 || (seen && !largest)))
                    continue;
                bench_set(bench, keys, element, row);
                expect_refused(bench, piece, "largest");
            }
        }
    }
}

static const char *const scores_specs[] = {
    "indexer_scores:heads=3,dim=64,topk=24",
    "indexer_scores:heads=3,dim=64,topk=24,granularity=4,weights_dtype=bf16",
    "indexer_scores:heads=1,dim=64,topk=24,granularity=8,block_max=4", NULL};

static const struct compared_pass scores_passes[] = {{SMELT_PASS_FORWARD, scores_specs,
                                                      slot_problems, 3, scores_metrics,
                                                      scores_rules, prepare_scores, plant_keys}};

const struct compared compared_indexer_scores = {"indexer_scores", scores_passes, 1};

/* ---- indexer_bwd ----------------------------------------------------------------------------- */

/* own: two numbers per piece, as in tables.h; for dweights the sum of its terms' absolute
 * values. */
static void prepare_bwd(struct bench *bench) {
    const struct smelt__indexer_bwd_spec *spec = bench->spec.spec;
    double grads[MOST_NUMBERS], dweights, terms;
    smelt_indexer_bwd_args args;
    smelt__problem_arguments(&bench->problem, &args);
    bench->own = calloc((size_t)bench->piece_count * 2, sizeof *bench->own);
    for (int i = 0; i < bench->piece_count; i++) {
        const struct piece *piece = &bench->pieces[i];
        double *const own = bench->own + 2 * i;
        struct smelt__indexer_bwd_row row = {.grads = grads};
        assert_int_equal(piece->comparison == 0
                             ? smelt__indexer_bwd_head(spec, &args, piece->unit, piece->number,
                                                       &row, &dweights, &terms)
                             : smelt__indexer_bwd_key(spec, &args, piece->unit, &row),
                         0);
        own[0] = fmax(norm_of_numbers(grads, spec->dim), row.spread);
        own[1] = row.doubtful;
        if (piece->count == 1)
            own[0] = terms;
    }
}

static void size_of_dweights(const struct bench *bench, const struct piece *piece, double *sizes) {
    *sizes = bench->own[2 * (piece - bench->pieces)];
}

static double bar_of_dweights(const struct bench *bench, double parts) {
    const struct smelt__indexer_bwd_spec *spec = bench->spec.spec;
    return bar_of_bf16(bench, parts) + (spec->weights_dtype ? 1 / 256.0 : 0);
}

static double bar_of_rows(const struct bench *bench, double parts) {
    (void)bench;
    return 4e-3 + 4e-3 / fmax(parts, 1);
}

static double bar_of_row(const struct bench *bench, double parts) {
    (void)bench, (void)parts;
    return 8e-3;
}

#define DK                                                                                         \
    { "dk", "dk_fp32", "dk_sum" }

static const struct compared_metric bwd_metrics[] = {
    {"dq", ALL_PIECES, size_of_all_grads, bar_of_rows, 0, {"dq"}},
    {"dq_row", EACH_PIECE, size_of_grads, bar_of_row, 0, {"dq"}},
    {"dweights", EACH_ELEMENT, size_of_dweights, bar_of_dweights, 0, {"dweights"}},
    {"dk", ALL_PIECES, size_of_all_grads, bar_of_rows, 0, DK},
    {"dk_row", EACH_PIECE, size_of_grads, bar_of_row, 0, DK},
    {0},
};

static const struct compared_rule bwd_rules[] = {
    {"dq_finite", {"dq"}, FINITE, NULL},
    {"dq_nothing", {"dq"}, ZERO, is_nothing},
    {"dk_finite", DK, FINITE, NULL},
    {"dk_nothing", DK, ZERO, is_nothing},
    {0},
};

/* The gradient of a weight of a query without a valid slot is 0; any other value has an infinite
 * error. */
static void plant_dweights(struct bench *bench) {
    static const double values[] = {1e-40, (double)NAN, INFINITY};
    const int dweights = bench_tensor(bench, "dweights");
    for (int i = 0; i < bench->piece_count; i++)
        for (int k = 0; k < 3; k++) {
            const struct piece *piece = &bench->pieces[i];
            if (piece->tensor != dweights || (k == 0 && bench->own[2 * i] > 0) || (k && i % 9))
                continue;
            bench_set(bench, dweights, piece->first, values[k]);
            expect_refused(bench, piece, "dweights");
        }
}

static const char *const bwd_specs[] = {
    "indexer_bwd:heads=3,dim=64,topk=24",
    "indexer_bwd:heads=2,dim=128,topk=12,activation=none,granularity=2,"
    "weights_dtype=bf16,deterministic=1",
    NULL};

static const struct compared_pass bwd_passes[] = {{SMELT_PASS_BACKWARD, bwd_specs, slot_problems, 3,
                                                   bwd_metrics, bwd_rules, prepare_bwd,
                                                   plant_dweights}};

const struct compared compared_indexer_bwd = {"indexer_bwd", bwd_passes, 1};

/* ---- indexer_loss ---------------------------------------------------------------------------- */

enum { SCORES, WEIGHTED, OUTPUTS, TRAINED = 1, ODD = 2, WITH_LOSSES = 1 }; /* its own options */

/* ODD: with odd seeds no loss is infinite; each_bench adds its seeds, so both cases occur. */
static const struct smelt__problem_options loss_problems[] = {
    {.tokens = 20,
     .rows = 60,
     .lists = SMELT__LISTS_ADVERSARIAL,
     .topk_length = 1,
     .strided = 1,
     .own = {[OUTPUTS] = WITH_LOSSES}},
    {.tokens = 9,
     .rows = 60,
     .lists = SMELT__LISTS_CAUSAL,
     .own = {[SCORES] = TRAINED, [WEIGHTED] = 1, [OUTPUTS] = WITH_LOSSES}},
};

/* own: [T, width] sizes of the slots' gradients, then [T] sizes of the losses, then the size of the
 * loss. */
static void prepare_loss(struct bench *bench) {
    smelt_indexer_loss_args args;
    smelt__problem_arguments(&bench->problem, &args);
    const int64_t width = args.width, tokens = args.tokens;
    const float *const grad_loss = args.grad_loss.data;
    double q[MOST_NUMBERS], p[MOST_NUMBERS];
    bench->own = calloc((size_t)(tokens * width + tokens + 1), sizeof *bench->own);
    double *const losses = bench->own + tokens * width, *const loss = losses + tokens;
    *loss = (double)FLT_MIN;
    for (int64_t query = 0; query < tokens; query++) {
        const struct smelt__indexer_loss_found found =
            smelt__indexer_loss_reference(&args, query, q, p, NULL);
        const double factor = fabs(found.weight * (grad_loss ? (double)*grad_loss : 1));
        for (int64_t i = 0; i < width; i++)
            bench->own[query * width + i] = factor * (q[i] + p[i]) + 1e-30;
        losses[query] = fabs(found.weight) * (1 + found.terms) + (double)FLT_MIN;
        *loss += fabs(found.loss) + 0.01 * fabs(found.weight);
    }
}

static void size_of_slots(const struct bench *bench, const struct piece *piece, double *sizes) {
    for (int64_t i = 0; i < piece->count; i++)
        sizes[i] = bench->own[piece->unit * piece->count + i];
}

static void size_of_grad(const struct bench *bench, const struct piece *piece, double *sizes) {
    double squares = 0;
    for (int64_t i = 0; i < piece->count; i++)
        squares += pow(fmax(fabs(bench->expected[piece->tensor][piece->first + i]),
                            0.01 * bench->own[piece->unit * piece->count + i]),
                       2);
    *sizes = sqrt(squares);
}

static void size_of_losses(const struct bench *bench, const struct piece *piece, double *sizes) {
    const int64_t tokens = bench->problem.extents[0], width = bench->problem.options.width;
    *sizes = bench->own[tokens * width + piece->unit];
}

static void size_of_loss(const struct bench *bench, const struct piece *piece, double *sizes) {
    const int64_t tokens = bench->problem.extents[0], width = bench->problem.options.width;
    (void)piece;
    *sizes = bench->own[tokens * width + tokens];
}

static double bar_of_grad(const struct bench *bench, double parts) {
    (void)bench, (void)parts;
    return 1e-3;
}

static double bar_of_slot(const struct bench *bench, double parts) {
    (void)bench, (void)parts;
    return 2e-5;
}

static double bar_of_loss(const struct bench *bench, double parts) {
    (void)bench, (void)parts;
    return 1e-4;
}

static const struct compared_metric loss_metrics[] = {
    {"grad", ALL_PIECES, size_of_grad, bar_of_grad, 0, {"grad"}},
    {"slot", EACH_ELEMENT, size_of_slots, bar_of_slot, 0, {"grad"}},
    {"losses", EACH_ELEMENT, size_of_losses, bar_of_bf16, 0, {"losses"}},
    {"loss", EACH_ELEMENT, size_of_loss, bar_of_loss, 0, {"loss"}},
    {0},
};

static int is_masked_slot(const struct bench *bench, const struct piece *piece, int64_t element) {
    smelt_indexer_loss_args args;
    smelt__problem_arguments(&bench->problem, &args);
    const int64_t slot = element - piece->first;
    const int32_t *lengths = args.topk_length.data;
    const int32_t index =
        ((const int32_t *)args.indices.data)[piece->unit * args.indices.strides[0] + slot];
    return index < 0 || index >= args.rows ||
           (lengths && slot >= lengths[piece->unit * args.topk_length.strides[0]]);
}

static const struct compared_rule loss_rules[] = {{"masked_slot", {"grad"}, ZERO, is_masked_slot},
                                                  {0}};

/* NaN and infinities must be refused in all of these. */
static void plant_no_number(struct bench *bench) {
    static const char *const names[][2] = {
        {"losses", "losses"}, {"loss", "loss"}, {"grad", "grad"}};
    static const double values[] = {(double)NAN, INFINITY};
    for (int i = 0; i < bench->piece_count; i++)
        for (int k = 0; k < 3; k++)
            for (int n = 0; n < 2; n++) {
                const struct piece *piece = &bench->pieces[i];
                if (bench_tensor(bench, names[k][0]) != piece->tensor ||
                    (k == 2 && is_masked_slot(bench, piece, piece->first)))
                    continue;
                bench_set(bench, piece->tensor, piece->first, values[n]);
                expect_refused(bench, piece, names[k][1]);
            }
}

static const char *const loss_specs[] = {"indexer_loss:topk=24", NULL};

static const struct compared_pass loss_passes[] = {{SMELT_PASS_FORWARD, loss_specs, loss_problems,
                                                    2, loss_metrics, loss_rules, prepare_loss,
                                                    plant_no_number}};

const struct compared compared_indexer_loss = {"indexer_loss", loss_passes, 1};
