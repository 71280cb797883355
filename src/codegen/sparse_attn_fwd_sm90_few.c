/*
 * The kernel family sparse_attn_fwd: the plan of its variant sm90, keys as the matrices' rows. What
 * the kernels do with these numbers stands at the heads of templates/sparse_attn_fwd.sm90_few.cu,
 * whose two math warpgroups share a query, and templates/sparse_attn_fwd.sm90_pair.cu, where each
 * has its own.
 *
 * The rule. The gather is the limit, so the ring is as deep as fits: three stages of 64 keys beside
 * the Q of one query. Where they do not fit, a ring is too short to hide a query's end behind it,
 * and two queries are under way, so that the other goes on meanwhile, with two stages of 64 keys
 * (measured, dqk 576: 16 heads 16 % faster at topk 512 and as fast at 2048, 32 heads 22 % and 8 %;
 * 8 heads, which would lose the third stage, 5 % slower; three stages of 48 are 2 to 7 % slower
 * than two of 64 with 16 heads). One query asked for: three of 48, else two of 64; with a short
 * topk two of 64 before three of 48. Heads are rounded up to the next 8. Registers: each of two
 * math warpgroups holds a whole O^T, 8 slabs of heads / 2 values a thread, 128 for 32 heads, and
 * gets 208; the gather gets 88.
 */
#include <inttypes.h>

#include "codegen/sparse_attn_fwd.h"

enum {
    WARPGROUP = 128,     /* threads */
    WARPGROUPS = 3,      /* two of math, gather */
    ROWS = 64,           /* of wgmma: a block of fewer keys has zeros behind it */
    ROW = 128,           /* bytes of a tile's row */
    HEAD_GROUP = 8,      /* wgmma's columns come in eights */
    VALUE_WIDTH = 512,   /* columns */
    ALIGNMENT = 1024,    /* bytes: the swizzle repeats every 1024 */
    ALL_REGISTERS = 504, /* of three threads, one in each warpgroup */
    REGISTER_UNIT = 8,   /* setmaxnreg's */
    GATHER_REGISTERS = 88,
    LEAST_GATHER = 56,  /* measured: with fewer, 8 heads spill */
    MOST_GATHER = 88,   /* measured: with more, 32 heads spill */
    RING_ENTRIES = 256, /* of a query, one: two blocks held back, an incomplete one, a scan's worth;
                           two: two blocks asked for, one held back, a scan's worth */
    STATISTICS = 10,    /* values of a head that warps tell each other, two queries */
    REQUESTS = 2,       /* key blocks that the scan is ahead of the copies, two queries */
    SHORT_TOPK = 512,   /* measured: 512 is, 2048 is not (bench/LOG.md) */
    SHARED_LIMIT = 227 * 1024,
};

/* Best first: of one query, with a short topk, of two queries. */
enum { RINGS = 6 };
static const struct ring {
    int block_keys, stages;
} long_rings[RINGS] = {{64, 3}, {48, 3}, {64, 2}, {48, 2}, {48, 4}, {64, 4}},
  short_rings[RINGS] = {{64, 3}, {64, 2}, {48, 3}, {48, 2}, {48, 4}, {64, 4}};
#define PAIR_RINGS short_rings

/* Everything that is chosen, and what follows at once. */
struct choice {
    int heads; /* rounded up */
    int dqk, rope;
    int queries; /* under way at once */
    int block_keys, stages, stage_bytes;
    int math_registers, gather_registers;
};

static void choose_ring(struct choice *choice, const struct ring *ring) {
    choice->block_keys = ring->block_keys;
    choice->stages = ring->stages;
    choice->stage_bytes =
        choice->dqk / 64 * ring->block_keys * ROW + (ROWS - ring->block_keys) * ROW;
}

/* P may stand in the rope tile from this row on; the rows before it are given back first. */
static int low_keys(const struct choice *choice) {
    const int room = choice->heads > 16 ? choice->heads : 16;
    return choice->block_keys == ROWS ? ROWS / 2 : (choice->block_keys - room) / 16 * 16;
}

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int queries = choice->queries, heads = choice->heads, pair = queries > 1;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "KEYS_OFFSET", choice->stages * choice->stage_bytes, ALIGNMENT,
                           pair ? "key blocks; a query's last one then its output"
                                : "key blocks; at a query's end what the warpgroups exchange");
    smelt__plan_add_region(plan, "QUERY_OFFSET", queries * heads * choice->dqk * 2, ALIGNMENT, "Q");
    smelt__plan_add_region(plan, "P_OFFSET", choice->rope ? 0 : 2 * heads * ROW, ALIGNMENT,
                           "probabilities, where there is no rope tile for them");
    if (pair)
        smelt__plan_add_region(plan, "STATISTICS_OFFSET", queries * STATISTICS * heads * 4, 16,
                               "maxima and sums that warps tell each other, fp32");
    else
        smelt__plan_add_region(plan, "MAXIMA_OFFSET", 2 * 4 * heads * 4, 16,
                               "maxima that warps tell each other, fp32");
    smelt__plan_add_region(plan, "RING_OFFSET", queries * RING_ENTRIES * 4, 16,
                           "KV row numbers of the key blocks to come");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET",
                           (4 * choice->stages + queries + (pair ? 2 * REQUESTS : 0)) * 8, 8,
                           "mbarriers");
    if (pair)
        smelt__plan_add_region(plan, "REQUESTS_OFFSET", REQUESTS * 16, 16,
                               "key blocks that are to be copied");
    smelt__plan_add_region(plan, "WORDS_OFFSET", choice->stages * (pair ? 8 : 4), pair ? 8 : 4,
                           "what each stage holds");
    if (!pair)
        smelt__plan_add_region(plan, "COUNTS_OFFSET", 2 * 4, 4, "valid slots that each warp found");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

static void add_constants(const struct smelt__spec *spec, const struct choice *choice,
                          struct smelt__plan *plan) {
    const struct {
        const char *name;
        int value;
        enum smelt__origin origin;
        const char *meaning;
    } constants[] = {
        {"BLOCK_KEYS", choice->block_keys, smelt__plan_origin(spec, "block_keys"),
         "KV rows of a key block"},
        {"STAGES", choice->stages, smelt__plan_origin(spec, "stages"), "key blocks in flight"},
        {"QUERIES", choice->queries, smelt__plan_origin(spec, "queries"),
         "under way at once: 2, and each math warpgroup has one"},
        {"GATHER_REGISTERS", choice->gather_registers, smelt__plan_origin(spec, "gather_registers"),
         "of a thread, gather"},
        {"COMPACT", 1, smelt__plan_origin(spec, "compact"),
         "1: masked slots are dropped before the gather"},
        {"BLOCKS_PER_MULTIPROCESSOR", 1, smelt__plan_origin(spec, "blocks"), "resident at once"},
        {"THREADS", WARPGROUPS * WARPGROUP, SMELT__DERIVED, "of a thread block"},
        {"MATH_REGISTERS", choice->math_registers, SMELT__DERIVED,
         "of a thread, products and softmax"},
        {"BLOCK_HEADS", choice->heads, SMELT__DERIVED, "heads, rounded up to eights"},
        {"HEAD_BLOCKS", 1, SMELT__DERIVED, "items of a query"},
        {"STAGE_BYTES", choice->stage_bytes, SMELT__DERIVED, "from one stage to the next"},
        {"LOW_KEYS", low_keys(choice), SMELT__DERIVED, "rows of a stage given back first"},
        {"TURNS_AHEAD", 32, SMELT__DERIVED, "entries of a query list that a warp holds"},
        {"RING_ENTRIES", RING_ENTRIES, SMELT__DERIVED, "row numbers the ring holds"},
    };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        smelt__plan_add(plan, constants[i].name, constants[i].value, constants[i].origin,
                        constants[i].meaning);
}

/* The first ring that the knobs leave and that fits; 0 when there is none. */
static int choose_ring_of(const struct smelt__spec *spec, struct choice *choice,
                          struct smelt__plan *plan) {
    const struct ring *rings = choice->queries > 1                           ? PAIR_RINGS
                               : smelt__spec_get(spec, "topk") <= SHORT_TOPK ? short_rings
                                                                             : long_rings;
    for (size_t i = 0; i < RINGS; i++) {
        if (smelt__sparse_attn_fwd_knob(spec, "block_keys", rings[i].block_keys) !=
                rings[i].block_keys ||
            smelt__sparse_attn_fwd_knob(spec, "stages", rings[i].stages) != rings[i].stages)
            continue;
        choose_ring(choice, &rings[i]);
        add_regions(choice, plan);
        if (plan->shared_bytes <= SHARED_LIMIT)
            return 1;
    }
    return 0;
}

/* How many queries are under way by the rule. */
static int choose_queries(struct choice *choice, struct smelt__plan *plan) {
    choice->queries = 1;
    choose_ring(choice, &long_rings[0]);
    add_regions(choice, plan);
    return plan->shared_bytes <= SHARED_LIMIT ? 1 : 2;
}

/* That and the ring; 0 when none fits. */
static int choose(const struct smelt__spec *spec, struct choice *choice, struct smelt__plan *plan) {
    const int by_rule = choose_queries(choice, plan);
    choice->queries = smelt__sparse_attn_fwd_knob(spec, "queries", by_rule);
    if (choose_ring_of(spec, choice, plan))
        return 1;
    choice->queries = 1; /* whose Q leaves room for what the other knobs ask for */
    return smelt__spec_get(spec, "queries") == SMELT__AUTO && choose_ring_of(spec, choice, plan);
}

/* What the gather leaves is shared by the two warpgroups of math. */
static int choose_registers(const struct smelt__spec *spec, struct choice *choice,
                            struct smelt__message *message) {
    const int gather = smelt__sparse_attn_fwd_knob(spec, "gather_registers", GATHER_REGISTERS);
    if (gather < LEAST_GATHER || gather > MOST_GATHER || gather % REGISTER_UNIT != 0) {
        smelt__message_set(message,
                           "%s: gather_registers=%d is not legal with variant=sm90 and keys as "
                           "rows; legal: %d..%d by eights",
                           spec->family->name, gather, LEAST_GATHER, MOST_GATHER);
        return -1;
    }
    choice->gather_registers = gather;
    choice->math_registers = (ALL_REGISTERS - gather) / 2 / REGISTER_UNIT * REGISTER_UNIT;
    return 0;
}

int smelt__sparse_attn_fwd_plan_keys(const struct smelt__spec *spec, struct smelt__plan *plan,
                                     struct smelt__message *message) {
    struct choice choice = {0};
    choice.heads = ((int)smelt__spec_get(spec, "heads") + HEAD_GROUP - 1) / HEAD_GROUP * HEAD_GROUP;
    choice.dqk = (int)smelt__spec_get(spec, "dqk");
    choice.rope = choice.dqk > VALUE_WIDTH;
    if (choose_registers(spec, &choice, message))
        return -1;
    if (!choose(spec, &choice, plan)) {
        char text[SMELT__SPEC_TEXT];
        smelt__spec_print(spec, text);
        smelt__message_set(message,
                           "%s: keys as rows have block_keys 48 or 64 and stages 2..4 that fit "
                           "into %d KB of shared memory; auto finds what fits",
                           text, SHARED_LIMIT / 1024);
        return -1;
    }
    plan->template_name =
        choice.queries > 1 ? "sparse_attn_fwd.sm90_pair.cu" : "sparse_attn_fwd.sm90_few.cu";
    add_constants(spec, &choice, plan);
    add_regions(&choice, plan);
    plan->threads = WARPGROUPS * WARPGROUP;
    plan->heads_per_block = choice.heads;
    plan->head_blocks = 1;
    return 0;
}
