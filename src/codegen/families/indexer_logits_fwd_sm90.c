/*
 * The kernel family indexer_logits_fwd: the plan of its variant sm90. What the kernel does with
 * these numbers stands at the head of templates/indexer_logits_fwd.sm90.cu.
 *
 * The rule. The arithmetic on a product's values takes as long as the product itself (e4m3) or half
 * of it (bf16), and they hinder each other at the register file: warpgroups are as many as keep
 * both busy, and each has as many keys as its share of the registers holds. Keys have two buffers,
 * the rest of shared memory is the queries' stages.
 */
#include <limits.h>

#include "codegen/families/indexer_keys.h"
#include "codegen/families/indexer_logits_fwd.h"
#include "codegen/plan/limits.h"

enum {
    WARPGROUP = 128,    /* threads */
    REGISTER_GRAIN = 8, /* of what a thread has, and of what it may give and take */
    ROWS = 64,          /* of a product */
    QUERIES = 32,       /* of a block: two heads each are the rows */
    OCTET = 8,          /* queries that are neighbours in a product's rows */
    PAIR = 2,           /* heads of a product */
    SWIZZLE = 128,      /* bytes at most */
    ALIGNMENT = 1024,   /* the swizzle repeats every 1024 bytes */
    FILL_BYTES = 8192,  /* of -inf, one bulk store */
    WORD_BYTES = 16,    /* what a stage begins with */
    BARRIER_BYTES = 8,
    KEY_BUFFERS = 2,
    MOST_STAGES = 16,
    LEAST_STAGES = 2,
    CHUNK_HEADS = 64, /* heads of a chunk's blocks together, at least */
    MOST_CHUNK = 8,   /* blocks */
    ITEMS_EACH = 4,   /* a thread block's, before chunks have several blocks */
    PRODUCER_REGISTERS = 40,
    FEW_REGISTERS = 64, /* of the producer's warpgroup, where there are four besides */
    MATH_BESIDE = 32,   /* registers of a thread beside D and its sums */
};

struct choice {
    int heads, fp8, row_bytes;
    int groups, group_keys, stages, chunk;
    int math_registers, other_registers;
};

static int add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int query_bytes = ROWS * choice->row_bytes;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "KEYS_OFFSET",
                           KEY_BUFFERS * choice->groups * choice->group_keys * choice->row_bytes,
                           ALIGNMENT, "buffers: a tile's keys");
    smelt__plan_add_region(plan, "QUERIES_OFFSET", choice->stages * query_bytes, ALIGNMENT,
                           "stages: two heads of a block's queries");
    smelt__plan_add_region(plan, "LOWEST_OFFSET", FILL_BYTES, 16, "-inf, to fill with");
    smelt__plan_add_region(plan, "WORDS_OFFSET", choice->stages * WORD_BYTES, 16,
                           "which block begins with a stage");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET",
                           2 * (choice->stages + KEY_BUFFERS) * BARRIER_BYTES, 8, "mbarriers");
    return plan->shared_bytes;
}

/* As many stages as there is room for. */
static void choose_stages(const struct smelt__arch *arch, struct choice *choice,
                          struct smelt__plan *plan) {
    const int limit = smelt__shared_of_block(arch, 1);
    choice->stages = MOST_STAGES;
    while (choice->stages > LEAST_STAGES && add_regions(choice, plan) > limit)
        choice->stages--;
}

/* What the launch gives every thread, and how the roles divide it. */
static void choose_registers(const struct smelt__arch *arch, struct choice *choice) {
    const int each = smelt__registers_of_thread(arch, (choice->groups + 1) * WARPGROUP, 1);
    choice->other_registers = choice->groups > 3 ? FEW_REGISTERS : PRODUCER_REGISTERS;
    const int left = each * (choice->groups + 1) - choice->other_registers;
    choice->math_registers = left / choice->groups / REGISTER_GRAIN * REGISTER_GRAIN;
    if (choice->math_registers > 232)
        choice->math_registers = 232;
}

static void add_constants(const struct choice *choice, const struct smelt__spec *spec,
                          struct smelt__plan *plan) {
    const struct {
        const char *name, *knob; /* knob: its key; NULL: derived */
        int value;
        const char *meaning;
    } constants[] = {
        {"GROUPS", "groups", choice->groups, "warpgroups that compute"},
        {"GROUP_KEYS", "group_keys", choice->group_keys, "keys of a warpgroup, of a tile"},
        {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"STAGES", NULL, choice->stages, "two heads of a block's queries each, in flight"},
        {"KEY_BUFFERS", NULL, KEY_BUFFERS, "tiles whose keys are in flight"},
        {"BLOCK_QUERIES", NULL, QUERIES, "queries of a block"},
        {"BLOCK_KEYS", NULL, choice->groups * choice->group_keys, "keys of a tile"},
        {"CHUNK_BLOCKS", NULL, choice->chunk, "blocks that share a tile's keys, at most"},
        {"ITEMS_EACH", NULL, ITEMS_EACH, "items of a thread block that chunks leave, at least"},
        {"ROW_BYTES", NULL, choice->row_bytes, "of a key, and of a head of a query"},
        {"SWIZZLE", NULL, choice->row_bytes < SWIZZLE ? choice->row_bytes : SWIZZLE,
         "bytes of a row in shared memory"},
        {"FILL_BYTES", NULL, FILL_BYTES, "of -inf, one bulk store"},
        {"MATH_REGISTERS", NULL, choice->math_registers, "of a thread that computes"},
        {"OTHER_REGISTERS", NULL, choice->other_registers, "of a thread that loads or fills"},
        {"TENSOR_MAPS", NULL, 1, "1: q and k come by the copy engine"},
        {"MAP_QUERIES", NULL, OCTET, "queries of a box"},
        {"MAP_HEADS", NULL, PAIR, "heads of a box"},
        {"MAP_KEYS", NULL, choice->group_keys, "keys of a box"},
    };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        smelt__plan_add(plan, constants[i].name, constants[i].value,
                        constants[i].knob ? smelt__plan_origin(spec, constants[i].knob)
                                          : SMELT__DERIVED,
                        constants[i].meaning);
}

static int refuse(const struct smelt__spec *spec, const struct smelt__arch *arch,
                  struct smelt__message *message) {
    if (arch->warpgroup_products)
        return 0;
    smelt__message_set(message,
                       "%s: variant=sm90 runs on sm_90a alone, not on %s; variant=mma runs there",
                       spec->schema->name, arch->name);
    return -1;
}

int smelt__indexer_logits_fwd_plan_sm90(const struct smelt__spec *spec,
                                        const struct smelt__arch *arch, struct smelt__plan *plan,
                                        struct smelt__message *message) {
    struct smelt__misses misses = SMELT__NO_MISSES;
    struct choice choice = {
        .heads = (int)smelt__spec_get(spec, "heads"),
        .fp8 = smelt__spec_get(spec, "dtype") == SMELT__INDEXER_FP8,
        .chunk = 1,
    };
    if (refuse(spec, arch, message))
        return -1;
    choice.row_bytes = (int)smelt__spec_get(spec, "dim") * (choice.fp8 ? 1 : 2);
    choice.groups = smelt__spec_knob(spec, "groups", choice.row_bytes > SWIZZLE ? 3 : 4);
    choice.group_keys = smelt__spec_knob(spec, "group_keys", 96);
    while (choice.chunk < MOST_CHUNK && choice.chunk * choice.heads < CHUNK_HEADS)
        choice.chunk *= 2;
    choose_stages(arch, &choice, plan);
    choose_registers(arch, &choice);
    const int threads = (choice.groups + 1) * WARPGROUP;
    const int values = choice.group_keys / 2 + choice.group_keys / 4;
    if (!smelt__limits_hold(arch, threads, 1, plan->shared_bytes, 0, &misses) ||
        values + MATH_BESIDE > choice.math_registers) {
        if (values + MATH_BESIDE > choice.math_registers) {
            misses.registers = values + MATH_BESIDE;
            misses.register_limit = choice.math_registers;
        }
        smelt__misses_explain(&misses, spec, arch, "fewer groups or group_keys",
                              "fewer groups or group_keys", "", message);
        return -1;
    }
    plan->template_name = "indexer_logits_fwd.sm90.cu";
    smelt__indexer_logits_fwd_name(spec, plan);
    add_constants(&choice, spec, plan);
    smelt__plan_set_threads(plan, threads, 1);
    plan->item = "tile";
    plan->persistent = 1;
    return 0;
}
