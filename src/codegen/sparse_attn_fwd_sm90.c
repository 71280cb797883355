/*
 * The kernel family sparse_attn_fwd: the plan of its variant sm90, heads as the matrices' rows; and
 * which orientation a spec gets. What the kernels do with these numbers stands at the heads of
 * templates/sparse_attn_fwd.sm90.cu and templates/sparse_attn_fwd.sm90_few.cu.
 *
 * The rule. At most 32 heads are the columns (sparse_attn_fwd_sm90_few.c), since rows are padded to
 * 64; more are rows. A block of 512 threads has 128 registers a thread at its start, 512 of four
 * threads, one in each warpgroup; setmaxnreg moves them. wgmma's operands that live at once need 26
 * more beside them (measured: fewer, and ptxas serialises every product). The output's 128
 * accumulators thus need 160 in each of two warpgroups; the gather gets along with 24; what is left
 * to the scores, 168, holds 32 accumulators and 27 k-steps of Q. That leaves room for three stages
 * of 64 keys, each 64 KB.
 */
#include <inttypes.h>

#include "codegen/sparse_attn_fwd.h"

enum {
    WARPGROUP = 128,    /* threads */
    WARPGROUPS = 4,     /* scores, two of output, gather */
    HEADS = 64,         /* of a block: wgmma's rows */
    MOST_COLUMNS = 32,  /* heads as columns; more, and the padding to 64 is cheaper */
    KEYS = 64,          /* of a key block */
    VALUE_WIDTH = 512,  /* the only one: two output warpgroups of 256 columns */
    TILE = 64 * 64 * 2, /* bytes: 64 rows of 64 columns */
    STEP = 64 * 16 * 2, /* bytes: 64 rows of Q of one k-step */
    STEP_FRAGMENTS = 4, /* registers a k-step of Q takes */
    SCORES = 32,        /* accumulators of a thread */
    SPARE = 26,         /* registers beside wgmma's operands */
    ALIGNMENT = 1024,   /* bytes: the swizzle repeats every 1024 */
    SCORES_REGISTERS = 168,
    OUTPUT_REGISTERS = 160,
    GATHER_REGISTERS = 24,
    REGISTER_STEPS = (SCORES_REGISTERS - SPARE - SCORES) / STEP_FRAGMENTS,
    TURN_STEPS = 10, /* measured: 4 and 18 are as fast (bench/LOG.md) */
    MOST_STAGES = 3,
    RING_ENTRIES = 128, /* the most that one scan leaves over and the next one's */
};

int smelt__sparse_attn_fwd_knob(const struct smelt__spec *spec, const char *name, int otherwise) {
    int64_t value = smelt__spec_get(spec, name);
    return value == SMELT__AUTO ? otherwise : (int)value;
}

enum smelt__origin smelt__sparse_attn_fwd_origin(const struct smelt__spec *spec, const char *name) {
    return smelt__spec_get(spec, name) == SMELT__AUTO ? SMELT__FROM_RULE : SMELT__FROM_KNOB;
}

static int knob(const struct smelt__spec *spec, const char *name, int otherwise) {
    return smelt__sparse_attn_fwd_knob(spec, name, otherwise);
}

/* A knob this orientation has one value for. */
static int refuse_knob(const struct smelt__spec *spec, const char *name, int legal,
                       struct smelt__message *message) {
    if (knob(spec, name, legal) == legal)
        return 0;
    smelt__message_set(message,
                       "%s: %s=%" PRId64 " is not legal with variant=sm90, which has %d; leave it "
                       "out, or use variant=mma",
                       spec->family->name, name, smelt__spec_get(spec, name), legal);
    return -1;
}

/* What this variant cannot do at all. */
static int refuse(const struct smelt__spec *spec, const struct smelt__arch *arch, int by_keys,
                  struct smelt__message *message) {
    const int64_t dv = smelt__spec_get(spec, "dv"), heads = smelt__spec_get(spec, "heads");
    if (!arch->warpgroup_products) {
        smelt__message_set(message,
                           "%s: variant=sm90 runs on sm_90a alone, not on %s; variant=mma runs "
                           "there",
                           spec->family->name, arch->name);
        return -1;
    }
    if (dv != VALUE_WIDTH) {
        smelt__message_set(message,
                           "%s: variant=sm90 has dv=%d alone, not dv=%" PRId64 "; variant=mma has "
                           "it",
                           spec->family->name, VALUE_WIDTH, dv);
        return -1;
    }
    if (by_keys && heads > MOST_COLUMNS) {
        smelt__message_set(message,
                           "%s: orientation=keys takes at most %d heads, not %" PRId64
                           "; orientation=heads takes them",
                           spec->family->name, MOST_COLUMNS, heads);
        return -1;
    }
    return refuse_knob(spec, "warps", by_keys ? 12 : 16, message) ||
                   refuse_knob(spec, "blocks", 1, message) ||
                   refuse_knob(spec, "compact", 1, message) ||
                   (!by_keys && refuse_knob(spec, "block_keys", KEYS, message))
               ? -1
               : 0;
}

static int refuse_stages(const struct smelt__spec *spec, struct smelt__message *message) {
    const int64_t stages = smelt__spec_get(spec, "stages");
    if (stages == SMELT__AUTO || stages <= MOST_STAGES)
        return 0;
    smelt__message_set(message,
                       "%s: stages=%" PRId64 " is not legal with variant=sm90 and heads as rows; "
                       "legal: 2..%d",
                       spec->family->name, stages, MOST_STAGES);
    return -1;
}

/* P has a buffer of its own for two blocks where Q K^T reads no rope columns: their tile's room. */
static int p_buffers(int rope) {
    return rope ? 1 : 2;
}

static void add_constants(const struct smelt__spec *spec, struct smelt__plan *plan) {
    const int heads = knob(spec, "heads", 0);
    const int rope = knob(spec, "dqk", 0) > VALUE_WIDTH;
    const struct {
        const char *name;
        int value;
        enum smelt__origin origin;
        const char *meaning;
    } constants[] = {
        {"STAGES", knob(spec, "stages", MOST_STAGES), smelt__sparse_attn_fwd_origin(spec, "stages"),
         "key blocks in flight"},
        {"BLOCK_KEYS", KEYS, smelt__sparse_attn_fwd_origin(spec, "block_keys"),
         "KV rows of a key block"},
        {"REGISTER_STEPS", REGISTER_STEPS, SMELT__FROM_RULE, "k-steps of Q held in registers"},
        {"TURN_STEPS", TURN_STEPS, SMELT__FROM_RULE, "k-steps of QK in flight when PV may begin"},
        {"SCORES_REGISTERS", SCORES_REGISTERS, SMELT__FROM_RULE, "of a thread, QK and softmax"},
        {"OUTPUT_REGISTERS", OUTPUT_REGISTERS, SMELT__FROM_RULE, "of a thread, PV"},
        {"GATHER_REGISTERS", GATHER_REGISTERS, SMELT__FROM_RULE, "of a thread, gather"},
        {"COMPACT", 1, smelt__sparse_attn_fwd_origin(spec, "compact"),
         "1: masked slots are dropped before the gather"},
        {"BLOCKS_PER_MULTIPROCESSOR", 1, smelt__sparse_attn_fwd_origin(spec, "blocks"),
         "resident at once"},
        {"THREADS", WARPGROUPS * WARPGROUP, SMELT__DERIVED, "of a thread block"},
        {"HEAD_BLOCKS", (heads + HEADS - 1) / HEADS, SMELT__DERIVED, "items of a query"},
        {"P_BUFFERS", p_buffers(rope), SMELT__DERIVED, "of probabilities"},
        {"RING_ENTRIES", RING_ENTRIES, SMELT__DERIVED, "row numbers the ring holds"},
    };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        smelt__plan_add(plan, constants[i].name, constants[i].value, constants[i].origin,
                        constants[i].meaning);
}

static void add_regions(const struct smelt__spec *spec, struct smelt__plan *plan) {
    const int dqk = knob(spec, "dqk", 0), rope = dqk > VALUE_WIDTH;
    const int stages = knob(spec, "stages", MOST_STAGES), buffers = p_buffers(rope);
    smelt__plan_add_region(plan, "LATENT_OFFSET", stages * VALUE_WIDTH / 64 * TILE, ALIGNMENT,
                           "key blocks, the columns that are key and value");
    smelt__plan_add_region(plan, "ROPE_OFFSET", rope ? TILE : 0, ALIGNMENT,
                           "a key block, the columns that are key alone");
    smelt__plan_add_region(plan, "PROBABILITIES_OFFSET", buffers * TILE, ALIGNMENT,
                           "probabilities, bf16");
    smelt__plan_add_region(plan, "QUERY_OFFSET", (dqk / 16 - REGISTER_STEPS) * STEP, ALIGNMENT,
                           "the k-steps of Q that are not in registers");
    smelt__plan_add_region(plan, "RING_OFFSET", RING_ENTRIES * 4, 16,
                           "KV row numbers of the key blocks to come");
    smelt__plan_add_region(plan, "INVERSES_OFFSET", buffers * HEADS * 4, 16,
                           "1 / denominator of each head, fp32");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET", (3 * stages + 3 * buffers + 2) * 8, 8,
                           "mbarriers");
    smelt__plan_add_region(plan, "EXPONENTS_OFFSET", buffers * HEADS, 16,
                           "what the output's rows are multiplied by, powers of two");
    smelt__plan_add_region(plan, "WORDS_OFFSET", stages * 4, 4, "what each stage holds");
    smelt__plan_add_region(plan, "COUNTS_OFFSET", 2 * 4, 4, "valid slots that each warp found");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

void smelt__sparse_attn_fwd_plan_heads(const struct smelt__spec *spec, struct smelt__plan *plan) {
    plan->template_name = "sparse_attn_fwd.sm90.cu";
    add_constants(spec, plan);
    add_regions(spec, plan);
    plan->threads = WARPGROUPS * WARPGROUP;
    plan->heads_per_block = HEADS;
    plan->head_blocks = (knob(spec, "heads", 0) + HEADS - 1) / HEADS;
}

int smelt__sparse_attn_fwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                     struct smelt__plan *plan, struct smelt__message *message) {
    const int64_t orientation = smelt__spec_get(spec, "orientation");
    const int by_keys = orientation == SMELT__AUTO ? knob(spec, "heads", 0) <= MOST_COLUMNS
                                                   : orientation == SMELT__SPARSE_ATTN_KEYS;
    if (refuse(spec, arch, by_keys, message) || (!by_keys && refuse_stages(spec, message)))
        return -1;
    plan->variant = "sm90";
    smelt__sparse_attn_fwd_name(spec, plan);
    if (!by_keys)
        smelt__sparse_attn_fwd_plan_heads(spec, plan);
    else if (smelt__sparse_attn_fwd_plan_keys(spec, plan, message))
        return -1;
    plan->blocks_per_multiprocessor = 1;
    plan->max_registers = arch->registers_per_multiprocessor / plan->threads / 8 * 8;
    plan->persistent = 1;
    return 0;
}
