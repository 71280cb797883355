/*
 * NVRTC: finding it from files alone, and loading it, which happens on a cache miss only.
 */
#pragma once

#include "runtime/compiled.h"
#include "runtime/cubin.h"
#include "runtime/driver/cuda_abi.h"
#include "runtime/log.h"
#include "smelt/status.h"

enum { SMELT__PATH = 4096, SMELT__MAX_NVRTC_ARCHS = 64 };

/* One NVRTC on disk. */
struct smelt__nvrtc_file {
    char path[SMELT__PATH];       /* of libnvrtc, as found */
    char builtins[SMELT__PATH];   /* of the builtins library beside it; "": none */
    struct smelt__compiler_id id; /* version 0.0 when the file names do not contain it */
    enum smelt__output output;    /* the kind of its output */
    int in_doubt;                 /* the search failed on an unreadable file; a retry may succeed */
};

/*
 * Finds NVRTC without loading anything. If `named` (a libnvrtc or its folder; NULL or "": none) is
 * given, nothing else is searched. Otherwise searches, in this order: the loader's path, CUDA_HOME
 * and CUDA_PATH, /usr/local/cuda, /usr/local/cuda-*, Python wheels, and takes the newest version
 * whose major number is at most `driver_version` / 1000 (0: any); among equals the first found. OK,
 * or NO_COMPILER with a message that names the places searched and a remedy.
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
    struct smelt__nvrtc *next; /* in the process's list */
};

/* The loaded library of a file. The first call for a path opens it; it stays loaded until the
 * process ends, because NVRTC does not promise that it can be unloaded. Thread-safe. OK, or
 * NO_COMPILER with a message that names the path and the fault. */
smelt_status smelt__nvrtc_open(const struct smelt__nvrtc_file *file,
                               const struct smelt__nvrtc **nvrtc);
/* Whether it compiles for an architecture ("sm_90a"), and the list of all it compiles for ("sm_75
 * sm_80 ..."), truncated to fit. */
int smelt__nvrtc_supports(const struct smelt__nvrtc *nvrtc, const char *arch);
void smelt__nvrtc_archs(const struct smelt__nvrtc *nvrtc, char *text, size_t bytes);
