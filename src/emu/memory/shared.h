/* Shared memory's shadow: each byte's last writer, its readers, and asynchronous operations under
 * way. clock.h defines the order. */
#pragma once

#include "emu/machine/machine.h"

/* A gang begins: marks all bytes as never written. */
void emu_shadow_begin(void);

/* The block and offset of a shared or shared::cluster address; ends the launch if it is out of
 * range or misaligned. `what` names the instruction. */
struct shared_location {
    struct cta *cta;
    u32 offset;
};
struct shared_location emu_shared_location(u32 address, u32 bytes, u32 alignment, const char *what,
                                           site at);
/* The same for .shared::cta instructions, which reach the thread's own block only. */
struct shared_location emu_own_location(u32 address, u32 bytes, u32 alignment, const char *what,
                                        site at);
/* "LATENT + 1040 (shared address 0x...)"; rotating buffers. */
const char *emu_shared_name(const struct cta *cta, u32 offset);

/* Plain accesses (generic proxy) of the running thread. */
void emu_shared_read(struct cta *cta, u32 offset, u32 bytes, site at);
void emu_shared_write(struct cta *cta, u32 offset, u32 bytes, site at);
/* An atomic operation: reads and writes, and may race with other atomic operations. */
void emu_shared_atomic(struct cta *cta, u32 offset, u32 bytes, site at);
/* An asynchronous write by the running thread begins: the bytes may not be touched until it ends.
 * async_proxy: earlier generic writes must have been fenced. `done`: when it counts as complete. */
void emu_shared_write_begin(struct cta *cta, u32 offset, u32 bytes, bool async_proxy,
                            struct epoch done, site at);
/* `begun`: the `done` of the matching emu_shared_write_begin. */
void emu_shared_write_end(struct cta *cta, u32 offset, u32 bytes, struct epoch begun,
                          struct epoch done);
/* An asynchronous read, through the async proxy, by the running thread. */
void emu_shared_read_begin(struct cta *cta, u32 offset, u32 bytes, site at);
void emu_shared_read_end(struct cta *cta, u32 offset, u32 bytes, struct epoch done, site at);
