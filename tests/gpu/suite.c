#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int suite_wants(const struct suite *suite, const char *name) {
    if (suite->filter && !strstr(name, suite->filter))
        return 0;
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
    if (!suite_wants(suite, name))
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
    snprintf(message, size, "%s: %s: %s", call, smelt_status_name(status), smelt_last_error());
    return -1;
}

int suite_takes_knobs(const struct suite *suite, const char *spec) {
    return suite->knobs && strstr(spec, ",dv=512,") != NULL;
}

/* The operator; a spec that names knobs itself keeps to those. */
static int open_object(struct workload *workload, struct suite *suite, const char *spec,
                       char *message, size_t size) {
    if (suite_ok(smelt__harness_spec_parse(&workload->spec, spec), "spec_parse", message, size))
        return -1;
    const struct smelt__harness_operator *op = workload->spec.op;
    if (suite_takes_knobs(suite, spec) && !workload->spec.knobs)
        memcpy((char *)workload->spec.spec + op->knobs_field, &suite->knobs, sizeof suite->knobs);
    workload->pass = smelt__harness_spec_pass(&workload->spec, 0);
    return suite_ok(op->create(&workload->object, suite->context, workload->spec.spec), "create",
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
        workload->spec.op->destroy(&workload->object);
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

static void log_line(void *user, smelt_log_level level, const char *message) {
    (void)user, (void)level;
    fprintf(stderr, "smelt: %s\n", message);
}

static int usage(void) {
    fputs("usage: gpu_suite [--quick] [--list] [--group NAME]... [--filter TEXT] [--seed N]\n"
          "                 [--verbose] [--device N] [--without-driver] [--schedule NAME]\n"
          "                 [--knobs TEXT]\n"
          "SMELT_CUDA and SMELT_NVRTC naming the emulator, it runs there; --schedule is for it.\n",
          stderr);
    return 2;
}

/* Those of every operator; the operators' own follow. */
static const struct suite_group groups[] = {
    {"matrix", run_matrix}, {"launches", run_launches}, {"large", run_large}, {"far", run_far}};
enum { GROUPS = sizeof groups / sizeof groups[0], MOST_CHOSEN = 32 };

/* Group number `number`; NULL past the last. */
static const struct suite_group *group_at(int number) {
    if (number < GROUPS)
        return &groups[number];
    number -= GROUPS;
    for (int i = 0; suite_operators[i]; i++)
        for (const struct suite_group *group = suite_operators[i]->groups; group->name; group++)
            if (number-- == 0)
                return group;
    return NULL;
}

/* What the command line says beside the suite itself. */
struct choice {
    int device;
    const char *groups[MOST_CHOSEN]; /* names; several operators may have one of a name */
    int group_count;
    struct smelt__schedule schedule;
};

static int read_group(struct choice *choice, const char *name) {
    const struct suite_group *group;
    for (int i = 0; (group = group_at(i)) != NULL && choice->group_count < MOST_CHOSEN; i++)
        if (strcmp(group->name, name) == 0) {
            choice->groups[choice->group_count++] = name;
            return 0;
        }
    fprintf(stderr, "gpu_suite: no group '%s'\n", name);
    return -1;
}

static int is_chosen(const struct choice *choice, const struct suite_group *group) {
    for (int i = 0; i < choice->group_count; i++)
        if (strcmp(choice->groups[i], group->name) == 0)
            return 1;
    return choice->group_count == 0;
}

static int read_schedule(struct choice *choice, const char *text) {
    char message[256];
    if (smelt__schedule_parse(text, &choice->schedule, message, sizeof message) == 0)
        return 0;
    fprintf(stderr, "gpu_suite: %s\n", message);
    return -1;
}

static int read_arguments(struct suite *suite, struct choice *choice, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--quick") == 0)
            suite->quick = 1;
        else if (strcmp(argv[i], "--list") == 0)
            suite->list = 1;
        else if (strcmp(argv[i], "--verbose") == 0)
            suite->verbose = 1;
        else if (strcmp(argv[i], "--without-driver") == 0)
            suite->without_driver = 1;
        else if (strcmp(argv[i], "--filter") == 0 && value)
            suite->filter = argv[++i];
        else if (strcmp(argv[i], "--knobs") == 0 && value)
            suite->knobs = argv[++i];
        else if (strcmp(argv[i], "--seed") == 0 && value)
            suite->seed = strtoull(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--device") == 0 && value)
            choice->device = atoi(argv[++i]);
        else if (strcmp(argv[i], "--group") == 0 && value) {
            if (read_group(choice, argv[++i]) != 0)
                return -1;
        } else if (strcmp(argv[i], "--schedule") != 0 || !value ||
                   read_schedule(choice, argv[++i]) != 0)
            return -1;
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
    for (int i = 0; (group = group_at(i)) != NULL; i++) {
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

static int open_device(struct suite *suite, const struct choice *choice) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    smelt_device_info info = SMELT_DEVICE_INFO_INIT;
    char message[1024];
    options.kind = SMELT_CONTEXT_DEVICE;
    options.device = choice->device;
    options.log = log_line;
    options.cache_disable = suite->emulated; /* no cubins, and perhaps edited ones */
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
    int failed = !suite.list && open_device(&suite, &choice) != 0;
    if (!failed)
        run_groups(&suite, &choice);
    smelt_context_destroy(&suite.context);
    if (failed)
        return 3;
    if (!suite.list)
        printf("%d passed, %d failed, %d skipped\n", suite.passed, suite.failed, suite.skipped);
    return suite.failed > 0;
}
