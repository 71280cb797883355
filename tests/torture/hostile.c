/*
 * Hostile sizes cost neither memory nor time: every kind of input file and text, with real or
 * claimed lengths of gigabytes, is refused or skipped within a second, by a process that is limited
 * to 64 MB of additional memory and two seconds of processor time.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

enum { MEMORY_BYTES = 64 << 20, CPU_SECONDS = 2, SLOWEST_MS = 1000 };
#define HUGE_BYTES ((off_t)5 << 30)

static const char *scratch;
static char folder[TORTURE_PATH], file_path[TORTURE_PATH];

static void write_sparse(const char *path, const void *head, size_t bytes) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    REQUIRE(file >= 0 && write(file, head, bytes) == (ssize_t)bytes);
    REQUIRE(ftruncate(file, HUGE_BYTES) == 0);
    close(file);
}

static void put_u64(unsigned char *at, uint64_t number) {
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(number >> (8 * i));
}

/* ---- the cases: what lies there, and what is done -------------------------------------------- */

static smelt_context_options options_of_case(void) {
    return torture_options(folder, NULL);
}

static void expect_right(const smelt_context_options *options) {
    smelt_context *context = torture_context(options);
    REQUIRE(obtain(context, 0) == RIGHT);
    smelt_context_destroy(&context);
}

/* An entry of 5 GB with that size in its header. */
static void try_entry(void) {
    smelt_context_options options = options_of_case();
    unsigned char head[24] = "smelt\r\n\x1a\2\0\0\0\x20\2\0";
    char hex[33], path[2 * TORTURE_PATH];
    expect_right(&options);
    kernel_key(0, hex);
    REQUIRE(find_by_prefix(folder, hex, path) == 1);
    put_u64(head + 16, (uint64_t)HUGE_BYTES);
    write_sparse(path, head, sizeof head);
    expect_right(&options);
}

static void try_archive(void) {
    smelt_context_options options = options_of_case();
    unsigned char head[1024] = {0};
    memcpy(head, "index", 5);
    memcpy(head + 512, "smelt\r\nA\1\0\0\0\x30\0\0", 15);
    put_u64(head + 512 + 16, (uint64_t)HUGE_BYTES);
    put_u64(head + 512 + 24, 1 << 20);
    write_sparse(file_path, head, sizeof head);
    smelt_context *context = torture_context(&options);
    REQUIRE(smelt_cache_import(context, file_path, NULL) == SMELT_ERROR_CACHE);
    REQUIRE(smelt_last_error()[0]);
    smelt_context_destroy(&context);
    options.cache_readonly_dir = file_path;
    expect_right(&options);
}

static void try_tuning(void) {
    smelt_context_options options = options_of_case();
    write_sparse(file_path, "sparse_attn_fwd", 15);
    options.tuning = file_path;
    options.tuning_device = "NVIDIA H200";
    expect_right(&options);
}

/* A tuning file of the maximum size, whose lines must be parsed. */
static void try_long_tuning(void) {
    smelt_context_options options = options_of_case();
    FILE *file = fopen(file_path, "w");
    REQUIRE(file);
    for (int i = 1; ftell(file) < (1 << 20) - 200; i++)
        fprintf(file, "sparse_attn_fwd:heads=16,dqk=128,dv=128,topk=%d  GPU %d  stages=2  %d\n",
                1 + i % 1048576, i, i);
    fclose(file);
    options.tuning = file_path;
    options.tuning_device = "GPU 3";
    expect_right(&options);
}

/* A compiler library of 5 GB of zeros, and one that is a FIFO without a writer. */
static void try_compiler(void) {
    smelt_context_options options = options_of_case();
    smelt_context *context;
    for (int i = 0; i < 2; i++) {
        unlink(file_path);
        if (i == 0)
            write_sparse(file_path, "\177ELF", 4);
        else
            REQUIRE(mkfifo(file_path, 0600) == 0);
        options.nvrtc_path = file_path;
        context = torture_context(&options);
        REQUIRE(obtain(context, 0) == FAILED);
        REQUIRE(strstr(smelt_last_error(), file_path));
        smelt_context_destroy(&context);
    }
}

static void try_spec(void) {
    enum { TEXT_BYTES = 16 << 20 };
    static const char begin[] = "sparse_attn_fwd:heads=";
    char *text = malloc(TEXT_BYTES), *canonical;
    REQUIRE(text);
    memset(text, '9', TEXT_BYTES);
    memcpy(text, begin, sizeof begin - 1);
    text[TEXT_BYTES - 1] = '\0';
    REQUIRE(smelt_spec_canonical(text, &canonical) == SMELT_ERROR_INVALID_SPEC);
    for (size_t i = sizeof begin; i < TEXT_BYTES - 1; i++)
        text[i] = ",=:"[i % 3];
    REQUIRE(smelt_spec_canonical(text, &canonical) == SMELT_ERROR_INVALID_SPEC);
    free(text);
}

static const char *tool;

/* The command on a manifest: it must refuse with status 2. */
static void run_manifest(const char *path) {
    int status;
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        REQUIRE(freopen("/dev/null", "w", stderr) && freopen("/dev/null", "w", stdout));
        execl(tool, tool, "warm", "--manifest", path, (char *)NULL);
        _exit(127);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 2);
}

static void try_manifest(void) {
    if (!tool)
        return;
    run_manifest("/dev/zero");
    write_sparse(file_path, "{\"specs\": [", 11);
    run_manifest(file_path);
    FILE *file = fopen(file_path, "w"); /* nested as deeply as a megabyte permits */
    REQUIRE(file);
    for (int i = 0; i < (1 << 20) - 1; i++)
        fputc('[', file);
    fclose(file);
    run_manifest(file_path);
    file = fopen(file_path, "w"); /* and a hundred thousand architectures, the last one wrong */
    REQUIRE(file);
    fputs("{\"specs\": [\"sparse_attn:heads=64,dqk=576,dv=512,topk=2048\"], \"archs\": [", file);
    for (int i = 0; i < 100000; i++)
        fputs("\"sm_80\",\n", file);
    fputs("\"sm_1\"]}", file);
    fclose(file);
    run_manifest(file_path);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"an entry of 5 GB", try_entry},
             {"an archive of 5 GB", try_archive},
             {"a tuning file of 5 GB", try_tuning},
             {"a tuning file of 1 MB", try_long_tuning},
             {"a compiler of 5 GB, and a FIFO", try_compiler},
             {"specs of 16 MB", try_spec},
             {"manifests without an end, nested, long", try_manifest}};

enum { CASES = sizeof cases / sizeof cases[0] };

/* ---- limits ---------------------------------------------------------------------------------- */

#ifndef TORTURE_SANITIZED
static size_t address_space(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}
#endif

static void limit(void) {
#ifndef TORTURE_SANITIZED /* a sanitizer's shadow memory exceeds any limit, and it is slow */
    struct rlimit memory = {0}, processor = {CPU_SECONDS, CPU_SECONDS};
    memory.rlim_cur = memory.rlim_max = address_space() + MEMORY_BYTES;
    REQUIRE(setrlimit(RLIMIT_AS, &memory) == 0);
    REQUIRE(setrlimit(RLIMIT_CPU, &processor) == 0);
    alarm(30);
#else
    alarm(300);
#endif
}

int row_hostile(const struct arguments *arguments) {
    long slowest_limit = argument(arguments, "limit_ms", SLOWEST_MS);
#ifdef TORTURE_SANITIZED /* with strict_string_checks each call reads the whole string */
    slowest_limit *= 20;
#endif
    double slowest = 0;

    scratch = scratch_folder(true);
    tool = argument_text(arguments, "tool");
    (void)fakes_nvrtc();
    (void)kernel_hash(0);
    for (int i = 0; i < CASES; i++) {
        snprintf(folder, sizeof folder, "%.4000s/cache-%d", scratch, i);
        snprintf(file_path, sizeof file_path, "%.4000s/file-%d", scratch, i);
        double begin = now_seconds();
        fflush(NULL);
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            limit();
            cases[i].run();
            _exit(0);
        }
        expect_success(child);
        double taken = 1e3 * (now_seconds() - begin);
        printf("%s: %.0f ms\n", cases[i].name, taken);
        slowest = taken > slowest ? taken : slowest;
        REQUIRE(taken < (double)slowest_limit);
    }
    figure("%d kinds of hostile input (5 GB: entries, archives, tuning files, "
           " compilers, manifests, specs) within 64 MB and %d s of processor time each; the "
           "slowest took %.0f ms",
           CASES, CPU_SECONDS, slowest);
    return 0;
}
