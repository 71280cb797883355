/*
 * The entry: one file, one compiled kernel. Numbers are little-endian; doubles are their IEEE bits;
 * text is NUL-terminated within its width.
 *
 *   entry    := prefix key compiler usage text payload checksum
 *
 *   prefix   :=   0  magic         8 bytes  "smelt\r\n\x1a"
 *                 8  version       u32      2
 *                12  header_bytes  u32      544: the payload's offset
 *                16  file_bytes    u64      of the whole file
 *   key      :=  24  name          16       XXH3-128 of the kernel's input; the file's name
 *                40  digest        32       a second digest of it
 *                72  input_bytes   u64      its length
 *                80  arch          char[16]
 *   compiler :=  96  major         u32
 *               100  minor         u32
 *               104  build_ids     16
 *   usage    := 120  registers, spill_bytes, static_shared_bytes, dynamic_shared_bytes, threads
 *                                  i32 each
 *               140  output        u32      1: a cubin; 2: a kernel for the emulator
 *               144  seconds       f64      compile time
 *   text     := 152  spec          char[256]
 *               408  kernel_name   char[128]
 *               536  payload_bytes u64      1 .. 64 MiB
 *   payload  := 544  the cubin, or the emulator's shared object; `output` must agree with the
 *                   machine type in its ELF header
 *   checksum :=      16 bytes      XXH3-128, canonical, of everything before it
 *
 * Versions. In every version the prefix is the same, the checksum is the last 16 bytes, and the
 * version is part of the key, so that two versions of smelt share a folder without seeing each
 * other's entries. An entry of another version that is read nevertheless (by a walk, or a renamed
 * file) has a valid checksum, unlike a damaged one; it is a miss and stays. Any change
 * below the prefix makes a new version. Entries are never converted: kernels can be compiled again.
 */
#include <string.h>

#include "runtime/cache/bytes.h"
#include "runtime/cache/internal.h"
#include "runtime/hash.h"

static const unsigned char magic[8] = {'s', 'm', 'e', 'l', 't', '\r', '\n', 0x1a};

enum {
    AT_VERSION = 8,
    AT_HEADER_BYTES = 12,
    AT_FILE_BYTES = 16,
    AT_KEY_NAME = 24,
    AT_KEY_DIGEST = 40,
    AT_KEY_INPUT_BYTES = 72,
    AT_KEY_ARCH = 80,
    AT_COMPILER_MAJOR = 96,
    AT_COMPILER_MINOR = 100,
    AT_COMPILER_BUILD_IDS = 104,
    AT_REGISTERS = 120,
    AT_SPILL_BYTES = 124,
    AT_STATIC_SHARED_BYTES = 128,
    AT_DYNAMIC_SHARED_BYTES = 132,
    AT_THREADS = 136,
    AT_OUTPUT = 140,
    AT_SECONDS = 144,
    AT_SPEC = 152,
    AT_KERNEL_NAME = 408,
    AT_PAYLOAD_BYTES = 536
};

/* At most `width` - 1 characters; the rest stays zero. */
static void put_text(unsigned char *at, const char *text, size_t width) {
    memcpy(at, text, strnlen(text, width - 1));
}

static bool get_text(const unsigned char *at, char *text, size_t width) {
    memcpy(text, at, width);
    return memchr(text, '\0', width) != NULL;
}

static void checksum_end(const XXH3_state_t *state, unsigned char checksum[16]) {
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    memcpy(checksum, canonical.digest, 16);
}

void smelt__entry_encode(const struct smelt__cache_entry *entry,
                         unsigned char header[SMELT__ENTRY_HEADER_BYTES],
                         unsigned char checksum[SMELT__ENTRY_CHECKSUM_BYTES]) {
    const struct smelt__compiled *compiled = &entry->compiled;
    uint64_t seconds;
    XXH3_state_t state;

    memset(header, 0, SMELT__ENTRY_HEADER_BYTES);
    memcpy(header, magic, sizeof magic);
    smelt__put_u32(header + AT_VERSION, SMELT__ENTRY_VERSION);
    smelt__put_u32(header + AT_HEADER_BYTES, SMELT__ENTRY_HEADER_BYTES);
    smelt__put_u64(header + AT_FILE_BYTES,
                   SMELT__ENTRY_HEADER_BYTES + compiled->cubin_bytes + SMELT__ENTRY_CHECKSUM_BYTES);
    memcpy(header + AT_KEY_NAME, entry->key.name, sizeof entry->key.name);
    memcpy(header + AT_KEY_DIGEST, entry->key.digest, sizeof entry->key.digest);
    smelt__put_u64(header + AT_KEY_INPUT_BYTES, entry->key.input_bytes);
    put_text(header + AT_KEY_ARCH, entry->key.arch, sizeof entry->key.arch);
    smelt__put_u32(header + AT_COMPILER_MAJOR, (uint32_t)entry->compiler.major);
    smelt__put_u32(header + AT_COMPILER_MINOR, (uint32_t)entry->compiler.minor);
    memcpy(header + AT_COMPILER_BUILD_IDS, entry->compiler.build_ids,
           sizeof entry->compiler.build_ids);
    smelt__put_u32(header + AT_REGISTERS, (uint32_t)compiled->registers);
    smelt__put_u32(header + AT_SPILL_BYTES, (uint32_t)compiled->spill_bytes);
    smelt__put_u32(header + AT_STATIC_SHARED_BYTES, (uint32_t)compiled->static_shared_bytes);
    smelt__put_u32(header + AT_DYNAMIC_SHARED_BYTES, (uint32_t)compiled->dynamic_shared_bytes);
    smelt__put_u32(header + AT_THREADS, (uint32_t)compiled->threads);
    smelt__put_u32(header + AT_OUTPUT, (uint32_t)entry->key.output);
    memcpy(&seconds, &compiled->compile_seconds, sizeof seconds);
    smelt__put_u64(header + AT_SECONDS, seconds);
    put_text(header + AT_SPEC, compiled->spec, sizeof compiled->spec);
    put_text(header + AT_KERNEL_NAME, compiled->kernel_name, sizeof compiled->kernel_name);
    smelt__put_u64(header + AT_PAYLOAD_BYTES, compiled->cubin_bytes);

    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, header, SMELT__ENTRY_HEADER_BYTES);
    XXH3_128bits_update(&state, compiled->cubin, compiled->cubin_bytes);
    checksum_end(&state, checksum);
}

bool smelt__entry_begins_with(const unsigned char *bytes, size_t count) {
    return memcmp(bytes, magic, count < sizeof magic ? count : sizeof magic) == 0;
}

bool smelt__entry_check_prefix(const unsigned char prefix[SMELT__ENTRY_PREFIX_BYTES],
                               uint64_t file_bytes, const char **why) {
    if (memcmp(prefix, magic, sizeof magic) != 0)
        *why = "it does not begin with an entry's magic";
    else if (smelt__get_u64(prefix + AT_FILE_BYTES) != file_bytes)
        *why = "its size differs from the size in its header";
    else if (file_bytes < SMELT__ENTRY_PREFIX_BYTES + SMELT__ENTRY_CHECKSUM_BYTES)
        *why = "it is too short";
    else if (file_bytes > SMELT__ENTRY_MAX_BYTES)
        *why = "it is above the maximum size of an entry";
    else
        return true;
    return false;
}

static bool checksum_matches(const unsigned char *bytes, size_t count) {
    size_t summed = count - SMELT__ENTRY_CHECKSUM_BYTES;
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, summed));
    return memcmp(canonical.digest, bytes + summed, SMELT__ENTRY_CHECKSUM_BYTES) == 0;
}

static bool decode_header(const unsigned char *header, struct smelt__cache_entry *entry) {
    struct smelt__compiled *compiled = &entry->compiled;
    uint64_t seconds = smelt__get_u64(header + AT_SECONDS);

    memset(entry, 0, sizeof *entry);
    memcpy(entry->key.name, header + AT_KEY_NAME, sizeof entry->key.name);
    memcpy(entry->key.digest, header + AT_KEY_DIGEST, sizeof entry->key.digest);
    entry->key.input_bytes = smelt__get_u64(header + AT_KEY_INPUT_BYTES);
    entry->key.output = (enum smelt__output)smelt__get_u32(header + AT_OUTPUT);
    entry->compiler.major = (int)smelt__get_u32(header + AT_COMPILER_MAJOR);
    entry->compiler.minor = (int)smelt__get_u32(header + AT_COMPILER_MINOR);
    memcpy(entry->compiler.build_ids, header + AT_COMPILER_BUILD_IDS,
           sizeof entry->compiler.build_ids);
    compiled->registers = (int)smelt__get_u32(header + AT_REGISTERS);
    compiled->spill_bytes = (int)smelt__get_u32(header + AT_SPILL_BYTES);
    compiled->static_shared_bytes = (int)smelt__get_u32(header + AT_STATIC_SHARED_BYTES);
    compiled->dynamic_shared_bytes = (int)smelt__get_u32(header + AT_DYNAMIC_SHARED_BYTES);
    compiled->threads = (int)smelt__get_u32(header + AT_THREADS);
    memcpy(&compiled->compile_seconds, &seconds, sizeof seconds);
    return get_text(header + AT_KEY_ARCH, entry->key.arch, sizeof entry->key.arch) &&
           get_text(header + AT_SPEC, compiled->spec, sizeof compiled->spec) &&
           get_text(header + AT_KERNEL_NAME, compiled->kernel_name, sizeof compiled->kernel_name);
}

enum smelt__entry_state smelt__entry_decode(const unsigned char *bytes, size_t count,
                                            struct smelt__cache_entry *entry, const char **why) {
    const size_t around = SMELT__ENTRY_HEADER_BYTES + SMELT__ENTRY_CHECKSUM_BYTES;
    uint64_t payload;

    *why = "it is too short";
    if (count < SMELT__ENTRY_PREFIX_BYTES || !smelt__entry_check_prefix(bytes, count, why))
        return SMELT__ENTRY_DAMAGED;
    if (!checksum_matches(bytes, count)) {
        *why = "its checksum is wrong";
        return SMELT__ENTRY_DAMAGED;
    }
    if (smelt__get_u32(bytes + AT_VERSION) != SMELT__ENTRY_VERSION) {
        *why = "it was written by another version of smelt";
        return SMELT__ENTRY_FOREIGN;
    }
    *why = "its header is malformed";
    if (count <= around || smelt__get_u32(bytes + AT_HEADER_BYTES) != SMELT__ENTRY_HEADER_BYTES)
        return SMELT__ENTRY_DAMAGED;
    /* Compared with a difference of known sizes: nothing can overflow. */
    payload = smelt__get_u64(bytes + AT_PAYLOAD_BYTES);
    if (payload != count - around || !decode_header(bytes, entry))
        return SMELT__ENTRY_DAMAGED;
    *why = "its payload is not of the kind that its header names";
    if (entry->key.output == SMELT__OUTPUT_UNKNOWN ||
        smelt__output_of(bytes + SMELT__ENTRY_HEADER_BYTES, (size_t)payload) != entry->key.output)
        return SMELT__ENTRY_DAMAGED;
    entry->compiled.cubin_bytes = (size_t)payload;
    *why = "";
    return SMELT__ENTRY_SOUND;
}
