/*
 * NVRTC: which one, told from files alone, and its loading, which happens on a cache miss only.
 */
#ifndef SMELT_RUNTIME_NVRTC_H
#define SMELT_RUNTIME_NVRTC_H

#include "runtime/compiled.h"
#include "runtime/cubin.h"
#include "runtime/driver/cuda_abi.h"
#include "runtime/log.h"
#include "smelt/status.h"

enum { SMELT__PATH = 4096, SMELT__MAX_NVRTC_ARCHS = 64 };

/* One NVRTC on disk. */
struct smelt__nvrtc_file {
    char path[SMELT__PATH];       /* of libnvrtc, as found */
    char builtins[SMELT__PATH];   /* of its builtins library, "" when there is none beside it */
    struct smelt__compiler_id id; /* version 0.0 when the file names do not tell it */
    enum smelt__output output;    /* what it makes */
    int in_doubt; /* the search failed because a file could not be read; it may succeed later */
};

/*
 * Looks for NVRTC without loading anything. `named` (NULL or "": none was named) is a libnvrtc or
 * its folder, and then nothing else is searched. Otherwise, in this order: the loader's path,
 * CUDA_HOME and CUDA_PATH, /usr/local/cuda, /usr/local/cuda-*, Python wheels; of what is found, the
 * newest version whose major number is at most `driver_version` / 1000 (0: any), the earlier one
 * among equals. OK, or NO_COMPILER with a message saying what was tried and what to do.
 */
smelt_status smelt__nvrtc_find(const char *named, int driver_version, const struct smelt__log *log,
                               struct smelt__nvrtc_file *file);

/* A loaded NVRTC. */
struct smelt__nvrtc {
    nvrtcResult (*nvrtcVersion)(int *major, int *minor);
    const char *(*nvrtcGetErrorString)(nvrtcResult result);
    nvrtcResult (*nvrtcGetNumSupportedArchs)(int *count);
    nvrtcResult (*nvrtcGetSupportedArchs)(int *archs);
    nvrtcResult (*nvrtcCreateProgram)(nvrtcProgram *program, const char *source, const char *name,
                                      int header_count, const char *const *headers,
                                      const char *const *include_names);
    nvrtcResult (*nvrtcDestroyProgram)(nvrtcProgram *program);
    nvrtcResult (*nvrtcCompileProgram)(nvrtcProgram program, int count, const char *const *options);
    nvrtcResult (*nvrtcGetProgramLogSize)(nvrtcProgram program, size_t *bytes);
    nvrtcResult (*nvrtcGetProgramLog)(nvrtcProgram program, char *log);
    nvrtcResult (*nvrtcGetCUBINSize)(nvrtcProgram program, size_t *bytes);
    nvrtcResult (*nvrtcGetCUBIN)(nvrtcProgram program, char *cubin);
    char path[SMELT__PATH];
    int major, minor;
    enum smelt__output output;
    int archs[SMELT__MAX_NVRTC_ARCHS]; /* 80, 86, ... ascending, as NVRTC gives them */
    int arch_count;
    struct smelt__nvrtc *next; /* the process's list */
};

/* The loaded library of a file, opened by the first call for its path and then kept for the life of
 * the process: NVRTC does not promise that it can be unloaded. Thread-safe. OK, or NO_COMPILER with
 * a message naming the path and what is wrong with it. */
smelt_status smelt__nvrtc_open(const struct smelt__nvrtc_file *file,
                               const struct smelt__nvrtc **nvrtc);
/* Whether it compiles for "sm_90a". And all it compiles for, "sm_75 sm_80 ...", cut to fit. */
int smelt__nvrtc_supports(const struct smelt__nvrtc *nvrtc, const char *arch);
void smelt__nvrtc_archs(const struct smelt__nvrtc *nvrtc, char *text, size_t bytes);

#endif
