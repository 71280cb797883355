#include "torture.h"

#include <errno.h>
#include <glob.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault/fake_cubin.h"
#include "runtime/cache/cache.h"
#include "runtime/compiler/compile.h"
#include "runtime/specs.h"

/* ---- arguments, figures --------------------------------------------------------------------- */

const char *argument_text(const struct arguments *arguments, const char *name) {
    size_t length = strlen(name);
    for (int i = 0; i < arguments->count; i++)
        if (!strncmp(arguments->items[i], name, length) && arguments->items[i][length] == '=')
            return arguments->items[i] + length + 1;
    return NULL;
}

long argument(const struct arguments *arguments, const char *name, long otherwise) {
    const char *text = argument_text(arguments, name);
    return text ? strtol(text, NULL, 10) : otherwise;
}

void figure(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("figure: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    fflush(stdout);
}

void skip(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("skipped: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    exit(TORTURE_SKIPPED);
}

void torture_fail(const char *file, int line, const char *condition) {
    fprintf(stderr, "%s:%d: not so: %s (errno: %s; smelt: %s)\n", file, line, condition,
            strerror(errno), smelt_last_error());
    fflush(NULL);
    _exit(1);
}

/* ---- folders -------------------------------------------------------------------------------- */

static char scratch[TORTURE_PATH];
static pid_t scratch_owner;

static void remove_scratch(void) {
    if (getpid() == scratch_owner)
        remove_tree(scratch);
}

const char *scratch_folder(bool in_memory) {
    const char *place = getenv("TMPDIR");
    if (in_memory && access("/dev/shm", W_OK) == 0)
        place = "/dev/shm";
    snprintf(scratch, sizeof scratch, "%s/smelt-torture-XXXXXX", place ? place : "/tmp");
    REQUIRE(mkdtemp(scratch));
    scratch_owner = getpid();
    atexit(remove_scratch);
    return scratch;
}

/* ---- processes ------------------------------------------------------------------------------ */

void *shared_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    return memory;
}

void kill_child(pid_t child) {
    REQUIRE(kill(child, SIGKILL) == 0);
    REQUIRE(waitpid(child, NULL, 0) == child);
}

void expect_success(pid_t child) {
    REQUIRE(exit_status(child) == 0);
}

/* ---- kernels -------------------------------------------------------------------------------- */

static void note_line(void *user, smelt_log_level level, const char *message) {
    struct notes *notes = user;
    if (level > SMELT_LOG_WARNING)
        return;
    notes->warnings++;
    snprintf(notes->last, sizeof notes->last, "%s", message);
}

smelt_context_options torture_options(const char *folder, struct notes *notes) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = SMELT_CONTEXT_COMPILE_ONLY;
    options.arch = TORTURE_ARCH;
    options.cache_dir = folder;
    options.cache_lock = SMELT_CACHE_LOCK_SHARED;
    options.log = notes ? note_line : NULL;
    options.log_user = notes;
    return options;
}

smelt_context *torture_context(const smelt_context_options *options) {
    smelt_context *context = NULL;
    REQUIRE(smelt_context_create(&context, options) == SMELT_OK);
    return context;
}

uint64_t cache_errors(const smelt_context *context) {
    smelt_context_info info = SMELT_CONTEXT_INFO_INIT;
    REQUIRE(smelt_context_get_info(context, &info) == SMELT_OK);
    return info.cache_errors;
}

const char *kernel_spec(int n, char spec[TORTURE_SPEC]) {
    snprintf(spec, TORTURE_SPEC, "sparse_attn_fwd:heads=16,dqk=128,dv=128,topk=%d", n + 1);
    return spec;
}

enum { KNOWN_HASHES = 4096 };

uint64_t kernel_hash(int n) {
    static _Atomic uint64_t known[KNOWN_HASHES]; /* 0: not yet */
    char spec[TORTURE_SPEC], *source;
    uint64_t hash = n < KNOWN_HASHES ? known[n] : 0;
    if (hash)
        return hash;
    REQUIRE(smelt_kernel_source(NULL, kernel_spec(n, spec), TORTURE_ARCH, &source) == SMELT_OK);
    hash = fake_source_hash(source);
    smelt_free(source);
    if (n < KNOWN_HASHES)
        known[n] = hash;
    return hash;
}

bool is_right(const void *cubin, size_t bytes, int n) {
    return fake_cubin_matches(kernel_hash(n), cubin, bytes);
}

enum verdict obtain(smelt_context *context, int n) {
    char spec[TORTURE_SPEC];
    void *cubin = NULL;
    size_t bytes = 0;
    enum verdict verdict;

    if (smelt_kernel_cubin(context, kernel_spec(n, spec), NULL, &cubin, &bytes) != SMELT_OK)
        return FAILED;
    verdict = is_right(cubin, bytes, n) ? RIGHT : WRONG;
    smelt_free(cubin);
    return verdict;
}

void kernel_key(int n, char hex[33]) {
    struct smelt__compile_options options;
    struct smelt__cache_key key;
    struct smelt__plan plan;
    char spec[TORTURE_SPEC];
    REQUIRE(smelt__plan_from_text(kernel_spec(n, spec), TORTURE_ARCH, &plan) == SMELT_OK);
    smelt__compile_options(&options, TORTURE_ARCH, NULL);
    REQUIRE(smelt__plan_key(&plan, NULL, options.list, SMELT__OUTPUT_CUBIN, &key) == SMELT_OK);
    smelt__cache_key_hex(&key, hex);
}

int find_by_prefix(const char *folder, const char *hex, char path[2 * TORTURE_PATH]) {
    char pattern[TORTURE_PATH];
    glob_t entries;
    int count = 0;
    snprintf(pattern, sizeof pattern, "%.4000s/%.2s/%s-*", folder, hex, hex);
    if (glob(pattern, GLOB_NOSORT, NULL, &entries) == 0) {
        count = (int)entries.gl_pathc;
        snprintf(path, 2 * TORTURE_PATH, "%s", entries.gl_pathv[0]);
    }
    globfree(&entries);
    return count;
}

void forget(const char *folder, int n) {
    char hex[33], path[2 * TORTURE_PATH];
    kernel_key(n, hex);
    while (find_by_prefix(folder, hex, path) > 0 && unlink(path) == 0)
        continue;
}
