/*
 * What the cache's own files share; nothing else includes it.
 *
 * The files form layers; each uses only those above it (and runtime/files.h):
 *
 *   key.c         names of kernels, compilers and files
 *   entry.c       the entry's grammar: encode and decode, pure
 *   folder.c      entries' files and folders: read, write, enumerate
 *   archive.c     a whole cache in one file
 *   notes.c       what is said and counted
 *   lock.c        the lock file and its bytes
 *   counters.c    hits, misses and the like of all processes; evict.c: the cap, old temporaries
 *   lookup.c      through both layers; store.c: entries made and removed
 *   wait.c        the right to compile
 *   cache.c       a cache's life
 *   maintenance.c stat, walk, verify, prune, clear
 *   transfer.c    export and import
 *
 * Layout of a layer:
 *
 *   <folder>/ab/ab…-….smelt    an entry: kernel key, compiler, see smelt__cache_file_name
 *   <folder>/ab/.tmp-…         an unfinished write
 *   <folder>/counters          what all processes counted, see counters.c
 *   <folder>/tuning            the tuning file, see tuning/file.h, and tuning.lock beside it
 *   <folder>/lock              lock file, when locks are shared or no node-local place is safe
 *   <folder>/emulated/ab/…     the emulator's kernels, which are host code and therefore separate.
 *                              `counters`, walks, exports and read-only layers leave them out
 *
 * The 256 subfolders, named by the key's first two digits, exist for the policy `any`: it must list
 * the entries of one key, and reads a 256th of the cache for that. A folder per key would list
 * fewer, but an empty one would have to be removed under the feet of a process about to write into
 * it; these 256 are never removed.
 *
 * Nothing is held open between calls. A folder that is deleted, replaced, remounted or (NFS) gone
 * stale while a process lives is simply the next call's folder; and opening it anew is what makes
 * an NFS client look again for a file it remembers as missing.
 */
#ifndef SMELT_RUNTIME_CACHE_INTERNAL_H
#define SMELT_RUNTIME_CACHE_INTERNAL_H

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
    SMELT__ENTRY_PREFIX_BYTES = 24, /* what is read before anything is allocated */
    SMELT__ENTRY_HEADER_BYTES = 544,
    SMELT__ENTRY_CHECKSUM_BYTES = 16,
    SMELT__CUBIN_MAX_BYTES = 64 << 20,
    SMELT__ENTRY_MAX_BYTES =
        SMELT__ENTRY_HEADER_BYTES + SMELT__CUBIN_MAX_BYTES + SMELT__ENTRY_CHECKSUM_BYTES,
    SMELT__FILE_NAME_BYTES = 80, /* holds every name of ours, "ab/" included, and its NUL */
    SMELT__SUBFOLDERS = 256,
    SMELT__REFUSED_KEYS = 32
};

/* Each of these is said once per cache as a warning, then at debug level. */
enum smelt__cache_warning {
    SMELT__WARNED_FOLDER = 1,
    SMELT__WARNED_STORE = 2,
    SMELT__WARNED_LOCK = 4,
    SMELT__WARNED_READONLY = 8,
    SMELT__WARNED_EVICT = 16,
    SMELT__WARNED_COUNTERS = 32
};

/* What is counted, in the order of the counters' file. */
enum smelt__cache_count {
    SMELT__COUNT_HITS,
    SMELT__COUNT_READONLY_HITS,
    SMELT__COUNT_MISSES,
    SMELT__COUNT_STORES,
    SMELT__COUNT_ERRORS,
    SMELT__COUNT_SAVED_MS, /* compilation that hits spared */
    SMELT__COUNTS
};

/* Counted apart: GPU kernels, which the counters' file records, and emulated ones. */
enum { SMELT__KIND_GPU, SMELT__KIND_EMULATED, SMELT__KINDS };

struct smelt__cache {
    char *folder;   /* absolute, or "" */
    char *emulated; /* folder/emulated, or "" */
    char *readonly; /* absolute, or "" */
    uint64_t cap_bytes;
    smelt_cache_lock lock_mode;
    int lock_timeout_ms;
    bool disabled, disabled_emulated, recompile;
    struct smelt__log log;
    char problem[512];
    atomic_uint warned;
    atomic_uint_fast64_t counts[SMELT__KINDS][SMELT__COUNTS];
    /* For the counters' file. Under `recording`: what was recorded, by which process. */
    atomic_flag recording;
    uint64_t recorded[SMELT__COUNTS];
    pid_t counting_process;
    atomic_uint pending; /* events since */
    atomic_int_fast64_t recorded_ns;
    /* Bytes this process may still store before it counts the folder again. */
    atomic_int_fast64_t store_budget;
    /* Hashes of keys the driver refused: the read-only layer cannot be healed, so it is passed over
     * for them. A ring; 0 is free. */
    atomic_uint_fast64_t refused[SMELT__REFUSED_KEYS];
    atomic_uint refused_next;
};

struct smelt__cache_entry {
    struct smelt__cache_key key;
    struct smelt__compiler_id compiler;
    struct smelt__compiled compiled;
};

/* ---- key.c ---- */

/* The file of a kernel by a compiler: 32 hex digits of the key, '-', 4 of the compiler's version
 * and 28 of its build, so that among the files of one key the greatest name is the newest
 * compiler's. With compiler NULL: the part up to and including '-'. */
void smelt__cache_file_name(const struct smelt__cache_key *key,
                            const struct smelt__compiler_id *compiler,
                            char name[SMELT__FILE_NAME_BYTES]);
/* The same in binary: 16 bytes of the key, then 16 of the compiler, which sort as the texts do. A
 * compiler of NULL sorts behind every compiler of the key. */
void smelt__cache_binary_name(const struct smelt__cache_key *key,
                              const struct smelt__compiler_id *compiler, unsigned char binary[32]);
void smelt__cache_name_of_binary(const unsigned char binary[32], char name[SMELT__FILE_NAME_BYTES]);
/* The reverse; the name is one of an entry. */
void smelt__cache_binary_of_name(const char *name, unsigned char binary[32]);
bool smelt__cache_name_is_entry(const char *name);
bool smelt__cache_name_is_temporary(const char *name);
uint64_t smelt__cache_hash(const void *bytes, size_t count);

/* ---- entry.c ---- */

enum smelt__entry_state {
    SMELT__ENTRY_SOUND,
    SMELT__ENTRY_DAMAGED,
    SMELT__ENTRY_FOREIGN /* sound, but of another version */
};

/* Header and checksum of an entry; the file is header, cubin, checksum. */
void smelt__entry_encode(const struct smelt__cache_entry *entry,
                         unsigned char header[SMELT__ENTRY_HEADER_BYTES],
                         unsigned char checksum[SMELT__ENTRY_CHECKSUM_BYTES]);
/* Whether `count` bytes are the beginning of an entry of any version, whole or torn. */
bool smelt__entry_begins_with(const unsigned char *bytes, size_t count);
/* Whether an entry of file_bytes may begin with this prefix; *why says why not. */
bool smelt__entry_check_prefix(const unsigned char prefix[SMELT__ENTRY_PREFIX_BYTES],
                               uint64_t file_bytes, const char **why);
/* Fills *entry but for compiled.cubin: the cubin lies at bytes + SMELT__ENTRY_HEADER_BYTES. */
enum smelt__entry_state smelt__entry_decode(const unsigned char *bytes, size_t count,
                                            struct smelt__cache_entry *entry, const char **why);

/* ---- folder.c ---- */

enum smelt__read_state {
    SMELT__READ_SOUND,
    SMELT__READ_ABSENT,
    SMELT__READ_BAD,     /* not a sound entry; *why says why */
    SMELT__READ_FAILED,  /* could not be read, which says nothing about it; *why */
    SMELT__READ_FOREIGN, /* another version's */
    SMELT__READ_STALE    /* NFS: open it all again */
};

/* Opens and checks a subfolder; `name` begins with its two digits. -1 with errno. */
int smelt__subfolder_open(int folder, const char *name, bool readonly, bool create);
/* The entry of `size` bytes at `offset` of a file, which belongs under `name`. */
enum smelt__read_state smelt__entry_read(int file, uint64_t offset, uint64_t size, const char *name,
                                         struct smelt__cache_entry *entry, const char **why);
/* Reads one entry whole. SOUND: entry->compiled.cubin is the caller's to free. `use`: the entry is
 * going to be used, which renews its place in the order of eviction. */
enum smelt__read_state smelt__file_read(int subfolder, const char *name, bool readonly, bool use,
                                        struct smelt__cache_entry *entry, const char **why);
/* Temporary, fsync, rename. *written: when, by the file system's clock. -1 with errno. */
int smelt__file_write(int subfolder, const char *name, const struct smelt__cache_entry *entry,
                      struct timespec *written);

/* One file of ours met by smelt__folder_each. */
struct smelt__found {
    int subfolder;
    const char *name;                  /* within the subfolder */
    char path[SMELT__FILE_NAME_BYTES]; /* within the folder */
    bool temporary;
    struct stat status;
};
typedef int (*smelt__found_function)(void *user, const struct smelt__found *found);

/* Creates a file nobody else can have created or guessed and gives its name. -1 with errno. */
int smelt__temporary_create(int subfolder, char name[SMELT__FILE_NAME_BYTES]);
/* The file system's present time, by way of a temporary. -1 with errno: nothing can be written. */
int smelt__folder_now(int folder, struct timespec *now);

/* The subfolders that are there, in no order. Their number, or -1 with errno. */
int smelt__folder_subfolders(int folder, char digits[SMELT__SUBFOLDERS][3]);
/* Every entry and temporary of one subfolder; result as of smelt__folder_each. */
int smelt__subfolder_each(int folder, const char *digits, bool readonly, smelt__found_function each,
                          void *user);
/* Every entry and temporary of the subfolders. Stops when `each` returns other than 0, and returns
 * that; -1 with errno when a folder could not be read. What vanishes meanwhile is passed over. */
int smelt__folder_each(int folder, bool readonly, smelt__found_function each, void *user);
/* Names in a subfolder that begin with `prefix`, greatest first; at most `limit` of them, the
 * greatest. Returns their number. `prefix` is no part of `names`. */
int smelt__subfolder_list(int subfolder, const char *prefix, char (*names)[SMELT__FILE_NAME_BYTES],
                          int limit);

/* ---- evict.c ---- */

/* Removes a file that smelt wrote: one with the name of an entry or a temporary, found by
 * smelt__folder_each, that begins like one or is empty. False: it is not smelt's, or gone. */
bool smelt__found_remove(int subfolder, const char *name);

/* After a store of `bytes` into the file named `kept` at file system time `now`. Takes some tens of
 * milliseconds at most, however much there is to evict: later stores go on with it. */
void smelt__cache_evict(struct smelt__cache *cache, int folder, uint64_t bytes, const char *kept,
                        const struct timespec *now);

/* What to prune, and what became of it. */
struct smelt__pruning {
    uint64_t goal_bytes;  /* the least recently used go until the rest is no larger */
    int64_t unused_since; /* entries last used before this file system time go; INT64_MIN: none */
    uint64_t removed, removed_bytes, temporaries, kept, kept_bytes;
};
/* The whole folder, however long it takes. 0; -1 with errno when it could not be read. */
int smelt__cache_prune_folder(int folder, time_t now, struct smelt__pruning *pruning);

/* ---- notes.c ---- */

__attribute__((format(printf, 3, 4))) void smelt__cache_warn_once(struct smelt__cache *cache,
                                                                  enum smelt__cache_warning which,
                                                                  const char *format, ...);
/* Of a kernel that was to be compiled to `output`. */
void smelt__cache_count(struct smelt__cache *cache, enum smelt__output output,
                        enum smelt__cache_count which, uint64_t more);
void smelt__cache_count_hit(struct smelt__cache *cache, enum smelt__output output, bool readonly,
                            double compile_seconds);

/* ---- lock.c ---- */

/* The one evictor's lock, without waiting. 1: go on (*fd to be released, -1 when nothing locks
 * here); 0: another process is at it. It saves work: evicting without it does no harm. */
int smelt__cache_evictor_lock(struct smelt__cache *cache, int *fd);
void smelt__cache_lock_release(int fd);
/* Opens the lock file this cache uses and says where in it `name` lies. -1 with errno. */
int smelt__lock_file_open(struct smelt__cache *cache, const char *name, off_t *offset);
/* 1: the byte is ours; 0: it is another's; -1 with errno: no locks here. */
int smelt__lock_byte(int file, off_t offset);
void smelt__lock_warn(struct smelt__cache *cache);

/* ---- counters.c ---- */

/* The counters of a cache that was just allocated. */
void smelt__counters_begin(struct smelt__cache *cache);
/* Appends what was counted since the last record to the folder's file; silently not when it cannot.
 * The second function is called at every event and does it now and then. */
void smelt__counters_record(struct smelt__cache *cache);
void smelt__counters_record_when_due(struct smelt__cache *cache);
/* The sum of the file's records; zeros when there is none. */
void smelt__counters_read(int folder, uint64_t counts[SMELT__COUNTS]);
/* Leaves a file of that name that smelt did not write. */
void smelt__counters_remove(int folder);
/* Whether `count` bytes are the beginning of such a file, whole or torn. */
bool smelt__counters_begin_with(const unsigned char *bytes, size_t count);

/* ---- maintenance.c ---- */

/* Opens the writable layer's folder of a kind for maintenance. *folder -1 with OK: there is none
 * yet, and so nothing in it. */
smelt_status smelt__maintenance_open(struct smelt__cache *cache, enum smelt__output output,
                                     int *folder);

/* ---- cache.c ---- */

/* The folder of the writable layer that holds kernels compiled to `output`. */
const char *smelt__cache_root(const struct smelt__cache *cache, enum smelt__output output);
/* Whether kernels compiled to `output` are looked for and stored. */
bool smelt__cache_serves(const struct smelt__cache *cache, enum smelt__output output);
/* Whether the writable layer takes part. */
bool smelt__cache_is_writable(const struct smelt__cache *cache);

/* ---- lookup.c, store.c ---- */

/* Passes over the read-only layer's entry of this key from now on. */
void smelt__cache_refuse(struct smelt__cache *cache, const struct smelt__cache_key *key);

/* A store that says why it failed. 0 or -1. */
int smelt__cache_store_entry(struct smelt__cache *cache, const struct smelt__cache_entry *entry,
                             char *why, size_t why_bytes);

/* One lookup in both layers. `polling`: neither counts damaged entries nor warns of them. */
int smelt__cache_look(struct smelt__cache *cache, const struct smelt__cache_key *key,
                      const struct smelt__compiler_id *compiler, bool polling,
                      struct smelt__compiled *compiled);

#endif
