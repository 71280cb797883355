/* See parts.h. */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run_both(struct suite *suite, const struct part *part, struct workload *workload,
                     char *message, size_t size) {
    struct smelt__placed *const placed = &workload->placed;
    const size_t bytes = smelt__problem_bytes(&workload->problem, part->output);
    float *const whole = malloc(bytes);
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
            part->compare(workload, whole, message, size);
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
