/*
 * The kernel that makes the lists of the indexer's backward pass against a reference, entry for
 * entry, bit for bit. Run by hand on a machine with a GPU, by `meson test` on the emulator with
 * several schedules.
 *
 *     gpu_indexer_lists [CASES [ARCH]]    random cases beside the listed ones; SMELT_TEST_SEED
 * repeats a run. ARCH: on the emulator, that one alone
 */
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/random.h"
#include "indexer_bwd_lists.params.h"
#include "kernel_alone.h"

enum {
    SCHEDULES = 3,
    DEFAULT_CASES = 10,
    LIST_STEP = 64,
    MEMORIES = 8,
    PARTS = 3,
    FAR_STRIDE = 1 << 30,
    POISON = 0xA5,
    MOST_FAILURES = 2 /* after which no further case is run */
};

/* What an index row holds. */
enum fill {
    DISTINCT,   /* valid rows, none twice where there are enough; some slots masked */
    ANY,        /* valid rows, masked slots in between */
    FEW,        /* the same few rows again and again */
    ONE,        /* row 0 in every slot */
    LAST,       /* the table's last rows */
    NONE,       /* nothing valid */
    NEIGHBOURS, /* all but the same rows for neighbouring queries */
    FILLS
};

/* One problem. */
struct shape {
    const char *name;
    int tokens, rows, width, group_queries;
    int runs;    /* 1: lists have parts */
    int padding; /* slots between two rows */
    int lengths; /* 1: topk_length is given */
    enum fill fill;
    int far; /* 1: lists so far apart that their places pass 2^31; on the emulator, whose pages
                exist when touched */
};

/* Listed cases: real use and the edges. */
static const struct shape shapes[] = {
    {"one slot", 1, 1, 1, 1, 0, 0, 0, ANY, 0},
    {"alone", 9, 5000, 700, 1, 0, 3, 1, DISTINCT, 0},
    {"alone, all of a table", 5, 300, 300, 1, 0, 0, 0, NEIGHBOURS, 0},
    {"alone, one row", 5, 300, 100, 1, 0, 0, 0, ONE, 0},
    {"alone, windows", 3, 70000, 300, 1, 0, 1, 0, ANY, 0},
    {"alone, more than is put together at a time", 2, 17000, 16001, 1, 0, 0, 0, DISTINCT, 0},
    {"pairs of one part", 31, 500, 200, 2, 0, 0, 0, DISTINCT, 0},
    {"fours of one part", 30, 500, 200, 4, 0, 1, 1, ANY, 0},
    {"eights of one part", 20, 300, 100, 8, 0, 0, 0, FEW, 0},
    {"pairs", 31, 500, 200, 2, 1, 0, 0, DISTINCT, 0},
    {"pairs, dense", 4, 8192, 4096, 2, 1, 0, 0, ANY, 0},
    {"pairs, the last rows", 7, 8200, 64, 2, 1, 0, 0, LAST, 0},
    {"fours", 31, 2000, 300, 4, 1, 2, 1, NEIGHBOURS, 0},
    {"eights, few rows", 20, 300, 100, 8, 1, 1, 0, FEW, 0},
    {"eights, more than is put together at a time", 9, 14000, 3000, 8, 1, 0, 0, DISTINCT, 0},
    {"fours, windows", 7, 60000, 300, 4, 1, 0, 1, ANY, 0},
    {"pairs, windows of full words", 3, 65536, 500, 2, 1, 0, 0, LAST, 0},
    {"pairs, windows, rows again", 5, 33000, 300, 2, 1, 0, 0, FEW, 0},
    {"far apart", 5, 300, 100, 2, 1, 0, 0, DISTINCT, 1},
    {"no rows", 20, 0, 33, 2, 1, 0, 0, ANY, 0},
    {"nothing valid", 20, 100, 64, 4, 1, 0, 0, NONE, 0},
};

/* Beyond the emulator's patience. */
static const struct shape large_shapes[] = {
    {"8192 queries in pairs", 8192, 8192, 2048, 2, 1, 0, 0, DISTINCT, 0},
    {"8192 queries in eights", 8192, 131072, 2048, 8, 1, 0, 0, ANY, 0},
    {"a long row", 3, 3000000, 1000000, 2, 1, 0, 0, ANY, 0},
};

/* A problem's arrays on the host, and the kernel's arguments with pointers to them and to the
 * device's. */
struct problem {
    const struct shape *shape;
    struct indexer_bwd_lists_params host, device;
    void *memory[MEMORIES]; /* the device's */
    int memories;
};

struct test {
    smelt_context *context;
    const struct smelt__kernel *kernel;
    struct random random;
    struct alone_counts counts;
};

/* ---- problems -------------------------------------------------------------------------------- */

static int draw_masked(struct random *random, int rows) {
    const int masked[] = {-1, rows, INT_MIN, INT_MAX, rows + 1};
    return masked[random_below(random, 5)];
}

static int draw_slot(struct random *random, const struct shape *shape, int query, int slot) {
    const int rows = shape->rows, width = shape->width, step = rows / width;
    if (rows == 0 || shape->fill == NONE)
        return draw_masked(random, rows);
    switch (shape->fill) {
    case ONE:
        return 0;
    case LAST:
        return rows - 1 - random_below(random, rows < 2 * width ? rows : 2 * width);
    case FEW:
        return random_below(random, 5) ? random_below(random, rows < 9 ? rows : 9) * (rows / 9)
                                       : draw_masked(random, rows);
    case NEIGHBOURS: /* in an order of its own, a few rows of its own */
        return random_below(random, 10)
                   ? (int)((slot * 7LL + query) % (rows < width ? rows : width))
                   : random_below(random, rows);
    case DISTINCT:
        if (random_below(random, 6) == 0)
            return draw_masked(random, rows);
        return step > 0 ? (int)((slot * 5LL % width) * step + query % step) : slot % rows;
    default:
        return random_below(random, 4) ? random_below(random, rows) : draw_masked(random, rows);
    }
}

static int is_masked(const struct indexer_bwd_lists_params *host, int query, int slot) {
    const int index = host->indices[query * host->indices_token_stride + slot];
    const int length =
        host->topk_length ? host->topk_length[query * host->topk_length_token_stride] : host->width;
    return slot >= length || index < 0 || index >= host->rows;
}

/* Index rows, whose gaps hold a valid index, and their gradients: NaN where nobody may look. */
static void fill_slots(struct random *random, struct problem *problem) {
    const struct shape *shape = problem->shape;
    struct indexer_bwd_lists_params *host = &problem->host;
    const int stride = shape->width + shape->padding;
    const int odd[] = {-7, 0, INT_MAX, INT_MIN, shape->width};
    int *indices = take((size_t)shape->tokens * (size_t)stride * sizeof *indices);
    int *lengths = shape->lengths ? take((size_t)shape->tokens * sizeof *lengths) : NULL;
    float *grad = take((size_t)shape->tokens * (size_t)stride * sizeof *grad);
    host->indices = indices;
    host->topk_length = lengths;
    host->grad = grad;
    host->indices_token_stride = host->grad_token_stride = stride;
    host->topk_length_token_stride = 1;
    for (int query = 0; query < shape->tokens; query++) {
        if (lengths)
            lengths[query] = random_below(random, 3) ? random_below(random, shape->width)
                                                     : odd[random_below(random, 5)];
        for (int slot = 0; slot < stride; slot++) {
            const int64_t at = (int64_t)query * stride + slot;
            indices[at] = slot < shape->width ? draw_slot(random, shape, query, slot) : 0;
            grad[at] = slot < shape->width && !is_masked(host, query, slot)
                           ? (float)(1 + random_below(random, 1000)) / 7.0F
                           : NAN;
        }
    }
}

static size_t list_slots(const struct indexer_bwd_lists_params *host) {
    return (size_t)host->groups * (size_t)host->key_stride;
}

static size_t member_count(const struct indexer_bwd_lists_params *host) {
    return (size_t)host->groups * (size_t)host->group_queries;
}

static void *poisoned(size_t bytes) {
    return memset(take(bytes), POISON, bytes);
}

static void make_problem(struct random *random, const struct shape *shape,
                         struct problem *problem) {
    const int members = shape->group_queries;
    memset(problem, 0, sizeof *problem);
    problem->shape = shape;
    struct indexer_bwd_lists_params *host = &problem->host;
    host->tokens = shape->tokens;
    host->rows = shape->rows;
    host->width = shape->width;
    host->group_queries = members;
    host->groups = (shape->tokens + members - 1) / members;
    host->key_stride = (shape->width * members + LIST_STEP - 1) / LIST_STEP * LIST_STEP +
                       LIST_STEP * random_below(random, 2);
    fill_slots(random, problem);
    host->members = poisoned(member_count(host) * sizeof(int));
    host->counts = poisoned((size_t)host->groups * sizeof(int));
    host->runs = shape->runs ? poisoned(2 * (size_t)host->groups * sizeof(int)) : NULL;
    host->keys = poisoned(list_slots(host) * sizeof(int));
    host->grads = poisoned(list_slots(host) * (size_t)members * sizeof(float));
}

static void free_problem(struct test *test, struct problem *problem) {
    const struct indexer_bwd_lists_params *host = &problem->host;
    const void *arrays[] = {host->indices, host->topk_length, host->grad, host->members,
                            host->counts,  host->runs,        host->keys, host->grads};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free((void *)(uintptr_t)arrays[i]);
    for (int i = 0; i < problem->memories; i++)
        smelt_device_free(test->context, problem->memory[i]);
}

/* ---- the reference --------------------------------------------------------------------------- */

/* What a group's members name: [rows] bits of members, [group_queries, rows] sums. */
struct named {
    unsigned char *masks;
    float *sums;
};

static void read_members(const struct indexer_bwd_lists_params *host, int group,
                         struct named *named) {
    memset(named->masks, 0, (size_t)host->rows);
    for (int member = 0; member < host->group_queries; member++) {
        const int64_t query = (int64_t)group * host->group_queries + member;
        host->members[query] = query < host->tokens ? (int)query : -1;
        for (int slot = 0; slot < host->width && query < host->tokens; slot++) {
            if (is_masked(host, (int)query, slot))
                continue;
            const int key = host->indices[query * host->indices_token_stride + slot];
            const float grad = host->grad[query * host->grad_token_stride + slot];
            float *const sum = &named->sums[(int64_t)member * host->rows + key];
            *sum = (named->masks[key] >> member & 1 ? *sum : 0.0F) + grad;
            named->masks[key] |= (unsigned char)(1 << member);
        }
    }
}

/* Of which part of a list a key is, by the members that have it. */
static int part_of(const struct indexer_bwd_lists_params *host, int mask) {
    const int half = host->group_queries / 2, first = mask & ((1 << half) - 1);
    return !host->runs || !(mask >> half) ? 0 : first ? 1 : 2;
}

/* An entry of a group's list; key -1: none. */
static void put(const struct indexer_bwd_lists_params *host, int group, int place, int key,
                const struct named *named) {
    host->keys[(int64_t)group * host->key_stride + place] = key;
    for (int member = 0; member < host->group_queries; member++)
        host->grads[((int64_t)group * host->group_queries + member) * host->key_stride + place] =
            key >= 0 && named->masks[key] >> member & 1
                ? named->sums[(int64_t)member * host->rows + key]
                : 0.0F;
}

static void reference(const struct indexer_bwd_lists_params *host) {
    struct named named = {take((size_t)host->rows),
                          take((size_t)host->rows * (size_t)host->group_queries * sizeof(float))};
    for (int group = 0; group < host->groups; group++) {
        int count = 0;
        read_members(host, group, &named);
        for (int part = 0; part < PARTS; part++) {
            if (host->runs && part > 0)
                host->runs[2 * (int64_t)group + part - 1] = count;
            for (int key = 0; key < host->rows; key++)
                if (named.masks[key] && part_of(host, named.masks[key]) == part)
                    put(host, group, count++, key, &named);
        }
        host->counts[group] = count;
        for (; count % LIST_STEP; count++)
            put(host, group, count, -1, &named);
    }
    free(named.masks);
    free(named.sums);
}

/* ---- the device ------------------------------------------------------------------------------ */

/* Lists of this many entries, `lists` of them, on the device; the host's stand side by side. */
static void *make_lists(struct test *test, struct problem *problem, const char *name,
                        size_t lists) {
    void **device = &problem->memory[problem->memories++];
    const size_t bytes = lists * (size_t)problem->device.key_stride * sizeof(int);
    if (problem->shape->far)
        *device = (void *)(uintptr_t)smelt__emulator()->reserve(bytes);
    else if (!works(smelt_device_alloc(test->context, bytes, device), "alloc"))
        *device = NULL;
    if (!*device)
        exit(1);
    if (smelt__emulator())
        smelt__emulator()->name((uint64_t)(uintptr_t)*device, name);
    return *device;
}

/* A copy on the device; null of null. */
static void *copy(struct test *test, struct problem *problem, const char *name, const void *host,
                  size_t bytes) {
    void **device = &problem->memory[problem->memories];
    if (!host)
        return NULL;
    problem->memories++;
    if (!upload(test->context, name, host, bytes, device))
        exit(1);
    return *device;
}

static void place_problem(struct test *test, struct problem *problem) {
    const struct indexer_bwd_lists_params *host = &problem->host;
    struct indexer_bwd_lists_params *device = &problem->device;
    const size_t tokens = (size_t)host->tokens;
    *device = *host;
    if (problem->shape->far)
        device->key_stride = FAR_STRIDE;
#define COPY(field, count)                                                                         \
    device->field = copy(test, problem, #field, host->field, (size_t)(count) * sizeof *host->field)
    COPY(indices, tokens * (size_t)host->indices_token_stride);
    COPY(topk_length, tokens);
    COPY(grad, tokens * (size_t)host->grad_token_stride);
    COPY(members, member_count(host));
    COPY(counts, host->groups);
    COPY(runs, 2 * host->groups);
#undef COPY
    device->keys = make_lists(test, problem, "keys", (size_t)host->groups);
    device->grads = make_lists(test, problem, "grads", member_count(host));
}

static int poison(struct test *test, void *device, size_t bytes) {
    return works(smelt_device_fill(test->context, device, POISON, bytes), "fill");
}

/* `lists` lists, as far as the host's go. */
static int poison_lists(struct test *test, const struct problem *problem, void *device,
                        size_t lists) {
    int good = 1;
    for (size_t i = 0; i < lists && good; i++)
        good = poison(test, (int *)device + i * (size_t)problem->device.key_stride,
                      (size_t)problem->host.key_stride * sizeof(int));
    return good;
}

/* Poisons what is written, runs. */
static int run_kernel(struct test *test, const struct problem *problem, uint32_t blocks) {
    const struct indexer_bwd_lists_params *params = &problem->device;
    const size_t groups = (size_t)params->groups;
    const struct smelt__launch launch = {.blocks = {blocks}, .params = params};
    return poison(test, params->members, member_count(params) * sizeof(int)) &&
           poison(test, params->counts, groups * sizeof(int)) &&
           (!params->runs || poison(test, params->runs, 2 * groups * sizeof(int))) &&
           poison_lists(test, problem, params->keys, groups) &&
           poison_lists(test, problem, params->grads, member_count(params)) &&
           works(smelt_stream_synchronize(test->context, NULL), "synchronize") &&
           works(smelt__kernel_launch(test->context, test->kernel, &launch, NULL), "launch") &&
           works(smelt_stream_synchronize(test->context, NULL), "synchronize");
}

/* ---- judging --------------------------------------------------------------------------------- */

static int same_lists(struct test *test, const struct problem *problem, const char *what,
                      const void *device, const void *wanted, size_t lists) {
    const size_t count = (size_t)problem->host.key_stride;
    int good = 1;
    for (size_t i = 0; i < lists && good; i++)
        good = same_words(test->context, what,
                          (const int *)device + i * (size_t)problem->device.key_stride,
                          (const int *)wanted + i * count, count);
    return good;
}

static int judge(struct test *test, const struct problem *problem) {
    const struct indexer_bwd_lists_params *device = &problem->device, *host = &problem->host;
    const size_t groups = (size_t)host->groups;
    return same_words(test->context, "members", device->members, host->members,
                      member_count(host)) &&
           same_words(test->context, "counts", device->counts, host->counts, groups) &&
           (!host->runs ||
            same_words(test->context, "runs", device->runs, host->runs, 2 * groups)) &&
           same_lists(test, problem, "keys", device->keys, host->keys, groups) &&
           same_lists(test, problem, "grads", device->grads, host->grads, member_count(host));
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void check(struct test *test, const struct shape *shape) {
    if (test->counts.failures == MOST_FAILURES || (shape->far && !smelt__emulator()))
        return;
    struct problem problem;
    const uint64_t seed = test->random.state;
    const char *const arch = smelt_context_arch(test->context);
    make_problem(&test->random, shape, &problem);
    place_problem(test, &problem);
    reference(&problem.host);
    const int schedules = schedules_to_run(SCHEDULES, 2);
    int good = 1;
    for (int i = 0; i < schedules && good; i++) {
        const uint32_t blocks = i == 1 ? 2 : (uint32_t)problem.host.groups;
        smelt__emulator_configure(arch, smelt__schedule_at(seed, i + test->counts.cases % 2), 0);
        good = run_kernel(test, &problem, blocks) && judge(test, &problem);
    }
    test->counts.cases++;
    test->counts.failures += !good;
    if (!good)
        printf("FAILED %s on %s: %d queries, %d rows, width %d + %d, %d queries a group, runs %d, "
               "lengths %d, fill %d; random state %llu\n",
               shape->name, arch, shape->tokens, shape->rows, shape->width, shape->padding,
               shape->group_queries, shape->runs, shape->lengths, (int)shape->fill,
               (unsigned long long)seed);
    free_problem(test, &problem);
}

static struct shape draw_shape(struct random *random) {
    const int large = smelt__emulator() == NULL, group = 1 << random_below(random, 4);
    return (struct shape){.name = "a random shape",
                          .tokens = 1 + random_below(random, large ? 5000 : 30),
                          .rows = random_below(random, random_below(random, 2) ? 100 : 60000),
                          .width = 1 + random_below(random, random_below(random, 2) ? 40 : 600),
                          .group_queries = group,
                          .runs = group > 1 && random_below(random, 2),
                          .padding = random_below(random, 2) ? random_below(random, 9) : 0,
                          .lengths = random_below(random, 2),
                          .fill = (enum fill)random_below(random, FILLS)};
}

static int run(void *user, int listed, int random_cases) {
    struct test *const test = user;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_DEVICE;
    if (!works(smelt_context_create(&test->context, &options), "context"))
        return 0;
    const int good = get_kernel(test->context, "indexer_bwd_lists", &test->kernel);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && listed && good; i++)
        check(test, &shapes[i]);
    for (size_t i = 0; i < sizeof large_shapes / sizeof *large_shapes && good && !smelt__emulator();
         i++)
        check(test, &large_shapes[i]);
    for (int i = 0; i < random_cases && good; i++) {
        const struct shape shape = draw_shape(&test->random);
        check(test, &shape);
    }
    smelt_context_destroy(&test->context);
    return good;
}

int main(int argc, char **argv) {
    struct test test = {.random = random_begin("gpu_indexer_lists")};
    return run_alone(argc, argv, DEFAULT_CASES, run, &test, &test.counts);
}
