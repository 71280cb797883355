/*
 * Locks whose holder stops, forks or never ends. (tests/torture has many processes and threads:
 * cold, kill, churn, threads.) A simulated compilation appends one byte to a file per kernel, so
 * that the file's length counts the compilations.
 *
 * Children report by their exit status; cmocka's assertions belong to the parent.
 */
#include "common.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 5000 };

static void counter_path(const struct scratch *scratch, int n, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%.400s/count-%d", scratch->folder, n);
}

static int fake_compile(const struct scratch *scratch, int n) {
    char path[PATH_BYTES];
    counter_path(scratch, n, path);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0 || write(file, "x", 1) != 1)
        return -1;
    close(file);
    return 0;
}

static long compiles(const struct scratch *scratch, int n) {
    char path[PATH_BYTES];
    struct stat status;
    counter_path(scratch, n, path);
    return stat(path, &status) == 0 ? (long)status.st_size : 0;
}

static bool is_right(const struct smelt__compiled *found, int n) {
    struct smelt__compiled right = compiled_number(n, BYTES);
    bool same = found->cubin_bytes == BYTES && memcmp(found->cubin, right.cubin, BYTES) == 0 &&
                strcmp(found->spec, right.spec) == 0;
    free(right.cubin);
    return same;
}

/* Obtains kernel n like the runtime: lookup, lock, compilation, store. 0 if it is the right one. */
static int obtain(const struct scratch *scratch, struct smelt__cache *cache, int n) {
    struct smelt__cache_key key = key_number(n);
    struct smelt__cache_lock lock = {-1};
    struct smelt__compiled compiled;
    int result;
    if (!smelt__cache_lookup(cache, &key, &compiler_new, &compiled) &&
        !smelt__cache_lock(cache, &key, &compiler_new, true, &lock, &compiled)) {
        smelt__cache_missed(cache, &key);
        result = fake_compile(scratch, n);
        compiled = compiled_number(n, BYTES);
        char why[SMELT__CACHE_WHY];
        smelt__cache_store(cache, &key, &compiler_new, &compiled, why);
    } else {
        result = is_right(&compiled, n) ? 0 : -1;
    }
    smelt__cache_unlock(cache, &lock);
    free(compiled.cubin);
    return result;
}

/* ---- children ------------------------------------------------------------------------------ */

typedef int (*child_function)(struct scratch *scratch, struct smelt__cache *cache, int number);

/* Starts a child with its own cache. */
static pid_t start_child(struct scratch *scratch, child_function body, int number) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child != 0)
        return child;
    struct smelt__cache *cache = smelt__cache_open(&scratch->settings, &scratch->log);
    if (!cache)
        _exit(3);
    const int result = body(scratch, cache, number);
    smelt__cache_close(cache);
    _exit(result == 0 ? 0 : 1);
}

/* ---- holders that stop, fork ---------------------------------------------------------------- */

static int ready[2];

static int hold_for_ever(struct scratch *scratch, struct smelt__cache *cache, int number) {
    struct smelt__cache_key key = key_number(number);
    struct smelt__cache_lock lock;
    struct smelt__compiled compiled;
    (void)scratch;
    if (smelt__cache_lock(cache, &key, &compiler_new, true, &lock, &compiled) || lock.fd < 0)
        return -1;
    if (write(ready[1], "x", 1) != 1)
        return -1;
    while (pause() < 0)
        continue;
    return 0;
}

/* A child that holds the lock of kernel n. */
static pid_t start_holder(struct scratch *scratch, int n) {
    char byte;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = start_child(scratch, hold_for_ever, n);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void end_holder(pid_t child) {
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* With any scope of locks, other processes wait for the time-out, not much longer, and then compile
 * the kernel, which the next process finds. */
SCRATCH_TEST(test_holder_stopped) {
    static const smelt_cache_lock scopes[] = {SMELT_CACHE_LOCK_SHARED, SMELT_CACHE_LOCK_LOCAL};
    scratch->settings.lock_timeout_ms = 1000;
    for (int n = 0; n < 2; n++) {
        scratch->settings.lock = scopes[n];
        const pid_t child = start_holder(scratch, n);
        assert_int_equal(kill(child, SIGSTOP), 0);
        struct smelt__cache *cache = cache_begin(scratch);
        const double begin = now_seconds();
        assert_int_equal(obtain(scratch, cache, n), 0);
        const double waited = now_seconds() - begin;
        printf("waited %.1f ms of 1000 for a stopped process\n", 1e3 * waited);
        assert_true(waited >= 1 && waited < 1.5);
        assert_int_equal(obtain(scratch, cache, n), 0);
        assert_int_equal(compiles(scratch, n), 1);
        assert_int_equal(smelt__cache_counts(cache).errors, 0);
        end_holder(child);
    }
}

/* The entry appears while another process holds its lock and never releases it. */
CACHE_TEST(test_entry_appears) {
    struct smelt__cache_key key = key_number(0);
    struct smelt__cache_lock lock;
    struct smelt__compiled compiled;
    pid_t child = start_holder(scratch, 0);
    double begin = now_seconds();
    assert_int_equal(store(cache, 0, &compiler_new, BYTES), 0);
    assert_int_equal(smelt__cache_lock(cache, &key, &compiler_new, true, &lock, &compiled), 1);
    assert_int_equal(lock.fd, -1);
    assert_true(is_right(&compiled, 0));
    assert_true(now_seconds() - begin < 1);
    free(compiled.cubin);
    end_holder(child);
}

static int live_on(struct scratch *scratch, struct smelt__cache *cache, int number) {
    (void)scratch;
    (void)cache;
    (void)number;
    while (pause() < 0)
        continue;
    return 0;
}

/* A child that is forked while a lock is held, and that outlives the lock, must not keep it. */
CACHE_TEST(test_fork_while_held) {
    struct smelt__cache_key key = key_number(0);
    struct smelt__cache_lock lock;
    struct smelt__compiled compiled;
    assert_int_equal(smelt__cache_lock(cache, &key, &compiler_new, true, &lock, &compiled), 0);
    assert_true(lock.fd >= 0);
    pid_t child = start_child(scratch, live_on, 0);
    smelt__cache_unlock(cache, &lock);
    pause_ms(20); /* the child's handler has run by now */
    double begin = now_seconds();
    assert_int_equal(smelt__cache_lock(cache, &key, &compiler_new, true, &lock, &compiled), 0);
    assert_true(lock.fd >= 0);
    assert_true(now_seconds() - begin < 1);
    smelt__cache_unlock(cache, &lock);
    end_holder(child);
}

static int unlock_in_child(struct scratch *scratch, struct smelt__cache *cache, int number) {
    struct smelt__cache_lock lock = {number};
    int file = open(scratch->folder, O_RDONLY | O_DIRECTORY);

    /* The lock's descriptor was closed at the fork; the number is another file's now. */
    if (file > number || (file < number && dup2(file, number) < 0))
        return -1;
    smelt__cache_unlock(cache, &lock);
    return fcntl(number, F_GETFD) < 0 ? -1 : 0;
}

CACHE_TEST(test_unlock_in_child) {
    struct smelt__cache_key key = key_number(0);
    struct smelt__cache_lock lock;
    struct smelt__compiled compiled;
    assert_int_equal(smelt__cache_lock(cache, &key, &compiler_new, true, &lock, &compiled), 0);
    assert_true(lock.fd >= 0);
    assert_int_equal(exit_status(start_child(scratch, unlock_in_child, lock.fd)), 0);
    assert_true(fcntl(lock.fd, F_GETFD) >= 0);
    smelt__cache_unlock(cache, &lock);
}

/* Without a lock file every process compiles, with one warning. */
CACHE_TEST(test_no_lock_file) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%.400s/lock", scratch->cache);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(obtain(scratch, cache, 0), 0);
    assert_int_equal(obtain(scratch, cache, 1), 0);
    assert_int_equal(obtain(scratch, cache, 1), 0);
    assert_int_equal(compiles(scratch, 1), 1);
    assert_int_equal(scratch->warnings, 1);
    assert_non_null(strstr(scratch->last_warning, "lock"));
}

TESTS("cache processes")
