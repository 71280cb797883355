/*
 * The state of a launch, shared by the emulator's files; data only. One launch runs at a time, on
 * the thread that called cuLaunchKernelEx; every CUDA thread is a fibre of it, so nothing is
 * locked.
 *
 * The unit that runs together is the gang: the thread blocks (CTAs) of one cluster, often a single
 * block. Gangs run one after another.
 *
 * State that only one file uses is in that file, except state of a thread, warp or block, which
 * ends with them.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emu/emulator.h"
#include "emu/export.h"
#include "emu/machine/fibre.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;

enum {
    WARP = 32,
    WARPGROUP_WARPS = 4,
    MAX_BLOCK_THREADS = 1024,
    MAX_CLUSTER = 8,
    MAX_WARPS = MAX_CLUSTER * MAX_BLOCK_THREADS / WARP,
    NAMED_BARRIERS = 16,
    MAX_MBARRIERS = 112,     /* per block */
    ARENA_SPAN = 256 * 1024, /* bytes of address space of a block's shared memory */
    SHARED_BASE = 1024,      /* 32-bit shared address of the arena's first byte */
    CLUSTER_SHIFT = 24,      /* shared::cluster address: (rank + 1) << this, plus the local one */
    NOBODY = 0xffff,
    MANY = 0xfffe /* slots */
};

/* A location in the compiled kernel: return address minus the object's base; 0: unknown. */
typedef u32 site;

/* ---- the kernel ------------------------------------------------------------------------------ */

struct region { /* of the plan's map */
    char name[48];
    u32 offset, bytes;
};

struct kernel {
    void (*entry)(void **parameters);
    const u8 *image; /* base address of the loaded object */
    size_t image_bytes;
    struct region regions[32];
    int region_count;
    u32 serial;      /* running number of the module */
    char object[64]; /* path of the loaded object, for addr2line */
};

/* ---- order (clock.h) ------------------------------------------------------------------------- */

/* When an asynchronous operation's accesses are complete: at this time of this slot. */
struct epoch {
    u16 slot;
    u32 clock;
};

/* The join of several threads' released clocks. */
enum { JOINED_EDITIONS = 16 };
struct joined {
    u32 *clock;
    u64 editions[JOINED_EDITIONS]; /* editions of the joined clocks (clock.h) */
};

struct cell { /* of one byte */
    u32 write_clock, write_site, read_clock, read_site;
    u16 write_slot;      /* NOBODY: never written */
    u16 read_slot;       /* NOBODY: none since the write; MANY: read_clock indexes a set */
    bool flight;         /* asynchronous write under way */
    bool atomic;         /* written by an atomic operation: others may race with it */
    u16 pending_readers; /* asynchronous reads under way */
};

/* ---- threads --------------------------------------------------------------------------------- */

enum wait_kind {
    RUNS = 0,
    AT_COLLECTIVE, /* of its warp */
    AT_BARRIER,    /* a named one, or the cluster's */
    AT_MBARRIER,
    POLLS, /* polls a condition */
    GONE
};

/* One cp.async of 16 bytes or fewer. */
struct copy {
    struct cta *cta;
    u32 offset;
    u8 bytes, given, done; /* given: bytes read of `bytes`; the rest is zero */
    const u8 *source;
    site at;
};

struct range { /* of this thread's registers, which are on its stack */
    const u8 *low, *high;
    u32 product; /* number of the warp's wgmma that uses them */
    bool result; /* written by it */
    site at;
};

struct thread {
    struct fibre fibre;
    struct cta *cta;
    struct warp *warp;
    int number; /* in the gang; also its slot */
    int index;  /* in the block */
    int lane;
    unsigned x, y, z;
    enum wait_kind wait;
    site wait_site;
    const char *wait_name;
    void *wait_object;
    u32 wait_parity;
    u32 *clock;
    u64 edition;            /* of the clock (clock.h); 0: no other clock has it */
    u64 released, acquired; /* last edition released, last acquired */

    struct copy *copies;                           /* issued and not complete, oldest first */
    u32 copies_begin, copies_end, copies_capacity; /* indices count from the launch's first copy */
    u32 copies_base;                               /* number of copies[0] */
    u32 copies_arriving; /* those before this number arrive at an mbarrier */
    u32 *groups;         /* ends of committed groups, ascending, oldest first */
    int group_count, group_capacity;

    struct range *ranges; /* registers in use by wgmma */
    int range_count, range_capacity;
    u32 fences; /* number of its last wgmma.fence */
    bool fence_executed;
    u32 *touched;  /* per 4 bytes of stack: value of `fences` at the last plain write */
    u32 unwritten; /* uninitialised locals so far */

    struct store_part *bulk_stores; /* not yet waited for */
    int bulk_groups;                /* committed */
    int result;                     /* of a barrier with a reduction */
    bool cluster_arrived;           /* at the cluster's barrier, in the generation below */
    u32 cluster_generation;
};

struct collective { /* lanes of a warp at a collective instruction */
    void (*execute)(struct warp *warp, u32 mask, void **arguments, site at);
    const char *name;
    u32 mask, arrived;
    void *arguments[WARP];
    site at;
    bool open;
};

struct warp {
    struct cta *cta;
    int number; /* in the gang */
    int index;  /* in the block */
    struct thread *threads[WARP];
    u32 present;
    u32 ready; /* lanes that can run */
    struct collective collectives[WARP];

    struct product *products; /* wgmmas issued and not known complete, oldest first */
    int product_count, product_capacity;
    u32 products_issued, products_done; /* counts since the launch began */
    u32 *product_groups;                /* ends of committed groups */
    int product_group_count, product_group_capacity;
    int registers; /* per thread, by setmaxnreg; 0: unchanged */
};

struct barrier {
    int expected, arrived, predicates;
    int kind;       /* of reduction */
    u32 generation; /* completed ones; counted for the cluster's barrier only */
    struct joined joined;
    u32 *released; /* clock of the cluster barrier's last complete generation */
    u64 edition;   /* of that */
    site at;
};

struct mbarrier {
    struct cta *cta;
    u32 offset;
    int expected, pending;
    i64 bytes; /* transaction count */
    u32 phase; /* complete ones */
    u16 slot;
    struct joined arriving;
    u32 *released; /* by complete phases */
    u64 edition;   /* of that */
    u32 init_clock;
    u16 init_slot;
    bool init_fenced;
    u16 fence_slot;
    u32 fence_clock;
    u32 remote_phase; /* 1 + last phase in which another block arrived; 0: none */
    site at, remote_at;
};

struct visit { /* the last access of a thread of another block */
    u32 clock;
    site at;
};

struct cta {
    int rank; /* in the cluster */
    int live; /* threads that have not exited */
    unsigned x, y, z;
    u8 *arena;
    struct cell *cells;
    struct barrier barriers[NAMED_BARRIERS];
    struct mbarrier mbarriers[MAX_MBARRIERS];
    int mbarrier_count;
    struct visit *visits; /* by thread of the gang; NULL: none yet */
    u32 *known_at_end;    /* joined clocks of its exited threads */
    int registers_taken;  /* of the block; 0: setmaxnreg was not used */
    bool waited;          /* executed griddepcontrol.wait */
    bool lets_begin;      /* executed griddepcontrol.launch_dependents */
};

/* ---- the launch ------------------------------------------------------------------------------ */

struct machine {
    struct emu_settings settings;
    struct emu_statistics statistics;
    struct kernel *kernel;
    void **parameters;
    unsigned grid[3], block[3], cluster[3];
    u32 shared_bytes;
    bool pdl;           /* launched with programmatic dependent launch */
    const void *stream; /* it is on */
    int device;         /* it runs on */

    int ctas, cta_threads, thread_count, warp_count, slots; /* of the gang */
    u32 gang, first_gang; /* running number of the gang, and of this launch's first; from 1 */
    struct cta cta[MAX_CLUSTER];
    struct thread *threads;
    struct warp *warps;
    struct barrier cluster_barrier;
    int live; /* threads that have not exited */

    struct thread *self;        /* the running thread; NULL: the scheduler */
    u32 fences;                 /* wgmma.fence executed, over all launches */
    bool ended;                 /* enough reports, or a fatal one */
    bool inside;                /* a launch is under way */
    volatile sig_atomic_t late; /* its processor time is used up */
};

extern struct machine emu;

/* Whether an address is in the kernel's code or constants. */
bool emu_kernel_holds(const void *pointer);

/* Slots of a thread's cp.async copies, of a warp's products, and of the grid. */
static inline u16 emu_copy_slot(const struct thread *thread) {
    return (u16)(emu.thread_count + thread->number);
}
static inline u16 emu_product_slot(const struct warp *warp) {
    return (u16)(2 * emu.thread_count + warp->number);
}
static inline u16 emu_grid_slot(void) {
    return (u16)(emu.slots - 1);
}

/* The caller's site. */
#define EMU_SITE                                                                                   \
    ((site)((const u8 *)__builtin_return_address(0) - (emu.kernel ? emu.kernel->image : NULL)))
