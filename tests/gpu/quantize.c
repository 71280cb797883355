/* quantize in the GPU suite: what its cases are. */
#include <stdio.h>

#include "smelt/quantize.h"
#include "suite.h"

static const char *const specs[] = {"quantize:dim=128",
                                    "quantize:dim=64",
                                    "quantize:dim=128,scale=power_of_two",
                                    "quantize:dim=64,scale=power_of_two",
                                    "quantize:dim=512,groups=8,scale=power_of_two",
                                    "quantize:dim=448,groups=7",
                                    "quantize:dim=576",
                                    "quantize:dim=1024,groups=64"};
static const int64_t sizes[] = {1, 62, 63, 64, 65, 1000};

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
    SUITE_CASE("large: quantize, N x D above 2^31", "quantize:dim=128", 10000,
               .tokens = (1 << 24) + 77),
    {.name = NULL},
};

static const char *const launches[] = {"quantize:dim=128", NULL};

static const struct suite_case far[] = {
    SUITE_FAR("quantize:dim=64",
              .tokens = 21), /* an odd number, with which problems have factors */
    {.spec = ""},
};

const struct suite_operator suite_operator_quantize = {.matrix = matrix_case,
                                                       .large = large,
                                                       .launches = launches,
                                                       .launch = {.tokens = 5000},
                                                       .quick_launch = {.tokens = 100},
                                                       .far = far};
