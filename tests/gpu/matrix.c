/* Each operator's shapes, with several kinds of inputs and all other settings cyclically: not the
 * full product, but every value is combined with many others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/option_text.h"
#include "suite.h"

enum { MOST_CASES = 700 /* of one operator */, SCHEDULES = 4 };

struct matrix {
    struct suite_case cases[MOST_CASES];
    int count;
};

/* ---- compiling all of it first, on all processors ------------------------------------------- */

struct kernels {
    smelt_kernel_request *requests;
    size_t count, capacity;
};

static int add_kernel(void *user, const char *text) {
    struct kernels *kernels = user;
    for (size_t i = 0; i < kernels->count; i++)
        if (strcmp(kernels->requests[i].spec, text) == 0)
            return 0;
    if (kernels->count == kernels->capacity)
        return -1;
    char *copy = strdup(text);
    kernels->requests[kernels->count] =
        (smelt_kernel_request){.size = sizeof *kernels->requests, .spec = copy};
    kernels->count += copy != NULL;
    return copy ? 0 : -1;
}

static int has_case(const struct suite *suite, const struct matrix *matrix, int number, char *name,
                    size_t size) {
    char command[768];
    smelt__problem_command("check", matrix->cases[number].spec, &matrix->cases[number].problem,
                           command, sizeof command);
    snprintf(name, size, "matrix: %s", command + strlen("smelt check "));
    return suite_has(suite, name);
}

static void prepare(struct suite *suite, const struct matrix *matrix) {
    char name[768];
    struct kernels kernels = {.capacity = MOST_CASES};
    kernels.requests = calloc(kernels.capacity, sizeof *kernels.requests);
    if (!kernels.requests)
        return; /* then each is compiled at its first use */
    for (int i = 0; i < matrix->count; i++)
        if (has_case(suite, matrix, i, name, sizeof name) &&
            smelt_spec_expand(suite->context, matrix->cases[i].spec, NULL, add_kernel, &kernels))
            printf("       not prepared: %s\n", smelt_last_error());
    if (kernels.count > 0) {
        smelt_status status = smelt_kernels_prepare(suite->context, kernels.requests, kernels.count,
                                                    0, NULL, NULL, NULL);
        printf("       %zu kernels prepared%s%s\n", kernels.count, status ? ": " : "",
               status ? smelt_last_error() : "");
    }
    for (size_t i = 0; i < kernels.count; i++)
        free((void *)(uintptr_t)kernels.requests[i].spec);
    free(kernels.requests);
}

static void run_operator(struct suite *suite, const struct suite_operator *op,
                         struct matrix *matrix) {
    char name[768];
    memset(matrix, 0, sizeof *matrix);
    while (matrix->count < MOST_CASES &&
           op->matrix(suite, matrix->count, &matrix->cases[matrix->count]))
        matrix->count++;
    if (!suite->list)
        prepare(suite, matrix);
    for (int i = 0; i < matrix->count; i++)
        if (has_case(suite, matrix, i, name, sizeof name) && suite_wants(suite, name))
            suite_check(suite, name, &matrix->cases[i], i % SCHEDULES);
    if (matrix->count == MOST_CASES)
        suite_report(suite, "matrix", "more cases than there is room for");
}

void run_matrix(struct suite *suite) {
    struct matrix *matrix = malloc(sizeof *matrix);
    for (suite->op = 0; suite_operators[suite->op] && matrix; suite->op++)
        run_operator(suite, suite_operators[suite->op], matrix);
    if (!matrix)
        suite_report(suite, "matrix", "out of memory");
    free(matrix);
}
