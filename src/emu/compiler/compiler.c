/* Runs the C compiler: see compiler.h. */
#include "emu/compiler/compiler.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emu/callbacks.h"
#include "emu/compiler/objects.h"
#include "runtime/files.h"

enum {
    MAX_WORDS = 64, /* each in CC and in SMELT_EMU_CFLAGS */
    MAX_ARGUMENTS = 2 * MAX_WORDS + 64,
    MAX_COMMAND = 256, /* bytes of CC */
    MAX_FLAGS = 1024,  /* bytes of SMELT_EMU_CFLAGS */
    MAX_FOLDER = 232   /* bytes of SMELT_EMU_KEEP */
};

/* Instruments every plain access (thread) and the errors in CHECKS, which a GPU would not notice.
 * -O1, because -O0 makes four times as many accesses. -ffp-contract=off, because the templates
 * write fmaf where they mean it. */
#define CHECKS "bounds,object-size,shift,signed-integer-overflow,integer-divide-by-zero,alignment"
static const char *const options[] = {
    "-std=gnu11",
    "-O1",
    "-gdwarf-4",
    "-g1",               /* lines and inlining */
    "-fno-var-tracking", /* lines suffice; tracking variables takes half the compile time */
    "-fPIC",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-omit-frame-pointer",
    "-fno-optimize-sibling-calls",
    "-fsanitize=thread",
    "-fsanitize=" CHECKS,
    "-fno-sanitize-recover=" CHECKS,
};
#define WRAP(name) "-Wl,--wrap=__" name,
#define WRAP_ACCESS(name, bytes, write, aligned) WRAP("tsan_" #name)
#define WRAP_IGNORED(name) WRAP("tsan_" #name)
#define WRAP_MISUSE(name, kind, what) WRAP("ubsan_handle_" #name "_abort")
/* Direct the calls of the instrumented code to the emulator: callbacks.h. */
static const char *const link_options[] = {
    EMU_ACCESSES(WRAP_ACCESS) WRAP("tsan_read_range") WRAP("tsan_write_range") WRAP("tsan_memcpy")
        WRAP("tsan_memset") EMU_IGNORED(WRAP_IGNORED) EMU_MISUSES(WRAP_MISUSE)
            WRAP("ubsan_handle_type_mismatch_v1_abort")};
enum { LINK_OPTIONS = sizeof link_options / sizeof *link_options };
/* Options of one compiler; the first list that it accepts is used.
 *
 * gcc and clang: a call of an undeclared function is an error, which names the template's line. The memory
 * of an array is not reused after its scope has ended: the array stands for registers, which a wgmma in
 * flight may still read. Other warnings are off with clang; gcc's -w would turn off this error, too, and
 * translated kernels cause no other warning.
 *
 * gcc: passes that are slow and do little for code whose every access is a call are disabled: compile
 * time falls to three fifths and the object is as fast. */
#define UNDECLARED "-Werror=implicit-function-declaration"
static const char *const gcc_options[] = {
    UNDECLARED,
    "-fstack-reuse=none",
    "-fira-region=one",
    "-fno-cse-follow-jumps",
    "-fno-dce",
    "-fno-dse",
    "-fno-forward-propagate",
    "-fno-guess-branch-probability",
    "-fno-if-conversion",
    "-fno-if-conversion2",
    "-fno-move-loop-invariants",
    "-fno-reorder-blocks",
    "-fno-split-wide-types",
    "-fno-tree-bit-ccp",
    "-fno-tree-copy-prop",
    "-fno-tree-dominator-opts",
    "-fno-tree-dse",
    "-fno-tree-forwprop",
    "-fno-tree-pta",
    "-fno-tree-sink",
    "-fno-tree-ter",
    "-fdisable-rtl-combine",
};
static const char *const clang_options[] = {"-Wno-everything", UNDECLARED, "-Xclang",
                                            "-disable-lifetime-markers"};
static const struct own_options {
    const char *const *list;
    size_t count;
} own_options[] = {{gcc_options, sizeof gcc_options / sizeof *gcc_options},
                   {clang_options, sizeof clang_options / sizeof *clang_options}};
enum { OWN_OPTIONS = sizeof own_options / sizeof *own_options };
static const char *const plain_options[] = {
    /* under SMELT_EMU_CFLAGS=--coverage...: no callbacks */
    "-std=gnu11", "-g", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off", "-w",
};

/* In a program that ignores SIGCHLD the system discards the exit status of its children. */
enum { STATUS_UNKNOWN = -2 };

/* Runs a program with its output appended to a file. Returns its exit status, STATUS_UNKNOWN, or -1
 * when it cannot be run. */
static int run(char *const *arguments, const char *output) {
    posix_spawn_file_actions_t actions;
    extern char **environ;
    pid_t child;
    int status = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    int failed = posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return -1;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return STATUS_UNKNOWN;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The value of CC, or NULL. */
static const char *named_compiler(void) {
    const char *named = getenv("CC");
    return named && named[strspn(named, " ")] ? named : NULL;
}

/* The compilers to try, in this order: only the one named by CC if it is set, else the
 * usual names. */
static int list_compilers(const char *names[3]) {
    names[0] = named_compiler();
    if (names[0])
        return 1;
    names[0] = "cc";
    names[1] = "gcc";
    names[2] = "clang";
    return 3;
}

/* Splits `words` at blanks, in place, and appends them to `arguments`. */
static int split(char *words, char **arguments, int count) {
    char *rest = NULL;
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        arguments[count++] = word;
    return count;
}

static int count_words(const char *text) {
    int count = 0;
    while (*(text += strspn(text, " "))) {
        text += strcspn(text, " ");
        count++;
    }
    return count;
}

/* Checks that the variables fit into the buffers. 0, or -1 with the reason in `log`. */
static int check_variables(char *log, size_t log_size) {
    const struct {
        const char *name, *value;
        size_t max_bytes, max_words;
    } variables[] = {
        {"CC", getenv("CC"), MAX_COMMAND - 1, MAX_WORDS},
        {"SMELT_EMU_CFLAGS", secure_getenv("SMELT_EMU_CFLAGS"), MAX_FLAGS - 1, MAX_WORDS},
        {"SMELT_EMU_KEEP", secure_getenv("SMELT_EMU_KEEP"), MAX_FOLDER - 1, SIZE_MAX},
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (variables[i].value &&
            (strlen(variables[i].value) > variables[i].max_bytes ||
             (size_t)count_words(variables[i].value) > variables[i].max_words)) {
            snprintf(log, log_size, "%s is longer than %zu bytes or has more than %d words",
                     variables[i].name, variables[i].max_bytes, MAX_WORDS);
            return -1;
        }
    return 0;
}

/* Appends the own options of a compiler of `words` words to `arguments`, which begin with it. The
 * answer for the last compiler is kept. Returns the number of arguments. */
static int add_own_options(char **arguments, int words, int count) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char tested[256];
    static size_t accepted; /* an index of own_options, or OWN_OPTIONS */
    char *const tail[] = {(char *)"-Werror", (char *)"-fsyntax-only", (char *)"-x",
                          (char *)"c",       (char *)"/dev/null",     NULL};
    pthread_mutex_lock(&lock);
    if (strcmp(tested, arguments[words - 1]) != 0) {
        char *test[MAX_ARGUMENTS];
        memcpy(test, arguments, (size_t)words * sizeof *test);
        for (accepted = 0; accepted < OWN_OPTIONS; accepted++) {
            const struct own_options *own = &own_options[accepted];
            memcpy(test + words, own->list, own->count * sizeof *test);
            memcpy(test + words + own->count, tail, sizeof tail);
            if (run(test, "/dev/null") == 0)
                break;
        }
        snprintf(tested, sizeof tested, "%s", arguments[words - 1]);
    }
    const struct own_options own =
        accepted < OWN_OPTIONS ? own_options[accepted] : (struct own_options){NULL, 0};
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < own.count; i++)
        arguments[count++] = (char *)(uintptr_t)own.list[i];
    return count;
}

/* Compiles FOLDER/kernel.c to FOLDER/kernel.so with one compiler; run's status. */
static int compile_with(const char *compiler, const char *folder, const char *output) {
    char *arguments[MAX_ARGUMENTS];
    char words[MAX_COMMAND], more[MAX_FLAGS], source[512], object[512], library[512];
    const char *extra = secure_getenv("SMELT_EMU_CFLAGS");
    int coverage = extra && strstr(extra, "--coverage");
    Dl_info self;
    snprintf(source, sizeof source, "%s/kernel.c", folder);
    snprintf(object, sizeof object, "%s/kernel.o", folder);
    snprintf(library, sizeof library, "%s/kernel.so", folder);
    snprintf(words, sizeof words, "%s", compiler);
    snprintf(more, sizeof more, "%s", extra ? extra : "");
    int begin = split(words, arguments, 0), count = begin;
    if (coverage)
        for (size_t i = 0; i < sizeof plain_options / sizeof plain_options[0]; i++)
            arguments[count++] = (char *)(uintptr_t)plain_options[i];
    else
        for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
            arguments[count++] = (char *)(uintptr_t)options[i];
    if (!coverage)
        count = add_own_options(arguments, begin, count);
    count = split(more, arguments, count);
    char *const tail[] = {(char *)"-c", source, (char *)"-o", object, NULL};
    memcpy(arguments + count, tail, sizeof tail);
    int status = run(arguments, output);
    if (status != 0 || !dladdr((const void *)(uintptr_t)emu_compile, &self))
        return status;
    count = begin;
    /* The object refers to this library, which is already loaded and brings libm and libc: without
     * searching those the linker needs a third of the time. */
    char *const link[] = {(char *)"-shared",
                          object,
                          (char *)"-o",
                          library,
                          (char *)(uintptr_t)self.dli_fname,
                          (char *)(coverage ? "--coverage" : "-nostdlib"),
                          (char *)"-lgcc", /* the compiler's own helpers */
                          NULL};
    for (int i = 0; i < LINK_OPTIONS; i++)
        arguments[count++] = (char *)(uintptr_t)link_options[i];
    memcpy(arguments + count, link, sizeof link);
    return run(arguments, output);
}

static void read_log(const char *path, char *log, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, log, size - 1) : 0;
    log[length > 0 ? length : 0] = '\0';
    if (file >= 0)
        close(file);
}

static int write_text(const char *folder, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/kernel.c", folder);
    const int file = smelt__file_open_to_write(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0)
        return -1;
    const int failed = smelt__write_fully(file, text, strlen(text)), error = errno;
    if (close(file) != 0 && !failed)
        return -1;
    errno = error;
    return failed;
}

static int read_object(const char *folder, unsigned char **object, size_t *bytes) {
    char path[512];
    struct stat status;
    snprintf(path, sizeof path, "%s/kernel.so", folder);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    int failed = fstat(file, &status) != 0;
    *bytes = failed ? 0 : (size_t)status.st_size;
    *object = failed ? NULL : malloc(*bytes);
    if (*object && read(file, *object, *bytes) != (ssize_t)*bytes) {
        free(*object);
        *object = NULL;
    }
    close(file);
    return *object ? 0 : -1;
}

static void remove_folder(const char *folder) {
    static const char *const names[] = {"kernel.c", "kernel.o", "kernel.so", "output"};
    char path[512];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* The variable that names the folder for compiled kernels. NULL if a developer adds options or
 * keeps the generated files: such objects are not stored. Edited kernels have their own folder. */
static const char *objects_variable(int edited) {
    const char *variable = edited ? "SMELT_EMU_EDITED_OBJECTS" : "SMELT_EMU_OBJECTS";
    const char *folder = secure_getenv(variable);
    const char *options_added = secure_getenv("SMELT_EMU_CFLAGS");
    const char *kept = secure_getenv("SMELT_EMU_KEEP");
    if ((options_added && *options_added) || (kept && *kept))
        return NULL;
    return folder && *folder ? variable : NULL;
}

/* Makes the key of an object: this text, compiled by this compiler. The compiler determines which
 * own_options apply. */
static int make_key(const char *compiler, const char *text, struct emu_object_key *key) {
    enum { OPTIONS = sizeof options / sizeof options[0] };
    const char *all[OPTIONS + sizeof gcc_options / sizeof *gcc_options +
                    sizeof clang_options / sizeof *clang_options + 1] = {NULL};
    memcpy(all, options, sizeof options);
    memcpy(all + OPTIONS, gcc_options, sizeof gcc_options);
    memcpy(all + OPTIONS + sizeof gcc_options / sizeof *gcc_options, clang_options,
           sizeof clang_options);
    return emu_object_key(compiler, all, text, key);
}

/* Compiles with the first compiler that can be run. */
static int compile(const char *text, const char *folder, const char *output, unsigned char **object,
                   size_t *bytes, char *log, size_t log_size) {
    const char *compilers[3];
    int status = -1;
    if (write_text(folder, text)) {
        snprintf(log, log_size, "%s/kernel.c cannot be written: %s", folder, strerror(errno));
        return -1;
    }
    const int count = list_compilers(compilers);
    for (int i = 0; i < count && (status == -1 || status == 127); i++)
        status = compile_with(compilers[i], folder, output);
    read_log(output, log, log_size);
    if ((status == -1 || status == 127) && named_compiler())
        snprintf(log, log_size, "CC names the C compiler \"%s\", which cannot be run",
                 compilers[0]);
    else if (status == -1 || status == 127)
        snprintf(log, log_size,
                 "the emulator needs a C compiler, but none of cc, gcc and clang can be run: "
                 "install gcc or clang, or set CC");
    else if (status == STATUS_UNKNOWN)
        snprintf(
            log, log_size,
            "the C compiler's exit status cannot be read, because this program ignores SIGCHLD: "
            "set its handler to SIG_DFL");
    else if (status == 0 && read_object(folder, object, bytes)) {
        snprintf(log, log_size, "%s/kernel.so cannot be read", folder);
        status = -1;
    }
    return status == 0 ? 0 : -1;
}

static int compile_in_folder(const char *text, unsigned char **object, size_t *bytes, char *log,
                             size_t log_size) {
    const char *kept = secure_getenv("SMELT_EMU_KEEP"); /* a folder: keep the files */
    const char *base = kept && *kept ? kept : getenv("TMPDIR");
    char folder[256], output[512];
    snprintf(folder, sizeof folder, "%s/smelt-emu-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder)) {
        snprintf(log, log_size, "cannot create a temporary folder %s: %s", folder, strerror(errno));
        return -1;
    }
    snprintf(output, sizeof output, "%s/output", folder);
    const int failed = compile(text, folder, output, object, bytes, log, log_size);
    if (!kept || !*kept)
        remove_folder(folder);
    return failed;
}

int emu_compile(const char *text, int edited, unsigned char **object, size_t *bytes, char *log,
                size_t log_size) {
    const char *variable = objects_variable(edited), *compilers[3];
    struct smelt__cache *objects = NULL;
    struct emu_object_key key;
    char why[512];
    int failed = 0;
    log[0] = '\0';
    if (check_variables(log, log_size))
        return -1;
    if (variable && !(objects = emu_objects_open(secure_getenv(variable), why, sizeof why))) {
        snprintf(log, log_size, "%s names a folder that cannot be used: %s", variable, why);
        return -1;
    }
    list_compilers(compilers);
    /* Objects are stored under the first compiler's key only; without it they are not stored. */
    const int keyed = objects && make_key(compilers[0], text, &key) == 0;
    if (!keyed || emu_object_find(objects, &key, object, bytes) != 0) {
        failed = compile_in_folder(text, object, bytes, log, log_size);
        if (!failed && keyed)
            emu_object_keep(objects, &key, *object, *bytes);
    }
    smelt__cache_close(objects);
    return failed;
}
