/* The specs of the compile matrix: see cells.h. */
#include "cells.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smelt/kernels.h"
#include "smelt/tuning.h"
#include "turns.h"

/* The cells of the operators that have such a file. */
#define OPERATOR(stem) extern const struct compile_cells compile_cells_##stem;
#include "cells.list"
#undef OPERATOR

static const struct compile_cells *const all[] = {
#define OPERATOR(stem) &compile_cells_##stem,
#include "cells.list"
#undef OPERATOR
};

enum { ALL_ARCHS = (1 << ARCHS) - 1 };

struct collector {
    struct kernel_list *list;
    int preset;
    unsigned archs; /* of the kernels that are added */
    int failed;
};

static int add_kernel(void *user, const char *kernel) {
    struct collector *collector = user;
    struct kernel_list *list = collector->list;
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->specs[i], kernel) == 0) {
            list->archs[i] |= collector->archs;
            return 0;
        }
    }
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 256;
        char(*specs)[SPEC_TEXT] = realloc(list->specs, capacity * sizeof *specs);
        if (specs)
            list->specs = specs;
        int *preset = realloc(list->preset, capacity * sizeof *preset);
        if (preset)
            list->preset = preset;
        unsigned *archs = realloc(list->archs, capacity * sizeof *archs);
        if (archs)
            list->archs = archs;
        if (!specs || !preset || !archs) {
            collector->failed = 1;
            return 1;
        }
        list->capacity = capacity;
    }
    snprintf(list->specs[list->count], SPEC_TEXT, "%s", kernel);
    list->archs[list->count] = collector->archs;
    list->preset[list->count++] = collector->preset;
    return 0;
}

/* Adds the kernels that an operator has on each architecture. Those with less shared memory may refuse what
 * no preset has. */
static int add_operator(void *user, const char *spec) {
    struct collector *collector = user;
    for (int a = 0; a < ARCHS && !collector->failed; a++) {
        collector->archs = 1u << a;
        if (smelt_spec_expand(NULL, spec, arch_names[a], add_kernel, collector) != SMELT_OK &&
            spec_is_for(spec, arch_names[a]) &&
            (collector->preset || !strcmp(arch_names[a], "sm_80") ||
             !strcmp(arch_names[a], "sm_90a"))) {
            fprintf(stderr, "matrix: %s on %s: %s\n", spec, arch_names[a], smelt_last_error());
            collector->failed = 1;
        }
    }
    collector->archs = ALL_ARCHS;
    return collector->failed;
}

static int add_example(void *user, const char *family) {
    smelt_family_info info = SMELT_FAMILY_INFO_INIT;
    if (smelt_family_get_info(family, &info) != SMELT_OK) {
        fprintf(stderr, "matrix: %s: %s\n", family, smelt_last_error());
        ((struct collector *)user)->failed = 1;
        return 1;
    }
    return *info.example ? add_operator(user, info.example) : 0;
}

static int add_preset(void *user, const char *preset) {
    struct collector *collector = user;
    for (int tp = 1; tp <= 8; tp *= 2) {
        if (smelt_preset_expand(preset, tp, 0, add_operator, collector) != SMELT_OK) {
            fprintf(stderr, "matrix: preset %s tp %d: %s\n", preset, tp, smelt_last_error());
            collector->failed = 1;
        }
    }
    return collector->failed;
}

/* Adds an operator's odd shapes and knobs, its tuning candidates, and its additional kernels. */
static void add_cells(struct collector *collector, const struct compile_cells *cells) {
    char spec[SPEC_TEXT];
    for (int i = 0; !collector->failed && cells->shape && cells->shape(i, spec, sizeof spec); i++)
        add_operator(collector, spec);
    for (int i = 0; !collector->failed && cells->operators && cells->operators[i]; i++)
        add_operator(collector, cells->operators[i]);
    for (int i = 0; !collector->failed && cells->tuned && cells->tuned[i]; i++)
        if (smelt_tuning_candidates(cells->tuned[i], "sm_90a", NULL, 0, add_kernel, collector) !=
            SMELT_OK) {
            fprintf(stderr, "matrix: %s: %s\n", cells->tuned[i], smelt_last_error());
            collector->failed = 1;
        }
    for (int i = 0; !collector->failed && cells->kernels && cells->kernels[i]; i++)
        add_kernel(collector, cells->kernels[i]);
}

int kernel_list_fill(struct kernel_list *list) {
    struct collector collector = {list, 1, ALL_ARCHS, 0};
    memset(list, 0, sizeof *list);
    if (smelt_list(SMELT_LIST_PRESETS, add_preset, &collector) != SMELT_OK || collector.failed)
        return -1;
    collector.preset = 0;
    if (smelt_list(SMELT_LIST_FAMILIES, add_example, &collector) != SMELT_OK)
        return -1;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && !collector.failed; i++)
        add_cells(&collector, all[i]);
    return collector.failed ? -1 : 0;
}

void kernel_list_free(struct kernel_list *list) {
    free(list->specs);
    free(list->preset);
    free(list->archs);
    memset(list, 0, sizeof *list);
}
