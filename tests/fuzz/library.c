/* The reader of a shared library's build-id, which must accept any file. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "runtime/compiler/library_id.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int file = -1;
    static char path[64];
    struct smelt__library_id id;
    if (file < 0) {
        file = memfd_create("library", MFD_CLOEXEC);
        FUZZ_REQUIRE(file >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    FUZZ_REQUIRE(ftruncate(file, 0) == 0);
    FUZZ_REQUIRE(pwrite(file, data, size, 0) == (ssize_t)size);
    int result = smelt__library_id_read(path, &id);
    FUZZ_REQUIRE(result == 0 || result == 1);
    FUZZ_REQUIRE(id.length <= sizeof id.bytes);
    FUZZ_REQUIRE(result != 0 || id.length > 0);
    return 0;
}
