/*
 * The parser of cache entries. Each input is also tried with correct lengths and a correct
 * checksum, because a fuzzer does not find checksums, and most of the parser runs after that check.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "runtime/cache/internal.h"
#include "runtime/hash.h"

enum { AT_VERSION = 8, AT_FILE_BYTES = 16, AT_OUTPUT = 140, AT_PAYLOAD_BYTES = 536 };

static void put_u64(unsigned char *at, uint64_t number) {
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(number >> (8 * i));
}

static void seal(unsigned char *bytes, size_t count) {
    XXH128_canonical_t canonical;
    put_u64(bytes + AT_FILE_BYTES, count);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, count - SMELT__ENTRY_CHECKSUM_BYTES));
    memcpy(bytes + count - SMELT__ENTRY_CHECKSUM_BYTES, canonical.digest,
           SMELT__ENTRY_CHECKSUM_BYTES);
}

/* The properties of a valid entry. */
static void require_sound(const unsigned char *bytes, size_t count,
                          const struct smelt__cache_entry *entry) {
    unsigned char header[SMELT__ENTRY_HEADER_BYTES], checksum[SMELT__ENTRY_CHECKSUM_BYTES];
    struct smelt__cache_entry again, copy = *entry;
    const struct smelt__compiled *compiled = &entry->compiled;
    const char *why;

    FUZZ_REQUIRE(compiled->cubin_bytes > 0);
    FUZZ_REQUIRE(compiled->cubin_bytes <= SMELT__CUBIN_MAX_BYTES);
    FUZZ_REQUIRE(SMELT__ENTRY_HEADER_BYTES + compiled->cubin_bytes + SMELT__ENTRY_CHECKSUM_BYTES ==
                 count);
    FUZZ_REQUIRE(smelt__output_of(bytes + SMELT__ENTRY_HEADER_BYTES, compiled->cubin_bytes) ==
                 entry->key.output);
    FUZZ_REQUIRE(memchr(entry->key.arch, '\0', sizeof entry->key.arch));
    FUZZ_REQUIRE(memchr(compiled->spec, '\0', sizeof compiled->spec));
    FUZZ_REQUIRE(memchr(compiled->kernel_name, '\0', sizeof compiled->kernel_name));
    /* Encoding and decoding it again gives the same entry. */
    unsigned char *written = malloc(count);
    FUZZ_REQUIRE(written);
    memcpy(written, bytes, count);
    copy.compiled.cubin = written + SMELT__ENTRY_HEADER_BYTES;
    smelt__entry_encode(&copy, header, checksum);
    memcpy(written, header, sizeof header);
    memcpy(written + count - sizeof checksum, checksum, sizeof checksum);
    FUZZ_REQUIRE(smelt__entry_decode(written, count, &again, &why) == SMELT__ENTRY_SOUND);
    FUZZ_REQUIRE(!memcmp(&again.key.digest, &entry->key.digest, sizeof again.key.digest));
    FUZZ_REQUIRE(!memcmp(&again.compiler, &entry->compiler, sizeof again.compiler));
    FUZZ_REQUIRE(!strcmp(again.compiled.spec, compiled->spec));
    FUZZ_REQUIRE(again.compiled.registers == compiled->registers);
    FUZZ_REQUIRE(again.compiled.cubin_bytes == compiled->cubin_bytes);
    free(written);
}

static void try_bytes(const unsigned char *bytes, size_t count) {
    struct smelt__cache_entry entry;
    const char *why = NULL;
    enum smelt__entry_state state = smelt__entry_decode(bytes, count, &entry, &why);
    FUZZ_REQUIRE(why);
    if (state == SMELT__ENTRY_SOUND)
        require_sound(bytes, count, &entry);
    else
        FUZZ_REQUIRE(why[0] != '\0'); /* gives the reason */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const size_t around = SMELT__ENTRY_HEADER_BYTES + SMELT__ENTRY_CHECKSUM_BYTES;
    try_bytes(data, size);
    if (size < SMELT__ENTRY_PREFIX_BYTES + SMELT__ENTRY_CHECKSUM_BYTES)
        return 0;
    unsigned char *copy = malloc(size);
    FUZZ_REQUIRE(copy);
    memcpy(copy, data, size);
    seal(copy, size);
    try_bytes(copy, size);
    if (size > around) {
        put_u64(copy + AT_PAYLOAD_BYTES, size - around);
        seal(copy, size);
        try_bytes(copy, size);
        /* This version, and both kinds of payload. */
        copy[AT_VERSION] = SMELT__ENTRY_VERSION;
        for (unsigned char output = 1; output <= 2 && size >= around + sizeof(Elf64_Ehdr);
             output++) {
            const Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
                                     .e_type = ET_DYN,
                                     .e_machine = output == 1 ? EM_CUDA : EM_X86_64};
            memcpy(copy + SMELT__ENTRY_HEADER_BYTES, &head, sizeof head);
            copy[AT_OUTPUT] = output;
            seal(copy, size);
            try_bytes(copy, size);
        }
    }
    free(copy);
    return 0;
}
