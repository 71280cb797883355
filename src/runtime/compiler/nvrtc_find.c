/*
 * Chooses an NVRTC from files alone: see nvrtc.h. A candidate is a folder that holds a libnvrtc;
 * the name of the builtins library beside it contains major and minor version
 * (libnvrtc-builtins.so.13.0), which libnvrtc's own name often lacks.
 *
 * Errors. An unreadable file must not be mistaken for a missing one: kernels would be stored under
 * a wrong compiler identity. So any error except ENOENT in reading the chosen NVRTC fails the
 * search. Like the loader, the search skips folders that this process may not read and files in
 * their place; it fails when descriptors or memory run out.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/compiler/library_id.h"
#include "runtime/compiler/loader_path.h"
#include "runtime/compiler/nvrtc.h"
#include "runtime/hash.h"

enum {
    OLDEST_MAJOR = 12, /* NVRTC 11 knows neither sm_90a nor the options used */
    NEWEST_MAJOR = 19,
    NEWEST_MINOR = 12,
    MAX_FOLDERS = 32 /* that are recognised when they come again */
};

/* A folder of libraries, or a toolkit that has such folders. */
enum place { FOLDER, TOOLKIT };

struct search {
    const struct smelt__log *log;
    int max_major;                 /* the newest major version that the driver supports; 0: any */
    int newest;                    /* the newest major version that is looked for */
    struct smelt__nvrtc_file best; /* path "": none found so far */
    struct smelt__nvrtc_file too_new;
    struct {
        dev_t device;
        ino_t number;
        enum place place;
    } tried[MAX_FOLDERS]; /* /usr/local/cuda has several names */
    int tried_count;
    int named;               /* a single folder is searched and must be readable */
    int error;               /* the first error that fails the search; 0: none */
    char where[SMELT__PATH]; /* of that error */
};

/* Whether an error is about this process (descriptors, memory) rather than about the file. */
static int is_shortage(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/* Records that `where` could not be read, with errno. */
static void note_unread(struct search *search, const char *where) {
    if (search->error || errno == ENOENT || (!search->named && !is_shortage(errno)))
        return;
    search->error = errno;
    snprintf(search->where, sizeof search->where, "%s", where);
}

/* "libnvrtc.so.13.0.88" gives 13 and 0, "libnvrtc.so.13" gives 13 and -1. */
static void version_from_name(const char *name, int *major, int *minor) {
    const char *digits = strstr(name, ".so.");
    *major = *minor = -1;
    if (digits && sscanf(digits + 4, "%d.%d", major, minor) < 1)
        *major = -1;
}

static int exists_in(struct search *search, int folder, const char *where, const char *name) {
    if (faccessat(folder, name, R_OK, 0) == 0)
        return 1;
    note_unread(search, where);
    return 0;
}

/* Finds the builtins library of this version in a folder, or the newest of this major version; `own`:
 * the minor version, -1: unknown. 0 or -1 with errno. */
static int find_builtins(int folder, const char *folder_name, int major, int own,
                         struct smelt__nvrtc_file *file) {
    char name[64];
    for (int i = own < 0; i <= NEWEST_MINOR + 1; i++) {
        const int minor = i == 0 ? own : NEWEST_MINOR + 1 - i;
        snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", major, minor);
        if (faccessat(folder, name, R_OK, 0) != 0) {
            if (errno != ENOENT)
                return -1;
            continue;
        }
        int length = snprintf(file->builtins, sizeof file->builtins, "%s/%s", folder_name, name);
        errno = ENAMETOOLONG;
        if (length < 0 || (size_t)length >= sizeof file->builtins)
            return -1;
        file->id.major = major;
        file->id.minor = minor;
        return 0;
    }
    return 0;
}

/* Fills in version and builtins from file names. file->path is set. 0 or -1 with errno. */
static int describe(struct smelt__nvrtc_file *file) {
    char resolved[PATH_MAX];
    char folder_name[SMELT__PATH];
    int major, minor, result = 0, error;

    if (!realpath(file->path, resolved))
        return -1;
    const char *name = strrchr(resolved, '/');
    version_from_name(name ? name : "", &major, &minor);
    if (major < 0 && (name = strrchr(file->path, '/')) != NULL)
        version_from_name(name, &major, &minor);
    snprintf(folder_name, sizeof folder_name, "%s", file->path);
    char *slash = strrchr(folder_name, '/');
    snprintf(slash ? slash : folder_name, 2, "%s", slash == folder_name ? "/" : slash ? "" : ".");
    int folder = open(folder_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return -1;
    int last = major < 0 ? OLDEST_MAJOR : major;
    for (int m = major < 0 ? NEWEST_MAJOR : major; m >= last && !file->builtins[0] && !result; m--)
        result = find_builtins(folder, folder_name, m, minor, file);
    error = errno;
    close(folder);
    errno = error;
    if (!file->builtins[0] && major >= 0) {
        file->id.major = major;
        file->id.minor = minor < 0 ? 0 : minor;
    }
    return result;
}

/* Reads both build-ids into the identity. Result as for smelt__library_id_read. */
static int identify(struct smelt__nvrtc_file *file) {
    struct smelt__library_id ids[2];
    memset(ids, 0, sizeof ids);
    int result = smelt__library_id_read(file->path, &ids[0]);
    if (result == 0 && file->builtins[0])
        result = smelt__library_id_read(file->builtins, &ids[1]);
    if (result)
        return result;
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits(ids, sizeof ids));
    memcpy(file->id.build_ids, digest.digest, sizeof file->id.build_ids);
    file->output = ids[0].is_emulator ? SMELT__OUTPUT_EMULATED : SMELT__OUTPUT_CUBIN;
    return 0;
}

static int newer(const struct smelt__nvrtc_file *a, const struct smelt__nvrtc_file *b) {
    if (!b->path[0])
        return 1;
    return a->id.major != b->id.major ? a->id.major > b->id.major : a->id.minor > b->id.minor;
}

static void consider(struct search *search, const char *folder, const char *name) {
    struct smelt__nvrtc_file file;
    memset(&file, 0, sizeof file);
    int length = snprintf(file.path, sizeof file.path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof file.path)
        return;
    if (describe(&file)) {
        note_unread(search, file.path);
        return;
    }
    smelt__log_write(search->log, SMELT_LOG_DEBUG, "NVRTC %d.%d at %s", file.id.major,
                     file.id.minor, file.path);
    if (file.id.major && file.id.major < OLDEST_MAJOR)
        return;
    int runs = search->max_major == 0 || file.id.major <= search->max_major;
    struct smelt__nvrtc_file *slot = runs ? &search->best : &search->too_new;
    if (newer(&file, slot))
        *slot = file;
}

/* Whether a place is missing, or was tried before, also by another name. */
static int is_known(struct search *search, const char *name, enum place place) {
    struct stat status;
    if (stat(name, &status)) {
        note_unread(search, name);
        return 1;
    }
    for (int i = 0; i < search->tried_count; i++)
        if (search->tried[i].device == status.st_dev && search->tried[i].number == status.st_ino &&
            search->tried[i].place == place)
            return 1;
    if (search->tried_count < MAX_FOLDERS) {
        search->tried[search->tried_count].place = place;
        search->tried[search->tried_count].device = status.st_dev;
        search->tried[search->tried_count++].number = status.st_ino;
    }
    return 0;
}

static void try_folder(void *user, const char *name) {
    struct search *search = user;
    char library[64];
    int found = 0;

    if (is_known(search, name, FOLDER))
        return;
    int folder = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        note_unread(search, name);
        return;
    }
    for (int major = search->newest; major >= OLDEST_MAJOR; major--) {
        snprintf(library, sizeof library, "libnvrtc.so.%d", major);
        if (exists_in(search, folder, name, library)) {
            consider(search, name, library);
            found = 1;
        }
    }
    if (!found && exists_in(search, folder, name, "libnvrtc.so"))
        consider(search, name, "libnvrtc.so");
    close(folder);
}

static int stop_for_shortage(const char *path, int error) {
    (void)path;
    errno = error;
    return is_shortage(error);
}

/* Calls `each` for every folder that matches a pattern, in descending order of names; for a path
 * without wildcards whether it exists or not. */
static void try_pattern(struct search *search, void (*each)(void *search, const char *folder),
                        const char *pattern) {
    glob_t matches;
    if (!strpbrk(pattern, "*?[\\")) {
        each(search, pattern);
        return;
    }
    int result = glob(pattern, 0, stop_for_shortage, &matches);
    if (result == GLOB_NOSPACE)
        errno = ENOMEM;
    if (result == GLOB_NOSPACE || result == GLOB_ABORTED)
        note_unread(search, pattern);
    if (result == 0)
        for (size_t i = matches.gl_pathc; i > 0; i--)
            each(search, matches.gl_pathv[i - 1]);
    globfree(&matches);
}

__attribute__((format(printf, 3, 4))) static void
try_printed(struct search *search, void (*each)(void *search, const char *folder),
            const char *format, ...) {
    char pattern[SMELT__PATH];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(pattern, sizeof pattern, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < sizeof pattern)
        try_pattern(search, each, pattern);
}

/* A folder of Python packages: NVIDIA's wheels unpack into nvidia/cu13/lib, those of CUDA 12 into
 * nvidia/cuda_nvrtc/lib. */
static void try_packages(void *user, const char *packages) {
    struct search *search = user;
    char nvidia[SMELT__PATH];
    const int length = snprintf(nvidia, sizeof nvidia, "%s/nvidia", packages);
    if (length < 0 || (size_t)length >= sizeof nvidia)
        return;
    if (access(nvidia, F_OK) != 0) {
        note_unread(search, nvidia);
        return;
    }
    try_printed(search, try_folder, "%s/nvidia/cu[1-9]*/lib", packages);
    try_printed(search, try_folder, "%s/nvidia/cuda_nvrtc/lib", packages);
}

/* The folders of packages in lib/python3.N. */
static void try_library(void *user, const char *library) {
    static const char *const kinds[] = {"site", "dist"};
    char packages[SMELT__PATH];
    for (int i = 0; i < 2; i++) {
        const int length = snprintf(packages, sizeof packages, "%s/%s-packages", library, kinds[i]);
        if (length > 0 && (size_t)length < sizeof packages)
            try_packages(user, packages);
    }
}

static void try_python_prefix(struct search *search, const char *prefix) {
    if (prefix && *prefix)
        try_printed(search, try_library, "%s/lib/python3*", prefix);
}

/* The prefix of the running program if that is Python. */
static void try_own_prefix(struct search *search) {
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return;
    path[length] = '\0';
    char *slash = strstr(path, "/bin/python");
    if (!slash)
        return;
    *slash = '\0';
    try_python_prefix(search, path);
}

static void try_wheels(struct search *search) {
    char entry[SMELT__PATH];
    const char *home = secure_getenv("HOME");

    smelt__path_list_each(secure_getenv("PYTHONPATH"), ":", try_packages, search);
    try_python_prefix(search, secure_getenv("VIRTUAL_ENV"));
    try_python_prefix(search, secure_getenv("CONDA_PREFIX"));
    try_own_prefix(search);
    if (home && *home) {
        snprintf(entry, sizeof entry, "%s/.local", home);
        try_python_prefix(search, entry);
    }
    try_python_prefix(search, "/usr/local");
    try_packages(search, "/usr/lib/python3/dist-packages");
    try_python_prefix(search, "/usr");
}

static void try_toolkit(struct search *search, const char *home) {
    if (!home || !*home || is_known(search, home, TOOLKIT))
        return;
    try_printed(search, try_folder, "%s/lib64", home);
    try_printed(search, try_folder, "%s/targets/*-linux/lib", home);
    try_printed(search, try_folder, "%s/lib", home);
}

static smelt_status unread(const char *path, int error, struct smelt__nvrtc_file *file) {
    file->in_doubt = 1;
    return smelt__fail(SMELT_ERROR_NO_COMPILER, "NVRTC cannot be identified: %s: %s%s", path,
                       strerror(error),
                       error == EMFILE || error == ENFILE
                           ? ": close files, or raise the limit on open files (ulimit -n)"
                           : "");
}

/* Turns the result of smelt__library_id_read into a status and message. */
static smelt_status identified(int result, struct smelt__nvrtc_file *file) {
    int error = errno;

    if (result < 0)
        return unread(file->path, error, file);
    return result ? smelt__fail(SMELT_ERROR_NO_COMPILER,
                                "%s, or the builtins library beside it, is not a shared library of "
                                "this machine: repair the installation, or set SMELT_NVRTC to "
                                "another one",
                                file->path)
                  : SMELT_OK;
}

static smelt_status find_named(const char *named, struct smelt__nvrtc_file *file) {
    struct stat status;
    struct search search;
    int result = 0;

    if (stat(named, &status)) {
        file->in_doubt = errno != ENOENT;
        return smelt__fail(SMELT_ERROR_NO_COMPILER,
                           "the NVRTC \"%s\" named by SMELT_NVRTC or the option nvrtc_path "
                           "cannot be opened: %s",
                           named, strerror(errno));
    }
    memset(&search, 0, sizeof search);
    search.newest = NEWEST_MAJOR;
    if (S_ISDIR(status.st_mode)) {
        search.named = 1;
        try_folder(&search, named);
        if (search.error)
            return unread(search.where, search.error, file);
        if (!search.best.path[0])
            return smelt__fail(SMELT_ERROR_NO_COMPILER,
                               "the folder \"%s\" named by SMELT_NVRTC or the option nvrtc_path "
                               "holds no libnvrtc.so.12 or later",
                               named);
        *file = search.best;
    } else {
        snprintf(file->path, sizeof file->path, "%s", named);
        result = describe(file);
    }
    return identified(result ? result : identify(file), file);
}

static smelt_status not_found(const struct search *search) {
    if (search->too_new.path[0])
        return smelt__fail(
            SMELT_ERROR_NO_COMPILER,
            "NVRTC %d.%d at %s is newer than the driver, which runs CUDA %d: install "
            "NVRTC %d beside it (CUDA 12's is in the Python package "
            "nvidia-cuda-nvrtc-cu12), or a newer driver",
            search->too_new.id.major, search->too_new.id.minor, search->too_new.path,
            search->max_major, search->max_major);
    return smelt__fail(SMELT_ERROR_NO_COMPILER,
                       "no NVRTC 12 or newer was found in the loader's path, CUDA_HOME, CUDA_PATH, "
                       "/usr/local/cuda* or Python's packages: install the CUDA toolkit or `pip "
                       "install nvidia-cuda-nvrtc`, or set SMELT_NVRTC to libnvrtc's path");
}

static void search_places(struct search *search, int newest) {
    search->newest = newest;
    search->tried_count = 0;
    if (smelt__loader_folders("libnvrtc.so", try_folder, search))
        note_unread(search, "the loader's cache");
    try_toolkit(search, secure_getenv("CUDA_HOME"));
    try_toolkit(search, secure_getenv("CUDA_PATH"));
    try_toolkit(search, "/usr/local/cuda");
    try_pattern(search, try_folder, "/usr/local/cuda-*/lib64");
    try_wheels(search);
}

smelt_status smelt__nvrtc_find(const char *named, int driver_version, const struct smelt__log *log,
                               struct smelt__nvrtc_file *file) {
    memset(file, 0, sizeof *file);
    if (named && *named)
        return find_named(named, file);

    struct search search;
    memset(&search, 0, sizeof search);
    search.log = log;
    search.max_major = driver_version / 1000;
    const int supported =
        search.max_major && search.max_major < NEWEST_MAJOR ? search.max_major : NEWEST_MAJOR;
    search_places(&search, supported);
    /* Only a message names a version that is too new for the driver. */
    if (!search.best.path[0] && !search.error && supported < NEWEST_MAJOR)
        search_places(&search, NEWEST_MAJOR);
    if (search.error)
        return unread(search.where, search.error, file);
    if (!search.best.path[0])
        return not_found(&search);
    *file = search.best;
    return identified(identify(file), file);
}
