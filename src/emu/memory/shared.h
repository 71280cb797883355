/* Shared memory's shadow: who wrote and read each byte when, and what is under way. clock.h has the
 * order that is kept. */
#ifndef SMELT_EMU_SHARED_H
#define SMELT_EMU_SHARED_H

#include "emu/machine/machine.h"

/* A gang begins: all its bytes as nobody wrote them. */
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

#endif
