/*
 * Tests that the emulator reports known defects: each small kernel of defects/ runs under several
 * schedules. Under each one it must be reported as its heading says, at the marked line; a kernel
 * without a defect must not be reported.
 *
 *     defects [--name TEXT] FILE...      with SMELT_CUDA and SMELT_NVRTC naming the emulator
 *
 * A case begins with
 *
 *     //! NAME: KIND[/KIND...], THREADS threads[, MANY of N][; WORDS]
 *
 * KIND is a report's kind (several where the schedule decides), or `none`: a kernel without a
 * defect. WORDS stand in the report's text. MANY: `clusters of N` blocks, one of them; `grid of N`
 * blocks; `chain of N` launches, the second and later ones with PDL, of one block, two, and so on,
 * so that gridDim.x tells them apart. The line that ends in HERE is the one the report must name. The
 * text from a file's first //@use to its first case is part of each of its cases. A case without the
 * word KERNEL is the body of one. The
 * kernel's parameter `data` is the address of 4096 ints, 0, 1, 2, ...; its shared memory is 16 KB and of
 * two regions: LEFT, 8192 bytes from 0 on, and RIGHT, 8180 from 8192 on. Word 4000 of the data is
 * forbidden.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/template/engine.h"
#include "emulator.h"

enum { WORDS = 4096, SHARED = 16384, MOST_CASES = 160, FORBIDDEN_WORD = 4000 };

struct defect {
    char name[96], kind[64], words[96];
    int threads, cluster, chain, grid;
    char *text;
    const char *path;
    int line;   /* the file's line at which the text begins */
    int marked; /* line of the case's HERE, from 1; 0: none */
};

/* ---- reading the cases ----------------------------------------------------------------------- */

static void die(const char *path, int line, const char *what) {
    fprintf(stderr, "%s:%d: %s\n", path, line, what);
    exit(2);
}

/* "NAME: KIND, N threads[, clusters of N][, chain of N][, grid of N][; WORDS]" */
static void read_heading(struct defect *defect, const char *heading, const char *path) {
    char rest[256] = "";
    defect->cluster = 1;
    if (sscanf(heading, "%95[^:]: %63[a-z/], %d threads%255[^\n]", defect->name, defect->kind,
               &defect->threads, rest) < 3)
        die(path, defect->line, "a heading is `//! NAME: KIND, N threads ...`");
    defect->chain = 1;
    sscanf(rest, ", clusters of %d", &defect->cluster);
    sscanf(rest, ", chain of %d", &defect->chain);
    defect->grid = defect->cluster;
    sscanf(rest, ", grid of %d", &defect->grid);
    const char *words = strstr(rest, "; ");
    snprintf(defect->words, sizeof defect->words, "%.95s", words ? words + 2 : "");
}

static void append(char **text, const char *more, const char *path, int line) {
    const size_t used = *text ? strlen(*text) : 0;
    *text = realloc(*text, used + strlen(more) + 1);
    if (!*text)
        die(path, line, "out of memory");
    strcpy(*text + used, more);
}

/* Makes a kernel from the shared text and a case's text, which is its body. Line numbers stay the
 * same. */
static void wrap(struct defect *defect, size_t shared) {
    char *body = strdup(defect->text + shared);
    if (body && !strstr(body, "KERNEL")) {
        defect->text[shared] = '\0';
        append(&defect->text, "KERNEL void KERNEL_NAME(int *data) { ", defect->path, defect->line);
        append(&defect->text, body, defect->path, defect->line);
        append(&defect->text, "}\n", defect->path, defect->line);
    }
    free(body);
}

/* Adds a file's cases to the `count` existing ones; returns the new number. */
static int read_cases(const char *path, struct defect *defects, int count) {
    char *line = NULL, *shared = NULL; /* the text before the first case */
    size_t room = 0;
    int number = 0, shared_lines = 0;
    const int before = count;
    FILE *file = fopen(path, "r");
    if (!file)
        die(path, 0, "cannot be read");
    while (getline(&line, &room, file) > 0) {
        struct defect *defect = count > before ? &defects[count - 1] : NULL;
        number++;
        if (strncmp(line, "//! ", 4) == 0) {
            if (count == MOST_CASES)
                die(path, number, "too many cases");
            defect = &defects[count++];
            defect->path = path;
            defect->line = number;
            read_heading(defect, line + 4, path);
            append(&defect->text, shared ? shared : "", path, number);
            continue;
        }
        if (!defect && !shared && strncmp(line, "//@use ", 7) != 0)
            continue; /* the file's comment */
        append(defect ? &defect->text : &shared, line, path, number);
        if (!defect)
            shared_lines++;
        else if (strstr(line, "/* HERE */"))
            defect->marked = shared_lines + number - defect->line;
    }
    for (int i = before; i < count; i++)
        wrap(&defects[i], shared ? strlen(shared) : 0);
    free(line);
    free(shared);
    fclose(file);
    if (count == before)
        die(path, number, "it has no case");
    return count;
}

/* ---- source ---------------------------------------------------------------------------------- */

static int lookup(const void *user, const char *name, int *found) {
    (void)user;
    *found = strcmp(name, "STAGES") == 0; /* the number of waits in cp_async.cuh */
    return 4;
}

static void emit(const struct defect *defect, struct smelt__text *out) {
    struct smelt__message message = {0};
    struct smelt__scope scope = {lookup, NULL};
    const struct smelt__template *const embedded = smelt__templates_embedded(&message);
    struct smelt__template *all = calloc((size_t)smelt__template_count + 1, sizeof *all);
    if (!all || !embedded)
        exit(2);
    memcpy(all, embedded, (size_t)smelt__template_count * sizeof *all);
    all[smelt__template_count] = (struct smelt__template){
        .name = "defect.cu", .text = defect->text, .length = strlen(defect->text)};
    smelt__text_append_string(out, "/*\n * shared memory (offset, bytes)\n"
                                   " *   LEFT_OFFSET 0 8192 one half\n"
                                   " *   RIGHT_OFFSET 8192 8180 the other\n * launch\n */\n"
                                   "#define KERNEL_NAME smelt_defect\n");
    if (smelt__parts_emit(all, smelt__template_count + 1, "defect.cu", &scope, out, &message)) {
        fprintf(stderr, "%s: %s\n", defect->name, message.text);
        exit(2);
    }
    free(all);
}

/* Loads the kernel; exits if it does not compile. */
static CUmodule load(const struct defect *defect) {
    struct smelt__text text = {0};
    emit(defect, &text);
    const CUmodule module = load_kernel(text.data, "defect.cu", "smelt_defect");
    if (!module) {
        fprintf(stderr, "%s does not load: %s\n", defect->name, smelt_last_error());
        exit(2);
    }
    smelt__text_free(&text);
    return module;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Launch number `number` of the chain; the second and later ones are launched with PDL. */
static CUresult launch_one(CUfunction function, const struct defect *defect, CUdeviceptr data,
                           int number) {
    CUlaunchAttribute attributes[] = {{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                       .value.clusterDim = {(unsigned)defect->cluster, 1, 1}},
                                      {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                       .value.programmaticStreamSerializationAllowed = number > 0}};
    CUlaunchConfig config = {.gridDimX = (unsigned)(defect->grid * (number + 1)),
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = (unsigned)defect->threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = SHARED,
                             .attrs = attributes,
                             .numAttrs = 2};
    void *parameters[] = {&data};
    return driver->cuLaunchKernelEx(&config, function, parameters, NULL);
}

/* Launches the chain and reads its results. */
static CUresult launch(CUmodule module, const struct defect *defect, CUdeviceptr data) {
    CUfunction function;
    CUresult result = driver->cuModuleGetFunction(&function, module, "smelt_defect");
    for (int i = 0; i < defect->chain && result == CUDA_SUCCESS; i++)
        result = launch_one(function, defect, data, i);
    int word;
    return result == CUDA_SUCCESS ? driver->cuMemcpyDtoH(&word, data, sizeof word) : result;
}

/* Whether `name` is one of "kind/kind/...". */
static int is_among(const char *name, const char *kinds) {
    size_t length = strlen(name);
    for (const char *at = strstr(kinds, name); at; at = strstr(at + 1, name))
        if ((at == kinds || at[-1] == '/') && (at[length] == '\0' || at[length] == '/'))
            return 1;
    return 0;
}

/* Whether the reports agree with the heading; prints differences. */
static int verify(const struct defect *defect, CUresult result, const char *schedule) {
    char place[32];
    int none = strcmp(defect->kind, "none") == 0;
    if (none && result == CUDA_SUCCESS)
        return 1;
    snprintf(place, sizeof place, "defect.cu:%d ", defect->marked);
    for (size_t i = 0; i < emulator->report_count() && !none; i++) {
        struct emu_report report = emulator->report(i);
        if (is_among(emulator->kind_name(report.kind), defect->kind) &&
            strstr(report.text, defect->words) && (!defect->marked || strstr(report.text, place)))
            return 1;
    }
    printf("FAILED %s:%d %s, %s: wants %s%s%s%s%s, got\n", defect->path, defect->line, defect->name,
           schedule, defect->kind, *defect->words ? ", \"" : "", defect->words,
           *defect->words ? "\"" : "", defect->marked ? " at its marked line" : "");
    for (size_t i = 0; i < emulator->report_count(); i++)
        printf("    %s: %s\n", emulator->kind_name(emulator->report(i).kind),
               emulator->report(i).text);
    if (emulator->report_count() == 0)
        printf("    nothing\n");
    return 0;
}

/* Time limit of a launch; one case has an endless loop. Sanitizers are ten times slower. */
#ifdef __SANITIZE_ADDRESS__
static const double LONGEST = 5;
#else
static const double LONGEST = 0.5;
#endif

static int run(const struct defect *defect) {
    static const char *const names[] = {"late, ascending", "early, descending", "random, shuffled"};
    CUmodule module = load(defect);
    int good = 1;
    for (int i = 0; i < 3 && good; i++) {
        struct emu_settings settings = {.size = sizeof settings,
                                        .timing = (enum emu_timing)i,
                                        .order = (enum emu_order)i,
                                        .seed = (uint64_t)i,
                                        .seconds = LONGEST};
        static int words[WORDS];
        CUdeviceptr data;
        for (int w = 0; w < WORDS; w++)
            words[w] = w;
        emulator->configure(&settings);
        emulator->clear();
        if (driver->cuMemAlloc(&data, sizeof words) ||
            driver->cuMemcpyHtoD(data, words, sizeof words))
            exit(2);
        emulator->name(data, "the data");
        emulator->forbid(data + FORBIDDEN_WORD * sizeof(int), 4 * sizeof(int));
        good = verify(defect, launch(module, defect, data), names[i]);
        driver->cuMemFree(data);
    }
    driver->cuModuleUnload(module);
    return good;
}

int main(int argc, char **argv) {
    static struct defect defects[MOST_CASES];
    const char *name = argc > 2 && strcmp(argv[1], "--name") == 0 ? argv[2] : NULL;
    const int first = name ? 3 : 1;
    if (argc <= first) {
        fprintf(stderr, "usage: defects [--name TEXT] FILE...\n");
        return 2;
    }
    if (open_emulator()) {
        fprintf(stderr, "SMELT_CUDA and SMELT_NVRTC name no emulator\n");
        return 2;
    }
    int count = 0, passed = 0, asked = 0;
    for (int i = first; i < argc; i++)
        count = read_cases(argv[i], defects, count);
    for (int i = 0; i < count; i++) {
        if (name && !strstr(defects[i].name, name))
            continue;
        asked++;
        passed += run(&defects[i]);
    }
    for (int i = 0; i < count; i++)
        free(defects[i].text);
    printf("%d passed, %d failed\n", passed, asked - passed);
    return asked == 0 || passed != asked;
}
