/*
 * Files and folders of entries: reading, writing, enumerating. files.c defines which are trusted.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "runtime/cache/internal.h"

/* ---- subfolders ---------------------------------------------------------------------------- */

int smelt__subfolder_open(int folder, const char *name, bool readonly, bool create) {
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
    char digits[3] = {name[0], name[1], '\0'};
    struct stat status;
    int subfolder = openat(folder, digits, flags);

    if (subfolder < 0 && errno == ENOENT && create) {
        if (smelt__folder_create(folder, digits) != 0)
            return -1;
        subfolder = openat(folder, digits, flags);
    }
    if (subfolder < 0)
        return -1;
    if (fstat(subfolder, &status) != 0 || smelt__folder_fault(&status, readonly)) {
        close(subfolder);
        errno = EPERM;
        return -1;
    }
    return subfolder;
}

/* ---- reading ------------------------------------------------------------------------------- */

static const char *file_fault(const struct stat *status, bool readonly) {
    if (!S_ISREG(status->st_mode))
        return "it is not a regular file";
    if (!readonly && !smelt__is_ours(status))
        return "it belongs to another user";
    if (status->st_mode & (readonly ? S_IWOTH : S_IWOTH | S_IWGRP))
        return "it is writable by others";
    return NULL;
}

static const char *size_fault(uint64_t size) {
    if (size < SMELT__ENTRY_PREFIX_BYTES + SMELT__ENTRY_CHECKSUM_BYTES)
        return "it is too short";
    if (size > SMELT__ENTRY_MAX_BYTES)
        return "it is above the maximum size of an entry";
    return NULL;
}

static enum smelt__read_state state_of_errno(const char **why) {
    *why = strerror(errno);
    return errno == ESTALE ? SMELT__READ_STALE : SMELT__READ_FAILED;
}

/* Reads all bytes of an entry after checking its prefix: memory is allocated only for a size on
 * which the container and the entry agree. *bytes is malloc'ed. */
static enum smelt__read_state load_entry(int file, uint64_t offset, uint64_t size,
                                         unsigned char **bytes, const char **why) {
    unsigned char prefix[SMELT__ENTRY_PREFIX_BYTES];

    *why = size_fault(size);
    if (*why)
        return SMELT__READ_BAD;
    if (smelt__read_at(file, offset, prefix, sizeof prefix) != 0)
        return state_of_errno(why);
    if (!smelt__entry_check_prefix(prefix, size, why))
        return SMELT__READ_BAD;
    *bytes = malloc((size_t)size);
    if (!*bytes)
        return state_of_errno(why);
    memcpy(*bytes, prefix, sizeof prefix);
    if (smelt__read_at(file, offset + sizeof prefix, *bytes + sizeof prefix,
                       (size_t)size - sizeof prefix) != 0) {
        enum smelt__read_state state = state_of_errno(why);
        free(*bytes);
        *bytes = NULL;
        return state;
    }
    return SMELT__READ_SOUND;
}

/* Decodes the file's bytes into the entry, which takes them over as its cubin. */
static enum smelt__read_state take_entry(unsigned char *bytes, size_t size, const char *name,
                                         struct smelt__cache_entry *entry, const char **why) {
    char own_name[SMELT__FILE_NAME_BYTES];
    enum smelt__entry_state state = smelt__entry_decode(bytes, size, entry, why);

    if (state == SMELT__ENTRY_SOUND) {
        smelt__cache_file_name(&entry->key, &entry->compiler, own_name);
        if (strcmp(own_name, name) == 0) {
            memmove(bytes, bytes + SMELT__ENTRY_HEADER_BYTES, entry->compiled.cubin_bytes);
            entry->compiled.cubin = bytes;
            return SMELT__READ_SOUND;
        }
        *why = "its name is another kernel's";
        state = SMELT__ENTRY_DAMAGED;
    }
    free(bytes);
    return state == SMELT__ENTRY_FOREIGN ? SMELT__READ_FOREIGN : SMELT__READ_BAD;
}

enum smelt__read_state smelt__entry_read(int file, uint64_t offset, uint64_t size, const char *name,
                                         struct smelt__cache_entry *entry, const char **why) {
    unsigned char *bytes = NULL;
    enum smelt__read_state state = load_entry(file, offset, size, &bytes, why);

    return state == SMELT__READ_SOUND ? take_entry(bytes, (size_t)size, name, entry, why) : state;
}

/* A hit renews the entry's modification time, by which eviction sorts (access times are often not
 * kept); at most once in RENEW_SECONDS, to spare a shared file system. Times in the future are
 * renewed too. Differing clocks only cost extra renewals. */
static void renew(int file, const struct stat *status) {
    enum { RENEW_SECONDS = 600 };
    const struct timespec now[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    time_t age = time(NULL) - status->st_mtim.tv_sec;

    if (age > RENEW_SECONDS || age < -RENEW_SECONDS)
        (void)futimens(file, now); /* fails, harmlessly, on read-only mounts and root's entries */
}

enum smelt__read_state smelt__file_read(int subfolder, const char *name, bool readonly, bool use,
                                        struct smelt__cache_entry *entry, const char **why) {
    struct stat status;
    enum smelt__read_state state = SMELT__READ_BAD;
    /* O_NONBLOCK: a FIFO placed here must not block. */
    int file = openat(subfolder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    *why = "";
    if (file < 0) {
        if (errno == ENOENT)
            return SMELT__READ_ABSENT;
        if (errno == ELOOP || errno == ENXIO) {
            *why = errno == ELOOP ? "it is a symbolic link" : "it is not a regular file";
            return SMELT__READ_BAD;
        }
        return state_of_errno(why);
    }
    if (fstat(file, &status) != 0)
        state = state_of_errno(why);
    else if ((*why = file_fault(&status, readonly)) == NULL)
        state = smelt__entry_read(file, 0, (uint64_t)status.st_size, name, entry, why);
    if (state == SMELT__READ_SOUND && use && !readonly)
        renew(file, &status);
    close(file);
    return state;
}

/* ---- writing ------------------------------------------------------------------------------- */

/* A random name: process ids repeat among nodes that share the folder. */
int smelt__temporary_create(int subfolder, char name[SMELT__FILE_NAME_BYTES]) {
    enum { TRIES = 4 };
    uint64_t random[2];

    for (int i = 0; i < TRIES; i++) {
        int file;
        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
            return -1;
        snprintf(name, SMELT__FILE_NAME_BYTES, ".tmp-%016llx%016llx", (unsigned long long)random[0],
                 (unsigned long long)random[1]);
        file = smelt__file_open_to_write(subfolder, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
        if (file >= 0 || errno != EEXIST)
            return file;
    }
    return -1;
}

int smelt__folder_now(int folder, struct timespec *now) {
    char name[SMELT__FILE_NAME_BYTES];
    struct stat status;
    int subfolder = smelt__subfolder_open(folder, "00", false, true), file, error = 0;

    if (subfolder < 0)
        return -1;
    file = smelt__temporary_create(subfolder, name);
    if (file < 0 || fstat(file, &status) != 0)
        error = errno;
    else
        *now = status.st_mtim;
    if (file >= 0) {
        close(file);
        (void)unlinkat(subfolder, name, 0);
    }
    close(subfolder);
    errno = error;
    return error ? -1 : 0;
}

/* rename(2) that also replaces an empty folder. */
static int rename_over(int subfolder, const char *from, const char *to) {
    if (renameat(subfolder, from, subfolder, to) == 0)
        return 0;
    if (errno != EISDIR || unlinkat(subfolder, to, AT_REMOVEDIR) != 0)
        return -1;
    return renameat(subfolder, from, subfolder, to);
}

int smelt__file_write(int subfolder, const char *name, const struct smelt__cache_entry *entry,
                      struct timespec *written) {
    unsigned char header[SMELT__ENTRY_HEADER_BYTES], checksum[SMELT__ENTRY_CHECKSUM_BYTES];
    char temporary[SMELT__FILE_NAME_BYTES];
    struct stat status;
    int result = -1, error, file;

    smelt__entry_encode(entry, header, checksum);
    file = smelt__temporary_create(subfolder, temporary);
    if (file < 0)
        return -1;
    if (smelt__write_fully(file, header, sizeof header) != 0 ||
        smelt__write_fully(file, entry->compiled.cubin, entry->compiled.cubin_bytes) != 0 ||
        smelt__write_fully(file, checksum, sizeof checksum) != 0 || fsync(file) != 0 ||
        fstat(file, &status) != 0)
        goto out;
    *written = status.st_mtim;
    result = 0;
out:
    error = errno;
    /* NFS may report a full disk or quota only here. The descriptor is closed either way. */
    if (close(file) != 0 && result == 0) {
        error = errno;
        result = -1;
    }
    if (result == 0 && rename_over(subfolder, temporary, name) != 0) {
        error = errno;
        result = -1;
    }
    if (result != 0)
        (void)unlinkat(subfolder, temporary, 0);
    errno = error;
    return result;
}

/* ---- finding ------------------------------------------------------------------------------- */

/* Lists a folder without consuming the caller's descriptor. */
static DIR *list_folder(int folder) {
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
    DIR *names = copy < 0 ? NULL : fdopendir(copy);

    if (!names && copy >= 0)
        close(copy);
    return names;
}

/* The next name; NULL with errno 0 at the end, with errno set when reading failed. */
static const char *next_name(DIR *names) {
    struct dirent *item;

    errno = 0;
    item = readdir(names);
    return item ? item->d_name : NULL;
}

int smelt__subfolder_each(int folder, const char *digits, bool readonly, smelt__found_function each,
                          void *user) {
    struct smelt__found found;
    const char *name;
    DIR *names;
    int result = 0;

    found.subfolder = smelt__subfolder_open(folder, digits, readonly, false);
    if (found.subfolder < 0) /* no error: gone, not a folder, or not trusted, as in lookups */
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EPERM ? 0 : -1;
    names = list_folder(found.subfolder);
    if (!names) {
        close(found.subfolder);
        return -1;
    }
    while (result == 0 && (name = next_name(names)) != NULL) {
        found.temporary = smelt__cache_name_is_temporary(name);
        if (!found.temporary &&
            (!smelt__cache_name_is_entry(name) || strncmp(name, digits, 2) != 0))
            continue;
        if (fstatat(found.subfolder, name, &found.status, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        found.name = name;
        snprintf(found.path, sizeof found.path, "%.2s/%.76s", digits, name);
        result = each(user, &found);
    }
    if (result == 0 && errno != 0)
        result = -1;
    closedir(names);
    close(found.subfolder);
    return result;
}

int smelt__folder_subfolders(int folder, char digits[SMELT__SUBFOLDERS][3]) {
    DIR *names = list_folder(folder);
    const char *name;
    int count = 0;

    if (!names)
        return -1;
    while (count < SMELT__SUBFOLDERS && (name = next_name(names)) != NULL)
        if (strlen(name) == 2 && strspn(name, "0123456789abcdef") == 2)
            memcpy(digits[count++], name, 3);
    if (count < SMELT__SUBFOLDERS && errno != 0)
        count = -1;
    closedir(names);
    return count;
}

void smelt__unread_note(struct smelt__unread *unread, const char *digits) {
    const size_t length = strlen(unread->names);

    unread->error = errno;
    snprintf(unread->names + length, sizeof unread->names - length, "%s%s",
             unread->count++ > 0 ? ", " : "", digits);
}

int smelt__folder_each(int folder, bool readonly, smelt__found_function each, void *user,
                       struct smelt__unread *unread) {
    char digits[SMELT__SUBFOLDERS][3];
    const int count = smelt__folder_subfolders(folder, digits);
    int result = count < 0 ? -1 : 0;

    *unread = (struct smelt__unread){0};
    for (int i = 0; result == 0 && i < count; i++) {
        result = smelt__subfolder_each(folder, digits[i], readonly, each, user);
        if (result == -1 && errno != ENOMEM) {
            smelt__unread_note(unread, digits[i]);
            result = 0;
        }
    }
    if (result == 0 && unread->count > 0) {
        errno = unread->error;
        result = -1;
    }
    return result;
}

int smelt__subfolder_list(int subfolder, const char *prefix, char (*names)[SMELT__FILE_NAME_BYTES],
                          int limit) {
    DIR *stream = list_folder(subfolder);
    const char *name;
    int count = 0;

    if (!stream)
        return 0;
    while ((name = next_name(stream)) != NULL) {
        int at = count;
        if (strncmp(name, prefix, strlen(prefix)) != 0 || !smelt__cache_name_is_entry(name))
            continue;
        /* Insert into the descending list; the smallest name drops out. */
        while (at > 0 && strcmp(names[at - 1], name) < 0)
            at--;
        if (at == limit)
            continue;
        if (count < limit)
            count++;
        memmove(names + at + 1, names + at, (size_t)(count - at - 1) * sizeof *names);
        memcpy(names[at], name, strlen(name) + 1); /* fits: it is an entry's name */
    }
    closedir(stream);
    return count;
}
