/*
 * Shared by the cache's own files only.
 *
 * The files form layers; each uses only those above it (and runtime/files.h):
 *
 *   key.c         names of kernels, compilers and files
 *   entry.c       the entry's format: encode and decode, pure
 *   folder.c      entries' files and folders: read, write, enumerate
 *   archive.c     a whole cache in one file
 *   notes.c       warnings and counts in memory
 *   lock.c        the lock file and its bytes
 *   counters.c    statistics of all processes; evict.c: the cap, old temporaries
 *   lookup.c      lookup in both layers; store.c: storing and removing entries
 *   wait.c        waiting for the lock of one kernel
 *   cache.c       opening and closing
 *   maintenance.c stat, walk, verify, prune, clear
 *   transfer.c    export and import
 *
 * Layout of a layer:
 *
 *   <folder>/ab/ab…-….smelt    an entry: kernel key, compiler, see smelt__cache_file_name
 *   <folder>/ab/.tmp-…         an unfinished write
 *   <folder>/counters          statistics of all processes, see counters.c
 *   <folder>/tuning            the tuning file, see tuning/file.h, and tuning.lock beside it
 *   <folder>/lock              lock file, with lock scope `shared` or without a node-local folder
 *   <folder>/emulated/ab/…     the emulator's kernels, separate because they are host code.
 *                              `counters`, walks, exports and read-only layers leave them out
 *
 * The 256 subfolders, named by the key's first two digits, bound the cost of listing a key's
 * entries of all compilers to a 256th of the cache. A folder per key would list fewer, but removing
 * it when empty would race with a process about to write into it; these 256 are never removed.
 *
 * Nothing stays open between calls. A folder that is deleted, replaced, remounted or gone stale
 * (NFS) is simply reopened by the next call; reopening also makes an NFS client look again for a
 * file that it remembers as missing.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "runtime/cache/cache.h"
#include "runtime/files.h"

enum {
    SMELT__ENTRY_VERSION = 2,
    SMELT__ENTRY_PREFIX_BYTES = 24, /* read before memory is allocated */
    SMELT__ENTRY_HEADER_BYTES = 544,
    SMELT__ENTRY_CHECKSUM_BYTES = 16,
    SMELT__CUBIN_MAX_BYTES = 64 << 20,
    SMELT__ENTRY_MAX_BYTES =
        SMELT__ENTRY_HEADER_BYTES + SMELT__CUBIN_MAX_BYTES + SMELT__ENTRY_CHECKSUM_BYTES,
    SMELT__FILE_NAME_BYTES = 80, /* longest name, "ab/" and NUL included */
    SMELT__SUBFOLDERS = 256,
    SMELT__REFUSED_KEYS = 32
};

/* Each is logged once per cache as a warning, later at debug level. */
enum smelt__cache_warning {
    SMELT__WARNED_FOLDER = 1,
    SMELT__WARNED_STORE = 2,
    SMELT__WARNED_LOCK = 4,
    SMELT__WARNED_READONLY = 8,
    SMELT__WARNED_EVICT = 16,
    SMELT__WARNED_COUNTERS = 32
};

/* In the order of the counters' file. */
enum smelt__cache_count {
    SMELT__COUNT_HITS,
    SMELT__COUNT_READONLY_HITS,
    SMELT__COUNT_MISSES,
    SMELT__COUNT_STORES,
    SMELT__COUNT_ERRORS,
    SMELT__COUNT_SAVED_MS, /* compile time that hits saved */
    SMELT__COUNTS
};

/* Counted separately: GPU kernels, which the counters' file records, and emulated ones. */
enum { SMELT__KIND_GPU, SMELT__KIND_EMULATED, SMELT__KINDS };

struct smelt__cache {
    char *folder;   /* absolute; or "" or relative, then unusable (`problem`) */
    char *emulated; /* folder/emulated, or "" */
    char *readonly; /* absolute or ""; relative only if the working directory has been removed */
    uint64_t cap_bytes;
    smelt_cache_lock lock_mode;
    int lock_timeout_ms;
    bool disabled, disabled_emulated, recompile;
    struct smelt__log log;
    char problem[512];
    atomic_uint warned;
    atomic_uint_fast64_t counts[SMELT__KINDS][SMELT__COUNTS];
    /* State of the counters' file. `recording` guards the counts already recorded, and by which
     * process. */
    atomic_flag recording;
    uint64_t recorded[SMELT__COUNTS];
    pid_t counting_process;
    atomic_uint pending; /* events since the last record */
    atomic_int_fast64_t recorded_ns;
    /* Bytes this process may still store before it counts the folder again. */
    atomic_int_fast64_t store_budget;
    /* Hashes of keys whose cubin the driver refused. The read-only layer cannot be repaired, so
     * lookups of these keys skip it. A ring; 0 is free. */
    atomic_uint_fast64_t refused[SMELT__REFUSED_KEYS];
    atomic_uint refused_next;
};

struct smelt__cache_entry {
    struct smelt__cache_key key;
    struct smelt__compiler_id compiler;
    struct smelt__compiled compiled;
};

/* ---- key.c ---- */

/* The file name of a kernel by a compiler: 32 hex digits of the key, '-', 4 of the compiler's
 * version and 28 of its build, so that among the files of one key the greatest name is the newest
 * compiler's. With compiler NULL: the part up to and including '-'. */
void smelt__cache_file_name(const struct smelt__cache_key *key,
                            const struct smelt__compiler_id *compiler,
                            char name[SMELT__FILE_NAME_BYTES]);
/* The same in binary: 16 bytes of the key, then 16 of the compiler; it sorts as the text does. NULL
 * sorts after every compiler of the key. */
void smelt__cache_binary_name(const struct smelt__cache_key *key,
                              const struct smelt__compiler_id *compiler, unsigned char binary[32]);
void smelt__cache_name_of_binary(const unsigned char binary[32], char name[SMELT__FILE_NAME_BYTES]);
/* The inverse; `name` must be an entry's. */
void smelt__cache_binary_of_name(const char *name, unsigned char binary[32]);
bool smelt__cache_name_is_entry(const char *name);
bool smelt__cache_name_is_temporary(const char *name);
uint64_t smelt__cache_hash(const void *bytes, size_t count);

/* ---- entry.c ---- */

enum smelt__entry_state {
    SMELT__ENTRY_SOUND,
    SMELT__ENTRY_DAMAGED,
    SMELT__ENTRY_FOREIGN /* undamaged, but of another version */
};

/* Header and checksum of an entry; the file is header, cubin, checksum. */
void smelt__entry_encode(const struct smelt__cache_entry *entry,
                         unsigned char header[SMELT__ENTRY_HEADER_BYTES],
                         unsigned char checksum[SMELT__ENTRY_CHECKSUM_BYTES]);
/* Whether `count` bytes can begin an entry of any version, complete or torn. */
bool smelt__entry_begins_with(const unsigned char *bytes, size_t count);
/* Whether an entry of file_bytes may begin with this prefix; if not, *why is the reason. */
bool smelt__entry_check_prefix(const unsigned char prefix[SMELT__ENTRY_PREFIX_BYTES],
                               uint64_t file_bytes, const char **why);
/* Fills *entry except compiled.cubin: the cubin is at bytes + SMELT__ENTRY_HEADER_BYTES. */
enum smelt__entry_state smelt__entry_decode(const unsigned char *bytes, size_t count,
                                            struct smelt__cache_entry *entry, const char **why);

/* ---- folder.c ---- */

enum smelt__read_state {
    SMELT__READ_SOUND,
    SMELT__READ_ABSENT,
    SMELT__READ_BAD,     /* not a valid entry; *why is the reason */
    SMELT__READ_FAILED,  /* an error in reading, *why; the entry may be valid */
    SMELT__READ_FOREIGN, /* another version's */
    SMELT__READ_STALE    /* a stale NFS handle: reopen everything */
};

/* Opens and checks a subfolder; `name` begins with its two digits. -1 with errno. */
int smelt__subfolder_open(int folder, const char *name, bool readonly, bool create);
/* Reads the entry of `size` bytes at `offset` of a file; it must be the one called `name`. */
enum smelt__read_state smelt__entry_read(int file, uint64_t offset, uint64_t size, const char *name,
                                         struct smelt__cache_entry *entry, const char **why);
/* Reads one entry. SOUND: the caller frees entry->compiled.cubin. `use`: the entry will be used,
 * which renews its modification time. */
enum smelt__read_state smelt__file_read(int subfolder, const char *name, bool readonly, bool use,
                                        struct smelt__cache_entry *entry, const char **why);
/* Writes a temporary file, fsync, rename. *written: the time by the file system's clock. -1 with
 * errno. */
int smelt__file_write(int subfolder, const char *name, const struct smelt__cache_entry *entry,
                      struct timespec *written);

/* A file found by smelt__folder_each. */
struct smelt__found {
    int subfolder;
    const char *name;                  /* within the subfolder */
    char path[SMELT__FILE_NAME_BYTES]; /* within the folder */
    bool temporary;
    struct stat status;
};
typedef int (*smelt__found_function)(void *user, const struct smelt__found *found);

/* Creates a file with a random name, which is returned. -1 with errno. */
int smelt__temporary_create(int subfolder, char name[SMELT__FILE_NAME_BYTES]);
/* The file system's present time, from a temporary file. -1 with errno: nothing can be written. */
int smelt__folder_now(int folder, struct timespec *now);

/* The existing subfolders, unsorted. Returns their number, or -1 with errno. */
int smelt__folder_subfolders(int folder, char digits[SMELT__SUBFOLDERS][3]);
/* Calls `each` for every entry and temporary of one subfolder. Stops at a result other than 0 and returns it; returns
 * -1 with errno when the subfolder cannot be read. */
int smelt__subfolder_each(int folder, const char *digits, bool readonly, smelt__found_function each,
                          void *user);
/* Subfolders that could not be read. */
struct smelt__unread {
    int count, error;                  /* the last one's errno */
    char names[SMELT__SUBFOLDERS * 4]; /* "0a, f3" */
};
void smelt__unread_note(struct smelt__unread *unread, const char *digits);
/* Calls `each` for every entry and temporary of all subfolders. Stops at a result other than 0 and returns it. Notes
 * subfolders that cannot be read in *unread and processes the others; then, or when the folder cannot be read or memory
 * runs out, returns -1 with errno. Files that vanish meanwhile are skipped. */
int smelt__folder_each(int folder, bool readonly, smelt__found_function each, void *user,
                       struct smelt__unread *unread);
/* The greatest `limit` names in a subfolder that begin with `prefix`, in descending order. Returns
 * their number. `prefix` must not point into `names`. */
int smelt__subfolder_list(int subfolder, const char *prefix, char (*names)[SMELT__FILE_NAME_BYTES],
                          int limit);

/* ---- evict.c ---- */

/* Removes a file that smelt wrote: it has the name of an entry or a temporary and begins like one
 * or is empty. Returns 1; 0 for another program's file or one that is already gone; -1 with errno when it
 * could not be opened or removed. */
int smelt__found_remove(int subfolder, const char *name);

/* Called after a store of `bytes` into the file `kept` at file system time `now`. Takes some tens
 * of milliseconds at most; later stores continue the eviction. */
void smelt__cache_evict(struct smelt__cache *cache, int folder, uint64_t bytes, const char *kept,
                        const struct timespec *now);

/* What to prune, and the result. */
struct smelt__pruning {
    uint64_t goal_bytes;  /* remove the least recently used entries down to this size */
    int64_t unused_since; /* remove what was last used before this file system time */
    uint64_t removed, removed_bytes, temporaries, kept, kept_bytes;
    struct smelt__unread unread;
};
/* Prunes the whole folder without a time limit. Returns 0, or -1 with errno when a subfolder could not be read or an
 * entry could not be removed; the others are pruned nevertheless. */
int smelt__cache_prune_folder(int folder, time_t now, struct smelt__pruning *pruning);

/* ---- notes.c ---- */

__attribute__((format(printf, 3, 4))) void smelt__cache_warn_once(struct smelt__cache *cache,
                                                                  enum smelt__cache_warning which,
                                                                  const char *format, ...);
/* `output`: the kind of the kernel requested. */
void smelt__cache_count(struct smelt__cache *cache, enum smelt__output output,
                        enum smelt__cache_count which, uint64_t more);
void smelt__cache_count_hit(struct smelt__cache *cache, enum smelt__output output, bool readonly,
                            double compile_seconds);

/* ---- lock.c ---- */

/* The evictor's lock, without waiting. 1: go on (release *fd, which is -1 where locking fails); 0:
 * another process is evicting. It only saves work: evicting without it does no harm. */
int smelt__cache_evictor_lock(struct smelt__cache *cache, int *fd);
void smelt__cache_lock_release(int fd);
/* Opens the cache's lock file; *offset is the byte that stands for `name`. -1 with errno. */
int smelt__lock_file_open(struct smelt__cache *cache, const char *name, off_t *offset);
/* 1: locked; 0: another process holds it; -1 with errno: no locks here. */
int smelt__lock_byte(int file, off_t offset);
void smelt__lock_warn(struct smelt__cache *cache);

/* ---- counters.c ---- */

/* Initialises the counters of a new cache. */
void smelt__counters_begin(struct smelt__cache *cache);
/* smelt__counters_record appends the counts since the last record to the folder's file; errors are
 * ignored. The second function is called at every event and records now and then. */
void smelt__counters_record(struct smelt__cache *cache);
void smelt__counters_record_when_due(struct smelt__cache *cache);
/* The sum of the file's records; zeros when there is none. */
void smelt__counters_read(int folder, uint64_t counts[SMELT__COUNTS]);
/* A file of that name that smelt did not write stays. */
void smelt__counters_remove(int folder);
/* Whether `count` bytes can begin such a file, complete or torn. */
bool smelt__counters_begin_with(const unsigned char *bytes, size_t count);

/* ---- maintenance.c ---- */

/* Opens the writable layer's folder of one kind of output. *folder -1 with OK: it does not exist
 * yet. */
smelt_status smelt__maintenance_open(struct smelt__cache *cache, enum smelt__output output,
                                     int *folder);
/* Reports that smelt__folder_each returned -1 for the folder `path`, with errno: names the unread subfolders. */
smelt_status smelt__unread_fail(const struct smelt__unread *unread, const char *path);

/* ---- cache.c ---- */

/* The folder of the writable layer that holds kernels compiled to `output`. */
const char *smelt__cache_root(const struct smelt__cache *cache, enum smelt__output output);
/* Whether the cache is used for kernels of this kind. */
bool smelt__cache_serves(const struct smelt__cache *cache, enum smelt__output output);
/* Whether the writable layer is used. */
bool smelt__cache_is_writable(const struct smelt__cache *cache);

/* ---- lookup.c, store.c ---- */

/* Skips the read-only layer's entry of this key from now on. */
void smelt__cache_refuse(struct smelt__cache *cache, const struct smelt__cache_key *key);

/* Like smelt__cache_store, with the reason of a failure. 0 or -1. */
int smelt__cache_store_entry(struct smelt__cache *cache, const struct smelt__cache_entry *entry,
                             char *why, size_t why_bytes);

/* One lookup in both layers. `polling`: damaged entries are neither counted nor warned about. */
int smelt__cache_look(struct smelt__cache *cache, const struct smelt__cache_key *key,
                      const struct smelt__compiler_id *compiler, bool polling,
                      struct smelt__compiled *compiled);
