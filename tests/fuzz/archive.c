/* The reader of exported archives: the head, the index in order, and bisection. Each input is also
 * tried with correct sizes and a correct checksum of the index. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "runtime/cache/archive.h"
#include "runtime/hash.h"

enum { AT_ARCHIVE_BYTES = 16, AT_COUNT = 24, HEAD_BYTES = 64, RECORD_BYTES = 48 };

static int take_record(void *user, const struct smelt__archive_record *record) {
    const struct smelt__archive *archive = user;
    struct smelt__archive_record again;
    FUZZ_REQUIRE(record->offset <= archive->bytes);
    FUZZ_REQUIRE(record->bytes <= archive->bytes - record->offset);
    int64_t after = smelt__archive_bisect(archive, record->name);
    FUZZ_REQUIRE(after >= -1 && after <= (int64_t)archive->count);
    if (after > 0)
        (void)smelt__archive_record(archive, (uint64_t)after - 1, &again);
    return 0;
}

/* In memory, because a run writes it about 60,000 times. It needs a name, because the reader
 * follows no links. */
static char path[] = "/dev/shm/smelt-fuzz-archive-XXXXXX";

static void remove_file(void) {
    unlink(path);
}

static void try_bytes(const unsigned char *bytes, size_t count) {
    static int file = -1;
    struct smelt__archive archive;
    char why[512] = "";
    unsigned char name[32] = {0x80};
    if (file < 0) {
        file = mkostemp(path, O_CLOEXEC);
        FUZZ_REQUIRE(file >= 0 && atexit(remove_file) == 0);
    }
    FUZZ_REQUIRE(ftruncate(file, 0) == 0);
    FUZZ_REQUIRE(pwrite(file, bytes, count, 0) == (ssize_t)count);
    if (smelt__archive_open(path, &archive, why, sizeof why) != 0) {
        FUZZ_REQUIRE(why[0] != '\0');
        return;
    }
    FUZZ_REQUIRE(archive.bytes == count);
    int64_t found = smelt__archive_bisect(&archive, name);
    FUZZ_REQUIRE(found >= -1 && found <= (int64_t)archive.count);
    int result = smelt__archive_each(&archive, take_record, &archive, why, sizeof why);
    FUZZ_REQUIRE(result == 0 || (result == -1 && why[0] != '\0'));
    smelt__archive_close(&archive);
}

static void put_u64(unsigned char *at, uint64_t number) {
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(number >> (8 * i));
}

static void seal(unsigned char *bytes, size_t count) {
    unsigned char *index = bytes + SMELT__TAR_BLOCK;
    XXH128_canonical_t canonical;
    put_u64(index + AT_ARCHIVE_BYTES, count);
    /* The number of records that fit into the input, at most its own number. */
    uint64_t records = index[AT_COUNT];
    size_t summed = HEAD_BYTES + (size_t)records * RECORD_BYTES;
    put_u64(index + AT_COUNT, records);
    if (SMELT__TAR_BLOCK + summed + sizeof canonical.digest > count)
        return;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(index, summed));
    memcpy(index + summed, canonical.digest, sizeof canonical.digest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try_bytes(data, size);
    if (size < SMELT__ARCHIVE_HEAD_BYTES)
        return 0;
    unsigned char *copy = malloc(size);
    FUZZ_REQUIRE(copy);
    memcpy(copy, data, size);
    seal(copy, size);
    try_bytes(copy, size);
    free(copy);
    return 0;
}
