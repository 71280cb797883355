/* See shim.h. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_ALLOCATOR 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_ALLOCATOR 1
#endif
#endif

static struct shim_order order;
static atomic_long counted;
static _Atomic(const char *) first_failed;

/* ---- files on their way to a name ------------------------------------------------------------ */

enum { WATCHED = 64, WATCHED_NAME = 96 };

/* The last created files; steps that create files have one thread. */
static struct watched {
    char name[WATCHED_NAME]; /* without its folder */
    int file;                /* -1: closed */
    bool unsynced;
} watched[WATCHED];
static int watched_next;
static struct shim_renames renames;

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void watch_open(int file, const char *path, int flags) {
    if (file < 0 || !(flags & O_CREAT))
        return;
    struct watched *watch = &watched[watched_next++ % WATCHED];
    snprintf(watch->name, sizeof watch->name, "%.95s", base_name(path));
    watch->file = file;
    watch->unsynced = false;
}

static struct watched *watched_file(int file) {
    for (int i = 0; i < WATCHED; i++)
        if (watched[i].name[0] && watched[i].file == file)
            return &watched[i];
    return NULL;
}

static void watch_write(int file, ssize_t put) {
    struct watched *watch = put > 0 ? watched_file(file) : NULL;
    if (watch)
        watch->unsynced = true;
}

static void watch_sync(int file) {
    struct watched *watch = watched_file(file);
    if (watch)
        watch->unsynced = false;
}

static void watch_close(int file) {
    struct watched *watch = watched_file(file);
    if (watch)
        watch->file = -1;
}

static void watch_rename(const char *path) {
    for (int i = 0; i < WATCHED; i++)
        if (strcmp(watched[i].name, base_name(path)) == 0) {
            renames.files++;
            renames.unfinished += watched[i].unsynced || watched[i].file >= 0;
            watched[i].name[0] = '\0';
        }
}

struct shim_renames shim_renames(void) {
    return renames;
}

void shim_begin(const struct shim_order *wanted) {
    order = *wanted;
    memset(&renames, 0, sizeof renames);
    atomic_store(&counted, 0);
    atomic_store(&first_failed, "");
}

long shim_end(const char **failed) {
    order.target = SHIM_NOTHING;
    if (failed)
        *failed = atomic_load(&first_failed);
    return atomic_load(&counted);
}

/* Whether this call must fail. */
static bool fails(enum shim_target target, const char *name) {
    const char *none = "";
    if (order.target != target)
        return false;
    long number = atomic_fetch_add(&counted, 1) + 1;
    if (order.first == 0 || number < order.first || number > order.last)
        return false;
    atomic_compare_exchange_strong(&first_failed, &none, name);
    return true;
}

/* Whether this call must fail with an error; orders for partial work do not apply. */
static bool fails_with_error(const char *name) {
    if (!fails(SHIM_CALLS, name) || order.error == SHIM_SHORT)
        return false;
    errno = order.error;
    return true;
}

/* `next`: the C library's function, by the name its callers are compiled to: with 64-bit offsets
 * open64 for open. */
#define NEXT(result, parameters, symbol)                                                           \
    static result(*next) parameters;                                                               \
    if (!next) {                                                                                   \
        void *found = dlsym(RTLD_NEXT, symbol);                                                    \
        memcpy(&next, &found, sizeof found);                                                       \
    }

/* ---- files ---------------------------------------------------------------------------------- */

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    NEXT(int, (const char *, int, ...), "open64")
    int file = fails_with_error("open") ? -1 : next(path, flags, mode);
    watch_open(file, path, flags);
    return file;
}

int openat(int folder, const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    NEXT(int, (int, const char *, int, ...), "openat64")
    int file = fails_with_error("openat") ? -1 : next(folder, path, flags, mode);
    watch_open(file, path, flags);
    return file;
}

/* The descriptor is closed whatever close returns. */
int close(int file) {
    NEXT(int, (int), "close")
    watch_close(file);
    if (!fails_with_error("close"))
        return next(file);
    next(file);
    errno = order.error;
    return -1;
}

/* How many of `count` bytes a read or write processes: all, a part (not 0, which would mean the
 * end), or -1. */
static ssize_t granted(const char *name, size_t count) {
    if (!fails(SHIM_CALLS, name))
        return (ssize_t)count;
    if (order.error == SHIM_SHORT)
        return (ssize_t)(count > 1 ? count / 2 : count);
    errno = order.error;
    return -1;
}

ssize_t read(int file, void *bytes, size_t count) {
    NEXT(ssize_t, (int, void *, size_t), "read")
    ssize_t part = granted("read", count);
    return part < 0 ? -1 : next(file, bytes, (size_t)part);
}

ssize_t pread(int file, void *bytes, size_t count, off_t offset) {
    NEXT(ssize_t, (int, void *, size_t, off_t), "pread64")
    ssize_t part = granted("pread", count);
    return part < 0 ? -1 : next(file, bytes, (size_t)part, offset);
}

ssize_t write(int file, const void *bytes, size_t count) {
    NEXT(ssize_t, (int, const void *, size_t), "write")
    ssize_t part = granted("write", count);
    ssize_t put = part < 0 ? -1 : next(file, bytes, (size_t)part);
    watch_write(file, put);
    return put;
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) {
    NEXT(ssize_t, (int, const void *, size_t, off_t), "pwrite64")
    ssize_t part = granted("pwrite", count);
    ssize_t put = part < 0 ? -1 : next(file, bytes, (size_t)part, offset);
    watch_write(file, put);
    return put;
}

off_t lseek(int file, off_t offset, int from) {
    NEXT(off_t, (int, off_t, int), "lseek64")
    return fails_with_error("lseek") ? -1 : next(file, offset, from);
}

ssize_t getrandom(void *bytes, size_t count, unsigned flags) {
    NEXT(ssize_t, (void *, size_t, unsigned), "getrandom")
    ssize_t part = granted("getrandom", count);
    return part < 0 ? -1 : next(bytes, (size_t)part, flags);
}

int fcntl(int file, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    NEXT(int, (int, int, ...), "fcntl64")
    return fails_with_error("fcntl") ? -1 : next(file, command, argument);
}

/* ---- calls that do or do not happen ---------------------------------------------------------- */

/* clang-format off */
#define PASS(name, symbol, parameters, arguments)                                                  \
    int name parameters {                                                                          \
        NEXT(int, parameters, symbol)                                                           \
        return fails_with_error(#name) ? -1 : next arguments;                                      \
    }
/* clang-format on */

PASS(ftruncate, "ftruncate64", (int file, off_t length), (file, length))
PASS(fstat, "fstat64", (int file, struct stat *status), (file, status))
PASS(stat, "stat64", (const char *path, struct stat *status), (path, status))
PASS(lstat, "lstat64", (const char *path, struct stat *status), (path, status))
PASS(fstatat, "fstatat64", (int folder, const char *path, struct stat *status, int flags),
     (folder, path, status, flags))
PASS(access, "access", (const char *path, int mode), (path, mode))
PASS(faccessat, "faccessat", (int folder, const char *path, int mode, int flags),
     (folder, path, mode, flags))
PASS(mkdir, "mkdir", (const char *path, mode_t mode), (path, mode))
PASS(mkdirat, "mkdirat", (int folder, const char *path, mode_t mode), (folder, path, mode))
PASS(unlinkat, "unlinkat", (int folder, const char *path, int flags), (folder, path, flags))
PASS(futimens, "futimens", (int file, const struct timespec times[2]), (file, times))
PASS(utimensat, "utimensat",
     (int folder, const char *path, const struct timespec times[2], int flags),
     (folder, path, times, flags))

int fsync(int file) {
    NEXT(int, (int), "fsync")
    int result = fails_with_error("fsync") ? -1 : next(file);
    if (result == 0)
        watch_sync(file);
    return result;
}

int rename(const char *from, const char *to) {
    NEXT(int, (const char *, const char *), "rename")
    int result = fails_with_error("rename") ? -1 : next(from, to);
    if (result == 0)
        watch_rename(from);
    return result;
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    NEXT(int, (int, const char *, int, const char *), "renameat")
    int result = fails_with_error("renameat") ? -1 : next(from_folder, from, to_folder, to);
    if (result == 0)
        watch_rename(from);
    return result;
}

DIR *fdopendir(int folder) {
    NEXT(DIR *, (int), "fdopendir")
    return fails_with_error("fdopendir") ? NULL : next(folder);
}

struct dirent *readdir(DIR *names) {
    NEXT(struct dirent *, (DIR *), "readdir64")
    return fails_with_error("readdir") ? NULL : next(names);
}

/* ---- memory --------------------------------------------------------------------------------- */

static atomic_long live;

long shim_live_allocations(void) {
    return atomic_load(&live);
}

#ifdef OWN_ALLOCATOR

bool shim_has_memory(void) {
    return false;
}

#else

bool shim_has_memory(void) {
    return true;
}

/* glibc's names of these functions, since dlsym would allocate and recurse. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void __libc_free(void *memory);

static void *note(void *memory) {
    if (memory)
        atomic_fetch_add(&live, 1);
    return memory;
}

static bool is_out_of_memory(const char *name) {
    if (!fails(SHIM_MEMORY, name))
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) {
    return is_out_of_memory("malloc") ? NULL : note(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes) {
    return is_out_of_memory("calloc") ? NULL : note(__libc_calloc(count, bytes));
}

void *realloc(void *old, size_t bytes) {
    if (is_out_of_memory("realloc"))
        return NULL;
    void *memory = __libc_realloc(old, bytes);
    if (!old)
        note(memory);
    else if (!memory && bytes == 0)
        atomic_fetch_sub(&live, 1);
    return memory;
}

void *reallocarray(void *old, size_t count, size_t bytes) {
    if (bytes && count > SIZE_MAX / bytes) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(old, count * bytes);
}

void free(void *memory) {
    if (memory)
        atomic_fetch_sub(&live, 1);
    __libc_free(memory);
}

#endif
