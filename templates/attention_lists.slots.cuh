//@use common/base.cuh
//@use common/lanes.cuh
//@use ptx/stream.cuh
/*
 * Reads index rows in slot order with one warp, LOADS * 32 * VECTOR slots in flight. A row may
 * start at any multiple of 4 bytes: slots before its first and after its last multiple of 16 bytes
 * are read one by one.
 */

enum { VECTOR = 4 /* slots of 16 bytes */, MASKED = -1 };

/* A row split at multiples of 16 bytes: `head` slots before the first, then `vectors` vectors. */
struct row_parts {
    int head, vectors;
};

DEVICE struct row_parts cut_row(const int *row, int slots) {
    const int past = (int)((u64)row / sizeof(int) % VECTOR);
    struct row_parts parts;
    parts.head = minimum((VECTOR - past) % VECTOR, slots);
    parts.vectors = (slots - parts.head) / VECTOR;
    return parts;
}

/* The state of a walk along a row, the same in all lanes. */
struct walk {
    int *keys;     /* destination of the valid slots' keys; null: only count them */
    u32 rows;      /* valid indices are below; as u32, negative ones are large */
    int first_key; /* of row 0 of the batch */
    int most;      /* valid slots to take at most */
    int count;     /* valid slots so far, taken or not */
    int end;       /* without `keys`, of this lane: 1 + its last slot that is taken */
};

DEVICE void take_slot(struct walk *walk, u32 index, int place, int slot) {
    if (index >= walk->rows || place >= walk->most) {
        return;
    }
    if (walk->keys) {
        walk->keys[place] = walk->first_key + (int)index;
    } else {
        walk->end = slot + 1;
    }
}

/* Takes one vector per lane, neighbouring lanes' vectors adjacent; this lane's starts at `slot`. */
DEVICE void take_vectors(struct walk *walk, const u32 *indices, int slot) {
    const u32 before = (1u << threadIdx.x % 32) - 1u;
    int place = walk->count, valid = 0;
#pragma unroll
    for (int k = 0; k < VECTOR; ++k) {
        const u32 votes = __ballot_sync((u32)ALL_LANES, indices[k] < walk->rows);
        place += __popc(votes & before);
        valid += __popc(votes);
    }
    walk->count += valid;
    if (walk->keys && valid == 32 * VECTOR && place % VECTOR == 0 && walk->count <= walk->most) {
        const int4 keys = {walk->first_key + (int)indices[0], walk->first_key + (int)indices[1],
                           walk->first_key + (int)indices[2], walk->first_key + (int)indices[3]};
        *(int4 *)(walk->keys + place) = keys;
        return;
    }
#pragma unroll
    for (int k = 0; k < VECTOR; ++k) {
        take_slot(walk, indices[k], place, slot + k);
        place += indices[k] < walk->rows;
    }
}

/* Takes at most VECTOR slots, one per lane. */
DEVICE void take_few(struct walk *walk, const int *row, int slot, int slots) {
    const int lane = (int)threadIdx.x % 32;
    const u32 index = lane < slots ? (u32)row[slot + lane] : (u32)MASKED;
    const u32 votes = __ballot_sync((u32)ALL_LANES, index < walk->rows);
    take_slot(walk, index, walk->count + __popc(votes & ((1u << lane) - 1u)), slot + lane);
    walk->count += __popc(votes);
}

/* Walks a row to its end, or until `most` slots are taken. */
DEVICE void walk_row(struct walk *walk, const int *row, int slots) {
    const int lane = (int)threadIdx.x % 32;
    const struct row_parts parts = cut_row(row, slots);
    take_few(walk, row, 0, parts.head);
    for (int begin = 0; begin < parts.vectors && walk->count < walk->most; begin += 32 * LOADS) {
        u32 indices[LOADS][VECTOR];
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int vector = begin + i * 32 + lane;
            indices[i][0] = indices[i][1] = indices[i][2] = indices[i][3] = (u32)MASKED;
            if (vector < parts.vectors) {
                load_streaming_16(indices[i], row + parts.head + vector * VECTOR);
            }
        }
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            take_vectors(walk, indices[i], parts.head + (begin + i * 32 + lane) * VECTOR);
        }
    }
    const int tail = parts.head + parts.vectors * VECTOR;
    take_few(walk, row, tail, slots - tail);
}
