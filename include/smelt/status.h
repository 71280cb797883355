/*
 * smelt: status codes and the thread's error message.
 *
 * Every function that can fail returns a smelt_status: SMELT_OK (0) or a negative code. On failure
 * the library sets a message for the calling thread with the offending value and the remedy; a call
 * that succeeds leaves the message unchanged. The library never aborts or exits, and prints only its
 * log, if SMELT_LOG is set.
 *
 * For all functions: NULL is INVALID_ARGUMENT unless it is documented as legal, even if a
 * function's list of errors omits that. A pointer that a call hands out (a string, a cubin, a
 * context, an operator, memory) is NULL when the call fails.
 */
#ifndef SMELT_STATUS_H
#define SMELT_STATUS_H

/* Exports a function from the shared library. */
#if defined(SMELT_STATIC)
#define SMELT_API
#elif defined(__GNUC__)
#define SMELT_API __attribute__((visibility("default")))
#else
#define SMELT_API
#endif

/* A function whose status must not be ignored. */
#if defined(__GNUC__)
#define SMELT_CALL SMELT_API __attribute__((warn_unused_result))
#else
#define SMELT_CALL SMELT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What a function returns. */
typedef enum smelt_status {
    SMELT_OK = 0,                      /* success */
    SMELT_ERROR_INVALID_ARGUMENT = -1, /* a null, misaligned, negative or mismatched argument */
    SMELT_ERROR_INVALID_SPEC = -2,     /* a spec, preset or architecture that does not parse */
    SMELT_ERROR_UNSUPPORTED = -3,      /* a valid spec without a plan on this architecture */
    SMELT_ERROR_NO_DRIVER = -4,        /* libcuda cannot be opened, or is too old */
    SMELT_ERROR_NO_DEVICE = -5,        /* no CUDA device, or the context is compile-only */
    SMELT_ERROR_NO_COMPILER = -6,      /* NVRTC cannot be opened or cannot target this device, or
                                          * the context is offline */
    SMELT_ERROR_COMPILE = -7,          /* NVRTC refused the source; the message holds its log */
    SMELT_ERROR_DRIVER = -8,           /* a CUDA driver call failed; the message names it */
    SMELT_ERROR_OUT_OF_MEMORY = -9,    /* host memory */
    SMELT_ERROR_CACHE = -10,           /* a cache maintenance call failed (a lookup never does) */
    SMELT_ERROR_CANCELLED = -11,       /* a progress callback asked to stop */
    SMELT_ERROR_INTERNAL = -12         /* a defect of smelt; please report the message */
} smelt_status;

/* The code's name, for example "SMELT_ERROR_NO_DRIVER"; "SMELT_ERROR_UNKNOWN" for other values.
 * A constant string; any thread. */
SMELT_API const char *smelt_status_name(smelt_status status);

/* The message of this thread's last failed call, "" when there was none. The string belongs to the
 * thread and is overwritten by its next failing call. */
SMELT_API const char *smelt_last_error(void);

/* The first number of these headers' version; */
#define SMELT_VERSION_MAJOR 0
/* the second; */
#define SMELT_VERSION_MINOR 3
/* the third; */
#define SMELT_VERSION_PATCH 0
/* all as one number, for comparisons: 300 for 0.3.0. */
#define SMELT_VERSION_NUMBER                                                                       \
    (SMELT_VERSION_MAJOR * 10000 + SMELT_VERSION_MINOR * 100 + SMELT_VERSION_PATCH)

/* The library's version, "major.minor.patch", followed by "+" and the commit if it was built in a git
 * checkout: "0.3.0+162de0f0c1". A constant string; any thread. */
SMELT_API const char *smelt_version(void);

/* Frees a string, or a cubin, that the library handed out. NULL is legal. Any thread. */
SMELT_API void smelt_free(void *handed_out);

#ifdef __cplusplus
}
#endif

#endif
