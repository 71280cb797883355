/*
 * A problem placed on the device: inputs uploaded, outputs with guard zones and filled with NaN
 * before each run, so that what a kernel did not write, or should not have written, is seen.
 */
#ifndef SMELT_TOOLS_PLACED_H
#define SMELT_TOOLS_PLACED_H

#include "harness/footprint.h"
#include "harness/problem.h"

struct smelt__output {
    unsigned char *allocation; /* device: guard, tensor, guard */
    size_t bytes;              /* of the tensor, gaps included */
    unsigned char *host;       /* downloaded: the same with its guards; NULL before */
};

struct smelt__placed {
    smelt_context *context;
    const struct smelt__problem *problem;
    smelt_sparse_attn_args args; /* the problem's, with device pointers */
    void *inputs[SMELT__INPUTS]; /* device allocations; NULL for an input that is not given */
    struct smelt__output out, lse, max_logits;
    struct smelt__output workspace; /* the largest asked for so far; its copy is of no use */
    struct smelt__footprint footprints[SMELT__BUFFERS]; /* on the emulator; else empty */
};

/* Uploads; the emulator is told each buffer's name and what of it must not be touched: whoever
 * changes the arguments afterwards may only narrow what they name. The problem must outlive it. On
 * failure everything is released and the status of the failing call returned. */
smelt_status smelt__placed_create(struct smelt__placed *placed, smelt_context *context,
                                  const struct smelt__problem *problem);
void smelt__placed_destroy(struct smelt__placed *placed);

/* Uploads the problem's inputs again, after the caller changed them on the host. */
smelt_status smelt__placed_refresh(struct smelt__placed *placed);

/* Makes the workspace that an operator asks for, between guards, and names it in the arguments. A
 * larger one than before takes the place of that; nothing may be running in it. */
smelt_status smelt__placed_workspace(struct smelt__placed *placed, const smelt_sparse_attn *attn);

/* Fills all outputs and their guards with NaN patterns, and the workspace. */
smelt_status smelt__placed_poison(struct smelt__placed *placed);

/* Copies all outputs to the host; a second call reuses the memory. */
smelt_status smelt__placed_download(struct smelt__placed *placed);

/* Workspace, poison, forward on `stream`, wait, download. Forgets what the emulator reported
 * before. */
smelt_status smelt__placed_run(struct smelt__placed *placed, smelt_sparse_attn *attn,
                               struct CUstream_st *stream);

/* The name of an input whose bytes on the device are no longer the problem's; NULL when there is
 * none, or when *status is not OK. */
const char *smelt__placed_changed_input(const struct smelt__placed *placed, smelt_status *status);

/* The downloaded results of a query and head: dv bf16 values; pointers into the copy. */
const uint16_t *smelt__placed_out(const struct smelt__placed *placed, int64_t query, int head);
float smelt__placed_lse(const struct smelt__placed *placed, int64_t query, int head);
float smelt__placed_max_logit(const struct smelt__placed *placed, int64_t query, int head);

/* Looks at every byte downloaded: 0 when all computed elements are numbers and nothing else was
 * touched; -1 with a message saying where not. Overwrites the downloaded copy. */
int smelt__placed_verify_extent(struct smelt__placed *placed, char *message, size_t size);

#endif
