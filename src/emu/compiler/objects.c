/*
 * See objects.h. A file an object, in one of 16 folders by the key's first digit, written beside
 * its place and renamed: another process sees all of it or nothing. It begins with its key, its
 * length and a sum of its bytes, and what does not fit them is as good as not there.
 */
#include "emu/compiler/objects.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MOST_IN_FOLDER = 128, PATH = 1024, WORDS = 256 };

/* A change of the file's form, or of how compiler.c links, changes this. */
static const char version[16] = "smelt object 2";

struct header {
    char version[16];
    struct emu_object_key key;
    uint64_t bytes, sum;
};

/* ---- the key --------------------------------------------------------------------------------- */

/* What execvp would run, links followed. 0 or -1. */
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

/* The program's file and when it was made, as ccache knows a compiler. */
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

/* Each word of the command: "ccache gcc" is two programs, "gcc -m64" one and an option. */
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

int emu_object_key(const char *compiler, const char *const *options, size_t count, const char *text,
                   struct emu_object_key *key) {
    /* Where gcc looks for its own parts. */
    static const char *const variables[] = {"GCC_EXEC_PREFIX", "COMPILER_PATH", "LIBRARY_PATH"};
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    if (strlen(compiler) >= WORDS || add_compiler(&state, compiler) != 0)
        return -1;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i]);
        add_text(&state, value ? value : "");
    }
    for (size_t i = 0; i < count; i++)
        add_text(&state, options[i]);
    add_text(&state, text);
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(key->bytes, canonical.digest, sizeof key->bytes);
    return 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* FOLDER/X, and FOLDER/X/NAME of the object. */
static void name_places(const char *folder, const struct emu_object_key *key, char own[PATH],
                        char path[PATH]) {
    char digits[2 * sizeof key->bytes + 1];
    for (size_t i = 0; i < sizeof key->bytes; i++)
        snprintf(digits + 2 * i, 3, "%02x", key->bytes[i]);
    snprintf(own, PATH, "%s/%c", folder, digits[0]);
    snprintf(path, PATH, "%s/%c/%s", folder, digits[0], digits);
}

static int read_all(int file, void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t count = read(file, (char *)data + done, bytes - done);
        if (count == 0 || (count < 0 && errno != EINTR))
            return -1;
        done += count > 0 ? (size_t)count : 0;
    }
    return 0;
}

static int write_all(int file, const void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t count = write(file, (const char *)data + done, bytes - done);
        if (count < 0 && errno != EINTR)
            return -1;
        done += count > 0 ? (size_t)count : 0;
    }
    return 0;
}

int emu_object_find(const char *folder, const struct emu_object_key *key, unsigned char **object,
                    size_t *bytes) {
    char own[PATH], path[PATH];
    struct header header;
    struct stat status;
    unsigned char *found = NULL;
    name_places(folder, key, own, path);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    if (read_all(file, &header, sizeof header) != 0 || fstat(file, &status) != 0 ||
        memcmp(header.version, version, sizeof version) != 0 ||
        memcmp(&header.key, key, sizeof *key) != 0 || header.bytes == 0 ||
        (uint64_t)status.st_size != sizeof header + header.bytes)
        goto out;
    found = malloc(header.bytes);
    if (found && (read_all(file, found, header.bytes) != 0 ||
                  XXH3_64bits(found, header.bytes) != header.sum)) {
        free(found);
        found = NULL;
    }
    if (found)
        futimens(file, NULL); /* asked for just now */
out:
    close(file);
    *object = found;
    *bytes = found ? header.bytes : 0;
    return found ? 0 : -1;
}

/* ---- what goes ------------------------------------------------------------------------------- */

struct aged {
    char name[64];
    struct timespec used;
};

static int oldest_first(const void *left, const void *right) {
    const struct aged *a = left, *b = right;
    if (a->used.tv_sec != b->used.tv_sec)
        return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    return (a->used.tv_nsec > b->used.tv_nsec) - (a->used.tv_nsec < b->used.tv_nsec);
}

/* Keeps a folder below its limit: a quarter of it goes at a time. What a killed process left half
 * written goes like the others. */
static void remove_oldest(const char *own) {
    enum { MOST = 4 * MOST_IN_FOLDER };
    struct aged *files = calloc(MOST, sizeof *files);
    struct dirent *entry;
    struct stat status;
    size_t count = 0;
    DIR *folder = files ? opendir(own) : NULL;
    while (folder && count < MOST && (entry = readdir(folder)))
        if (strlen(entry->d_name) < sizeof files->name &&
            fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(status.st_mode)) {
            strcpy(files[count].name, entry->d_name);
            files[count++].used = status.st_mtim;
        }
    if (folder && count > MOST_IN_FOLDER) {
        qsort(files, count, sizeof *files, oldest_first);
        for (size_t i = 0; i < count - MOST_IN_FOLDER * 3 / 4; i++)
            unlinkat(dirfd(folder), files[i].name, 0);
    }
    if (folder)
        closedir(folder);
    free(files);
}

void emu_object_keep(const char *folder, const struct emu_object_key *key,
                     const unsigned char *object, size_t bytes) {
    char own[PATH], path[PATH], beside[PATH + 16];
    struct header header = {.key = *key, .bytes = bytes, .sum = XXH3_64bits(object, bytes)};
    memcpy(header.version, version, sizeof version);
    name_places(folder, key, own, path);
    if (strlen(folder) + 64 >= PATH)
        return;
    mkdir(folder, 0777);
    mkdir(own, 0777);
    snprintf(beside, sizeof beside, "%s.XXXXXX", path);
    const int file = mkostemp(beside, O_CLOEXEC);
    if (file < 0)
        return;
    int failed =
        write_all(file, &header, sizeof header) != 0 || write_all(file, object, bytes) != 0;
    failed = close(file) != 0 || failed;
    if (failed || rename(beside, path) != 0)
        unlink(beside);
    remove_oldest(own);
}
