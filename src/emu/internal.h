/*
 * What the emulator's files share. One launch runs at a time, on the thread that called
 * cuLaunchKernelEx; every CUDA thread is a fibre of it, so nothing here is locked.
 *
 * The unit that runs together is the gang: the thread blocks (CTAs) of one cluster, most often one
 * block. Gangs run one after another.
 *
 * Order. Every location of shared memory remembers who wrote it last, who read it since, and when;
 * "when" is a vector clock over slots (FastTrack: Flanagan and Freund, PLDI 2009):
 *     a thread                      its own time, which moves at every release
 *     a thread's cp.async copies    how many of them are complete and known to be
 *     a warp's wgmmas               likewise
 *     an mbarrier                   phases known to be complete
 *     the grid                      1: the kernels before it in the stream have ended (chain.c)
 * Each thread holds two clocks: `seen`, what happened before its next action, and `fenced`, which
 * of that a proxy fence has made visible to the async proxy. Barriers carry both.
 */
#ifndef SMELT_EMU_INTERNAL_H
#define SMELT_EMU_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emulator.h"
#include "fibre.h"

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
    MAX_MBARRIERS = 112,     /* of a block: a ring of many tiles has three each */
    ARENA_SPAN = 256 * 1024, /* bytes of address space of a block's shared memory */
    SHARED_BASE = 1024,      /* 32-bit shared address of the arena's first byte */
    CLUSTER_SHIFT = 24,      /* shared::cluster address: (rank + 1) << this, plus the local one */
    NOBODY = 0xffff,
    MANY = 0xfffe /* slots */
};

/* A place in the compiled kernel: return address less the object's base; 0: unknown. */
typedef u32 site;

struct cta;
struct warp;

/* Whether two sites are on one line of the text: compilers may write one call twice. */
bool emu_same_line(site a, site b);

/* ---- reports (report.c) ---------------------------------------------------------------------- */

/* `{1}` and `{2}` in the text become the source lines of the two sites. The same kind at the same
 * two sites is reported once a launch. After a few reports the launch ends. */
void emu_report(enum emu_kind kind, site first, site second, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same, and this thread never goes on: for what has no sensible continuation. */
_Noreturn void emu_fatal(enum emu_kind kind, site first, site second, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void emu_reports_begin(void);
/* Resolves the sites of this launch's reports; returns their number. */
size_t emu_reports_end(void);

/* "warp 3 lane 5", with the block where there are several. Buffers rotate: four at a time. */
struct thread;
const char *emu_who(const struct thread *thread);

/* ---- shared memory's shadow (shadow.c) ------------------------------------------------------- */

struct cell { /* of one byte */
    u32 write_clock, write_site, read_clock, read_site;
    u16 write_slot;      /* NOBODY: never written */
    u16 read_slot;       /* NOBODY: not since the write; MANY: read_clock is a list's index */
    bool flight;         /* asynchronous write under way */
    bool atomic;         /* written by an atomic operation: those may meet */
    u16 pending_readers; /* asynchronous reads under way */
};

struct region { /* of the plan's map */
    char name[48];
    u32 offset, bytes;
};

/* Where an asynchronous operation's accesses are ordered: its slot, and the time there at which it
 * is complete. */
struct epoch {
    u16 slot;
    u32 clock;
};

void emu_shadow_begin(void);

/* The block and offset a shared (or shared::cluster) address means; ends the thread when it lies
 * outside, straddles regions or is not aligned. `what` names the instruction. */
struct place {
    struct cta *cta;
    u32 offset;
};
struct place emu_shared_place(u32 address, u32 bytes, u32 alignment, const char *what, site at);
/* The same for instructions of .shared::cta, which reach the thread's own block only. */
struct place emu_own_place(u32 address, u32 bytes, u32 alignment, const char *what, site at);
/* "LATENT + 1040 (shared address 0x...)"; rotating buffers. */
const char *emu_shared_name(const struct cta *cta, u32 offset);

/* Plain accesses (generic proxy) of the running thread. */
void emu_shared_read(struct cta *cta, u32 offset, u32 bytes, site at);
void emu_shared_write(struct cta *cta, u32 offset, u32 bytes, site at);
/* An atomic operation's: reads and writes, and may meet others of its kind. */
void emu_shared_atomic(struct cta *cta, u32 offset, u32 bytes, site at);
/* An asynchronous write of the running thread begins: nobody may touch the bytes until it ends.
 * async_proxy: earlier generic writes must have been fenced. `done`: when it counts as complete. */
void emu_shared_write_begin(struct cta *cta, u32 offset, u32 bytes, bool async_proxy,
                            struct epoch done, site at);
/* `begun` is what `done` was said to be at the beginning. */
void emu_shared_write_end(struct cta *cta, u32 offset, u32 bytes, struct epoch begun,
                          struct epoch done);
/* An asynchronous read, through the async proxy, by the running thread. */
void emu_shared_read_begin(struct cta *cta, u32 offset, u32 bytes, site at);
void emu_shared_read_end(struct cta *cta, u32 offset, u32 bytes, struct epoch done, site at);

/* Clocks: seen[slots] then fenced[slots]. */
void emu_clock_join(u32 *clock, const u32 *other);
void emu_clock_fence(u32 *clock);
u32 *emu_clock_new(void);
void emu_clock_clear(u32 *clock);

/* ---- threads --------------------------------------------------------------------------------- */

enum wait_kind {
    RUNS = 0,
    AT_MEETING, /* of its warp */
    AT_BARRIER, /* a named one, or the cluster's */
    AT_MBARRIER,
    POLLS, /* tested something in vain */
    GONE
};

/* One cp.async of 16 bytes or fewer. */
struct copy {
    struct cta *cta;
    u32 offset;
    u8 bytes, given, landed; /* given: of `bytes`, how many are read; the rest is zero */
    const u8 *source;
    site at;
};

struct range { /* of this thread's registers, as memory of its stack */
    const u8 *low, *high;
    u32 product; /* number of the warp's wgmma that uses them */
    bool result; /* written by it */
    site at;
};

struct thread {
    struct fibre fibre;
    struct cta *cta;
    struct warp *warp;
    int number; /* in the gang: its slot */
    int index;  /* in the block */
    int lane;
    unsigned x, y, z;
    enum wait_kind wait;
    site wait_site;
    const char *wait_name;
    void *wait_object;
    u32 wait_parity;
    u32 *clock;

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
    u32 *touched; /* per 4 bytes of stack: `fences` when it was last written plainly */

    struct store_part *bulk_stores; /* not yet waited for */
    int bulk_groups;                /* committed */
    int result;                     /* handed over by a barrier with a reduction */
    bool cluster_arrived;           /* at the cluster's barrier, in the generation below */
    u32 cluster_generation;
};

struct meeting { /* of lanes of a warp at one instruction */
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
    struct meeting meetings[WARP];

    struct product *products; /* wgmmas issued and not known complete, oldest first */
    int product_count, product_capacity;
    u32 products_issued, products_done; /* counts since the launch began */
    u32 *product_groups;                /* ends of committed groups */
    int product_group_count, product_group_capacity;
    int registers; /* of a thread, by setmaxnreg; 0: not changed */
};

struct barrier {
    int expected, arrived, predicates;
    int kind;       /* of reduction */
    u32 generation; /* complete ones; the cluster's barrier alone counts */
    u32 *clock;
    u32 *released; /* the cluster's: what the last complete generation knew */
    site at;
};

struct mbarrier {
    bool live;
    struct cta *cta;
    u32 offset;
    int expected, pending;
    i64 bytes; /* transaction count */
    u32 phase; /* complete ones */
    u16 slot;
    u32 *arriving, *released; /* clocks */
    u32 init_clock;
    u16 init_slot;
    bool init_fenced;
    u16 fence_slot;
    u32 fence_clock;
    u32 remote_phase; /* 1 + number of the last phase that another block arrived in; 0: none */
    site at, remote_at;
};

struct visit { /* by a thread of another block, its last */
    u32 clock;
    site at;
};

struct cta {
    int rank; /* in the cluster */
    int live; /* threads not gone */
    unsigned x, y, z;
    u8 *arena;
    struct cell *cells;
    struct barrier barriers[NAMED_BARRIERS];
    struct mbarrier mbarriers[MAX_MBARRIERS];
    int mbarrier_count;
    struct visit *visits; /* by thread of the gang; NULL: none yet */
    u32 *known_at_end;    /* clock: what its threads knew when they left */
    int registers_taken;  /* of the block's; 0: setmaxnreg was not used */
    bool waited;          /* for the kernels before: griddepcontrol.wait */
    bool lets_begin;      /* the next one: griddepcontrol.launch_dependents */
};

/* What can still take effect by itself: a copy that completes on an mbarrier, an arrival that
 * waits for copies. */
struct deferred {
    void (*effect)(struct deferred *deferred);
    struct deferred *next;
    struct thread *thread; /* who issued it */
    site at;
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

struct machine {
    struct emu_settings settings;
    struct emu_statistics statistics;
    struct kernel *kernel;
    void **parameters;
    unsigned grid[3], block[3], cluster[3];
    u32 shared_bytes;
    bool early;         /* may begin before the launch ahead of it has ended */
    const void *stream; /* it is on */

    int ctas, cta_threads, thread_count, warp_count, slots; /* of the gang */
    u32 gang, first_gang; /* running number of the gang, and of this launch's first; from 1 */
    struct cta cta[MAX_CLUSTER];
    struct thread *threads;
    struct warp *warps;
    struct barrier cluster_barrier;
    int live; /* threads not gone */
    u64 ready[MAX_WARPS / 64];
    int laggard; /* a warp that runs when no other can; -1: none */

    struct thread *self; /* who runs; NULL: the scheduler */
    struct fibre scheduler;
    struct deferred *deferred, **deferred_last;
    int deferred_count;
    site last_deferred;
    int pollers, fruitless; /* threads that poll; rounds of theirs in which nothing happened */
    u32 fences;             /* wgmma.fence executed, over all launches */
    u64 random;
    bool ended;  /* enough reports, or a fatal one */
    bool inside; /* a launch is under way */
};

extern struct machine emu;

const u8 *emu_stack_low(const struct thread *thread);
size_t emu_stack_bytes(void);

/* ---- scheduling (machine.c) ------------------------------------------------------------------ */

/* Whether a device takes the shape that `emu` describes; reports it when not. */
bool emu_launch_is_legal(void);
/* Runs that launch, which is legal; true when it made no report. */
bool emu_launch(struct kernel *kernel, void **parameters);

/* The running thread waits; returns when another called emu_wake for it. */
void emu_block(enum wait_kind kind, const char *name, void *object, site at);
void emu_wake(struct thread *thread);
/* A point at which another thread may take over, in a shuffled order. */
void emu_yield(void);
/* After a fruitless test: other threads go first. */
void emu_poll(const char *name, site at);
/* Ends the launch from inside a fibre. */
_Noreturn void emu_end(void);
u32 emu_random(void);
/* Whether an operation issued now takes effect now. */
bool emu_lands_now(void);
void emu_defer(struct deferred *deferred);

/* The running thread comes to a collective instruction of its warp: when all lanes of `mask` have
 * come, the last carries it out for all. */
void emu_meet(const char *name, u32 mask,
              void (*execute)(struct warp *warp, u32 mask, void **arguments, site at),
              void *arguments, site at);
/* For .aligned instructions: all 32 lanes of a whole warp, at one place of the text. */
void emu_meet_whole(const char *name,
                    void (*execute)(struct warp *warp, u32 mask, void **arguments, site at),
                    void *arguments, site at);

/* The same for all lanes the warp has, with nothing to carry out: before a barrier. */
void emu_converge(const char *name, site at);

/* The running thread's release and acquire. */
void emu_release(u32 *clock); /* joins the thread's clock into *clock and moves its own time on */
void emu_acquire(const u32 *clock);

/* Slots of a thread's cp.async copies and of a warp's products. */
static inline u16 emu_copy_slot(const struct thread *thread) {
    return (u16)(emu.thread_count + thread->number);
}
static inline u16 emu_product_slot(const struct warp *warp) {
    return (u16)(2 * emu.thread_count + warp->number);
}

/* Memory for as long as the gang runs, given back earlier or at its end. Ends the launch when there
 * is none. */
void *emu_take(size_t bytes);
void emu_give(void *memory);

/* ---- device memory (memory.c) ---------------------------------------------------------------- */

u64 emu_memory_allocate(size_t bytes, bool sparse);
int emu_memory_lend(u64 pointer, size_t bytes, const char *name);
void emu_memory_take_back(void);
bool emu_memory_free(u64 pointer);
bool emu_memory_holds(u64 pointer, size_t bytes);
void emu_memory_name(u64 pointer, const char *name);
void emu_memory_forbid(u64 pointer, size_t bytes);
void emu_memory_rewritable(u64 pointer, int may);
/* The host writes device memory, which knows from now on of no kernel that did. */
void emu_memory_overwritten(u64 pointer, size_t bytes);
/* The stream does, between launches: a report, and false, where that must not be touched or where a
 * launch that may run beside it wrote. The bytes lie in an allocation. */
bool emu_memory_fill_begins(u64 pointer, size_t bytes, const void *stream);
/* A kernel's access; ends the thread when it is outside every allocation. */
enum emu_access {
    EMU_READ,      /* past L1 */
    EMU_CACHED,    /* a plain read: through L1, which does not follow what other SMs write */
    EMU_READ_ONLY, /* ld.global.nc: of what nobody writes as long as the kernel runs */
    EMU_WRITE,
    EMU_ATOMIC /* a reduction or another atomic operation; or a counter's read */
};
void emu_global_access(const void *pointer, size_t bytes, enum emu_access access, site at);

/* The same for a bulk store or reduction, which is complete for whoever comes after its wait alone.
 */
void emu_global_store_begin(const void *to, size_t bytes, enum emu_access access, site at);
void emu_global_store_end(const void *to, size_t bytes, site at); /* by the thread that began it */

/* explicit.c: an address that is no multiple of `bytes` ends the thread. */
void emu_check_aligned(const void *pointer, size_t bytes, const char *what, site at);

/* ---- counters between blocks (counter.c) ----------------------------------------------------- */

void emu_counters_begin(void); /* of a launch */
/* Whether what a slot of an earlier gang of this launch did by `clock` happened before the thread's
 * next action. */
bool emu_counter_orders(u32 gang, u16 slot, u32 clock, const struct thread *thread);

/* ---- launches that may overlap (chain.c) ----------------------------------------------------- */

/* Around a launch on a stream, and when one of its blocks has ended. */
void emu_chain_begin(bool early, const void *stream);
void emu_chain_block_ends(const struct cta *cta);
void emu_chain_end(void);
/* Whether the earlier launch that the gang was of is complete, as far as the thread knows. */
bool emu_chain_is_complete(u32 gang, const struct thread *thread);
/* Whether, that being so, the thread reads through L1 what it wrote. */
bool emu_chain_is_fresh(u32 gang, const struct thread *thread, bool read_only);
/* Something that is no launch, on a stream: the next launch there is not early, whatever it says.
 */
void emu_chain_interrupt(const void *stream);
/* Whether the launch that the gang was of is complete when the last one on the stream has ended. */
bool emu_chain_has_ended(u32 gang, const void *stream);
/* Whether all launches are complete when the last one is: reports it when not. */
bool emu_chain_check_ended(void);

/* ---- pieces that the files call in each other ------------------------------------------------ */

void emu_copies_complete(struct thread *thread, u32 end); /* copy.c: all before number `end` */
void emu_thread_leaves(struct thread *thread);            /* copy.c: what is left over */
void emu_bulk_leaves(struct thread *thread);
void emu_products_leaving(struct thread *thread);
void emu_products_free(struct warp *warp); /* wgmma.c */
void emu_products_begin(void);
void emu_products_compare(void);
/* mbarrier.c: the object at an address of the cluster; `own`: of the thread's own block only. */
struct mbarrier *emu_mbarrier_at(u32 address, bool own, const char *what, site at);
void emu_mbarrier_arrived(struct mbarrier *barrier, int count, const u32 *clock, site at);
void emu_mbarrier_bytes(struct mbarrier *barrier, i64 bytes, site at);
void emu_mbarriers_fenced(struct thread *thread);
void emu_mbarrier_check_fenced(const struct mbarrier *barrier, const char *what, site at);
struct mbarrier *emu_mbarrier_covering(struct cta *cta, u32 offset, u32 bytes);
void emu_registers_touched(struct thread *thread, const u8 *low, u32 bytes, bool write, site at);
/* Registers that an instruction with a wrapper of its own reads or writes for a thread. */
void emu_registers_used(struct thread *thread, const void *registers, size_t bytes, bool write,
                        site at);
bool emu_kernel_holds(const void *pointer);
/* barrier.c: what a thread needs of another block whose shared memory it names; that it uses it
 * itself; and that the running thread has left. */
void emu_cluster_enter(const struct cta *cta, const char *what, site at);
void emu_cluster_visit(struct cta *cta, site at);
void emu_cluster_leave(void);

/* The control interface's view of the reports (report.c). */
const char *emu_first_report(void); /* of the last launch */
size_t emu_report_count(void);
struct emu_report emu_report_at(size_t index);
void emu_reports_clear(void);
const char *emu_kind_name(enum emu_kind kind);

#define EMU_EXPORT __attribute__((visibility("default")))
/* Where the running thread called from. */
#define EMU_SITE                                                                                   \
    ((site)((const u8 *)__builtin_return_address(0) - (emu.kernel ? emu.kernel->image : NULL)))

#endif
