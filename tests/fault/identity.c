/*
 * Tests the search for NVRTC with each file-system call failing in turn, with each error. The search
 * must either fail and report the error, or find the same NVRTC as without it. Any other result
 * would store kernels under the wrong compiler identity.
 *
 *     identity NVRTC BUILTINS      two shared libraries
 */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit/files.h"
#include "../unit/test.h"
#include "fakes.h"
#include "runtime/compiler/nvrtc.h"
#include "smelt/smelt.h"
#include "torture/shim.h"

enum { PATH_BYTES = 512, MOST_CALLS = 400 };

static const int errors[] = {EMFILE, ENFILE, ENOMEM, EIO, EACCES, ESTALE};

static char folder[64], lib[80], library[PATH_BYTES], builtins[PATH_BYTES], plain[PATH_BYTES];
static const char *sources[2];

static void copy(const char *from, const char *to) {
    char command[2 * PATH_BYTES + 16];
    snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

static bool same(const struct smelt__nvrtc_file *a, const struct smelt__nvrtc_file *b) {
    return strcmp(a->path, b->path) == 0 && strcmp(a->builtins, b->builtins) == 0 &&
           memcmp(&a->id, &b->id, sizeof a->id) == 0 && a->output == b->output;
}

/* One search, with its Nth call failing. False: it has no such call. */
static bool search(const char *named, const struct smelt__nvrtc_file *right, long call, int error) {
    const struct shim_order order = {SHIM_CALLS, call, call, error};
    const bool shortage = error == EMFILE || error == ENFILE || error == ENOMEM;
    struct smelt__nvrtc_file found, own;
    const char *failed;
    shim_begin(&order);
    const smelt_status status = smelt__nvrtc_find(named, 0, NULL, &found);
    const long calls = shim_end(&failed);
    if (calls < call)
        return false;
    /* Without a given name, unreadable folders are skipped; then another NVRTC is correct, too,
     * with its own identity. */
    if (status == SMELT_OK && !named && strcmp(found.path, right->path) != 0 &&
        smelt__nvrtc_find(found.path, 0, NULL, &own) == SMELT_OK)
        right = &own;
    if (status == SMELT_OK && !same(&found, right))
        fail_msg("%s, %s failing with %s: found %s with builtins '%s'", named ? named : "a search",
                 failed, strerror(error), found.path, found.builtins);
    if (status != SMELT_OK && (named || shortage) && !strstr(smelt_last_error(), strerror(error)))
        fail_msg("%s failing with %s: the message is: %s", failed, strerror(error),
                 smelt_last_error());
    if (status == SMELT_OK && shortage && strcmp(failed, "close") != 0)
        fail_msg("%s: %s failing with %s went unseen", named ? named : "a search", failed,
                 strerror(error));
    assert_int_equal(status == SMELT_OK || status == SMELT_ERROR_NO_COMPILER, 1);
    return true;
}

static void search_with_every_fault(const char *named) {
    struct smelt__nvrtc_file right;
    long calls = 0;
    if (smelt__nvrtc_find(named, 0, NULL, &right))
        fail_msg("%s", smelt_last_error());
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        for (calls = 1; calls < MOST_CALLS && search(named, &right, calls, errors[i]); calls++)
            continue;
    assert_in_range(calls, 4, MOST_CALLS - 1);
    print_message("%s: %ld calls, each with %zu errors\n", named ? named : "the loader's path",
                  calls - 1, sizeof errors / sizeof *errors);
}

TEST(by_folder) {
    search_with_every_fault(lib);
}

TEST(by_file) {
    search_with_every_fault(library);
}

TEST(in_the_loaders_path) {
    setenv("LD_LIBRARY_PATH", lib, 1);
    search_with_every_fault(NULL);
    unsetenv("LD_LIBRARY_PATH");
}

/* Without a build-id both ends of the file are hashed. */
TEST(without_build_ids) {
    char command[3 * PATH_BYTES];
    snprintf(command, sizeof command,
             "objcopy --remove-section .note.gnu.build-id '%s' '%s' 2>/dev/null", library, plain);
    if (system(command) != 0) {
        print_message("no objcopy here\n");
        skip();
    }
    search_with_every_fault(plain);
}

/* The builtins library is a part of the identity. */
TEST(builtins_count) {
    struct smelt__nvrtc_file with, without, damaged;
    assert_int_equal(smelt__nvrtc_find(library, 0, NULL, &with), SMELT_OK);
    assert_string_equal(with.builtins, builtins);
    assert_int_equal(with.id.major, 13);
    assert_int_equal(truncate(builtins, 20), 0);
    assert_refused(smelt__nvrtc_find(library, 0, NULL, &damaged), SMELT_ERROR_NO_COMPILER,
                   "builtins");
    assert_int_equal(unlink(builtins), 0);
    assert_int_equal(smelt__nvrtc_find(library, 0, NULL, &without), SMELT_OK);
    assert_memory_not_equal(&with.id, &without.id, sizeof with.id);
    copy(sources[1], builtins);
}

/* In a context: the kernel fails with the reason, nothing is stored, and the next request searches
 * again. */
TEST(a_context_recovers) {
    const struct shim_order order = {SHIM_CALLS, 1, 1000000, EMFILE};
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    smelt_context *context;
    char cache[PATH_BYTES];
    void *cubin;
    size_t bytes;
    snprintf(cache, sizeof cache, "%s/cache", folder);
    options.kind = SMELT_CONTEXT_COMPILE_ONLY;
    options.arch = "sm_90a";
    options.cache_dir = cache;
    options.nvrtc_path = library;
    assert_int_equal(smelt_context_create(&context, &options), SMELT_OK);
    shim_begin(&order);
    const smelt_status status = smelt_kernel_cubin(context, FAKES_SPEC, NULL, &cubin, &bytes);
    shim_end(NULL);
    assert_refused(status, SMELT_ERROR_NO_COMPILER, strerror(EMFILE));
    assert_int_equal(smelt_cache_get_stats(context, &stats), SMELT_OK);
    assert_int_equal(stats.entries, 0);
    if (smelt_kernel_cubin(context, FAKES_SPEC, NULL, &cubin, &bytes))
        fail_msg("%s", smelt_last_error());
    smelt_free(cubin);
    assert_int_equal(smelt_cache_get_stats(context, &stats), SMELT_OK);
    assert_int_equal(stats.entries, 1);
    smelt_context_destroy(&context);
}

static int make_folder(void **state) {
    (void)state;
    if (make_scratch(folder, sizeof folder))
        return -1;
    snprintf(lib, sizeof lib, "%s/lib", folder);
    snprintf(library, sizeof library, "%s/libnvrtc.so.13", lib);
    snprintf(plain, sizeof plain, "%s/libnvrtc.so.12", lib);
    snprintf(builtins, sizeof builtins, "%s/libnvrtc-builtins.so.13.0", lib);
    mkdir(lib, 0700);
    copy(sources[0], library);
    copy(sources[1], builtins);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    return remove_tree(folder);
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    sources[0] = arguments[1];
    sources[1] = arguments[2];
    return RUN_TESTS("identity", .group_setup = make_folder, .group_teardown = remove_folder);
}
