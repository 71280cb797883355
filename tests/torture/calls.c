/*
 * A process that compiles and stores a kernel is killed at the entry of each of its system calls in
 * turn (strace injects SIGKILL). Afterwards the cache has no invalid entry that is used, and the
 * next process gets its kernel without delay.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

enum { CUBIN_BYTES = 5000, ENTRY_BYTES = CUBIN_BYTES + 560, FILLED = 3, MOST_CALLS = 4096 };

static const char *scratch;
static char folder[TORTURE_PATH];

/* ---- the process that is killed -------------------------------------------------------------- */

int row_store(const struct arguments *arguments) {
    smelt_context_options options = torture_options(argument_text(arguments, "folder"), NULL);
    fakes_nvrtc()->cubin_bytes = CUBIN_BYTES;
    options.cache_cap_bytes = (uint64_t)argument(arguments, "cap", 0);
    smelt_context *context = torture_context(&options);
    REQUIRE(obtain(context, 0) == RIGHT);
    smelt_context_destroy(&context);
    return 0;
}

/* Runs it under strace, with an injection or with its calls written to `log`. Its wait status. */
static int run_traced(const char *cap, const char *log, const char *injection) {
    char folder_argument[TORTURE_PATH + 16], self[TORTURE_PATH];
    int status, nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    REQUIRE(length > 0 && nothing >= 0);
    self[length] = '\0';
    snprintf(folder_argument, sizeof folder_argument, "folder=%s", folder);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        dup2(nothing, STDERR_FILENO);
        if (injection)
            execlp("strace", "strace", "-f", "-qq", "-o", "/dev/null", "-e", injection, self,
                   "store", folder_argument, cap, (char *)NULL);
        else
            execlp("strace", "strace", "-f", "-qq", "-o", log, self, "store", folder_argument, cap,
                   (char *)NULL);
        _exit(127);
    }
    close(nothing);
    REQUIRE(waitpid(child, &status, 0) == child);
    return status;
}

/* ---- its calls ------------------------------------------------------------------------------- */

static struct call {
    char name[32];
    int ordinal; /* number among the calls of this name, from 1 */
} calls[MOST_CALLS];

static int ordinal_of(const char *name, int before) {
    int ordinal = 1;
    for (int i = 0; i < before; i++)
        ordinal += !strcmp(calls[i].name, name);
    return ordinal;
}

/* Reads strace's log: "PID name(...". *first: the first call on the way to the cache folder, whose
 * path is walked component by component: the one that opens the scratch folder. */
static int read_calls(const char *log, int *first) {
    static char line[65536];
    char component[TORTURE_PATH];
    FILE *file = fopen(log, "r");
    int count = 0;
    REQUIRE(file);
    snprintf(component, sizeof component, "\"%.4000s\"", strrchr(scratch, '/') + 1);
    *first = -1;
    while (fgets(line, sizeof line, file) && count < MOST_CALLS) {
        struct call *call = &calls[count];
        char name[32];
        if (sscanf(line, "%*d %31[a-z0-9_](", name) != 1)
            continue; /* an exit, a signal */
        call->ordinal = ordinal_of(name, count);
        memcpy(call->name, name, sizeof name);
        if (*first < 0 && strstr(line, component))
            *first = count;
        count++;
    }
    fclose(file);
    return count;
}

/* ---- before and after ------------------------------------------------------------------------ */

static const struct situation {
    const char *name, *cap;
    int filled;   /* entries of other kernels */
    bool damaged; /* and a truncated one of this kernel */
} situations[] = {
    {"an empty folder", "cap=0", 0, false},
    {"a damaged entry", "cap=0", 1, true},
    {"a full cache", "cap=17000", FILLED, false},
};

static int cut_off(void *user, const char *file, const smelt_kernel_info *info) {
    char path[2 * TORTURE_PATH];
    (void)user;
    (void)info;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    REQUIRE(truncate(path, 300) == 0);
    return 0;
}

static void set_up(const struct situation *situation) {
    smelt_context_options options = torture_options(folder, NULL);
    remove_tree(folder);
    if (situation->filled == 0)
        return;
    smelt_context *context = torture_context(&options);
    if (situation->damaged) {
        REQUIRE(obtain(context, 0) == RIGHT);
        REQUIRE(smelt_cache_walk(context, NULL, cut_off, NULL) == SMELT_OK);
    }
    for (int n = 1; n <= situation->filled; n++)
        REQUIRE(obtain(context, n) == RIGHT);
    smelt_context_destroy(&context);
}

static int require_sound(void *user, const char *file, const smelt_kernel_info *info) {
    const struct situation *situation = user;
    if (info->state == SMELT_KERNEL_FAILED && !situation->damaged)
        fprintf(stderr, "%s: %s\n", file, info->error);
    REQUIRE(info->state != SMELT_KERNEL_FAILED || situation->damaged);
    return 0;
}

/* Returns the next process's time for the kernel in milliseconds. */
static double require_recovered(const struct situation *situation) {
    smelt_context_options options = torture_options(folder, NULL);
    smelt_context *context = torture_context(&options);
    REQUIRE(smelt_cache_walk(context, NULL, require_sound, (void *)(uintptr_t)situation) ==
            SMELT_OK);
    double begin = now_seconds();
    REQUIRE(obtain(context, 0) == RIGHT);
    double taken = 1e3 * (now_seconds() - begin);
    REQUIRE(obtain(context, 0) == RIGHT);
    smelt_context_destroy(&context);
    return taken;
}

/* ---- the row --------------------------------------------------------------------------------- */

struct call_tally {
    long kills, temporaries;
    double slowest_ms;
};

static void kill_at(const struct situation *situation, const struct call *call,
                    struct call_tally *tally) {
    char injection[128];

    set_up(situation);
    snprintf(injection, sizeof injection, "inject=%s:signal=SIGKILL:when=%d", call->name,
             call->ordinal);
    int status = run_traced(situation->cap, NULL, injection);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    REQUIRE(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    tally->kills += killed;
    long left = count_files(folder, ".tmp-");
    tally->temporaries += left > 0 ? left : 0;
    double taken = require_recovered(situation);
    if (taken > tally->slowest_ms)
        tally->slowest_ms = taken;
}

int row_calls(const struct arguments *arguments) {
    long stride = argument(arguments, "stride", 1), planned = 0;
    long limit_ms = argument(arguments, "limit_ms", 1000);
    struct call_tally tally = {0};
    char log[TORTURE_PATH];
    scratch = scratch_folder(true);
    snprintf(folder, sizeof folder, "%.4000s/cache", scratch);
    snprintf(log, sizeof log, "%.4000s/calls", scratch);
    fakes_nvrtc()->cubin_bytes = CUBIN_BYTES;
    for (size_t i = 0; i < sizeof situations / sizeof situations[0]; i++) {
        int first, count;
        set_up(&situations[i]);
        int status = run_traced(situations[i].cap, log, NULL);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
            skip("there is no strace");
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            skip("strace does not work here (no ptrace in this container?)");
        count = read_calls(log, &first);
        REQUIRE(first > 0 && count > first + 50);
        printf("%s: %d calls from the first on the cache\n", situations[i].name, count - first);
        for (int at = first; at < count; at += (int)stride, planned++)
            kill_at(&situations[i], &calls[at], &tally);
    }
    figure(
        "killed at %ld system calls of a store (into an empty folder, over a damaged entry, into "
        "a full cache): nothing unsound, the next has its kernel within %.0f ms; %ld temporaries "
        "left to the sweep",
        tally.kills, tally.slowest_ms, tally.temporaries);
    REQUIRE(tally.kills >= planned * 95 / 100);
    REQUIRE(stride > 1 || tally.temporaries > 0); /* some die between open and rename */
    REQUIRE(tally.slowest_ms < (double)limit_ms);
    return 0;
}
