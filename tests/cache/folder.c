/* Folders and files that the cache trusts or bypasses. */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1000, NOBODY = 65534 };

/* ---- the folder ---------------------------------------------------------------------------- */

static mode_t mode_of(const char *path) {
    struct stat status;
    assert_int_equal(lstat(path, &status), 0);
    return status.st_mode & 07777;
}

SCRATCH_TEST(test_folder_is_private) {
    char deep[PATH_BYTES], path[PATH_BYTES];
    struct smelt__cache *cache;
    umask(022);
    snprintf(deep, sizeof deep, "%.300s/a//b/cache/", scratch->folder);
    scratch->settings.folder = deep;
    cache = cache_begin(scratch);
    assert_string_equal(smelt__cache_problem(cache), "");
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    snprintf(path, sizeof path, "%.300s/a", scratch->folder);
    assert_int_equal(mode_of(path), 0700);
    assert_int_equal(mode_of(deep), 0700);
    subfolder_path(deep, 1, path);
    assert_int_equal(mode_of(path), 0700);
    entry_path(deep, 1, &compiler_new, path);
    assert_int_equal(mode_of(path), 0600);
    assert_int_equal(count_files(deep, ".tmp-"), 0);
}

/* There is one warning, however often the cache is used; no call fails or blocks. */
static void expect_bypassed(struct scratch *scratch, const char *problem) {
    struct smelt__cache_key key = key_number(1);
    struct smelt__cache_lock lock;
    struct smelt__compiled compiled;
    scratch->warnings = 0;
    struct smelt__cache *cache = cache_begin(scratch);
    assert_non_null(strstr(smelt__cache_problem(cache), problem));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 0);
        assert_int_equal(smelt__cache_lock(cache, &key, &compiler_new, true, &lock, &compiled), 0);
        assert_int_equal(lock.fd, -1);
        assert_int_equal(store(cache, 1, &compiler_new, BYTES), -1);
        smelt__cache_unlock(cache, &lock);
    }
    const smelt_cache_stats stats = stats_of(cache);
    assert_non_null(strstr(stats.problem, problem));
    assert_int_equal(smelt__cache_clear(cache, NULL), SMELT_ERROR_CACHE);
    assert_int_equal(scratch->warnings, 1);
    assert_non_null(strstr(scratch->last_warning, problem));
}

SCRATCH_TEST(test_no_home) {
    scratch->settings.folder = "";
    expect_bypassed(scratch, "HOME");
}

SCRATCH_TEST(test_folder_is_a_file) {
    char below[PATH_BYTES];
    write_file(scratch->cache, "x", 1);
    expect_bypassed(scratch, "Not a directory");
    snprintf(below, sizeof below, "%.400s/below", scratch->cache);
    scratch->settings.folder = below;
    expect_bypassed(scratch, "Not a directory");
    alarm(20); /* a FIFO that blocks must not hang the run */
    snprintf(below, sizeof below, "%.400s.fifo", scratch->cache);
    assert_int_equal(mkfifo(below, 0600), 0);
    expect_bypassed(scratch, "Not a directory");
    alarm(0);
}

SCRATCH_TEST(test_folder_writable_by_all) {
    struct smelt__cache *cache;
    assert_int_equal(mkdir(scratch->cache, 0700), 0);
    assert_int_equal(chmod(scratch->cache, 0777), 0);
    expect_bypassed(scratch, "writable by everyone");

    assert_int_equal(chmod(scratch->cache, 01777), 0);
    cache = cache_begin(scratch);
    assert_string_equal(smelt__cache_problem(cache), "");
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
}

SCRATCH_TEST(test_folder_of_another) {
    if (geteuid() != 0) {
        print_message("needs root to give a folder away\n");
        skip();
    }
    assert_int_equal(mkdir(scratch->cache, 0755), 0);
    assert_int_equal(chown(scratch->cache, NOBODY, NOBODY), 0);
    expect_bypassed(scratch, "another user");
}

SCRATCH_TEST(test_folder_is_a_link) {
    char real[PATH_BYTES], trailing[PATH_BYTES];
    struct smelt__cache *cache;
    snprintf(real, sizeof real, "%.300s/real", scratch->folder);
    assert_int_equal(mkdir(real, 0700), 0);
    assert_int_equal(symlink(real, scratch->cache), 0);
    cache = cache_begin(scratch); /* our link in our folder */
    assert_string_equal(smelt__cache_problem(cache), "");
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
    cache_end(scratch);

    assert_int_equal(chmod(scratch->folder, 01777), 0); /* a shared folder, like /tmp */
    expect_bypassed(scratch, "symbolic link");
    snprintf(trailing, sizeof trailing, "%.400s//", scratch->cache);
    scratch->settings.folder = trailing;
    expect_bypassed(scratch, "symbolic link");
}

CACHE_TEST(test_folder_vanishes) {
    char aside[PATH_BYTES];
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    snprintf(aside, sizeof aside, "%.300s/aside", scratch->folder);
    assert_int_equal(rename(scratch->cache, aside), 0);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 0);
    const smelt_cache_stats stats = stats_of(cache);
    assert_int_equal(stats.entries, 0);
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
    assert_int_equal(scratch->warnings, 0);
}

SCRATCH_TEST(test_relative_folder) {
    int before = open(".", O_RDONLY | O_DIRECTORY);
    struct smelt__cache *cache;
    assert_int_equal(chdir(scratch->folder), 0);
    scratch->settings.folder = "cache";
    cache = cache_begin(scratch);
    assert_int_equal(fchdir(before), 0);
    close(before);
    assert_string_equal(smelt__cache_folder(cache), scratch->cache);
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    assert_int_equal(count_files(scratch->cache, ".smelt"), 1);
}

/* ---- in place of an entry ------------------------------------------------------------------ */

static void make_link(const char *path) {
    char target[PATH_BYTES];

    /* The link names a valid entry, so that only the link can be refused. */
    snprintf(target, sizeof target, "%.400s.aside", path);
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink(target, path), 0);
}

static void make_fifo(const char *path) {
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void make_folder(const char *path) {
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void make_socket(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int file = socket(AF_UNIX, SOCK_STREAM, 0), before = open(".", O_RDONLY | O_DIRECTORY);
    char folder[PATH_BYTES], *slash;

    /* The path is longer than a socket's may be. */
    snprintf(folder, sizeof folder, "%s", path);
    slash = strrchr(folder, '/');
    *slash = '\0';
    assert_int_equal(unlink(path), 0);
    assert_int_equal(chdir(folder), 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", slash + 1);
    assert_int_equal(bind(file, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(fchdir(before), 0);
    close(before);
    close(file);
}

static void make_writable_by_all(const char *path) {
    assert_int_equal(chmod(path, 0666), 0);
}

static void make_writable_by_group(const char *path) {
    assert_int_equal(chmod(path, 0660), 0);
}

static void make_empty(const char *path) {
    assert_int_equal(truncate(path, 0), 0);
}

static void make_anothers(const char *path) {
    if (geteuid() == 0)
        assert_int_equal(chown(path, NOBODY, NOBODY), 0);
    else
        make_empty(path); /* only root can give files away */
}

CACHE_TEST(test_in_place_of_an_entry) {
    static void (*const make[])(const char *) = {make_link,
                                                 make_fifo,
                                                 make_folder,
                                                 make_socket,
                                                 make_writable_by_all,
                                                 make_anothers,
                                                 make_writable_by_group,
                                                 make_empty};
    struct smelt__cache_key key = key_number(1);
    uint64_t sound, removed;
    char path[PATH_BYTES];
    alarm(20); /* a FIFO that blocks must not hang the run */
    entry_path(scratch->cache, 1, &compiler_new, path);
    for (uint64_t i = 0; i < sizeof make / sizeof make[0]; i++) {
        for (int heal = 0; heal < 2; heal++) {
            assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
            make[i](path);
            assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 0);
            assert_int_equal(smelt__cache_counts(cache).errors, 2 * i + (uint64_t)heal + 1);
            if (heal) {
                assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
                assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
            } else {
                assert_int_equal(smelt__cache_verify(cache, &sound, &removed), SMELT_OK);
                assert_int_equal(sound, 0);
                assert_int_equal(removed, 1);
            }
        }
    }
    smelt__cache_forget(cache, &key, &compiler_new);
    alarm(0);
}

/* A folder that is not empty is not removed. */
CACHE_TEST(test_full_folder_in_place_of_an_entry) {
    char path[PATH_BYTES], inside[PATH_BYTES];
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    make_folder(path);
    snprintf(inside, sizeof inside, "%.480s/precious", path);
    write_file(inside, "x", 1);
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), -1);
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), -1);
    assert_int_equal(scratch->warnings, 1);
    assert_int_equal(access(inside, F_OK), 0);
    assert_int_equal(count_files(scratch->cache, ".tmp-"), 0);
}

CACHE_TEST(test_subfolder_is_not_ours) {
    char path[PATH_BYTES], real[PATH_BYTES];
    snprintf(real, sizeof real, "%.300s/real", scratch->folder);
    subfolder_path(scratch->cache, 1, path);
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    assert_int_equal(rename(path, real), 0);
    assert_int_equal(symlink(real, path), 0);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 0);
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), -1);
    assert_int_equal(smelt__cache_clear(cache, NULL), SMELT_OK);
    assert_int_equal(count_files(real, ".smelt"), 1);
}

SCRATCH_TEST(test_readonly_layer_is_checked) {
    char path[PATH_BYTES];
    scratch->settings.folder = scratch->readonly;
    struct smelt__cache *cache = cache_begin(scratch);
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);

    scratch->settings.folder = scratch->cache;
    scratch->settings.readonly_folder = scratch->readonly;
    cache = cache_begin(scratch);
    entry_path(scratch->readonly, 1, &compiler_new, path);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
    assert_int_equal(chmod(path, 0664), 0); /* a group's shared cache */
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, NOBODY, NOBODY), 0);
        assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 1);
    }
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 0);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(scratch->warnings, 1);

    assert_int_equal(chmod(scratch->readonly, 01777), 0);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 0);
    assert_int_equal(hits(cache, 1, &compiler_new, BYTES), 0);
    assert_int_equal(scratch->warnings, 2);
    assert_non_null(strstr(scratch->last_warning, "writable by everyone"));
}

/* ---- what the system refuses --------------------------------------------------------------- */

/* Runs `body` in a child, as the user nobody if the test runs as root, who may access everything.
 * `body` returns 0 for success, since cmocka's assertions work in the parent only. */
static void in_child(struct scratch *scratch, int (*body)(struct scratch *)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(body(scratch));
    assert_int_equal(exit_status(child), 0);
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static int use_readonly_folder(struct scratch *scratch) {
    if (geteuid() == 0) {
        CHECK(chmod(scratch->folder, 0755) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    }
    struct smelt__cache *cache = smelt__cache_open(&scratch->settings, &scratch->log);
    CHECK(cache && smelt__cache_problem(cache)[0] == '\0');
    CHECK(hits(cache, 1, &compiler_new, BYTES) == 1); /* existing entries are still used */
    CHECK(store(cache, 2, &compiler_new, BYTES) == -1);
    CHECK(store(cache, 2, &compiler_new, BYTES) == -1);
    CHECK(hits(cache, 2, &compiler_new, BYTES) == 0);
    CHECK(scratch->warnings == 1);
    smelt__cache_close(cache);
    return 0;
}

CACHE_TEST(test_readonly_folder) {
    char path[PATH_BYTES];
    assert_int_equal(store(cache, 1, &compiler_new, BYTES), 0);
    cache_end(scratch);
    subfolder_path(scratch->cache, 1, path);
    assert_int_equal(chmod(path, 0555), 0);
    assert_int_equal(chmod(scratch->cache, 0555), 0);
    entry_path(scratch->cache, 1, &compiler_new, path);
    assert_int_equal(chmod(path, 0444), 0);
    in_child(scratch, use_readonly_folder); /* the user nobody trusts root's folder */
    assert_int_equal(chmod(scratch->cache, 0700), 0);
    subfolder_path(scratch->cache, 1, path);
    assert_int_equal(chmod(path, 0700), 0);
}

/* A relative path in a working directory that was removed. */
static int use_removed_directory(struct scratch *scratch) {
    char gone[PATH_BYTES];
    snprintf(gone, sizeof gone, "%.400s/gone", scratch->folder);
    CHECK(mkdir(gone, 0700) == 0 && chdir(gone) == 0 && rmdir(gone) == 0);
    scratch->settings.folder = "relative";
    scratch->settings.readonly_folder = "relative";
    struct smelt__cache *cache = smelt__cache_open(&scratch->settings, &scratch->log);
    CHECK(cache && strstr(smelt__cache_problem(cache), "relative: the working directory"));
    CHECK(scratch->warnings == 1 && strstr(scratch->last_warning, "name an absolute path"));
    CHECK(store(cache, 1, &compiler_new, BYTES) == -1);
    CHECK(hits(cache, 1, &compiler_new, BYTES) == 0);
    CHECK(stats_of(cache).readonly_problem[0] != '\0');
    smelt__cache_close(cache);
    scratch->settings.folder = scratch->cache;
    scratch->settings.readonly_folder = NULL;
    cache = smelt__cache_open(&scratch->settings, &scratch->log);
    CHECK(cache && store(cache, 1, &compiler_new, BYTES) == 0);
    smelt__cache_close(cache);
    return 0;
}

SCRATCH_TEST(test_removed_directory) {
    in_child(scratch, use_removed_directory);
}

/* In a program that closed its standard descriptors, files that the cache writes do not get their numbers. */
static int use_no_standard_descriptors(struct scratch *scratch) {
    struct smelt__cache_key key = key_number(2);
    char name[SMELT__FILE_NAME_BYTES];
    struct smelt__compiled compiled;
    struct smelt__cache_lock lock;
    struct smelt__cache *cache = smelt__cache_open(&scratch->settings, &scratch->log);
    CHECK(cache && store(cache, 1, &compiler_new, BYTES) == 0);
    const int folder = open(scratch->cache, O_RDONLY), messages = dup(STDERR_FILENO);
    for (int standard = 0; standard <= STDERR_FILENO; standard++)
        close(standard);
    const int held = !smelt__cache_lock(cache, &key, &compiler_new, true, &lock, &compiled);
    const int temporary = smelt__temporary_create(folder, name);
    const ssize_t printed = write(STDOUT_FILENO, "printed", 7) + write(STDERR_FILENO, "again", 5);
    const int flags = fcntl(temporary, F_GETFD);
    smelt__cache_unlock(cache, &lock);
    const int stored = store(cache, 3, &compiler_new, BYTES);
    for (int standard = 0; standard <= STDERR_FILENO; standard++)
        dup2(messages, standard);
    CHECK(held && temporary > STDERR_FILENO && flags == FD_CLOEXEC);
    CHECK(printed == -2 && stored == 0 && hits(cache, 3, &compiler_new, BYTES) == 1);
    smelt__cache_close(cache);
    return 0;
}

SCRATCH_TEST(test_no_standard_descriptors) {
    in_child(scratch, use_no_standard_descriptors);
}

/* With every number of free descriptors from none to enough: a miss or a hit. */
static int use_few_descriptors(struct scratch *scratch) {
    struct smelt__cache *cache = smelt__cache_open(&scratch->settings, &scratch->log);
    struct smelt__cache_key key = key_number(1);
    struct smelt__cache_lock lock;
    struct smelt__compiled compiled;
    int lowest = open(".", O_RDONLY), hit = 0, stored = -1;
    struct rlimit usual;
    CHECK(cache && store(cache, 1, &compiler_new, BYTES) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    struct rlimit limit = usual;
    close(lowest);
    for (int n = 0; n < 8; n++) {
        limit.rlim_cur = (rlim_t)(lowest + n);
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        hit = hits(cache, 1, &compiler_new, BYTES);
        if (smelt__cache_lock(cache, &key, &compiler_new, true, &lock, &compiled))
            free(compiled.cubin);
        smelt__cache_unlock(cache, &lock);
        stored = store(cache, 1, &compiler_new, BYTES);
    }
    CHECK(hit == 1 && stored == 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &usual) == 0); /* valgrind and sanitizers need some at exit */
    smelt__cache_close(cache);
    return 0;
}

SCRATCH_TEST(test_few_descriptors) {
    in_child(scratch, use_few_descriptors);
    /* valgrind lets the system create the file and then says that there was no descriptor. */
    if (!under_valgrind())
        assert_int_equal(count_files(scratch->cache, ".tmp-"), 0);
}

/* ---- maintenance ------------------------------------------------------- */

struct walk_seen {
    int calls, cached, failed, stop_after;
};

static int see_entry(void *user, const char *file, const smelt_kernel_info *info) {
    struct walk_seen *seen = user;
    struct smelt__cache_key key;
    char hex[33];
    int n;

    seen->calls++;
    assert_int_equal(info->size, sizeof *info);
    assert_int_equal(file[2], '/');
    if (info->state == SMELT_KERNEL_FAILED) {
        seen->failed++;
        assert_int_equal(info->status, SMELT_ERROR_CACHE);
        assert_non_null(strstr(info->error, "checksum"));
        assert_non_null(strstr(info->error, file));
    } else {
        assert_int_equal(sscanf(info->kernel, "kernel_%d", &n), 1);
        key = key_number(n);
        smelt__cache_key_hex(&key, hex);
        assert_string_equal(info->key, hex);
        assert_string_equal(info->arch, "sm_90a");
        assert_int_equal(info->registers, 168);
        assert_int_equal(info->cubin_bytes, BYTES);
        seen->cached++;
    }
    return seen->stop_after != 0 && seen->calls >= seen->stop_after;
}

static int says(const char *text) {
    return strstr(smelt_last_error(), text) != NULL;
}

/* A folder of the cache that cannot be read, then one in which nothing can be removed. */
static int maintain_unreadable(struct scratch *scratch) {
    char closed[PATH_BYTES], name[PATH_BYTES], file[PATH_BYTES];
    struct walk_seen seen = {0, 0, 0, 0};
    smelt_cache_transfer exported = SMELT_CACHE_TRANSFER_INIT;
    smelt_cache_pruned pruned = SMELT_CACHE_PRUNED_INIT;
    uint64_t sound, removed;

    if (geteuid() == 0)
        CHECK(chmod(scratch->folder, 01777) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    scratch->settings.cap_bytes = 3 * BYTES;
    struct smelt__cache *cache = smelt__cache_open(&scratch->settings, &scratch->log);
    CHECK(cache && store(cache, 1, &compiler_new, BYTES) == 0);
    subfolder_path(scratch->cache, 1, closed);
    snprintf(file, sizeof file, "%.400s/exported", scratch->folder);
    CHECK(chmod(closed, 0) == 0);
    CHECK(hits(cache, 1, &compiler_new, BYTES) == 0);
    CHECK(strstr(scratch->last_warning, "Permission denied"));
    CHECK(smelt__cache_verify(cache, &sound, &removed) == SMELT_ERROR_CACHE && says("Permission"));
    CHECK(smelt__cache_clear(cache, &removed) == SMELT_ERROR_CACHE && says(scratch->cache));
    CHECK(smelt__cache_walk(cache, NULL, see_entry, &seen) == SMELT_ERROR_CACHE);
    CHECK(smelt__cache_walk(cache, scratch->cache, see_entry, &seen) == SMELT_ERROR_CACHE);
    CHECK(smelt__cache_export(cache, file, "", 0, &exported) == SMELT_ERROR_CACHE);
    CHECK(access(file, F_OK) != 0);
    CHECK(smelt__cache_prune(cache, 0, 0, &pruned) == SMELT_ERROR_CACHE);
    /* Stores into other folders still evict. */
    for (int n = 2; n < 8; n++)
        CHECK(store(cache, n, &compiler_new, BYTES) == 0);
    CHECK(count_files(scratch->cache, ".smelt") < 6);

    CHECK(chmod(closed, 0500) == 0);
    entry_path(scratch->cache, 1, &compiler_new, name);
    CHECK(smelt__cache_prune(cache, 1, 0, &pruned) == SMELT_ERROR_CACHE && says("Permission"));
    CHECK(pruned.kept == 1 && access(name, F_OK) == 0);
    CHECK(smelt__cache_clear(cache, &removed) == SMELT_ERROR_CACHE);
    CHECK(says(strrchr(name, '/')) && says("Permission"));
    CHECK(truncate(name, 100) == 0);
    CHECK(smelt__cache_verify(cache, &sound, &removed) == SMELT_ERROR_CACHE);
    CHECK(says(strrchr(name, '/')) && removed == 0);
    CHECK(chmod(name, 0) == 0);
    CHECK(smelt__cache_verify(cache, &sound, &removed) == SMELT_ERROR_CACHE);
    CHECK(says(strrchr(name, '/')));
    CHECK(chmod(name, 0600) == 0 && chmod(closed, 0700) == 0);
    CHECK(smelt__cache_verify(cache, &sound, &removed) == SMELT_OK && removed == 1);
    smelt__cache_close(cache);
    return 0;
}

SCRATCH_TEST(test_unreadable_subfolder) {
    in_child(scratch, maintain_unreadable);
}

/* Two of 8 entries are in folders that cannot be read: each call processes the others, names both folders, and
 * fails. */
static int maintain_others(struct scratch *scratch) {
    enum { ENTRIES = 8, CLOSED = 2 };
    char closed[CLOSED][PATH_BYTES], other[PATH_BYTES], why[SMELT__CACHE_PROBLEM];
    struct walk_seen seen = {0, 0, 0, 0};
    smelt_cache_transfer imported = SMELT_CACHE_TRANSFER_INIT;
    smelt_cache_pruned pruned = SMELT_CACHE_PRUNED_INIT;
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    uint64_t sound, removed;
    char *tuning;
    size_t tuning_bytes;

    if (geteuid() == 0)
        CHECK(chmod(scratch->folder, 01777) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    struct smelt__cache *cache = smelt__cache_open(&scratch->settings, &scratch->log);
    for (int n = 1; n <= ENTRIES; n++)
        CHECK(cache && store(cache, n, &compiler_new, BYTES) == 0);
    for (int i = 0; i < CLOSED; i++) {
        subfolder_path(scratch->cache, 1 + i, closed[i]);
        CHECK(chmod(closed[i], 0) == 0);
    }
#define NAMES_BOTH (says(strrchr(closed[0], '/') + 1) && says(strrchr(closed[1], '/') + 1))
    CHECK(smelt__cache_stat(cache, why, &stats) == SMELT_ERROR_CACHE && NAMES_BOTH);
    CHECK(stats.entries == ENTRIES - CLOSED);
    CHECK(smelt__cache_walk(cache, NULL, see_entry, &seen) == SMELT_ERROR_CACHE && NAMES_BOTH);
    CHECK(seen.cached == ENTRIES - CLOSED);
    CHECK(smelt__cache_verify(cache, &sound, &removed) == SMELT_ERROR_CACHE && NAMES_BOTH);
    CHECK(sound == ENTRIES - CLOSED);
    snprintf(other, sizeof other, "%.400s/other", scratch->folder);
    scratch->settings.folder = other;
    struct smelt__cache *importer = smelt__cache_open(&scratch->settings, &scratch->log);
    CHECK(smelt__cache_import(importer, scratch->cache, &tuning, &tuning_bytes, &imported) ==
              SMELT_ERROR_CACHE &&
          NAMES_BOTH);
    CHECK(imported.entries == ENTRIES - CLOSED);
    smelt__cache_close(importer);
    CHECK(smelt__cache_prune(cache, 3 * (BYTES + 500), 0, &pruned) == SMELT_ERROR_CACHE &&
          NAMES_BOTH);
    CHECK(pruned.removed > 0 && pruned.kept > 0);
    CHECK(smelt__cache_clear(cache, &removed) == SMELT_ERROR_CACHE && NAMES_BOTH);
    CHECK(removed == pruned.kept && count_files(scratch->cache, ".smelt") == 0);
    for (int i = 0; i < CLOSED; i++)
        CHECK(chmod(closed[i], 0700) == 0);
    CHECK(smelt__cache_clear(cache, &removed) == SMELT_OK && removed == CLOSED);
    smelt__cache_close(cache);
    return 0;
}

SCRATCH_TEST(test_others_than_unreadable) {
    in_child(scratch, maintain_others);
}

/* Under a umask that takes permissions from the owner, folders and files are usable, also by another process. */
static int use_umask(struct scratch *scratch) {
    static const mode_t masks[] = {0777, 0700, 0400, 0200, 0100};
    char folder[PATH_BYTES], file[PATH_BYTES];

    if (geteuid() == 0)
        CHECK(chmod(scratch->folder, 01777) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        smelt_cache_transfer exported = SMELT_CACHE_TRANSFER_INIT;
        struct smelt__cache_key key = key_number(2);
        struct smelt__cache_lock lock;
        struct smelt__compiled compiled;
        struct stat status;
        snprintf(folder, sizeof folder, "%.300s/%zu/cache", scratch->folder, i);
        snprintf(file, sizeof file, "%.300s/%zu/exported", scratch->folder, i);
        scratch->settings.folder = folder;
        umask(masks[i]);
        for (int process = 0; process < 2; process++) {
            struct smelt__cache *cache = smelt__cache_open(&scratch->settings, &scratch->log);
            CHECK(cache && smelt__cache_problem(cache)[0] == '\0');
            CHECK(hits(cache, 1, &compiler_new, BYTES) == process);
            CHECK(!smelt__cache_lock(cache, &key, &compiler_new, true, &lock, &compiled));
            CHECK(lock.fd >= 0);
            smelt__cache_unlock(cache, &lock);
            CHECK(process == 1 || store(cache, 1, &compiler_new, BYTES) == 0);
            CHECK(smelt__cache_export(cache, file, "", 0, &exported) == SMELT_OK);
            CHECK(exported.entries == 1 && access(file, R_OK | W_OK) == 0);
            CHECK(process == 0 || stats_of(cache).hits == 1);
            smelt__cache_close(cache);
        }
        CHECK(stat(folder, &status) == 0 && (status.st_mode & 07777) == 0700);
        CHECK(scratch->warnings == 0);
    }
    return 0;
}

SCRATCH_TEST(test_umask) {
    in_child(scratch, use_umask);
}

CACHE_TEST(test_walk_verify_clear) {
    enum { ENTRIES = 20 };
    struct walk_seen seen = {0, 0, 0, 0};
    char path[PATH_BYTES], strange[PATH_BYTES];
    uint64_t sound, removed;
    size_t bytes;
    for (int n = 0; n < ENTRIES; n++)
        assert_int_equal(store(cache, n, &compiler_new, BYTES), 0);
    entry_path(scratch->cache, 7, &compiler_new, path);
    unsigned char *file = read_file(path, &bytes);
    file[700] ^= 1;
    write_file(path, file, bytes);
    free(file);
    subfolder_path(scratch->cache, 7, path);
    snprintf(strange, sizeof strange, "%.400s/notes.txt", path);
    write_file(strange, "mine", 4);

    assert_int_equal(smelt__cache_walk(cache, NULL, see_entry, &seen), SMELT_OK);
    assert_int_equal(seen.cached, ENTRIES - 1);
    assert_int_equal(seen.failed, 1);
    seen = (struct walk_seen){0, 0, 0, 3};
    assert_int_equal(smelt__cache_walk(cache, NULL, see_entry, &seen), SMELT_ERROR_CANCELLED);
    assert_int_equal(seen.calls, 3);
    assert_int_equal(smelt__cache_verify(cache, &sound, &removed), SMELT_OK);
    assert_int_equal(sound, ENTRIES - 1);
    assert_int_equal(removed, 1);
    assert_int_equal(smelt__cache_clear(cache, &removed), SMELT_OK);
    assert_int_equal(removed, ENTRIES - 1);
    assert_int_equal(count_files(scratch->cache, ".smelt"), 0);
    assert_int_equal(access(strange, F_OK), 0);
    assert_int_equal(smelt__cache_walk(cache, NULL, NULL, NULL), SMELT_ERROR_INVALID_ARGUMENT);
}

TESTS("cache folder")
