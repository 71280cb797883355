/* Keys, the entry's grammar, and every kind of damage to it. */
#include "common.h"
#include "runtime/hash.h"

#include <unistd.h>

enum { BYTES = 200 };

CACHE_TEST(test_round_trip) {
    const size_t sizes[] = {64, 65, 4095, 4096, 100000, 3000000};
    for (int n = 0; n < 6; n++)
        assert_int_equal(hits(cache, n, &compiler_new, sizes[n]), 0);
    for (int n = 0; n < 6; n++)
        assert_int_equal(store(cache, n, &compiler_new, sizes[n]), 0);
    for (int n = 0; n < 6; n++)
        assert_int_equal(hits(cache, n, &compiler_new, sizes[n]), 1);
    struct smelt__cache_counts counts = smelt__cache_counts(cache);
    assert_int_equal(counts.hits, 6);
    assert_int_equal(counts.misses, 6);
    assert_int_equal(counts.errors, 0);
    assert_int_equal(scratch->warnings, 0);

    cache = cache_begin(scratch);
    assert_int_equal(hits(cache, 3, &compiler_new, sizes[3]), 1);
}

/* Changing a field changes the key; the same fields give the same key, now and in later builds. */
TEST(test_key) {
    const char *const ab_c[] = {"ab", "c", NULL}, *const a_bc[] = {"a", "bc", NULL},
                      *const abc[] = {"abc", NULL}, *const c_ab[] = {"c", "ab", NULL};
    const char *const *const options[] = {NULL, abc, ab_c, a_bc, c_ab};
    struct smelt__cache_key keys[9], again;
    char hex[33];
    for (int i = 0; i < 5; i++)
        smelt__cache_key_make(&keys[i], "source", 6, options[i], "sm_90", SMELT__OUTPUT_CUBIN);
    smelt__cache_key_make(&keys[5], "source", 6, NULL, "sm_90a", SMELT__OUTPUT_CUBIN);
    smelt__cache_key_make(&keys[6], "source", 5, NULL, "sm_90", SMELT__OUTPUT_CUBIN);
    smelt__cache_key_make(&keys[7], "sourcf", 6, NULL, "sm_90", SMELT__OUTPUT_CUBIN);
    smelt__cache_key_make(&keys[8], "source", 6, NULL, "sm_90", SMELT__OUTPUT_EMULATED);
    for (int i = 0; i < 9; i++)
        for (int j = 0; j < i; j++) {
            assert_memory_not_equal(keys[i].name, keys[j].name, 16);
            assert_memory_not_equal(keys[i].digest, keys[j].digest, 16);
            assert_memory_not_equal(keys[i].digest + 16, keys[j].digest + 16, 16);
        }
    smelt__cache_key_make(&again, "source", 6, ab_c, "sm_90", SMELT__OUTPUT_CUBIN);
    assert_memory_equal(&again, &keys[2], sizeof again);
    assert_memory_not_equal(again.name, again.digest, 16);
    assert_string_equal(again.arch, "sm_90");
    smelt__cache_key_hex(&again, hex);
    /* A new value here invalidates every existing cache: raise SMELT__ENTRY_VERSION. */
    assert_string_equal(hex, "bdc864a54c7db9be2af113ad66629b6a");
}

/* The documented offsets. */
CACHE_TEST(test_grammar) {
    struct smelt__cache_key key = key_number(1);
    struct smelt__compiled compiled = compiled_number(1, BYTES);
    char path[PATH_BYTES];
    size_t bytes;
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    unsigned char *file = read_file(path, &bytes);
    assert_int_equal(bytes, 544 + BYTES + 16);
    assert_memory_equal(file, "smelt\r\n\x1a\2\0\0\0\x20\2\0\0", 16);
    assert_memory_equal(file + 16, "\xf8\2\0\0\0\0\0\0", 8);
    assert_memory_equal(file + 24, key.name, 16);
    assert_memory_equal(file + 40, key.digest, 32);
    assert_string_equal((char *)file + 80, "sm_90a");
    assert_memory_equal(file + 96, "\x0d\0\0\0\0\0\0\0\4\5\6\0", 12);
    assert_memory_equal(file + 120, "\xa8\0\0\0\1\0\0\0\x10\0\0\0\x40\x0d\3\0\0\1\0\0", 20);
    assert_memory_equal(file + 140, "\1\0\0\0", 4);
    assert_memory_equal(file + 144, "\0\0\0\0\0\0\xf8\x3f", 8);
    assert_string_equal((char *)file + 152, "sparse_attn_fwd:heads=1");
    assert_string_equal((char *)file + 408, "kernel_1");
    assert_memory_equal(file + 536, "\xc8\0\0\0\0\0\0\0", 8);
    assert_memory_equal(file + 544, compiled.cubin, BYTES);
    free(compiled.cubin);
    free(file);
}

/* Replaces the entry by `bytes`: a miss, counted as an error; some are then repaired by a store. */
static void expect_damaged(struct smelt__cache *cache, const char *path, const void *bytes,
                           size_t count, bool heal) {
    uint64_t errors = smelt__cache_counts(cache).errors;

    write_file(path, bytes, count);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 0);
    assert_int_equal(smelt__cache_counts(cache).errors, errors + 1);
    if (heal) {
        assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
        assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
    }
}

CACHE_TEST(test_truncated_at_every_byte) {
    char path[PATH_BYTES];
    size_t bytes;
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    unsigned char *file = read_file(path, &bytes);
    for (size_t count = 0; count < bytes; count++)
        expect_damaged(cache, path, file, count, count % 53 == 0);
    file[bytes] = 0;
    expect_damaged(cache, path, file, bytes + 1, true);
    free(file);
}

CACHE_TEST(test_every_bit_flipped) {
    char path[PATH_BYTES];
    size_t bytes;
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    unsigned char *file = read_file(path, &bytes);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        file[bit / 8] ^= (unsigned char)(1 << bit % 8);
        expect_damaged(cache, path, file, bytes, bit % 397 == 0);
        file[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    write_file(path, file, bytes);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
    free(file);
}

static void seal(unsigned char *file, size_t bytes) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(file, bytes - 16));
    memcpy(file + bytes - 16, canonical.digest, 16);
}

static void put(unsigned char *at, int width, uint64_t number) {
    for (int i = 0; i < width; i++)
        at[i] = (unsigned char)(number >> (8 * i));
}

/* Wrong numbers with a correct checksum, as an attacker could write them. */
CACHE_TEST(test_malicious_headers) {
    static const uint64_t sizes[] = {
        0,          1,          BYTES - 1,  BYTES + 1,        1u << 31,        UINT32_MAX,
        1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - 543, UINT64_MAX - 559};
    char path[PATH_BYTES];
    size_t bytes;
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    unsigned char *file = read_file(path, &bytes);
    unsigned char *copy = malloc(bytes);
    assert_non_null(copy);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        static const struct { int at, width; } fields[] = {{12, 4}, {16, 8}, {536, 8}};
        for (int f = 0; f < 3; f++) {
            memcpy(copy, file, bytes);
            put(copy + fields[f].at, fields[f].width, sizes[i]);
            seal(copy, bytes);
            expect_damaged(cache, path, copy, bytes, false);
        }
    }
    static const struct { size_t at, width; } texts[] = {{80, 16}, {152, 256}, {408, 128}};
    for (int i = 0; i < 3; i++) {
        memcpy(copy, file, bytes);
        memset(copy + texts[i].at, 'x', texts[i].width);
        seal(copy, bytes);
        expect_damaged(cache, path, copy, bytes, false);
    }
    /* A header only, and the shortest file with a prefix and a checksum. */
    for (size_t size = 40; size <= 560; size += 260) {
        memcpy(copy, file, bytes);
        put(copy + 16, 8, size);
        put(copy + 536, 8, 0);
        seal(copy, size);
        expect_damaged(cache, path, copy, size, false);
    }
    free(copy);
    free(file);
}

static int see_foreign(void *user, const char *file, const smelt_kernel_info *info) {
    (void)file;
    assert_int_equal(info->state, SMELT_KERNEL_FAILED);
    assert_int_equal(info->status, SMELT_ERROR_UNSUPPORTED);
    assert_non_null(strstr(info->error, "another version"));
    ++*(int *)user;
    return 0;
}

/* An entry of an earlier or a later version is a miss, not an error, and is not removed as damaged.
 * It counts towards the size, and eviction and clearing remove it like others. */
CACHE_TEST(test_other_version) {
    static const uint32_t versions[] = {0, 1, 3, 1000, UINT32_MAX};
    smelt_cache_pruned pruned = SMELT_CACHE_PRUNED_INIT;
    uint64_t sound, removed;
    char path[PATH_BYTES];
    size_t bytes;
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    unsigned char *file = read_file(path, &bytes);
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        int seen = 0;
        put(file + 8, 4, versions[i]);
        seal(file, bytes);
        write_file(path, file, bytes);
        assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 0);
        assert_int_equal(hits(cache, 1, NULL, BYTES), 0);
        assert_int_equal(smelt__cache_counts(cache).errors, 0);
        assert_int_equal(smelt__cache_walk(cache, NULL, see_foreign, &seen), SMELT_OK);
        assert_int_equal(seen, 1);
        assert_int_equal(smelt__cache_verify(cache, &sound, &removed), SMELT_OK);
        assert_int_equal(sound, 0);
        assert_int_equal(removed, 0);
        assert_int_equal(access(path, F_OK), 0);
    }
    assert_int_equal(smelt__cache_prune(cache, 1, 0, &pruned), SMELT_OK);
    assert_int_equal(pruned.removed, 1);
    write_file(path, file, bytes);
    assert_int_equal(smelt__cache_clear(cache, &removed), SMELT_OK);
    assert_int_equal(removed, 1);
    free(file);
}

/* Two inputs with one name have different digests: a miss. */
CACHE_TEST(test_collision) {
    struct smelt__cache_key key = key_number(1), other;
    struct smelt__compiled compiled;
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    other = key;
    other.digest[31] ^= 1;
    assert_int_equal(smelt__cache_lookup(cache, &other, &compiler_new, &compiled), 0);
    other = key;
    other.input_bytes++;
    assert_int_equal(smelt__cache_lookup(cache, &other, &compiler_new, &compiled), 0);
    other = key;
    strcpy(other.arch, "sm_90");
    assert_int_equal(smelt__cache_lookup(cache, &other, &compiler_new, &compiled), 0);
    assert_int_equal(smelt__cache_counts(cache).errors, 0);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
}

TESTS("cache entry")
