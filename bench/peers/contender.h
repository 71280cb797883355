/*
 * What bench/peers times and checks: a library's forward pass, behind one struct of functions. Each
 * contender is a shared object of its own, opened by name, so that two builds of smelt, an older
 * one and a newer, can stand beside each other. This file changes seldom: a checkout's contender
 * must work with the program of another.
 */
#ifndef PEERS_CONTENDER_H
#define PEERS_CONTENDER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

enum { CONTENDER_VERSION = 1 };

/* What an operator is made for. */
struct contender_shape {
    int heads, dqk, dv, topk;
    int sink; /* 1: calls have one */
};

/* One call's tensors, device memory; strides in elements, last dimension contiguous. */
struct contender_call {
    int64_t queries, rows;
    int heads, dqk, dv, topk; /* the shape's */
    float scale;
    const void *q; /* [queries,heads,dqk] bf16 */
    int64_t q_token_stride, q_head_stride;
    const void *kv; /* [rows,dqk] bf16 */
    int64_t kv_row_stride;
    const int32_t *indices; /* [queries,topk]; a slot outside 0..rows-1 is masked */
    int64_t indices_token_stride;
    const int32_t *topk_length; /* [queries] or NULL: slots from there on are masked */
    const float *sink;          /* [heads], exactly when the shape has one */
    void *out;                  /* [queries,heads,dv] bf16, packed, as are the others */
    float *lse, *max_logits;    /* [queries,heads] */
};

struct contender {
    int version;       /* CONTENDER_VERSION */
    int heads_unit;    /* callers pad heads to a multiple of it */
    int topk_unit;     /* and topk */
    int empty_lse_inf; /* lse of a query without a valid slot: 1: +inf, 0: -inf */

    /* Makes what launches this shape; `options`: the contender's own ("" for none). The device is
     * the first one, its primary CUDA context. Threads may call it at the same time. On failure
     * returns -1 and a message. */
    int (*open)(void **operation, const struct contender_shape *shape, const char *options,
                char *message, size_t message_bytes);
    /* Bytes of device memory that a call needs, 0 for none. */
    size_t (*workspace)(void *operation, const struct contender_call *call);
    /* Launches on the stream and returns without waiting; -1 with a message on failure. The
     * device's primary context is current. */
    int (*launch)(void *operation, const struct contender_call *call, void *workspace,
                  size_t workspace_bytes, struct CUstream_st *stream, char *message,
                  size_t message_bytes);
    void (*close)(void *operation);
};

/* The one symbol that a contender exports. */
#define CONTENDER_SYMBOL "peers_contender"
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
extern const struct contender peers_contender;

#ifdef __cplusplus
}
#endif

#endif
