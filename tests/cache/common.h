/* Shared by the cache's tests: a scratch folder, invented kernels, a log that counts. */
#pragma once

#include "../unit/files.h"
#include "../unit/test.h"

#include "runtime/cache/internal.h"

enum { PATH_BYTES = 512 };

struct scratch {
    char folder[PATH_BYTES];               /* private, removed at the end */
    char cache[PATH_BYTES];                /* folder/cache: not made yet */
    char readonly[PATH_BYTES];             /* folder/readonly: not made yet */
    struct smelt__cache_settings settings; /* only the cache, no cap, shared lock, 10 s */
    struct smelt__log log;
    struct smelt__cache *open; /* opened by cache_begin; closed by the next call and at the end */
    int warnings;
    char last_warning[1024];
};

/* cmocka's setup and teardown. */
int scratch_setup(void **state);
int scratch_teardown(void **state);

/* Tests with a scratch folder, or also with a cache in it. */
#define SCRATCH_TEST(function)                                                                     \
    static void function##_in(struct scratch *scratch);                                            \
    TEST_WITH(function, scratch_setup, scratch_teardown) {                                         \
        function##_in(*state);                                                                     \
    }                                                                                              \
    static void function##_in(struct scratch *scratch)
#define CACHE_TEST(function)                                                                       \
    static void function##_in(struct scratch *scratch, struct smelt__cache *cache);                \
    TEST_WITH(function, scratch_setup, scratch_teardown) {                                         \
        function##_in(*state, cache_begin(*state));                                                \
    }                                                                                              \
    static void function##_in(__attribute__((unused)) struct scratch *scratch,                     \
                              struct smelt__cache *cache)

/* Opens a cache with the settings, and closes the previous one. */
struct smelt__cache *cache_begin(struct scratch *scratch);
void cache_end(struct scratch *scratch);

/* Kernel number n: its key, and a cubin of pseudo-random bytes that depends on n. */
struct smelt__cache_key key_number(int n);
struct smelt__compiled compiled_number(int n, size_t bytes); /* at least 64 */
/* Writes the 64-byte ELF header of a compiler's output. */
void put_elf_head(unsigned char *bytes, enum smelt__output output);
extern const struct smelt__compiler_id compiler_old, compiler_new;

/* Looks up and stores kernel n of compiler_new; a hit is compared with the stored kernel. */
int hits(struct smelt__cache *cache, int n, const struct smelt__compiler_id *compiler,
         size_t bytes);
int store(struct smelt__cache *cache, int n, const struct smelt__compiler_id *compiler,
          size_t bytes);

/* The result's text about the read-only layer is valid until the next call. */
smelt_cache_stats stats_of(struct smelt__cache *cache);

/* The path of an entry's file; of its subfolder. */
void entry_path(const char *folder, int n, const struct smelt__compiler_id *compiler,
                char path[PATH_BYTES]);
void subfolder_path(const char *folder, int n, char path[PATH_BYTES]);

unsigned char *read_file(const char *path, size_t *bytes);
void write_file(const char *path, const void *bytes, size_t count);
/* Sets a file's modification time to `seconds` from now. */
void set_age(const char *path, long seconds);

bool under_valgrind(void);
