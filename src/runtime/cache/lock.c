/*
 * The lock of one kernel: an open-file-description lock on one byte, at a hash of the key, of a
 * lock file that is never unlinked. It only saves work. The operating system releases it when its
 * holder dies. A process that cannot get it in time, or whose file system has no locks, compiles
 * anyway.
 *
 * Scope. `local` is one compilation per node: /tmp/smelt-<uid>/lock, if that folder is ours with
 * mode 0700, else the cache folder. (XDG_RUNTIME_DIR is not used because some of a user's batch
 * jobs on a node see it and others do not; they would not see each other's locks.) `shared` is the
 * lock file in the cache folder.
 *
 * Forks. Such locks belong to the open file, so a forked child would keep its parent's locks alive.
 * A table therefore lists every lock's descriptor from before it is opened until it is closed, and
 * the child closes all of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cache/internal.h"

/* ---- the table of descriptors -------------------------------------------------------------- */

/* More threads than this compile without a lock. Entries are descriptor + 1, so that 0 is free. */
enum { TABLE_ENTRIES = 256 };
static int table[TABLE_ENTRIES];
static pthread_mutex_t table_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;
static int table_error;

static void before_fork(void) {
    pthread_mutex_lock(&table_mutex);
}

static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&table_mutex);
}

static void after_fork_in_child(void) {
    for (int i = 0; i < TABLE_ENTRIES; i++) {
        if (table[i] != 0)
            close(table[i] - 1);
        table[i] = 0;
    }
    pthread_mutex_unlock(&table_mutex);
}

static void table_prepare(void) {
    table_error = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static int table_find(int value) {
    for (int i = 0; i < TABLE_ENTRIES; i++)
        if (table[i] == value)
            return i;
    return -1;
}

/* Opens the lock file in a folder. -1 with errno. */
static int table_open(int folder) {
    struct stat status;
    int file = -1, slot;

    pthread_once(&table_once, table_prepare);
    if (table_error) {
        errno = table_error;
        return -1;
    }
    pthread_mutex_lock(&table_mutex);
    slot = table_find(0);
    if (slot < 0)
        errno = ENOLCK;
    else
        file = smelt__file_open_to_write(folder, "lock", O_RDWR | O_CREAT, 0600);
    if (file >= 0 && (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) ||
                      (status.st_uid != geteuid() && status.st_uid != 0))) {
        close(file);
        file = -1;
        errno = ENOLCK;
    }
    if (file >= 0)
        table[slot] = file + 1;
    pthread_mutex_unlock(&table_mutex);
    return file;
}

void smelt__cache_lock_release(int fd) {
    int slot;

    if (fd < 0)
        return;
    pthread_mutex_lock(&table_mutex);
    slot = table_find(fd + 1);
    /* Not in the table: this is a forked child, whose descriptor may be another file by now. */
    if (slot >= 0) {
        table[slot] = 0;
        close(fd);
    }
    pthread_mutex_unlock(&table_mutex);
}

/* ---- the lock file and its bytes ----------------------------------------------------------- */

/* The node's lock folder if only this user can access it; else -1. */
static int node_folder_open(void) {
    char path[64];
    struct stat status;
    int folder;

    snprintf(path, sizeof path, "/tmp/smelt-%lu", (unsigned long)geteuid());
    if (smelt__folder_create(AT_FDCWD, path) != 0)
        return -1;
    folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (folder < 0)
        return -1;
    if (fstat(folder, &status) != 0 || status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
        close(folder);
        return -1;
    }
    return folder;
}

/* Hashed to the lock's byte. The cache folder is included: several caches share the node's file. */
struct lock_subject {
    uint64_t device, inode;
    char name[SMELT__FILE_NAME_BYTES];
};

int smelt__lock_file_open(struct smelt__cache *cache, const char *name, off_t *offset) {
    char why[512];
    struct stat status;
    struct lock_subject subject;
    int file = -1, error, node = -1;
    int folder = smelt__folder_open(cache->folder, false, why, sizeof why);

    if (folder < 0)
        return -1;
    if (fstat(folder, &status) != 0)
        goto out;
    memset(&subject, 0, sizeof subject);
    subject.device = status.st_dev;
    subject.inode = status.st_ino;
    snprintf(subject.name, sizeof subject.name, "%s", name);
    *offset = (off_t)(smelt__cache_hash(&subject, sizeof subject) & INT64_C(0x3fffffffffffffff));

    if (cache->lock_mode != SMELT_CACHE_LOCK_SHARED)
        node = node_folder_open();
    if (node >= 0)
        file = table_open(node);
    if (file < 0)
        file = table_open(folder);
out:
    error = errno;
    if (node >= 0)
        close(node);
    close(folder);
    errno = error;
    return file;
}

int smelt__lock_byte(int file, off_t offset) {
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = offset, .l_len = 1};

    while (fcntl(file, F_OFD_SETLK, &range) != 0) {
        if (errno == EINTR)
            continue;
        return errno == EAGAIN || errno == EACCES ? 0 : -1;
    }
    return 1;
}

void smelt__lock_warn(struct smelt__cache *cache) {
    smelt__cache_warn_once(
        cache, SMELT__WARNED_LOCK,
        "cache: no locks in %s (%s); processes may compile the same kernel twice", cache->folder,
        strerror(errno));
}

int smelt__cache_evictor_lock(struct smelt__cache *cache, int *fd) {
    off_t offset;
    int got;

    *fd = -1;
    if (cache->lock_mode == SMELT_CACHE_LOCK_OFF)
        return 1;
    *fd = smelt__lock_file_open(cache, "evictor", &offset);
    got = *fd < 0 ? -1 : smelt__lock_byte(*fd, offset);
    if (got > 0)
        return 1;
    if (got < 0)
        smelt__lock_warn(cache);
    smelt__cache_lock_release(*fd);
    *fd = -1;
    return got < 0;
}
