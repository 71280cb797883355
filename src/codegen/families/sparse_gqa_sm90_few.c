/*
 * The plans of variant sm90 of sparse_gqa's kernels with granularity 1, 4 or 16
 * (templates/sparse_gqa_fwd.sm90_few.cu, sparse_gqa_bwd.sm90.cu, sparse_gqa_bwd_keys.sm90_few.cu;
 * few_heads.h).
 *
 * The rule is sparse_attn's (sparse_attn_fwd_sm90_few.c), with more whole blocks in the ring where
 * widths are small, and parts of two tiles. An item has a KV head's heads; more than 32 of them leave
 * the gather its least registers. In sparse_gqa_bwd_keys keys and heads are exchanged: an item's
 * "heads" are a block's keys; parts of four tiles are 1 % faster than of two there.
 */
#include <stdio.h>
#include <string.h>

#include "codegen/families/few_heads.h"
#include "codegen/families/sparse_gqa.h"

enum {
    UNIT = SMELT__FEW_HEADS_UNIT,
    DEPTH = 16,             /* of wgmma's products: the heads of dk and dv */
    HEADS_ITEM = 12,        /* bytes of an item: a query, a KV head and the query's entry */
    HEADS_TENSOR = 8,       /* the batch and the KV head */
    BLOCK_ITEM = 16,        /* a block of keys: its number, table, first row and reach */
    BLOCK_TENSOR = 4,       /* the table: batch and KV head */
    MOST_BLOCKS = 16,       /* of the ring: a bit each in a thread's parities */
    WIDE_HEADS = 32,        /* with more: all registers that the gather spares */
    MOST_OUTPUT = 56 * 256, /* heads times dv of an item: with more the assembler spills */
    MOST_QUERIES = 4,       /* of an item: a bit each above a row's number */
    MOST_ITEM_HEADS = 64,
    MOST_UNITED = 48 * 256, /* as MOST_OUTPUT, with several queries: masks need registers, too */
    COPY_TEAMS = 3,         /* needs a ring with room for one block more than teams */
    FEW_TILES = 6,          /* of sparse_gqa_bwd_keys: above, tiles are filled in fours */
};

/* The choices for a kernel whose items are one KV head's query heads in each of `queries` queries. Their number is
 * rounded up to a multiple of `step`. */
static struct smelt__few_heads heads_choice(const struct smelt__gqa_shape *shape, int queries,
                                            int step) {
    return (struct smelt__few_heads){.heads = (queries * shape->group + step - 1) / step * step,
                                     .head_blocks = shape->kv_heads,
                                     .item_bytes = HEADS_ITEM,
                                     .tensor_bytes = HEADS_TENSOR,
                                     .p_matrices = 1,
                                     .part_tiles = SMELT__FEW_HEADS_PART,
                                     .copy_teams = 1,
                                     .queries = queries};
}

/* Chooses the ring, and the number of copy teams, at most choice->copy_teams. In a ring with room for four blocks three
 * teams are faster than one; in a smaller ring they are slower, but two teams are faster if lists are united
 * (bench/log/sparse_gqa.md). */
static void choose_ring(struct smelt__few_heads *choice, struct smelt__plan *plan) {
    const int fewer = choice->queries > 1 ? 2 : 1;
    if (smelt__few_heads_ring(choice, plan) < (COPY_TEAMS + 1) * choice->tiles &&
        choice->copy_teams > fewer) {
        choice->copy_teams = fewer;
        smelt__few_heads_ring(choice, plan);
    }
}

/* Makes the remaining choices and fills in the plan. choice->part_tiles is the default of the knob part_tiles. */
static void make(const struct smelt__spec *spec, const struct smelt__arch *arch,
                 struct smelt__few_heads *choice, struct smelt__plan *plan) {
    const int has_knob = smelt__spec_key(spec->schema, "item_queries") >= 0;
    choice->part_tiles = smelt__spec_knob(spec, "part_tiles", choice->part_tiles);
    choice->most_stages = MOST_BLOCKS;
    choice->leading_parts = smelt__few_heads_parts(choice->leading_tiles, choice);
    choose_ring(choice, plan);
    smelt__few_heads_divide_registers(choice->heads > WIDE_HEADS && choice->queries <= 1
                                          ? SMELT__FEW_HEADS_LEAST_GATHER
                                          : SMELT__FEW_HEADS_GATHER,
                                      choice);
    smelt__sparse_gqa_name(spec, plan);
    smelt__few_heads_plan(spec, choice, plan);
    if (choice->queries) {
        SMELT__PLAN_ADD(plan, spec,
                        {"ITEM_QUERIES", has_knob ? "item_queries" : NULL, choice->queries,
                         "queries of an item, whose lists are united"});
        plan->item = "query"; /* else items are not queries, whose number the call knows */
    }
    ((struct smelt__sparse_gqa_launch *)(void *)plan->launch)->queries = choice->queries;
    plan->blocks_per_multiprocessor = 1;
    plan->max_registers = smelt__registers_of_thread(arch, plan->threads, 1);
    plan->persistent = 1;
}

/* The most queries of an item whose lists may be united: as many as registers have room for. */
static int most_queries(const struct smelt__spec *spec, const struct smelt__gqa_shape *shape) {
    const int most = MOST_UNITED / shape->dv;
    int queries = smelt__spec_get(spec, "unite") ? MOST_QUERIES : 1;
    while (queries > 1 && heads_choice(shape, queries, UNIT).heads >
                              (most < MOST_ITEM_HEADS ? most : MOST_ITEM_HEADS))
        queries /= 2;
    return queries;
}

int smelt__sparse_gqa_fwd_plan_few(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                   struct smelt__plan *plan, struct smelt__message *message) {
    const struct smelt__gqa_shape shape = smelt__sparse_gqa_shape(spec);
    const int most = most_queries(spec, &shape);
    const int queries = smelt__spec_knob(spec, "item_queries", most);
    struct smelt__few_heads choice = heads_choice(&shape, queries, UNIT);
    if (queries > most)
        return smelt__spec_refuse(spec, message,
                                  "item_queries=%d is too many; legal: at most %d (with unite=1 "
                                  "those that have 64 heads of a KV head, 48 with dv=256; else 1)",
                                  queries, most);
    if (choice.heads * shape.dv > MOST_OUTPUT)
        return smelt__spec_refuse(spec, message,
                                  "variant sm90 with granularity 1, 4 or 16 needs at most 56 heads "
                                  "of a KV head with dv=256");
    choice.statistics = 1;
    choice.copy_teams = COPY_TEAMS;
    choice.row_numbers = queries > 1;
    choice.leading_tiles = choice.query_tiles = smelt__few_heads_tiles(shape.dqk);
    choice.tiles = choice.leading_tiles + smelt__few_heads_tiles(shape.dv);
    make(spec, arch, &choice, plan);
    smelt__plan_set_template(plan, "sm90_few");
    smelt__plan_add(plan, "HAS_SINK", (int)smelt__spec_get(spec, "sink"), SMELT__DERIVED,
                    "1: a logit per head in the denominator");
    return 0;
}

int smelt__sparse_gqa_bwd_plan_sm90(const struct smelt__spec *spec, const struct smelt__arch *arch,
                                    struct smelt__plan *plan, struct smelt__message *message) {
    const struct smelt__gqa_shape shape = smelt__sparse_gqa_shape(spec);
    const int64_t sums = smelt__spec_get(spec, "sums");
    struct smelt__few_heads choice = heads_choice(&shape, 1, DEPTH);
    if (choice.heads > WIDE_HEADS || shape.granularity >= SMELT__GQA_BLOCK)
        return smelt__spec_refuse(
            spec, message,
            "variant sm90 needs granularity 1, 4 or 16 and at most %d heads of a KV head",
            WIDE_HEADS);
    choice.row_numbers = 1;
    choice.copy_teams =
        sums == SMELT__GQA_SUMS_BOUNDS ? COPY_TEAMS : 1; /* the others mostly wait for additions */
    choice.leading_tiles = smelt__few_heads_tiles(shape.dv);
    choice.tiles = choice.query_tiles = choice.leading_tiles + smelt__few_heads_tiles(shape.dqk);
    make(spec, arch, &choice, plan);
    smelt__plan_add(plan, "SUMS", (int)sums, SMELT__FROM_SPEC,
                    "dk and dv: 0 added in any order, 1 only bounds of the sums, 2 exact sums");
    if (sums != SMELT__GQA_SUMS_ANY) {
        char *const name = plan->kernel_name + strlen(plan->kernel_name);
        snprintf(name, sizeof plan->kernel_name - (size_t)(name - plan->kernel_name), "_%s",
                 smelt__spec_choice(spec, "sums"));
    }
    return 0;
}

int smelt__sparse_gqa_bwd_keys_plan_few(const struct smelt__spec *spec,
                                        const struct smelt__arch *arch, struct smelt__plan *plan,
                                        struct smelt__message *message) {
    const struct smelt__gqa_shape shape = smelt__sparse_gqa_shape(spec);
    const int tiles = smelt__few_heads_tiles(shape.dqk) + smelt__few_heads_tiles(shape.dv);
    struct smelt__few_heads choice = {.heads = (shape.granularity + UNIT - 1) / UNIT * UNIT,
                                      .head_blocks = 1,
                                      .item_bytes = BLOCK_ITEM,
                                      .tensor_bytes = BLOCK_TENSOR,
                                      .row_numbers = 1,
                                      .p_matrices = 2,
                                      .tiles = tiles,
                                      .query_tiles = tiles,
                                      .copy_teams = 1,
                                      .part_tiles = tiles > FEW_TILES ? SMELT__FEW_HEADS_WIDE_PART
                                                                      : SMELT__FEW_HEADS_PART};
    (void)message; /* it always has a plan */
    make(spec, arch, &choice, plan);
    smelt__plan_set_template(plan, "sm90_few");
    return 0;
}
