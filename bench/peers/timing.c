/* Times the contenders in turn at the shapes at which the forward is compared. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/random.h"
#include "rig.h"

enum {
    WARM_UP = 3,
    MAX_ROUNDS = 400,
    MAX_ROWS = 64,
    CHECKED_QUERIES = 32 /* of each row, against the reference, before it is timed */
};

struct row {
    char name[64];
    struct peers_case problem;
    int in_mean; /* the summary's means are over these */
};

/* ---- the rows ---- */

static struct row *add_row(struct row *rows, int *count, int dqk, int heads, int topk,
                           int64_t queries, int64_t kv_rows) {
    struct row *row = &rows[(*count)++];
    memset(row, 0, sizeof *row);
    row->problem.shape = (struct contender_shape){heads, dqk, 512, topk, 0};
    row->problem.queries = queries;
    row->problem.rows = kv_rows;
    row->problem.divisor = 1;
    snprintf(row->name, sizeof row->name, "%d, S %lld, H %d, topk %d", dqk, (long long)kv_rows,
             heads, topk);
    return row;
}

static int list_rows(struct row *rows) {
    static const int kv_rows[] = {8192, 32768, 131072}, sink_topks[] = {640, 1152};
    int count = 0;
    for (int i = 0; i < 3; i++)
        for (int heads = 64; heads <= 128; heads *= 2)
            for (int topk = 256; topk <= 2048; topk *= 2)
                add_row(rows, &count, 576, heads, topk, 4096, kv_rows[i])->in_mean = 1;
    for (int heads = 64; heads <= 128; heads *= 2)
        for (int i = 0; i < 2; i++) {
            struct row *row = add_row(rows, &count, 512, heads, sink_topks[i], 4096, 8192);
            row->problem.shape.sink = 1;
            row->in_mean = 1;
            strcat(row->name, ", sink");
        }
    for (int topk = 512; topk <= 2048; topk *= 4)
        for (int heads = 8; heads <= 32; heads *= 2)
            add_row(rows, &count, 576, heads, topk, 4096, 8192);
    add_row(rows, &count, 576, 8, 2048, 4096, 131072);
    for (int heads = 64; heads <= 128; heads *= 2)
        for (int lengths = 0; lengths <= 1; lengths++) {
            struct row *row = add_row(rows, &count, 576, heads, 2048, 8192, 8192);
            row->problem.lists = LISTS_CAUSAL;
            row->problem.lengths = lengths ? LENGTHS_LISTS : LENGTHS_NONE;
            strcat(row->name, lengths ? ", causal, topk_length" : ", causal");
        }
    for (int heads = 8; heads <= 64; heads *= 8) {
        struct row *row = add_row(rows, &count, 576, heads, 2048, 4096, 8192);
        row->problem.lists = LISTS_HALF;
        strcat(row->name, ", half of them -1");
    }
    return count;
}

/* ---- one row ---- */

struct entrant {
    const struct peers_contender *contender;
    void *operation, *workspace;
    size_t workspace_bytes;
    struct peers_tensors tensors; /* its own where heads are padded for it, */
    int owns;                     /* else an earlier one's */
    struct peers_outputs outputs;
    struct contender_call call;
    struct CUevent_st *begin[MAX_ROUNDS], *end[MAX_ROUNDS];
    double ms[MAX_ROUNDS], median;
    int runs; /* 0: it has no kernel for this row */
};

struct race {
    struct peers_rig *rig;
    const struct peers_options *options;
    const struct row *row;
    struct entrant *entrants;
    int count;
};

static int share_tensors(struct race *race, struct entrant *entrant, int heads) {
    for (const struct entrant *other = race->entrants; other < entrant; other++)
        if (other->runs && other->tensors.call.heads == heads) {
            entrant->tensors = other->tensors;
            return 0;
        }
    entrant->owns = 1;
    return peers_tensors_make(race->rig, &entrant->tensors, &race->row->problem, heads,
                              race->options->seed);
}

static int enter(struct race *race, struct entrant *entrant) {
    const struct contender_shape *shape = &race->row->problem.shape;
    if (!peers_can(entrant->contender, shape, 1))
        return 0;
    const int heads = peers_padded_heads(entrant->contender, shape);
    entrant->operation = peers_operation(race->rig, entrant->contender, shape);
    if (!entrant->operation || share_tensors(race, entrant, heads) != 0 ||
        peers_outputs_make(race->rig, &entrant->outputs, &race->row->problem, heads) != 0)
        return -1;
    entrant->call = entrant->tensors.call;
    entrant->call.out = entrant->outputs.out;
    entrant->call.lse = entrant->outputs.lse;
    entrant->call.max_logits = entrant->outputs.max_logits;
    entrant->workspace_bytes =
        entrant->contender->functions->workspace(entrant->operation, &entrant->call);
    if (entrant->workspace_bytes &&
        smelt_device_alloc(peers_context(race->rig), entrant->workspace_bytes,
                           &entrant->workspace) != SMELT_OK)
        return peers_fail("workspace: %s", smelt_last_error());
    entrant->runs = 1;
    return 0;
}

static int launch(const struct race *race, const struct entrant *entrant) {
    char message[PEERS_MESSAGE];
    if (entrant->contender->functions->launch(
            entrant->operation, &entrant->call, entrant->workspace, entrant->workspace_bytes,
            peers_stream(race->rig), message, sizeof message) == 0)
        return 0;
    return peers_fail("%s: %s", entrant->contender->name, message);
}

/* A kernel that computes something else is not timed. */
static int check(struct race *race, struct entrant *entrant) {
    const struct peers_case *problem = &race->row->problem;
    struct peers_reference reference;
    struct peers_distance distance;
    const int step = (int)(problem->queries / CHECKED_QUERIES);
    if (peers_outputs_poison(race->rig, &entrant->outputs, problem) != 0 ||
        launch(race, entrant) != 0)
        return -1;
    int result = peers_reference_make(race->rig, &reference, &entrant->tensors, step - 1, step,
                                      CHECKED_QUERIES);
    if (result == 0)
        result = peers_compare(race->rig, &distance, &entrant->outputs, &reference, PEERS_OUT,
                               entrant->contender->functions->empty_lse_inf, problem->shape.dv);
    peers_reference_free(race->rig, &reference);
    if (result == 0 && (distance.strange || !(distance.relative < 5e-3)))
        result = peers_fail("%s: relative error %.2e, %llu elements without a value",
                            entrant->contender->name, distance.relative,
                            (unsigned long long)distance.strange);
    return result;
}

/* ---- in turn ---- */

static int queue_one(struct race *race, struct entrant *entrant, int round) {
    smelt_context *context = peers_context(race->rig);
    struct CUstream_st *stream = peers_stream(race->rig);
    if (smelt_event_create(context, &entrant->begin[round]) != SMELT_OK ||
        smelt_event_create(context, &entrant->end[round]) != SMELT_OK ||
        smelt_event_record(context, entrant->begin[round], stream) != SMELT_OK)
        return peers_fail("events: %s", smelt_last_error());
    if (launch(race, entrant) != 0)
        return -1;
    return smelt_event_record(context, entrant->end[round], stream) == SMELT_OK
               ? 0
               : peers_fail("events: %s", smelt_last_error());
}

/* Every round launches each contender once, in an order of its own, so that none always follows
 * the same other one. Nothing is waited for in between: the host stays ahead of the device. */
static int queue_rounds(struct race *race) {
    struct smelt__random random = smelt__random_at(race->options->seed, 1, 0);
    int order[MAX_CONTENDERS], result = 0;
    for (int i = 0; i < race->count; i++)
        order[i] = i;
    for (int round = -WARM_UP; round < race->options->rounds && result == 0; round++) {
        for (int i = race->count - 1; i > 0; i--) {
            const int other = (int)smelt__random_below(&random, i + 1), kept = order[i];
            order[i] = order[other];
            order[other] = kept;
        }
        for (int i = 0; i < race->count && result == 0; i++) {
            struct entrant *entrant = &race->entrants[order[i]];
            if (entrant->runs)
                result = round < 0 ? launch(race, entrant) : queue_one(race, entrant, round);
        }
    }
    return result;
}

static int compare(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static int read_times(struct race *race, struct entrant *entrant) {
    const int rounds = race->options->rounds;
    for (int round = 0; round < rounds; round++) {
        float ms = 0;
        if (smelt_event_elapsed(peers_context(race->rig), entrant->begin[round],
                                entrant->end[round], &ms) != SMELT_OK)
            return peers_fail("events: %s", smelt_last_error());
        entrant->ms[round] = (double)ms;
    }
    qsort(entrant->ms, (size_t)rounds, sizeof *entrant->ms, compare);
    entrant->median = (entrant->ms[(rounds - 1) / 2] + entrant->ms[rounds / 2]) / 2;
    return 0;
}

static void leave(struct race *race, struct entrant *entrant) {
    for (int round = 0; round < MAX_ROUNDS; round++) {
        if (entrant->begin[round])
            smelt_event_destroy(peers_context(race->rig), entrant->begin[round]);
        if (entrant->end[round])
            smelt_event_destroy(peers_context(race->rig), entrant->end[round]);
    }
    smelt_device_free(peers_context(race->rig), entrant->workspace);
    peers_outputs_free(race->rig, &entrant->outputs);
    if (entrant->owns)
        peers_tensors_free(race->rig, &entrant->tensors);
}

static int run_row(struct race *race) {
    int result = 0;
    memset(race->entrants, 0, (size_t)race->count * sizeof *race->entrants);
    for (int i = 0; i < race->count && result == 0; i++) {
        race->entrants[i].contender = &race->options->contenders[i];
        result = enter(race, &race->entrants[i]);
        if (result == 0 && race->entrants[i].runs)
            result = check(race, &race->entrants[i]);
    }
    if (result == 0)
        result = queue_rounds(race);
    for (int i = 0; i < race->count && result == 0; i++)
        if (race->entrants[i].runs)
            result = read_times(race, &race->entrants[i]);
    smelt_stream_synchronize(peers_context(race->rig), peers_stream(race->rig));
    for (int i = race->count - 1; i >= 0; i--)
        leave(race, &race->entrants[i]);
    return result;
}

/* ---- the table ---- */

/* Logarithms of one contender's ratios over the rows. */
struct ratios {
    double sum, least, greatest;
    int count;
};

static void add_ratio(struct ratios *ratios, double ratio) {
    ratios->least = ratios->count == 0 ? ratio : fmin(ratios->least, ratio);
    ratios->greatest = ratios->count == 0 ? ratio : fmax(ratios->greatest, ratio);
    ratios->sum += log(ratio);
    ratios->count++;
}

static void print_head(const struct peers_options *options) {
    printf("| Dqk, S, H, topk |");
    for (int i = 0; i < options->contender_count; i++) {
        const char *name = options->contenders[i].name;
        printf(" %s ms |", name);
        if (i > 0)
            printf(" %s / %s |", options->contenders[0].name, name);
        if (i > 1)
            printf(" %s / %s |", name, options->contenders[i - 1].name);
    }
    printf("\n|---|");
    for (int i = 0; i < options->contender_count; i++)
        printf("%s", i > 1 ? "---|---|---|" : i > 0 ? "---|---|" : "---|");
    printf("\n");
}

/* Times of the first over a contender's (above 1: faster), and its over those of the one before. */
static void print_row(const struct race *race, struct ratios *to_first,
                      struct ratios *to_previous) {
    printf("| %s |", race->row->name);
    for (int i = 0; i < race->count; i++) {
        const struct entrant *all = race->entrants;
        if (!all[i].runs) {
            printf("%s", i > 1 ? " - | - | - |" : i > 0 ? " - | - |" : " - |");
            continue;
        }
        printf(" %.3f |", all[i].median);
        if (i > 0 && all[0].runs)
            printf(" %.3f |", all[0].median / all[i].median);
        else if (i > 0)
            printf(" - |");
        if (i > 1 && all[i - 1].runs)
            printf(" %.3f |", all[i].median / all[i - 1].median);
        else if (i > 1)
            printf(" - |");
        if (i > 0 && all[0].runs && race->row->in_mean)
            add_ratio(&to_first[i], all[0].median / all[i].median);
        if (i > 1 && all[i - 1].runs)
            add_ratio(&to_previous[i], all[i].median / all[i - 1].median);
    }
    printf("\n");
    fflush(stdout);
}

static void print_summary(const struct peers_options *options, const struct ratios *to_first,
                          const struct ratios *to_previous) {
    const struct peers_contender *all = options->contenders;
    printf("\n");
    for (int i = 1; i < options->contender_count; i++) {
        if (to_first[i].count)
            printf("%s / %s, the %d rows of 64 and 128 heads with random lists: geometric mean "
                   "%.3f, least %.3f, greatest %.3f\n",
                   all[0].name, all[i].name, to_first[i].count,
                   exp(to_first[i].sum / to_first[i].count), to_first[i].least,
                   to_first[i].greatest);
        if (to_previous[i].count)
            printf("%s / %s, all %d rows: geometric mean %.4f, least %.3f, greatest %.3f\n",
                   all[i].name, all[i - 1].name, to_previous[i].count,
                   exp(to_previous[i].sum / to_previous[i].count), to_previous[i].least,
                   to_previous[i].greatest);
    }
}

static int run_rows(struct race *race, const struct row *rows, int count) {
    struct ratios to_first[MAX_CONTENDERS] = {{0}}, to_previous[MAX_CONTENDERS] = {{0}};
    int failed = 0;
    print_head(race->options);
    for (int i = 0; i < count; i++) {
        race->row = &rows[i];
        if (run_row(race) == 0) {
            print_row(race, to_first, to_previous);
        } else {
            fprintf(stderr, "%s: %s\n", rows[i].name, peers_problem());
            failed++;
        }
    }
    print_summary(race->options, to_first, to_previous);
    return failed != 0;
}

int peers_time(struct peers_rig *rig, const struct peers_options *options) {
    struct row all[MAX_ROWS], rows[MAX_ROWS];
    struct peers_case cases[MAX_ROWS];
    struct race race = {rig, options, NULL, NULL, options->contender_count};
    int count = 0, listed = list_rows(all);
    for (int i = 0; i < listed; i++)
        if (!options->only || strstr(all[i].name, options->only)) {
            rows[count] = all[i];
            cases[count++] = all[i].problem;
        }
    for (int i = 0; i < count && options->list; i++)
        printf("%s\n", rows[i].name);
    if (options->list)
        return 0;
    if (options->rounds > MAX_ROUNDS)
        return peers_fail("--rounds: at most %d", MAX_ROUNDS);
    if (peers_prepare(rig, options->contenders, options->contender_count, cases, count, 1) != 0)
        return -1;
    race.entrants = calloc((size_t)race.count, sizeof *race.entrants);
    if (!race.entrants)
        return peers_fail("out of memory");
    printf("%s; %d launches of each in turn, in an order of its own every round; medians, seed "
           "%llu\n\n",
           peers_machine(rig), options->rounds, (unsigned long long)options->seed);
    int result = run_rows(&race, rows, count);
    free(race.entrants);
    return result;
}
