/* indexer_quantize's cases of the GPU suite. */
#include <stdio.h>

#include "smelt/indexer_quantize.h"
#include "suite.h"

static const char *const specs[] = {"indexer_quantize:dim=128", "indexer_quantize:dim=64",
                                    "indexer_quantize:dim=128,scale=power_of_two",
                                    "indexer_quantize:dim=64,scale=power_of_two"};
static const int64_t sizes[] = {1, 63, 64, 65, 1000};

static int matrix_case(const struct suite *suite, int number, struct suite_case *one) {
    const int size = number / COUNT(specs) % COUNT(sizes);
    if (number >= COUNT(specs) * COUNT(sizes) * 2)
        return 0;
    snprintf(one->spec, sizeof one->spec, "%s", specs[number % COUNT(specs)]);
    one->problem.seed = suite->seed * 1000 + (uint64_t)number;
    one->problem.tokens = sizes[size];
    one->problem.lists =
        number < COUNT(specs) * COUNT(sizes) ? SMELT__LISTS_RANDOM : SMELT__LISTS_ADVERSARIAL;
    one->problem.strided = number % 2;
    one->sample = 1000;
    return 1;
}

static const struct suite_case large[] = {
    SUITE_CASE("large: quantize, N x D above 2^31", "indexer_quantize:dim=128", 10000,
               .tokens = (1 << 24) + 77),
    {.name = NULL},
};

static const struct suite_case far[] = {
    SUITE_CASE("far: quantize", "indexer_quantize:dim=64", 0, .tokens = 70),
    {.name = NULL},
};

static const char *const launches[] = {"indexer_quantize:dim=128", NULL};

static const struct suite_refusal refusals[] = {
    SUITE_REFUSAL(smelt_indexer_quantize_args, reserved, "reserved", 2),
    {.text = NULL},
};

static const struct suite_arguments arguments[] = {
    {.spec = "indexer_quantize:dim=64",
     .problem = {.tokens = 21}, /* odd: with factors */
     .aligned = "x y",
     .refusals = refusals},
    {.spec = NULL},
};

const struct suite_operator suite_operator_indexer_quantize = {.matrix = matrix_case,
                                                               .large = large,
                                                               .far = far,
                                                               .launches = launches,
                                                               .launch = {.tokens = 5000},
                                                               .quick_launch = {.tokens = 100},
                                                               .arguments = arguments};
