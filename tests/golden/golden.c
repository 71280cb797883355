/*
 * Goldens: the emitted text of chosen specs, kept under review.
 *
 *     golden FOLDER           compares; shows the first line that differs of each
 *     golden FOLDER --renew   writes the text of today
 *
 * FOLDER holds a list for each family, FAMILY.txt, of lines "NAME ARCHITECTURE SPEC". The first
 * spec of a template is kept complete, as NAME.cu; the others of that template are kept as what
 * they differ in from it, as NAME.diff (difference.h has the format). So a change of a template
 * shows once, and still no byte of any listed source changes unseen: the complete one is compared
 * byte for byte, the others with their exact difference from it.
 *
 * Every kernel family must have its list, every file that the lists ask for must be there, and no
 * other.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/family.h"
#include "codegen/template/engine.h"
#include "difference.h"

enum { MAX_GOLDENS = 256 };

struct golden {
    char name[64], arch[16], spec[SMELT__SPEC_TEXT];
    char template_name[64];
    char *source;              /* of today */
    const struct golden *base; /* of the same template and kept complete; NULL: this one is */
};

static struct golden goldens[MAX_GOLDENS];
static int golden_count;

static int ends_in(const char *file, const char *end) {
    size_t length = strlen(file), end_length = strlen(end);
    return length >= end_length && strcmp(file + length - end_length, end) == 0;
}

/* 0, or -1 with a message printed. */
static int read_list(const char *folder, const char *list) {
    char path[4096], line[512];
    int number = 0, before = golden_count, status = 0;
    snprintf(path, sizeof path, "%s/%s", folder, list);
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return -1;
    }
    while (status == 0 && fgets(line, sizeof line, file)) {
        number++;
        if (line[0] == '#' || line[strspn(line, " \n")] == '\0')
            continue;
        if (golden_count == MAX_GOLDENS ||
            sscanf(line, "%63s %15s %255s", goldens[golden_count].name, goldens[golden_count].arch,
                   goldens[golden_count].spec) != 3) {
            fprintf(stderr, "%s:%d: wants a name, an architecture and a spec\n", path, number);
            status = -1;
        } else {
            golden_count++;
        }
    }
    fclose(file);
    if (status == 0 && golden_count == before) {
        fprintf(stderr, "%s: the list is empty\n", path);
        status = -1;
    }
    return status;
}

static int is_list(const struct dirent *entry) {
    return ends_in(entry->d_name, ".txt");
}

/* Every list of the folder. 0, or -1 with a message printed. */
static int read_lists(const char *folder) {
    struct dirent **lists = NULL;
    int count = scandir(folder, &lists, is_list, alphasort), status = 0;
    if (count <= 0) {
        fprintf(stderr, "%s: %s\n", folder, count < 0 ? strerror(errno) : "no list (*.txt)");
        return -1;
    }
    for (int i = 0; i < count; i++) {
        if (status == 0)
            status = read_list(folder, lists[i]->d_name);
        free(lists[i]);
    }
    free(lists);
    return status;
}

/* Counts the kernel families that no list names, each with a message. */
static int check_families(void) {
    int missing = 0;
    const struct smelt__family *family;
    for (int i = 0; (family = smelt__family_at(i)) != NULL; i++) {
        size_t length = strlen(family->schema.name);
        int listed = smelt__is_operator(family); /* an operator is no source */
        for (int k = 0; k < golden_count && !listed; k++)
            listed = strncmp(goldens[k].spec, family->schema.name, length) == 0 &&
                     (goldens[k].spec[length] == ':' || goldens[k].spec[length] == '\0');
        if (!listed) {
            fprintf(stderr, "%s: a family without goldens: write %s.txt\n", family->schema.name,
                    family->schema.name);
            missing++;
        }
    }
    return missing;
}

/* Emits the source of today and finds what it is kept as. 0, or -1 with a message printed. */
static int emit(struct golden *golden) {
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
        return -1;
    }
    snprintf(golden->template_name, sizeof golden->template_name, "%s", plan.template_name);
    for (const struct golden *other = goldens; other < golden && !golden->base; other++)
        if (other->source && strcmp(other->template_name, golden->template_name) == 0)
            golden->base = other;
    golden->source = smelt__text_release(&text);
    return golden->source ? 0 : -1;
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

/* What today's file holds, freed by the caller: a difference is tried out, that it leads back to
 * the source. NULL with a message printed. */
static char *file_text(const struct golden *golden) {
    struct smelt__text text = {0}, back = {0};
    if (!golden->base) {
        smelt__text_append_string(&text, golden->source);
        return smelt__text_release(&text);
    }
    smelt__text_print(&text, "# %s on %s is as %s.cu but for these lines\n", golden->spec,
                      golden->arch, golden->base->name);
    size_t head = text.length;
    int failed = difference_write(golden->base->source, golden->source, &text) || !text.data ||
                 difference_apply(golden->base->source, text.data + head, &back) || !back.data ||
                 strcmp(back.data, golden->source) != 0;
    smelt__text_free(&back);
    if (failed) {
        fprintf(stderr, "%s: the differences from %s do not lead back to it\n", golden->name,
                golden->base->name);
        smelt__text_free(&text);
        return NULL;
    }
    return smelt__text_release(&text);
}

static const char *ending(const struct golden *golden) {
    return golden->base ? ".diff" : ".cu";
}

static int check_one(const char *folder, struct golden *golden, int renew) {
    char path[4096];
    char *text = NULL, *kept = NULL;
    int status = -1;
    if (emit(golden))
        return -1;
    snprintf(path, sizeof path, "%s/%s%s", folder, golden->name, ending(golden));
    text = file_text(golden);
    if (!text)
        goto out;
    if (renew) {
        status = write_file(path, text);
        goto out;
    }
    kept = read_file(path);
    if (kept)
        status = compare(path, kept, text);
out:
    free(kept);
    free(text);
    return status;
}

static int is_asked_for(const char *file) {
    for (int i = 0; i < golden_count; i++) {
        size_t length = strlen(goldens[i].name);
        if (strncmp(file, goldens[i].name, length) == 0 &&
            strcmp(file + length, ending(&goldens[i])) == 0)
            return 1;
    }
    return 0;
}

/* Looks for goldens that no list asks for: an error, or removed when renewing. Returns how many
 * there are. */
static int check_strays(const char *folder, int renew) {
    int strays = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        const char *file = entry->d_name;
        if ((!ends_in(file, ".cu") && !ends_in(file, ".diff")) || is_asked_for(file))
            continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, file);
        if (renew && remove(path) == 0)
            continue;
        fprintf(stderr, "%s: no list asks for it\n", path);
        strays++;
    }
    if (directory)
        closedir(directory);
    return strays;
}

int main(int argc, char **argv) {
    int renew = argc == 3 && strcmp(argv[2], "--renew") == 0;
    if (argc != 2 && !renew) {
        fprintf(stderr, "usage: golden FOLDER [--renew]\n");
        return 2;
    }
    if (read_lists(argv[1]))
        return 1;
    int failures = check_families();
    for (int i = 0; i < golden_count; i++)
        failures += check_one(argv[1], &goldens[i], renew) != 0;
    /* After a failure it is not known what every spec is kept as: nothing is removed then. */
    failures += check_strays(argv[1], renew && failures == 0);
    printf("%d goldens, %d %s\n", golden_count, failures,
           renew ? "could not be renewed" : "differ");
    if (failures && !renew)
        fprintf(stderr, "If the change is meant: ninja -C build renew-goldens, and review it.\n");
    for (int i = 0; i < golden_count; i++)
        free(goldens[i].source);
    return failures ? 1 : 0;
}
