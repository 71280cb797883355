/*
 * Two nodes on one network file system: two bindfs mounts of one folder, which cache attributes and
 * missing files for two seconds and do not share locks. Kernels are correct on both; a node
 * compiles each at most once, and after two seconds finds the other's entries.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

enum { MOUNTS = 2, PROCESSES = 4, KEYS = 12, CUBIN_BYTES = 20000, COMPILE_MS = 20, WINDOW_S = 2 };

static char places[MOUNTS][TORTURE_PATH];
static pid_t owner;

static int run(const char *program, const char *a, const char *b, const char *c, const char *d) {
    int status;
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(126);
        execlp(program, program, a, b, c, d, (char *)NULL);
        _exit(127);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static void unmount_all(void) {
    if (getpid() != owner)
        return;
    for (int i = 0; i < MOUNTS; i++)
        if (places[i][0] && run("fusermount", "-u", places[i], NULL, NULL) != 0)
            (void)run("umount", places[i], NULL, NULL, NULL);
}

static void mount_all(const char *scratch, const char *real) {
    char options[128];
    snprintf(options, sizeof options, "entry_timeout=%d,negative_timeout=%d,attr_timeout=%d",
             WINDOW_S, WINDOW_S, WINDOW_S);
    owner = getpid();
    atexit(unmount_all);
    for (int i = 0; i < MOUNTS; i++) {
        char place[TORTURE_PATH];
        snprintf(place, sizeof place, "%.4000s/node-%d", scratch, i);
        REQUIRE(mkdir(place, 0700) == 0);
        int status = run("bindfs", "-o", options, real, place);
        if (status == 127)
            skip("there is no bindfs");
        if (status != 0)
            skip("bindfs cannot mount here (no /dev/fuse in this container?)");
        memcpy(places[i], place, sizeof place);
    }
}

static void be_process(const char *folder, int number, int first) {
    smelt_context_options options = torture_options(folder, NULL);
    smelt_context *context = torture_context(&options);
    for (int i = 0; i < KEYS; i++)
        REQUIRE(obtain(context, first + (i + number) % KEYS) == RIGHT);
    REQUIRE(cache_errors(context) == 0);
    smelt_context_destroy(&context);
    _exit(0);
}

/* Runs several processes on each node concurrently. */
static void run_nodes(int first) {
    pid_t children[MOUNTS * PROCESSES];
    for (int i = 0; i < MOUNTS * PROCESSES; i++) {
        children[i] = fork();
        REQUIRE(children[i] >= 0);
        if (children[i] == 0) {
            char folder[TORTURE_PATH];
            snprintf(folder, sizeof folder, "%.4000s/cache", places[i % MOUNTS]);
            be_process(folder, i, first);
        }
    }
    for (int i = 0; i < MOUNTS * PROCESSES; i++)
        expect_success(children[i]);
}

static long count_lines(const char *path) {
    FILE *file = fopen(path, "r");
    long lines = 0;
    for (int c; file && (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    if (file)
        fclose(file);
    return lines;
}

int row_mounts(const struct arguments *arguments) {
    long rounds = argument(arguments, "rounds", 10), total = 0;
    const char *scratch = scratch_folder(false);
    char real[TORTURE_PATH], compiles[TORTURE_PATH];
    snprintf(real, sizeof real, "%.4000s/real", scratch);
    snprintf(compiles, sizeof compiles, "%.4000s/compiles", scratch);
    REQUIRE(mkdir(real, 0700) == 0);
    mount_all(scratch, real);
    fakes_nvrtc()->cubin_bytes = CUBIN_BYTES;
    fakes_nvrtc()->sleep_ms = COMPILE_MS;
    setenv("FAKE_NVRTC_COMPILES", compiles, 1);
    for (int n = 0; n < KEYS * rounds; n++)
        (void)kernel_hash(n);
    for (int round = 0; round < rounds; round++) {
        run_nodes(round * KEYS);
        long compiled = count_lines(compiles);
        printf("round %d: %ld compilations of %d kernels\n", round, compiled, KEYS);
        REQUIRE(compiled >= KEYS && compiled <= MOUNTS * KEYS);
        total += compiled;
        sleep(WINDOW_S + 1);
        run_nodes(round * KEYS);
        REQUIRE(count_lines(compiles) == compiled); /* all entries are visible */
        unlink(compiles);
    }
    figure(
        "two bindfs mounts of one folder that see changes %d s late, %d processes on each, %ld "
        "rounds of %d kernels: all right, no error, %.2f compilations a kernel (1 a node at most), "
        "none after the window",
        WINDOW_S, PROCESSES, rounds, KEYS, (double)total / (double)(rounds * KEYS));
    return 0;
}
