/*
 * Trusted folders, and reading and writing files.
 *
 * A cubin runs with the user's rights over the user's data. So the library walks each path from the
 * root (a relative one from the working directory) and checks every component. "Others can write"
 * means: writable by everyone, or by a group other than the process's effective group (with a umask
 * of 002 folders are writable by the latter).
 *
 *   The writable layer, and the folder of a tuning file that is written:
 *     - each folder from the root on belongs to this user or root; if others can write it, it has
 *       the sticky bit, which keeps them from renaming our files;
 *     - each symbolic link belongs to this user or root, and others cannot write its folder, sticky
 *       or not;
 *     - below the layer's folder links are not followed, and only the owner can write entries.
 *   The read-only layer, an exported file, a tuning file that is read: the user named it, so anyone
 *   may own it, and a group may write it. But
 *     - a folder on the path that everyone can write has the sticky bit;
 *     - a link in a folder that everyone can write belongs to this user or root;
 *     - the layer's folder, its subfolders and files are not writable by everyone, sticky or not:
 *       this process would run what others put there.
 *
 * A write beyond the process's limit on file size (RLIMIT_FSIZE) fails, and the system also sends
 * SIGXFSZ, which by default ends the process. A library must not do that to its host program, so
 * every write goes through write_quietly.
 */
#include "runtime/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool smelt__is_ours(const struct stat *status) {
    return status->st_uid == geteuid() || status->st_uid == 0;
}

/* ---- folders ------------------------------------------------------------------------------- */

/* Whether users other than this one and root can write the file. */
static bool others_write(const struct stat *status) {
    return (status->st_mode & S_IWOTH) != 0 ||
           ((status->st_mode & S_IWGRP) != 0 && status->st_gid != getegid());
}

const char *smelt__folder_fault(const struct stat *status, bool readonly) {
    if (readonly)
        return status->st_mode & S_IWOTH ? "is writable by everyone" : NULL;
    if (!smelt__is_ours(status))
        return "belongs to another user";
    if (status->st_mode & S_ISVTX || !others_write(status))
        return NULL;
    return status->st_mode & S_IWOTH ? "is writable by everyone (use chmod o-w)"
                                     : "is writable by a group (use chmod g-w)";
}

enum { MAX_LINKS = 40, PATH = 4096 };

/* A walk along a path. */
struct walk {
    const char *path; /* the whole path */
    bool readonly, make, wants_file;
    int folder;         /* the folder reached so far, open with O_PATH */
    struct stat status; /* of that folder */
    int file;           /* the file at the path's end; -1: none so far */
    int links;          /* followed so far; limited */
    char at[PATH];      /* the folder's path, for messages */
    char *why;
    size_t why_bytes;
};

static int fail_at(struct walk *walk, const char *name, const char *fault, int error) {
    const char *slash = *name && strcmp(walk->at, "/") != 0 ? "/" : "";
    char at[PATH + NAME_MAX + 2];

    snprintf(at, sizeof at, "%s%s%s", walk->at, slash, name);
    if (strcmp(at, walk->path) == 0)
        snprintf(walk->why, walk->why_bytes, "%s %s", at, fault);
    else
        snprintf(walk->why, walk->why_bytes, "%s, on the way to %s, %s", at, walk->path, fault);
    errno = error;
    return -1;
}

/* Moves the walk to `folder`, which is called `name` in the present folder ("": it is at walk->at).
 * Takes the descriptor. */
static int enter(struct walk *walk, int folder, const char *name) {
    const char *fault = NULL;
    size_t length = strlen(walk->at);

    if (walk->folder >= 0)
        close(walk->folder);
    walk->folder = folder;
    if (*name)
        snprintf(walk->at + length, sizeof walk->at - length, "%s%s",
                 length && walk->at[length - 1] == '/' ? "" : "/", name);
    if (fstat(folder, &walk->status) != 0)
        fault = strerror(errno);
    else if (!walk->readonly)
        fault = smelt__folder_fault(&walk->status, false);
    else if ((walk->status.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH)
        fault = "is writable by everyone";
    return fault ? fail_at(walk, "", fault, EPERM) : 0;
}

/* Other users cannot replace the new folder before its mode is changed: its parent belongs to this user or root, or is
 * sticky. */
int smelt__folder_create(int folder, const char *name) {
    struct stat status;

    if (mkdirat(folder, name, S_IRWXU) != 0)
        return errno == EEXIST ? 0 : -1;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return -1;
    return (status.st_mode & S_IRWXU) == S_IRWXU
               ? 0
               : fchmodat(folder, name, (status.st_mode & 07777) | S_IRWXU, 0);
}

static int open_folder_in(const struct walk *walk, const char *name) {
    /* O_DIRECTORY makes an automounter mount the folder; O_PATH alone does not. */
    const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int folder = openat(walk->folder, name, flags);

    if (folder < 0 && errno == ENOENT && walk->make) {
        if (smelt__folder_create(walk->folder, name) != 0)
            return -1;
        folder = openat(walk->folder, name, flags);
    }
    return folder;
}

static int follow(struct walk *walk, const char *path);

/* A component that is not a folder: a link, which is followed if it is trusted, or a file. */
static int enter_other(struct walk *walk, const char *name) {
    const bool open_folder =
        walk->readonly ? (walk->status.st_mode & S_IWOTH) != 0 : others_write(&walk->status);
    char target[PATH];
    struct stat status;
    ssize_t length;

    if (fstatat(walk->folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return -1;
    if (!S_ISLNK(status.st_mode)) {
        errno = ENOTDIR;
        if (walk->wants_file) /* O_NONBLOCK: a FIFO must not block */
            walk->file = openat(walk->folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        return walk->file >= 0 ? 0 : -1;
    }
    if (walk->readonly ? open_folder && !smelt__is_ours(&status)
                       : open_folder || !smelt__is_ours(&status))
        return fail_at(walk, name, "is a symbolic link that another user may have put there",
                       ELOOP);
    length = readlinkat(walk->folder, name, target, sizeof target);
    if (length < 0 || length == (ssize_t)sizeof target || ++walk->links > MAX_LINKS) {
        errno = length < 0 ? errno : length < (ssize_t)sizeof target ? ELOOP : ENAMETOOLONG;
        return -1;
    }
    target[length] = '\0';
    return follow(walk, target);
}

/* Continues the walk along a path, the caller's or a link's. 0; -1 with errno, and a sentence if a
 * rule is violated. */
static int follow(struct walk *walk, const char *path) {
    char name[NAME_MAX + 1];
    size_t length;

    if (path[0] == '/' || walk->folder < 0) {
        int start = open(path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        snprintf(walk->at, sizeof walk->at, "%s", path[0] == '/' ? "/" : ".");
        if (start < 0 || enter(walk, start, "") != 0)
            return -1;
    }
    for (; *(path += strspn(path, "/")); path += length) {
        length = strcspn(path, "/");
        errno = walk->file >= 0 ? ENOTDIR : ENAMETOOLONG;
        if (walk->file >= 0 || length > NAME_MAX)
            return -1;
        snprintf(name, sizeof name, "%.*s", (int)length, path);
        int folder = open_folder_in(walk, name);
        if (folder >= 0 ? enter(walk, folder, name) != 0
                        : (errno != ELOOP && errno != ENOTDIR) || enter_other(walk, name) != 0)
            return -1;
    }
    return 0;
}

/* Opens what the path names for reading: a folder, or a file if wants_file is set. */
static int open_path(struct walk *walk) {
    int result = -1, error;

    walk->folder = walk->file = -1;
    snprintf(walk->why, walk->why_bytes, "%s", "");
    if (follow(walk, walk->path) == 0) {
        result = walk->file;
        if (result < 0)
            result = openat(walk->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
    }
    error = errno;
    if (walk->folder >= 0)
        close(walk->folder);
    if (result < 0 && walk->file >= 0)
        close(walk->file);
    if (result < 0 && error != ENOENT && walk->why[0] == '\0')
        snprintf(walk->why, walk->why_bytes, "%s: %s", walk->path, strerror(error));
    errno = error;
    return result;
}

int smelt__folder_open(const char *path, bool readonly, char *why, size_t why_bytes) {
    struct walk walk = {.path = path, .readonly = readonly, .why = why, .why_bytes = why_bytes};
    int folder = open_path(&walk);

    if (folder >= 0 && readonly && smelt__folder_fault(&walk.status, true)) {
        snprintf(why, why_bytes, "%s %s", path, smelt__folder_fault(&walk.status, true));
        close(folder);
        errno = EPERM;
        return -1;
    }
    return folder;
}

int smelt__folder_make(const char *path, char *why, size_t why_bytes) {
    struct walk walk = {.path = path, .make = true, .why = why, .why_bytes = why_bytes};

    return open_path(&walk);
}

int smelt__file_open(const char *path, char *why, size_t why_bytes) {
    struct walk walk = {
        .path = path, .readonly = true, .wants_file = true, .why = why, .why_bytes = why_bytes};

    return open_path(&walk);
}

/* ---- reading and writing --------------------------------------------------------------------- */

int smelt__read_at(int file, uint64_t offset, void *to, size_t count) {
    unsigned char *bytes = to;

    while (count > 0) {
        ssize_t got = pread(file, bytes, count, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            if (got == 0)
                errno = EIO;
            return -1;
        }
        bytes += got;
        offset += (uint64_t)got;
        count -= (size_t)got;
    }
    return 0;
}

/* write(2) without SIGXFSZ. The signal goes to the writing thread: it is blocked during the write
 * and consumed if it came, unless one was already pending, which is the program's own. */
static ssize_t write_quietly(int file, const void *bytes, size_t count) {
    const struct timespec no_wait = {0};
    sigset_t limit, before, waiting;
    ssize_t put;
    int error;

    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    sigemptyset(&waiting);
    if (pthread_sigmask(SIG_BLOCK, &limit, &before) != 0)
        return write(file, bytes, count);
    (void)sigpending(&waiting);
    put = write(file, bytes, count);
    error = errno;
    if (put < 0 && error == EFBIG && !sigismember(&waiting, SIGXFSZ))
        while (sigtimedwait(&limit, NULL, &no_wait) < 0 && errno == EINTR)
            continue;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return put;
}

/* Restores those of the owner's permissions in `mode` that the umask took from a new file of this user's. A failure is
 * ignored here: it shows when another process opens the file. */
static void give_rights(int file, mode_t mode) {
    struct stat status;

    mode &= S_IRWXU;
    if (fstat(file, &status) == 0 && status.st_uid == geteuid() && status.st_size == 0 &&
        (status.st_mode & mode) != mode)
        (void)fchmod(file, (status.st_mode & 07777) | mode);
}

int smelt__file_open_to_write(int folder, const char *name, int flags, mode_t mode) {
    int file = openat(folder, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, mode);
    int moved, error;

    if (file >= 0 && flags & O_CREAT)
        give_rights(file, mode);
    if (file < 0 || file > STDERR_FILENO)
        return file;
    moved = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    error = errno;
    close(file);
    errno = error;
    return moved;
}

int smelt__write_once(int file, const void *bytes, size_t count) {
    const ssize_t put = write_quietly(file, bytes, count);

    if (put >= 0 && (size_t)put < count)
        errno = EIO;
    return put >= 0 && (size_t)put == count ? 0 : -1;
}

int smelt__write_fully(int file, const void *from, size_t count) {
    const unsigned char *bytes = from;

    while (count > 0) {
        ssize_t put = write_quietly(file, bytes, count);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            if (put == 0)
                errno = EIO;
            return -1;
        }
        bytes += put;
        count -= (size_t)put;
    }
    return 0;
}
