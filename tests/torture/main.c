/* A torture program: see torture.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

int main(int argc, char **argv) {
    struct arguments arguments = {argc - 2, argv + 2};
    const char *nvrtc = getenv("SMELT_NVRTC");
    if (!nvrtc || !strstr(nvrtc, "fake_nvrtc")) {
        fprintf(stderr, "SMELT_NVRTC does not name the fake NVRTC: run this by `meson test`\n");
        return 2;
    }
    for (const struct row *row = rows; row->name && argc > 1; row++)
        if (!strcmp(argv[1], row->name))
            return row->run(&arguments);
    fprintf(stderr, "%s ROW [NAME=VALUE]...\n\n", argv[0]);
    for (const struct row *row = rows; row->name; row++)
        fprintf(stderr, "  %-10s %s\n", row->name, row->summary);
    return 2;
}
