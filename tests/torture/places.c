/*
 * An entry that was damaged, at every byte and every bit; and whatever else may lie where an entry
 * or the cache's folder belongs. The kernel is right each time, made anew, and the entry is healed
 * where that is ours to do.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

enum { NOBODY = 65534 };

static char folder[TORTURE_PATH], entry[2 * TORTURE_PATH];

static void find_entry(void) {
    char hex[33];
    kernel_key(0, hex);
    REQUIRE(find_by_prefix(folder, hex, entry) == 1);
}

static uint64_t compiled(const smelt_context *context) {
    smelt_context_counters counters = SMELT_CONTEXT_COUNTERS_INIT;
    REQUIRE(smelt_context_get_counters(context, &counters) == SMELT_OK);
    return counters.compiled;
}

static void write_entry(const unsigned char *bytes, size_t count) {
    int file = open(entry, O_WRONLY | O_TRUNC);
    REQUIRE(file >= 0 && write(file, bytes, count) == (ssize_t)count);
    close(file);
}

/* What lies there now must be compiled anew, stored, and found the next time. */
static void expect_healed(smelt_context *context) {
    uint64_t before = compiled(context);
    REQUIRE(obtain(context, 0) == RIGHT);
    REQUIRE(compiled(context) == before + 1);
    REQUIRE(obtain(context, 0) == RIGHT);
    REQUIRE(compiled(context) == before + 1);
}

int row_damage(const struct arguments *arguments) {
    size_t stride = (size_t)argument(arguments, "stride", 1), flips = 0, cuts = 0;
    unsigned char bytes[4096];

    snprintf(folder, sizeof folder, "%.4000s/cache", scratch_folder(true));
    smelt_context_options options = torture_options(folder, NULL);
    smelt_context *context = torture_context(&options);
    (void)fakes_nvrtc();
    REQUIRE(obtain(context, 0) == RIGHT);
    find_entry();
    int file = open(entry, O_RDONLY);
    ssize_t count = read(file, bytes, sizeof bytes);
    close(file);
    REQUIRE(count > 600 && count < (ssize_t)sizeof bytes);
    for (size_t end = 0; end < (size_t)count; end += stride, cuts++) {
        write_entry(bytes, end);
        expect_healed(context);
    }
    for (size_t bit = 0; bit < 8 * (size_t)count; bit += stride, flips++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        write_entry(bytes, (size_t)count);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        expect_healed(context);
    }
    REQUIRE(cache_errors(context) == cuts + flips);
    smelt_context_destroy(&context);
    figure("an entry of %zd bytes cut off at %zu places and with %zu bits flipped, one at a time: "
           "always a miss, compiled anew and healed",
           count, cuts, flips);
    return 0;
}

/* ---- in place of an entry -------------------------------------------------------------------- */

static void make_link(void) {
    char aside[2 * TORTURE_PATH + 8];
    snprintf(aside, sizeof aside, "%s.aside", entry);
    REQUIRE(rename(entry, aside) == 0 && symlink(aside, entry) == 0);
}

static void make_fifo(void) {
    REQUIRE(unlink(entry) == 0 && mkfifo(entry, 0600) == 0);
}

static void make_folder(void) {
    REQUIRE(unlink(entry) == 0 && mkdir(entry, 0700) == 0);
}

static void make_open_to_all(void) {
    REQUIRE(chmod(entry, 0666) == 0);
}

static void make_anothers(void) {
    REQUIRE(geteuid() == 0 ? chown(entry, NOBODY, NOBODY) == 0 : truncate(entry, 0) == 0);
}

static long run_entries(void) {
    static void (*const make[])(void) = {make_link, make_fifo, make_folder, make_open_to_all,
                                         make_anothers};
    struct notes notes = {0};
    smelt_context_options options = torture_options(folder, &notes);
    smelt_context *context = torture_context(&options);
    long count = sizeof make / sizeof make[0];

    REQUIRE(obtain(context, 0) == RIGHT);
    find_entry();
    for (int i = 0; i < count; i++) {
        int before = notes.warnings;
        make[i]();
        expect_healed(context);
        REQUIRE(notes.warnings > before);
    }
    smelt_context_destroy(&context);
    return count;
}

/* ---- in place of the folder ------------------------------------------------------------------ */

/* One warning, the right kernels, and nothing written there. */
static void expect_bypassed(const char *place, const char *word) {
    struct notes notes = {0};
    smelt_context_options options = torture_options(place, &notes);
    options.cache_lock = SMELT_CACHE_LOCK_LOCAL; /* a lock file there could not be had either */
    smelt_context *context = torture_context(&options);
    for (int n = 0; n < 3; n++)
        REQUIRE(obtain(context, n) == RIGHT);
    smelt_context_destroy(&context);
    if (notes.warnings != 1 || !strstr(notes.last, word))
        fprintf(stderr, "%s: %d warnings, the last: %s\n", place, notes.warnings, notes.last);
    REQUIRE(notes.warnings == 1 && strstr(notes.last, word));
    REQUIRE(count_files(place, ".smelt") <= 0);
}

static void make_place(const char *scratch, const char *name, char place[TORTURE_PATH]) {
    snprintf(place, TORTURE_PATH, "%.4000s/%s", scratch, name);
}

/* As a user who may not write: root may everywhere, by CAP_DAC_OVERRIDE. Another user would do
 * only where others may read this build, which lies in a folder of mode 0700 as often as not. */
static void use_unwritable(const char *place) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    REQUIRE(syscall(SYS_capget, &header, data) == 0);
    data[CAP_TO_INDEX(CAP_DAC_OVERRIDE)].effective &= ~CAP_TO_MASK(CAP_DAC_OVERRIDE);
    REQUIRE(syscall(SYS_capset, &header, data) == 0);
    char probe[TORTURE_PATH];
    make_place(place, "probe", probe);
    REQUIRE(mkdir(probe, 0700) != 0 && errno == EACCES);
    expect_bypassed(place, "Permission denied");
}

static void use_no_home(void) {
    struct notes notes = {0};
    smelt_context_options options = torture_options(NULL, &notes);
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("SMELT_CACHE_DIR");
    smelt_context *context = torture_context(&options);
    REQUIRE(obtain(context, 0) == RIGHT);
    REQUIRE(notes.warnings == 1 && strstr(notes.last, "HOME"));
    smelt_context_destroy(&context);
}

static void in_child(void (*body)(const char *), void (*bare)(void), const char *place) {
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (body)
            body(place);
        else
            bare();
        _exit(0);
    }
    expect_success(child);
}

static long run_folders(const char *scratch) {
    char place[TORTURE_PATH], target[TORTURE_PATH];
    int file;

    make_place(scratch, "open", place);
    REQUIRE(mkdir(place, 0700) == 0 && chmod(place, 0777) == 0);
    expect_bypassed(place, "writable by everyone");
    make_place(scratch, "file", place);
    file = open(place, O_WRONLY | O_CREAT, 0600);
    close(file);
    expect_bypassed(place, "Not a directory");
    make_place(scratch, "fifo", place);
    REQUIRE(mkfifo(place, 0600) == 0);
    expect_bypassed(place, "Not a directory");
    /* A link that somebody else may have put where everyone can write. */
    make_place(scratch, "shared", target);
    REQUIRE(mkdir(target, 0700) == 0 && chmod(target, 01777) == 0);
    make_place(scratch, "real", target);
    REQUIRE(mkdir(target, 0700) == 0);
    make_place(scratch, "shared/link", place);
    REQUIRE(symlink(target, place) == 0);
    expect_bypassed(place, "symbolic link");
    make_place(scratch, "readonly", place);
    REQUIRE(mkdir(place, 0755) == 0 && chmod(place, 0555) == 0 && chmod(scratch, 0755) == 0);
    in_child(use_unwritable, NULL, place);
    in_child(NULL, use_no_home, NULL);
    if (geteuid() != 0)
        return 6;
    make_place(scratch, "other", place);
    REQUIRE(mkdir(place, 0755) == 0 && chown(place, NOBODY, NOBODY) == 0);
    expect_bypassed(place, "another user");
    return 7;
}

int row_places(const struct arguments *arguments) {
    const char *scratch = scratch_folder(true);

    (void)arguments;
    (void)fakes_nvrtc();
    for (int n = 0; n < 3; n++)
        (void)kernel_hash(n);
    alarm(60); /* a FIFO that blocks must not hang the run */
    snprintf(folder, sizeof folder, "%.4000s/cache", scratch);
    long entries = run_entries(), folders = run_folders(scratch);
    figure(
        "%ld things in place of an entry (link, FIFO, folder, 0666, another's): healed; %ld in "
        "place of the folder (0777, file, FIFO, planted link, read-only, no HOME, another's): one "
        "warning each, right kernels, nothing blocked",
        entries, folders);
    return 0;
}
