//@use common/tensor_map.h
/* Arguments of every micro-kernel; what each means there says the kernel's head comment. Included
 * by the host program and, by the generator, by the CUDA source. */
struct micro_params {
    struct tensor_map maps[3];
    const void *a, *b;
    void *out;
    int form; /* which wrapper of the family, or which arrangement */
    int count;
    int x, y, z, w; /* a tensor's coordinates */
    int swizzle;    /* bytes: 0, 32, 64, 128 */
    int bytes;
};
