/*
 * The kernel family indexer_bwd_lists: each group's list of keys, with their gradients, for the
 * indexer's backward pass. Only the lists' granularity is compiled in, so operators share it.
 */
#include "codegen/families/indexer_bwd_lists.h"

#include <stdio.h>

#include "codegen/families/indexer_keys.h"
#include "codegen/plan/limits.h"

enum {
    THREADS = 256,
    BLOCKS = 4, /* of a multiprocessor: some work while others wait at barriers */
    LOADS = 4,
    LIST_STEP = 64, /* keys; the main kernel reads lists in steps of it */
    /* 32768 rows of one query or two, 14880 of eight: 8192, the usual table, in one window. */
    MAP_BYTES = 20 * 1024,
    ENTRIES = 8 * 1024 /* all that eight queries may have of such a table */
};

/* Blocks that a multiprocessor's shared memory has room for. */
static int resident_blocks(const struct smelt__arch *arch, int bytes) {
    const int room = arch->shared_per_multiprocessor / (bytes + arch->shared_reserved);
    return room < BLOCKS ? room : BLOCKS;
}

static int plan_lists(const struct smelt__spec *spec, const struct smelt__arch *arch,
                      struct smelt__plan *plan, struct smelt__message *message) {
    const int counts = THREADS / 32 * 8;
    const int granularity = (int)smelt__spec_get(spec, "granularity");
    char of_rows[16] = "";
    (void)message; /* every architecture has it */
    if (granularity > 1)
        snprintf(of_rows, sizeof of_rows, "_r%d", granularity);
    plan->item = "group";
    plan->persistent = 1;
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_indexer_bwd_lists%s", of_rows);
    smelt__plan_add(plan, "GRANULARITY", granularity, SMELT__FROM_SPEC,
                    "rows, and slots, of an entry of a list");
    smelt__plan_set_threads(plan, THREADS, resident_blocks(arch, MAP_BYTES + ENTRIES * 4 + counts));
    smelt__plan_add(plan, "LOADS", LOADS, SMELT__DERIVED, "loads of a thread in flight");
    smelt__plan_add(plan, "LIST_STEP", LIST_STEP, SMELT__DERIVED,
                    "lists are padded to a multiple of it");
    smelt__plan_add(plan, "MAP_BYTES", MAP_BYTES, SMELT__DERIVED, "bytes of the map");
    smelt__plan_add(plan, "ENTRIES", ENTRIES, SMELT__DERIVED,
                    "entries of a list that are assembled at a time");
    smelt__plan_add_region(plan, "MAP_OFFSET", MAP_BYTES, 16,
                           "a bit for each row and member, and the keys' list positions");
    smelt__plan_add_region(plan, "ENTRIES_OFFSET", ENTRIES * 4, 16, "entries of a list");
    smelt__plan_add_region(plan, "COUNTS_OFFSET", counts, 8, "keys of each warp's words");
    return 0;
}

static const struct smelt__key keys[] = {SMELT__INDEXER_GRANULARITY};

const struct smelt__kernel_family smelt__indexer_bwd_lists = {
    .schema = {.name = "indexer_bwd_lists",
               .summary = "lists of keys, with their gradients, for the indexer's backward pass",
               SMELT__KEYS(keys)},
    SMELT__VARIANTS({"lists", plan_lists}),
};
