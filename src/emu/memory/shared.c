/* See shared.h. */
#include "emu/memory/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu/machine/report.h"
#include "emu/memory/cluster.h"

static bool happened(const struct thread *thread, u16 slot, u32 clock) {
    return slot == thread->number || thread->clock[slot] >= clock;
}

static bool fenced(const struct thread *thread, u16 slot, u32 clock) {
    return thread->clock[emu.slots + slot] >= clock;
}

/* ---- readers of a byte since its last write -------------------------------------------------- */

/*
 * Most bytes have one reader, which the cell holds. Others refer to a set: a list node with the
 * last reader, linked to a set with the others. Sets never change, so an access that reads a whole
 * tile makes one node for all of its bytes; the last step from one set to the next is cached.
 *
 * Readers at the front of a set that happened before the joining reader are dropped. A set may keep
 * others, and older times of a reader: that does not change whether all of it happened before a
 * write. A set that has become long is compacted.
 */
enum { NO_NODE = 0, FEW = 32 };

struct node {
    u32 next;         /* the other readers; NO_NODE: none */
    u32 users;        /* cells and nodes that refer to it */
    u32 readers, max; /* number; compacted when it reaches max */
    u32 clock;
    u16 slot;
};

static struct node *nodes; /* [0] is not used */
static u32 node_count, node_capacity, free_node;

/* The cached step: a byte with readers (slot, clock) gets the set `to` when the reader joins. */
static struct {
    const struct thread *thread; /* whose clock was used */
    struct epoch reader;
    u16 slot;
    u32 clock, to; /* to: NO_NODE: nothing is cached */
} step;

/* Cached: a set whose readers all happened before this thread's next action. */
static struct {
    const struct thread *thread;
    u32 set;
} over;

/* Removes a freed set from the caches. */
static void forget_set(u32 set) {
    if (step.to == set || (step.slot == MANY && step.clock == set))
        step.to = NO_NODE;
    if (over.set == set)
        over.set = NO_NODE;
}

static u32 take_node(void) {
    u32 index = free_node;
    if (index) {
        free_node = nodes[index].next;
    } else {
        if (node_count == node_capacity) {
            u32 more = node_capacity ? 2 * node_capacity : 4096;
            struct node *larger = realloc(nodes, more * sizeof *larger);
            if (!larger)
                return NO_NODE;
            nodes = larger;
            node_capacity = more;
            if (node_count == 0)
                nodes[node_count++] = (struct node){0};
        }
        index = node_count++;
    }
    return index;
}

/* `cells` cells no longer refer to the set; frees unused nodes. */
static void leave_set(u32 set, u32 cells) {
    nodes[set].users -= cells;
    while (set && nodes[set].users == 0) {
        const u32 next = nodes[set].next;
        forget_set(set);
        nodes[set].next = free_node;
        free_node = set;
        set = next;
        if (set)
            nodes[set].users--;
    }
}

static void forget_readers(struct cell *cell) {
    if (cell->read_slot == MANY)
        leave_set(cell->read_clock, 1);
    cell->read_slot = NOBODY;
}

/* A new set of a reader and the set `others`; NO_NODE: out of memory. */
static u32 join_set(u32 others, struct epoch reader) {
    const u32 set = take_node();
    if (!set)
        return NO_NODE;
    nodes[set] = (struct node){.next = others,
                               .readers = nodes[others].readers + 1, /* of node 0: 0 */
                               .max = others ? nodes[others].max : FEW,
                               .clock = reader.clock,
                               .slot = reader.slot};
    if (others)
        nodes[others].users++;
    return set;
}

/* A copy of the set without readers that happened before the thread's next action, and with each
 * slot's latest time only. */
static u32 compact_set(u32 set, const struct thread *thread) {
    static u32 latest[1 << 16]; /* of a slot; zeros before and after */
    u32 left = NO_NODE;
    for (u32 index = set; index; index = nodes[index].next)
        if (latest[nodes[index].slot] < nodes[index].clock)
            latest[nodes[index].slot] = nodes[index].clock;
    for (u32 index = set; index; index = nodes[index].next) {
        const struct epoch reader = {nodes[index].slot, nodes[index].clock};
        if (reader.clock != latest[reader.slot])
            continue;
        latest[reader.slot] = 0;
        if (!happened(thread, reader.slot, reader.clock))
            left = join_set(left, reader);
    }
    if (left)
        nodes[left].max = 2 * nodes[left].readers + FEW;
    return left;
}

/* Whether the set's first nodes contain the reader at this time. */
static bool set_has(u32 set, struct epoch reader) {
    for (int i = 0; set && i < WARP; i++, set = nodes[set].next)
        if (nodes[set].slot == reader.slot)
            return nodes[set].clock == reader.clock;
    return false;
}

/* The set of a cell's readers and one more. */
static u32 larger_set(const struct cell *cell, struct epoch reader, const struct thread *thread) {
    if (cell->read_slot != MANY) {
        const u32 one = join_set(NO_NODE, (struct epoch){cell->read_slot, cell->read_clock});
        return one ? join_set(one, reader) : NO_NODE;
    }
    u32 others = cell->read_clock;
    while (others && happened(thread, nodes[others].slot, nodes[others].clock))
        others = nodes[others].next;
    if (others && nodes[others].readers >= nodes[others].max)
        others = compact_set(others, thread);
    return join_set(others, reader);
}

/* Adds a reader to cells that had equal readers. */
static void add_reader(struct cell *cells, u32 bytes, struct epoch reader,
                       const struct thread *thread) {
    const u16 slot = cells->read_slot;
    const u32 clock = cells->read_clock;
    u32 set = step.to;
    if (!set || step.slot != slot || step.clock != clock || step.thread != thread ||
        step.reader.slot != reader.slot || step.reader.clock != reader.clock) {
        if (slot == MANY && set_has(clock, reader))
            return;
        set = larger_set(cells, reader, thread);
        if (!set)
            return;
        step.thread = thread;
        step.reader = reader;
        step.slot = slot;
        step.clock = clock;
        step.to = set;
    }
    nodes[set].users += bytes;
    for (u32 i = 0; i < bytes; i++) {
        cells[i].read_slot = MANY;
        cells[i].read_clock = set;
    }
    if (slot == MANY)
        leave_set(clock, bytes);
}

static bool same_readers(const struct cell *one, const struct cell *other) {
    return one->read_slot == other->read_slot && one->read_clock == other->read_clock;
}

static void note_reader(struct cell *cells, u32 bytes, struct epoch reader,
                        const struct thread *thread, site at) {
    for (u32 first = 0, end; first < bytes; first = end) {
        struct cell *const cell = &cells[first];
        const u16 slot = cell->read_slot;
        for (end = first + 1; end < bytes && same_readers(cell, &cells[end]); end++)
            continue;
        for (u32 i = first; i < end; i++)
            cells[i].read_site = at;
        if (slot == MANY ||
            (slot != NOBODY && slot != reader.slot && !happened(thread, slot, cell->read_clock))) {
            add_reader(cell, end - first, reader, thread);
            continue;
        }
        for (u32 i = first; i < end; i++) {
            cells[i].read_slot = reader.slot;
            cells[i].read_clock = reader.clock;
        }
    }
}

/* The slot of a reader that did not happen before the thread's next action; NOBODY: none. */
static u16 find_concurrent_reader(const struct cell *cell, const struct thread *thread) {
    if (cell->read_slot == NOBODY)
        return NOBODY;
    if (cell->read_slot != MANY)
        return happened(thread, cell->read_slot, cell->read_clock) ? NOBODY : cell->read_slot;
    if (over.set == cell->read_clock && over.thread == thread)
        return NOBODY;
    for (u32 index = cell->read_clock; index; index = nodes[index].next)
        if (!happened(thread, nodes[index].slot, nodes[index].clock))
            return nodes[index].slot;
    over.set = cell->read_clock;
    over.thread = thread;
    return NOBODY;
}

/* ---- names ----------------------------------------------------------------------------------- */

static const struct region *find_region(u32 offset) {
    for (int i = 0; i < emu.kernel->region_count; i++) {
        const struct region *region = &emu.kernel->regions[i];
        if (offset >= region->offset && offset < region->offset + region->bytes)
            return region;
    }
    return NULL;
}

const char *emu_shared_name(const struct cta *cta, u32 offset) {
    static char buffers[4][112];
    static int next;
    char *text = buffers[next++ % 4];
    const struct region *region = find_region(offset);
    int used =
        region ? snprintf(text, sizeof buffers[0], "%s + %u", region->name, offset - region->offset)
               : snprintf(text, sizeof buffers[0], "shared memory byte %u", offset);
    if (emu.ctas > 1 && used > 0)
        snprintf(text + used, sizeof buffers[0] - (size_t)used, " of block %d of the cluster",
                 cta->rank);
    return text;
}

/* Describes a slot's owner. */
static const char *name_slot(u16 slot) {
    static char buffers[4][128];
    static int next;
    char *text = buffers[next++ % 4];
    int threads = emu.thread_count;
    if (slot < threads)
        snprintf(text, sizeof buffers[0], "%s", emu_thread_name(&emu.threads[slot]));
    else if (slot < 2 * threads)
        snprintf(text, sizeof buffers[0], "a cp.async of %s",
                 emu_thread_name(&emu.threads[slot - threads]));
    else if (slot < 2 * threads + emu.warp_count)
        snprintf(text, sizeof buffers[0], "a wgmma of warp %d",
                 emu.warps[slot - 2 * threads].index);
    else
        snprintf(text, sizeof buffers[0], "a bulk copy");
    return text;
}

struct shared_location emu_shared_location(u32 address, u32 bytes, u32 alignment, const char *what,
                                           site at) {
    struct thread *self = emu.self;
    struct shared_location location = {self->cta, 0};
    u32 rank = address >> CLUSTER_SHIFT, local = address & ((1u << CLUSTER_SHIFT) - 1);
    if (rank > (u32)emu.ctas || local < SHARED_BASE ||
        (u64)(local - SHARED_BASE) + bytes > emu.shared_bytes)
        emu_fatal(EMU_BOUNDS, at, 0,
                  "%s: %s of %u bytes at shared address 0x%x, outside the block's %u bytes (from "
                  "0x%x on) {1}",
                  emu_thread_name(self), what, bytes, address, emu.shared_bytes, SHARED_BASE);
    if (rank > 0)
        location.cta = &emu.cta[rank - 1];
    if (location.cta != self->cta)
        emu_cluster_enter(location.cta, what, at);
    location.offset = local - SHARED_BASE;
    if (location.offset % alignment != 0)
        emu_fatal(EMU_ALIGNMENT, at, 0, "%s: %s at %s, which is not a multiple of %u {1}",
                  emu_thread_name(self), what, emu_shared_name(location.cta, location.offset),
                  alignment);
    return location;
}

struct shared_location emu_own_location(u32 address, u32 bytes, u32 alignment, const char *what,
                                        site at) {
    struct shared_location location = emu_shared_location(address, bytes, alignment, what, at);
    if (location.cta != emu.self->cta)
        emu_fatal(EMU_ILLEGAL, at, 0,
                  "%s: %s at %s {1}: the instruction reaches its own block's shared memory only",
                  emu_thread_name(emu.self), what, emu_shared_name(location.cta, location.offset));
    return location;
}

/* ---- accesses -------------------------------------------------------------------------------- */

/* The mbarrier that overlaps the bytes, or NULL. */
static const struct mbarrier *find_mbarrier(const struct cta *cta, u32 offset, u32 bytes) {
    for (int i = 0; i < cta->mbarrier_count; i++) {
        const struct mbarrier *barrier = &cta->mbarriers[i];
        if (offset < barrier->offset + 8 && barrier->offset < offset + bytes)
            return barrier;
    }
    return NULL;
}

/* The access must lie in one region of the plan's map, within the launch's shared memory (the map
 * may be another plan's), and not overlap an mbarrier. */
static void check_region(const struct cta *cta, u32 offset, u32 bytes, const char *what, site at) {
    const struct region *region = find_region(offset);
    if (!region || offset + bytes > region->offset + region->bytes)
        emu_fatal(EMU_BOUNDS, at, 0, "%s: %s of %u bytes at %s, %s {1}", emu_thread_name(emu.self),
                  what, bytes, emu_shared_name(cta, offset),
                  region ? "beyond the region's end" : "outside the plan's map");
    if ((u64)offset + bytes > emu.shared_bytes)
        emu_fatal(EMU_BOUNDS, at, 0, "%s: %s of %u bytes at %s, beyond the launch's %u bytes {1}",
                  emu_thread_name(emu.self), what, bytes, emu_shared_name(cta, offset),
                  emu.shared_bytes);
    const struct mbarrier *barrier = find_mbarrier(cta, offset, bytes);
    if (barrier)
        emu_fatal(EMU_BARRIER, at, barrier->at,
                  "%s: a plain %s of %u bytes at %s, which overlaps an mbarrier {1}, initialised "
                  "{2}",
                  emu_thread_name(emu.self), what, bytes, emu_shared_name(cta, offset));
}

static void report_flight(const struct cta *cta, u32 offset, const char *what,
                          const struct cell *cell, site at) {
    emu_report(EMU_UNWAITED, at, cell->write_site,
               "%s: %s of %s {1}, the destination of %s under way {2}: no wait covers it",
               emu_thread_name(emu.self), what, emu_shared_name(cta, offset),
               name_slot(cell->write_slot));
}

static void report_race(const struct cta *cta, u32 offset, const char *what, const char *earlier,
                        u16 slot, site before, site at) {
    emu_report(EMU_RACE, at, before, "%s: %s of %s {1}, %s by %s {2}: no barrier orders the two",
               emu_thread_name(emu.self), what, emu_shared_name(cta, offset), earlier,
               name_slot(slot));
}

/* Whether a byte may be read; false: reported. */
static bool may_read(const struct cta *cta, u32 offset, const char *what, site at) {
    const struct cell *cell = &cta->cells[offset];
    const struct thread *self = emu.self;
    if (cell->flight) {
        report_flight(cta, offset, what, cell, at);
    } else if (cell->write_slot == NOBODY) {
        emu_report(EMU_UNINITIALIZED, at, 0, "%s: %s of %s, which was never written {1}",
                   emu_thread_name(self), what, emu_shared_name(cta, offset));
    } else if (!happened(self, cell->write_slot, cell->write_clock)) {
        report_race(cta, offset, what, "written", cell->write_slot, cell->write_site, at);
    } else {
        return true;
    }
    return false;
}

static bool may_write(const struct cta *cta, u32 offset, const char *what, site at) {
    const struct cell *cell = &cta->cells[offset];
    const struct thread *self = emu.self;
    u16 reader;
    if (cell->flight) {
        report_flight(cta, offset, what, cell, at);
    } else if (cell->pending_readers) {
        emu_report(EMU_OVERWRITTEN, at, cell->read_site,
                   "%s: %s of %s {1}, which an asynchronous operation may still be reading {2}",
                   emu_thread_name(self), what, emu_shared_name(cta, offset));
    } else if (cell->write_slot != NOBODY && !happened(self, cell->write_slot, cell->write_clock)) {
        report_race(cta, offset, what, "written", cell->write_slot, cell->write_site, at);
    } else if ((reader = find_concurrent_reader(cell, self)) != NOBODY) {
        report_race(cta, offset, what, "read", reader, cell->read_site, at);
    } else {
        return true;
    }
    return false;
}

/* Reports a byte whose last write was generic and was not fenced before an access through the async
 * proxy. */
static void check_proxy(const struct cta *cta, u32 offset, const char *what, site at) {
    const struct cell *cell = &cta->cells[offset];
    bool generic = cell->write_slot < 2 * emu.thread_count;
    if (generic && !fenced(emu.self, cell->write_slot, cell->write_clock))
        emu_report(
            EMU_PROXY, at, cell->write_site,
            "%s: %s of %s through the async proxy {1}, written through the generic one by %s "
            "{2}: no fence.proxy.async lies between",
            emu_thread_name(emu.self), what, emu_shared_name(cta, offset),
            name_slot(cell->write_slot));
}

/* Whether two bytes have the same last write, so that one check covers both. */
static bool same_write(const struct cell *one, const struct cell *other) {
    return one->write_slot == other->write_slot && one->write_clock == other->write_clock &&
           one->flight == other->flight;
}

void emu_shared_read(struct cta *cta, u32 offset, u32 bytes, site at) {
    struct thread *self = emu.self;
    struct epoch now = {(u16)self->number, self->clock[self->number]};
    check_region(cta, offset, bytes, "read", at);
    u32 good = 0;
    for (; good < bytes; good++) {
        const struct cell *const cell = &cta->cells[offset + good];
        if ((good == 0 || !same_write(cell, cell - 1)) && !may_read(cta, offset + good, "read", at))
            break;
    }
    note_reader(&cta->cells[offset], good, now, self, at);
}

static void set_written(struct cell *cell, struct epoch epoch, bool flight, site at) {
    if (cell->read_slot != NOBODY)
        forget_readers(cell);
    cell->write_slot = epoch.slot;
    cell->write_clock = epoch.clock;
    cell->write_site = at;
    cell->flight = flight;
    cell->atomic = false;
}

void emu_shared_write(struct cta *cta, u32 offset, u32 bytes, site at) {
    struct thread *self = emu.self;
    struct epoch now = {(u16)self->number, self->clock[self->number]};
    check_region(cta, offset, bytes, "write", at);
    for (u32 i = offset; i < offset + bytes; i++) {
        if (!may_write(cta, i, "write", at))
            return;
        set_written(&cta->cells[i], now, false, at);
    }
}

void emu_shared_atomic(struct cta *cta, u32 offset, u32 bytes, site at) {
    struct thread *self = emu.self;
    struct epoch now = {(u16)self->number, self->clock[self->number]};
    check_region(cta, offset, bytes, "atomic operation", at);
    for (u32 i = offset; i < offset + bytes; i++) {
        struct cell *cell = &cta->cells[i];
        const bool meets = cell->atomic && find_concurrent_reader(cell, self) == NOBODY;
        if (!meets && (!may_read(cta, i, "atomic operation", at) ||
                       !may_write(cta, i, "atomic operation", at)))
            return;
        set_written(cell, now, false, at);
        cell->atomic = true;
    }
}

void emu_shared_write_begin(struct cta *cta, u32 offset, u32 bytes, bool async_proxy,
                            struct epoch done, site at) {
    check_region(cta, offset, bytes, "copy to it", at);
    for (u32 i = offset; i < offset + bytes; i++) {
        if (!may_write(cta, i, "copy to it", at))
            return;
        if (async_proxy && cta->cells[i].write_slot != NOBODY)
            check_proxy(cta, i, "a write", at);
        set_written(&cta->cells[i], done, true, at);
    }
}

void emu_shared_write_end(struct cta *cta, u32 offset, u32 bytes, struct epoch begun,
                          struct epoch done) {
    for (u32 i = offset; i < offset + bytes; i++) {
        struct cell *cell = &cta->cells[i];
        if (cell->write_slot != begun.slot || cell->write_clock != begun.clock)
            continue;
        cell->flight = false;
        cell->write_clock = done.clock;
    }
}

void emu_shared_read_begin(struct cta *cta, u32 offset, u32 bytes, site at) {
    check_region(cta, offset, bytes, "asynchronous read", at);
    for (u32 i = offset; i < offset + bytes; i++) {
        struct cell *cell = &cta->cells[i];
        if (i == offset || !same_write(cell, cell - 1)) {
            if (!may_read(cta, i, "asynchronous read", at))
                return;
            check_proxy(cta, i, "a read", at);
        }
        cell->pending_readers++;
        cell->read_site = at;
    }
}

void emu_shared_read_end(struct cta *cta, u32 offset, u32 bytes, struct epoch done, site at) {
    for (u32 i = offset; i < offset + bytes; i++) {
        struct cell *cell = &cta->cells[i];
        if (cell->pending_readers > 0)
            cell->pending_readers--;
    }
    note_reader(&cta->cells[offset], bytes, done, emu.self ? emu.self : &emu.threads[0], at);
}

void emu_shadow_begin(void) {
    /* A NaN in every type the kernels use; as an index, out of range. */
    enum { POISON = 0xff };
    for (int i = 0; i < emu.ctas; i++) {
        struct cta *cta = &emu.cta[i];
        memset(cta->arena, POISON, emu.shared_bytes);
        for (u32 at = 0; at < emu.shared_bytes; at++)
            cta->cells[at] = (struct cell){.write_slot = NOBODY, .read_slot = NOBODY};
    }
    node_count = node_capacity ? 1 : 0;
    free_node = NO_NODE;
    step.to = over.set = NO_NODE;
}
