/* The requirements on outputs that must be exact: see compared.h. */
#include <stddef.h>

#include "compared.h"
#include "smelt/kernels.h"

static const struct compared_metric none[] = {{0}};

/* ---- indexer_clean --------------------------------------------------------------------------- */

static const struct smelt__problem_options clean_problems[] = {
    {.tokens = 24, .rows = 90, .lists = SMELT__LISTS_ADVERSARIAL, .strided = 1},
    {.batches = 2, .tokens = 9, .rows = 70, .lists = SMELT__LISTS_RANDOM},
};
static const struct compared_rule clean_rules[] = {{"outside_window", {"logits"}, MINUS_INF, NULL},
                                                   {0}};
static const char *const clean_specs[] = {"indexer_clean", NULL};
static const struct compared_pass clean_passes[] = {
    {SMELT_PASS_FORWARD, clean_specs, clean_problems, 2, none, clean_rules, NULL, NULL}};
const struct compared compared_indexer_clean = {"indexer_clean", clean_passes, 1};

/* ---- indexer_windows ------------------------------------------------------------------------- */

static const struct smelt__problem_options windows_problems[] = {
    {.tokens = 40, .rows = 90, .lists = SMELT__LISTS_ADVERSARIAL},
    {.tokens = 30, .rows = 90, .lists = SMELT__LISTS_RANDOM, .batches = 2},
    {.tokens = 30, .rows = 90, .lists = SMELT__LISTS_DRIFT},
};
static const struct compared_rule windows_rules[] = {
    {"window_begin", {"window_begin"}, EXACT, NULL},
    {"window_end", {"window_end"}, EXACT, NULL},
    {0}};
static const char *const windows_specs[] = {"indexer_windows", NULL};
static const struct compared_pass windows_passes[] = {
    {SMELT_PASS_FORWARD, windows_specs, windows_problems, 3, none, windows_rules, NULL, NULL}};
const struct compared compared_indexer_windows = {"indexer_windows", windows_passes, 1};

/* ---- quantize ------------------------------------------------------------------------ */

static const struct smelt__problem_options quantize_problems[] = {
    {.tokens = 31, .lists = SMELT__LISTS_ADVERSARIAL, .strided = 1},
    {.tokens = 10, .lists = SMELT__LISTS_RANDOM},
};
static const struct compared_rule quantize_rules[] = {{"codes", {"y"}, EXACT, NULL},
                                                      {"values", {"dequantized"}, EXACT, NULL},
                                                      {"scales", {"scale"}, EXACT, NULL},
                                                      {0}};
static const char *const quantize_specs[] = {
    "quantize:dim=64", "quantize:dim=128,scale=power_of_two", "quantize:dim=576,groups=9", NULL};
static const struct compared_pass quantize_passes[] = {
    {SMELT_PASS_FORWARD, quantize_specs, quantize_problems, 2, none, quantize_rules, NULL, NULL}};
const struct compared compared_quantize = {"quantize", quantize_passes, 1};

/* ---- topk_select ----------------------------------------------------------------------------- */

enum { DATA, WINDOWS, VALUES, LEVELS = 9, SPECIAL = 15, CAUSAL = 1, RANDOM = 2 }; /* own options */

static const struct smelt__problem_options select_problems[] = {
    {.tokens = 20, .rows = 90, .strided = 1, .own = {SPECIAL, RANDOM, 1}},
    {.batches = 2, .tokens = 8, .rows = 70, .own = {LEVELS, CAUSAL, 1}},
};
static const struct compared_rule select_rules[] = {{"indices", {"indices"}, EXACT, NULL},
                                                    {"values", {"values"}, EXACT, NULL},
                                                    {"lengths", {"lengths"}, EXACT, NULL},
                                                    {0}};
static const char *const select_specs[] = {"topk_select:topk=24",
                                           "topk_select:topk=24,order=score",
                                           "topk_select:topk=24,dtype=bf16",
                                           "topk_select:topk=24,groups=2,pinned=3",
                                           "topk_select:topk=24,dtype=bf16,groups=3",
                                           "topk_select:topk=9,expand=4,tail=1",
                                           "topk_select:topk=9,dtype=bf16,pinned=1,expand=2",
                                           "topk_select:topk=9,groups=2,expand=4,tail=1",
                                           "topk_select:topk=9,dtype=bf16,groups=2,expand=8",
                                           NULL};
static const struct compared_pass select_passes[] = {
    {SMELT_PASS_FORWARD, select_specs, select_problems, 2, none, select_rules, NULL, NULL}};
const struct compared compared_topk_select = {"topk_select", select_passes, 1};
