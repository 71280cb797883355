//@use common/base.cuh
//@use ptx/shared.cuh
/* A ring of STAGES with barriers: full[s], then empty[s]. */
struct pipe {
    int stage, parity;
};

DEVICE void pipe_advance(struct pipe *pipe) {
    pipe->stage = pipe->stage + 1;
    if (pipe->stage == STAGES) {
        pipe->stage = 0;
        pipe->parity = pipe->parity ^ 1;
    }
}

DEVICE u32 barrier_full(int stage) {
    return shared_address((u32)(BARRIERS_OFFSET + 8 * stage));
}

DEVICE u32 barrier_empty(int stage) {
    return shared_address((u32)(BARRIERS_OFFSET + 8 * (STAGES + stage)));
}
