/* templates/ptx/tensor.cuh, emulated. */

/* `rank` coordinates count; the map must be of that rank. */
void emu_tensor_load(unsigned to, const void *map, unsigned barrier, int rank, int x, int y, int z,
                     int w, unsigned long long policy);
void emu_tensor_prefetch(const void *map);

#define tensor_prefetch(map) emu_tensor_prefetch(map)
#define tensor_load_2d(to, map, barrier, x, y) emu_tensor_load(to, map, barrier, 2, x, y, 0, 0, 0)
#define tensor_load_3d_hint(to, map, barrier, x, y, z, policy)                                     \
    emu_tensor_load(to, map, barrier, 3, x, y, z, 0, policy)
#define tensor_load_4d_hint(to, map, barrier, x, y, z, w, policy)                                  \
    emu_tensor_load(to, map, barrier, 4, x, y, z, w, policy)
#define tensor_load_4d(to, map, barrier, x, y, z, w)                                               \
    emu_tensor_load(to, map, barrier, 4, x, y, z, w, 0)
