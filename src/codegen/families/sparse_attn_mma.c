/* See sparse_attn_mma.h. */
#include "codegen/families/sparse_attn_mma.h"

enum {
    GROUP = 64, /* columns */
    STEP = 16   /* widths are multiples of it */
};

static int columns(const struct smelt__spec *spec, const char *key) {
    return ((int)smelt__spec_get(spec, key) + GROUP - 1) / GROUP * GROUP;
}

struct smelt__mma_shape smelt__mma_shape_of(const struct smelt__spec *spec) {
    return (struct smelt__mma_shape){.heads = (int)smelt__spec_get(spec, "heads"),
                                     .dqk = columns(spec, "dqk"),
                                     .dv = columns(spec, "dv")};
}

void smelt__mma_divide_heads(int most, struct smelt__mma_shape *shape) {
    const int tiles = (shape->heads + SMELT__MMA_TILE - 1) / SMELT__MMA_TILE;
    shape->blocks = (tiles + most - 1) / most;
    shape->tiles = (tiles + shape->blocks - 1) / shape->blocks;
    shape->last_tiles = tiles - (shape->blocks - 1) * shape->tiles;
}

int smelt__score_warps_complete(struct smelt__score_warps *groups, int warps, int block_keys,
                                const struct smelt__mma_shape *shape) {
    groups->keys = warps / (groups->heads * groups->depth);
    return groups->keys > 0 && groups->heads * groups->keys * groups->depth == warps &&
           shape->tiles % groups->heads == 0 && block_keys / SMELT__MMA_TILE % groups->keys == 0 &&
           shape->dv / SMELT__MMA_TILE % groups->depth == 0 &&
           (shape->dqk - shape->dv) / SMELT__MMA_TILE % groups->depth == 0;
}

int smelt__mma_ring_entries(const struct smelt__pipeline_shape *pipeline, int warps) {
    const int least = (pipeline->stages + 1) * pipeline->block_keys + warps * SMELT__WARP;
    int entries = 1;
    while (entries < least)
        entries *= 2;
    return entries;
}

void smelt__mma_add_columns(const struct smelt__mma_shape *shape, struct smelt__plan *plan) {
    smelt__plan_add(plan, "KEY_COLUMNS", shape->dqk, SMELT__DERIVED,
                    "dqk in whole 64s: of the tiles in shared memory");
    smelt__plan_add(plan, "VALUE_COLUMNS", shape->dv, SMELT__DERIVED, "dv in whole 64s");
}

static int fits(const struct smelt__search *search, const struct smelt__spec *spec,
                const struct smelt__arch *arch, struct smelt__choice *choice) {
    struct smelt__plan scratch = {.arch = arch};
    struct smelt__excess excess = SMELT__NO_EXCESS;
    return smelt__search_find(search, spec, arch, choice, &scratch, &excess);
}

/* Sets the largest dqk below the spec's that fits, and dv to it where dv is larger; returns 0 if none fits. */
static int narrow(const struct smelt__search *search, struct smelt__spec *spec,
                  const struct smelt__arch *arch, struct smelt__choice *choice) {
    const int64_t dqk = smelt__spec_get(spec, "dqk"), dv = smelt__spec_get(spec, "dv");
    for (int64_t width = dqk - STEP; width >= STEP; width -= STEP) {
        smelt__spec_set(spec, "dqk", width);
        smelt__spec_set(spec, "dv", width < dv ? width : dv);
        if (fits(search, spec, arch, choice))
            return 1;
    }
    return 0;
}

int smelt__mma_plan(const struct smelt__search *search, const struct smelt__spec *spec,
                    const struct smelt__arch *arch, struct smelt__choice *choice,
                    struct smelt__plan *plan, struct smelt__message *message) {
    struct smelt__spec without;
    if (smelt__search_plan(search, spec, arch, choice, plan, message) == 0)
        return 0;
    smelt__spec_strip_knobs(spec, &without);
    if (fits(search, &without, arch, choice) || !narrow(search, &without, arch, choice))
        return -1;
    return smelt__spec_refuse(spec, message,
                              "dqk=%d with dv=%d needs more than the %d KB of shared memory that a "
                              "block of %s has; dqk=%d with dv=%d fits",
                              (int)smelt__spec_get(spec, "dqk"), (int)smelt__spec_get(spec, "dv"),
                              arch->shared_per_block / 1024, arch->name,
                              (int)smelt__spec_get(&without, "dqk"),
                              (int)smelt__spec_get(&without, "dv"));
}
