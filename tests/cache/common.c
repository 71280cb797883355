#include "common.h"

#include <elf.h>

#include <fcntl.h>
#include <unistd.h>

const struct smelt__compiler_id compiler_old = {12, 9, {1, 2, 3}};
const struct smelt__compiler_id compiler_new = {13, 0, {4, 5, 6}};

static void note_line(void *user, smelt_log_level level, const char *message) {
    struct scratch *scratch = user;
    if (level > SMELT_LOG_WARNING)
        return;
    scratch->warnings++;
    snprintf(scratch->last_warning, sizeof scratch->last_warning, "%s", message);
}

int scratch_setup(void **state) {
    struct scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch || make_scratch(scratch->folder, sizeof scratch->folder))
        return -1;
    snprintf(scratch->cache, sizeof scratch->cache, "%.400s/cache", scratch->folder);
    snprintf(scratch->readonly, sizeof scratch->readonly, "%.400s/readonly", scratch->folder);
    scratch->settings.folder = scratch->cache;
    scratch->settings.readonly_folder = "";
    scratch->settings.lock = SMELT_CACHE_LOCK_SHARED;
    scratch->settings.lock_timeout_ms = 10000;
    scratch->log.function = note_line;
    scratch->log.user = scratch;
    scratch->log.level = SMELT_LOG_DEBUG;
    *state = scratch;
    return 0;
}

int scratch_teardown(void **state) {
    struct scratch *scratch = *state;
    cache_end(scratch);
    const int result = remove_tree(scratch->folder);
    free(scratch);
    return result;
}

struct smelt__cache *cache_begin(struct scratch *scratch) {
    cache_end(scratch);
    scratch->open = smelt__cache_open(&scratch->settings, &scratch->log);
    assert_non_null(scratch->open);
    return scratch->open;
}

void cache_end(struct scratch *scratch) {
    smelt__cache_close(scratch->open);
    scratch->open = NULL;
}

struct smelt__cache_key key_number(int n) {
    struct smelt__cache_key key;
    const char *const options[] = {"--std=c++17", "-default-device", NULL};
    char source[64];
    int length = snprintf(source, sizeof source, "__global__ void kernel_%d() {}", n);
    smelt__cache_key_make(&key, source, (size_t)length, options, "sm_90a", SMELT__OUTPUT_CUBIN);
    return key;
}

void put_elf_head(unsigned char *bytes, enum smelt__output output) {
    const Elf64_Ehdr head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                             .e_type = output == SMELT__OUTPUT_CUBIN ? ET_EXEC : ET_DYN,
                             .e_machine = output == SMELT__OUTPUT_CUBIN ? EM_CUDA : EM_X86_64};
    memcpy(bytes, &head, sizeof head);
}

struct smelt__compiled compiled_number(int n, size_t bytes) {
    struct smelt__compiled compiled = {.cubin_bytes = bytes,
                                       .registers = 168,
                                       .spill_bytes = n,
                                       .static_shared_bytes = 16,
                                       .dynamic_shared_bytes = 200000,
                                       .threads = 256,
                                       .compile_seconds = 0.5 + n};
    uint64_t random = (uint64_t)n + 1;
    compiled.cubin = malloc(bytes);
    assert_non_null(compiled.cubin);
    for (size_t i = 0; i < bytes; i++)
        compiled.cubin[i] = (unsigned char)next_random(&random);
    put_elf_head(compiled.cubin, SMELT__OUTPUT_CUBIN);
    snprintf(compiled.spec, sizeof compiled.spec, "sparse_attn_fwd:heads=%d", n);
    snprintf(compiled.kernel_name, sizeof compiled.kernel_name, "kernel_%d", n);
    return compiled;
}

static void assert_compiled_equal(const struct smelt__compiled *a,
                                  const struct smelt__compiled *b) {
    assert_int_equal(a->cubin_bytes, b->cubin_bytes);
    assert_memory_equal(a->cubin, b->cubin, b->cubin_bytes);
    assert_string_equal(a->spec, b->spec);
    assert_string_equal(a->kernel_name, b->kernel_name);
    assert_int_equal(a->registers, b->registers);
    assert_int_equal(a->spill_bytes, b->spill_bytes);
    assert_int_equal(a->static_shared_bytes, b->static_shared_bytes);
    assert_int_equal(a->dynamic_shared_bytes, b->dynamic_shared_bytes);
    assert_int_equal(a->threads, b->threads);
    assert_true(a->compile_seconds == b->compile_seconds);
}

int hits(struct smelt__cache *cache, int n, const struct smelt__compiler_id *compiler,
         size_t bytes) {
    struct smelt__cache_key key = key_number(n);
    struct smelt__compiled found, stored;

    if (!smelt__cache_lookup(cache, &key, compiler, &found)) {
        smelt__cache_missed(cache, &key);
        return 0;
    }
    stored = compiled_number(n, bytes);
    assert_compiled_equal(&found, &stored);
    free(found.cubin);
    free(stored.cubin);
    return 1;
}

int store(struct smelt__cache *cache, int n, const struct smelt__compiler_id *compiler,
          size_t bytes) {
    struct smelt__cache_key key = key_number(n);
    struct smelt__compiled compiled = compiled_number(n, bytes);
    char why[SMELT__CACHE_WHY];
    int result = smelt__cache_store(cache, &key, compiler, &compiled, why);

    free(compiled.cubin);
    return result;
}

smelt_cache_stats stats_of(struct smelt__cache *cache) {
    static char readonly_problem[SMELT__CACHE_PROBLEM];
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    assert_int_equal(smelt__cache_stat(cache, readonly_problem, &stats), SMELT_OK);
    return stats;
}

void subfolder_path(const char *folder, int n, char path[PATH_BYTES]) {
    struct smelt__cache_key key = key_number(n);
    char hex[33];
    smelt__cache_key_hex(&key, hex);
    snprintf(path, PATH_BYTES, "%.400s/%.2s", folder, hex);
}

void entry_path(const char *folder, int n, const struct smelt__compiler_id *compiler,
                char path[PATH_BYTES]) {
    struct smelt__cache_key key = key_number(n);
    char name[SMELT__FILE_NAME_BYTES];

    smelt__cache_file_name(&key, compiler, name);
    snprintf(path, PATH_BYTES, "%.400s/%.2s/%s", folder, name, name);
}

unsigned char *read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    unsigned char *content = malloc(1 << 20);
    assert_non_null(file);
    assert_non_null(content);
    *bytes = fread(content, 1, 1 << 20, file);
    fclose(file);
    return content;
}

void write_file(const char *path, const void *bytes, size_t count) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, bytes, count), count);
    close(file);
}

void set_age(const char *path, long seconds) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) + seconds}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

bool under_valgrind(void) {
    const char *preloaded = getenv("LD_PRELOAD");
    return preloaded && strstr(preloaded, "vgpreload");
}
