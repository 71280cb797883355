/* The tuning file on a fake device: its effect on plans, refused files and entries, writing. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/files.h"
#include "../unit/test.h"
#include "fakes.h"
#include "runtime/context.h"
#include "runtime/kernel.h"
#include "runtime/tuning/tuned.h"
#include "smelt/sparse_attn.h"
#include "smelt/tuning.h"

#define DEVICE "Fake GPU 0"
#define OTHER "sparse_attn_fwd:heads=8,dqk=512,dv=512,topk=2048"
/* A line of the file. */
#define LINE(spec, knobs) spec "  " DEVICE "  " knobs "  1\n"

static char folder[64], file[128], readonly_folder[128];
static char logged[16384];
static int warnings;

static void note(void *user, smelt_log_level level, const char *message) {
    (void)user;
    if (level > SMELT_LOG_WARNING)
        return;
    size_t used = strlen(logged);
    snprintf(logged + used, sizeof logged - used, "%s\n", message);
    warnings++;
}

static int set_up(void **state) {
    (void)state;
    if (make_scratch(folder, sizeof folder))
        return -1;
    snprintf(file, sizeof file, "%s/tuning", folder);
    snprintf(readonly_folder, sizeof readonly_folder, "%s/shared", folder);
    logged[0] = '\0';
    warnings = 0;
    unsetenv("SMELT_TUNING");
    unsetenv("SMELT_TUNING_DISABLE");
    fakes_driver()->capability_major = 9;
    fakes_driver()->devices = 1;
    return 0;
}

static void put(const char *path, const char *text) {
    assert_int_equal(write_text(path, text, 0600), 0);
}

static char *read_text(const char *path) {
    static char text[65536];
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    fclose(in);
    return text;
}

static smelt_context_options options_of(smelt_context_kind kind) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.kind = kind;
    options.arch = kind == SMELT_CONTEXT_COMPILE_ONLY ? "sm_90a" : NULL;
    options.cache_dir = folder;
    options.log = note;
    options.log_level = SMELT_LOG_WARNING;
    return options;
}

/* The context lives until the next call or the end of the test. */
static smelt_context *made;

static smelt_context *make(const smelt_context_options *options) {
    smelt_context_destroy(&made);
    if (smelt_context_create(&made, options))
        fail_msg("%s", smelt_last_error());
    return made;
}

static int tear_down(void **state) {
    (void)state;
    smelt_context_destroy(&made);
    return remove_tree(folder);
}

static smelt_context *make_on(smelt_context_kind kind) {
    smelt_context_options options = options_of(kind);
    return make(&options);
}

static smelt_context_info context_info(const smelt_context *context) {
    smelt_context_info info = SMELT_CONTEXT_INFO_INIT;
    assert_int_equal(smelt_context_get_info(context, &info), SMELT_OK);
    return info;
}

/* Whether a kernel's plan in a context contains the text. */
static int plan_has(smelt_context *context, const char *kernel, const char *arch,
                    const char *part) {
    char *text = NULL;
    if (smelt_kernel_plan(context, kernel, arch, 0, &text))
        fail_msg("%s", smelt_last_error());
    const int has = strstr(text, part) != NULL;
    smelt_free(text);
    return has;
}

static int stages_of(smelt_context *context, const char *kernel) {
    struct smelt__plan plan;
    int found;
    if (smelt__context_plan_text(context, kernel, NULL, &plan))
        fail_msg("%s", smelt_last_error());
    return smelt__plan_constant(&plan, "STAGES", &found);
}

struct walked {
    int count;
    char first_knobs[64];
};

static int note_entry(void *user, const smelt_tuning_entry *entry) {
    struct walked *walked = user;
    if (!walked->count++)
        snprintf(walked->first_knobs, sizeof walked->first_knobs, "%s", entry->knobs);
    return 0;
}

static int count_entries(const smelt_context *context) {
    struct walked walked = {0};
    assert_int_equal(smelt_tuning_walk(context, note_entry, &walked), SMELT_OK);
    return walked.count;
}

/* ---- plans ---- */

TEST(plans_take_entries_over) {
    put(file, FAKES_SPEC "  " DEVICE "  stages=2,pv_overlap=4  100\n" OTHER
                         "  Another GPU  stages=2  100\n");
    smelt_context *context = make_on(SMELT_CONTEXT_DEVICE);
    assert_string_equal(context_info(context).tuning_device, DEVICE);
    assert_string_equal(context_info(context).tuning_path, file);
    assert_int_equal(stages_of(context, FAKES_SPEC), 2);
    assert_true(plan_has(context, FAKES_SPEC, NULL, "tuned"));
    assert_int_equal(stages_of(context, OTHER), 3);
    /* Knobs of the spec take precedence. */
    assert_int_equal(stages_of(context, FAKES_SPEC ",stages=3"), 3);
    assert_true(plan_has(context, FAKES_SPEC ",stages=3", NULL, "tuned"));
    /* Another architecture is another device. */
    assert_false(plan_has(context, FAKES_SPEC, "sm_80", "tuned"));
    /* Calls without a context use no entries. */
    char *text = NULL;
    assert_int_equal(smelt_kernel_plan(NULL, FAKES_SPEC, "sm_90a", 0, &text), SMELT_OK);
    assert_null(strstr(text, "tuned"));
    smelt_free(text);
    assert_int_equal(warnings, 0);
}

/* An operator gets the tuned kernel, and so does a compile-only context that names the device: the
 * cache has the kernel that it compiled. */
TEST(warming_and_running_agree) {
    put(file, FAKES_SPEC "  " DEVICE "  stages=2  100\n");
    const smelt_kernel_request request = {.size = sizeof request, .spec = FAKES_SPEC};
    smelt_kernel_info info = SMELT_KERNEL_INFO_INIT, run = SMELT_KERNEL_INFO_INIT;
    smelt_context_options options = options_of(SMELT_CONTEXT_COMPILE_ONLY);
    smelt_context *context = make(&options);
    assert_int_equal(stages_of(context, FAKES_SPEC), 3);
    options.tuning_device = DEVICE;
    context = make(&options);
    assert_int_equal(stages_of(context, FAKES_SPEC), 2);
    assert_int_equal(smelt_kernels_prepare(context, &request, 1, 1, NULL, NULL, &info), SMELT_OK);
    assert_int_equal(info.state, SMELT_KERNEL_COMPILED);
    assert_string_equal(info.spec, FAKES_SPEC);
    char key[64]; /* infos' strings are freed with their context */
    snprintf(key, sizeof key, "%s", info.key);

    static const char spec[] = "sparse_attn:heads=64,dqk=576,dv=512,topk=2048";
    smelt_operator *attn = NULL;
    context = make_on(SMELT_CONTEXT_DEVICE);
    assert_int_equal(smelt_operator_create(&attn, context, spec), SMELT_OK);
    assert_int_equal(smelt_operator_get_kernel_info(attn, SMELT_PASS_FORWARD, 0, &run), SMELT_OK);
    assert_int_equal(run.state, SMELT_KERNEL_CACHED);
    assert_string_equal(run.key, key);
    smelt_operator_destroy(&attn);
    /* The same knobs in the spec give a separate kernel, whose info has the requested spec. */
    assert_int_equal(smelt_operator_create(
                         &attn, context, "sparse_attn:heads=64,dqk=576,dv=512,topk=2048,stages=2"),
                     SMELT_OK);
    assert_int_equal(smelt_operator_get_kernel_info(attn, SMELT_PASS_FORWARD, 0, &run), SMELT_OK);
    assert_string_equal(run.spec, FAKES_SPEC ",stages=2");
    smelt_operator_destroy(&attn);
}

TEST(bad_lines_are_passed_over) {
    /* The later of two entries is used, also if its line has no newline. */
    put(file, "# found on a rainy day\n\nnonsense\n" LINE(FAKES_SPEC, "stages=3")
                  LINE(OTHER, "stages=x") FAKES_SPEC "  " DEVICE "  stages=2  1");
    smelt_context *context = make_on(SMELT_CONTEXT_DEVICE);
    assert_int_equal(warnings, 2);
    assert_non_null(strstr(logged, "tuning:3: ignored"));
    assert_non_null(strstr(logged, "tuning:5: ignored"));
    assert_int_equal(stages_of(context, FAKES_SPEC), 2);
    /* The number of warnings is limited. */
    FILE *out = fopen(file, "w");
    for (int i = 0; i < 5000; i++)
        fprintf(out, "line %d\n", i);
    fclose(out);
    warnings = 0;
    context = make_on(SMELT_CONTEXT_DEVICE);
    assert_int_equal(warnings, 9);
    assert_non_null(strstr(logged, "4992 more lines"));
}

/* An entry that is no longer legal: the rule's plan, and one warning. */
TEST(entries_without_a_plan) {
    put(file, LINE(FAKES_SPEC, "variant=sm90,stages=4"));
    smelt_context *context = make_on(SMELT_CONTEXT_DEVICE);
    assert_int_equal(stages_of(context, FAKES_SPEC), 3);
    assert_int_equal(stages_of(context, FAKES_SPEC), 3);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(logged, "stages=4 is not legal"));
    /* With knobs in the spec a conflict is not the file's fault. */
    put(file, LINE(FAKES_SPEC, "pv_overlap=4"));
    warnings = 0;
    context = make_on(SMELT_CONTEXT_DEVICE);
    assert_int_equal(stages_of(context, FAKES_SPEC ",variant=mma,stages=2"), 2);
    assert_int_equal(warnings, 0);
}

TEST(layers_and_settings) {
    char shared[160], named[160];
    assert_int_equal(mkdir(readonly_folder, 0755), 0);
    snprintf(shared, sizeof shared, "%s/tuning", readonly_folder);
    snprintf(named, sizeof named, "%s/mine.txt", folder);
    put(shared, LINE(FAKES_SPEC, "stages=2") LINE(OTHER, "stages=2"));
    put(file, LINE(FAKES_SPEC, "stages=2") LINE(FAKES_SPEC, "stages=3,pv_overlap=4"));
    smelt_context_options options = options_of(SMELT_CONTEXT_DEVICE);
    options.cache_readonly_dir = readonly_folder;
    smelt_context *context = make(&options);
    assert_int_equal(stages_of(context, FAKES_SPEC), 3); /* the writable layer's takes precedence */
    assert_int_equal(stages_of(context, OTHER), 2);
    struct walked all = {0};
    assert_int_equal(smelt_tuning_walk(context, note_entry, &all), SMELT_OK);
    assert_int_equal(all.count, 2); /* sorted: OTHER comes last */
    assert_string_equal(all.first_knobs, "stages=3,pv_overlap=4");

    setenv("SMELT_TUNING", named, 1);
    put(named, LINE(FAKES_SPEC, "stages=2"));
    context = make_on(SMELT_CONTEXT_DEVICE);
    assert_string_equal(context_info(context).tuning_path, named);
    assert_int_equal(stages_of(context, FAKES_SPEC), 2);
    options = options_of(SMELT_CONTEXT_DEVICE);
    options.tuning = file; /* the option takes precedence */
    context = make(&options);
    assert_int_equal(stages_of(context, FAKES_SPEC), 3);
    setenv("SMELT_TUNING_DISABLE", "1", 1);
    context = make_on(SMELT_CONTEXT_DEVICE);
    assert_string_equal(context_info(context).tuning_path, "");
    assert_int_equal(stages_of(context, FAKES_SPEC), 3);
    assert_false(plan_has(context, FAKES_SPEC, NULL, "tuned"));
    unsetenv("SMELT_TUNING_DISABLE");
    unsetenv("SMELT_TUNING");

    options = options_of(SMELT_CONTEXT_DEVICE);
    options.cache_disable = 1;
    context = make(&options);
    assert_string_equal(context_info(context).tuning_path, "");
    options.tuning_device = "H200"; /* the device's entries are used */
    assert_int_equal(smelt_context_create(&context, &options), SMELT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(warnings, 0);
}

/* ---- files ---- */

static void expect_unread(const char *part) {
    warnings = 0;
    logged[0] = '\0';
    smelt_context *context = make_on(SMELT_CONTEXT_DEVICE);
    assert_int_equal(stages_of(context, FAKES_SPEC), 3);
    assert_int_equal(warnings, 1);
    if (!strstr(logged, part))
        fail_msg("'%s' does not say '%s'", logged, part);
}

TEST(files_that_are_not_trusted) {
    static const char line[] = LINE(FAKES_SPEC, "stages=2");
    char other[160];
    snprintf(other, sizeof other, "%s/other", folder);
    put(file, line);
    assert_int_equal(chmod(file, 0666), 0);
    expect_unread("writable by others");
    assert_int_equal(chmod(file, 0620), 0);
    expect_unread("writable by others");
    assert_int_equal(unlink(file), 0);
    put(other, line);
    assert_int_equal(symlink(other, file), 0);
    expect_unread("symbolic link");
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkfifo(file, 0600), 0);
    expect_unread("not a regular file");
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkdir(file, 0700), 0);
    expect_unread("not a regular file");
    assert_int_equal(rmdir(file), 0);
    put(file, line);
    assert_int_equal(truncate(file, (off_t)1 << 40), 0); /* a hole, which uses no disk space */
    expect_unread("longer than 1 MiB");
    /* The named file may be a link, but must not be world-writable. */
    setenv("SMELT_TUNING", file, 1);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(symlink(other, file), 0);
    smelt_context *context = make_on(SMELT_CONTEXT_DEVICE);
    assert_int_equal(stages_of(context, FAKES_SPEC), 2);
    assert_int_equal(chmod(other, 0666), 0);
    expect_unread("writable by others");
    /* A folder on its path must not be either. */
    snprintf(other, sizeof other, "%s/shared", folder);
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(chmod(other, 0777), 0);
    snprintf(other, sizeof other, "%s/shared/tuning", folder);
    put(other, line);
    setenv("SMELT_TUNING", other, 1);
    expect_unread("is writable by everyone");
    unsetenv("SMELT_TUNING");
}

/* ---- storing ---- */

static smelt_tuning_entry entry_of(const char *knobs, double microseconds) {
    smelt_tuning_entry entry = SMELT_TUNING_ENTRY_INIT;
    entry.spec = FAKES_SPEC;
    entry.knobs = knobs;
    entry.microseconds = microseconds;
    return entry;
}

TEST(stores) {
    struct stat status;
    smelt_context *context = make_on(SMELT_CONTEXT_DEVICE);
    smelt_tuning_entry entry = entry_of("pv_overlap=4,stages=2", 2104.504);
    smelt_tuning_entry found = SMELT_TUNING_ENTRY_INIT;
    assert_int_equal(smelt_tuning_get_entry(context, FAKES_SPEC, &found), SMELT_OK);
    assert_string_equal(found.knobs, "");
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_OK);
    assert_string_equal(read_text(file),
                        FAKES_SPEC "  " DEVICE "  pv_overlap=4,stages=2  2104.50\n");
    assert_int_equal(stat(file, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    /* Plans use it at once. */
    assert_int_equal(stages_of(context, FAKES_SPEC), 2);
    assert_int_equal(smelt_tuning_get_entry(context, FAKES_SPEC ",stages=3", &found), SMELT_OK);
    assert_string_equal(found.knobs, "pv_overlap=4,stages=2");
    assert_true(found.microseconds == 2104.5);
    assert_string_equal(found.spec, FAKES_SPEC);
    assert_string_equal(found.device, DEVICE);
    /* Other lines are kept: valid, invalid and arbitrary ones. */
    put(file, "# notes\n\nbad line\n" LINE(FAKES_SPEC, "stages=2") OTHER
        "   " DEVICE "   stages=2   1\n" FAKES_SPEC "  X  stages=2  1");
    entry = entry_of("pv_overlap=16", 3);
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_OK);
    assert_string_equal(read_text(file),
                        "# notes\n\nbad line\n" OTHER "   " DEVICE "   stages=2   1\n" FAKES_SPEC
                        "  X  stages=2  1\n" FAKES_SPEC "  " DEVICE "  pv_overlap=16  3.00\n");
    assert_int_equal(stages_of(context, OTHER), 2);
    assert_int_equal(count_entries(context), 3);
    entry.knobs = NULL; /* removes the entry */
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_OK);
    assert_string_equal(read_text(file), "# notes\n\nbad line\n" OTHER "   " DEVICE
                                         "   stages=2   1\n" FAKES_SPEC "  X  stages=2  1\n");
    assert_int_equal(stages_of(context, FAKES_SPEC), 3);
}

/* With a limit on the size of files the old file is unchanged, and no temporary file remains. */
TEST(stores_that_fail) {
    static const char before[] = "# notes\n";
    const struct rlimit limit = {4, 4};
    char command[256];
    int status;
    put(file, before);
    pid_t child = fork();
    if (child == 0) {
        smelt_context *context = make_on(SMELT_CONTEXT_DEVICE);
        smelt_tuning_entry entry = entry_of("stages=2", 1);
        _exit(setrlimit(RLIMIT_FSIZE, &limit) != 0 ||
              smelt_tuning_store(context, &entry) != SMELT_ERROR_CACHE ||
              !strstr(smelt_last_error(), "File too large"));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_string_equal(read_text(file), before);
    snprintf(command, sizeof command, "! ls -A %s | grep -q tmp", folder);
    assert_int_equal(system(command), 0);
}

TEST(stores_that_are_refused) {
    smelt_context *context = make_on(SMELT_CONTEXT_DEVICE);
    smelt_tuning_entry entry = entry_of("stages=2", 0);
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_ERROR_INVALID_ARGUMENT);
    entry = entry_of("stages=2,nonsense=1", 1);
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_ERROR_INVALID_SPEC);
    entry = entry_of("variant=sm90,stages=4", 1);
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_ERROR_UNSUPPORTED);
    entry = entry_of("stages=2", 1);
    entry.device = "two\nlines";
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_ERROR_INVALID_SPEC);
    entry.device = " blank ";
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_ERROR_INVALID_SPEC);
    entry = entry_of("stages=2", 1);
    entry.spec = "sparse_attn:heads=64,dqk=576,dv=512,topk=2048";
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_ERROR_INVALID_SPEC);
    assert_int_equal(access(file, F_OK), -1);
    /* A link or a folder is not replaced. */
    entry = entry_of("stages=2", 1);
    assert_int_equal(symlink("/dev/null", file), 0);
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_ERROR_CACHE);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkdir(file, 0700), 0);
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_ERROR_CACHE);
    assert_int_equal(rmdir(file), 0);
    context = make_on(SMELT_CONTEXT_COMPILE_ONLY); /* without a device */
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_ERROR_INVALID_ARGUMENT);
    smelt_context_options options = options_of(SMELT_CONTEXT_DEVICE);
    options.tuning_disable = 1;
    context = make(&options);
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_ERROR_CACHE);
    assert_int_equal(smelt_tuning_store(NULL, &entry), SMELT_ERROR_INVALID_ARGUMENT);
    assert_int_equal(smelt_tuning_store(context, NULL), SMELT_ERROR_INVALID_ARGUMENT);
}

enum { WRITERS = 8, LINES = 12 };

static void store_many(int writer) {
    smelt_context *context = make_on(SMELT_CONTEXT_COMPILE_ONLY);
    for (int i = 0; i < LINES; i++) {
        smelt_tuning_entry entry = entry_of("stages=2", 1 + i);
        char device[64];
        snprintf(device, sizeof device, "Writer %d line %d", writer, i);
        entry.device = device;
        if (smelt_tuning_store(context, &entry))
            _exit(1);
    }
    _exit(0);
}

/* Concurrent writers do not lose each other's entries. */
TEST(many_writers) {
    int status;
    for (int i = 0; i < WRITERS; i++)
        if (fork() == 0)
            store_many(i);
    for (int i = 0; i < WRITERS; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    smelt_context *context = make_on(SMELT_CONTEXT_COMPILE_ONLY);
    assert_int_equal(count_entries(context), WRITERS * LINES);
    assert_int_equal(warnings, 0);
}

/* The tuning file of an imported cache: existing entries take precedence, others are added. */
TEST(merging) {
    static const char text[] = "# theirs\nbad\n" FAKES_SPEC "  " DEVICE "  stages=3  9\n" OTHER
                               "  " DEVICE "  stages=2  9";
    size_t taken = 0;
    put(file, FAKES_SPEC "  " DEVICE "  stages=2  1"); /* without a newline */
    smelt_context *context = make_on(SMELT_CONTEXT_DEVICE);
    assert_int_equal(smelt__tuning_merge(context->tuning, text, sizeof text - 1, &taken), SMELT_OK);
    assert_int_equal(taken, 1);
    assert_string_equal(read_text(file),
                        LINE(FAKES_SPEC, "stages=2") OTHER "  " DEVICE "  stages=2  9.00\n");
    assert_int_equal(stages_of(context, OTHER), 2);
    assert_int_equal(smelt__tuning_merge(context->tuning, text, sizeof text - 1, &taken), SMELT_OK);
    assert_int_equal(taken, 0);
}

TESTS("tuning on fakes", .setup = set_up, .teardown = tear_down)
