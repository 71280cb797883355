//@use common/tensor_map.h
/* Arguments of every micro-kernel; each kernel's head comment gives their meaning. Included by the
 * host program and, by the generator, by the CUDA source. */
struct micro_params {
    struct tensor_map maps[3];
    const void *a, *b;
    void *out;
    int form; /* the wrapper of the family, or the arrangement */
    int count;
    int x, y, z, w; /* a tensor's coordinates */
    int swizzle;    /* bytes: 0, 32, 64, 128 */
    int bytes;
};
