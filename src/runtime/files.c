/*
 * Folders that are trusted, and bytes into and out of files.
 *
 * What is trusted. A cubin runs with the user's rights over the user's data, so:
 *   - the writable layer's folders and entries belong to us or to root. Its folders may be writable
 *     by others only under the sticky bit, which keeps others from renaming what is ours; entries
 *     are writable by nobody else, not even a group;
 *   - the read-only layer is trusted because the user named it, whoever owns it, but nothing in it
 *     may be writable by just anyone, sticky or not: what others can add there would be run;
 *   - a folder may be reached through a symbolic link only where nobody else could have put it: the
 *     link is ours or root's and its parent is not writable by others. Below the folder no link is
 *     ever followed.
 *
 * A process may have a limit on the size of files (RLIMIT_FSIZE). To write past it is an error like
 * any other for us, but the system also sends SIGXFSZ, which by default ends the process: no
 * library may do that to the program it serves. So every write of the library goes through
 * write_quietly.
 */
#include "runtime/files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool smelt__is_ours(const struct stat *status) {
    return status->st_uid == geteuid() || status->st_uid == 0;
}

/* ---- folders ------------------------------------------------------------------------------- */

int smelt__folder_make(const char *path) {
    char *copy = strdup(path);
    int error = 0;

    if (!copy)
        return -1;
    for (char *at = copy + 1; error == 0; at++) {
        char end = *at;
        if (end != '/' && end != '\0')
            continue;
        *at = '\0';
        if (mkdir(copy, 0700) != 0)
            error = errno;
        /* EACCES, EROFS and the like do not matter where the folder exists all the same. */
        if (error != 0 && access(copy, F_OK) == 0)
            error = 0;
        if (end == '\0')
            break;
        *at = end;
    }
    free(copy);
    errno = error;
    return error ? -1 : 0;
}

/* Whether the symbolic link at `path` may be followed. */
static bool link_is_trusted(const char *path) {
    struct stat link, parent;
    char *copy = strdup(path), *slash;
    bool trusted = false;

    if (!copy)
        return false;
    slash = strrchr(copy, '/');
    if (slash) {
        slash[slash == copy ? 1 : 0] = '\0';
        trusted = lstat(path, &link) == 0 && smelt__is_ours(&link) && stat(copy, &parent) == 0 &&
                  (parent.st_mode & S_IWOTH) == 0;
    }
    free(copy);
    return trusted;
}

const char *smelt__folder_fault(const struct stat *status, bool readonly) {
    bool open_to_all = (status->st_mode & S_IWOTH) != 0;

    if (readonly)
        return open_to_all ? "is writable by everyone" : NULL;
    if (!smelt__is_ours(status))
        return "belongs to another user";
    if (open_to_all && (status->st_mode & S_ISVTX) == 0)
        return "is writable by everyone (chmod o-w would do)";
    return NULL;
}

int smelt__folder_open(const char *path, bool readonly, char *why, size_t why_bytes) {
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK;
    struct stat status;
    const char *fault;
    int folder = open(path, flags | O_NOFOLLOW);

    snprintf(why, why_bytes, "%s", "");
    /* O_DIRECTORY on a link itself says ENOTDIR, or ELOOP. */
    if (folder < 0 && (errno == ELOOP || errno == ENOTDIR)) {
        if (lstat(path, &status) == 0 && S_ISLNK(status.st_mode)) {
            if (!readonly && !link_is_trusted(path)) {
                snprintf(why, why_bytes,
                         "%s is a symbolic link that somebody else may have put there", path);
                errno = ELOOP;
                return -1;
            }
            folder = open(path, flags);
        } else {
            errno = ENOTDIR;
        }
    }
    if (folder < 0) {
        if (errno != ENOENT)
            snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
        return -1;
    }
    fault = fstat(folder, &status) == 0 ? smelt__folder_fault(&status, readonly) : strerror(errno);
    if (fault) {
        snprintf(why, why_bytes, "%s %s", path, fault);
        close(folder);
        errno = EPERM;
        return -1;
    }
    return folder;
}

/* ---- bytes --------------------------------------------------------------------------------- */

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

/* write(2) without SIGXFSZ. The signal goes to the thread that writes: it is held back meanwhile
 * and taken away if it came, but for one that was waiting before, which is the program's own. */
static ssize_t write_quietly(int file, const void *bytes, size_t count) {
    const struct timespec at_once = {0};
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
        while (sigtimedwait(&limit, NULL, &at_once) < 0 && errno == EINTR)
            continue;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return put;
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
