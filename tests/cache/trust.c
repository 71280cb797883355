/*
 * Tests which paths are trusted, by the rules in src/runtime/files.c. Gives each component of a path
 * in turn every owner and mode that might let another user interfere, and opens the path as root
 * and as another user. Needs root.
 */
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

enum { USER = 1234, STRANGER = 4321, LEVELS = 3, SKIPPED = 77 };

/* What can be opened along a path, as bits. */
enum {
    WRITABLE = 1,
    MAKES = 2,
    READONLY = 4,
    NAMED_FILE = 8,
    ALL = 15,
    NAMED = READONLY | NAMED_FILE
};

/* ---- one component ------------------------------------------------------------------------- */

static uid_t user; /* owner of the path, and the user who opens it */

static void own(const char *path, uid_t owner, gid_t group) {
    assert_int_equal(lchown(path, owner, group), 0);
}

static void mode(const char *path, mode_t bits) {
    assert_int_equal(chmod(path, bits), 0);
}

static void parent_of(const char *path, char parent[PATH_BYTES]) {
    snprintf(parent, PATH_BYTES, "%s", path);
    *strrchr(parent, '/') = '\0';
}

/* Replaces the folder by a link to it. */
static void link_to(const char *path, const char *target_prefix) {
    char aside[PATH_BYTES], target[PATH_BYTES];
    snprintf(aside, sizeof aside, "%.400s.aside", path);
    assert_int_equal(rename(path, aside), 0);
    snprintf(target, sizeof target, "%s%.300s", target_prefix,
             *target_prefix ? strrchr(aside, '/') + 1 : aside);
    assert_int_equal(symlink(target, path), 0);
    own(path, user, user);
}

static void nothing(const char *path) {
    (void)path;
}
static void anothers(const char *path) {
    own(path, STRANGER, STRANGER);
}
static void roots(const char *path) {
    own(path, 0, 0);
}
static void all_write(const char *path) {
    mode(path, 0777);
}
static void all_write_sticky(const char *path) {
    mode(path, 01777);
}
static void own_group_writes(const char *path) {
    mode(path, 0775);
}
static void foreign_group_writes(const char *path) {
    own(path, user, STRANGER);
    mode(path, 0775);
}
static void foreign_group_writes_sticky(const char *path) {
    own(path, user, STRANGER);
    mode(path, 01775);
}
static void own_link(const char *path) {
    link_to(path, "");
}
static void own_relative_link(const char *path) {
    link_to(path, "./");
}
static void anothers_link(const char *path) {
    link_to(path, "");
    own(path, STRANGER, STRANGER);
}
static void own_link_in_shared(const char *path) {
    char parent[PATH_BYTES];
    parent_of(path, parent);
    link_to(path, "");
    mode(parent, 01777);
}
static void anothers_link_in_shared(const char *path) {
    own_link_in_shared(path);
    own(path, STRANGER, STRANGER);
}
static void link_to_anothers(const char *path) {
    char aside[PATH_BYTES];
    link_to(path, "");
    snprintf(aside, sizeof aside, "%.400s.aside", path);
    own(aside, STRANGER, STRANGER);
}
static void link_in_foreign_group(const char *path) {
    char parent[PATH_BYTES];
    parent_of(path, parent);
    link_to(path, "");
    own(parent, user, STRANGER);
    mode(parent, 01775);
}
static void loop(const char *path) {
    char aside[PATH_BYTES];
    snprintf(aside, sizeof aside, "%.400s.aside", path);
    assert_int_equal(rename(path, aside), 0);
    assert_int_equal(symlink(path, path), 0);
}

/* What can still be opened with a component like this; `last`: for the last component, if
 * different. */
static const struct row {
    const char *name;
    void (*make)(const char *path);
    int on_the_way, last;
    const char *says; /* message for the writable layer if it is refused */
} rows[] = {
    {"nothing", nothing, ALL, ALL, ""},
    {"another's folder", anothers, NAMED, NAMED, "belongs to another user"},
    {"root's folder", roots, ALL, ALL, ""},
    {"all write", all_write, 0, 0, "is writable by everyone"},
    {"all write, sticky", all_write_sticky, ALL, ALL & ~READONLY, ""},
    {"our group writes", own_group_writes, ALL, ALL, ""},
    {"another group writes", foreign_group_writes, NAMED, NAMED, "is writable by a group"},
    {"another group writes, sticky", foreign_group_writes_sticky, ALL, ALL, ""},
    {"our link", own_link, ALL, ALL, ""},
    {"our relative link", own_relative_link, ALL, ALL, ""},
    {"another's link", anothers_link, NAMED, NAMED, "is a symbolic link"},
    {"our link where all write", own_link_in_shared, NAMED, NAMED, "is a symbolic link"},
    {"another's link where all write", anothers_link_in_shared, 0, 0, "is a symbolic link"},
    {"our link to another's folder", link_to_anothers, NAMED, NAMED, "belongs to another user"},
    {"our link where a group writes", link_in_foreign_group, NAMED, NAMED, "is a symbolic link"},
    {"links in a circle", loop, 0, 0, "Too many levels"},
};

/* ---- the whole path ------------------------------------------------------------------------ */

/* Runs in a child as the user; returns what could be opened, as bits, or -1 (255) for a wrong
 * message. */
static int open_all(const char *layer, const char *says) {
    char path[PATH_BYTES], why[512];
    int result = 0, file;

    if (user != 0 && (setgroups(0, NULL) != 0 || setgid(user) != 0 || setuid(user) != 0))
        return -1;
    if ((file = smelt__folder_open(layer, false, why, sizeof why)) >= 0)
        result |= WRITABLE;
    else if (!strstr(why, says) || !strstr(why, layer) || errno == 0)
        return -1;
    close(file);
    snprintf(path, sizeof path, "%.400s/new", layer);
    if ((file = smelt__folder_make(path, why, sizeof why)) >= 0)
        result |= MAKES;
    close(file);
    if ((file = smelt__folder_open(layer, true, why, sizeof why)) >= 0)
        result |= READONLY;
    close(file);
    snprintf(path, sizeof path, "%.400s/file", layer);
    if ((file = smelt__file_open(path, why, sizeof why)) >= 0)
        result |= NAMED_FILE;
    return result;
}

static int open_in_child(const char *layer, const char *says) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(open_all(layer, says));
    return exit_status(child);
}

/* BASE/a/b/c, and c/file; paths[i] is the path to level i. */
static void make_path(const char *base, char paths[LEVELS][PATH_BYTES]) {
    static const char *const names[LEVELS] = {"a", "b", "c"};
    char file[PATH_BYTES];
    assert_int_equal(mkdir(base, 0755), 0);
    own(base, user, user);
    for (int i = 0; i < LEVELS; i++) {
        snprintf(paths[i], PATH_BYTES, "%.400s/%s", i ? paths[i - 1] : base, names[i]);
        assert_int_equal(mkdir(paths[i], 0755), 0);
        own(paths[i], user, user);
    }
    snprintf(file, sizeof file, "%.400s/file", paths[LEVELS - 1]);
    write_file(file, "x", 1);
    own(file, user, user);
}

SCRATCH_TEST(test_every_component) {
    static const uid_t users[] = {0, USER};
    char base[PATH_BYTES], paths[LEVELS][PATH_BYTES], made[PATH_BYTES];
    int tries = 0;
    umask(022);
    mode(scratch->folder, 0755);
    for (size_t u = 0; u < sizeof users / sizeof *users; u++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (int level = 0; level < LEVELS; level++) {
                const struct row *row = &rows[r];
                int wanted = level == LEVELS - 1 ? row->last : row->on_the_way;
                user = users[u];
                snprintf(base, sizeof base, "%.300s/%d", scratch->folder, tries++);
                make_path(base, paths);
                row->make(paths[level]);
                /* The user can write nothing into root's folder. */
                if (user != 0 && row->make == roots && level == LEVELS - 1)
                    wanted &= ~MAKES;
                const int opened = open_in_child(paths[LEVELS - 1], row->says);
                if (opened != wanted)
                    fail_msg("uid %u, %s, level %d: opened %x, expected %x", (unsigned)user,
                             row->name, level, (unsigned)opened, (unsigned)wanted);
                snprintf(made, sizeof made, "%.400s/new", paths[LEVELS - 1]);
                assert_int_equal(access(made, F_OK) == 0, (wanted & MAKES) != 0);
            }
    print_message("%d paths\n", tries);
}

/* ---- what stands on it --------------------------------------------------------------------- */

/* A cache, an exported file, a read-only layer and a tuning file below another's link. */
SCRATCH_TEST(test_layers_behind_anothers_link) {
    char aside[PATH_BYTES], link[PATH_BYTES], below[PATH_BYTES], why[512];
    struct smelt__cache *cache;
    struct stat status;
    mode(scratch->folder, 0755);
    snprintf(aside, sizeof aside, "%.300s/aside", scratch->folder);
    snprintf(link, sizeof link, "%.300s/link", scratch->folder);
    assert_int_equal(mkdir(aside, 0755), 0);
    assert_int_equal(symlink(aside, link), 0);
    own(link, STRANGER, STRANGER);
    snprintf(below, sizeof below, "%.400s/x/cache", link);
    scratch->settings.folder = below;
    cache = cache_begin(scratch);
    assert_non_null(strstr(smelt__cache_problem(cache), link));
    assert_non_null(strstr(smelt__cache_problem(cache), "symbolic link"));
    assert_int_equal(store(cache, 1, &compiler_new, 1000), -1);
    assert_int_equal(smelt__cache_clear(cache, NULL), SMELT_ERROR_CACHE);
    assert_int_equal(scratch->warnings, 1);
    cache_end(scratch);
    snprintf(below, sizeof below, "%.400s/x", aside);
    assert_int_equal(stat(below, &status), -1); /* nothing was created behind the link */

    /* Another user creates the link while the cache is open. */
    scratch->settings.folder = scratch->cache;
    cache = cache_begin(scratch);
    assert_int_equal(store(cache, 1, &compiler_new, 1000), 0);
    snprintf(below, sizeof below, "%.400s.aside", scratch->cache);
    assert_int_equal(rename(scratch->cache, below), 0);
    assert_int_equal(symlink(below, scratch->cache), 0);
    own(scratch->cache, STRANGER, STRANGER);
    assert_int_equal(hits(cache, 1, &compiler_new, 1000), 0);
    assert_int_equal(store(cache, 2, &compiler_new, 1000), -1);
    assert_int_equal(count_files(below, ".smelt"), 1);
    cache_end(scratch);

    /* An exported file below a folder that is writable by everyone. */
    assert_int_equal(unlink(scratch->cache), 0);
    mode(aside, 0777);
    snprintf(below, sizeof below, "%.400s/file", aside);
    write_file(below, "x", 1);
    assert_int_equal(smelt__file_open(below, why, sizeof why), -1);
    assert_non_null(strstr(why, "is writable by everyone"));
}

/* ---- the node's folder of locks ------------------------------------------------------------ */

/* Runs as a user whose folder in /tmp another user made or can write: the lock is in the cache
 * folder. 0, or the number of the failed check. */
static int lock_in_child(struct scratch *scratch, uid_t locker) {
    struct smelt__cache_key key = key_number(1);
    struct smelt__cache_lock lock;
    struct smelt__compiled compiled;
    if (setgroups(0, NULL) != 0 || setgid(locker) != 0 || setuid(locker) != 0)
        return 1;
    scratch->settings.lock = SMELT_CACHE_LOCK_LOCAL;
    struct smelt__cache *cache = smelt__cache_open(&scratch->settings, &scratch->log);
    if (!cache || smelt__cache_problem(cache)[0])
        return 2;
    if (smelt__cache_lock(cache, &key, &compiler_new, true, &lock, &compiled) != 0 || lock.fd < 0)
        return 3;
    smelt__cache_unlock(cache, &lock);
    smelt__cache_close(cache);
    return 0;
}

SCRATCH_TEST(test_node_folder) {
    static const struct {
        uid_t owner; /* 0: the locker */
        mode_t bits;
        int used;
    } cases[] = {
        {0, 0700, 1}, {STRANGER, 0700, 0}, {0, 0770, 0}, {0, 0777, 0}, {STRANGER, 0777, 0}};
    const uid_t locker = 100000 + (uid_t)getpid();
    char node[64], in_node[PATH_BYTES], in_cache[PATH_BYTES];
    int status;
    mode(scratch->folder, 0755);
    snprintf(node, sizeof node, "/tmp/smelt-%lu", (unsigned long)locker);
    snprintf(in_node, sizeof in_node, "%s/lock", node);
    snprintf(in_cache, sizeof in_cache, "%.400s/lock", scratch->cache);
    assert_int_equal(mkdir(scratch->cache, 0755), 0);
    own(scratch->cache, locker, locker);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(mkdir(node, 0700), 0);
        own(node, cases[i].owner ? cases[i].owner : locker, locker);
        mode(node, cases[i].bits);
        pid_t child = fork();
        if (child == 0)
            _exit(lock_in_child(scratch, locker));
        assert_int_equal(waitpid(child, &status, 0), child);
        const int in_nodes = unlink(in_node) == 0, in_caches = unlink(in_cache) == 0;
        assert_int_equal(rmdir(node), 0);
        assert_int_equal(status, 0);
        assert_int_equal(in_nodes, cases[i].used);
        assert_int_equal(in_caches, !cases[i].used);
    }
}

int main(void) {
    if (geteuid() != 0) {
        puts("needs root, to give folders and links away");
        return SKIPPED;
    }
    return RUN_TESTS("cache trust");
}
