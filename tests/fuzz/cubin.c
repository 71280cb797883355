/* The reader of a cubin's figures. A cubin comes from a compiler or from a cache entry. */
#include <string.h>

#include "fuzz.h"
#include "runtime/cubin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct smelt__cubin_figures figures = {-1, -1};
    int found = smelt__cubin_read(data, size, "kernel", &figures);
    FUZZ_REQUIRE(found == 0 || found == 1);
    FUZZ_REQUIRE(!found || (figures.registers >= 0 && figures.frame_bytes >= 0));
    /* The kernel's name, with the maximum length of an entry. */
    char name[128];
    memset(name, 'k', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    FUZZ_REQUIRE(smelt__cubin_read(data, size, name, &figures) >= 0);
    return 0;
}
