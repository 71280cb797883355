/* The specs of the compile matrix. */
#include "cells.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "smelt/kernels.h"
#include "smelt/tuning.h"

struct collector {
    struct kernel_list *list;
    int preset;
    int failed;
};

static int add_kernel(void *user, const char *kernel) {
    struct collector *collector = user;
    struct kernel_list *list = collector->list;
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->specs[i], kernel) == 0)
            return 0;
    }
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 256;
        char(*specs)[SPEC_TEXT] = realloc(list->specs, capacity * sizeof *specs);
        if (specs)
            list->specs = specs;
        int *preset = realloc(list->preset, capacity * sizeof *preset);
        if (preset)
            list->preset = preset;
        if (!specs || !preset) {
            collector->failed = 1;
            return 1;
        }
        list->capacity = capacity;
    }
    snprintf(list->specs[list->count], SPEC_TEXT, "%s", kernel);
    list->preset[list->count++] = collector->preset;
    return 0;
}

static int add_operator(void *user, const char *spec) {
    struct collector *collector = user;
    if (smelt_spec_expand(spec, add_kernel, collector) != SMELT_OK) {
        fprintf(stderr, "matrix: %s: %s\n", spec, smelt_last_error());
        collector->failed = 1;
    }
    return collector->failed;
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

/* Head counts that fill a tile of 16 badly or not at all, crossed with every pair of widths; list
 * lengths and the sink take turns, so that each meets each count and each width. */
static void add_odd_shapes(struct collector *collector) {
    static const int heads[] = {1, 7, 24, 40, 80, 112, 128, 192};
    static const int dv[] = {64, 128, 256, 512};
    static const int topk[] = {1, 100, 2048};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++) {
        for (size_t w = 0; w < 2 * sizeof dv / sizeof *dv; w++) {
            for (size_t k = 0; k < sizeof topk / sizeof *topk; k++) {
                char spec[SPEC_TEXT];
                int value = dv[w / 2];
                snprintf(spec, sizeof spec, "sparse_attn:heads=%d,dqk=%d,dv=%d,topk=%d,sink=%d",
                         heads[h], value + (w % 2 ? 64 : 0), value, topk[k],
                         (int)((h + w + k) % 2));
                if (add_operator(collector, spec) != 0)
                    return;
            }
        }
    }
}

/* Knobs that are there for comparison must compile as well. */
static void add_knobs(struct collector *collector) {
    static const char *const specs[] = {
        "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,compact=0",
        "sparse_attn:heads=8,dqk=512,dv=512,topk=640,sink=1,compact=0",
        "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,variant=mma",
        "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,stages=2",
        "sparse_attn:heads=16,dqk=512,dv=512,topk=640,sink=1,stages=2",
        "sparse_attn:heads=8,dqk=576,dv=512,topk=2048,stages=2",
        "sparse_attn:heads=8,dqk=576,dv=512,topk=2048,part_tiles=2",
        "sparse_attn:heads=16,dqk=512,dv=512,topk=640,sink=1,part_tiles=2",
        "sparse_attn:heads=32,dqk=576,dv=512,topk=2048,part_tiles=4",
        "sparse_attn:heads=32,dqk=512,dv=512,topk=1152,sink=1,part_tiles=4",
        "sparse_attn:heads=24,dqk=576,dv=512,topk=2048,stages=2",
        "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,racecheck=1",
        "sparse_attn:heads=16,dqk=512,dv=512,topk=640,sink=1,racecheck=1",
        "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,turn_steps=0",
        "sparse_attn:heads=128,dqk=576,dv=512,topk=2048,turn_steps=26",
        "sparse_attn:heads=32,dqk=512,dv=512,topk=640,sink=1,gather_registers=88",
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs && !collector->failed; i++)
        add_operator(collector, specs[i]);
}

/* Kernels that no operator without buckets has. */
static void add_partition(struct collector *collector) {
    if (add_kernel(collector, "sparse_attn_partition:pass=count") == 0)
        add_kernel(collector, "sparse_attn_partition:pass=place");
}

/* Every plan that `smelt tune` may try. */
static void add_candidates(struct collector *collector) {
    static const char *const specs[] = {
        "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048,variant=sm90",
        "sparse_attn_fwd:heads=64,dqk=512,dv=512,topk=640,sink=1,variant=sm90",
        "sparse_attn_fwd:heads=32,dqk=576,dv=512,topk=2048,variant=sm90",
        "sparse_attn_fwd:heads=8,dqk=512,dv=512,topk=512,variant=sm90",
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs && !collector->failed; i++)
        if (smelt_tuning_candidates(specs[i], "sm_90a", NULL, 0, add_kernel, collector) !=
            SMELT_OK) {
            fprintf(stderr, "matrix: %s: %s\n", specs[i], smelt_last_error());
            collector->failed = 1;
        }
}

int kernel_list_fill(struct kernel_list *list) {
    struct collector collector = {list, 1, 0};
    memset(list, 0, sizeof *list);
    if (smelt_list_presets(add_preset, &collector) != SMELT_OK || collector.failed)
        return -1;
    collector.preset = 0;
    add_odd_shapes(&collector);
    if (!collector.failed)
        add_knobs(&collector);
    if (!collector.failed)
        add_candidates(&collector);
    if (!collector.failed)
        add_partition(&collector);
    return collector.failed ? -1 : 0;
}

void kernel_list_free(struct kernel_list *list) {
    free(list->specs);
    free(list->preset);
    memset(list, 0, sizeof *list);
}
