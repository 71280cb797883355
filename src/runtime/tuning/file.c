/* Reading and replacing the tuning file: see tuning/file.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/files.h"
#include "runtime/tuning/file.h"

enum { LOCK_MS = 5000, POLL_MS = 10 };

static int fail(struct smelt__message *message, const char *path, const char *what) {
    return smelt__message_set(message, "%s %s", path, what);
}

static int fail_errno(struct smelt__message *message, const char *path) {
    return smelt__message_set(message, "%s: %s", path, strerror(errno));
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* A path split into folder ("." without one) and name. 0, or -1 with a message. */
struct split_path {
    char folder[4096], name[256];
};

static int split_path(const char *path, struct split_path *split, struct smelt__message *message) {
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (!*name || strlen(name) + sizeof ".lock" > sizeof split->name ||
        strlen(path) >= sizeof split->folder)
        return fail(message, path, "is not the name of a file, or is too long");
    snprintf(split->name, sizeof split->name, "%s", name);
    if (!slash)
        snprintf(split->folder, sizeof split->folder, ".");
    else
        snprintf(split->folder, sizeof split->folder, "%.*s",
                 slash == path ? 1 : (int)(slash - path), path);
    return 0;
}

/* -1 with errno, and a message unless it is ENOENT. */
static int open_folder(const struct split_path *split, enum smelt__tuning_trust trust, bool writing,
                       struct smelt__message *message) {
    char why[512];
    int folder = writing ? smelt__folder_make(split->folder, why, sizeof why)
                         : smelt__folder_open(split->folder, trust == SMELT__TUNING_READONLY, why,
                                              sizeof why);
    if (folder < 0)
        smelt__message_set(message, "%s", why);
    return folder;
}

/* ---- reading --------------------------------------------------------------------------------- */

static const char *file_fault(const struct stat *status, enum smelt__tuning_trust trust) {
    if (!S_ISREG(status->st_mode))
        return "is not a regular file";
    if (trust == SMELT__TUNING_OURS && status->st_uid != geteuid() && status->st_uid != 0)
        return "belongs to another user";
    if (status->st_mode & (trust == SMELT__TUNING_OURS ? S_IWOTH | S_IWGRP : S_IWOTH))
        return "is writable by others";
    if (status->st_size > SMELT__TUNING_MAX_BYTES)
        return "is longer than 1 MiB";
    return NULL;
}

/* Reads `size` bytes, the file's size at fstat. */
static int load(int file, size_t size, char **text, size_t *bytes) {
    char *data = malloc(size + 1);
    if (!data || smelt__read_at(file, 0, data, size)) {
        free(data);
        return -1;
    }
    data[size] = '\0';
    *text = data;
    *bytes = size;
    return 0;
}

/* Reads and closes an open file. */
static int read_file(int file, const char *path, enum smelt__tuning_trust trust, char **text,
                     size_t *bytes, struct smelt__message *message) {
    struct stat status;
    int result = -1;
    const char *fault = fstat(file, &status) == 0 ? file_fault(&status, trust) : strerror(errno);
    if (fault)
        fail(message, path, fault);
    else if (load(file, (size_t)status.st_size, text, bytes))
        fail_errno(message, path);
    else
        result = 1;
    close(file);
    return result;
}

static int read_in(int folder, const char *name, const char *path, enum smelt__tuning_trust trust,
                   char **text, size_t *bytes, struct smelt__message *message) {
    /* O_NONBLOCK: a FIFO must not block. */
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);

    if (file < 0)
        return errno == ENOENT  ? 0
               : errno == ELOOP ? fail(message, path, "is a symbolic link")
                                : fail_errno(message, path);
    return read_file(file, path, trust, text, bytes, message);
}

/* A file that the user named; links are followed. */
static int read_named(const char *path, char **text, size_t *bytes,
                      struct smelt__message *message) {
    char why[512];
    int file = smelt__file_open(path, why, sizeof why);

    if (file >= 0)
        return read_file(file, path, SMELT__TUNING_NAMED, text, bytes, message);
    if (errno == ENOENT)
        return 0;
    return smelt__message_set(message, "%s", why);
}

int smelt__tuning_file_read(const char *path, enum smelt__tuning_trust trust, char **text,
                            size_t *bytes, struct smelt__message *message) {
    struct split_path split;
    *text = NULL;
    *bytes = 0;
    if (split_path(path, &split, message))
        return -1;
    if (trust == SMELT__TUNING_NAMED)
        return read_named(path, text, bytes, message);
    int folder = open_folder(&split, trust, false, message);
    if (folder < 0)
        return errno == ENOENT ? 0 : -1;
    int result = read_in(folder, split.name, path, trust, text, bytes, message);
    close(folder);
    return result;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The descriptor of the locked lock file, or of the unlocked one where locking fails; -1: another
 * process holds the lock. The system releases it when its holder closes the file or dies. */
static int lock(int folder, const char *name, const char *path, struct smelt__message *message) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    char lock_name[sizeof((struct split_path *)NULL)->name];

    snprintf(lock_name, sizeof lock_name, "%.240s.lock", name);
    int file = smelt__file_open_to_write(folder, lock_name, O_RDWR | O_CREAT, 0600);
    if (file < 0)
        return fail_errno(message, path);
    for (int waited = 0; fcntl(file, F_OFD_SETLK, &whole) != 0; waited += POLL_MS) {
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EACCES)
            break;
        if (waited >= LOCK_MS) {
            close(file);
            return fail(message, path, "is locked by another process that is writing it");
        }
        nanosleep(&pause, NULL);
    }
    return file;
}

/* Only a regular file may be replaced, not a symbolic link. */
static int check_target(int folder, const char *name, const char *path,
                        struct smelt__message *message) {
    struct stat status;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : fail_errno(message, path);
    if (S_ISREG(status.st_mode))
        return 0;
    return fail(message, path,
                S_ISLNK(status.st_mode) ? "is a symbolic link: name the file itself"
                                        : "is not a regular file");
}

static int replace(int folder, const char *name, const char *path, const struct smelt__text *text,
                   struct smelt__message *message) {
    char temporary[64];
    uint64_t random;
    int error = 0;

    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return fail_errno(message, path);
    snprintf(temporary, sizeof temporary, ".tmp-tuning-%016llx", (unsigned long long)random);
    int file = smelt__file_open_to_write(folder, temporary, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (file < 0)
        return fail_errno(message, path);
    if (smelt__write_fully(file, text->data ? text->data : "", text->length) != 0 ||
        fsync(file) != 0)
        error = errno;
    if (close(file) != 0 && !error)
        error = errno;
    if (!error && renameat(folder, temporary, folder, name) != 0)
        error = errno;
    if (!error)
        return 0;
    (void)unlinkat(folder, temporary, 0);
    errno = error;
    return fail_errno(message, path);
}

static int edit_in(int folder, const char *name, const char *path, enum smelt__tuning_trust trust,
                   smelt__tuning_edit edit, void *user, struct smelt__text *edited,
                   struct smelt__message *message) {
    char *text = NULL;
    size_t bytes = 0;

    if (check_target(folder, name, path, message) != 0 ||
        read_in(folder, name, path, trust, &text, &bytes, message) < 0)
        return -1;
    int result = edit(user, text ? text : "", bytes, edited, message);
    free(text);
    if (result == 0 && edited->failed)
        result = fail(message, path, "is not written: out of memory");
    if (result == 0 && edited->length > SMELT__TUNING_MAX_BYTES)
        result = fail(message, path, "would be longer than 1 MiB");
    if (result == 0)
        result = replace(folder, name, path, edited, message);
    return result;
}

int smelt__tuning_file_edit(const char *path, enum smelt__tuning_trust trust,
                            smelt__tuning_edit edit, void *user, struct smelt__text *edited,
                            struct smelt__message *message) {
    struct split_path split;
    int result = -1, locked;

    if (split_path(path, &split, message))
        return -1;
    int folder = open_folder(&split, trust, true, message);
    if (folder < 0) {
        if (errno == ENOENT)
            fail_errno(message, split.folder);
        return -1;
    }
    locked = lock(folder, split.name, path, message);
    if (locked >= 0) {
        result = edit_in(folder, split.name, path, trust, edit, user, edited, message);
        close(locked);
    }
    close(folder);
    if (result)
        smelt__text_free(edited);
    return result;
}
