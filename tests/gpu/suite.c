#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int is_collecting(const struct suite *suite) {
    return suite->sample && !sample_is_complete(suite->sample);
}

/* The spec in a case's name: the word that contains `=`. The whole name if there is none. */
static const char *spec_of(const char *name, char spec[SUITE_SPEC]) {
    const char *begin = strchr(name, '=');
    if (!begin)
        return name;
    while (begin > name && begin[-1] != ' ')
        begin--;
    const int length = (int)strcspn(begin, " ");
    snprintf(spec, SUITE_SPEC, "%.*s", begin[length - 1] == ',' ? length - 1 : length, begin);
    return spec;
}

/* Cases of one spec are in one part, so that no two parts compile its kernels at the same time. */
int suite_has(const struct suite *suite, const char *name) {
    const uint64_t parts = suite->parts > 0 ? (uint64_t)suite->parts : 1;
    char spec[SUITE_SPEC];
    return (!suite->filter || strstr(name, suite->filter)) &&
           sample_ticket(spec_of(name, spec), 0) % parts == (uint64_t)suite->part &&
           (!suite->sample || is_collecting(suite) || sample_has(suite->sample, suite->op, name));
}

int suite_wants(struct suite *suite, const char *name) {
    if (!suite_has(suite, name))
        return 0;
    if (is_collecting(suite)) {
        if (sample_add(suite->sample, suite->op, name) != 0)
            suite_report(suite, name, "out of memory");
        return 0;
    }
    if (suite->list)
        puts(name);
    return !suite->list;
}

void suite_report(struct suite *suite, const char *name, const char *message) {
    int failed = message && message[0];
    suite->failed += failed;
    suite->passed += !failed;
    if (failed)
        printf("FAILED %s: %s\n", name, message);
    else if (suite->verbose)
        printf("ok     %s\n", name);
    else if (suite->passed % 50 == 0)
        printf("       %d passed so far\n", suite->passed);
    fflush(stdout);
}

void suite_skip(struct suite *suite, const char *name, const char *reason) {
    if (is_collecting(suite) || !suite_wants(suite, name))
        return;
    suite->skipped++;
    printf("skipped %s: %s\n", name, reason);
}

int suite_ok(smelt_status status, const char *call, char *message, size_t size) {
    const struct emu_interface *emulator = smelt__emulator();
    if (status == SMELT_OK)
        return 0;
    if (emulator && emulator->report_count() > 0) {
        struct emu_report report = emulator->report(0);
        snprintf(message, size, "%s: %s: %s", call, emulator->kind_name(report.kind), report.text);
        return -1;
    }
    snprintf(message, size, "%s: %s: %s", call, smelt_status_name(status),
             smelt__harness_reason(status));
    return -1;
}

/* Whether suite->knobs apply to a spec: every variant supports its value width. */
static int takes_knobs(const struct suite *suite, const char *spec) {
    return suite->knobs && strstr(spec, ",dv=512,") != NULL;
}

/* Makes the operator; a spec with knobs keeps them. */
static int open_object(struct workload *workload, struct suite *suite, const char *spec,
                       char *message, size_t size) {
    if (suite_ok(smelt__harness_spec_parse(&workload->spec, spec), "spec_parse", message, size))
        return -1;
    char text[512];
    const int knobs = takes_knobs(suite, spec) && !*workload->spec.knobs;
    snprintf(text, sizeof text, "%s%s%s", workload->spec.text, knobs ? "," : "",
             knobs ? suite->knobs : "");
    workload->pass = smelt__harness_spec_pass(&workload->spec, 0);
    return suite_ok(smelt_operator_create(&workload->object, suite->context, text), "create",
                    message, size);
}

int workload_open(struct workload *workload, struct suite *suite, const char *spec,
                  const struct smelt__problem_options *options, char *message, size_t size) {
    memset(workload, 0, sizeof *workload);
    if (open_object(workload, suite, spec, message, size) == 0) {
        if (smelt__problem_create(&workload->problem, workload->spec.op, workload->pass,
                                  workload->spec.spec, options) != 0)
            snprintf(message, size, "out of memory while making the problem");
        else if (suite_ok(
                     smelt__placed_create(&workload->placed, suite->context, &workload->problem),
                     "placing the problem", message, size) == 0 &&
                 suite_ok(smelt__placed_workspace(&workload->placed, workload->object), "workspace",
                          message, size) == 0)
            return 0;
    }
    workload_close(workload);
    return -1;
}

void workload_close(struct workload *workload) {
    if (workload->placed.context)
        smelt__placed_destroy(&workload->placed);
    if (workload->problem.op)
        smelt__problem_destroy(&workload->problem);
    if (workload->object)
        smelt_operator_destroy(&workload->object);
    smelt__harness_spec_free(&workload->spec);
}

void workload_judge(struct workload *workload, char *message, size_t size) {
    struct smelt__check_result result;
    memset(&result, 0, sizeof result);
    smelt__check_compare(&workload->placed, 16, &result);
    snprintf(message, size, "%s", result.passed ? "" : result.message);
}

void suite_check(struct suite *suite, const char *name, const struct suite_case *one,
                 int schedule) {
    const struct smelt__schedule chosen = smelt__schedule_at(one->problem.seed, schedule);
    const struct smelt__check_options options = {.spec = one->spec,
                                                 .problem = one->problem,
                                                 .sample = one->sample,
                                                 .schedules = &chosen,
                                                 .schedule_count = 1};
    struct smelt__check_result result;
    smelt__check_run(suite->context, &options, &result);
    suite_report(suite, name, result.passed ? NULL : result.message);
}

void suite_check_all(struct suite *suite, const char *group, suite_cases next) {
    const int hopper = strcmp(smelt_context_arch(suite->context), "sm_90a") == 0;
    struct suite_case one = {0};
    for (int i = 0; next(suite, i, &one); i++, one = (struct suite_case){0}) {
        char name[SUITE_SPEC + 32];
        snprintf(name, sizeof name, "%s: %s", group, one.spec);
        if (!hopper && strstr(one.spec, "variant=sm90"))
            suite_skip(suite, name, "a kernel for sm_90a");
        else if (suite_wants(suite, name))
            suite_check(suite, name, &one, i);
    }
}

static void log_line(void *user, smelt_log_level level, const char *message) {
    (void)user, (void)level;
    fprintf(stderr, "smelt: %s\n", message);
}

static int usage(void) {
    fputs(
        "usage: gpu_suite [--quick] [--list] [--group NAME]... [--except NAME]... [--filter TEXT]\n"
        "                 [--sample N] [--part I/N] [--seed N] [--verbose] [--device N] "
        "[--without-driver] "
        "[--schedule NAME]\n"
        "                 [--knobs TEXT]\n"
        "SMELT_CUDA and SMELT_NVRTC naming the emulator, it runs there; --schedule is for it.\n",
        stderr);
    return 2;
}

/* Groups of every operator; the operators' own groups follow. */
static const struct suite_group groups[] = {
    {"matrix", run_matrix}, {"launches", run_launches},       {"large", run_large},
    {"far", run_far},       {"repetitions", run_repetitions}, {"nonfinite", run_nonfinite},
};
enum { GROUPS = sizeof groups / sizeof groups[0], MOST_CHOSEN = 32 };

/* Group number `number` and its operator; NULL past the last. */
static const struct suite_group *group_at(int number, int *op) {
    *op = 0;
    if (number < GROUPS)
        return &groups[number];
    number -= GROUPS;
    for (; suite_operators[*op]; ++*op)
        for (const struct suite_group *group = suite_operators[*op]->groups; group && group->name;
             group++)
            if (number-- == 0)
                return group;
    return NULL;
}

/* Command-line arguments that are not in struct suite. */
struct choice {
    int device;
    /* Names of groups; several operators may have a group of the same name. Without `groups`: all
     * except `others`. */
    const char *groups[MOST_CHOSEN], *others[MOST_CHOSEN];
    int group_count, other_count;
    size_t sample;
    struct smelt__schedule schedule;
};

static int read_group(const char **names, int *count, const char *name) {
    const struct suite_group *group;
    for (int i = 0, op; (group = group_at(i, &op)) != NULL && *count < MOST_CHOSEN; i++)
        if (strcmp(group->name, name) == 0) {
            names[(*count)++] = name;
            return 0;
        }
    fprintf(stderr, "gpu_suite: no group '%s'\n", name);
    return -1;
}

static int is_among(const char *const *names, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return 1;
    return 0;
}

static int is_chosen(const struct choice *choice, const struct suite_group *group) {
    return (choice->group_count == 0 ||
            is_among(choice->groups, choice->group_count, group->name)) &&
           !is_among(choice->others, choice->other_count, group->name);
}

static int read_schedule(struct choice *choice, const char *text) {
    char message[256];
    if (smelt__schedule_parse(text, &choice->schedule, message, sizeof message) == 0)
        return 0;
    fprintf(stderr, "gpu_suite: %s\n", message);
    return -1;
}

/* The field of an option without a value, or NULL. */
static int *find_flag(struct suite *suite, const char *name) {
    struct {
        const char *name;
        int *flag;
    } const flags[] = {{"--quick", &suite->quick},
                       {"--list", &suite->list},
                       {"--verbose", &suite->verbose},
                       {"--without-driver", &suite->without_driver}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(name, flags[i].name) == 0)
            return flags[i].flag;
    return NULL;
}

/* "0/4": the first of four. */
static int read_part(struct suite *suite, const char *text) {
    return sscanf(text, "%d/%d", &suite->part, &suite->parts) == 2 && suite->part >= 0 &&
                   suite->part < suite->parts
               ? 0
               : -1;
}

static int read_option(struct suite *suite, struct choice *choice, const char *name,
                       const char *value) {
    if (strcmp(name, "--filter") == 0)
        suite->filter = value;
    else if (strcmp(name, "--knobs") == 0)
        suite->knobs = value;
    else if (strcmp(name, "--seed") == 0)
        suite->seed = strtoull(value, NULL, 0);
    else if (strcmp(name, "--device") == 0)
        choice->device = atoi(value);
    else if (strcmp(name, "--sample") == 0 && atoi(value) > 0)
        choice->sample = (size_t)atoi(value);
    else if (strcmp(name, "--part") == 0)
        return read_part(suite, value);
    else if (strcmp(name, "--group") == 0)
        return read_group(choice->groups, &choice->group_count, value);
    else if (strcmp(name, "--except") == 0)
        return read_group(choice->others, &choice->other_count, value);
    else
        return strcmp(name, "--schedule") == 0 ? read_schedule(choice, value) : -1;
    return 0;
}

static int read_arguments(struct suite *suite, struct choice *choice, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        int *flag = find_flag(suite, argv[i]);
        if (flag) {
            *flag = 1;
            continue;
        }
        if (i + 1 == argc || read_option(suite, choice, argv[i], argv[i + 1]) != 0)
            return -1;
        i++;
    }
    return 0;
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void run_groups(struct suite *suite, const struct choice *choice) {
    const struct suite_group *group;
    for (int i = 0; (group = group_at(i, &suite->op)) != NULL; i++) {
        if (!is_chosen(choice, group))
            continue;
        double begin = seconds_now();
        int passed = suite->passed, failed = suite->failed;
        group->run(suite);
        if (!suite->list && suite->passed + suite->failed > passed + failed)
            printf("%-10s %4d passed, %d failed, %.1f s\n", group->name, suite->passed - passed,
                   suite->failed - failed, seconds_now() - begin);
    }
}

/* Collects the names of all cases and draws a sample. */
static int draw_cases(struct suite *suite, const struct choice *choice) {
    const int list = suite->list;
    suite->sample = sample_create(choice->sample, suite->seed);
    if (!suite->sample)
        return -1;
    suite->list = 1; /* nothing runs */
    run_groups(suite, choice);
    suite->list = list;
    sample_draw(suite->sample);
    return suite->failed ? -1 : 0;
}

static int open_device(struct suite *suite, const struct choice *choice) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    smelt_device_info info = SMELT_DEVICE_INFO_INIT;
    char message[1024];
    options.kind = SMELT_CONTEXT_DEVICE;
    options.device = choice->device;
    options.log = log_line;
    options.cache_disable = suite->emulated; /* these are not cubins, and may be edited */
    smelt__emulator_configure("sm_90a", choice->schedule, 0);
    if (suite_ok(smelt_context_create(&suite->context, &options), "context_create", message,
                 sizeof message) != 0 ||
        suite_ok(smelt_device_get_info(suite->context, &info), "device_get_info", message,
                 sizeof message) != 0) {
        fprintf(stderr, "gpu_suite: %s\n", message);
        return -1;
    }
    printf("%s, %s, seed %llu\n", info.name, smelt_context_arch(suite->context),
           (unsigned long long)suite->seed);
    return 0;
}

int main(int argc, char **argv) {
    struct suite suite = {.seed = 1, .emulated = smelt__emulator() != NULL};
    struct choice choice = {0};
    const char *seed = getenv("SMELT_TEST_SEED");
    if (seed)
        suite.seed = strtoull(seed, NULL, 0);
    if (read_arguments(&suite, &choice, argc, argv) != 0)
        return usage();
    /* The set of cases depends on the device. */
    int failed = (!suite.list && open_device(&suite, &choice) != 0) ||
                 (choice.sample && draw_cases(&suite, &choice) != 0);
    if (!failed)
        run_groups(&suite, &choice);
    smelt_context_destroy(&suite.context);
    sample_destroy(suite.sample);
    if (failed)
        return 3;
    if (!suite.list)
        printf("%d passed, %d failed, %d skipped\n", suite.passed, suite.failed, suite.skipped);
    return suite.failed > 0;
}
