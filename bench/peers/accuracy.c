/*
 * The cases of FlashMLA's own prefill tests (its tests/test_flash_mla_sparse_prefill.py: shapes,
 * value ranges, invalid slots, lengths, sinks, strides), made anew by a generator of ours, against
 * the reference in double precision, counted by its tolerances; and cases of ours with few valid
 * slots.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

enum { MAX_CASES = 4096, MAX_GROUPS = 24 };

struct list {
    struct peers_case *cases;
    int count;
};

/* ---- the cases ---- */

static struct peers_case *add_case(struct list *list, int dqk, int heads, int queries, int rows,
                                   int topk) {
    struct peers_case *each = &list->cases[list->count];
    if (list->count < MAX_CASES - 1)
        list->count++;
    memset(each, 0, sizeof *each);
    each->shape = (struct contender_shape){heads, dqk, 512, topk, 0};
    each->queries = queries;
    each->rows = rows;
    each->lists = LISTS_RANDOM;
    each->strided = 1;
    each->scale = 0.5F;
    each->divisor = 10;
    each->shift = 0.05F;
    return each;
}

static void add_features(struct peers_case *each, int sink, enum peers_lengths lengths) {
    each->shape.sink = sink;
    each->infinite_sinks = sink;
    each->lengths = lengths;
}

static const int shapes[][2] = {/* rows, topk */
                                {128, 128},  {256, 256},  {512, 512}, {592, 128}, {1840, 256},
                                {1592, 384}, {1521, 512}, {95, 128},  {153, 256}, {114, 384}};
enum { SHAPES = sizeof shapes / sizeof *shapes, FIRST_IRREGULAR = 3 };

static void add_regular(struct list *list, int dqk, int heads) {
    static const int queries[] = {1, 62, 213};
    for (int i = 0; i < SHAPES; i++)
        for (int k = 0; k < 3; k++)
            add_case(list, dqk, heads, queries[k], shapes[i][0], shapes[i][1]);
}

/* Their list, too, has each of these twice, with another seed. */
static void add_with_features(struct list *list, int dqk, int heads) {
    for (int i = FIRST_IRREGULAR; i < SHAPES; i++)
        for (int queries = 62; queries <= 213; queries += 151)
            for (int bits = 0; bits < 8; bits++)
                add_features(add_case(list, dqk, heads, queries, shapes[i][0], shapes[i][1]),
                             bits >> 1 & 1, bits & 1 ? LENGTHS_RANDOM : LENGTHS_NONE);
}

/* Ours: at most four valid slots a query, where one rounded probability weighs most. */
static void add_few(struct list *list, int dqk, int heads) {
    for (int i = FIRST_IRREGULAR; i < SHAPES; i++)
        for (int sink = 0; sink <= 1; sink++)
            add_features(add_case(list, dqk, heads, 213, shapes[i][0], shapes[i][1]), sink,
                         LENGTHS_FEW);
}

/* Queries without a valid slot; lists that are mostly empty; very many queries. */
static void add_corners(struct list *list, int dqk, int heads) {
    static const int empty[][3] = {
        {1, 128, 128}, {1, 256, 256}, {1234, 4321, 4096}, {4096, 2048, 2048}};
    static const int sparse[][2] = {{32, 2048}, {64, 8192}};
    for (int i = 0; i < 4; i++) {
        struct peers_case *each = add_case(list, dqk, heads, empty[i][0], empty[i][1], empty[i][2]);
        add_features(each, 1, LENGTHS_RANDOM);
        each->empty_queries = 1;
    }
    for (int i = 0; i < 2; i++)
        for (int queries = 1; queries <= 1024; queries += 1023)
            add_features(add_case(list, dqk, heads, queries, sparse[i][0], sparse[i][1]), 1,
                         LENGTHS_RANDOM);
    add_features(add_case(list, dqk, heads, 70000, 256, 256), 1, LENGTHS_RANDOM);
}

/* Those that theirs are timed with; checked there, too. */
static void add_large(struct list *list) {
    static const int templates[][3] = {{576, 128, 2048}, {512, 64, 512}, {512, 128, 1024}};
    static const int rows[][5] = {{8192, 32768, 65536, 98304, 131072},
                                  {8192, 32768, 49152, 65536, 0},
                                  {8192, 32768, 49152, 65536, 0}};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 5 && rows[i][k]; k++)
            add_features(
                add_case(list, templates[i][0], templates[i][1], 4096, rows[i][k], templates[i][2]),
                1, LENGTHS_NONE);
}

static void list_cases(struct list *list, const struct peers_options *options) {
    static const int usual[] = {64, 128};
    const int *heads = options->head_count ? options->heads : usual;
    const int count = options->head_count ? options->head_count : 2;
    for (int i = 0; i < count; i++)
        for (int dqk = 512; dqk <= 576; dqk += 64) {
            add_regular(list, dqk, heads[i]);
            add_with_features(list, dqk, heads[i]);
            add_corners(list, dqk, heads[i]);
            add_few(list, dqk, heads[i]);
        }
    if (!options->head_count)
        add_large(list);
}

/* ---- one case ---- */

struct tally { /* of a contender and a number of heads */
    int heads, cases, failed, failed_by[PEERS_TENSORS];
    uint64_t elements, misses[PEERS_TENSORS];
    double relative, worst[PEERS_TENSORS], cosine;
    int relative_count;
};

static const char *const tensor_names[PEERS_TENSORS] = {"out", "lse", "max_logits"};

static void describe(char *text, size_t bytes, const struct peers_case *each) {
    snprintf(text, bytes, "Dqk %d, H %d, T %lld, S %lld, topk %d%s%s%s", each->shape.dqk,
             each->shape.heads, (long long)each->queries, (long long)each->rows, each->shape.topk,
             each->shape.sink ? ", sink" : "",
             each->lengths == LENGTHS_FEW ? ", few slots"
             : each->lengths              ? ", topk_length"
                                          : "",
             each->empty_queries ? ", empty queries" : "");
}

static void add_distance(struct tally *tally, enum peers_tensor tensor,
                         const struct peers_distance *distance) {
    tally->misses[tensor] += distance->misses;
    tally->worst[tensor] = fmax(tally->worst[tensor], distance->worst);
    if (tensor != PEERS_OUT)
        return;
    tally->elements += distance->elements;
    tally->cosine = fmax(tally->cosine, distance->cosine);
    if (distance->relative > 0) {
        tally->relative += distance->relative;
        tally->relative_count++;
    }
}

/* Their limits of the cosine, too. */
static int misses(enum peers_tensor tensor, const struct peers_distance *distance) {
    return distance->misses || fabs(distance->cosine) > (tensor == PEERS_OUT ? 7e-6 : 1e-7);
}

static void say(const struct peers_contender *contender, const struct peers_case *each,
                uint64_t seed, enum peers_tensor tensor, const struct peers_distance *distance,
                const struct peers_reference *reference) {
    char text[160];
    const uint64_t width = tensor == PEERS_OUT ? (uint64_t)each->shape.dv : 1;
    const uint64_t row = distance->where / width, heads = (uint64_t)each->shape.heads;
    describe(text, sizeof text, each);
    printf(
        "%s misses: %s, seed %llu: %s: %llu of %llu elements, %llu with no number; worst %.3f of "
        "the tolerance at query %llu, head %llu, column %llu; cosine %.1e\n",
        contender->name, text, (unsigned long long)seed, tensor_names[tensor],
        (unsigned long long)distance->misses, (unsigned long long)distance->elements,
        (unsigned long long)distance->strange, distance->worst,
        (unsigned long long)((uint64_t)reference->first + row / heads * (uint64_t)reference->step),
        (unsigned long long)(row % heads), (unsigned long long)(distance->where % width),
        distance->cosine);
}

static int launch(struct peers_rig *rig, const struct peers_contender *contender,
                  const struct peers_case *each, const struct peers_tensors *tensors,
                  const struct peers_outputs *outputs) {
    char message[PEERS_MESSAGE] = "";
    struct contender_call call = tensors->call;
    void *operation = peers_operation(rig, contender, &each->shape), *workspace = NULL;
    if (!operation)
        return -1;
    call.out = outputs->out;
    call.lse = outputs->lse;
    call.max_logits = outputs->max_logits;
    size_t bytes = contender->functions->workspace(operation, &call);
    if (bytes && smelt_device_alloc(peers_context(rig), bytes, &workspace) != SMELT_OK)
        return peers_fail("workspace: %s", smelt_last_error());
    int result = contender->functions->launch(operation, &call, workspace, bytes, peers_stream(rig),
                                              message, sizeof message);
    if (result != 0)
        peers_fail("%s: %s", contender->name, message);
    else if (smelt_stream_synchronize(peers_context(rig), peers_stream(rig)) != SMELT_OK)
        result = peers_fail("%s: %s", contender->name, smelt_last_error());
    smelt_device_free(peers_context(rig), workspace);
    return result;
}

static int judge(struct peers_rig *rig, const struct peers_options *options, int index,
                 const struct peers_case *each, uint64_t seed, const struct peers_outputs *outputs,
                 const struct peers_reference *reference, struct tally *tally) {
    const struct peers_contender *contender = &options->contenders[index];
    int failed = 0;
    for (enum peers_tensor tensor = PEERS_OUT; tensor < PEERS_TENSORS; tensor++) {
        struct peers_distance distance;
        if (peers_compare(rig, &distance, outputs, reference, tensor,
                          contender->functions->empty_lse_inf, each->shape.dv) != 0)
            return -1;
        add_distance(tally, tensor, &distance);
        if (misses(tensor, &distance)) {
            tally->failed_by[tensor]++;
            failed = 1;
            if (options->verbose)
                say(contender, each, seed, tensor, &distance, reference);
        }
    }
    tally->cases++;
    tally->failed += failed;
    return 0;
}

static struct tally *tally_of(struct tally *tallies, int heads) {
    for (int i = 0; i < MAX_GROUPS; i++)
        if (tallies[i].heads == heads || tallies[i].heads == 0) {
            tallies[i].heads = heads;
            return &tallies[i];
        }
    return &tallies[MAX_GROUPS - 1];
}

static int run_case(struct peers_rig *rig, const struct peers_options *options,
                    const struct peers_case *each, uint64_t seed,
                    struct tally tallies[][MAX_GROUPS]) {
    struct peers_tensors tensors;
    struct peers_outputs outputs = {0};
    struct peers_reference reference = {0};
    const int heads = each->shape.heads;
    int count = (int)each->queries, step = 1;
    if (options->sample && count > options->sample) {
        step = count / options->sample;
        count = options->sample;
    }
    int result = peers_tensors_make(rig, &tensors, each, heads, seed);
    if (result == 0)
        result = peers_reference_make(rig, &reference, &tensors, step - 1, step, count);
    if (result == 0)
        result = peers_outputs_make(rig, &outputs, each, heads);
    for (int i = 0; i < options->contender_count && result == 0; i++) {
        if (!peers_can(&options->contenders[i], &each->shape, 0))
            continue;
        result = peers_outputs_poison(rig, &outputs, each);
        if (result == 0)
            result = launch(rig, &options->contenders[i], each, &tensors, &outputs);
        if (result == 0)
            result = judge(rig, options, i, each, seed, &outputs, &reference,
                           tally_of(tallies[i], heads));
    }
    peers_reference_free(rig, &reference);
    peers_outputs_free(rig, &outputs);
    peers_tensors_free(rig, &tensors);
    return result;
}

/* ---- the table ---- */

static int print_table(const struct peers_options *options, struct tally tallies[][MAX_GROUPS]) {
    int failed = 0;
    printf("\n| | H | cases | that miss (out, lse, max_logits) | elements of out that miss | of | "
           "mean "
           "relative error | worst share of the tolerance: out, lse, max_logits | greatest cosine "
           "difference |\n|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < options->contender_count; i++)
        for (int k = 0; k < MAX_GROUPS && tallies[i][k].cases; k++) {
            const struct tally *tally = &tallies[i][k];
            printf("| %s | %d | %d | %d (%d, %d, %d) | %llu | %llu | %.3e | %.3f, %.3f, %.3f | "
                   "%.1e |\n",
                   options->contenders[i].name, tally->heads, tally->cases, tally->failed,
                   tally->failed_by[PEERS_OUT], tally->failed_by[PEERS_LSE],
                   tally->failed_by[PEERS_MAX_LOGITS], (unsigned long long)tally->misses[PEERS_OUT],
                   (unsigned long long)tally->elements,
                   tally->relative_count ? tally->relative / tally->relative_count : 0,
                   tally->worst[PEERS_OUT], tally->worst[PEERS_LSE], tally->worst[PEERS_MAX_LOGITS],
                   tally->cosine);
            failed += tally->failed;
        }
    return failed != 0;
}

int peers_accuracy(struct peers_rig *rig, const struct peers_options *options) {
    static struct tally tallies[MAX_CONTENDERS][MAX_GROUPS];
    struct list list = {malloc(MAX_CASES * sizeof *list.cases), 0};
    if (!list.cases)
        return peers_fail("out of memory");
    list_cases(&list, options);
    for (int i = 0; i < list.count && options->list; i++) {
        char text[160];
        describe(text, sizeof text, &list.cases[i]);
        printf("%s\n", text);
    }
    if (options->list) {
        free(list.cases);
        return 0;
    }
    int result = peers_prepare(rig, options->contenders, options->contender_count, list.cases,
                               list.count, 0);
    if (result == 0)
        printf("%s; FlashMLA's test cases, seeds from %llu%s\n", peers_machine(rig),
               (unsigned long long)options->seed, options->sample ? ", queries sampled" : "");
    for (int i = 0; i < list.count && result == 0; i++) {
        result = run_case(rig, options, &list.cases[i], options->seed + (uint64_t)i, tallies);
        fflush(stdout);
    }
    if (result == 0)
        result = print_table(options, tallies);
    free(list.cases);
    return result;
}
