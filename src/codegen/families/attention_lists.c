/*
 * The kernel family attention_lists: each group's list of keys, from its queries' index rows;
 * and, for the deterministic mode, the transposed lists: each key's partial rows. No property of an
 * operator is compiled in, so all operators share these kernels.
 */
#include <stdio.h>

#include "codegen/families/attention.h"
#include "codegen/plan/limits.h"
#include "codegen/spec/keys.h"

enum {
    MEMBER_BYTES = 16,
    LIST_STEP = 64, /* keys; the main kernel reads lists in steps of it */
    /* Group. Four blocks of 256 threads keep the memory busy while some wait at barriers. A map of
     * this size leaves room for them: 393216 rows of one member, or 49152 of each of 8. */
    GROUP_THREADS = SMELT__ATTENTION_LISTS_THREADS,
    GROUP_BLOCKS = 4,
    GROUP_LOADS = 4,
    MAP_BYTES = 48 * 1024,
    /* With more windows, sorting is faster. */
    MOST_WINDOWS = 16,
    /* Transpose. A warp processes one list at a time and waits for a few loads, so more warps are
     * faster. A chunk of three waves of an H200's main kernel is one part. */
    TRANSPOSE_THREADS = 512,
    TRANSPOSE_BLOCKS = 3,        /* of a multiprocessor; four leave too few registers */
    SM_12X = 12,                 /* major capability on which three do, too, */
    TRANSPOSE_BLOCKS_SM_12X = 2, /* so that two are resident */
    TRANSPOSE_RANGE = SMELT__ATTENTION_LISTS_RANGE,
    TRANSPOSE_PART = 384,
    TRANSPOSE_LISTS = 4,
    STRETCH_BYTES = 16
};

static const struct smelt__key keys[] = {
    {SMELT__REQUIRED("pass", "group: the lists of keys; transpose: lists by keys, CSR to CSC"),
     SMELT__NAMES_2(group, transpose)},
};

/* Blocks that a multiprocessor's shared memory has room for, at most `most`. */
static int resident_blocks(const struct smelt__arch *arch, int bytes, int most) {
    const int room = arch->shared_per_multiprocessor / (bytes + arch->shared_reserved);
    return room < most ? room : most;
}

static void plan_group(const struct smelt__arch *arch, struct smelt__plan *plan) {
    const int warps = GROUP_THREADS / 32;
    const int bytes = MAP_BYTES + SMELT__ATTENTION_LISTS_MOST_GROUP * MEMBER_BYTES + warps * 4 + 4;
    plan->item = "group";
    plan->persistent = 1;
    smelt__plan_set_threads(plan, GROUP_THREADS, resident_blocks(arch, bytes, GROUP_BLOCKS));
    smelt__plan_add(plan, "PDL", arch->pdl, SMELT__DERIVED,
                    "1: the next kernel is launched with PDL");
    smelt__plan_add(plan, "LOADS", GROUP_LOADS, SMELT__DERIVED,
                    "loads of 16 bytes of a thread in flight");
    smelt__plan_add(plan, "MAP_BYTES", MAP_BYTES, SMELT__DERIVED, "bytes of the map");
    smelt__plan_add(plan, "MOST_WINDOWS", MOST_WINDOWS, SMELT__DERIVED,
                    "windows of the map that the rows may need");
    smelt__plan_add(plan, "LIST_STEP", LIST_STEP, SMELT__DERIVED,
                    "lists are padded to a multiple of it");
    smelt__plan_add_region(plan, "MAP_OFFSET", MAP_BYTES, 16, "a bit for each row and member");
    smelt__plan_add_region(plan, "MEMBERS_OFFSET", SMELT__ATTENTION_LISTS_MOST_GROUP * MEMBER_BYTES,
                           16, "the group's queries");
    smelt__plan_add_region(plan, "COUNTS_OFFSET", warps * 4, 4, "keys in each warp's part");
    smelt__plan_add_region(plan, "AGAIN_OFFSET", 4, 4, "keys named again");
}

static void plan_transpose(const struct smelt__arch *arch, struct smelt__plan *plan) {
    const int warps = TRANSPOSE_THREADS / 32, map = TRANSPOSE_PART / 8 * TRANSPOSE_RANGE;
    const int bytes =
        map + map / 2 + TRANSPOSE_RANGE * 4 + TRANSPOSE_PART * STRETCH_BYTES + warps * 4;
    plan->item = "range";
    plan->persistent = 1;
    smelt__plan_set_threads(plan, TRANSPOSE_THREADS,
                            resident_blocks(arch, bytes,
                                            arch->capability_major == SM_12X
                                                ? TRANSPOSE_BLOCKS_SM_12X
                                                : TRANSPOSE_BLOCKS));
    smelt__plan_add(plan, "RANGE", TRANSPOSE_RANGE, SMELT__DERIVED,
                    "keys that a block takes at a time");
    smelt__plan_add(plan, "PART", TRANSPOSE_PART, SMELT__DERIVED, "groups, likewise");
    smelt__plan_add(plan, "LISTS", TRANSPOSE_LISTS, SMELT__DERIVED,
                    "lists that a warp processes at a time");
    smelt__plan_add_region(plan, "MAP_OFFSET", map, 16, "a bit for each key and group");
    smelt__plan_add_region(plan, "FIRSTS_OFFSET", map / 2, 16, "a key's bits in words before");
    smelt__plan_add_region(plan, "PLACES_OFFSET", TRANSPOSE_RANGE * 4, 16,
                           "positions of each key's entries");
    smelt__plan_add_region(plan, "STRETCHES_OFFSET", TRANSPOSE_PART * STRETCH_BYTES, 16,
                           "each list's segments in the range");
    smelt__plan_add_region(plan, "SUMS_OFFSET", warps * 4, 4, "sums of warps");
}

static int plan_lists(const struct smelt__spec *spec, const struct smelt__arch *arch,
                      struct smelt__plan *plan, struct smelt__message *message) {
    const int64_t pass = smelt__spec_get(spec, "pass");
    (void)message; /* every architecture has all of them */
    if (pass == SMELT__ATTENTION_LISTS_GROUP)
        plan_group(arch, plan);
    else
        plan_transpose(arch, plan);
    return 0;
}

const struct smelt__kernel_family smelt__attention_lists = {
    .schema = {.name = "attention_lists",
               .summary = "groups' lists of keys: compacted, united or transposed",
               SMELT__KEYS(keys)},
    /* All passes; a plan is named after its pass. */
    SMELT__VARIANTS({"lists", plan_lists}),
};
