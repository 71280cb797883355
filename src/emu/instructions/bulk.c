/*
 * Bulk copies, plain and by tensor map, and stores into the cluster (PTX ISA, "cp.async.bulk",
 * "cp.reduce.async.bulk", "cp.async.bulk.tensor", "st.async"). Loads complete their bytes on an
 * mbarrier; stores are waited for in groups. All but st.async use the async proxy.
 */
#include "emu/instructions/bulk.h"

#include <string.h>

#include "emu/formats/layout.h"
#include "emu/formats/numbers.h"
#include "emu/instructions/mbarrier.h"
#include "emu/machine/pool.h"
#include "emu/machine/report.h"
#include "emu/machine/schedule.h"
#include "emu/memory/global.h"
#include "emu/memory/registers.h"
#include "emu/memory/shared.h"

enum { PIECE = 16, BOX_ALIGNMENT = 128 }; /* bytes */

/* ---- loads into shared memory ---------------------------------------------------------------- */

struct part { /* of a load: `bytes` at an offset */
    u32 offset, bytes;
    const u8 *source; /* NULL: zeros */
    u8 kept[PIECE];   /* the values, if they came in registers */
};

struct load {
    struct deferred deferred;
    struct mbarrier *barrier;
    struct cta *cta;
    struct epoch begun;
    bool generic; /* not through the async proxy */
    i64 bytes;
    struct part *parts;
    size_t count, capacity;
};

static void load_effect(struct deferred *deferred) {
    struct load *load = (struct load *)deferred;
    struct epoch done = {load->barrier->slot, load->barrier->phase + 1};
    for (size_t i = 0; i < load->count; i++) {
        const struct part *part = &load->parts[i];
        u8 *to = load->cta->arena + part->offset;
        if (part->source)
            memcpy(to, part->source, part->bytes);
        else if (part->bytes <= PIECE)
            memcpy(to, part->kept, part->bytes);
        emu_shared_write_end(load->cta, part->offset, part->bytes, load->begun, done);
    }
    struct mbarrier *barrier = load->barrier;
    i64 bytes = load->bytes;
    site at = deferred->at;
    emu_pool_free(load->parts);
    emu_pool_free(load);
    emu_mbarrier_bytes(barrier, -bytes, at);
}

/* Begins a load that completes on a barrier; then load_add its parts and load_go. `what` names the
 * instruction. */
static struct load *load_new(struct cta *cta, u32 barrier, const char *what, site at) {
    struct load *load = emu_pool_alloc(sizeof *load);
    load->barrier = emu_mbarrier_at(barrier, false, what, at);
    if (load->barrier->cta != cta)
        emu_fatal(EMU_ILLEGAL, at, 0,
                  "%s: %s into block %d of the cluster {1}, but its mbarrier is in block %d: both "
                  "must be in the same block",
                  emu_thread_name(emu.self), what, cta->rank, load->barrier->cta->rank);
    emu_mbarrier_check_fenced(load->barrier, what, at);
    load->cta = cta;
    load->begun = (struct epoch){load->barrier->slot, load->barrier->phase + 1};
    load->deferred = (struct deferred){load_effect, NULL, emu.self, at};
    return load;
}

static struct part *load_add(struct load *load, u32 offset, u32 bytes, const void *source) {
    site at = load->deferred.at;
    if (load->count == load->capacity) {
        size_t more = load->capacity ? 2 * load->capacity : 16;
        struct part *larger = emu_pool_alloc(more * sizeof *larger);
        if (load->count > 0)
            memcpy(larger, load->parts, load->count * sizeof *larger);
        emu_pool_free(load->parts);
        load->parts = larger;
        load->capacity = more;
    }
    emu_shared_write_begin(load->cta, offset, bytes, !load->generic, load->begun, at);
    struct part *part = &load->parts[load->count++];
    memset(part, 0, sizeof *part);
    part->offset = offset;
    part->bytes = bytes;
    part->source = source;
    load->bytes += bytes;
    return part;
}

static void load_go(struct load *load) {
    if (emu_takes_effect_now())
        load_effect(&load->deferred);
    else
        emu_defer(&load->deferred);
    emu_yield();
}

static void check_bulk(u32 bytes, const void *global, const char *what, site at) {
    if (bytes == 0 || bytes % PIECE != 0)
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: %s of %u bytes, not a multiple of 16 {1}",
                  emu_thread_name(emu.self), what, bytes);
    if ((uintptr_t)global % PIECE != 0)
        emu_fatal(EMU_ALIGNMENT, at, 0,
                  "%s: %s with a global address that is %u past a multiple of 16 {1}",
                  emu_thread_name(emu.self), what, (u32)((uintptr_t)global % PIECE));
}

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EMU_EXPORT void emu_bulk_load(unsigned to, const void *from, unsigned bytes, unsigned barrier) {
    site at = EMU_SITE;
    emu.statistics.instructions++;
    check_bulk(bytes, from, "cp.async.bulk", at);
    struct shared_location location = emu_shared_location(to, bytes, PIECE, "cp.async.bulk", at);
    emu_global_access(from, bytes, EMU_READ, at);
    struct load *load = load_new(location.cta, barrier, "cp.async.bulk", at);
    load_add(load, location.offset, bytes, from);
    load_go(load);
}

/* Moves nothing but is checked like a load. */
EMU_EXPORT void emu_bulk_prefetch(const void *from, unsigned bytes) {
    site at = EMU_SITE;
    emu.statistics.instructions++;
    check_bulk(bytes, from, "cp.async.bulk.prefetch", at);
    emu_global_access(from, bytes, EMU_READ, at);
}

/* ---- tensor loads ---------------------------------------------------------------------------- */

/* An opaque value for createpolicy's result; neither half alone is a policy. */
static const u64 evict_first = 0x12f0000000000001U;

EMU_EXPORT unsigned long long emu_policy_evict_first(void) {
    return evict_first;
}

/* A cache hint changes no result, but it must be a policy or 0 for none. */
static void check_policy(u64 policy, site at) {
    if (policy != 0 && policy != evict_first)
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: cp.async.bulk.tensor: %#llx is not a cache policy {1}",
                  emu_thread_name(emu.self), (unsigned long long)policy);
}

static const struct emu_tensor_map *find_map(const void *map, int rank, const char *what, site at) {
    const struct emu_tensor_map *found = emu_tensor_map_at(map);
    if (!found || found->rank != rank)
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: %s: the operand is not a tensor map of rank %d {1}",
                  emu_thread_name(emu.self), what, rank);
    return found;
}

/* Checks the box's coordinates and address. */
static void check_box(const struct emu_tensor_map *map, const int32_t *coordinates, u32 shared,
                      site at) {
    const char *problem = emu_tensor_problem(map, coordinates, shared);
    if (problem)
        emu_fatal(EMU_ILLEGAL, at, 0, "%s: cp.async.bulk.tensor: %s {1}", emu_thread_name(emu.self),
                  problem);
}

struct walk {
    struct load *load;
    site at;
};

static void add_load_piece(void *context, const struct emu_tensor_piece *piece) {
    const struct walk *walk = context;
    const void *source = (const void *)(uintptr_t)piece->global;
    struct shared_location location =
        emu_shared_location(piece->shared, piece->bytes, 1, "a tensor load", walk->at);
    if (source)
        emu_global_access(source, piece->bytes, EMU_READ, walk->at);
    load_add(walk->load, location.offset, piece->bytes, source);
}

EMU_EXPORT void emu_tensor_load(unsigned to, const void *map, unsigned barrier, int rank, int x,
                                int y, int z, int w, unsigned long long policy) {
    site at = EMU_SITE;
    const int32_t coordinates[EMU_TENSOR_RANK] = {x, y, z, w, 0};
    check_policy(policy, at);
    const struct emu_tensor_map *found = find_map(map, rank, "cp.async.bulk.tensor", at);
    emu.statistics.instructions++;
    struct shared_location location = emu_shared_location(
        to, emu_tensor_box_bytes(found), BOX_ALIGNMENT, "cp.async.bulk.tensor", at);
    check_box(found, coordinates, to, at);
    struct walk walk = {load_new(location.cta, barrier, "cp.async.bulk.tensor", at), at};
    emu_tensor_walk(found, coordinates, to, add_load_piece, &walk);
    load_go(walk.load);
}

/* st.async: four values in registers, to any block of the cluster. */
EMU_EXPORT void emu_cluster_store_async(unsigned to, const unsigned *values, unsigned barrier) {
    site at = EMU_SITE;
    const u32 bytes = 16;
    emu.statistics.instructions++;
    emu_registers_used(emu.self, values, bytes, false, at);
    struct shared_location location = emu_shared_location(to, bytes, bytes, "st.async", at);
    struct load *load = load_new(location.cta, barrier, "st.async", at);
    load->generic = true;
    struct part *part = load_add(load, location.offset, bytes, NULL);
    memcpy(part->kept, values, bytes);
    load_go(load);
}

/* ---- stores to global memory ----------------------------------------------------------------- */

struct store_part {
    struct store_part *next;
    struct cta *cta;
    u32 offset, bytes;
    u8 *to;
    u8 *kept;  /* the source's bytes once they have been read; NULL before */
    int group; /* 0: not committed */
    site at;
};

static void finish_reading(struct thread *thread, struct store_part *part) {
    if (part->kept)
        return;
    struct epoch now = {(u16)thread->number, thread->clock[thread->number]};
    part->kept = emu_pool_alloc(part->bytes);
    memcpy(part->kept, part->cta->arena + part->offset, part->bytes);
    emu_shared_read_end(part->cta, part->offset, part->bytes, now, part->at);
}

static void finish_writing(struct thread *thread, struct store_part *part) {
    finish_reading(thread, part);
    memcpy(part->to, part->kept, part->bytes);
    emu_pool_free(part->kept);
    emu_pool_free(part);
}

static void add_store(struct shared_location from, void *to, u32 bytes, site at) {
    struct thread *self = emu.self;
    struct store_part *part = emu_pool_alloc(sizeof *part), **last = &self->bulk_stores;
    emu_shared_read_begin(from.cta, from.offset, bytes, at);
    emu_global_store_begin(to, bytes, EMU_WRITE, at);
    *part = (struct store_part){
        .cta = from.cta, .offset = from.offset, .bytes = bytes, .to = to, .at = at};
    while (*last)
        last = &(*last)->next;
    *last = part;
}

EMU_EXPORT void emu_bulk_store(void *to, unsigned from, unsigned bytes) {
    site at = EMU_SITE;
    emu.statistics.instructions++;
    check_bulk(bytes, to, "cp.async.bulk to global memory", at);
    add_store(emu_own_location(from, bytes, PIECE, "cp.async.bulk to global memory", at), to, bytes,
              at);
    emu_yield();
}

EMU_EXPORT void emu_tensor_prefetch(const void *map) {
    if (!emu_tensor_map_at(map))
        emu_fatal(EMU_ILLEGAL, EMU_SITE, 0,
                  "%s: prefetch.tensormap: the operand is not a tensor map {1}",
                  emu_thread_name(emu.self));
}

EMU_EXPORT void emu_bulk_commit(void) {
    struct thread *self = emu.self;
    self->bulk_groups++;
    for (struct store_part *part = self->bulk_stores; part; part = part->next)
        if (part->group == 0)
            part->group = self->bulk_groups;
}

EMU_EXPORT void emu_bulk_wait(int pending, int read_only) {
    struct thread *self = emu.self;
    int last = self->bulk_groups - pending;
    emu.statistics.instructions++;
    for (struct store_part **at = &self->bulk_stores; *at;) {
        struct store_part *part = *at;
        bool covered = part->group > 0 && part->group <= last;
        if (covered && read_only)
            finish_reading(self, part);
        if (covered && !read_only) {
            *at = part->next;
            emu_global_store_end(part->to, part->bytes, part->at);
            finish_writing(self, part);
        } else {
            at = &part->next;
        }
    }
    emu_yield();
}

/* Shared memory ends with the block, so its reads must have been waited for; the writes
 * need not. */
void emu_bulk_leave(struct thread *thread) {
    while (thread->bulk_stores) {
        struct store_part *part = thread->bulk_stores;
        if (!part->kept)
            emu_report(EMU_LEFTOVER, part->at, 0,
                       "%s leaves before its bulk store {1} has read shared memory: no "
                       "cp.async.bulk.wait_group covers it",
                       emu_thread_name(thread));
        thread->bulk_stores = part->next;
        finish_writing(thread, part);
    }
}
