/*
 * The loader's folders. The format of its cache is glibc's (sysdeps/generic/dl-cache.h): a header,
 * then entries whose key and value are offsets of strings from the header's start. A cache in
 * another format is ignored.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/compiler/loader_path.h"

#define CACHE_FILE "/etc/ld.so.cache"
#define CACHE_MAGIC "glibc-ld.so.cache1.1"

struct cache_header {
    char magic[20];
    uint32_t entry_count;
    uint32_t strings_bytes;
    uint8_t flags, padding[3];
    uint32_t extension_offset;
    uint32_t unused[3];
};

struct cache_entry {
    int32_t flags;
    uint32_t key, value; /* "libnvrtc.so.13", and the file's path */
    uint32_t os_version;
    uint64_t hardware;
};

/* The string at an offset, or NULL when it does not end within the cache. */
static const char *string_at(const char *cache, size_t bytes, uint32_t offset) {
    if (offset >= bytes || !memchr(cache + offset, '\0', bytes - offset))
        return NULL;
    return cache + offset;
}

static void give_folder_of(const char *path, void (*each)(void *user, const char *folder),
                           void *user) {
    char folder[4096];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path || (size_t)(slash - path) >= sizeof folder)
        return;
    memcpy(folder, path, (size_t)(slash - path));
    folder[slash - path] = '\0';
    each(user, folder);
}

static void walk_cache(const char *cache, size_t bytes, const char *prefix,
                       void (*each)(void *user, const char *folder), void *user) {
    const size_t prefix_length = strlen(prefix);
    struct cache_header header;
    /* A cache that also serves old loaders begins with their table. */
    const char *start = memmem(cache, bytes, CACHE_MAGIC, sizeof CACHE_MAGIC - 1);
    if (!start)
        return;
    bytes -= (size_t)(start - cache);
    if (bytes < sizeof header)
        return;
    memcpy(&header, start, sizeof header);
    size_t most = (bytes - sizeof header) / sizeof(struct cache_entry);
    size_t count = header.entry_count < most ? header.entry_count : most;
    for (size_t i = 0; i < count; i++) {
        struct cache_entry entry;
        memcpy(&entry, start + sizeof header + i * sizeof entry, sizeof entry);
        const char *key = string_at(start, bytes, entry.key);
        if (!key || strncmp(key, prefix, prefix_length) != 0)
            continue;
        const char *value = string_at(start, bytes, entry.value);
        if (value)
            give_folder_of(value, each, user);
    }
}

/* 0; -1 with errno: the cache exists but could not be read. */
static int give_cache(const char *prefix, void (*each)(void *user, const char *folder),
                      void *user) {
    struct stat status;
    int result = 0, error = 0;
    int fd = open(CACHE_FILE, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    if (fstat(fd, &status) != 0) {
        error = errno;
        result = -1;
    } else if (status.st_size > 0) {
        /* ldconfig replaces the file by rename, so the mapped file never shrinks. */
        size_t bytes = (size_t)status.st_size;
        char *cache = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (cache == MAP_FAILED) {
            error = errno;
            result = -1;
        } else {
            walk_cache(cache, bytes, prefix, each, user);
            munmap(cache, bytes);
        }
    }
    close(fd);
    errno = error;
    return result;
}

void smelt__path_list_each(const char *list, const char *separators,
                           void (*each)(void *user, const char *path), void *user) {
    char path[4096];

    while (list && *list) {
        size_t length = strcspn(list, separators);
        if (length > 0 && length < sizeof path) {
            memcpy(path, list, length);
            path[length] = '\0';
            each(user, path);
        }
        list += length + (list[length] != '\0');
    }
}

int smelt__loader_folders(const char *prefix, void (*each)(void *user, const char *folder),
                          void *user) {
    static const char *const defaults[] = {"/lib64",
                                           "/usr/lib64",
                                           "/lib/x86_64-linux-gnu",
                                           "/usr/lib/x86_64-linux-gnu",
                                           "/usr/lib/aarch64-linux-gnu",
                                           "/usr/lib",
                                           NULL};

    smelt__path_list_each(secure_getenv("LD_LIBRARY_PATH"), ":;", each, user);
    int result = give_cache(prefix, each, user), error = errno;
    for (int i = 0; defaults[i]; i++)
        each(user, defaults[i]);
    errno = error;
    return result;
}
