/*
 * Programs and libraries of different versions. This program depends only on the headers it is
 * compiled with and the library it links; meson.build builds it three times:
 *
 *   older   today's headers, and a library whose structs have grown since
 *   newer   headers whose structs have grown, and today's library
 *   same    today's headers and today's library
 *
 * grow.sh makes the grown headers from today's. Driver and NVRTC are the fakes.
 *
 * KNOWN_MORE: the number of bytes by which the library's structs are longer than this program's.
 * FIRST_VERSION: this program's structs are the first version's; a failure means that the library
 * names another field as the first version's last one (SMELT__STRUCT). HEADERS: the folder of this
 * program's headers (before they grew); each struct in them that grows must be a subject, here or
 * in operators.c.
 */
#include <dirent.h>
#include <unistd.h>

#include "../unit/test.h"
#include "subjects.h"

#define KERNEL "sparse_attn_fwd:heads=64,dqk=576,dv=512,topk=2048"
#define OTHER_KERNEL "sparse_attn_fwd:heads=16,dqk=128,dv=128,topk=64"
#define DEVICE "Fake GPU 0"

enum { ROOM = 70000, MOST_SUBJECTS = 256 };

static smelt_context *context;
static char folder[] = "/tmp/smelt-abi-XXXXXX";
static char exported[sizeof folder + 16];

/* ---- each struct of the public headers but the operators' ------------------------------------ */

void fill_nothing(void *memory) {
    (void)memory;
}

static void fill_options(void *memory) {
    smelt_context_options *options = memory;
    options->kind = SMELT_CONTEXT_COMPILE_ONLY;
    options->arch = "sm_90a";
    options->cache_dir = folder;
}

static smelt_status call_options(void *memory) {
    smelt_context *made = NULL;
    smelt_status status = smelt_context_create(&made, memory);
    smelt_context_destroy(&made);
    return status;
}

static smelt_status call_report(void *memory) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    options.cache_dir = folder;
    smelt_status status = smelt_machine_get_report(&options, memory);
    if (status == SMELT_OK)
        smelt_machine_report_release(memory);
    return status;
}

static smelt_status call_infos(void *memory) {
    smelt_kernel_request request = SMELT_KERNEL_REQUEST_INIT;
    request.spec = KERNEL;
    return smelt_kernels_prepare(context, &request, 1, 1, NULL, NULL, memory);
}

static void fill_request(void *memory) {
    ((smelt_kernel_request *)memory)->spec = KERNEL;
}

static void fill_entry(void *memory) {
    smelt_tuning_entry *entry = memory;
    entry->spec = KERNEL;
    entry->knobs = "stages=2";
    entry->microseconds = 100;
}

/* Calls with one struct of the caller's. */
#define CALL(name, call)                                                                           \
    static smelt_status name(void *memory) {                                                       \
        return call;                                                                               \
    }
CALL(call_context, smelt_context_get_info(context, memory))
CALL(call_device, smelt_device_get_info(context, memory))
CALL(call_family, smelt_family_get_info("sparse_attn", memory))
CALL(call_key, smelt_family_get_key("sparse_attn", 0, memory))
CALL(call_requests, smelt_kernels_prepare(context, memory, 1, 1, NULL, NULL, NULL))
CALL(call_stats, smelt_cache_get_stats(context, memory))
CALL(call_pruned, smelt_cache_prune(context, 0, 0, memory))
CALL(call_export, smelt_cache_export(context, exported, memory))
CALL(call_import, smelt_cache_import(context, exported, memory))
CALL(call_entry, smelt_tuning_get_entry(context, KERNEL, memory))
CALL(call_store, smelt_tuning_store(context, memory))

static const struct subject library_subjects[] = {
    SUBJECT(smelt_context_options, "options", 1, fill_options, call_options),
    SUBJECT(smelt_context_info, "info", 0, fill_nothing, call_context),
    SUBJECT(smelt_device_info, "info", 0, fill_nothing, call_device),
    SUBJECT(smelt_machine_report, "report", 0, fill_nothing, call_report),
    SUBJECT(smelt_family_info, "info", 0, fill_nothing, call_family),
    SUBJECT(smelt_family_key, "key", 0, fill_nothing, call_key),
    SUBJECT(smelt_kernel_info, "infos[0]", 0, fill_nothing, call_infos),
    SUBJECT(smelt_kernel_request, "requests[0]", 1, fill_request, call_requests),
    SUBJECT(smelt_cache_stats, "stats", 0, fill_nothing, call_stats),
    SUBJECT(smelt_cache_pruned, "pruned", 0, fill_nothing, call_pruned),
    SUBJECT(smelt_cache_transfer, "result", 0, fill_nothing, call_export),
    SUBJECT(smelt_cache_transfer, "result", 0, fill_nothing, call_import),
    SUBJECT(smelt_tuning_entry, "entry", 0, fill_nothing, call_entry),
    SUBJECT(smelt_tuning_entry, "entry", 1, fill_entry, call_store),
};

int subject_pass;

/* All subjects; the operators' come last. */
static struct subject subjects[MOST_SUBJECTS];
static int subject_count;

void add_subjects(const struct subject *more, int count) {
    assert_true(subject_count + count <= MOST_SUBJECTS);
    memcpy(subjects + subject_count, more, (size_t)count * sizeof *more);
    subject_count += count;
}

/* ---- none is missing ---- */

static int is_subject(const char *type) {
    for (int i = 0; i < subject_count; i++)
        if (!strcmp(subjects[i].type, type))
            return 1;
    return 0;
}

/* The number of structs in a header that grow, that is, begin with `size_t size;`. */
static int count_growing(const char *path) {
    char line[256], type[64] = "";
    int count = 0;
    FILE *header = fopen(path, "r");
    assert_non_null(header);
    while (fgets(line, sizeof line, header)) {
        if (!strncmp(line, "    size_t size;", 16) && type[0]) {
            count++;
            if (!is_subject(type))
                fail_msg("%s: %s is no subject of this test", path, type);
        }
        if (sscanf(line, "typedef struct %63[a-z0-9_] {", type) != 1)
            type[0] = '\0';
    }
    fclose(header);
    return count;
}

TEST(each_struct_is_a_subject) {
    char path[1024];
    int headers = 0, structs = 0;
    const struct dirent *entry;
    DIR *all = opendir(HEADERS);
    assert_non_null(all);
    while ((entry = readdir(all))) {
        if (entry->d_name[0] == '.')
            continue;
        assert_true(snprintf(path, sizeof path, HEADERS "/%s", entry->d_name) < (int)sizeof path);
        structs += count_growing(path);
        headers++;
    }
    closedir(all);
    printf("%d structs of %d headers grow\n", structs, headers);
    assert_true(headers >= 20 && structs >= 27);
}

/* Memory for a struct and the bytes after it. */
static _Alignas(64) unsigned char room[ROOM];

static void set(const struct subject *subject, size_t size) {
    memset(room, CANARY, sizeof room);
    memset(room, 0, size < subject->size ? subject->size : size);
    subject_pass = subject->pass;
    subject->fill(room);
    memcpy(room, &size, sizeof size);
}

static int bytes_are(size_t from, size_t to, unsigned char value) {
    for (size_t i = from; i < to; i++)
        if (room[i] != value)
            return 0;
    return 1;
}

/* ---- sizes ---- */

TEST(own_size) {
    for (int i = 0; i < subject_count; i++) {
        const struct subject *subject = &subjects[i];
        size_t size;
        set(subject, subject->size);
        if (subject->call(room) != SMELT_OK)
            fail_msg("%s, %s: %s", subject->type, subject->argument, smelt_last_error());
        if (!bytes_are(subject->size, ROOM, CANARY))
            fail_msg("%s: written beyond its end", subject->type);
        memcpy(&size, room, sizeof size);
        assert_int_equal(size, subject->size);
    }
}

TEST(impossible_sizes) {
    for (int i = 0; i < subject_count; i++) {
        const struct subject *subject = &subjects[i];
        const size_t sizes[] = {
            0, 1, sizeof(size_t), subject->size - 24, subject->size + 1, 65544, SIZE_MAX};
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            char expected[64];
            set(subject, subject->size + 1);
            memcpy(room, &sizes[k], sizeof sizes[k]);
            const smelt_status status = subject->call(room);
            snprintf(expected, sizeof expected, "%s.size is %zu", subject->argument, sizes[k]);
            if (status != SMELT_ERROR_INVALID_ARGUMENT || !strstr(smelt_last_error(), expected) ||
                !strstr(smelt_last_error(), "_INIT"))
                fail_msg("%s of size %zu: %s, %s", subject->type, sizes[k],
                         smelt_status_name(status), smelt_last_error());
#ifdef FIRST_VERSION
            snprintf(expected, sizeof expected, "legal: %zu (the first version's)", subject->size);
            if (!strstr(smelt_last_error(), expected))
                fail_msg("%s: not \"%s\": %s", subject->type, expected, smelt_last_error());
#endif
            if (!subject->is_input && !bytes_are(sizeof(size_t), subject->size, 0))
                fail_msg("%s of size %zu: refused and written to", subject->type, sizes[k]);
        }
    }
}

/* A struct longer than any library's, whose additional bytes are 0. */
TEST(longer) {
    for (int i = 0; i < subject_count; i++) {
        const struct subject *subject = &subjects[i];
        const size_t size = subject->size + TAIL;
        set(subject, size);
        if (!subject->is_input)
            memset(room + subject->size, POISON, TAIL);
        if (subject->call(room) != SMELT_OK)
            fail_msg("%s, %s: %s", subject->type, subject->argument, smelt_last_error());
        if (!bytes_are(size, ROOM, CANARY))
            fail_msg("%s: written beyond its end", subject->type);
        /* The library may have filled the first 16 of the additional bytes. */
        if (!bytes_are(subject->size + TAIL / 2, size, 0))
            fail_msg("%s: what the library does not know is not 0", subject->type);
    }
}

/* The same with an additional byte that is not 0. */
TEST(longer_with_something_new) {
    for (int i = 0; i < subject_count; i++) {
        const struct subject *subject = &subjects[i];
        const size_t size = subject->size + TAIL, last = size - 1;
        char expected[96];
        if (!subject->is_input)
            continue;
        set(subject, size);
        room[last] = 1;
        const smelt_status status = subject->call(room);
        snprintf(expected, sizeof expected, "%s.size is %zu and this library (", subject->argument,
                 size);
        if (status != SMELT_ERROR_INVALID_ARGUMENT || !strstr(smelt_last_error(), expected))
            fail_msg("%s: %s, %s", subject->type, smelt_status_name(status), smelt_last_error());
        snprintf(expected, sizeof expected, "byte %zu", last);
        assert_non_null(strstr(smelt_last_error(), expected));
        snprintf(expected, sizeof expected, "knows the first %zu bytes",
                 (size_t)((ptrdiff_t)subject->size + (KNOWN_MORE)));
        if (!strstr(smelt_last_error(), expected))
            fail_msg("%s: not \"%s\": %s", subject->type, expected, smelt_last_error());
    }
}

/* ---- what the calls do and fill ---- */

TEST(options_work) {
    smelt_kernel_info infos[1] = {SMELT_KERNEL_INFO_INIT};
    smelt_kernel_request request = SMELT_KERNEL_REQUEST_INIT;
    request.spec = KERNEL;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    smelt_context_info info = SMELT_CONTEXT_INFO_INIT;
    smelt_context *made = NULL;
    options.kind = SMELT_CONTEXT_COMPILE_ONLY;
    options.arch = "sm_80";
    options.cache_disable = 1;
    options.tuning_device = "Another GPU";
    options.offline = 1; /* the last field that is used */
    assert_int_equal(smelt_context_create(&made, &options), SMELT_OK);
    assert_int_equal(smelt_kernels_prepare(made, &request, 1, 1, NULL, NULL, infos),
                     SMELT_ERROR_NO_COMPILER);
    assert_int_equal(strlen(infos[0].key), 32);
    assert_string_equal(smelt_context_arch(made), "sm_80");
    assert_int_equal(smelt_context_get_info(made, &info), SMELT_OK);
    assert_string_equal(info.tuning_device, "Another GPU");
    assert_string_equal(info.tuning_path, "");
    smelt_context_destroy(&made);
}

TEST(kernels_work) {
    struct {
        smelt_kernel_info list[3];
        unsigned char canary[256];
    } infos;
    smelt_kernel_request requests[3] = {SMELT_KERNEL_REQUEST_INIT};
    smelt_context_info info = SMELT_CONTEXT_INFO_INIT;

    requests[0].spec = KERNEL;
    requests[1].spec = "nonsense:x=1";
    requests[2].spec = OTHER_KERNEL;
    requests[2].arch = "sm_80";
    memset(&infos, CANARY, sizeof infos);
    infos.list[0].size = sizeof infos.list[0]; /* the others' are ignored */
    assert_int_equal(smelt_kernels_prepare(context, requests, 3, 2, NULL, NULL, infos.list),
                     SMELT_ERROR_INVALID_SPEC);
    for (size_t i = 0; i < sizeof infos.canary; i++)
        assert_int_equal(infos.canary[i], CANARY);
    for (int i = 0; i < 3; i++)
        assert_int_equal(infos.list[i].size, sizeof infos.list[i]);
    assert_string_equal(infos.list[0].spec, KERNEL);
    assert_string_equal(infos.list[0].arch, "sm_90a");
    assert_int_equal(strlen(infos.list[0].key), 32);
    assert_string_equal(infos.list[0].error, "");
    assert_int_equal(infos.list[0].status, SMELT_OK);
    assert_int_not_equal(infos.list[0].state, SMELT_KERNEL_FAILED);
    assert_true(infos.list[0].cubin_bytes > 0); /* the last field */
    assert_string_equal(infos.list[1].spec, "nonsense:x=1");
    assert_int_equal(infos.list[1].state, SMELT_KERNEL_FAILED);
    assert_int_equal(infos.list[1].status, SMELT_ERROR_INVALID_SPEC);
    assert_non_null(strstr(infos.list[1].error, "nonsense"));
    assert_string_equal(infos.list[1].key, "");
    assert_string_equal(infos.list[2].spec, OTHER_KERNEL);
    assert_string_equal(infos.list[2].arch, "sm_80");
    assert_true(infos.list[2].cubin_bytes > 0);
    assert_string_not_equal(infos.list[2].key, infos.list[0].key);
    assert_int_equal(smelt_context_get_info(context, &info), SMELT_OK);
    assert_true(info.compiled >= 1 && info.loaded >= 1);
}

TEST(families_work) {
    smelt_family_info info = SMELT_FAMILY_INFO_INIT;
    smelt_family_key key = SMELT_FAMILY_KEY_INIT;
    int required = 0, count = 0;

    assert_int_equal(smelt_family_get_info("sparse_attn", &info), SMELT_OK);
    assert_true(info.is_operator && info.keys > 4 && strlen(info.summary) > 0);
    while (smelt_family_get_key("sparse_attn", count, &key) == SMELT_OK) {
        assert_true(strlen(key.name) > 0 && strlen(key.legal) > 0 && strlen(key.meaning) > 0);
        required += key.required;
        count++;
    }
    assert_int_equal(count, info.keys);
    assert_int_equal(required, 4);                                    /* heads, dqk, dv, topk */
    assert_int_equal(smelt_family_get_info(KERNEL, &info), SMELT_OK); /* of a spec */
    assert_int_equal(info.is_operator, 0);
    assert_int_equal(smelt_family_get_info("sparse_attn:heads=64", &info),
                     SMELT_ERROR_INVALID_SPEC);
}

TEST(machines_work) {
    smelt_device_info info = SMELT_DEVICE_INFO_INIT;
    smelt_machine_report report = SMELT_MACHINE_REPORT_INIT;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;

    options.cache_dir = folder;
    assert_int_equal(smelt_device_get_info(context, &info), SMELT_OK);
    assert_string_equal(info.name, DEVICE);
    assert_int_equal(info.capability_major, 9);
    assert_true(info.multiprocessors > 0 && info.free_bytes > 0);
    assert_int_equal(smelt_machine_get_report(&options, &report), SMELT_OK);
    assert_true(report.driver_found && report.nvrtc_found);
    assert_int_equal(report.devices, 1);
    assert_string_equal(report.device_names[0], DEVICE);
    assert_string_equal(report.device_archs[0], "sm_90a");
    assert_string_equal(report.driver_problem, "");
    assert_string_equal(report.nvrtc_path, getenv("SMELT_NVRTC"));
    assert_string_equal(report.cache_folder, folder);
    assert_string_equal(report.cache_problem, "");
    smelt_machine_report_release(&report);
    assert_null(report.memory);
    assert_null(report.cache_problem);
}

static int count_entry(void *user, const char *file, const smelt_kernel_info *info) {
    assert_true(strlen(file) > 0 && info->size > 0);
    *(int *)user += info->state == SMELT_KERNEL_CACHED && info->cubin_bytes > 0;
    return 0;
}

TEST(caches_work) {
    smelt_cache_stats stats = SMELT_CACHE_STATS_INIT;
    smelt_cache_transfer transfer = SMELT_CACHE_TRANSFER_INIT;
    smelt_cache_pruned pruned = SMELT_CACHE_PRUNED_INIT;
    int count = 0;

    assert_int_equal(smelt_cache_get_stats(context, &stats), SMELT_OK);
    assert_string_equal(stats.folder, folder);
    assert_string_equal(stats.problem, "");
    assert_string_equal(stats.readonly, "");
    assert_string_equal(stats.readonly_problem, "");
    assert_true(stats.entries > 0 && stats.stores >= stats.entries);
    assert_int_equal(smelt_cache_walk(context, NULL, count_entry, &count), SMELT_OK);
    assert_int_equal(count, stats.entries);
    assert_int_equal(smelt_cache_export(context, exported, &transfer), SMELT_OK);
    assert_int_equal(transfer.entries, stats.entries);
    assert_int_equal(transfer.tuning, 1); /* the last field */
    assert_int_equal(smelt_cache_import(context, exported, &transfer), SMELT_OK);
    assert_int_equal(transfer.present, stats.entries);
    assert_int_equal(smelt_cache_prune(context, 1, 0, &pruned), SMELT_OK);
    assert_int_equal(pruned.removed, stats.entries);
    assert_int_equal(pruned.kept_bytes, 0);
}

static int find_entry(void *user, const smelt_tuning_entry *entry) {
    *(int *)user += !strcmp(entry->spec, KERNEL) && !strcmp(entry->knobs, "stages=2") &&
                    entry->microseconds == 100;
    return 0;
}

/* Leaves the entry in the file. */
TEST(tuning_works) {
    smelt_tuning_entry entry = SMELT_TUNING_ENTRY_INIT, found = SMELT_TUNING_ENTRY_INIT;
    int count = 0;
    fill_entry(&entry);
    assert_int_equal(smelt_tuning_store(context, &entry), SMELT_OK);
    assert_int_equal(smelt_tuning_get_entry(context, KERNEL ",stages=3", &found), SMELT_OK);
    assert_string_equal(found.spec, KERNEL);
    assert_string_equal(found.device, DEVICE);
    assert_string_equal(found.knobs, "stages=2");
    assert_true(found.microseconds == 100);
    assert_int_equal(smelt_tuning_walk(context, find_entry, &count), SMELT_OK);
    assert_int_equal(count, 1);
    assert_int_equal(smelt_tuning_get_entry(context, OTHER_KERNEL, &found), SMELT_OK);
    assert_string_equal(found.knobs, "");
}

TEST(operators) {
    operators_work();
}

TEST(infos) {
    kernel_infos();
}

/* Strings outlive the struct and the call. */
TEST(strings_stay) {
    smelt_kernel_info infos[1] = {SMELT_KERNEL_INFO_INIT}, again[1] = {SMELT_KERNEL_INFO_INIT};
    smelt_kernel_request request = SMELT_KERNEL_REQUEST_INIT;
    char spec[] = OTHER_KERNEL;
    request.spec = spec;
    assert_int_equal(smelt_kernels_prepare(context, &request, 1, 1, NULL, NULL, infos), SMELT_OK);
    memset(spec, 'x', sizeof spec - 1);
    assert_string_equal(infos[0].spec, OTHER_KERNEL);
    request.spec = OTHER_KERNEL;
    assert_int_equal(smelt_kernels_prepare(context, &request, 1, 1, NULL, NULL, again), SMELT_OK);
    assert_ptr_equal(again[0].spec, infos[0].spec);
    assert_ptr_equal(again[0].key, infos[0].key);
}

/* ---- */

static int set_up(void **state) {
    (void)state;
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    if (!mkdtemp(folder))
        return -1;
    snprintf(exported, sizeof exported, "%s/exported", folder);
    options.kind = SMELT_CONTEXT_DEVICE;
    options.cache_dir = folder;
    add_subjects(library_subjects, sizeof library_subjects / sizeof library_subjects[0]);
    if (smelt_context_create(&context, &options) || make_operators(context) ||
        smelt_cache_export(context, exported, NULL)) {
        fprintf(stderr, "%s\n", smelt_last_error());
        return -1;
    }
    return 0;
}

static int tear_down(void **state) {
    char command[sizeof folder + 16];
    (void)state;
    destroy_operators();
    smelt_context_destroy(&context);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

TESTS("structs of another version", .group_setup = set_up, .group_teardown = tear_down)
