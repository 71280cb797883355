/* The kernel family sparse_attn_bwd_sum: the deterministic mode's sums of partial rows. */
#include <stdio.h>

#include "codegen/families/sparse_attn_bwd.h"
#include "codegen/families/sparse_attn_keys.h"
#include "codegen/plan/limits.h"

static const struct smelt__key keys[] = {
    SMELT__SPARSE_ATTN_DQK,
};

enum {
    COLUMNS = 8,            /* of a thread: 16 bytes of bf16 */
    THREADS_WANTED = 256,   /* of a block, about */
    WARP = 32,              /* threads */
    TEAM_STEP = 4,          /* teams: whole warps if rows are multiples of 64 */
    WIDE_TEAM = 96,         /* threads; larger teams need too much shared memory for four */
    RESIDENT_THREADS = 864, /* of a multiprocessor, where its shared memory has room for them */
    ROWS = 4,               /* that a thread copies at a time */
    STAGES = 4,             /* so 16 bytes of 12 rows are in flight per thread */
    MOST_ALONE = 512,       /* entries that a team sums by itself */
    RUN = 64,               /* entries; longer lists are summed in runs of it */
    HOPPER = 9              /* major capability from which on four values are added at once */
};

/* Teams of a block, in whole warps if possible. */
static int teams_of(int team) {
    const int wanted = THREADS_WANTED / team;
    if (team * TEAM_STEP % WARP != 0 || team > WIDE_TEAM)
        return wanted;
    return wanted > TEAM_STEP ? wanted / TEAM_STEP * TEAM_STEP : TEAM_STEP;
}

static int plan_sum(const struct smelt__spec *spec, const struct smelt__arch *arch,
                    struct smelt__plan *plan, struct smelt__message *message) {
    const int dqk = (int)smelt__spec_get(spec, "dqk"), team = dqk / COLUMNS;
    const int teams = teams_of(team), threads = (team * teams + WARP - 1) / WARP * WARP;
    const int bytes = STAGES * ROWS * threads * 16, most = RESIDENT_THREADS / threads;
    const int room = arch->shared_per_multiprocessor / (bytes + arch->shared_reserved);
    (void)message; /* every architecture has it */
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_sparse_attn_bwd_sum_qk%d", dqk);
    smelt__plan_set_threads(plan, threads, room < most ? room : most);
    plan->item = "key";
    plan->blocks_per_item = 1; /* fewer do: a team each */
    plan->persistent = 1;
    smelt__plan_add(plan, "DQK", dqk, SMELT__FROM_SPEC, "width of a row, elements");
    smelt__plan_add(plan, "TEAMS", teams, SMELT__DERIVED,
                    "teams of a thread block, each of which sums a key");
    smelt__plan_add(plan, "MOST_ALONE", MOST_ALONE, SMELT__DERIVED,
                    "entries of a key that a team sums by itself");
    smelt__plan_add(plan, "RUN", RUN, SMELT__DERIVED, "entries of a longer list that a team sums");
    smelt__plan_add(plan, "PDL", arch->pdl, SMELT__DERIVED, "1: may be launched with PDL");
    smelt__plan_add(plan, "VECTOR_REDUCTIONS", arch->capability_major >= HOPPER, SMELT__DERIVED,
                    "1: four values are added to global memory at once");
    smelt__plan_add(plan, "STAGES", STAGES, SMELT__DERIVED, "stages of rows that are copied ahead");
    smelt__plan_add_region(plan, "RING_OFFSET", bytes, 16, "copied columns; sums of runs");
    return 0;
}

const struct smelt__kernel_family smelt__sparse_attn_bwd_sum = {
    .schema = {.name = "sparse_attn_bwd_sum",
               .summary = "sums of partial rows of dkv in a fixed order",
               SMELT__KEYS(keys)},
    SMELT__VARIANTS({"sum", plan_sum}),
};
