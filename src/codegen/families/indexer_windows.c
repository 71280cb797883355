/* The operator indexer_windows: windows of the lightning indexer, built on the device from the metadata
 * of packed documents (docs/operators.md). Nothing of a call is compiled in: its kernel family,
 * indexer_windows_build, has one kernel. */
#include <stddef.h>
#include <stdio.h>

#include "codegen/family.h"
#include "codegen/plan/limits.h"

/* ---- the kernel ------------------------------------------------------------------------------- */

enum {
    THREADS = 256,
    BLOCKS = 4,          /* of a multiprocessor: bound by the latency of few loads */
    ENTRIES_A_THREAD = 8 /* of cu_seqlens: so that 2047 documents are staged once */
};

static int plan_build(const struct smelt__spec *spec, const struct smelt__arch *arch,
                      struct smelt__plan *plan, struct smelt__message *message) {
    const int entries = THREADS * ENTRIES_A_THREAD;
    (void)spec, (void)arch, (void)message; /* every architecture has it */
    smelt__plan_set_threads(plan, THREADS, BLOCKS);
    smelt__plan_add(plan, "ENTRIES_A_THREAD", ENTRIES_A_THREAD, SMELT__DERIVED,
                    "entries of cu_seqlens that a thread stages");
    smelt__plan_add(plan, "ENTRIES", entries, SMELT__DERIVED,
                    "entries of cu_seqlens staged at a time");
    smelt__plan_add_region(plan, "STARTS_OFFSET", (1 + entries) * 4, 4,
                           "where documents begin, behind the largest ahead of them");
    /* Read 16 bytes at a time: none of them are STARTS'. */
    smelt__plan_add_region(plan, "LARGEST_OFFSET", THREADS / 32 * 4, 16,
                           "the largest of each warp's entries");
    return 0;
}

static const struct smelt__kernel_family indexer_windows_build = {
    .schema = {.name = "indexer_windows_build",
               .summary = "windows of the indexer from the metadata of packed documents"},
    SMELT__VARIANTS({"build", plan_build}),
};

/* ---- the operator ----------------------------------------------------------------------------- */

/* Every model that chooses its keys. */
static const struct smelt__preset_row presets[] = {
    {"glm-5.2", ""},
    {"glm-5.3-flash", ""},
    {"deepseek-v3.2", ""},
    {"deepseek-v4-flash", ""},
    {"deepseek-v4-pro", ""},
    {"deepseek-v4.1", ""},
    {"qwen3.8-flash-next", ""},
    {"minimax-m3", ""},
    {NULL, NULL},
};

const struct smelt__operator_family smelt__indexer_windows = {
    .schema = {.name = "indexer_windows",
               .is_operator = 1,
               .example = "indexer_windows",
               .summary =
                   "for each query the keys it may choose from, out of cu_seqlens and the like"},
    .passes = SMELT__FORWARD,
    SMELT__FAMILIES(&indexer_windows_build),
    .presets = presets,
};
