/* Running on the emulator instead of a GPU: see src/emu/emulator.h. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "emulator_folders.h"
#include "harness/emulated.h"
#include "tool.h"

enum { PATH = 4096 };

/* ---- a C compiler ---------------------------------------------------------------------------- */

static int is_file(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static int is_program(const char *path) {
    return is_file(path) && access(path, X_OK) == 0;
}

/* Whether the program named by the first word exists, in PATH or at the given path. */
static int can_run(const char *name) {
    const char *folders = getenv("PATH");
    int length = (int)strcspn(name, " ");
    char path[PATH];
    if (length == 0)
        return 0;
    snprintf(path, sizeof path, "%.*s", length, name);
    if (strchr(path, '/'))
        return is_program(path);
    while (folders && *folders) {
        int folder = (int)strcspn(folders, ":");
        snprintf(path, sizeof path, "%.*s/%.*s", folder, folders, length, name);
        if (is_program(path))
            return 1;
        folders += folder + (folders[folder] == ':');
    }
    return 0;
}

/* Requires the compiler named by CC, or without CC any. */
static int need_compiler(const struct tool_options *options) {
    const char *named = getenv("CC");
    if (named)
        named += strspn(named, " ");
    if (named && *named)
        return can_run(named) ? TOOL_OK
                              : tool_fail(options, TOOL_MISSING,
                                          "CC names the C compiler \"%s\", which cannot be run: "
                                          "install it, or unset CC",
                                          named);
    return can_run("cc") || can_run("gcc") || can_run("clang")
               ? TOOL_OK
               : tool_fail(options, TOOL_MISSING,
                           "--emulate needs a C compiler, but none of cc, gcc and clang was found: "
                           "install gcc or clang, or set CC");
}

/* ---- the library ----------------------------------------------------------------------------- */

/* A path relative to the running command's folder. */
static void path_from_command(const char *relative, char path[PATH]) {
    ssize_t length = readlink("/proc/self/exe", path, PATH - 1);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash - path) : 0;
    snprintf(path + folder, PATH - folder, "/%s", relative);
}

static int find_library(const struct tool_options *options, char path[PATH]) {
    static const char in_build[] = "src/emu/libsmelt_emu.so";
    static const char beside[] = SMELT_EMULATOR_FROM_BIN "/libsmelt_emu.so";
    static const char installed[] = SMELT_EMULATOR_FOLDER "/libsmelt_emu.so";
    const char *named = secure_getenv("SMELT_EMULATOR");
    if (named && *named) {
        if (!is_file(named))
            return tool_fail(
                options, TOOL_MISSING,
                "SMELT_EMULATOR names %s, which does not exist: unset it to use the installed one",
                named);
        snprintf(path, PATH, "%s", named);
        return TOOL_OK;
    }
    path_from_command(in_build, path);
    if (is_file(path))
        return TOOL_OK;
    path_from_command(beside, path); /* also works if the installation was moved */
    if (is_file(path))
        return TOOL_OK;
    snprintf(path, PATH, "%s", installed);
    if (is_file(path))
        return TOOL_OK;
    path_from_command(beside, path);
    return tool_fail(
        options, TOOL_MISSING,
        "the emulator was not found: neither %s nor %s exists; run `ninja` in the build folder, or "
        "`meson install`, or set SMELT_EMULATOR to its path",
        path, installed);
}

int tool_open_emulator(const struct tool_options *options) {
    char path[PATH];
    int status = need_compiler(options);
    if (status == TOOL_OK)
        status = find_library(options, path);
    if (status != TOOL_OK)
        return status;
    setenv("SMELT_CUDA", path, 1);
    setenv("SMELT_NVRTC", path, 1);
    if (!smelt__emulator())
        return tool_fail(options, TOOL_MISSING, "%s is not smelt's emulator, or cannot be opened",
                         path);
    return TOOL_OK;
}

/* ---- an emulated device ---------------------------------------------------------------------- */

int tool_open_emulated_device(const struct tool_options *options, const char *arch,
                              smelt_context **context) {
    smelt_context_options settings = tool_context_options(options);
    settings.kind = SMELT_CONTEXT_DEVICE;
    settings.cache_disable = 1; /* kernels compiled here are not cubins */
    smelt__emulator_configure(arch, smelt__schedule_at(0, 0), 0);
    smelt_status status = smelt_context_create(context, &settings);
    if (status)
        return tool_fail_status(options, status);
    if (strcmp(smelt_context_arch(*context), arch) == 0)
        return TOOL_OK;
    int failed = tool_fail(options, TOOL_USAGE,
                           "--arch %s: a GPU of that compute capability takes kernels for %s: say "
                           "--arch %s",
                           arch, smelt_context_arch(*context), smelt_context_arch(*context));
    smelt_context_destroy(context);
    return failed;
}
