/* See lines.h. */
#include "emu/machine/lines.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT = 512, MAX_SITES = 128, SHOWN_FUNCTIONS = 4 };

struct line {
    site at;
    char text[TEXT];
};

struct lines {
    size_t count;
    struct line lines[MAX_SITES];
};

/* Starts addr2line with this signal mask; its output comes from the returned stream. */
static FILE *start(const struct kernel *kernel, const site *sites, size_t count,
                   const sigset_t *signals, pid_t *child) {
    char addresses[MAX_SITES][24];
    char *arguments[MAX_SITES + 8] = {(char *)"addr2line", (char *)"-a",
                                      (char *)"-i",        (char *)"-f",
                                      (char *)"-e",        (char *)(uintptr_t)kernel->object};
    int ends[2];
    for (size_t i = 0; i < count; i++) {
        /* A site is a return address; the call precedes it. */
        snprintf(addresses[i], sizeof addresses[i], "0x%x", sites[i] - 1);
        arguments[6 + i] = addresses[i];
    }
    if (pipe2(ends, O_CLOEXEC))
        return NULL;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, signals);
    extern char **environ;
    int failed = posix_spawnp(child, "addr2line", &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    FILE *output = failed ? NULL : fdopen(ends[0], "r");
    if (!output)
        close(ends[0]);
    return output;
}

/* Shortens a path: from templates/ or tests/ on, else the file's name. */
static const char *shorten(const char *path) {
    const char *at = strstr(path, "templates/");
    if (!at)
        at = strstr(path, "tests/");
    if (!at)
        at = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    return at;
}

/* Adds one frame, innermost first. */
static void add_frame(struct line *line, int depth, const char *function, char *location) {
    size_t used = strlen(line->text);
    location[strcspn(location, " \n")] = '\0'; /* drops "(discriminator 3)" */
    if (depth == 0)
        snprintf(line->text, TEXT, "(%.200s in %.200s", shorten(location), function);
    else if (depth < SHOWN_FUNCTIONS)
        snprintf(line->text + used, TEXT - used, ", in %s", function);
}

static void parse(struct lines *lines, FILE *output) {
    char function[256], location[1024];
    struct line *line = NULL;
    int depth = 0;
    while (fgets(function, sizeof function, output)) {
        if (strncmp(function, "0x", 2) == 0) {
            line = lines->count < MAX_SITES ? &lines->lines[lines->count++] : NULL;
            if (line)
                line->at = (site)strtoul(function, NULL, 16) + 1;
            depth = 0;
            continue;
        }
        function[strcspn(function, "\n")] = '\0';
        if (!fgets(location, sizeof location, output))
            break;
        bool kernel = strncmp(function, "smelt_", 6) == 0 && depth > 0;
        if (line && !kernel && strncmp(location, "??", 2) != 0)
            add_frame(line, depth++, function, location);
    }
}

struct lines *lines_resolve(const struct kernel *kernel, const site *sites, size_t count) {
    struct lines *lines = calloc(1, sizeof *lines);
    pid_t child = 0;
    if (!lines || !kernel || count == 0)
        return lines;
    /* A signal handler of the program would interrupt the reads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    FILE *output = start(kernel, sites, count < MAX_SITES ? count : MAX_SITES, &before, &child);
    if (output) {
        parse(lines, output);
        fclose(output);
    }
    if (child)
        waitpid(child, NULL, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (size_t i = 0; i < lines->count; i++)
        if (lines->lines[i].text[0])
            strncat(lines->lines[i].text, ")", TEXT - strlen(lines->lines[i].text) - 1);
    return lines;
}

const char *lines_find(const struct lines *lines, site at) {
    static char text[64];
    for (size_t i = 0; lines && at && i < lines->count; i++)
        if (lines->lines[i].at == at && lines->lines[i].text[0])
            return lines->lines[i].text;
    snprintf(text, sizeof text, at ? "(at +0x%x of the compiled kernel)" : "(location unknown)",
             at);
    return text;
}

void lines_free(struct lines *lines) {
    free(lines);
}

bool emu_same_line(site a, site b) {
    enum { REMEMBERED = 64 };
    static struct {
        u32 module;
        site a, b;
        bool same;
    } known[REMEMBERED];
    size_t index = (a * 31u + b) % REMEMBERED;
    if (known[index].module != emu.kernel->serial || known[index].a != a || known[index].b != b) {
        const site sites[] = {a, b};
        struct lines *lines = lines_resolve(emu.kernel, sites, 2);
        char first[TEXT];
        snprintf(first, sizeof first, "%s", lines_find(lines, a));
        known[index].module = emu.kernel->serial;
        known[index].a = a;
        known[index].b = b;
        known[index].same = strcmp(first, lines_find(lines, b)) == 0;
        lines_free(lines);
    }
    return known[index].same;
}
