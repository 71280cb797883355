/* Options and environment variables, resolved when a context is created. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/abi.h"
#include "runtime/context.h"

enum { DEFAULT_LOCK_TIMEOUT_MS = 60000 };
#define DEFAULT_CACHE_CAP ((uint64_t)1 << 30)

/* NULL when unset, empty, or ignored because the program runs with another user's rights. */
static const char *environment(const char *name) {
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

static smelt_status copy_path(char *to, const char *what, const char *from) {
    if (strlen(from) >= SMELT__PATH)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "%s is longer than %d bytes", what,
                           SMELT__PATH - 1);
    snprintf(to, SMELT__PATH, "%s", from);
    return SMELT_OK;
}

static smelt_status bad_variable(const char *name, const char *value, const char *legal) {
    return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                       "the environment variable %s is \"%s\"; legal: %s", name, value, legal);
}

static smelt_status resolve_flag(int option, const char *name, int *flag) {
    const char *value = environment(name);
    *flag = option != 0;
    if (option || !value || strcmp(value, "0") == 0)
        return SMELT_OK;
    if (strcmp(value, "1") != 0)
        return bad_variable(name, value, "0, 1");
    *flag = 1;
    return SMELT_OK;
}

static smelt_status resolve_cap(uint64_t option, uint64_t *cap) {
    static const char legal[] = "a number of bytes above 0, optionally followed by K, M or G";
    const char *value = environment("SMELT_CACHE_CAP");
    char *end;

    *cap = option ? option : DEFAULT_CACHE_CAP;
    if (option || !value)
        return SMELT_OK;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    const char *unit = strchr("KMG", *end);
    int shift = *end && unit ? 10 * (1 + (int)(unit - "KMG")) : 0;
    if (*end && unit)
        end++;
    if (errno || *end || value[0] < '0' || value[0] > '9' || number == 0 ||
        number > UINT64_MAX >> shift)
        return bad_variable("SMELT_CACHE_CAP", value, legal);
    *cap = (uint64_t)number << shift;
    return SMELT_OK;
}

static smelt_status resolve_lock(smelt_cache_lock option, smelt_cache_lock *lock) {
    static const char *const names[] = {"local", "shared", "off"};
    const char *value = environment("SMELT_CACHE_LOCK");

    if ((int)option < 0 || option > SMELT_CACHE_LOCK_OFF)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "options.cache_lock is %d; legal: 0..3",
                           (int)option);
    *lock = option ? option : SMELT_CACHE_LOCK_LOCAL;
    if (option || !value)
        return SMELT_OK;
    for (int i = 0; i < 3; i++)
        if (strcmp(value, names[i]) == 0) {
            *lock = (smelt_cache_lock)(i + 1);
            return SMELT_OK;
        }
    return bad_variable("SMELT_CACHE_LOCK", value, "local, shared, off");
}

/* "60" or "2.5", in any locale; -1 when malformed or above INT_MAX milliseconds. */
static int read_seconds(const char *text) {
    const char *at = text;
    int64_t milliseconds = 0;

    for (; *at >= '0' && *at <= '9' && milliseconds <= INT_MAX; at++)
        milliseconds = milliseconds * 10 + (*at - '0') * 1000;
    if (at == text)
        return -1;
    if (*at == '.')
        for (int unit = 100; *++at >= '0' && *at <= '9'; unit /= 10)
            milliseconds += unit * (*at - '0');
    return *at || milliseconds > INT_MAX ? -1 : (int)milliseconds;
}

static smelt_status resolve_timeout(int option, int *milliseconds) {
    const char *value = environment("SMELT_CACHE_LOCK_TIMEOUT");

    if (option < 0)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "options.cache_lock_timeout_ms is %d; legal: 0 (the default) and up",
                           option);
    *milliseconds = option ? option : DEFAULT_LOCK_TIMEOUT_MS;
    if (option || !value)
        return SMELT_OK;
    *milliseconds = read_seconds(value);
    return *milliseconds >= 0
               ? SMELT_OK
               : bad_variable("SMELT_CACHE_LOCK_TIMEOUT", value, "seconds, 0 and up: 60, 2.5");
}

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static void log_to_stderr(void *user, smelt_log_level level, const char *message) {
    (void)user;
    fprintf(stderr, "smelt: %s: %s\n", level_names[level - SMELT_LOG_ERROR], message);
}

/* The variable overrides the option, so that a user can debug a program that sets its own level, and
 * standard error takes the place of a log that the program does not have. */
static smelt_status resolve_log(const smelt_context_options *options, struct smelt__log *log) {
    const char *value = environment("SMELT_LOG");

    log->function = options->log;
    log->user = options->log_user;
    log->level = options->log_level ? options->log_level : SMELT_LOG_WARNING;
    if ((int)options->log_level < 0 || options->log_level > SMELT_LOG_DEBUG)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT, "options.log_level is %d; legal: 0..%d",
                           (int)options->log_level, SMELT_LOG_DEBUG);
    if (!value)
        return SMELT_OK;
    for (int i = 0; i < 4; i++)
        if (strcmp(value, level_names[i]) == 0) {
            log->level = (smelt_log_level)(SMELT_LOG_ERROR + i);
            if (!log->function)
                log->function = log_to_stderr;
            return SMELT_OK;
        }
    return bad_variable("SMELT_LOG", value, "error, warning, info, debug");
}

/* An additional NVRTC option, for a debugger or a profiler. */
static smelt_status resolve_debug(const char **option) {
    const char *value = environment("SMELT_NVRTC_DEBUG");
    *option = NULL;
    if (!value)
        return SMELT_OK;
    if (strcmp(value, "lines") == 0)
        *option = "--generate-line-info";
    else if (strcmp(value, "full") == 0)
        *option = "--device-debug";
    return *option ? SMELT_OK : bad_variable("SMELT_NVRTC_DEBUG", value, "lines, full");
}

static smelt_status resolve_path(const char *option, const char *what, const char *name,
                                 char *path) {
    const char *value = option && *option ? option : environment(name);
    return copy_path(path, option && *option ? what : name, value ? value : "");
}

/* A relative $XDG_CACHE_HOME is ignored (XDG Base Directory Specification). */
static void default_cache_folder(char *folder) {
    const char *xdg = environment("XDG_CACHE_HOME");
    const char *home = environment("HOME");
    int length = 0;

    if (xdg && xdg[0] == '/')
        length = snprintf(folder, SMELT__PATH, "%s/smelt", xdg);
    else if (home)
        length = snprintf(folder, SMELT__PATH, "%s/.cache/smelt", home);
    if (length < 0 || length >= SMELT__PATH)
        folder[0] = '\0';
}

static smelt_status resolve_cache(struct smelt__settings *settings,
                                  const smelt_context_options *options) {
    struct smelt__cache_settings *cache = &settings->cache;
    smelt_status status = resolve_path(options->cache_dir, "options.cache_dir", "SMELT_CACHE_DIR",
                                       settings->cache_folder);
    if (!status && !settings->cache_folder[0])
        default_cache_folder(settings->cache_folder);
    if (!status)
        status = resolve_path(options->cache_readonly_dir, "options.cache_readonly_dir",
                              "SMELT_CACHE_READONLY_DIR", settings->cache_readonly);
    if (!status)
        status = resolve_cap(options->cache_cap_bytes, &cache->cap_bytes);
    if (!status)
        status = resolve_lock(options->cache_lock, &cache->lock);
    if (!status)
        status = resolve_timeout(options->cache_lock_timeout_ms, &cache->lock_timeout_ms);
    if (!status)
        status = resolve_flag(options->cache_disable, "SMELT_CACHE_DISABLE", &cache->disable);
    if (!status)
        status = resolve_flag(options->cache_recompile, "SMELT_CACHE_RECOMPILE", &cache->recompile);
    /* With these variables the compiled kernel does not match its key. */
    cache->disable_emulated = environment("SMELT_EMU_SOURCE") || environment("SMELT_EMU_CFLAGS") ||
                              environment("SMELT_EMU_KEEP");
    cache->folder = settings->cache_folder;
    cache->readonly_folder = settings->cache_readonly;
    return status;
}

/* Makes the path absolute, like the cache's folder. */
static smelt_status make_absolute(char path[SMELT__PATH]) {
    char here[SMELT__PATH], relative[SMELT__PATH];

    if (!path[0] || path[0] == '/')
        return SMELT_OK;
    memcpy(relative, path, sizeof relative);
    if (!getcwd(here, sizeof here) ||
        snprintf(path, SMELT__PATH, "%s/%s", here, relative) >= SMELT__PATH)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "the tuning file %s: its absolute path cannot be determined or is too "
                           "long",
                           relative);
    return SMELT_OK;
}

static smelt_status resolve_tuning(struct smelt__settings *settings,
                                   const smelt_context_options *options) {
    const char *device = options->tuning_device ? options->tuning_device : "";
    smelt_status status =
        resolve_path(options->tuning, "options.tuning", "SMELT_TUNING", settings->tuning_path);
    if (!status)
        status = make_absolute(settings->tuning_path);
    if (!status)
        status = resolve_flag(options->tuning_disable, "SMELT_TUNING_DISABLE",
                              &settings->tuning_disable);
    if (!status && *device && options->kind != SMELT_CONTEXT_COMPILE_ONLY)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "options.tuning_device is \"%s\", but only a compile-only context uses "
                           "it: a context with a device uses that device's entries",
                           device);
    if (!status && strlen(device) >= sizeof settings->tuning_device)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "options.tuning_device is longer than %zu bytes",
                           sizeof settings->tuning_device - 1);
    if (!status)
        memcpy(settings->tuning_device, device, strlen(device) + 1);
    return status;
}

static smelt_status resolve_kind(struct smelt__settings *settings,
                                 const smelt_context_options *options) {
    settings->kind = options->kind;
    settings->device = options->device;
    if ((int)options->kind < 0 || options->kind > SMELT_CONTEXT_COMPILE_ONLY)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "options.kind is %d; legal: SMELT_CONTEXT_CURRENT (0), "
                           "SMELT_CONTEXT_DEVICE (1), SMELT_CONTEXT_COMPILE_ONLY (2)",
                           (int)options->kind);
    if (options->device < 0)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "options.device is %d; legal: a device's number, 0 and up",
                           options->device);
    if (options->device && options->kind != SMELT_CONTEXT_DEVICE)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "options.device is %d, but only options.kind SMELT_CONTEXT_DEVICE takes "
                           "a device's number",
                           options->device);
    if (options->arch && options->kind != SMELT_CONTEXT_COMPILE_ONLY)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "options.arch is \"%s\", but only a compile-only context uses it: a "
                           "context with a device uses that device's architecture",
                           options->arch);
    if (!options->arch && options->kind == SMELT_CONTEXT_COMPILE_ONLY)
        return smelt__fail(SMELT_ERROR_INVALID_ARGUMENT,
                           "options.arch is NULL: a compile-only context needs an architecture, "
                           "for example \"sm_90a\"");
    snprintf(settings->arch, sizeof settings->arch, "%s", options->arch ? options->arch : "");
    return SMELT_OK;
}

smelt_status smelt__settings_resolve(struct smelt__settings *settings,
                                     const smelt_context_options *given) {
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;

    memset(settings, 0, sizeof *settings);
    if (given) {
        smelt_status status = smelt__struct_read(
            SMELT__STRUCT(smelt_context_options, "options", "SMELT_CONTEXT_OPTIONS_INIT", reserved),
            given, &options);
        if (status)
            return status;
    }
    smelt_status status = resolve_kind(settings, &options);
    if (!status)
        status = resolve_path(options.nvrtc_path, "options.nvrtc_path", "SMELT_NVRTC",
                              settings->nvrtc_path);
    if (!status)
        status = resolve_debug(&settings->nvrtc_debug);
    if (!status)
        status = resolve_path(NULL, "", "SMELT_TEMPLATES", settings->templates_folder);
    if (!status)
        status = resolve_cache(settings, &options);
    if (!status)
        status = resolve_tuning(settings, &options);
    if (!status)
        status = resolve_flag(options.offline, "SMELT_OFFLINE", &settings->offline);
    if (!status)
        status = resolve_log(&options, &settings->log);
    return status;
}
