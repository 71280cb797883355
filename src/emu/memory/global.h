/*
 * Device memory. Each allocation is a page-aligned mapping between unmapped guard zones, so that an
 * overrun hits no other allocation and is noticed. A device pointer is the host address.
 */
#pragma once

#include "emu/machine/machine.h"

/* 0: out of memory. A sparse allocation uses memory as it is touched and is not counted. */
u64 emu_memory_allocate(int device, size_t bytes, bool sparse);
/* The device's total and free memory, at most the machine's, since allocations take their memory at
 * once. */
size_t emu_memory_total(void);
size_t emu_memory_left(void);
int emu_memory_lend(int device, u64 pointer, size_t bytes, const char *name);
void emu_memory_take_back(void);
bool emu_memory_free(u64 pointer);
bool emu_memory_holds(u64 pointer, size_t bytes);
int emu_memory_device(u64 pointer); /* of the memory; -1: not device memory */
void emu_memory_name(u64 pointer, const char *name);
void emu_memory_forbid(u64 pointer, size_t bytes);
void emu_memory_rewritable(u64 pointer, int may);
/* Sets the stream whose operation still uses the allocation (emulator.h); NULL: none. */
void emu_memory_produce(u64 pointer, const void *stream);
/* The host overwrites device memory: forgets its history of accesses. */
void emu_memory_overwritten(u64 pointer, size_t bytes);
/* A memset on a stream begins, inside an allocation. False, with a report, if the range is
 * forbidden or conflicts with a launch that may still run. */
bool emu_memory_fill_begins(u64 pointer, size_t bytes, const void *stream);
/* Kinds of a kernel's accesses. */
enum emu_access {
    EMU_READ,      /* bypassing L1 */
    EMU_CACHED,    /* plain: through L1, which does not see other SMs' writes */
    EMU_READ_ONLY, /* ld.global.nc: of data that is constant during the kernel */
    EMU_WRITE,
    EMU_ATOMIC /* an atomic operation, a reduction, or a hint's read */
};
void emu_global_access(const void *pointer, size_t bytes, enum emu_access access, site at);

/* The same for a bulk store or reduction, which is complete only after its wait. */
void emu_global_store_begin(const void *to, size_t bytes, enum emu_access access, site at);
void emu_global_store_end(const void *to, size_t bytes, site at); /* by the thread that began it */

/* Ends the launch if the address is not a multiple of `bytes`. */
void emu_check_aligned(const void *pointer, size_t bytes, const char *what, site at);
