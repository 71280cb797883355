/* Folders, files, time and child processes, for tests with and without cmocka. */
#pragma once

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* Makes a folder in TMPDIR, or in /tmp if that path is too long, and puts its path into `path`. 0,
 * or -1. */
static inline int make_scratch(char *path, size_t size) {
    static const char name[] = "smelt-test-XXXXXX";
    const char *place = getenv("TMPDIR");
    if (!place || strlen(place) + sizeof name >= size)
        place = "/tmp";
    snprintf(path, size, "%s/%s", place, name);
    return mkdtemp(path) ? 0 : -1;
}

static inline int remove_item(const char *path, const struct stat *status, int type,
                              struct FTW *ftw) {
    (void)status, (void)type, (void)ftw;
    return remove(path);
}

/* Removes a folder and its contents. 0, or -1. */
static inline int remove_tree(const char *path) {
    return nftw(path, remove_item, 16, FTW_DEPTH | FTW_PHYS);
}

static struct {
    const char *part;
    int count;
} files_found;

static inline int count_item(const char *path, const struct stat *status, int type,
                             struct FTW *ftw) {
    (void)status;
    files_found.count += type != FTW_D && strstr(path + ftw->base, files_found.part);
    return 0;
}

/* The files of the tree whose names contain `part`; -1 without such a folder. */
static inline int count_files(const char *folder, const char *part) {
    files_found.part = part;
    files_found.count = 0;
    return nftw(folder, count_item, 16, FTW_PHYS) == 0 ? files_found.count : -1;
}

/* 0, or -1. */
static inline int write_text(const char *path, const char *text, mode_t mode) {
    FILE *file = fopen(path, "we");
    const int good = file && fputs(text, file) >= 0 && fchmod(fileno(file), mode) == 0;
    return file && fclose(file) == 0 && good ? 0 : -1;
}

static inline double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void pause_ms(double milliseconds) {
    struct timespec pause = {.tv_sec = (time_t)(milliseconds / 1000)};
    pause.tv_nsec = (long)(1e6 * (milliseconds - 1e3 * (double)pause.tv_sec));
    nanosleep(&pause, NULL);
}

/* Waits for a child: its exit status, or -1 if it was ended by a signal. */
static inline int exit_status(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
