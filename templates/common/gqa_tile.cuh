//@use common/base.cuh
//@use common/fragments.cuh
//@use common/tile.cuh
//@use ptx/cp_async.cuh
//@use ptx/ldmatrix.cuh
//@use ptx/math.cuh
//@use ptx/mma.cuh
/*
 * Products of a group's heads and a block's keys with mma.sync, for kernels in which a warp has one m16
 * tile of heads and some of the keys, and keeps its sums over keys in registers. A lane has rows
 * lane / 4 and lane / 4 + 8 of the m16 tile.
 */

/* This warp's part: warps are ROW_TILES x KEY_GROUPS. */
struct place {
    int row; /* first, of BLOCK_ROWS */
    int key; /* first, of a block */
    int group;
};

DEVICE struct place find_place(void) {
    const int warp = (int)threadIdx.x / 32;
    const struct place place = {warp % ROW_TILES * 16, warp / ROW_TILES * (BLOCK_KEYS / KEY_GROUPS),
                                warp / ROW_TILES};
    return place;
}

/* Starts the copy of a group's heads, rows of `chunks` of 16 bytes; padded ones become zeros. */
DEVICE void load_heads(u32 tile, const char *heads, i64 head_bytes, int chunks, int pitch) {
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < BLOCK_ROWS * chunks; i += THREADS) {
        const int row = i / chunks, chunk = i % chunks;
        const bool present = row < GROUP_HEADS;
        cp_async_16(tile + tile_chunk(row, chunk, pitch),
                    present ? heads + row * head_bytes + chunk * CHUNK_BYTES : heads,
                    present ? CHUNK_BYTES : 0);
    }
}

/* s = A B^T: 16 rows of a tile, from `rows` (rows_first) on, by `tiles` n8 tiles of keys, from `keys`
 * (columns_first) on; `steps` k-steps, both tiles of one pitch. */
DEVICE void multiply_keys(float *s, u32 rows, u32 keys, int tiles, int steps, int pitch) {
    clear(s, tiles * 4);
#pragma unroll 4
    for (int step = 0; step < steps; ++step) {
        u32 a[4];
        ldmatrix_x4(a, tile_advance(rows, step * 32));
#pragma unroll
        for (int n = 0; n < tiles / 2; ++n) {
            u32 b[4];
            ldmatrix_x4(b, tile_advance(keys, step * 32) + (u32)(n * 16 * pitch));
            mma_m16n8k16_bf16(&s[n * 8], a, &b[0]);
            mma_m16n8k16_bf16(&s[n * 8 + 4], a, &b[2]);
        }
    }
}

/* o += P V: P from accumulators of `tiles` n8 tiles of keys, V from `values` (rows_first) on, `columns`
 * n8 tiles wide. */
DEVICE void accumulate_values(float *o, const float *p, u32 values, int tiles, int columns,
                              int pitch) {
#pragma unroll
    for (int step = 0; step < tiles / 2; ++step) {
        u32 a[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            a[i] = pack_bf16x2(p[step * 8 + i * 2], p[step * 8 + i * 2 + 1]);
        }
#pragma unroll
        for (int n = 0; n < columns / 2; ++n) {
            u32 b[4];
            ldmatrix_x4_trans(b, tile_advance(values, n * 32) + (u32)(step * 16 * pitch));
            mma_m16n8k16_bf16(&o[n * 8], a, &b[0]);
            mma_m16n8k16_bf16(&o[n * 8 + 4], a, &b[2]);
        }
    }
}

/* Adds the warps' accumulators, `columns` n8 tiles wide, to `sums`, rows of columns * 8 floats: group
 * after group, so that the order of the sum is fixed. By the whole CTA; ends in a barrier. */
DEVICE void add_groups(float *sums, const float *o, const struct place *place, int columns) {
    const int lane = (int)threadIdx.x % 32;
    float *const own = sums + (place->row + lane / 4) * columns * 8 + lane % 4 * 2;
#pragma unroll 1
    for (int group = 0; group < KEY_GROUPS; ++group) {
        if (group == place->group) {
#pragma unroll
            for (int i = 0; i < columns * 2; ++i) {
                float2 *const to = (float2 *)&own[i % 2 * 8 * columns * 8 + i / 2 * 8];
                float2 sum = {o[i * 2], o[i * 2 + 1]};
                if (group > 0) {
                    sum.x += to->x;
                    sum.y += to->y;
                }
                *to = sum;
            }
        }
        __syncthreads();
    }
}

/* Eight sums times a factor, as bf16. */
DEVICE uint4 pack_sums(const float *sums, float factor) {
    const uint4 values = {pack_bf16x2(sums[0] * factor, sums[1] * factor),
                          pack_bf16x2(sums[2] * factor, sums[3] * factor),
                          pack_bf16x2(sums[4] * factor, sums[5] * factor),
                          pack_bf16x2(sums[6] * factor, sums[7] * factor)};
    return values;
}
