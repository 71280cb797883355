/* See parts.h. */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void compare(const struct workload *workload, const struct part *part, const char *whole,
                    size_t bytes, char *message, size_t size) {
    const struct smelt__tensor_row *const row = &workload->pass->tensors->rows[part->output];
    const int64_t tokens = workload->problem.options.tokens;
    const int64_t columns = (int64_t)bytes / tokens; /* in bytes */
    const int64_t omitted = part->columns * (int64_t)smelt__element_bytes(row->element);
    const char *const got = smelt__placed_row(&workload->placed, part->output, 0, 0, 0);
    for (int64_t t = 0; t < tokens - part->queries; t++)
        if (memcmp(got + t * columns, whole + (t + part->queries) * columns + omitted,
                   (size_t)(columns - omitted)) != 0)
            snprintf(message, size, "query %lld has other bits beside other queries and %d columns",
                     (long long)t, part->columns);
}

static void run_both(struct suite *suite, const struct part *part, struct workload *workload,
                     char *message, size_t size) {
    struct smelt__placed *const placed = &workload->placed;
    const size_t bytes = smelt__problem_bytes(&workload->problem, part->output);
    char *const whole = malloc(bytes);
    if (!whole)
        snprintf(message, size, "out of memory");
    else if (suite_ok(smelt__placed_run(placed, workload->object, NULL), "running it", message,
                      size) == 0) {
        memcpy(whole, smelt__placed_row(placed, part->output, 0, 0, 0), bytes);
        if (suite_ok(smelt__placed_poison(placed), "poison", message, size) == 0 &&
            suite_ok(part->launch(workload, NULL), "a part", message, size) == 0 &&
            suite_ok(smelt_stream_synchronize(suite->context, NULL), "waiting", message, size) ==
                0 &&
            suite_ok(smelt__placed_download(placed), "download", message, size) == 0)
            compare(workload, part, whole, bytes, message, size);
    }
    free(whole);
}

void run_part(struct suite *suite, const struct part *part) {
    struct workload workload;
    char message[1024] = "";
    if (!suite_wants(suite, part->name))
        return;
    if (workload_open(&workload, suite, part->spec, &part->problem, message, sizeof message) == 0) {
        run_both(suite, part, &workload, message, sizeof message);
        workload_close(&workload);
    }
    suite_report(suite, part->name, message);
}
