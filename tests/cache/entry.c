/* Keys, the entry's grammar, every kind of damage to it, and which entry a lookup picks. */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { BYTES = 200 };

static void test_round_trip(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache *cache = cache_begin(scratch);
    const size_t sizes[] = {64, 65, 4095, 4096, 100000, 3000000};
    struct smelt__cache_counts counts;

    for (int n = 0; n < 6; n++)
        assert_int_equal(hits(cache, n, &compiler_new, sizes[n]), 0);
    for (int n = 0; n < 6; n++)
        assert_int_equal(store(cache, n, &compiler_new, sizes[n]), 0);
    for (int n = 0; n < 6; n++)
        assert_int_equal(hits(cache, n, &compiler_new, sizes[n]), 1);
    counts = smelt__cache_counts(cache);
    assert_int_equal(counts.hits, 6);
    assert_int_equal(counts.misses, 6);
    assert_int_equal(counts.errors, 0);
    assert_int_equal(scratch->warnings, 0);
    smelt__cache_close(cache);

    cache = cache_begin(scratch);
    assert_int_equal(hits(cache, 3, &compiler_new, sizes[3]), 1);
    smelt__cache_close(cache);
}

/* Changing a field changes the key; the same fields give the same key, now and in later builds. */
static void test_key(void **state) {
    const char *const ab_c[] = {"ab", "c", NULL}, *const a_bc[] = {"a", "bc", NULL},
                      *const abc[] = {"abc", NULL}, *const c_ab[] = {"c", "ab", NULL};
    const char *const *const options[] = {NULL, abc, ab_c, a_bc, c_ab};
    struct smelt__cache_key keys[9], again;
    char hex[33];

    (void)state;
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
    /* A new value here means that every cache in the world is cold: raise SMELT__ENTRY_VERSION. */
    assert_string_equal(hex, "bdc864a54c7db9be2af113ad66629b6a");
}

/* The offsets that the grammar promises. */
static void test_grammar(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache *cache = cache_begin(scratch);
    struct smelt__cache_key key = key_number(1);
    struct smelt__compiled compiled = compiled_number(1, BYTES);
    char path[PATH_BYTES];
    unsigned char *file;
    size_t bytes;

    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    file = read_file(path, &bytes);
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
    smelt__cache_close(cache);
}

/* Puts `bytes` where the entry belongs: a miss, counted as an error, and every so often healed. */
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

static void test_truncated_at_every_byte(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache *cache = cache_begin(scratch);
    char path[PATH_BYTES];
    unsigned char *file;
    size_t bytes;

    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    file = read_file(path, &bytes);
    for (size_t count = 0; count < bytes; count++)
        expect_damaged(cache, path, file, count, count % 53 == 0);
    file[bytes] = 0;
    expect_damaged(cache, path, file, bytes + 1, true);
    free(file);
    smelt__cache_close(cache);
}

static void test_every_bit_flipped(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache *cache = cache_begin(scratch);
    char path[PATH_BYTES];
    unsigned char *file;
    size_t bytes;

    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    file = read_file(path, &bytes);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        file[bit / 8] ^= (unsigned char)(1 << bit % 8);
        expect_damaged(cache, path, file, bytes, bit % 397 == 0);
        file[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    write_file(path, file, bytes);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
    free(file);
    smelt__cache_close(cache);
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

/* Lies with a right checksum, as somebody who means harm would write them. */
static void test_malicious_headers(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache *cache = cache_begin(scratch);
    static const uint64_t sizes[] = {
        0,          1,          BYTES - 1,  BYTES + 1,        1u << 31,        UINT32_MAX,
        1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - 543, UINT64_MAX - 559};
    char path[PATH_BYTES];
    unsigned char *file, *copy;
    size_t bytes;

    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    file = read_file(path, &bytes);
    copy = malloc(bytes);
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
    /* A header alone, and the shortest file with a prefix and a checksum. */
    for (size_t size = 40; size <= 560; size += 260) {
        memcpy(copy, file, bytes);
        put(copy + 16, 8, size);
        put(copy + 536, 8, 0);
        seal(copy, size);
        expect_damaged(cache, path, copy, size, false);
    }
    free(copy);
    free(file);
    smelt__cache_close(cache);
}

/* 4 GiB that are not there cost neither memory nor time. */
static void test_huge_sparse_file(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache *cache = cache_begin(scratch);
    char path[PATH_BYTES];
    unsigned char *file;
    size_t bytes;
    double begin;

    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    file = read_file(path, &bytes);
    put(file + 16, 8, UINT64_C(1) << 32);
    write_file(path, file, bytes);
    assert_int_equal(truncate(path, (off_t)1 << 32), 0);
    begin = now_seconds();
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 0);
    assert_true(now_seconds() - begin < 0.1);
    assert_int_equal(smelt__cache_counts(cache).errors, 1);
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
    free(file);
    smelt__cache_close(cache);
}

static int see_foreign(void *user, const char *file, const smelt_kernel_info *info) {
    (void)file;
    assert_int_equal(info->state, SMELT_KERNEL_FAILED);
    assert_int_equal(info->status, SMELT_ERROR_UNSUPPORTED);
    assert_non_null(strstr(info->error, "another version"));
    ++*(int *)user;
    return 0;
}

/* An entry of an earlier or a later version is a miss, no error, and no business of ours to remove;
 * but it takes room, and goes like others when there is none, or when all go. */
static void test_other_version(void **state) {
    static const uint32_t versions[] = {0, 1, 3, 1000, UINT32_MAX};
    struct scratch *scratch = *state;
    struct smelt__cache *cache = cache_begin(scratch);
    smelt_cache_pruned pruned = SMELT_CACHE_PRUNED_INIT;
    uint64_t sound, removed;
    char path[PATH_BYTES];
    unsigned char *file;
    size_t bytes;

    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    file = read_file(path, &bytes);
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        int seen = 0;
        put(file + 8, 4, versions[i]);
        seal(file, bytes);
        write_file(path, file, bytes);
        assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 0);
        assert_int_equal(hits(cache, 1, NULL, BYTES), 0);
        assert_int_equal(smelt__cache_counts(cache).errors, 0);
        assert_int_equal(smelt__cache_walk(cache, see_foreign, &seen), SMELT_OK);
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
    smelt__cache_close(cache);
}

/* Two inputs with one name: the digest tells them apart, and a miss it is. */
static void test_collision(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache *cache = cache_begin(scratch);
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
    smelt__cache_close(cache);
}

/* ---- a kernel for the emulator is never one for a GPU ---- */

static struct smelt__compiled emulated_number(int n) {
    struct smelt__compiled compiled = compiled_number(n, BYTES);
    put_elf_head(compiled.cubin, SMELT__OUTPUT_EMULATED);
    return compiled;
}

static struct smelt__cache_key emulated_key(void) {
    struct smelt__cache_key key;
    smelt__cache_key_make(&key, "source", 6, NULL, "sm_90a", SMELT__OUTPUT_EMULATED);
    return key;
}

static struct smelt__cache_key gpu_key(void) {
    struct smelt__cache_key key;
    smelt__cache_key_make(&key, "source", 6, NULL, "sm_90a", SMELT__OUTPUT_CUBIN);
    return key;
}

static int finds(struct smelt__cache *cache, const struct smelt__cache_key *key,
                 const struct smelt__compiler_id *compiler) {
    struct smelt__compiled found;
    int hit = smelt__cache_lookup(cache, key, compiler, &found);
    if (hit) {
        assert_int_equal(smelt__output_of(found.cubin, found.cubin_bytes), key->output);
        free(found.cubin);
    }
    return hit;
}

/* Neither kind is stored as the other, and each is found as what it is. */
static void test_kinds(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache *cache = cache_begin(scratch);
    struct smelt__cache_key emulated = emulated_key(), gpu = gpu_key();
    struct smelt__compiled object = emulated_number(1), cubin = compiled_number(1, BYTES);
    char why[SMELT__CACHE_WHY];

    assert_int_equal(smelt__cache_store(cache, &gpu, &compiler_new, &object, why), -1);
    assert_non_null(strstr(why, "a kernel for the emulator was to be stored as a cubin"));
    assert_int_equal(smelt__cache_store(cache, &emulated, &compiler_new, &cubin, why), -1);
    cubin.cubin[0] = 0;
    assert_int_equal(smelt__cache_store(cache, &gpu, &compiler_new, &cubin, why), -1);
    assert_non_null(strstr(why, "no kernel was to be stored as a cubin"));
    assert_int_equal(count_files(scratch->cache, ".smelt"), 0);

    assert_int_equal(smelt__cache_store(cache, &emulated, &compiler_new, &object, why), 0);
    assert_int_equal(finds(cache, &emulated, &compiler_new), 1);
    assert_int_equal(finds(cache, &emulated, NULL), 1);
    assert_int_equal(finds(cache, &gpu, &compiler_new), 0);
    assert_int_equal(finds(cache, &gpu, NULL), 0);
    free(object.cubin);
    free(cubin.cubin);
    smelt__cache_close(cache);
}

/* An emulated kernel under the name that a GPU's has, with all that a key says but its kind; with
 * `lie` its header calls it a cubin, too. */
static void forge(const char *folder, bool lie) {
    struct smelt__cache_entry entry = {
        .key = gpu_key(), .compiler = compiler_new, .compiled = emulated_number(1)};
    unsigned char file[544 + BYTES + 16];
    char name[SMELT__FILE_NAME_BYTES], path[PATH_BYTES];

    smelt__cache_file_name(&entry.key, &entry.compiler, name);
    snprintf(path, sizeof path, "%.400s", folder);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%.400s/%.2s", folder, name);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    entry.key.output = lie ? SMELT__OUTPUT_CUBIN : SMELT__OUTPUT_EMULATED;
    smelt__entry_encode(&entry, file, file + sizeof file - 16);
    memcpy(file + 544, entry.compiled.cubin, BYTES);
    snprintf(path, sizeof path, "%.400s/%.2s/%s", folder, name, name);
    write_file(path, file, sizeof file);
    free(entry.compiled.cubin);
}

/* Whatever folder, layer or export it comes from. */
static void test_forged_kind(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache_key gpu = gpu_key();
    char forged[PATH_BYTES], archive[PATH_BYTES];
    smelt_cache_transfer result;
    char *tuning;
    size_t bytes;

    snprintf(forged, sizeof forged, "%.300s/forged", scratch->folder);
    snprintf(archive, sizeof archive, "%.300s/forged.tar", scratch->folder);
    for (int lie = 0; lie < 2; lie++) {
        forge(forged, lie);
        /* The writable layer; an export of it. */
        scratch->settings.readonly_folder = "";
        scratch->settings.folder = forged;
        struct smelt__cache *cache = cache_begin(scratch);
        assert_int_equal(finds(cache, &gpu, &compiler_new), 0);
        assert_int_equal(finds(cache, &gpu, NULL), 0);
        assert_int_equal(smelt__cache_counts(cache).errors, lie ? 2 : 0);
        result = (smelt_cache_transfer){.size = sizeof result};
        assert_int_equal(smelt__cache_export(cache, archive, NULL, 0, &result), SMELT_OK);
        assert_int_equal(result.damaged, lie);
        smelt__cache_close(cache);
        /* The folder and the file as a read-only layer, and imported. */
        scratch->settings.folder = scratch->cache;
        for (int file = 0; file < 2; file++) {
            const char *layer = file ? archive : forged;
            scratch->settings.readonly_folder = layer;
            cache = cache_begin(scratch);
            assert_int_equal(finds(cache, &gpu, &compiler_new), 0);
            assert_int_equal(finds(cache, &gpu, NULL), 0);
            result = (smelt_cache_transfer){.size = sizeof result};
            assert_int_equal(smelt__cache_import(cache, layer, &tuning, &bytes, &result), SMELT_OK);
            assert_int_equal(result.damaged, lie && !file);
            free(tuning);
            assert_int_equal(finds(cache, &gpu, &compiler_new), 0);
            assert_int_equal(finds(cache, &gpu, NULL), 0);
            smelt__cache_close(cache);
        }
    }
}

/* An entry under another kernel's name is damage. */
static void test_renamed_entry(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache *cache = cache_begin(scratch);
    char from[PATH_BYTES], to[PATH_BYTES];

    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    assert_int_equal(store(cache, 2, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, from);
    entry_path(scratch->cache, 2, &compiler_new, to);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(hits(cache, 2, &compiler_new, BYTES), 0);
    assert_int_equal(smelt__cache_counts(cache).errors, 1);
    smelt__cache_close(cache);
}

static void test_exact_and_any(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache *cache = cache_begin(scratch);
    struct smelt__compiler_id rebuilt = compiler_new;
    char path[PATH_BYTES];

    assert_int_equal(hits(cache, 1, NULL, BYTES), 0);
    assert_int_equal(store(cache, 1, &compiler_old, 100), 0);
    assert_int_equal(hits(cache, 1, &compiler_new, 100), 0);
    assert_int_equal(hits(cache, 1, &compiler_old, 100), 1);
    assert_int_equal(hits(cache, 1, NULL, 100), 1);
    assert_int_equal(store(cache, 1, &compiler_new, 200), 0);
    assert_int_equal(hits(cache, 1, NULL, 200), 1);
    assert_int_equal(hits(cache, 1, &compiler_old, 100), 1);
    rebuilt.build_ids[0]++;
    assert_int_equal(hits(cache, 1, &rebuilt, 200), 0);

    /* The newest is damaged: the next one will do. */
    entry_path(scratch->cache, 1, &compiler_new, path);
    write_file(path, "", 0);
    assert_int_equal(hits(cache, 1, NULL, 100), 1);
    smelt__cache_close(cache);
}

static void test_readonly_layer(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache *cache;
    struct smelt__cache_key key = key_number(1);

    scratch->settings.folder = scratch->readonly;
    cache = cache_begin(scratch);
    assert_int_equal(store(cache, 1, &compiler_old, 100), 0);
    assert_int_equal(store(cache, 2, &compiler_old, 100), 0);
    assert_int_equal(store(cache, 2, &compiler_new, 200), 0);
    smelt__cache_close(cache);

    scratch->settings.folder = scratch->cache;
    scratch->settings.readonly_folder = scratch->readonly;
    cache = cache_begin(scratch);
    assert_int_equal(hits(cache, 1, &compiler_new, 100), 1); /* any compiler's */
    assert_int_equal(hits(cache, 2, &compiler_old, 100), 1); /* the exact one preferred */
    assert_int_equal(hits(cache, 2, NULL, 200), 1);          /* the newest */
    assert_int_equal(hits(cache, 3, NULL, 200), 0);
    assert_int_equal(store(cache, 3, &compiler_new, 300), 0);
    assert_int_equal(hits(cache, 3, &compiler_new, 300), 1);
    assert_int_equal(count_files(scratch->readonly, ".smelt"), 3);
    assert_int_equal(count_files(scratch->cache, ".smelt"), 1);

    /* What the driver refused there is passed over from now on; what replaces it is found. */
    smelt__cache_forget(cache, &key, &compiler_new);
    assert_int_equal(hits(cache, 1, &compiler_new, 100), 0);
    assert_int_equal(count_files(scratch->readonly, ".smelt"), 3);
    assert_int_equal(store(cache, 1, &compiler_new, 400), 0);
    assert_int_equal(hits(cache, 1, &compiler_new, 400), 1);
    smelt__cache_close(cache);

    /* The read-only layer works without a writable one. */
    scratch->settings.folder = "";
    cache = cache_begin(scratch);
    assert_int_equal(hits(cache, 2, &compiler_new, 200), 1);
    smelt__cache_close(cache);
}

static void test_forget(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache *cache = cache_begin(scratch);
    struct smelt__cache_key key = key_number(1);

    /* Whatever the order in which the folder gives their names. */
    for (int n = 100; n < 116; n++) {
        struct smelt__cache_key other = key_number(n);
        assert_int_equal(store(cache, n, &compiler_old, 100), 0);
        assert_int_equal(store(cache, n, &compiler_new, 200), 0);
        smelt__cache_forget(cache, &other, NULL);
        assert_int_equal(hits(cache, n, &compiler_new, 200), 0);
        assert_int_equal(hits(cache, n, &compiler_old, 100), 1);
    }

    smelt__cache_forget(cache, &key, &compiler_new); /* nothing there: nothing happens */
    assert_int_equal(store(cache, 1, &compiler_old, 100), 0);
    assert_int_equal(store(cache, 1, &compiler_new, 200), 0);
    smelt__cache_forget(cache, &key, NULL);
    assert_int_equal(hits(cache, 1, &compiler_new, 200), 0);
    assert_int_equal(hits(cache, 1, &compiler_old, 100), 1);
    smelt__cache_forget(cache, &key, &compiler_old);
    assert_int_equal(hits(cache, 1, NULL, 100), 0);
    smelt__cache_close(cache);
}

static void test_disable_and_recompile(void **state) {
    struct scratch *scratch = *state;
    struct smelt__cache *cache;

    scratch->settings.disable = 1;
    cache = cache_begin(scratch);
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), -1);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 0);
    assert_int_equal(access(scratch->cache, F_OK), -1);
    smelt__cache_close(cache);

    scratch->settings.disable = 0;
    scratch->settings.recompile = 1;
    cache = cache_begin(scratch);
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 0);
    smelt__cache_close(cache);

    scratch->settings.recompile = 0;
    cache = cache_begin(scratch);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
    smelt__cache_close(cache);
}

static void test_no_cache_at_all(void **state) {
    struct smelt__cache_lock lock;
    struct smelt__compiled compiled;
    struct smelt__cache_key key = key_number(1);

    (void)state;
    assert_int_equal(smelt__cache_lookup(NULL, &key, &compiler_new, &compiled), 0);
    assert_int_equal(smelt__cache_lock(NULL, &key, &compiler_new, &lock, &compiled), 0);
    smelt__cache_unlock(NULL, &lock);
    smelt__cache_forget(NULL, &key, &compiler_new);
    assert_string_equal(smelt__cache_folder(NULL), "");
    smelt__cache_close(NULL);
}

static int compare_doubles(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

/* Prints the time; the bar of 300 µs is checked at ten times that, for slow machines and
 * sanitizers. */
static void test_warm_hit_time(void **state) {
    enum { ROUNDS = 201, CUBIN = 100000 };
    struct scratch *scratch = *state;
    struct smelt__cache *cache = cache_begin(scratch);
    struct smelt__cache_key key = key_number(1);
    struct smelt__compiled compiled;
    double times[ROUNDS];

    assert_int_equal(store(cache, 1, &compiler_new, CUBIN), 0);
    for (int i = 0; i < ROUNDS; i++) {
        double begin = now_seconds();
        assert_int_equal(smelt__cache_lookup(cache, &key, &compiler_new, &compiled), 1);
        times[i] = now_seconds() - begin;
        free(compiled.cubin);
    }
    qsort(times, ROUNDS, sizeof times[0], compare_doubles);
    printf("warm hit, %d byte cubin: median %.1f us, slowest %.1f us\n", CUBIN,
           1e6 * times[ROUNDS / 2], 1e6 * times[ROUNDS - 1]);
    assert_true(times[ROUNDS / 2] < 3e-3);
    smelt__cache_close(cache);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, scratch_setup, scratch_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),
        TEST(test_key),
        TEST(test_grammar),
        TEST(test_truncated_at_every_byte),
        TEST(test_every_bit_flipped),
        TEST(test_malicious_headers),
        TEST(test_huge_sparse_file),
        TEST(test_other_version),
        TEST(test_collision),
        TEST(test_kinds),
        TEST(test_forged_kind),
        TEST(test_renamed_entry),
        TEST(test_exact_and_any),
        TEST(test_readonly_layer),
        TEST(test_forget),
        TEST(test_disable_and_recompile),
        TEST(test_no_cache_at_all),
        TEST(test_warm_hit_time),
    };

    return cmocka_run_group_tests_name("cache entry", tests, NULL, NULL);
}
