/* The kernel family indexer_loss_rows: the loss of each query, and its gradient. */
#include <stdio.h>

#include "codegen/families/indexer_loss.h"
#include "codegen/plan/limits.h"
#include "codegen/spec/keys.h"

enum {
    WARP = 32,
    VECTOR = 4, /* slots of 16 bytes */
    MOST_THREADS = 1024,
    VECTORS = 2, /* of a thread */
    /* For longer rows, up to what one part holds: fewer threads, so that several blocks are
     * resident and some load while others reduce. */
    LONG = 4096,
    LONG_VECTORS = 4
};

/* Registers of a thread, by its vectors: with fewer than the least it spills. */
static const struct registers {
    int vectors, least, usual;
} registers_for[] = {{1, 40, 48}, {2, 48, 56}, {4, 64, 72}};

static const struct smelt__key keys[] = {
    SMELT__INDEXER_LOSS_TOPK,
    {SMELT__KNOB("vectors", "vectors of 4 slots that a thread has of a row"),
     SMELT__AUTO_ONE_OF(1, 2, 4), SMELT__TUNED},
    {SMELT__KNOB("blocks", "resident thread blocks a multiprocessor is compiled for"),
     SMELT__AUTO_RANGE(1, 16), SMELT__TUNED_AT(2, 3, 4, 5)},
};

static const struct registers *find_registers(int vectors) {
    int i = 0;
    while (registers_for[i].vectors != vectors) /* which was checked */
        i++;
    return &registers_for[i];
}

static int divide_up(int count, int step) {
    return (count + step - 1) / step;
}

/* As many as hold a row of topk slots, in whole warps. */
static int threads_for(int topk, int vectors) {
    const int threads = divide_up(topk, vectors * VECTOR * WARP) * WARP;
    return threads < MOST_THREADS ? threads : MOST_THREADS;
}

/* Rows of several parts do not stay in registers anyway. */
static int choose_vectors(int topk) {
    return topk > LONG && topk <= LONG_VECTORS * VECTOR * MOST_THREADS ? LONG_VECTORS : VECTORS;
}

/* As many as registers and threads leave room for. */
static int resident_blocks(const struct smelt__arch *arch, int threads, int vectors) {
    enum { MOST = 16 };
    int blocks = arch->threads_per_multiprocessor / threads;
    while (blocks > 1 &&
           smelt__registers_of_thread(arch, threads, blocks) < find_registers(vectors)->usual)
        blocks--;
    return blocks < MOST ? blocks : MOST;
}

/* -1 if `blocks` blocks are not resident at once. */
static int check_room(const struct smelt__spec *spec, const struct smelt__arch *arch, int threads,
                      int vectors, int blocks, struct smelt__message *message) {
    const int registers = smelt__registers_of_thread(arch, threads, blocks);
    const int least = find_registers(vectors)->least;
    if (threads * blocks <= arch->threads_per_multiprocessor && registers >= least)
        return 0;
    return smelt__spec_refuse(spec, message,
                              "blocks=%d of %d threads: a multiprocessor of %s has room for %d "
                              "threads, and each would have %d registers; %d are needed",
                              blocks, threads, arch->name, arch->threads_per_multiprocessor,
                              registers, least);
}

static int plan_rows(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const int topk = (int)smelt__spec_get(spec, "topk");
    const int vectors = smelt__spec_knob(spec, "vectors", choose_vectors(topk));
    const int threads = threads_for(topk, vectors), part = threads * vectors * VECTOR;
    const int warps_bytes = threads / WARP * 4;
    const int blocks = smelt__spec_knob(spec, "blocks", resident_blocks(arch, threads, vectors));
    if (check_room(spec, arch, threads, vectors, blocks, message))
        return -1;
    plan->item = "query";
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_indexer_loss_rows_k%d", topk);
    smelt__plan_set_threads(plan, threads, blocks);
    smelt__plan_add(plan, "VECTORS", vectors, smelt__plan_origin(spec, "vectors"),
                    "vectors of 4 slots that a thread has of a part");
    smelt__plan_add(plan, "PARTS", divide_up(topk, part), SMELT__DERIVED,
                    "parts of a row of topk slots; 1: the row stays in registers");
    smelt__plan_add(plan, "PDL", arch->pdl, SMELT__DERIVED,
                    "1: the next kernel is launched with PDL");
    smelt__plan_add_region(plan, "MAXIMA_OFFSET", warps_bytes, 4, "each warp's largest logit");
    smelt__plan_add_region(plan, "TARGETS_OFFSET", warps_bytes, 4, "each warp's sum of targets");
    smelt__plan_add_region(plan, "SUMS_OFFSET", warps_bytes, 4, "each warp's sum of exponentials");
    smelt__plan_add_region(plan, "LOSSES_OFFSET", warps_bytes, 4, "each warp's part of the loss");
    return 0;
}

const struct smelt__kernel_family smelt__indexer_loss_rows = {
    .schema = {.name = "indexer_loss_rows",
               .summary = "the indexer's loss of each query, and its gradient",
               SMELT__KEYS(keys)},
    SMELT__VARIANTS({"rows", plan_rows}),
};
