/*
 * Names of kernels (keys), of compilers, and of entries' files. No path, time stamp, host name or
 * install location enters any of them.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "runtime/cache/internal.h"
#include "runtime/hash.h"

/* Three hashes of one input: the file's name, and the two halves of the digest that distinguishes
 * kernels whose names collide. The seeds are arbitrary and part of the format. */
enum { HASHES = 3 };
static const uint64_t hash_seeds[HASHES] = {0, 0x736d656c74206b31u, 0x9e3779b97f4a7c15u};

struct key_hash {
    XXH3_state_t state[HASHES];
    uint64_t bytes;
};

static void hash_bytes(struct key_hash *hash, const void *bytes, size_t count) {
    for (int i = 0; i < HASHES; i++)
        XXH3_128bits_update(&hash->state[i], bytes, count);
    hash->bytes += count;
}

static void hash_number(struct key_hash *hash, uint64_t number) {
    unsigned char bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(number >> (8 * i));
    hash_bytes(hash, bytes, sizeof bytes);
}

/* The length prefix distinguishes ("ab", "c") from ("a", "bc"). */
static void hash_field(struct key_hash *hash, const void *bytes, size_t count) {
    hash_number(hash, count);
    hash_bytes(hash, bytes, count);
}

static void hash_end(const struct key_hash *hash, int which, unsigned char out[16]) {
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&hash->state[which]));
    memcpy(out, canonical.digest, 16);
}

void smelt__cache_key_make(struct smelt__cache_key *key, const char *input, size_t input_bytes,
                           const char *const *options, const char *arch,
                           enum smelt__output output) {
    const char *kind = output == SMELT__OUTPUT_EMULATED ? "emulated" : "cubin";
    struct key_hash hash;
    uint64_t option_count = 0;

    memset(key, 0, sizeof *key);
    /* A reset with a seed compares it with the state's old one: stale bytes equal to the seed would
     * skip the derivation of its secret. */
    memset(&hash, 0, sizeof hash);
    for (int i = 0; i < HASHES; i++)
        XXH3_128bits_reset_withSeed(&hash.state[i], hash_seeds[i]);

    hash_number(&hash, SMELT__ENTRY_VERSION);
    hash_field(&hash, kind, strlen(kind));
    hash_field(&hash, arch, strlen(arch));
    while (options && options[option_count])
        option_count++;
    hash_number(&hash, option_count);
    for (uint64_t i = 0; i < option_count; i++)
        hash_field(&hash, options[i], strlen(options[i]));
    hash_field(&hash, input, input_bytes);

    hash_end(&hash, 0, key->name);
    hash_end(&hash, 1, key->digest);
    hash_end(&hash, 2, key->digest + 16);
    key->input_bytes = hash.bytes;
    snprintf(key->arch, sizeof key->arch, "%s", arch);
    key->output = output;
}

static void write_hex(char *out, const unsigned char *bytes, int count) {
    static const char digits[] = "0123456789abcdef";

    for (int i = 0; i < count; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * count] = '\0';
}

void smelt__cache_key_hex(const struct smelt__cache_key *key, char hex[33]) {
    write_hex(hex, key->name, 16);
}

static const char entry_suffix[] = ".smelt";
static const char temporary_prefix[] = ".tmp-";

void smelt__cache_binary_name(const struct smelt__cache_key *key,
                              const struct smelt__compiler_id *compiler, unsigned char binary[32]) {
    memcpy(binary, key->name, 16);
    memset(binary + 16, 0xff, 16);
    if (!compiler)
        return;
    binary[16] = (unsigned char)compiler->major;
    binary[17] = (unsigned char)compiler->minor;
    memcpy(binary + 18, compiler->build_ids, 14);
}

void smelt__cache_name_of_binary(const unsigned char binary[32],
                                 char name[SMELT__FILE_NAME_BYTES]) {
    write_hex(name, binary, 16);
    strcpy(name + 32, "-");
    write_hex(name + 33, binary + 16, 16);
    strcpy(name + 65, entry_suffix);
}

static int hex_digit(char digit) {
    return digit <= '9' ? digit - '0' : digit - 'a' + 10;
}

void smelt__cache_binary_of_name(const char *name, unsigned char binary[32]) {
    for (int i = 0; i < 32; i++) {
        const char *digits = name + 2 * i + (i >= 16); /* skips the '-' */
        binary[i] = (unsigned char)(hex_digit(digits[0]) << 4 | hex_digit(digits[1]));
    }
}

void smelt__cache_file_name(const struct smelt__cache_key *key,
                            const struct smelt__compiler_id *compiler,
                            char name[SMELT__FILE_NAME_BYTES]) {
    unsigned char binary[32];

    smelt__cache_binary_name(key, compiler, binary);
    smelt__cache_name_of_binary(binary, name);
    if (!compiler)
        name[33] = '\0';
}

static bool is_hex(const char *text, int count) {
    for (int i = 0; i < count; i++)
        if (!isdigit((unsigned char)text[i]) && !(text[i] >= 'a' && text[i] <= 'f'))
            return false;
    return true;
}

bool smelt__cache_name_is_entry(const char *name) {
    return strlen(name) == 65 + strlen(entry_suffix) && is_hex(name, 32) && name[32] == '-' &&
           is_hex(name + 33, 32) && strcmp(name + 65, entry_suffix) == 0;
}

bool smelt__cache_name_is_temporary(const char *name) {
    size_t prefix = strlen(temporary_prefix);

    return strncmp(name, temporary_prefix, prefix) == 0 && strlen(name) == prefix + 32 &&
           is_hex(name + prefix, 32);
}

uint64_t smelt__cache_hash(const void *bytes, size_t count) {
    return XXH3_64bits(bytes, count);
}
