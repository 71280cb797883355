/*
 * Every system call of the library fails in turn, once or permanently, with every error of a disk
 * or a network file system; every allocation fails in turn; the size of files is limited. The
 * caller gets the correct kernel or a clear error; descriptors, memory and valid entries are not
 * lost; no partial file is ever used; and the next call without a fault succeeds.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rows.h"
#include "shim.h"

enum { CUBIN_BYTES = 5000, ENTRY_BYTES = CUBIN_BYTES + 560, STORED = 4 };

static const char *scratch;
static char folder[TORTURE_PATH];   /* the cache */
static char readonly[TORTURE_PATH]; /* a read-only layer, with kernel 7 */
static char archive[TORTURE_PATH];  /* an export, with kernels 0..STORED - 1 */

/* ---- the world before a fault ---------------------------------------------------------------- */

static smelt_context_options quiet_options(void) {
    smelt_context_options options = torture_options(folder, NULL);
    options.cache_readonly_dir = readonly;
    options.cache_lock_timeout_ms = 20; /* EACCES from a lock means that another process holds it */
    return options;
}

static void fill(const char *layer, int first, int count) {
    smelt_context_options options = torture_options(layer, NULL);
    smelt_context *context = torture_context(&options);
    for (int n = first; n < first + count; n++)
        REQUIRE(obtain(context, n) == RIGHT);
    smelt_context_destroy(&context);
}

static void set_cold(void) {
    remove_tree(folder);
}

static void set_warm(void) {
    remove_tree(folder);
    fill(folder, 0, STORED);
}

/* The counters' file is about to be compacted. */
static void set_counted(void) {
    char path[TORTURE_PATH];
    set_warm();
    snprintf(path, sizeof path, "%.4000s/counters", folder);
    FILE *counters = fopen(path, "ae");
    REQUIRE(counters);
    for (long bytes = 0; bytes <= 64 << 10; bytes++)
        REQUIRE(fputc(0, counters) == 0);
    REQUIRE(fclose(counters) == 0);
}

static int damage_item(void *user, const char *file, const smelt_kernel_info *info) {
    char path[2 * TORTURE_PATH];
    (void)user;
    (void)info;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    REQUIRE(truncate(path, 300) == 0);
    return 0;
}

/* Kernel 0's entry is truncated. */
static void set_damaged(void) {
    smelt_context_options options = torture_options(folder, NULL);
    remove_tree(folder);
    fill(folder, 0, 1);
    smelt_context *context = torture_context(&options);
    REQUIRE(smelt_cache_walk(context, NULL, damage_item, NULL) == SMELT_OK);
    smelt_context_destroy(&context);
}

/* ---- what is done ---------------------------------------------------------------------------- */

/* Permitted results of a step. Anything else is a defect. */
enum outcome { DONE, REFUSED };

static enum outcome judge(smelt_status status) {
    if (status == SMELT_OK)
        return DONE;
    if (!smelt_last_error()[0])
        fprintf(stderr, "%s without a message\n", smelt_status_name(status));
    REQUIRE(smelt_last_error()[0]);
    if (status != SMELT_ERROR_OUT_OF_MEMORY && status != SMELT_ERROR_CACHE &&
        status != SMELT_ERROR_NO_COMPILER)
        fprintf(stderr, "%s: %s\n", smelt_status_name(status), smelt_last_error());
    REQUIRE(status == SMELT_ERROR_OUT_OF_MEMORY || status == SMELT_ERROR_CACHE ||
            status == SMELT_ERROR_NO_COMPILER);
    return REFUSED;
}

static enum outcome use_kernel(smelt_context *context, int n) {
    void *cubin = NULL;
    size_t bytes = 0;
    char spec[TORTURE_SPEC];
    smelt_status status = smelt_kernel_cubin(context, kernel_spec(n, spec), NULL, &cubin, &bytes);
    if (judge(status) == REFUSED)
        return REFUSED;
    REQUIRE(is_right(cubin, bytes, n));
    smelt_free(cubin);
    return DONE;
}

static enum outcome with_context(const smelt_context_options *options,
                                 enum outcome (*use)(smelt_context *context)) {
    smelt_context *context = NULL;
    enum outcome outcome = judge(smelt_context_create(&context, options));
    REQUIRE((context != NULL) == (outcome == DONE));
    if (outcome == DONE)
        outcome = use(context);
    smelt_context_destroy(&context);
    return outcome;
}

static enum outcome obtain_first(smelt_context *context) {
    return use_kernel(context, 0);
}

static enum outcome step_obtain(void) {
    smelt_context_options options = quiet_options();
    return with_context(&options, obtain_first);
}

static enum outcome obtain_readonly(smelt_context *context) {
    return use_kernel(context, 7);
}

static enum outcome step_readonly(void) {
    smelt_context_options options = quiet_options();
    return with_context(&options, obtain_readonly);
}

static enum outcome obtain_two(smelt_context *context) {
    enum outcome first = use_kernel(context, STORED);
    enum outcome second = use_kernel(context, STORED + 1);
    return first == DONE ? second : first;
}

/* Stores above the cap, so that each of them evicts. */
static enum outcome step_evict(void) {
    smelt_context_options options = quiet_options();
    options.cache_cap_bytes = 3 * ENTRY_BYTES;
    return with_context(&options, obtain_two);
}

static int take_note(void *user, const char *file, const smelt_kernel_info *info) {
    (void)user;
    REQUIRE(file[0] && (info->state == SMELT_KERNEL_CACHED || info->error[0]));
    return 0;
}

static enum outcome look_after(smelt_context *context) {
    enum outcome got = use_kernel(context, 0); /* something to count */
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    uint64_t sound = 0, removed = 0;
    enum outcome outcome = got;
    if (judge(smelt_cache_get_stats(context, &stats)) == REFUSED)
        outcome = REFUSED;
    if (judge(smelt_cache_walk(context, NULL, take_note, NULL)) == REFUSED)
        outcome = REFUSED;
    if (judge(smelt_cache_verify(context, &sound, &removed)) == REFUSED)
        outcome = REFUSED;
    REQUIRE(removed == 0); /* an unreadable entry is not damaged */
    return outcome;
}

static enum outcome step_look_after(void) {
    smelt_context_options options = quiet_options();
    return with_context(&options, look_after);
}

static enum outcome export_all(smelt_context *context) {
    char path[TORTURE_PATH];
    snprintf(path, sizeof path, "%.4000s/exported", scratch);
    return judge(smelt_cache_export(context, path, NULL));
}

static enum outcome step_export(void) {
    smelt_context_options options = quiet_options();
    return with_context(&options, export_all);
}

static enum outcome import_all(smelt_context *context) {
    return judge(smelt_cache_import(context, archive, NULL));
}

static enum outcome step_import(void) {
    smelt_context_options options = quiet_options();
    return with_context(&options, import_all);
}

static enum outcome step_archive_layer(void) {
    smelt_context_options options = quiet_options();
    options.cache_readonly_dir = archive;
    return with_context(&options, obtain_first);
}

static enum outcome tune(smelt_context *context) {
    smelt_tuning_entry entry = SMELT_TUNING_ENTRY_INIT, found = SMELT_TUNING_ENTRY_INIT;
    char text[TORTURE_SPEC];
    entry.spec = kernel_spec(0, text);
    entry.device = "Fake GPU 0";
    entry.knobs = "stages=2";
    entry.microseconds = 12.5;
    enum outcome outcome = judge(smelt_tuning_store(context, &entry));
    if (outcome == DONE)
        outcome = judge(smelt_tuning_get_entry(context, entry.spec, &found));
    if (outcome == DONE)
        REQUIRE(!strcmp(found.knobs, "stages=2"));
    return outcome;
}

static enum outcome step_tune(void) {
    smelt_context_options options = quiet_options();
    options.tuning_device = "Fake GPU 0";
    return with_context(&options, tune);
}

/* ---- without a fault of a file: memory alone ------------------------------------------------- */

static int take_text(void *user, const char *text) {
    (void)user;
    REQUIRE(text[0]);
    return 0;
}

static enum outcome step_texts(void) {
    static const char kernel[] = "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048";
    const smelt_status listed[] = {
        smelt_spec_expand(NULL, "sparse_attn:heads=64,dqk=576,dv=512,topk=2048", NULL, take_text,
                          NULL),
        smelt_preset_expand("deepseek-v3.2", 2, 0, take_text, NULL),
        smelt_tuning_candidates(kernel, TORTURE_ARCH, "stages", 0, take_text, NULL)};
    enum outcome outcome = DONE;
    char *text = NULL;
    for (size_t i = 0; i < sizeof listed / sizeof listed[0]; i++)
        if (listed[i])
            outcome = judge(listed[i]);
    for (int i = 0; i < 4; i++) {
        smelt_status status = i == 0 ? smelt_spec_canonical(kernel, &text)
                              : i == 1
                                  ? smelt_kernel_source(NULL, kernel, TORTURE_ARCH, &text)
                                  : smelt_kernel_plan(NULL, kernel, TORTURE_ARCH, i - 2, &text);
        REQUIRE((text != NULL) == (status == SMELT_OK));
        if (judge(status) == REFUSED)
            outcome = REFUSED;
        smelt_free(text);
    }
    return outcome;
}

static enum outcome run_operator(smelt_context *context) {
    static _Alignas(16) char inputs[4096], out[4096], lse[4096];
    smelt_sparse_attn_args args = SMELT_SPARSE_ATTN_ARGS_INIT;
    smelt_operator *attn;
    if (judge(smelt_operator_create(&attn, context, "sparse_attn:heads=16,dqk=64,dv=64,topk=5")) ==
        REFUSED) {
        REQUIRE(attn == NULL);
        return REFUSED;
    }
    args.tokens = args.rows = args.width = 1;
    args.scale = 1;
    args.q.data = args.kv.data = args.indices.data = inputs;
    args.out.data = out;
    args.lse.data = lse;
    REQUIRE(smelt_sparse_attn_forward(attn, &args, NULL) == SMELT_OK); /* allocates nothing */
    smelt_operator_destroy(&attn);
    return DONE;
}

static enum outcome step_operator(void) {
    smelt_context_options options = quiet_options();
    options.kind = SMELT_CONTEXT_DEVICE;
    options.arch = NULL;
    enum outcome outcome = with_context(&options, run_operator);
    REQUIRE(fakes_driver()->modules == 0 && fakes_driver()->retained == 0);
    return outcome;
}

static enum outcome prepare_three(smelt_context *context) {
    char texts[3][TORTURE_SPEC];
    smelt_kernel_request requests[3] = {SMELT_KERNEL_REQUEST_INIT};
    smelt_kernel_info infos[3] = {SMELT_KERNEL_INFO_INIT};
    for (int i = 0; i < 3; i++)
        requests[i].spec = kernel_spec(i, texts[i]);
    return judge(smelt_kernels_prepare(context, requests, 3, 1, NULL, NULL, infos));
}

static enum outcome step_prepare(void) {
    smelt_context_options options = quiet_options();
    return with_context(&options, prepare_three);
}

/* ---- the steps ------------------------------------------------------------------------------- */

static const struct step {
    const char *name;
    void (*before)(void);
    enum outcome (*run)(void);
    bool always; /* must succeed with any file fault */
    int renames; /* minimum number of renames */
} steps[] = {
    {"compile and store", set_cold, step_obtain, true, 1},
    {"hit", set_warm, step_obtain, true, 0},
    {"heal", set_damaged, step_obtain, true, 1},
    {"hit in the read-only layer", set_cold, step_readonly, true, 0},
    {"evict", set_warm, step_evict, true, 2},
    {"stat, walk, verify", set_warm, step_look_after, false, 0},
    {"export", set_warm, step_export, false, 1},
    {"import", set_cold, step_import, false, 4},
    {"hit in an exported file", set_cold, step_archive_layer, true, 0},
    {"tune", set_cold, step_tune, false, 1},
    {"count", set_counted, step_look_after, false, 1},
    {"prepare", set_cold, step_prepare, true, 3},
    {"an operator", set_cold, step_operator, true, 1},
    {"texts", set_cold, step_texts, true, 0},
};

enum { STEPS = sizeof steps / sizeof steps[0] };

/* ---- after a fault --------------------------------------------------------------------------- */

static int open_descriptors(void) {
    int count = 0;
    DIR *names = opendir("/proc/self/fd");
    REQUIRE(names);
    while (readdir(names))
        count++;
    closedir(names);
    return count;
}

static int require_sound_or_old(void *user, const char *file, const smelt_kernel_info *info) {
    const struct step *step = user;
    if (info->state == SMELT_KERNEL_FAILED && step->before != set_damaged)
        fprintf(stderr, "%s: %s\n", file, info->error);
    REQUIRE(info->state != SMELT_KERNEL_FAILED || step->before == set_damaged);
    return 0;
}

/* No invalid files remain, and everything works. */
static void require_recovered(const struct step *step) {
    smelt_context_options options = torture_options(folder, NULL);
    smelt_context *context = torture_context(&options);
    REQUIRE(smelt_cache_walk(context, NULL, require_sound_or_old, (void *)(uintptr_t)step) ==
            SMELT_OK);
    for (int n = 0; n < STORED; n++)
        REQUIRE(obtain(context, n) == RIGHT);
    smelt_context_destroy(&context);
}

struct fault_tally {
    long faults, done, refused, left;
};

/* One run of a step with a fault. Returns false when no call was left to fail. */
static bool run_faulty(const struct step *step, const struct shim_order *order,
                       struct fault_tally *tally) {
    const char *failed;

    step->before();
    int descriptors = open_descriptors();
    long live = shim_live_allocations();
    shim_begin(order);
    enum outcome outcome = step->run();
    shim_end(&failed);
    if (shim_renames().unfinished)
        fprintf(stderr, "%s: a file was renamed before it was on the disk\n", step->name);
    REQUIRE(shim_renames().unfinished == 0);
    if (!failed[0])
        return false;
    long lost = shim_live_allocations() - live;
    if (order->target == SHIM_CALLS && step->always && outcome != DONE &&
        !strstr(smelt_last_error(), "NVRTC"))
        fprintf(stderr, "%s with error %d in %s, call %ld: refused: %s\n", step->name, order->error,
                failed, order->first, smelt_last_error());
    if (lost || open_descriptors() != descriptors)
        fprintf(stderr, "%s with error %d in %s, call %ld: %ld allocations, %d descriptors lost\n",
                step->name, order->error, failed, order->first, lost,
                open_descriptors() - descriptors);
    REQUIRE(order->target == SHIM_MEMORY || !step->always || outcome == DONE ||
            strstr(smelt_last_error(), "NVRTC"));
    REQUIRE(lost == 0);
    REQUIRE(open_descriptors() == descriptors);
    /* A temporary may remain only if its removal failed. */
    long left = count_files(folder, ".tmp-");
    if (left > 0 && order->first == order->last && strcmp(failed, "unlinkat") != 0)
        fprintf(stderr, "%s with error %d in %s, call %ld: %ld temporaries left\n", step->name,
                order->error, failed, order->first, left);
    REQUIRE(left <= 0 || order->first != order->last || !strcmp(failed, "unlinkat"));
    require_recovered(step);
    tally->faults++;
    tally->done += outcome == DONE;
    tally->refused += outcome == REFUSED;
    tally->left += left > 0 ? left : 0;
    return true;
}

static void set_up(void) {
    scratch = scratch_folder(true);
    snprintf(folder, sizeof folder, "%.4000s/cache", scratch);
    snprintf(readonly, sizeof readonly, "%.4000s/readonly", scratch);
    snprintf(archive, sizeof archive, "%.4000s/archive", scratch);
    fakes_nvrtc()->cubin_bytes = CUBIN_BYTES;
    for (int n = 0; n < 2 * STORED; n++)
        (void)kernel_hash(n);
    fill(readonly, 7, 1);
    fill(folder, 0, STORED);
    smelt_context_options options = torture_options(folder, NULL);
    smelt_context *context = torture_context(&options);
    REQUIRE(smelt_cache_export(context, archive, NULL) == SMELT_OK);
    smelt_context_destroy(&context);
    /* A first run, for state that the process keeps, and to count each step's renames. */
    for (int i = 0; i < STEPS; i++) {
        steps[i].before();
        shim_begin(&(struct shim_order){.target = SHIM_NOTHING});
        REQUIRE(steps[i].run() == DONE);
        shim_end(NULL);
        struct shim_renames moved = shim_renames();
        if (moved.unfinished || moved.files < steps[i].renames)
            fprintf(stderr, "%s: %ld of %ld files were renamed before they were on the disk\n",
                    steps[i].name, moved.unfinished, moved.files);
        REQUIRE(moved.unfinished == 0 && moved.files >= steps[i].renames);
        require_recovered(&steps[i]);
    }
}

/* Fails each `stride`th call of a step from number `first` on with one error, once and permanently.
 * Returns the last call's number. */
static long run_calls(const struct step *step, int error, long first, long stride,
                      struct fault_tally *tally) {
    struct shim_order order = {.target = SHIM_CALLS, .error = error};
    long calls = 0;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        /* Permanent interruption, or permanently partial writes, do not occur in a real system. */
        if (for_ever && error == EINTR)
            continue;
        for (long number = first;; number += stride) {
            order.first = number;
            order.last = for_ever ? LONG_MAX : number;
            if (!run_faulty(step, &order, tally))
                break;
            calls = number;
        }
    }
    return calls;
}

static int row_io(const struct arguments *arguments) {
    static const struct {
        int number;
        const char *name;
    } errors[] = {{ENOSPC, "ENOSPC"}, {EDQUOT, "EDQUOT"}, {EIO, "EIO"},         {ESTALE, "ESTALE"},
                  {EINTR, "EINTR"},   {EACCES, "EACCES"}, {SHIM_SHORT, "short"}};
    enum { ERRORS = sizeof errors / sizeof errors[0] };
    long stride = argument(arguments, "stride", 1);
    struct fault_tally tally = {0};
    set_up();
    for (int i = 0; i < STEPS; i++) {
        long calls = 0;
        for (int e = 0; e < ERRORS; e++)
            calls = run_calls(&steps[i], errors[e].number, 1 + e * stride / ERRORS, stride, &tally);
        printf("%s: %ld calls\n", steps[i].name, calls);
    }
    figure(
        "%ld faults (ENOSPC, EDQUOT, EIO, ESTALE, EINTR, EACCES, short reads and writes; at every "
        "call of %d steps, once and for ever): %ld done in spite of it, %ld refused with a "
        "message, none wrong, nothing lost; %ld temporaries left",
        tally.faults, STEPS, tally.done, tally.refused, tally.left);
    return 0;
}

static int row_memory(const struct arguments *arguments) {
    long stride = argument(arguments, "stride", 1);
    struct fault_tally tally = {0};
    if (!shim_has_memory())
        skip("the sanitizer has an allocator of its own");
    set_up();
    for (int i = 0; i < STEPS; i++) {
        struct shim_order order = {.target = SHIM_MEMORY};
        long before = tally.faults;
        for (int for_ever = 0; for_ever < 2; for_ever++)
            for (order.first = 1;; order.first += stride) {
                order.last = for_ever ? LONG_MAX : order.first;
                if (!run_faulty(&steps[i], &order, &tally))
                    break;
            }
        printf("%s: %ld faults\n", steps[i].name, tally.faults - before);
    }
    figure(
        "%ld failed allocations (every one of %d steps, once and for ever): %ld done in spite of "
        "it, %ld refused with a message, none wrong, nothing lost",
        tally.faults, STEPS, tally.done, tally.refused);
    return 0;
}

/* ---- a limit on the size of files ------------------------------------------------------------ */

static volatile sig_atomic_t signals;

static void note_signal(int number) {
    signals += number == SIGXFSZ;
}

static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static bool signal_waits(void) {
    sigset_t waiting;
    REQUIRE(sigpending(&waiting) == 0);
    return sigismember(&waiting, SIGXFSZ);
}

static bool signal_is_blocked(void) {
    sigset_t blocked;
    REQUIRE(sigprocmask(SIG_SETMASK, NULL, &blocked) == 0);
    return sigismember(&blocked, SIGXFSZ);
}

/* Runs one step with the limit. The program's own handling of the signal must not change. */
static enum outcome run_limited(const struct step *step, rlim_t bytes) {
    const bool blocked = signal_is_blocked(), waits = signal_waits();
    step->before();
    limit_files(bytes);
    enum outcome outcome = step->run();
    limit_files(RLIM_INFINITY);
    REQUIRE(!step->always || outcome == DONE);
    REQUIRE(signals == 0);
    REQUIRE(signal_is_blocked() == blocked && signal_waits() == waits);
    REQUIRE(count_files(folder, ".tmp-") <= 0);
    require_recovered(step);
    return outcome;
}

/* A failed store gives the reason. */
static void require_told(void) {
    struct notes notes = {0};
    smelt_context_options options = torture_options(folder, &notes);
    set_cold();
    smelt_context *context = torture_context(&options);
    limit_files(100);
    REQUIRE(obtain(context, 0) == RIGHT);
    limit_files(RLIM_INFINITY);
    REQUIRE(strstr(notes.last, "not stored") && strstr(notes.last, strerror(EFBIG)));
    smelt_context_destroy(&context);
}

static int row_limit(const struct arguments *arguments) {
    static const rlim_t limits[] = {0, 1, 63, 64, 300, 1024, CUBIN_BYTES, ENTRY_BYTES - 1, 20000};
    enum { LIMITS = sizeof limits / sizeof limits[0] };
    long done = 0, refused = 0;
    sigset_t limit;
    (void)arguments;
    set_up();
    signal(SIGXFSZ, note_signal);
    require_told();
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    /* With the signal's default action; blocked by the program; blocked with one pending. */
    for (int way = 0; way < 3; way++) {
        if (way == 1)
            REQUIRE(sigprocmask(SIG_BLOCK, &limit, NULL) == 0);
        if (way == 2)
            REQUIRE(raise(SIGXFSZ) == 0);
        for (int i = 0; i < STEPS; i++)
            for (int j = 0; j < LIMITS; j++) {
                bool was_done = run_limited(&steps[i], limits[j]) == DONE;
                done += was_done;
                refused += !was_done;
            }
    }
    figure("%d limits on the size of files, %d steps, the signal free, held back and waiting: %ld "
           "done in spite of it, %ld refused with a message, no signal of ours",
           LIMITS, STEPS, done, refused);
    return 0;
}

const struct row rows[] = {
    {"io", row_io, "stride=: system calls fail"},
    {"limit", row_limit, "files may not grow"},
    {"memory", row_memory, "stride=: allocations fail"},
    {0},
};
