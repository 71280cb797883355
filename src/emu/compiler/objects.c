/* See objects.h. This file makes the keys; the library's cache stores the objects. */
#include "emu/compiler/objects.h"
#include "runtime/hash.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 1024, WORDS = 256 };
#define CAP_BYTES (UINT64_C(1) << 30)

/* Part of each key. Change it when compiler.c links differently. */
static const char version[] = "smelt object 4";

/* ---- the key --------------------------------------------------------------------------------- */

/* Finds the file that execvp would run, following links. 0 or -1. */
static int find_program(const char *name, char path[PATH], struct stat *status) {
    const char *folders = getenv("PATH");
    if (strchr(name, '/')) {
        snprintf(path, PATH, "%s", name);
        return stat(path, status);
    }
    for (const char *at = folders ? folders : "/bin:/usr/bin"; *at;) {
        const int length = (int)strcspn(at, ":");
        snprintf(path, PATH, "%.*s/%s", length, at, name);
        if (access(path, X_OK) == 0 && stat(path, status) == 0)
            return 0;
        at += length + (at[length] == ':');
    }
    return -1;
}

static void add_text(XXH3_state_t *state, const char *text) {
    XXH3_128bits_update(state, text, strlen(text) + 1);
}

/* Identifies a program by its file's path, size, time and inode, like ccache. */
static int add_program(XXH3_state_t *state, const char *name) {
    char path[PATH], words[PATH + 128];
    struct stat status;
    if (find_program(name, path, &status) != 0)
        return -1;
    snprintf(words, sizeof words, "%s %lld %lld.%09ld %llu", path, (long long)status.st_size,
             (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
             (unsigned long long)status.st_ino);
    add_text(state, words);
    return 0;
}

/* Each word of the command: "ccache gcc" is two programs, "gcc -m64" is one and an option. */
static int add_compiler(XXH3_state_t *state, const char *command) {
    char words[WORDS], *rest = NULL;
    snprintf(words, sizeof words, "%s", command);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        if (word[0] == '-')
            add_text(state, word);
        else if (add_program(state, word) != 0)
            return -1;
    }
    return 0;
}

int emu_object_key(const char *compiler, const char *const *options, const char *text,
                   struct emu_object_key *key) {
    /* Variables that redirect gcc to other tools. */
    static const char *const variables[] = {"GCC_EXEC_PREFIX", "COMPILER_PATH", "LIBRARY_PATH"};
    XXH128_canonical_t digest;
    XXH3_state_t state;
    memset(key, 0, sizeof *key);
    XXH3_128bits_reset(&state);
    add_text(&state, version);
    if (strlen(compiler) >= WORDS || add_compiler(&state, compiler) != 0)
        return -1;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i]);
        add_text(&state, value ? value : "");
    }
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&state));
    memcpy(key->compiler.build_ids, digest.digest, sizeof key->compiler.build_ids);
    smelt__cache_key_make(&key->text, text, strlen(text), options, "emulator",
                          SMELT__OUTPUT_EMULATED);
    return 0;
}

/* ---- the objects ----------------------------------------------------------------------------- */

struct smelt__cache *emu_objects_open(const char *folder, char *why, size_t why_bytes) {
    const struct smelt__cache_settings settings = {.folder = folder,
                                                   .readonly_folder = "",
                                                   .cap_bytes = CAP_BYTES,
                                                   .lock = SMELT_CACHE_LOCK_LOCAL};
    struct smelt__cache *objects = smelt__cache_open(&settings, NULL);
    if (objects && !*smelt__cache_problem(objects))
        return objects;
    snprintf(why, why_bytes, "%s", smelt__cache_problem(objects));
    smelt__cache_close(objects);
    return NULL;
}

int emu_object_find(struct smelt__cache *objects, const struct emu_object_key *key,
                    unsigned char **object, size_t *bytes) {
    struct smelt__compiled found;
    const int hit = smelt__cache_lookup(objects, &key->text, &key->compiler, &found);
    *object = hit ? found.cubin : NULL;
    *bytes = hit ? found.cubin_bytes : 0;
    return hit ? 0 : -1;
}

void emu_object_keep(struct smelt__cache *objects, const struct emu_object_key *key,
                     unsigned char *object, size_t bytes) {
    const struct smelt__compiled compiled = {.cubin = object, .cubin_bytes = bytes};
    char why[SMELT__CACHE_WHY];
    smelt__cache_store(objects, &key->text, &key->compiler, &compiled, why);
}
