/*
 * The kernel family topk_select_rows: exact top-k of rows. The pass `rows` has one block per row.
 * For few rows there are two passes, `parts` with several blocks per row, and `merge`; for short rows
 * and a small topk the pass `warps` has one warp per row. Every architecture has all passes.
 */
#include <stdio.h>

#include "codegen/families/sparse_attn_keys.h"
#include "codegen/families/topk_select_rows.h"
#include "codegen/plan/limits.h"
#include "codegen/spec/keys.h"

enum {
    ENTRY_BYTES = 8,
    USUAL_ENTRIES = 4096, /* of a list: 16 a thread */
    PART_ENTRIES = 6144,  /* of a part's list at most */
    WIDE_TOPK = 4096,     /* above: one block a multiprocessor */
    WIDE_THREADS = 512,
    WIDE_ENTRIES = 12288, /* of the list, for twice WIDE_TOPK; beyond it: the most */
    MOST_ENTRIES = 24576,
    BINS = 1024,
    LOG_BINS = 10,
    BLOCK = 1024, /* elements that a warp reads at once */
    /* Of the map of bits, at most. */
    MAP_BLOCKS = 128,
    MERGE_MAP_BLOCKS = 512,
    MOST_SAMPLES = 4096,
    /* Elements per sample of a long window; the list of the pass merge has room enough for SAMPLED
     * in all windows. */
    SAMPLED = 64,
    LONG_SAMPLED = 32, /* of windows that have more than the least samples */
    PART_SAMPLED = 128,
    /* Four blocks of 256 threads keep the memory busy while some rank their samples and lists; more
     * would leave a thread too few registers for the 32 elements it has under way. */
    THREADS = 256,
    ROW_BLOCKS = 4,
    PART_BLOCKS = 4,
    /* A block of the pass merge has a multiprocessor to itself and collects many entries. */
    MERGE_THREADS = 512,
    MERGE_LIST = 12288,
    MERGE_LIST_SMALL = 8192, /* where a block may have 99 KB */
    PREFETCH_KB = 64,
    SAMPLES = 512,
    NUMBERS = 6,     /* SHARED_NUMBERS */
    KNOWN_BYTES = 20 /* struct known */
};

static const struct smelt__key keys[] = {
    SMELT__TOPK_KEYS,
    SMELT__TOPK_LIST_KEYS,
    {SMELT__OPTIONAL("groups", "rows of a query"), SMELT__RANGE(1, 128), .default_value = 1},
    {SMELT__OPTIONAL("logits", "elements of the matrix"), SMELT__NAMES_2(fp32, bf16)},
    {SMELT__OPTIONAL("block_max", "keys of an entry, in which windows count"),
     SMELT__ONE_OF(1, 2, 4, 8, 16, 32, 64, 128), .default_value = 1},
    {SMELT__OPTIONAL("load_block", "logits of an entry, of which the largest counts"),
     SMELT__ONE_OF(1, 2, 4, 8, 16, 32, 64, 128), .default_value = 1},
    {SMELT__OPTIONAL("candidate_block", "keys of a candidate; 0: rows are not of candidates"),
     SMELT__ONE_OF(0, 1, 2, 4, 8, 16, 32, 64, 128)},
    {SMELT__REQUIRED("pass", "rows: a block a row; parts, merge: several; warps: a warp a row"),
     SMELT__NAMES_4(rows, parts, merge, warps)},
    {SMELT__KNOB("threads", "threads of a thread block"), SMELT__AUTO_ONE_OF(128, 256, 512),
     SMELT__TUNED, .only_with = "pass=rows, parts"},
    {SMELT__KNOB("blocks", "resident thread blocks a multiprocessor is compiled for"),
     SMELT__AUTO_RANGE(1, 8), SMELT__TUNED_AT(2, 3, 4, 5, 6), .only_with = "pass=rows, parts"},
    {SMELT__KNOB("samples", "elements that are sampled to guess a bound by; of long windows more"),
     SMELT__AUTO_ONE_OF(256, 512, 1024, 2048), SMELT__TUNED_AT(256, 512, 1024),
     .only_with = "pass=rows, parts, merge", .only_named = 1}, /* data decide */
    {SMELT__KNOB("prefetch", "KB of a window that are prefetched at once, from sm_90 on"),
     SMELT__AUTO_RANGE(0, 256), SMELT__TUNED_AT(0, 32, 64, 128), .only_with = "pass=rows"},
};

/* At least 1.5 times topk, plus room for the sample's error. */
int smelt__topk_select_part_list(int topk) {
    return topk <= 512 ? 2048 : topk <= 2048 ? USUAL_ENTRIES : PART_ENTRIES;
}

/* The histogram's memory later holds a number for each 64 elements of the map. */
static int histogram_bytes(int map) {
    const int counts = map * BLOCK / 64 * 2;
    return counts > BINS * 4 ? counts : BINS * 4;
}

static int shared_bytes(int threads, int list, int map) {
    return list * ENTRY_BYTES + histogram_bytes(map) + threads * 4 + 512;
}

/* The largest list for a wide topk, in whole blocks. */
static int wide_list(const struct smelt__arch *arch, int topk, int threads, int map) {
    const int most = topk <= 2 * WIDE_TOPK ? WIDE_ENTRIES : MOST_ENTRIES;
    const int room = (smelt__shared_of_block(arch, 1) - shared_bytes(threads, 0, map)) /
                     ENTRY_BYTES / BLOCK * BLOCK;
    return room < most ? room : most;
}

static int merge_list(const struct smelt__arch *arch, int topk) {
    const int bytes = shared_bytes(MERGE_THREADS, MERGE_LIST, MERGE_MAP_BLOCKS);
    if (topk > WIDE_TOPK)
        return wide_list(arch, topk, MERGE_THREADS, MERGE_MAP_BLOCKS);
    return bytes <= smelt__shared_of_block(arch, 1) ? MERGE_LIST : MERGE_LIST_SMALL;
}

/* Whether a list has room for an eighth more than topk, as the estimated bound needs. */
static int is_wide_enough(int list, int topk) {
    return list >= topk + topk / 8;
}

/* `map`: blocks of 1024 elements, 0: there is none. */
static void add_regions(struct smelt__plan *plan, int list, int map) {
    const int warps = plan->threads / 32;
    smelt__plan_add_region(plan, "LIST_OFFSET", list * ENTRY_BYTES, 16,
                           "samples, entries, elements");
    smelt__plan_add_region(plan, "HISTOGRAM_OFFSET", histogram_bytes(map), 16,
                           "entries of each bin");
    if (map) {
        smelt__plan_add(plan, "MAP_OFFSET", list * ENTRY_BYTES - map * BLOCK / 8, SMELT__DERIVED,
                        "bytes to the map, over the list's end");
        smelt__plan_add_region(plan, "EQUAL_OFFSET", warps * 32 * 4, 16, "masks of a warp's lanes");
    }
    smelt__plan_add_region(plan, "WARPS_OFFSET", 3 * 32 * 4, 4, "a number of each warp");
    smelt__plan_add_region(plan, "NUMBERS_OFFSET", NUMBERS * 4, 4, "what one thread found");
    smelt__plan_add_region(plan, "KNOWN_OFFSET", KNOWN_BYTES, 4, "what earlier rounds found");
}

/* Blocks that a multiprocessor has room for, at most `most`. */
static int resident_blocks(const struct smelt__arch *arch, int threads, int bytes, int most) {
    const int room = arch->shared_per_multiprocessor / (bytes + arch->shared_reserved);
    const int slots = arch->threads_per_multiprocessor / threads;
    const int blocks = room < slots ? room : slots;
    return blocks < most ? blocks : most;
}

/* The largest map of bits that fits over the end of the list, after the entries to be written. */
static int map_blocks(int topk, int list, int most) {
    int map = most;
    while (topk * 2 * 4 + map * BLOCK / 8 > list * ENTRY_BYTES)
        map /= 2;
    return map;
}

/* What the keys say that the selection depends on. */
static void add_meaning(const struct smelt__spec *spec, struct smelt__plan *plan) {
    const int block_max = (int)smelt__spec_get(spec, "block_max");
    smelt__plan_add(plan, "TOPK", (int)smelt__spec_get(spec, "topk"), SMELT__FROM_SPEC,
                    "entries that are selected of a row");
    smelt__plan_add(plan, "ORDER_BY_SCORE", (int)smelt__spec_get(spec, "order"), SMELT__FROM_SPEC,
                    "1: descending by score, 0: ascending by index");
    smelt__plan_add(plan, "PINNED", (int)smelt__spec_get(spec, "pinned"), SMELT__FROM_SPEC,
                    "of the selected entries, a window's last ones");
    smelt__plan_add(plan, "EXPAND", (int)smelt__spec_get(spec, "expand"), SMELT__FROM_SPEC,
                    "rows of a list that an entry becomes");
    smelt__plan_add(plan, "TAIL", (int)smelt__spec_get(spec, "tail"), SMELT__FROM_SPEC,
                    "1: rows after the last complete entry are appended");
    smelt__plan_add(plan, "GROUPS", (int)smelt__spec_get(spec, "groups"), SMELT__FROM_SPEC,
                    "rows of a query");
    smelt__plan_add(plan, "LOGITS_BF16", (int)smelt__spec_get(spec, "logits"), SMELT__FROM_SPEC,
                    "1: the matrix is bf16, 0: fp32");
    smelt__plan_add(plan, "BLOCK_MAX", block_max, SMELT__FROM_SPEC, "keys of an entry");
    smelt__plan_add(plan, "LOAD_BLOCK", (int)smelt__spec_get(spec, "load_block"), SMELT__FROM_SPEC,
                    "logits of an entry, of which the largest counts");
    smelt__plan_add(plan, "CANDIDATE_ENTRIES",
                    (int)smelt__spec_get(spec, "candidate_block") / block_max, SMELT__DERIVED,
                    "entries of a candidate; 0: rows are not of candidates");
}

/* Bytes of a window that are prefetched: whole vectors of fp32 alone. */
static int prefetch_bytes(const struct smelt__spec *spec, const struct smelt__arch *arch) {
    const int merge = smelt__spec_get(spec, "pass") == SMELT__TOPK_MERGE;
    const int other = smelt__spec_get(spec, "logits") || smelt__spec_get(spec, "load_block") > 1;
    return merge || other || !arch->pdl ? 0
                                        : smelt__spec_knob(spec, "prefetch", PREFETCH_KB) * 1024;
}

static void plan_warps(const struct smelt__spec *spec, const struct smelt__arch *arch,
                       struct smelt__plan *plan) {
    smelt__plan_set_threads(plan, THREADS, ROW_BLOCKS);
    add_meaning(spec, plan);
    smelt__plan_add(plan, "PDL", arch->pdl, SMELT__DERIVED, "1: may be launched with PDL");
}

static int plan_pass(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const int64_t pass = smelt__spec_get(spec, "pass");
    const int topk = (int)smelt__spec_get(spec, "topk");
    const int merge = pass == SMELT__TOPK_MERGE, parts = pass == SMELT__TOPK_PARTS;
    const int wide = !parts && topk > WIDE_TOPK;
    const int threads =
        merge ? MERGE_THREADS : smelt__spec_knob(spec, "threads", wide ? WIDE_THREADS : THREADS);
    const int list = merge  ? merge_list(arch, topk)
                     : wide ? wide_list(arch, topk, threads, MAP_BLOCKS)
                            : smelt__topk_select_part_list(topk);
    /* A thread needs more registers. */
    const int joint = smelt__spec_get(spec, "load_block") > 1; /* logits and scores */
    const int more = list > USUAL_ENTRIES ? !parts : smelt__spec_get(spec, "logits") > 0;
    const int blocks = merge ? 1
                             : smelt__spec_knob(spec, "blocks",
                                                wide    ? 1
                                                : joint ? ROW_BLOCKS - 2
                                                : more  ? ROW_BLOCKS - 1
                                                : parts ? PART_BLOCKS
                                                        : ROW_BLOCKS);
    if (!parts && !is_wide_enough(list, topk))
        return smelt__spec_refuse(spec, message,
                                  "topk=%d needs a list of %d entries, and a thread block has room "
                                  "for %d on %s; at most topk=%d is legal there",
                                  topk, topk + topk / 8, list, arch->name, list / 9 * 8);
    const int map = parts ? 0 : map_blocks(topk, list, merge ? MERGE_MAP_BLOCKS : MAP_BLOCKS);
    const int resident = resident_blocks(arch, threads, shared_bytes(threads, list, map), blocks);
    if (resident < smelt__spec_knob(spec, "blocks", 0))
        return smelt__spec_refuse(
            spec, message,
            "blocks=%d of %d threads are not resident at once on %s; at most %d of them are",
            blocks, threads, arch->name, resident);
    smelt__plan_set_threads(plan, threads, resident);
    add_meaning(spec, plan);
    smelt__plan_add(plan, "LIST", list, SMELT__DERIVED, "entries that the list has room for");
    smelt__plan_add(plan, "MOST_SAMPLES", list < MOST_SAMPLES ? list : MOST_SAMPLES, SMELT__DERIVED,
                    "samples of a window, at most");
    smelt__plan_add(plan, "LEAST_SAMPLES", smelt__spec_knob(spec, "samples", SAMPLES),
                    smelt__plan_origin(spec, "samples"), "samples of a short window");
    smelt__plan_add(plan, "SAMPLED", parts ? PART_SAMPLED : SAMPLED, SMELT__DERIVED,
                    "elements for each sample of a long window");
    smelt__plan_add(plan, "LONG_SAMPLED",
                    parts   ? PART_SAMPLED
                    : merge ? SAMPLED
                            : LONG_SAMPLED,
                    SMELT__DERIVED,
                    "elements for each sample of a window with more than the least samples");
    smelt__plan_add(plan, "BINS", BINS, SMELT__DERIVED, "bins of a histogram");
    smelt__plan_add(plan, "LOG_BINS", LOG_BINS, SMELT__DERIVED, "logarithm of the number of bins");
    smelt__plan_add(plan, "PART_LIST", smelt__topk_select_part_list(topk), SMELT__DERIVED,
                    "entries that a part of a row leaves");
    smelt__plan_add(plan, "PDL", arch->pdl, SMELT__DERIVED, "1: may be launched with PDL");
    if (parts) {
        smelt__plan_add(plan, "ALONE", merge_list(arch, topk), SMELT__DERIVED,
                        "elements of windows that the pass merge reads alone");
    } else {
        smelt__plan_add(plan, "MERGE", merge, SMELT__FROM_SPEC,
                        "1: merges what the pass parts has selected");
        smelt__plan_add(plan, "MAP_BLOCKS", map, SMELT__DERIVED,
                        "blocks of 1024 elements that the map of bits has");
        smelt__plan_add(plan, "PREFETCH_BYTES", prefetch_bytes(spec, arch),
                        smelt__plan_origin(spec, "prefetch"),
                        "bytes of a window that are prefetched at once");
    }
    add_regions(plan, list, map);
    return 0;
}

static int plan_rows(const struct smelt__spec *spec, const struct smelt__arch *arch,
                     struct smelt__plan *plan, struct smelt__message *message) {
    const int64_t pass = smelt__spec_get(spec, "pass");
    if (pass != SMELT__TOPK_PARTS && pass != SMELT__TOPK_WARPS)
        smelt__plan_set_template(plan, "");
    snprintf(plan->kernel_name, sizeof plan->kernel_name, "smelt_topk_select_%s_k%d_%s",
             plan->variant, (int)smelt__spec_get(spec, "topk"), smelt__spec_choice(spec, "order"));
    if (pass == SMELT__TOPK_WARPS) {
        plan_warps(spec, arch, plan);
        return 0;
    }
    if (pass != SMELT__TOPK_PARTS)
        plan->item = "row";
    return plan_pass(spec, arch, plan, message);
}

const struct smelt__kernel_family smelt__topk_select_rows = {
    .schema = {.name = "topk_select_rows",
               .summary = "the largest elements of rows",
               SMELT__KEYS(keys)},
    /* All passes; a plan is named after its pass. */
    SMELT__VARIANTS({"rows", plan_rows}),
};

/* What the pass parts does not depend on has its default there, so that operators share kernels. */
static void share_parts(struct smelt__spec *kernel) {
    smelt__spec_set(kernel, "order", SMELT__TOPK_BY_INDEX);
    smelt__spec_set(kernel, "expand", 1);
    smelt__spec_set(kernel, "tail", 0);
}

int smelt__topk_select_kernels(const struct smelt__spec *spec) {
    const int small = smelt__spec_get(spec, "topk") <= SMELT__TOPK_WARP_MOST;
    const int plain = smelt__spec_get(spec, "order") == SMELT__TOPK_BY_INDEX &&
                      smelt__spec_get(spec, "expand") == 1;
    return small && plain ? SMELT__TOPK_PASSES : SMELT__TOPK_WARPS;
}

void smelt__topk_select_expand(struct smelt__expansion *expansion, const struct smelt__spec *spec,
                               int member, unsigned pass, int count,
                               const struct smelt__topk_setting *settings) {
    for (int i = 0; i < count; i++) {
        struct smelt__spec *kernel = smelt__expansion_add(expansion, spec, member, pass);
        smelt__spec_set(kernel, "pass", i);
        for (const struct smelt__topk_setting *one = settings; one->key; one++)
            smelt__spec_set(kernel, one->key, one->value);
        if (i == SMELT__TOPK_PARTS)
            share_parts(kernel);
        smelt__drop_only_with(kernel);
    }
}

int smelt__topk_select_check(const struct smelt__spec *spec, struct smelt__message *message) {
    const int topk = (int)smelt__spec_get(spec, "topk"),
              expand = (int)smelt__spec_get(spec, "expand");
    const int pinned = (int)smelt__spec_get(spec, "pinned");
    if (pinned > topk)
        return smelt__spec_refuse(
            spec, message,
            "pinned=%d exceeds topk=%d; pinned entries count among topk, so at most %d can be",
            pinned, topk, topk);
    if (smelt__spec_get(spec, "tail") && expand == 1)
        return smelt__spec_refuse(
            spec, message,
            "tail=1 needs expand above 1: it appends the rows of an incomplete entry");
    if (smelt__spec_get(spec, "order") == SMELT__TOPK_BY_SCORE && (pinned || expand > 1))
        return smelt__spec_refuse(spec, message,
                                  "order=score does not go with %s; use order=index, and sort by "
                                  "values where the order matters",
                                  pinned ? "pinned" : "expand");
    return 0;
}
