/* See global.h. */
#include "emu/memory/global.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emu/machine/report.h"
#include "emu/memory/pdl.h"

enum { PAGE = 4096, GUARD = 1 << 20, NAME = 48 };

struct forbidden {
    u64 begin, end;
};

/* The last writer of a granule of device memory, to find races between blocks and threads. */
enum { GRANULE = 2 }; /* bytes: the smallest store of most kernels */

/* The bytes of its granule that an access touches: accesses of different single bytes do not
 * conflict. Of two such writes the last is remembered. */
enum { FIRST_BYTE = 1, SECOND_BYTE = 2 };

struct written {
    u32 gang;      /* emu.gang of the writer; below emu.first_gang: an earlier launch; 0: none */
    u32 clock, at; /* clock: UNDER_WAY: a bulk store that was not waited for */
    u16 slot;
    u8 atomic; /* by a reduction: others may race with it */
    u8 touched;
};

static const u32 UNDER_WAY = 0xffffffff; /* no clock reaches it */

/* A granule's last reader, to check later writers. */
struct reading {
    u32 gang, clock, at;
    u16 slot, touched;
};

/* Adjacent, since memory accesses dominate the time of checks. */
struct granule {
    struct written written;
    struct reading read;   /* the last */
    struct reading before; /* the last of another gang */
};

struct allocation {
    u64 begin, bytes;
    int device;
    u32 producer;  /* gang of a producer that may still access all of it; 0: none */
    void *mapping; /* NULL: lent host memory */
    size_t mapped;
    size_t counted; /* its part of `held` */
    char name[NAME];
    struct forbidden *forbidden; /* ascending, disjoint, once `sorted` */
    size_t forbidden_count, forbidden_capacity;
    bool sorted;
    bool rewritable;          /* several threads of a launch may write the same bytes */
    struct granule *granules; /* pages exist when touched */
};

static struct allocation *allocations;
static size_t count, capacity;
static size_t last_hit;
static size_t held; /* bytes of allocations that are not sparse */

static struct allocation *find(u64 pointer) {
    if (last_hit < count && pointer - allocations[last_hit].begin < allocations[last_hit].bytes)
        return &allocations[last_hit];
    for (size_t i = 0; i < count; i++)
        if (pointer - allocations[i].begin < allocations[i].bytes) {
            last_hit = i;
            return &allocations[i];
        }
    return NULL;
}

static size_t granule_count(size_t bytes) {
    return bytes / GRANULE + 1;
}

/* Shadow bytes of an allocation. */
static size_t shadow_bytes(size_t bytes) {
    return granule_count(bytes) * sizeof(struct granule);
}

/* Adds an allocation without a history of accesses. */
static bool remember(int device, void *mapping, size_t mapped, u64 begin, size_t bytes) {
    if (count == capacity) {
        size_t more = capacity ? 2 * capacity : 64;
        struct allocation *larger = realloc(allocations, more * sizeof *larger);
        if (!larger)
            return false;
        allocations = larger;
        capacity = more;
    }
    void *shadow = mmap(NULL, shadow_bytes(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shadow == MAP_FAILED)
        return false;
    allocations[count++] = (struct allocation){.begin = begin,
                                               .bytes = bytes,
                                               .device = device,
                                               .mapping = mapping,
                                               .mapped = mapped,
                                               .granules = shadow};
    return true;
}

size_t emu_memory_total(void) {
    const size_t most = (size_t)1 << 37;
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 && (size_t)pages < most / (size_t)page
               ? (size_t)pages * (size_t)page
               : most;
}

size_t emu_memory_left(void) {
    const size_t total = emu_memory_total();
    return held < total ? total - held : 0;
}

u64 emu_memory_allocate(int device, size_t bytes, bool sparse) {
    size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
    if (bytes == 0 || mapped < bytes || (!sparse && bytes > emu_memory_left()))
        return 0;
    void *mapping = mmap(NULL, mapped + 2 * (size_t)GUARD, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return 0;
    u8 *begin = (u8 *)mapping + GUARD;
    if (mprotect(begin, mapped, PROT_READ | PROT_WRITE)) {
        munmap(mapping, mapped + 2 * (size_t)GUARD);
        return 0;
    }
    if (!sparse)
        memset(begin, 0xff, bytes); /* unwritten memory is NaN, or an index out of range */
    if (!remember(device, mapping, mapped + 2 * (size_t)GUARD, (u64)(uintptr_t)begin, bytes)) {
        munmap(mapping, mapped + 2 * (size_t)GUARD);
        return 0;
    }
    allocations[count - 1].counted = sparse ? 0 : bytes;
    held += allocations[count - 1].counted;
    return (u64)(uintptr_t)begin;
}

/* The last allocation takes its slot. */
static void forget(struct allocation *allocation) {
    held -= allocation->counted;
    if (allocation->mapping)
        munmap(allocation->mapping, allocation->mapped);
    munmap(allocation->granules, shadow_bytes(allocation->bytes));
    free(allocation->forbidden);
    *allocation = allocations[--count];
}

int emu_memory_lend(int device, u64 pointer, size_t bytes, const char *name) {
    /* Merged with overlapping lent ranges. */
    u64 begin = pointer, end = pointer + bytes;
    char kept[NAME];
    if (bytes == 0)
        return 1;
    snprintf(kept, sizeof kept, "%s", name);
    for (size_t i = 0; i < count;) {
        struct allocation *other = &allocations[i];
        if (other->mapping || other->begin >= end || other->begin + other->bytes <= begin) {
            i++;
            continue;
        }
        if (other->device != device)
            return 0;
        memcpy(kept, other->name, sizeof kept);
        begin = other->begin < begin ? other->begin : begin;
        end = other->begin + other->bytes > end ? other->begin + other->bytes : end;
        forget(other);
        i = 0; /* the larger range may overlap one that was passed */
    }
    if (!remember(device, NULL, 0, begin, (size_t)(end - begin)))
        return 0;
    memcpy(allocations[count - 1].name, kept, sizeof kept);
    return 1;
}

void emu_memory_take_back(void) {
    for (size_t i = count; i > 0; i--)
        if (!allocations[i - 1].mapping)
            forget(&allocations[i - 1]);
}

bool emu_memory_free(u64 pointer) {
    struct allocation *allocation = find(pointer);
    if (!allocation || allocation->begin != pointer || !allocation->mapping)
        return false;
    forget(allocation);
    return true;
}

bool emu_memory_holds(u64 pointer, size_t bytes) {
    const struct allocation *allocation = find(pointer);
    return allocation && bytes <= allocation->bytes - (pointer - allocation->begin);
}

int emu_memory_device(u64 pointer) {
    const struct allocation *allocation = find(pointer);
    return allocation ? allocation->device : -1;
}

void emu_memory_name(u64 pointer, const char *name) {
    struct allocation *allocation = find(pointer);
    if (allocation)
        snprintf(allocation->name, NAME, "%s", name);
}

void emu_memory_rewritable(u64 pointer, int may) {
    struct allocation *allocation = find(pointer);
    if (allocation)
        allocation->rewritable = may != 0;
}

void emu_memory_forbid(u64 pointer, size_t bytes) {
    struct allocation *allocation = find(pointer);
    if (!allocation)
        return;
    if (bytes == 0) {
        allocation->forbidden_count = 0;
        return;
    }
    if (allocation->forbidden_count == allocation->forbidden_capacity) {
        size_t more = allocation->forbidden_capacity ? 2 * allocation->forbidden_capacity : 64;
        struct forbidden *larger = realloc(allocation->forbidden, more * sizeof *larger);
        if (!larger)
            return;
        allocation->forbidden = larger;
        allocation->forbidden_capacity = more;
    }
    allocation->forbidden[allocation->forbidden_count++] =
        (struct forbidden){pointer, pointer + bytes};
    allocation->sorted = false;
}

static int by_begin(const void *a, const void *b) {
    const struct forbidden *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static void sort_forbidden(struct allocation *allocation) {
    size_t kept = 0;
    struct forbidden *list = allocation->forbidden;
    qsort(list, allocation->forbidden_count, sizeof *list, by_begin);
    for (size_t i = 0; i < allocation->forbidden_count; i++) {
        if (kept > 0 && list[i].begin <= list[kept - 1].end) {
            if (list[i].end > list[kept - 1].end)
                list[kept - 1].end = list[i].end;
        } else {
            list[kept++] = list[i];
        }
    }
    allocation->forbidden_count = kept;
    allocation->sorted = true;
}

/* Whether a forbidden range overlaps [pointer, pointer + bytes). */
static bool is_forbidden(struct allocation *allocation, u64 pointer, size_t bytes) {
    if (!allocation->sorted)
        sort_forbidden(allocation);
    size_t low = 0, high = allocation->forbidden_count;
    while (low < high) { /* the first that ends after the pointer */
        size_t middle = (low + high) / 2;
        if (allocation->forbidden[middle].end > pointer)
            high = middle;
        else
            low = middle + 1;
    }
    return low < allocation->forbidden_count && allocation->forbidden[low].begin < pointer + bytes;
}

/* The nearest allocation, for the message. */
static const struct allocation *nearest(u64 pointer) {
    const struct allocation *best = NULL;
    u64 distance = (u64)1 << 40;
    for (size_t i = 0; i < count; i++) {
        const struct allocation *one = &allocations[i];
        u64 away = pointer < one->begin ? one->begin - pointer : pointer - one->begin - one->bytes;
        if (away < distance) {
            distance = away;
            best = one;
        }
    }
    return best;
}

static const char *name_of(const struct allocation *allocation) {
    return allocation->name[0] ? allocation->name : "a buffer";
}

static _Noreturn void outside(u64 pointer, size_t bytes, const char *what, site at) {
    const struct allocation *near = nearest(pointer);
    if (!near)
        emu_fatal(EMU_BOUNDS, at, 0, "%s: %s of %zu bytes at %p, which is not device memory {1}",
                  emu_thread_name(emu.self), what, bytes, (void *)(uintptr_t)pointer);
    bool before = pointer < near->begin;
    emu_fatal(
        EMU_BOUNDS, at, 0, "%s: %s of %zu bytes %llu bytes %s %s of %llu bytes {1}",
        emu_thread_name(emu.self), what, bytes,
        (unsigned long long)(before ? near->begin - pointer : pointer - near->begin - near->bytes),
        before ? "before" : "past the end of", name_of(near), (unsigned long long)near->bytes);
}

/* ---- accesses by the host and by memsets ---------------------------------------------------- */

/* Zeroes a part of the shadow, by returning whole pages to the system. */
static void erase(void *from, size_t bytes) {
    u8 *begin = from, *end = begin + bytes;
    u8 *const pages = begin + (PAGE - (uintptr_t)begin % PAGE) % PAGE;
    u8 *const pages_end = end - (uintptr_t)end % PAGE;
    if (pages < pages_end && madvise(pages, (size_t)(pages_end - pages), MADV_DONTNEED) == 0) {
        memset(begin, 0, (size_t)(pages - begin));
        begin = pages_end;
    }
    memset(begin, 0, (size_t)(end - begin));
}

void emu_memory_produce(u64 pointer, const void *stream) {
    struct allocation *allocation = find(pointer);
    if (allocation)
        allocation->producer = stream ? emu_pdl_produce(stream) : 0;
}

void emu_memory_overwritten(u64 pointer, size_t bytes) {
    struct allocation *allocation = find(pointer);
    if (!allocation || bytes == 0)
        return;
    const u64 offset = pointer - allocation->begin, first = offset / GRANULE;
    const size_t number = (size_t)((offset + bytes - 1) / GRANULE - first + 1);
    erase(&allocation->granules[first], number * sizeof(struct granule));
}

static bool has_ended(u32 gang, const void *stream) {
    return gang == 0 || emu_pdl_has_ended(gang, stream);
}

bool emu_memory_fill_begins(u64 pointer, size_t bytes, const void *stream) {
    struct allocation *allocation = find(pointer);
    const u64 offset = pointer - allocation->begin;
    if (allocation->forbidden_count > 0 && is_forbidden(allocation, pointer, bytes)) {
        emu_report(
            EMU_FORBIDDEN, 0, 0,
            "a memset of %zu bytes from byte %llu of %s on, some of which must not be touched",
            bytes, (unsigned long long)offset, name_of(allocation));
        return false;
    }
    if (!has_ended(allocation->producer, stream)) {
        emu_report(EMU_RACE, 0, 0,
                   "a memset of %s, which an operation on another stream may still use",
                   name_of(allocation));
        return false;
    }
    for (u64 i = offset / GRANULE; bytes > 0 && i <= (offset + bytes - 1) / GRANULE; i++) {
        const struct granule *const granule = &allocation->granules[i];
        const bool after_writes = has_ended(granule->written.gang, stream);
        if (!after_writes || !has_ended(granule->read.gang, stream) ||
            !has_ended(granule->before.gang, stream)) {
            emu_report(EMU_RACE, 0, 0,
                       "a memset of byte %llu of %s, %s by an earlier launch that may outlast the "
                       "last launch: one of the last launch's threads must execute "
                       "griddepcontrol.wait",
                       (unsigned long long)(i * GRANULE), name_of(allocation),
                       after_writes ? "read" : "written");
            return false;
        }
    }
    return true;
}

/* ---- a kernel's accesses --------------------------------------------------------------------- */

/* Whether an access at a time of a gang's slot happened before the running thread's access. */
static bool happened(u32 gang, u16 slot, u32 clock) {
    const struct thread *self = emu.self;
    if (gang < emu.first_gang)
        return emu_pdl_is_complete(gang, self);
    return gang == emu.gang && (slot == self->number || self->clock[slot] >= clock);
}

static bool writes(enum emu_access access) {
    return access == EMU_WRITE || access == EMU_ATOMIC;
}

static void report_under_way(const struct allocation *allocation, const struct written *before,
                             u64 offset, enum emu_access access, site at) {
    emu_report(EMU_UNWAITED, at, before->at,
               "%s: %s of byte %llu of %s {1} during a bulk store to it by %s {2}: no "
               "cp.async.bulk.wait_group covers it",
               emu_thread_name(emu.self), writes(access) ? "write" : "read",
               (unsigned long long)offset, name_of(allocation),
               emu_thread_name(&emu.threads[before->slot]));
}

/* Reports the running thread's access as unordered with an earlier one at `before`, which `verb`
 * describes. */
static void report_race(const struct allocation *allocation, const char *verb, u32 gang, u16 slot,
                        site before, u64 offset, enum emu_access access, site at) {
    const char *what = writes(access) ? "write" : "read";
    if (gang < emu.first_gang)
        emu_report(EMU_RACE, at, 0,
                   "%s: %s of byte %llu of %s {1}, %s by an earlier launch that may not have "
                   "ended: no griddepcontrol.wait orders the two",
                   emu_thread_name(emu.self), what, (unsigned long long)offset, name_of(allocation),
                   verb);
    else
        emu_report(EMU_RACE, at, before,
                   "%s: %s of byte %llu of %s {1}, %s by %s {2}: nothing orders the two",
                   emu_thread_name(emu.self), what, (unsigned long long)offset, name_of(allocation),
                   verb,
                   gang == emu.gang ? emu_thread_name(&emu.threads[slot]) : "an earlier block");
}

/* Whether a read may find an older value in L1, although the write happened before it. */
static bool is_stale(const struct written *before, enum emu_access access) {
    if (access != EMU_CACHED && access != EMU_READ_ONLY)
        return false;
    if (before->gang >= emu.first_gang)
        return access == EMU_READ_ONLY;
    return !emu_pdl_is_fresh(before->gang, emu.self, access == EMU_READ_ONLY);
}

static void report_stale(const struct allocation *allocation, const struct written *before,
                         u64 offset, enum emu_access access, site at) {
    const char *who = emu_thread_name(emu.self), *name = name_of(allocation);
    if (before->gang >= emu.first_gang)
        emu_report(EMU_STALE, at, before->at,
                   "%s: ld.global.nc of byte %llu of %s {1}, which this kernel writes itself {2}",
                   who, (unsigned long long)offset, name);
    else if (access == EMU_READ_ONLY)
        emu_report(
            EMU_STALE, at, 0,
            "%s: ld.global.nc of byte %llu of %s {1}, which an earlier launch may still have "
            "written when this one began",
            who, (unsigned long long)offset, name);
    else
        emu_report(
            EMU_STALE, at, 0,
            "%s: a plain read of byte %llu of %s {1}, written by an earlier launch that this "
            "one did not wait for: L1 may hold an older value; bypass it (ld.global.cg) or read "
            "after griddepcontrol.wait",
            who, (unsigned long long)offset, name);
}

/* Whether this is an allowed second write by another thread of the launch. */
static bool rewrites(const struct allocation *allocation, const struct written *before,
                     enum emu_access access) {
    return allocation->rewritable && access == EMU_WRITE && !before->atomic &&
           before->gang >= emu.first_gang;
}

/* Reports two unordered accesses of which one is a write: of two gangs, which may run at the same
 * time, of one gang by its clocks, or of two overlapping launches. Of a granule's reads, the last
 * and the last of another gang are remembered. False: there was a report. */
static bool check_granule(const struct allocation *allocation, const struct granule *granule,
                          u64 offset, u8 touched, enum emu_access access, site at) {
    static const struct written nothing;
    const bool meet = granule->written.touched & touched;
    const struct written *before = meet ? &granule->written : &nothing;
    const struct reading *const reads[] = {&granule->read, &granule->before};
    const bool both_add = access == EMU_ATOMIC && before->atomic;
    if (before->gang == emu.gang && before->clock == UNDER_WAY && !both_add) {
        report_under_way(allocation, before, offset, access, at);
        return false;
    }
    if (before->gang > 0 && !both_add && !rewrites(allocation, before, access) &&
        !happened(before->gang, before->slot, before->clock)) {
        report_race(allocation, "written", before->gang, before->slot, before->at, offset, access,
                    at);
        return false;
    }
    if (before->gang > 0 && is_stale(before, access)) {
        report_stale(allocation, before, offset, access, at);
        return false;
    }
    for (int k = 0; k < 2 && writes(access); k++) {
        const struct reading *read = reads[k];
        if (read->gang > 0 && (read->touched & touched) &&
            !happened(read->gang, read->slot, read->clock)) {
            report_race(allocation, "read", read->gang, read->slot, read->at, offset, access, at);
            return false;
        }
    }
    return true;
}

static void remember_read(struct granule *granule, const struct reading *reading) {
    if (granule->read.gang != reading->gang)
        granule->before = granule->read;
    granule->read = *reading;
}

static void check_race(struct allocation *allocation, u64 offset, size_t bytes,
                       enum emu_access access, site at) {
    const struct thread *self = emu.self;
    const u32 clock = self->clock[self->number];
    const u64 last = offset + bytes - 1;
    for (u64 i = offset / GRANULE; i <= last / GRANULE; i++) {
        const u8 touched = (u8)((i * GRANULE >= offset ? FIRST_BYTE : 0) |
                                (i * GRANULE + 1 <= last ? SECOND_BYTE : 0));
        struct granule *const granule = &allocation->granules[i];
        if (!check_granule(allocation, granule, offset, touched, access, at))
            return;
        if (writes(access))
            granule->written = (struct written){
                emu.gang, clock, at, (u16)self->number, access == EMU_ATOMIC, touched};
        else
            remember_read(granule,
                          &(struct reading){emu.gang, clock, at, (u16)self->number, touched});
    }
}

void emu_check_aligned(const void *pointer, size_t bytes, const char *what, site at) {
    if ((uintptr_t)pointer % bytes != 0)
        emu_fatal(EMU_ALIGNMENT, at, 0,
                  "%s: %s of %zu bytes, misaligned: the address is %zu past a multiple {1}",
                  emu_thread_name(emu.self), what, bytes, (size_t)((uintptr_t)pointer % bytes));
}

void emu_global_access(const void *pointer, size_t bytes, enum emu_access access, site at) {
    u64 address = (u64)(uintptr_t)pointer;
    const char *what = writes(access) ? "write" : "read";
    struct allocation *allocation = find(address);
    if (!allocation)
        outside(address, bytes, what, at);
    u64 offset = address - allocation->begin;
    if (allocation->device != emu.device)
        emu_fatal(EMU_BOUNDS, at, 0,
                  "%s: %s of %zu bytes at byte %llu of %s, which is on device %d: the kernel runs "
                  "on device %d {1}",
                  emu_thread_name(emu.self), what, bytes, (unsigned long long)offset,
                  name_of(allocation), allocation->device, emu.device);
    if (allocation->producer && !emu_pdl_is_complete(allocation->producer, emu.self))
        emu_fatal(EMU_RACE, at, 0,
                  "%s: %s of %zu bytes at byte %llu of %s {1}, which an earlier operation may "
                  "still use: the launch is on another stream, or it was launched with PDL and "
                  "no griddepcontrol.wait orders the two",
                  emu_thread_name(emu.self), what, bytes, (unsigned long long)offset,
                  name_of(allocation));
    if (bytes > allocation->bytes - offset)
        emu_fatal(EMU_BOUNDS, at, 0, "%s: %s of %zu bytes at byte %llu of %s, which has %llu {1}",
                  emu_thread_name(emu.self), what, bytes, (unsigned long long)offset,
                  name_of(allocation), (unsigned long long)allocation->bytes);
    if (allocation->forbidden_count > 0 && is_forbidden(allocation, address, bytes))
        emu_fatal(EMU_FORBIDDEN, at, 0,
                  "%s: %s of %zu bytes at byte %llu of %s, which must not be touched {1}",
                  emu_thread_name(emu.self), what, bytes, (unsigned long long)offset,
                  name_of(allocation));
    check_race(allocation, offset, bytes, access, at);
}

/* Changes the clock of granules that the running thread wrote at site `at` from `from` to
 * `clock`. */
static void stamp(const void *to, size_t bytes, site at, u32 from, u32 clock) {
    struct allocation *allocation = find((u64)(uintptr_t)to);
    const u64 offset = (u64)(uintptr_t)to - allocation->begin;
    for (u64 i = offset / GRANULE; i <= (offset + bytes - 1) / GRANULE; i++) {
        struct written *written = &allocation->granules[i].written;
        if (written->gang == emu.gang && written->slot == emu.self->number && written->at == at &&
            written->clock == from)
            written->clock = clock;
    }
}

void emu_global_store_begin(const void *to, size_t bytes, enum emu_access access, site at) {
    emu_global_access(to, bytes, access, at);
    stamp(to, bytes, at, emu.self->clock[emu.self->number], UNDER_WAY);
}

void emu_global_store_end(const void *to, size_t bytes, site at) {
    stamp(to, bytes, at, UNDER_WAY, emu.self->clock[emu.self->number]);
}
