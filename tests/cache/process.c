/*
 * Many processes and threads on one cache. A compilation is faked: it appends one byte to a file
 * per kernel and takes a while, so that the file's length counts the compilations.
 *
 * Children report by their exit status; cmocka's assertions belong to the parent.
 */
#include "common.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 5000, MOST = 16 };

static void counter_path(const struct scratch *scratch, int n, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%.400s/count-%d", scratch->folder, n);
}

static int fake_compile(const struct scratch *scratch, int n) {
    char path[PATH_BYTES];
    int file;

    counter_path(scratch, n, path);
    file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0 || write(file, "x", 1) != 1)
        return -1;
    close(file);
    pause_ms(40);
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

/* What the runtime does to have kernel n: look, lock, compile, store. 0 when it got the right one.
 */
static int obtain(const struct scratch *scratch, struct smelt__cache *cache, int n) {
    struct smelt__cache_key key = key_number(n);
    struct smelt__cache_lock lock = {-1};
    struct smelt__compiled compiled;
    int result;

    if (!smelt__cache_lookup(cache, &key, &compiler_new, &compiled) &&
        !smelt__cache_lock(cache, &key, &compiler_new, &lock, &compiled)) {
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

/* Starts a child with its own cache; it waits for the end of `start` when that is given. */
static pid_t start_child(struct scratch *scratch, child_function body, int number,
                         const int *start) {
    pid_t child = fork();
    struct smelt__cache *cache;
    char byte;
    int result;

    assert_true(child >= 0);
    if (child != 0)
        return child;
    if (start) {
        close(start[1]);
        if (read(start[0], &byte, 1) != 0)
            _exit(2);
    }
    cache = smelt__cache_open(&scratch->settings, &scratch->log);
    if (!cache)
        _exit(3);
    result = body(scratch, cache, number);
    smelt__cache_close(cache);
    _exit(result == 0 ? 0 : 1);
}

static void run_children(struct scratch *scratch, child_function body, int count) {
    pid_t children[MOST];
    int start[2];

    assert_int_equal(pipe(start), 0);
    for (int i = 0; i < count; i++)
        children[i] = start_child(scratch, body, i, start);
    close(start[0]);
    close(start[1]); /* they are off */
    for (int i = 0; i < count; i++)
        assert_int_equal(exit_status(children[i]), 0);
}

static int obtain_one(struct scratch *scratch, struct smelt__cache *cache, int number) {
    (void)number;
    return obtain(scratch, cache, 0);
}

SCRATCH_TEST(test_two_processes_one_key) {
    run_children(scratch, obtain_one, 2);
    assert_int_equal(compiles(scratch, 0), 1);
}

SCRATCH_TEST(test_local_scope) {
    scratch->settings.lock = SMELT_CACHE_LOCK_LOCAL;
    run_children(scratch, obtain_one, 4);
    assert_int_equal(compiles(scratch, 0), 1);
}

SCRATCH_TEST(test_locks_off) {
    scratch->settings.lock = SMELT_CACHE_LOCK_OFF;
    run_children(scratch, obtain_one, 4);
    assert_in_range(compiles(scratch, 0), 1, 4); /* more work, the same kernels */
}

enum { KEYS = 6, PROCESSES = 10 };

static int obtain_all(struct scratch *scratch, struct smelt__cache *cache, int number) {
    for (int i = 0; i < KEYS; i++)
        if (obtain(scratch, cache, (i + number) % KEYS) != 0)
            return -1;
    return 0;
}

/* Each request is counted once, however often a process polled for the lock meanwhile. */
static void expect_counts(struct scratch *scratch, uint64_t requests, uint64_t misses) {
    char problem[SMELT__CACHE_PROBLEM];
    struct smelt__cache *cache = cache_begin(scratch);
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;

    assert_int_equal(smelt__cache_stat(cache, problem, &stats), SMELT_OK);
    assert_int_equal(stats.misses, misses);
    assert_int_equal(stats.hits, requests - misses);
    smelt__cache_close(cache);
}

SCRATCH_TEST(test_processes_and_keys) {
    run_children(scratch, obtain_all, PROCESSES);
    expect_counts(scratch, PROCESSES * KEYS, KEYS);
    for (int n = 0; n < KEYS; n++)
        assert_int_equal(compiles(scratch, n), 1);
    assert_int_equal(count_files(scratch->cache, ".tmp-"), 0);
}

struct thread {
    pthread_t handle;
    struct scratch *scratch;
    struct smelt__cache *cache;
    int result;
};

static void *thread_obtains(void *user) {
    struct thread *thread = user;

    thread->result = obtain_all(thread->scratch, thread->cache, 0);
    return NULL;
}

SCRATCH_TEST(test_threads_of_one_process) {
    struct smelt__cache *cache = cache_begin(scratch);
    struct thread threads[8];

    for (int i = 0; i < 8; i++) {
        threads[i] = (struct thread){.scratch = scratch, .cache = cache};
        assert_int_equal(pthread_create(&threads[i].handle, NULL, thread_obtains, &threads[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pthread_join(threads[i].handle, NULL), 0);
        assert_int_equal(threads[i].result, 0);
    }
    for (int n = 0; n < KEYS; n++)
        assert_int_equal(compiles(scratch, n), 1);
    smelt__cache_close(cache);
}

/* ---- holders that die, stop, fork ----------------------------------------------------------- */

static int ready[2];

static int hold_for_ever(struct scratch *scratch, struct smelt__cache *cache, int number) {
    struct smelt__cache_key key = key_number(number);
    struct smelt__cache_lock lock;
    struct smelt__compiled compiled;

    (void)scratch;
    if (smelt__cache_lock(cache, &key, &compiler_new, &lock, &compiled) || lock.fd < 0)
        return -1;
    if (write(ready[1], "x", 1) != 1)
        return -1;
    while (pause() < 0)
        continue;
    return 0;
}

/* A child that holds the lock of kernel 0 for certain. */
static pid_t start_holder(struct scratch *scratch) {
    char byte;
    pid_t child;

    assert_int_equal(pipe(ready), 0);
    child = start_child(scratch, hold_for_ever, 0, NULL);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void end_holder(pid_t child) {
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

struct killing {
    pid_t child;
    double at;
};

static void *kill_later(void *user) {
    struct killing *killing = user;

    pause_ms(150);
    killing->at = now_seconds();
    kill(killing->child, SIGKILL);
    return NULL;
}

CACHE_TEST(test_holder_killed) {
    struct smelt__cache_key key = key_number(0);
    struct smelt__cache_lock lock;
    struct smelt__compiled compiled;
    pthread_t killer;

    for (int round = 0; round < 3; round++) {
        struct killing killing = {start_holder(scratch), 0};
        assert_int_equal(pthread_create(&killer, NULL, kill_later, &killing), 0);
        assert_int_equal(smelt__cache_lock(cache, &key, &compiler_new, &lock, &compiled), 0);
        double got = now_seconds();
        assert_int_equal(pthread_join(killer, NULL), 0);
        assert_true(lock.fd >= 0);
        printf("lock had %.1f ms after its holder was killed\n", 1e3 * (got - killing.at));
        assert_true(got >= killing.at && got - killing.at < 1);
        smelt__cache_unlock(cache, &lock);
        assert_int_equal(waitpid(killing.child, NULL, 0), killing.child);
    }
}

SCRATCH_TEST(test_holder_stopped) {
    struct smelt__cache_key key = key_number(0);
    struct smelt__cache_lock lock;
    struct smelt__compiled compiled;
    struct smelt__cache *cache;
    pid_t child = start_holder(scratch);
    double begin, waited;

    assert_int_equal(kill(child, SIGSTOP), 0);
    scratch->settings.lock_timeout_ms = 1000;
    cache = cache_begin(scratch);
    begin = now_seconds();
    assert_int_equal(smelt__cache_lock(cache, &key, &compiler_new, &lock, &compiled), 0);
    waited = now_seconds() - begin;
    printf("waited %.1f ms of 1000 for a stopped process\n", 1e3 * waited);
    assert_int_equal(lock.fd, -1);
    assert_true(waited >= 1 && waited < 1.1);
    smelt__cache_unlock(cache, &lock);
    end_holder(child);
    smelt__cache_close(cache);
}

/* The entry appears while its lock is held by somebody who never lets go. */
CACHE_TEST(test_entry_appears) {
    struct smelt__cache_key key = key_number(0);
    struct smelt__cache_lock lock;
    struct smelt__compiled compiled;
    pid_t child = start_holder(scratch);
    double begin = now_seconds();

    assert_int_equal(store(cache, 0, &compiler_new, BYTES), 0);
    assert_int_equal(smelt__cache_lock(cache, &key, &compiler_new, &lock, &compiled), 1);
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

/* A child forked while a lock is held, which outlives it, must not keep it. */
CACHE_TEST(test_fork_while_held) {
    struct smelt__cache_key key = key_number(0);
    struct smelt__cache_lock lock;
    struct smelt__compiled compiled;
    double begin;
    pid_t child;

    assert_int_equal(smelt__cache_lock(cache, &key, &compiler_new, &lock, &compiled), 0);
    assert_true(lock.fd >= 0);
    child = start_child(scratch, live_on, 0, NULL);
    smelt__cache_unlock(cache, &lock);
    pause_ms(20); /* the child's handler has run by now */
    begin = now_seconds();
    assert_int_equal(smelt__cache_lock(cache, &key, &compiler_new, &lock, &compiled), 0);
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

    assert_int_equal(smelt__cache_lock(cache, &key, &compiler_new, &lock, &compiled), 0);
    assert_true(lock.fd >= 0);
    assert_int_equal(exit_status(start_child(scratch, unlock_in_child, lock.fd, NULL)), 0);
    assert_true(fcntl(lock.fd, F_GETFD) >= 0);
    smelt__cache_unlock(cache, &lock);
}

/* No lock file can be had: every process compiles, with one warning. */
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

/* ---- everything at once --------------------------------------------------------------------- */

static uint64_t seed;

/* Stores, lookups and now and then a verification, under a cap of three entries. */
static int churn(struct scratch *scratch, struct smelt__cache *cache, int number) {
    enum { OPERATIONS = 400, CHURNED_KEYS = 12 };
    uint64_t random = seed + (uint64_t)number;

    for (int i = 0; i < OPERATIONS; i++) {
        struct smelt__compiled compiled;
        int n = (int)(next_random(&random) % CHURNED_KEYS);
        struct smelt__cache_key key = key_number(n);
        if (next_random(&random) % 4 == 0) {
            if (store(cache, n, &compiler_new, BYTES) != 0)
                return -1;
        } else if (smelt__cache_lookup(cache, &key, &compiler_new, &compiled)) {
            bool right = is_right(&compiled, n);
            free(compiled.cubin);
            if (!right)
                return -1;
        }
        if (i % 100 == 99 && smelt__cache_verify(cache, NULL, NULL) != SMELT_OK)
            return -1;
    }
    return smelt__cache_counts(cache).errors == 0 && scratch->warnings == 0 ? 0 : -1;
}

SCRATCH_TEST(test_churn) {
    seed = test_seed("process");
    scratch->settings.cap_bytes = 3 * (544 + BYTES + 16);
    run_children(scratch, churn, 8);
    assert_in_range(count_files(scratch->cache, ".smelt"), 1, 8);
    assert_int_equal(count_files(scratch->cache, ".tmp-"), 0);
}

static int obtain_for_ever(struct scratch *scratch, struct smelt__cache *cache, int number) {
    uint64_t random = seed + (uint64_t)number;

    for (;;) {
        int n = (int)(next_random(&random) % KEYS);
        struct smelt__cache_key key = key_number(n);
        if (obtain(scratch, cache, n) != 0)
            return -1;
        if (next_random(&random) % 2)
            smelt__cache_forget(cache, &key, &compiler_new);
    }
}

/* Processes killed at random moments leave nothing but temporaries: no entry is ever bad. */
CACHE_TEST(test_kill_at_random) {
    enum { VICTIMS = 4, KILLS = 40 };
    uint64_t random, removed;
    pid_t victims[VICTIMS];

    random = seed = test_seed("process");
    for (int i = 0; i < VICTIMS; i++)
        victims[i] = start_child(scratch, obtain_for_ever, i, NULL);
    for (int i = 0; i < KILLS; i++) {
        int which = i % VICTIMS;
        pause_ms((int)(next_random(&random) % 20));
        end_holder(victims[which]);
        victims[which] = start_child(scratch, obtain_for_ever, VICTIMS + i, NULL);
    }
    for (int i = 0; i < VICTIMS; i++)
        end_holder(victims[i]);
    assert_int_equal(smelt__cache_verify(cache, NULL, &removed), SMELT_OK);
    assert_int_equal(removed, 0);
    for (int n = 0; n < KEYS; n++)
        assert_int_equal(obtain(scratch, cache, n), 0);
    assert_int_equal(smelt__cache_counts(cache).errors, 0);
}

TESTS("cache processes")
