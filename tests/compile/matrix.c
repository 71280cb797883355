/*
 * The compile matrix: compiles kernels for all architectures, without their GPUs, and compares the
 * assembler's report with the plan: no spills beyond it, no serialised wgmma, no more registers than the
 * launch bound permits, exactly the plan's shared memory.
 *
 *     matrix --full | --part I/N | --sample N [--seed S] [-j N]
 *
 * turns.h defines which architectures a kernel is compiled for; cells.h and each operator's file
 * define the kernels. A part is every N-th cell, from number I on, for machines that share the
 * work. A sample has every preset's kernels with 64 heads on sm_90a (once for all values of topk), then an equal number of
 * random cells of each family. The disk cache is not used. Exit status: 0, 1 when a cell failed, 2 for a
 * usage error, 77 (meson: skipped) without NVRTC.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cells.h"
#include "codegen/arch.h"
#include "codegen/family.h"
#include "codegen/plan/plan.h"
#include "smelt/smelt.h"
#include "turns.h"

enum { SKIPPED = 77, SLOWEST = 5, DEFAULT_SEED = 1 };

/* One kernel on one architecture. */
struct cell {
    size_t kernel;
    int arch;
    const char *spec; /* the kernel's */
    int always;       /* in every sample */
    uint64_t order;   /* order within a family: lowest first */
    size_t round;     /* order in a sample: 0 always, then one cell of each family per round */
    int planned;
    int max_registers, shared_bytes, spill_bytes; /* the plan's claims */
    char problem[256];                            /* "" if it passed */
    smelt_kernel_info info;                       /* its strings were freed with the context */
};

struct matrix {
    struct kernel_list kernels;
    unsigned supported; /* by this NVRTC: one bit per architecture */
    struct cell *cells;
    size_t count;
};

struct choice {
    size_t sample; /* 0: everything */
    size_t part, parts;
    uint64_t seed;
    int jobs;
};

/* splitmix64, from Steele, Lea and Flood, "Fast splittable pseudorandom number generators". */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

/* Finds the architectures that the NVRTC supports; it lists them without the `a`. 0, or SKIPPED. */
static int find_supported(unsigned *supported) {
    smelt_machine_report report = SMELT_MACHINE_REPORT_INIT;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.cache_disable = 1;
    smelt_status status = smelt_machine_get_report(&options, &report);
    if (status || !report.nvrtc_found) {
        printf("matrix: skipped, no NVRTC: %s\n",
               status ? smelt_last_error() : report.nvrtc_problem);
        smelt_machine_report_release(&report);
        return SKIPPED;
    }
    printf("NVRTC %d.%d, %s\n", report.nvrtc_major, report.nvrtc_minor, report.nvrtc_path);
    char listed[1024];
    snprintf(listed, sizeof listed, " %s ", report.nvrtc_archs);
    smelt_machine_report_release(&report);
    for (int a = 0; a < ARCHS; a++) {
        char name[32];
        snprintf(name, sizeof name, " %.*s ", (int)strcspn(arch_names[a], "a"), arch_names[a]);
        const int is_listed = strstr(listed, name) != NULL;
        *supported |= (unsigned)is_listed << a;
        if (!is_listed)
            printf("%s: not supported by this NVRTC, its cells are not compiled\n", arch_names[a]);
    }
    return 0;
}

static int is_common(const struct kernel_list *kernels, size_t kernel) {
    return kernels->preset[kernel] && strstr(kernels->specs[kernel], "heads=64,") != NULL;
}

/* Whether two specs have the same text apart from the value of topk. */
static int differ_only_in_topk(const char *spec, const char *other) {
    const char *a = strstr(spec, ",topk="), *b = strstr(other, ",topk=");
    if (!a || !b || a - spec != b - other || memcmp(spec, other, (size_t)(a - spec)) != 0)
        return 0;
    return strcmp(a + 1 + strcspn(a + 1, ","), b + 1 + strcspn(b + 1, ",")) == 0;
}

/* Every sample includes the presets' kernels with 64 heads on the most common architecture; of kernels that
 * differ only in topk, the first. */
static int always_sampled(const struct kernel_list *kernels, size_t kernel, const char *arch) {
    if (!is_common(kernels, kernel) || strcmp(arch, "sm_90a") != 0)
        return 0;
    for (size_t i = 0; i < kernel; i++)
        if (is_common(kernels, i) && differ_only_in_topk(kernels->specs[i], kernels->specs[kernel]))
            return 0;
    return 1;
}

static int compare_order(const void *left, const void *right) {
    const struct cell *a = left, *b = right;
    return (a->order > b->order) - (a->order < b->order);
}

static int compare_round(const void *left, const void *right) {
    const struct cell *a = left, *b = right;
    return a->round != b->round ? (a->round > b->round) - (a->round < b->round)
                                : compare_order(left, right);
}

/* The name before a spec's keys. */
static int same_family(const char *spec, const char *other) {
    const size_t length = strcspn(spec, ":");
    return strncmp(spec, other, length) == 0 && strcspn(other, ":") == length;
}

/* Sorts the cells so that the first ones are the sample. */
static void sort_by_round(struct matrix *matrix) {
    struct cell *cells = matrix->cells;
    qsort(cells, matrix->count, sizeof *cells, compare_order);
    for (size_t i = 0; i < matrix->count; i++) {
        cells[i].round = !cells[i].always;
        for (size_t j = i; j-- > 0 && cells[i].round;)
            if (!cells[j].always && same_family(cells[j].spec, cells[i].spec)) {
                cells[i].round = cells[j].round + 1;
                break;
            }
    }
    qsort(cells, matrix->count, sizeof *cells, compare_round);
}

/* By kernel, then architecture: the table's order. */
static int compare_place(const void *left, const void *right) {
    const struct cell *a = left, *b = right;
    if (a->kernel != b->kernel)
        return a->kernel < b->kernel ? -1 : 1;
    return a->arch - b->arch;
}

/* Keeps every `parts`-th cell. */
static void keep_part(struct matrix *matrix, size_t part, size_t parts) {
    size_t kept = 0;
    for (size_t i = part; i < matrix->count; i += parts)
        matrix->cells[kept++] = matrix->cells[i];
    matrix->count = kept;
}

static int choose_cells(struct matrix *matrix, const struct choice *choice) {
    uint64_t state = choice->seed;
    matrix->cells = calloc(matrix->kernels.count * ARCHS, sizeof *matrix->cells);
    if (!matrix->cells)
        return -1;
    for (size_t k = 0; k < matrix->kernels.count; k++) {
        const unsigned archs = kernel_archs(matrix->kernels.specs[k], matrix->kernels.preset[k],
                                            matrix->supported & matrix->kernels.archs[k]);
        for (int a = 0; a < ARCHS; a++) {
            uint64_t order = next_random(&state);
            if (!(archs >> a & 1))
                continue;
            struct cell *cell = &matrix->cells[matrix->count++];
            *cell = (struct cell){.kernel = k, .arch = a, .spec = matrix->kernels.specs[k]};
            cell->always = always_sampled(&matrix->kernels, k, arch_names[a]);
            cell->order = order;
        }
    }
    if (choice->sample && choice->sample < matrix->count) {
        sort_by_round(matrix);
        matrix->count = choice->sample;
        qsort(matrix->cells, matrix->count, sizeof *matrix->cells, compare_place);
    }
    keep_part(matrix, choice->part, choice->parts);
    return 0;
}

/* Plans a cell. A refusal is a failure, because every kernel of the matrix fits all of its
 * architectures. */
static void plan_cell(const struct kernel_list *kernels, struct cell *cell) {
    struct smelt__message message = {0};
    struct smelt__spec spec;
    struct smelt__plan plan;
    const struct smelt__arch *arch = smelt__arch_find(arch_names[cell->arch], &message);
    cell->planned = arch && smelt__spec_parse(kernels->specs[cell->kernel], &spec, &message) == 0 &&
                    smelt__plan_make(&spec, arch, &plan, &message) == 0;
    if (!cell->planned) {
        snprintf(cell->problem, sizeof cell->problem, "not planned: %.200s", message.text);
        return;
    }
    cell->max_registers = plan.max_registers;
    cell->shared_bytes = plan.shared_bytes;
    cell->spill_bytes = plan.spill_bytes;
}

static int report_progress(void *user, size_t done, size_t total, const smelt_kernel_info *info) {
    (void)user, (void)info;
    if (done % 100 == 0)
        fprintf(stderr, "matrix: %zu of %zu\n", done, total);
    return 0;
}

/* Counts the library's warnings about serialised products. Called by one thread at a time. */
static int warnings;

static void note_warning(void *user, smelt_log_level level, const char *message) {
    (void)user;
    if (level > SMELT_LOG_WARNING)
        return;
    warnings++;
    printf("FAILED: %s\n", message);
}

/* Compares the assembler's report with the plan. */
static void judge_cell(struct cell *cell) {
    const smelt_kernel_info *info = &cell->info;
    int shared = info->static_shared_bytes + info->dynamic_shared_bytes;
    if (!cell->planned)
        return;
    if (info->state != SMELT_KERNEL_COMPILED)
        snprintf(cell->problem, sizeof cell->problem, "not compiled: %.200s", info->error);
    else if (info->spill_bytes > cell->spill_bytes)
        snprintf(cell->problem, sizeof cell->problem, "spills %d bytes", info->spill_bytes);
    else if (info->registers < 1 || info->registers > cell->max_registers)
        snprintf(cell->problem, sizeof cell->problem, "%d registers, the plan allows %d",
                 info->registers, cell->max_registers);
    else if (shared != cell->shared_bytes)
        snprintf(cell->problem, sizeof cell->problem,
                 "%d bytes of shared memory (%d of them static), the plan claims %d", shared,
                 info->static_shared_bytes, cell->shared_bytes);
}

/* Compiles all planned cells, on `jobs` threads, and judges them. */
static int compile_cells(struct matrix *matrix, int jobs) {
    int result = -1;
    size_t count = 0;
    smelt_context *context = NULL;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    smelt_kernel_request *requests = calloc(matrix->count + 1, sizeof *requests);
    smelt_kernel_info *infos = calloc(matrix->count + 1, sizeof *infos);
    if (!requests || !infos)
        goto out;
    for (size_t i = 0; i < matrix->count; i++) {
        if (matrix->cells[i].planned)
            requests[count++] =
                (smelt_kernel_request){.size = sizeof *requests,
                                       .spec = matrix->kernels.specs[matrix->cells[i].kernel],
                                       .arch = arch_names[matrix->cells[i].arch]};
    }
    infos[0].size = sizeof *infos; /* of each element */
    options.kind = SMELT_CONTEXT_COMPILE_ONLY;
    options.arch = "sm_80";
    options.cache_disable = 1;
    options.log = note_warning;
    options.log_level = SMELT_LOG_WARNING;
    if (smelt_context_create(&context, &options) != SMELT_OK) {
        fprintf(stderr, "matrix: context: %s\n", smelt_last_error());
        goto out;
    }
    /* The kernels' infos have all failures, so the call's status is not needed. */
    const smelt_status first =
        smelt_kernels_prepare(context, requests, count, jobs, report_progress, NULL, infos);
    (void)first;
    for (size_t i = 0, next = 0; i < matrix->count; i++) {
        if (matrix->cells[i].planned)
            matrix->cells[i].info = infos[next++];
        judge_cell(&matrix->cells[i]); /* while the context holds the infos' strings */
    }
    result = 0;
out:
    smelt_context_destroy(&context);
    free(requests);
    free(infos);
    return result;
}

static void print_table(const struct matrix *matrix) {
    printf("\nregisters/seconds  %-58s", "");
    for (int a = 0; a < ARCHS; a++)
        printf(" %8s", arch_names[a]);
    size_t next = 0;
    while (next < matrix->count) {
        size_t kernel = matrix->cells[next].kernel;
        printf("\n%-77s", matrix->kernels.specs[kernel]);
        for (int a = 0; a < ARCHS; a++) {
            const struct cell *cell = &matrix->cells[next];
            if (next == matrix->count || cell->kernel != kernel || cell->arch != a) {
                printf(" %8s", "-"); /* not in the sample, or not supported */
                continue;
            }
            if (cell->problem[0])
                printf(" %8s", "FAILED");
            else
                printf(" %3d/%.2f", cell->info.registers, cell->info.compile_seconds);
            next++;
        }
    }
    printf("\n");
}

static int compare_seconds(const void *left, const void *right) {
    const struct cell *a = left, *b = right;
    return (a->info.compile_seconds < b->info.compile_seconds) -
           (a->info.compile_seconds > b->info.compile_seconds);
}

/* Sorts the cells; the table must have been printed. */
static void print_slowest(struct matrix *matrix) {
    qsort(matrix->cells, matrix->count, sizeof *matrix->cells, compare_seconds);
    printf("\nslowest compiles:\n");
    for (size_t i = 0; i < matrix->count && i < SLOWEST; i++)
        printf("  %.2f s  %s on %s\n", matrix->cells[i].info.compile_seconds,
               matrix->kernels.specs[matrix->cells[i].kernel], arch_names[matrix->cells[i].arch]);
}

/* Prints failures and totals; returns the number of failures. */
static size_t print_verdict(const struct matrix *matrix) {
    size_t failed = 0, spilling = 0;
    int cells[ARCHS] = {0}, archs = 0;
    for (size_t i = 0; i < matrix->count; i++) {
        const struct cell *cell = &matrix->cells[i];
        cells[cell->arch]++;
        spilling += cell->info.spill_bytes != 0;
        if (!cell->problem[0])
            continue;
        failed++;
        printf("FAILED: %s: reproduce with: smelt show %s --arch %s\n", cell->problem,
               matrix->kernels.specs[cell->kernel], arch_names[cell->arch]);
    }
    printf("\nkernels by architecture:");
    for (int a = 0; a < ARCHS; a++) {
        archs += cells[a] > 0;
        printf(" %s %d", arch_names[a], cells[a]);
    }
    printf("\n%zu kernels on %d architectures: %zu failed, %zu with spills, %d warnings\n",
           matrix->count, archs, failed, spilling, warnings);
    return failed + (size_t)warnings;
}

static int parse_arguments(int argc, char **argv, struct choice *choice) {
    int chosen = 0;
    *choice = (struct choice){.parts = 1, .seed = DEFAULT_SEED};
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "--full") == 0) {
            chosen = 1;
            continue;
        }
        if (i + 1 == argc)
            return -1;
        if (strcmp(argv[i], "--part") == 0) {
            if (sscanf(argv[++i], "%zu/%zu", &choice->part, &choice->parts) != 2 ||
                choice->part >= choice->parts)
                return -1;
            chosen = 1;
            continue;
        }
        unsigned long long value = strtoull(argv[i + 1], &end, 10);
        if (end == argv[i + 1] || *end || value > INT32_MAX)
            return -1;
        if (strcmp(argv[i], "--sample") == 0 && value > 0)
            choice->sample = (size_t)value, chosen = 1;
        else if (strcmp(argv[i], "--seed") == 0)
            choice->seed = value;
        else if (strcmp(argv[i], "-j") == 0)
            choice->jobs = (int)value;
        else
            return -1;
        i++;
    }
    return chosen ? 0 : -1;
}

int main(int argc, char **argv) {
    struct matrix matrix = {0};
    struct choice choice;
    if (parse_arguments(argc, argv, &choice) != 0) {
        fprintf(stderr, "usage: matrix --full | --part I/N | --sample N [--seed S] [-j N]\n");
        return 2;
    }
    int status = find_supported(&matrix.supported);
    if (status != 0)
        return status;
    status = EXIT_FAILURE;
    if (kernel_list_fill(&matrix.kernels) != 0 || choose_cells(&matrix, &choice) != 0)
        goto out;
    if (choice.sample)
        printf("a sample of %zu kernels, seed %llu\n", matrix.count,
               (unsigned long long)choice.seed);
    for (size_t i = 0; i < matrix.count; i++)
        plan_cell(&matrix.kernels, &matrix.cells[i]);
    if (compile_cells(&matrix, choice.jobs) != 0)
        goto out;
    print_table(&matrix);
    print_slowest(&matrix);
    status = matrix.count > 0 && print_verdict(&matrix) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
out:
    free(matrix.cells);
    kernel_list_free(&matrix.kernels);
    return status;
}
