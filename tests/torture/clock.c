/*
 * Processes whose clock is wrong by an hour or ten years (libfaketime; the file system has the
 * correct time, like a server): they evict no recent entry, remove no temporary that is being
 * written, and renew the entries that they use.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "torture.h"

enum { CUBIN_BYTES = 5000, ENTRY_BYTES = CUBIN_BYTES + 560, FRESH = 6, CAP = 10 * ENTRY_BYTES };
/* Kernels: 0..FRESH - 1 are recent; the next three were last used two hours ago, and the first of
 * these is used again; then those stored by the process with the wrong clock. These exceed the cap
 * by one, and two are evicted. */
enum { USED_AGAIN = FRESH, OLD, OLD_TOO, STORED, STORED_TOO };

static const char *scratch;
static char folder[TORTURE_PATH];

/* ---- the process whose clock is off ---------------------------------------------------------- */

int row_skewed(const struct arguments *arguments) {
    smelt_context_options options = torture_options(argument_text(arguments, "folder"), NULL);
    long real = argument(arguments, "real", 0), skew = argument(arguments, "skew", 0);
    long off = (long)time(NULL) - real - skew;
    if (off < -600 || off > 600)
        return TORTURE_SKIPPED;
    fakes_nvrtc()->cubin_bytes = CUBIN_BYTES;
    options.cache_cap_bytes = CAP;
    smelt_context *context = torture_context(&options);
    REQUIRE(obtain(context, USED_AGAIN) == RIGHT);
    REQUIRE(obtain(context, STORED) == RIGHT);
    REQUIRE(obtain(context, STORED_TOO) == RIGHT);
    REQUIRE(cache_errors(context) == 0);
    smelt_context_destroy(&context);
    return 0;
}

static int run_skewed(const char *offset, long skew) {
    char self[TORTURE_PATH], texts[3][TORTURE_PATH + 32];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    int status;
    REQUIRE(length > 0);
    self[length] = '\0';
    snprintf(texts[0], sizeof texts[0], "folder=%s", folder);
    snprintf(texts[1], sizeof texts[1], "real=%ld", (long)time(NULL));
    snprintf(texts[2], sizeof texts[2], "skew=%ld", skew);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        setenv("NO_FAKE_STAT", "1", 1); /* the file system's times are its own */
        setenv("FAKE_UTIME", "1", 1);
        setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1", 1);
        setenv("DONT_FAKE_MONOTONIC", "1", 1);
        execlp("faketime", "faketime", "-f", offset, self, "skewed", texts[0], texts[1], texts[2],
               (char *)NULL);
        _exit(127);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* ---- before and after ------------------------------------------------------------------------ */

static void find_entry(int n, char path[2 * TORTURE_PATH]) {
    char hex[33];
    kernel_key(n, hex);
    REQUIRE(find_by_prefix(folder, hex, path) == 1);
}

static bool is_there(int n) {
    char hex[33], path[2 * TORTURE_PATH];
    kernel_key(n, hex);
    return find_by_prefix(folder, hex, path) == 1;
}

static void set_age(const char *path, long seconds) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - seconds}};
    REQUIRE(utimensat(AT_FDCWD, path, times, 0) == 0);
}

static void make_temporary(const char *entry, char digit, long age, char path[2 * TORTURE_PATH]) {
    int length = (int)(strrchr(entry, '/') - entry);
    snprintf(path, 2 * TORTURE_PATH, "%.*s/.tmp-%032d", length, entry, digit - '0');
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    REQUIRE(file >= 0 && write(file, "smelt", 5) == 5);
    close(file);
    set_age(path, age);
}

/* Runs a process with this clock error on a cache that is full after its stores. */
static void run_clock(const char *offset, long skew) {
    smelt_context_options options = torture_options(folder, NULL);
    char path[2 * TORTURE_PATH], fresh[2 * TORTURE_PATH], stale[2 * TORTURE_PATH];
    remove_tree(folder);
    smelt_context *context = torture_context(&options);
    for (int n = 0; n <= OLD_TOO; n++)
        REQUIRE(obtain(context, n) == RIGHT);
    smelt_context_destroy(&context);
    for (int n = USED_AGAIN; n <= OLD_TOO; n++) {
        find_entry(n, path);
        set_age(path, 7200);
    }
    make_temporary(path, '1', 60, fresh);
    make_temporary(path, '2', 7200, stale);
    int status = run_skewed(offset, skew);
    if (status == 127)
        skip("there is no faketime");
    if (status == TORTURE_SKIPPED)
        skip("faketime does not change this program's time");
    REQUIRE(status == 0);
    for (int n = 0; n <= STORED_TOO; n++) {
        bool old = n == OLD || n == OLD_TOO;
        if (is_there(n) == old)
            fprintf(stderr, "clock off by %s: kernel %d is %s\n", offset, n,
                    is_there(n) ? "there" : "gone");
        REQUIRE(is_there(n) != old);
    }
    REQUIRE(access(fresh, F_OK) == 0);
    REQUIRE(access(stale, F_OK) != 0);
}

/* Entries stored while a clock was ahead can be evicted: an eviction corrects their time. */
static void run_future(void) {
    smelt_context_options options = torture_options(folder, NULL);
    char path[2 * TORTURE_PATH];
    struct stat status;
    remove_tree(folder);
    options.cache_cap_bytes = CAP;
    smelt_context *context = torture_context(&options);
    REQUIRE(obtain(context, 0) == RIGHT);
    find_entry(0, path);
    set_age(path, -315360000);
    for (int n = 1; n < 12; n++)
        REQUIRE(obtain(context, n) == RIGHT);
    smelt_context_destroy(&context);
    if (stat(path, &status) == 0)
        REQUIRE(status.st_mtim.tv_sec < time(NULL) + 60);
}

int row_clock(const struct arguments *arguments) {
    static const struct {
        const char *offset;
        long skew;
    } skews[] = {{"+3600s", 3600}, {"-3600s", -3600}, {"+10y", 315360000}, {"-10y", -315360000}};
    long rounds = argument(arguments, "rounds", 25);
#ifdef TORTURE_SANITIZED
    skip("the sanitizer wants to be loaded before faketime");
#endif
    scratch = scratch_folder(true);
    snprintf(folder, sizeof folder, "%.4000s/cache", scratch);
    fakes_nvrtc()->cubin_bytes = CUBIN_BYTES;
    for (long round = 0; round < rounds; round++)
        for (int i = 0; i < 4; i++)
            run_clock(skews[i].offset, skews[i].skew);
    run_future();
    figure(
        "clocks off by +-1 h and +-10 years, %ld rounds: of %d fresh entries in a full cache none "
        "was evicted, what was used again stayed, the old ones went; fresh temporaries stayed, "
        "stale ones went",
        rounds, FRESH + 3);
    return 0;
}
