/*
 * The micro-kernels: a small kernel for each wrapper of templates/ptx, and two small pipelines of
 * wrappers. The emulator must give the results that were recorded on an H200.
 *
 *     micro --record FILE               run all cases and write their results
 *     micro --replay FILE               run them and compare
 *           [--case TEXT]               those whose name holds TEXT
 *           [--schedules N] [--seed S]  on the emulator: under so many schedules each (default 4)
 *     micro --compile                   compile every kernel for sm_90a; no GPU needed
 *     micro --list                      the cases' names
 *     micro --emit NAME                 a case's CUDA text
 *
 * Uses the driver and NVRTC that SMELT_CUDA and SMELT_NVRTC name, or the machine's. Exit status: 0,
 * 1 when a case failed, 2 for a usage error, 77 (meson: skipped) when --compile finds no NVRTC.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "results.h"

enum { SKIPPED = 77, SCHEDULES = 4 };

struct choice {
    const char *record, *replay, *only, *emit;
    int compile, list, schedules;
    unsigned long long seed;
};

struct tally {
    size_t cases, same, within, failed;
};

static int is_chosen(const struct choice *choice, const struct micro_case *one) {
    return !choice->only || strstr(one->name, choice->only) != NULL;
}

/* ---- the emulator's schedules ---------------------------------------------------------------- */

/* Late, early, then random. */
static void set_schedule(const struct choice *choice, int number) {
    struct emu_settings settings = {.size = sizeof settings, .major = 9};
    settings.timing = number == 0 ? EMU_LATE : number == 1 ? EMU_EARLY : EMU_RANDOM;
    settings.order = number == 0 ? EMU_ASCENDING : number == 1 ? EMU_DESCENDING : EMU_SHUFFLED;
    settings.seed = choice->seed + (unsigned long long)number;
    micro_emulator()->configure(&settings);
    micro_emulator()->clear();
}

static void print_reports(const struct micro_case *one, int schedule) {
    const struct emu_interface *emulator = micro_emulator();
    for (size_t i = 0; i < emulator->report_count(); i++) {
        struct emu_report report = emulator->report(i);
        fprintf(stderr, "%s: schedule %d: %s: %s\n", one->name, schedule,
                emulator->kind_name(report.kind), report.text);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static enum verdict worse(enum verdict a, enum verdict b) {
    return a > b ? a : b;
}

/* One case under every schedule, or once on a GPU. */
static enum verdict replay_case(const struct choice *choice, struct results *results,
                                const struct micro_case *one, void *out) {
    enum verdict verdict = SAME_BITS;
    int schedules = micro_emulator() ? choice->schedules : 1;
    for (int i = 0; i < schedules && verdict != DIFFERENT; i++) {
        if (micro_emulator())
            set_schedule(choice, i);
        if (micro_run(one, out)) {
            if (micro_emulator())
                print_reports(one, i);
            verdict = DIFFERENT;
        } else {
            verdict = worse(verdict, results_compare(results, one, out));
        }
        if (verdict == DIFFERENT && micro_emulator())
            fprintf(stderr, "%s: schedule %d of seed %llu\n", one->name, i, choice->seed);
    }
    return verdict;
}

static int run_case(const struct choice *choice, struct results *results,
                    const struct micro_case *one, struct tally *tally) {
    void *out = malloc(one->out_bytes);
    enum verdict verdict = DIFFERENT;
    if (!out)
        return -1;
    if (choice->replay)
        verdict = replay_case(choice, results, one, out);
    else if (micro_run(one, out) == 0 && results_add(results, one, out) == 0)
        verdict = SAME_BITS;
    tally->cases++;
    tally->same += verdict == SAME_BITS;
    tally->within += verdict == WITHIN;
    tally->failed += verdict == DIFFERENT;
    if (verdict == DIFFERENT)
        fprintf(stderr, "FAILED: %s\n", one->name);
    free(out);
    return 0;
}

static int run_cases(const struct choice *choice) {
    struct tally tally = {0, 0, 0, 0};
    struct results *results = results_read(choice->replay);
    FILE *record = choice->record && results ? fopen(choice->record, "w") : NULL;
    size_t count;
    const struct micro_case *cases = micro_cases(&count);
    int status = 1;
    if (!results)
        return 1;
    if (choice->record && !record) {
        fprintf(stderr, "micro: %s cannot be written\n", choice->record);
        goto out;
    }
    if (micro_open(1))
        goto out;
    printf("%s, seed %llu\n", micro_description(), choice->seed);
    for (size_t i = 0; i < count; i++)
        if (is_chosen(choice, &cases[i]) && run_case(choice, results, &cases[i], &tally))
            goto out;
    if (choice->replay && !choice->only && results_unused(results)) {
        fprintf(stderr, "%s: recorded, but there is no such case: record them again\n",
                results_unused(results));
        tally.failed++;
    }
    if (record) {
        fprintf(record, "# Recorded by micro --record on %s.\n", micro_description());
        results_write(results, record);
    }
    printf("%zu cases: %zu %s, %zu within tolerance, %zu failed\n", tally.cases, tally.same,
           record ? "recorded" : "bit for bit", tally.within, tally.failed);
    status = tally.failed > 0 || tally.cases == 0;
out:
    micro_close();
    results_free(results);
    if (record && fclose(record))
        status = 1;
    return status;
}

static int compile_cases(const struct choice *choice) {
    size_t count, failed = 0;
    const struct micro_case *cases = micro_cases(&count);
    if (micro_open(0))
        return SKIPPED;
    for (size_t i = 0; i < count; i++)
        if (is_chosen(choice, &cases[i]))
            failed += micro_compile(&cases[i]) != 0;
    printf("%s: %zu cases, %zu failed to compile\n", micro_description(), count, failed);
    micro_close();
    return failed > 0;
}

static int emit_case(const char *name) {
    size_t count;
    const struct micro_case *cases = micro_cases(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(cases[i].name, name) == 0) {
            char *source = micro_source(&cases[i]);
            if (source)
                fputs(source, stdout);
            free(source);
            return source ? 0 : 1;
        }
    fprintf(stderr, "micro: there is no case '%s'; micro --list names them\n", name);
    return 2;
}

static int list_cases(const struct choice *choice) {
    size_t count;
    const struct micro_case *cases = micro_cases(&count);
    for (size_t i = 0; i < count; i++)
        if (is_chosen(choice, &cases[i]))
            puts(cases[i].name);
    return 0;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static int usage(void) {
    fprintf(stderr,
            "usage: micro --record FILE | --replay FILE | --compile | --list | --emit NAME\n"
            "             [--case TEXT] [--schedules N] [--seed S]\n");
    return 2;
}

static int read_arguments(int argc, char **argv, struct choice *choice) {
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(option, "--compile") == 0) {
            choice->compile = 1;
            continue;
        }
        if (strcmp(option, "--list") == 0) {
            choice->list = 1;
            continue;
        }
        if (!value)
            return -1;
        i++;
        if (strcmp(option, "--record") == 0)
            choice->record = value;
        else if (strcmp(option, "--replay") == 0)
            choice->replay = value;
        else if (strcmp(option, "--case") == 0)
            choice->only = value;
        else if (strcmp(option, "--emit") == 0)
            choice->emit = value;
        else if (strcmp(option, "--schedules") == 0)
            choice->schedules = atoi(value);
        else if (strcmp(option, "--seed") == 0)
            choice->seed = strtoull(value, NULL, 10);
        else
            return -1;
    }
    return choice->schedules > 0 ? 0 : -1;
}

int main(int argc, char **argv) {
    struct choice choice = {.schedules = SCHEDULES, .seed = 1};
    if (read_arguments(argc, argv, &choice))
        return usage();
    if (choice.emit)
        return emit_case(choice.emit);
    if (choice.list)
        return list_cases(&choice);
    if (choice.compile)
        return compile_cases(&choice);
    return choice.record || choice.replay ? run_cases(&choice) : usage();
}
