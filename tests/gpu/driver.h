/* The suite's own driver calls: graphs and the current context. */
#pragma once

#include <stddef.h>

struct CUctx_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUstream_st;

/* Return 0, or the driver's error code. */
struct driver {
    void *library;
    int (*ctx_get_current)(struct CUctx_st **context);
    int (*ctx_set_current)(struct CUctx_st *context);
    int (*stream_get_ctx)(struct CUstream_st *stream, struct CUctx_st **context);
    int (*stream_begin_capture)(struct CUstream_st *stream, int mode);
    int (*stream_end_capture)(struct CUstream_st *stream, struct CUgraph_st **graph);
    int (*graph_instantiate)(struct CUgraphExec_st **executable, struct CUgraph_st *graph,
                             unsigned long long flags);
    int (*graph_launch)(struct CUgraphExec_st *executable, struct CUstream_st *stream);
    int (*graph_exec_destroy)(struct CUgraphExec_st *executable);
    int (*graph_destroy)(struct CUgraph_st *graph);
    int (*copy_async)(unsigned long long to, unsigned long long from, size_t bytes,
                      struct CUstream_st *stream);
};

/* 0, or -1 with the missing function in `message`. */
int driver_open(struct driver *driver, char *message, size_t size);
void driver_close(struct driver *driver);
