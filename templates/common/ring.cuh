//@use common/base.cuh

/* A position in a ring of stages or buffers, and the parity of the mbarrier phase that completes
 * its current use: the first use completes phase 0. */
struct ring_place {
    int index;
    int parity;
};

DEVICE void ring_advance(struct ring_place *place, int size) {
    if (++place->index == size) {
        place->index = 0;
        place->parity ^= 1;
    }
}
