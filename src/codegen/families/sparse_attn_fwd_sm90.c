/*
 * The kernel family sparse_attn_fwd: the plan of its variant sm90, heads as the matrices' rows; and
 * which orientation a spec gets. The comment at the head of templates/sparse_attn_fwd.sm90.cu and
 * .sm90_few.cu explains the numbers.
 *
 * The rule. At most 32 heads are the columns (sparse_attn_fwd_sm90_few.c), since rows are padded to
 * 64; more are rows. A block of 512 threads has 128 registers a thread at its start, 512 of four
 * threads, one in each warpgroup; setmaxnreg moves them. In addition to the live operands of wgmma, a
 * thread needs 26 (measured: with fewer, ptxas serialises every product). The output's 128
 * accumulators thus need 160 in each of two warpgroups; the gather needs 24; the remaining 168, for
 * the scores, hold 32 accumulators and 27 k-steps of Q. That leaves room for three stages of 64
 * keys, each 64 KB.
 *
 * The knobs. stages 2 or 3, as many as fit; output_registers 160 or 168, gather_registers by eights
 * from 24 on, up to 48 and 32: registers that they take from the scores, which need 144, move k-steps
 * of Q from registers into shared memory; pv_overlap from 0 to one less than the k-steps of Q in
 * registers. The others have one value.
 */
#include <inttypes.h>

#include "codegen/families/sparse_attn_fwd.h"
#include "codegen/plan/limits.h"
#include "codegen/spec/keys.h"

enum {
    WARPGROUP = 128,     /* threads */
    WARPGROUPS = 4,      /* scores, two of output, gather */
    HEADS = 64,          /* of a block: wgmma's rows */
    MOST_COLUMNS = 32,   /* heads as columns; more, and the padding to 64 is cheaper */
    KEYS = 64,           /* of a key block */
    VALUE_WIDTH = 512,   /* the only one: two output warpgroups of 256 columns */
    ROPE_WIDTH = 64,     /* columns that are key alone, or none */
    TILE = 64 * 64 * 2,  /* bytes: 64 rows of 64 columns */
    STEP = 64 * 16 * 2,  /* bytes: 64 rows of Q of one k-step */
    STEP_FRAGMENTS = 4,  /* registers a k-step of Q takes */
    SCORES = 32,         /* accumulators of a thread */
    SPARE = 26,          /* registers beside wgmma's operands */
    ALIGNMENT = 1024,    /* bytes: the swizzle repeats every 1024 */
    ALL_REGISTERS = 512, /* of four threads, one in each warpgroup */
    REGISTER_UNIT = 8,   /* setmaxnreg's */
    LEAST_OUTPUT = 160,  /* registers */
    LEAST_GATHER = 24,
    LEAST_SCORES = 144, /* measured: with 136 some spill */
    MOST_SCORES = ALL_REGISTERS - 2 * LEAST_OUTPUT - LEAST_GATHER,
    WIDE_SPARE = 30, /* beside wgmma's operands with fewer for the scores: with 26 some spill */
    PV_OVERLAP = 10, /* measured: 4 and 18 are as fast (bench/log/sparse_attn_fwd.md) */
    LEAST_STAGES = 2,
    MOST_STAGES = 3,
    SHARED_LIMIT = 227 * 1024,
    RING_ENTRIES = 128, /* the most that one scan leaves over and the next one's */
};

/* What this variant cannot do at all. */
static int refuse(const struct smelt__spec *spec, int by_keys, struct smelt__message *message) {
    const int64_t dqk = smelt__spec_get(spec, "dqk"), dv = smelt__spec_get(spec, "dv");
    const int64_t heads = smelt__spec_get(spec, "heads");
    if (dv != VALUE_WIDTH || (dqk != dv && dqk != dv + ROPE_WIDTH))
        return smelt__spec_refuse(spec, message,
                                  "variant=sm90 has dqk=%d or %d with dv=%d, not dqk=%" PRId64
                                  " with dv=%" PRId64 "; variant=mma has it",
                                  VALUE_WIDTH + ROPE_WIDTH, VALUE_WIDTH, VALUE_WIDTH, dqk, dv);
    if (by_keys && heads > MOST_COLUMNS)
        return smelt__spec_refuse(spec, message,
                                  "orientation=keys takes at most %d heads, not %" PRId64
                                  "; orientation=heads takes them",
                                  MOST_COLUMNS, heads);
    return smelt__check_only_with(spec, "orientation",
                                  by_keys ? SMELT__KEYS_AS_ROWS : SMELT__HEADS_AS_ROWS, message);
}

/* The choices, and values that follow from them. */
struct choice {
    int heads, dqk, rope;
    int stages, pv_overlap;
    int scores_registers, output_registers, gather_registers;
    int register_steps; /* k-steps of Q in registers */
    int buffers;        /* of P: of its own for two blocks where Q K^T reads no rope columns */
};

static void choose_registers(const struct smelt__spec *spec, struct choice *choice) {
    choice->output_registers = smelt__spec_knob(spec, "output_registers", LEAST_OUTPUT);
    choice->gather_registers = smelt__spec_knob(spec, "gather_registers", LEAST_GATHER);
    choice->scores_registers =
        ALL_REGISTERS - 2 * choice->output_registers - choice->gather_registers;
    const int spare = choice->scores_registers < MOST_SCORES ? WIDE_SPARE : SPARE;
    choice->register_steps = (choice->scores_registers - spare - SCORES) / STEP_FRAGMENTS;
    choice->pv_overlap = smelt__spec_knob(spec, "pv_overlap", PV_OVERLAP);
}

/* A knob's value that is no multiple of `unit` from `least` to `most`: the nearest is named. */
static int refuse_value(const struct smelt__spec *spec, const char *name, int value, int least,
                        int most, int unit, struct smelt__message *message) {
    if (value >= least && value <= most && value % unit == 0)
        return 0;
    int nearest = (value + unit / 2) / unit * unit;
    nearest = nearest < least ? least : nearest > most ? most : nearest;
    return smelt__spec_refuse(spec, message,
                              "%s=%d is not legal with variant=sm90 and heads as rows; the nearest "
                              "legal one is %d, from %s%d..%d",
                              name, value, nearest, unit > 1 ? "multiples of 8 in " : "", least,
                              most);
}

static int refuse_choice(const struct smelt__spec *spec, const struct choice *choice,
                         struct smelt__message *message) {
    return refuse_value(spec, "gather_registers", choice->gather_registers, LEAST_GATHER,
                        ALL_REGISTERS - 2 * choice->output_registers - LEAST_SCORES, REGISTER_UNIT,
                        message) ||
                   refuse_value(spec, "pv_overlap", choice->pv_overlap, 0,
                                choice->register_steps - 1, 1, message) ||
                   refuse_value(spec, "stages", smelt__spec_knob(spec, "stages", MOST_STAGES),
                                LEAST_STAGES, MOST_STAGES, 1, message)
               ? -1
               : 0;
}

static void add_constants(const struct smelt__spec *spec, const struct choice *choice,
                          struct smelt__plan *plan) {
    SMELT__PLAN_ADD(
        plan, spec, {"STAGES", "stages", choice->stages, "key blocks in flight"},
        {"BLOCK_KEYS", "block_keys", KEYS, "KV rows of a key block"},
        {"PV_OVERLAP", "pv_overlap", choice->pv_overlap,
         "k-steps of QK in flight when PV may begin"},
        {"OUTPUT_REGISTERS", "output_registers", choice->output_registers,
         "registers of a thread that computes PV"},
        {"GATHER_REGISTERS", "gather_registers", choice->gather_registers,
         "registers of a thread that gathers"},
        {"COMPACT", "compact", 1, "1: masked slots are dropped before the gather"},
        {"BLOCKS_PER_MULTIPROCESSOR", "blocks", 1, "thread blocks resident at once"},
        {"RACECHECK", "racecheck", smelt__spec_knob(spec, "racecheck", 0),
         "1: every lane of a warp arrives at barriers"},
        {"THREADS", NULL, WARPGROUPS * WARPGROUP, "threads of a thread block"},
        {"SCORES_REGISTERS", NULL, choice->scores_registers,
         "registers of a thread that computes QK and the softmax"},
        {"REGISTER_STEPS", NULL, choice->register_steps, "k-steps of Q held in registers"},
        {"HEAD_BLOCKS", NULL, (choice->heads + HEADS - 1) / HEADS, "items of a query"},
        {"P_BUFFERS", NULL, choice->buffers, "buffers of probabilities"},
        {"QUERIES_AHEAD", NULL, 1,
         "entries of a query list that a warp holds: registers are short"},
        {"RING_ENTRIES", NULL, RING_ENTRIES, "row numbers the ring holds"});
}

static void add_regions(const struct choice *choice, struct smelt__plan *plan) {
    const int stages = choice->stages, buffers = choice->buffers;
    plan->region_count = 0;
    smelt__plan_add_region(plan, "LATENT_OFFSET", stages * VALUE_WIDTH / 64 * TILE, ALIGNMENT,
                           "key blocks, the columns that are key and value");
    smelt__plan_add_region(plan, "ROPE_OFFSET", choice->rope ? TILE : 0, ALIGNMENT,
                           "a key block, the columns that are key alone");
    smelt__plan_add_region(plan, "PROBABILITIES_OFFSET", buffers * TILE, ALIGNMENT,
                           "probabilities, bf16");
    smelt__plan_add_region(plan, "QUERY_OFFSET", (choice->dqk / 16 - choice->register_steps) * STEP,
                           ALIGNMENT, "the k-steps of Q that are not in registers");
    smelt__plan_add_region(plan, "RING_OFFSET", RING_ENTRIES * 4, 16,
                           "KV row numbers of the key blocks to come");
    smelt__plan_add_region(plan, "DENOMINATORS_OFFSET", buffers * HEADS * 4, 16,
                           "denominator of each head, fp32");
    smelt__plan_add_region(plan, "BARRIERS_OFFSET", (3 * stages + 3 * buffers + 2) * 8, 8,
                           "mbarriers");
    smelt__plan_add_region(plan, "EXPONENTS_OFFSET", buffers * HEADS, 16,
                           "factors of the output's rows, powers of two");
    smelt__plan_add_region(plan, "WORDS_OFFSET", stages * 4, 4, "what each stage holds");
    smelt__plan_add_region(plan, "COUNTS_OFFSET", 2 * 4, 4, "valid slots that each warp found");
    smelt__plan_add_region(plan, "RANGE_OFFSET", 2 * 4, 8, "which items the launch takes");
}

/* The most stages that fit, or those that the knob requests, if they do. */
static int choose_stages(const struct smelt__spec *spec, struct choice *choice,
                         struct smelt__plan *plan, struct smelt__message *message) {
    const int knob = smelt__spec_knob(spec, "stages", 0);
    for (choice->stages = knob ? knob : MOST_STAGES;; choice->stages--) {
        add_regions(choice, plan);
        if (plan->shared_bytes <= SHARED_LIMIT)
            return 0;
        if (knob || choice->stages == LEAST_STAGES)
            break;
    }
    return smelt__spec_refuse(spec, message,
                              "stages=%d and %d registers for the scores, which leave %d k-steps "
                              "of Q to shared memory, need %.1f KB of it, and there are %d; use "
                              "fewer stages, output_registers or gather_registers",
                              choice->stages, choice->scores_registers,
                              choice->dqk / 16 - choice->register_steps,
                              plan->shared_bytes / 1024.0, SHARED_LIMIT / 1024);
}

static int plan_heads(const struct smelt__spec *spec, struct smelt__plan *plan,
                      struct smelt__message *message) {
    struct choice choice = {.heads = smelt__spec_knob(spec, "heads", 0),
                            .dqk = smelt__spec_knob(spec, "dqk", 0)};
    choice.rope = choice.dqk > VALUE_WIDTH;
    choice.buffers = choice.rope ? 1 : 2;
    choose_registers(spec, &choice);
    if (refuse_choice(spec, &choice, message) || choose_stages(spec, &choice, plan, message))
        return -1;
    add_constants(spec, &choice, plan);
    plan->threads = WARPGROUPS * WARPGROUP;
    plan->blocks_per_item = (choice.heads + HEADS - 1) / HEADS;
    return 0;
}

int smelt__sparse_attn_fwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                     struct smelt__plan *plan, struct smelt__message *message) {
    const int64_t orientation = smelt__spec_get(spec, "orientation");
    const int by_keys = orientation == SMELT__AUTO
                            ? smelt__spec_knob(spec, "heads", 0) <= MOST_COLUMNS
                            : orientation == SMELT__KEYS_AS_ROWS;
    if (refuse(spec, by_keys, message))
        return -1;
    smelt__sparse_attn_name(spec, plan);
    smelt__plan_add(plan, "PDL", arch->pdl, SMELT__DERIVED, "1: has programmatic dependent launch");
    if (by_keys ? smelt__sparse_attn_fwd_plan_keys(spec, plan, message)
                : plan_heads(spec, plan, message))
        return -1;
    plan->item = "query";
    plan->blocks_per_multiprocessor = 1;
    plan->max_registers = arch->registers_per_multiprocessor / plan->threads / 8 * 8;
    plan->persistent = 1;
    return 0;
}
