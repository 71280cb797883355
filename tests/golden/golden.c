/*
 * Goldens: the emitted text of a dozen specs, kept under review.
 *
 *     golden FOLDER           compares; shows the first line that differs of each
 *     golden FOLDER --renew   writes the text of today
 *
 * FOLDER holds list.txt and the .cu files it names. The list may not be empty, every file it names
 * must be there, and no other.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/family.h"
#include "codegen/template/engine.h"

enum { MAX_GOLDENS = 64 };

struct golden {
    char name[64], arch[16], spec[SMELT__SPEC_TEXT];
};

/* Returns the number of entries, or -1 with a message printed. */
static int read_list(const char *folder, struct golden goldens[MAX_GOLDENS]) {
    char path[4096], line[512];
    int count = 0, number = 0;
    snprintf(path, sizeof path, "%s/list.txt", folder);
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    while (count >= 0 && fgets(line, sizeof line, file)) {
        number++;
        if (line[0] == '#' || line[strspn(line, " \n")] == '\0')
            continue;
        struct golden *golden = &goldens[count];
        if (count == MAX_GOLDENS ||
            sscanf(line, "%63s %15s %255s", golden->name, golden->arch, golden->spec) != 3) {
            fprintf(stderr, "%s:%d: wants a name, an architecture and a spec\n", path, number);
            count = -1;
        } else {
            count++;
        }
    }
    fclose(file);
    if (count == 0)
        fprintf(stderr, "%s: the list is empty\n", path);
    return count > 0 ? count : -1;
}

/* The source of today, freed by the caller, or NULL with a message printed. */
static char *emit(const struct golden *golden) {
    struct smelt__spec spec;
    struct smelt__plan plan;
    struct smelt__message message = {0};
    struct smelt__text text = {0};
    const struct smelt__arch *arch = smelt__arch_find(golden->arch, &message);
    if (!arch || smelt__spec_parse(golden->spec, &spec, &message) ||
        smelt__plan_make(&spec, arch, &plan, &message) ||
        smelt__source_emit(&plan, &text, &message)) {
        fprintf(stderr, "%s: %s\n", golden->name, message.text);
        smelt__text_free(&text);
        return NULL;
    }
    return smelt__text_release(&text);
}

static char *read_file(const char *path) {
    struct smelt__text text = {0};
    char piece[4096];
    size_t got;
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return NULL;
    }
    while ((got = fread(piece, 1, sizeof piece, file)) > 0)
        smelt__text_append(&text, piece, got);
    fclose(file);
    return smelt__text_release(&text);
}

static int write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    int failed = !file || fputs(text, file) < 0;
    if (file)
        failed |= fclose(file) != 0;
    if (failed)
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return failed ? -1 : 0;
}

/* 0 when equal; else prints the first line that differs. */
static int compare(const char *path, const char *golden, const char *emitted) {
    for (int line = 1; *golden || *emitted; line++) {
        size_t golden_length = strcspn(golden, "\n"), emitted_length = strcspn(emitted, "\n");
        int golden_ends = golden[golden_length] == '\0', ends = emitted[emitted_length] == '\0';
        if (golden_length != emitted_length || golden_ends != ends ||
            memcmp(golden, emitted, golden_length) != 0) {
            fprintf(stderr, "%s:%d: differs\n  golden:  %.*s\n  emitted: %.*s\n", path, line,
                    (int)golden_length, golden, (int)emitted_length, emitted);
            return -1;
        }
        golden += golden_length + !golden_ends;
        emitted += emitted_length + !ends;
    }
    return 0;
}

static int check_one(const char *folder, const struct golden *golden, int renew) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.cu", folder, golden->name);
    char *emitted = emit(golden), *kept = NULL;
    int status = -1;
    if (!emitted)
        goto out;
    if (renew) {
        status = write_file(path, emitted);
        goto out;
    }
    kept = read_file(path);
    if (kept)
        status = compare(path, kept, emitted);
out:
    free(kept);
    free(emitted);
    return status;
}

static int is_listed(const struct golden *goldens, int count, const char *file) {
    for (int i = 0; i < count; i++) {
        size_t length = strlen(goldens[i].name);
        if (strncmp(file, goldens[i].name, length) == 0 && strcmp(file + length, ".cu") == 0)
            return 1;
    }
    return 0;
}

static int is_golden(const char *file) {
    size_t length = strlen(file);
    return length >= 3 && strcmp(file + length - 3, ".cu") == 0;
}

/* Looks for goldens that the list does not name: an error, or removed when renewing. Returns how
 * many there are. */
static int check_strays(const char *folder, const struct golden *goldens, int count, int renew) {
    int strays = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        if (!is_golden(entry->d_name) || is_listed(goldens, count, entry->d_name))
            continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (renew && remove(path) == 0)
            continue;
        fprintf(stderr, "%s: list.txt does not name it\n", path);
        strays++;
    }
    if (directory)
        closedir(directory);
    return strays;
}

int main(int argc, char **argv) {
    static struct golden goldens[MAX_GOLDENS];
    int renew = argc == 3 && strcmp(argv[2], "--renew") == 0;
    if (argc != 2 && !renew) {
        fprintf(stderr, "usage: golden FOLDER [--renew]\n");
        return 2;
    }
    int count = read_list(argv[1], goldens);
    if (count < 0)
        return 1;
    int failures = check_strays(argv[1], goldens, count, renew);
    for (int i = 0; i < count; i++)
        failures += check_one(argv[1], &goldens[i], renew) != 0;
    printf("%d goldens, %d %s\n", count, failures, renew ? "could not be renewed" : "differ");
    if (failures && !renew)
        fprintf(stderr, "If the change is meant: ninja -C build renew-goldens, and review it.\n");
    return failures ? 1 : 0;
}
