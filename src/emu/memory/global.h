/*
 * Device memory: one mapping an allocation, page-aligned inside guard zones of address space that
 * nothing is mapped to, so that an overrun neither hits another allocation nor goes unseen. A
 * device pointer is the host address.
 */
#ifndef SMELT_EMU_GLOBAL_H
#define SMELT_EMU_GLOBAL_H

#include "emu/machine/machine.h"

/* 0: there is no room for it. One that is sparse takes room as it is used, and is not counted. */
u64 emu_memory_allocate(int device, size_t bytes, bool sparse);
/* What the device has, and how much of that nobody holds: no more than the machine has, since
 * allocations take their memory at once. */
size_t emu_memory_total(void);
size_t emu_memory_left(void);
int emu_memory_lend(int device, u64 pointer, size_t bytes, const char *name);
void emu_memory_take_back(void);
bool emu_memory_free(u64 pointer);
bool emu_memory_holds(u64 pointer, size_t bytes);
int emu_memory_device(u64 pointer); /* that the memory belongs to; -1: it is no device memory */
void emu_memory_name(u64 pointer, const char *name);
void emu_memory_forbid(u64 pointer, size_t bytes);
void emu_memory_rewritable(u64 pointer, int may);
/* Sets the stream whose operation still uses the allocation (emulator.h); NULL: none. */
void emu_memory_produce(u64 pointer, const void *stream);
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
    EMU_ATOMIC /* a reduction or another atomic operation, or a hint's read */
};
void emu_global_access(const void *pointer, size_t bytes, enum emu_access access, site at);

/* The same for a bulk store or reduction, which is complete for whoever comes after its wait alone.
 */
void emu_global_store_begin(const void *to, size_t bytes, enum emu_access access, site at);
void emu_global_store_end(const void *to, size_t bytes, site at); /* by the thread that began it */

/* An address that is no multiple of `bytes` ends the thread. */
void emu_check_aligned(const void *pointer, size_t bytes, const char *what, site at);

#endif
