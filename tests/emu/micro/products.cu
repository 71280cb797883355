//@use micro/params.h
//@use ptx/proxy.cuh
//@use ptx/shared.cuh
//@use ptx/wgmma_fp8_ss.cuh n = N
//@use ptx/wgmma_rs.cuh n = N, tb = 0
//@use ptx/wgmma_rs.cuh n = N, tb = 1
//@use ptx/wgmma_rs_tile.cuh n = N, tb = 0
//@use ptx/wgmma_rs_tile.cuh n = N, tb = 1
//@use ptx/wgmma_ss.cuh n = N, ta = 0, tb = 0
//@use ptx/wgmma_ss.cuh n = N, ta = 0, tb = 1
//@use ptx/wgmma_ss.cuh n = N, ta = 1, tb = 0
//@use ptx/wgmma_ss.cuh n = N, ta = 1, tb = 1
//@use ptx/wgmma_ss_tile.cuh n = N, ta = 0, tb = 0
//@use ptx/wgmma_ss_tile.cuh n = N, ta = 0, tb = 1
//@use ptx/wgmma_ss_tile.cuh n = N, ta = 1, tb = 0
//@use ptx/wgmma_ss_tile.cuh n = N, ta = 1, tb = 1
/*
 * D [64][N] = A B^T by one warpgroup: four instructions of 32 bytes of depth (64 bf16 or 128 e4m3
 * values in total), in a group each or in one statement. a: A [64][depth]; b: B [N][depth], both
 * plain. The kernel writes them to shared memory element by element, transposed or not and with any
 * swizzle. `count`: 0: the first instruction ignores D's contents; 1: it adds to D's initial values
 * 0, 1, 2...
 *
 * Shared memory: A, 8192 bytes; B, 128 * N, N rounded up to 64.
 */

enum {
    SS_00 = 0, /* A not transposed, B not transposed */
    SS_01 = 1,
    SS_10 = 2,
    SS_11 = 3,
    RS_00 = 4,
    RS_01 = 5,
    FP8_SS = 6,
    SS_TILE_00 = 7, /* the four in one statement */
    SS_TILE_01 = 8,
    SS_TILE_10 = 9,
    SS_TILE_11 = 10,
    RS_TILE_00 = 11,
    RS_TILE_01 = 12,

    ROWS = 64,
    DEPTH_BYTES = 128, /* bytes of a row of A or B */
    STEP_BYTES = 32,
    STEPS = DEPTH_BYTES / STEP_BYTES,
    THREADS = 128
};

DEVICE bool is_a_transposed(int form) {
    return form == SS_10 || form == SS_11 || form == SS_TILE_10 || form == SS_TILE_11;
}

DEVICE bool is_b_transposed(int form) {
    return form == SS_01 || form == SS_11 || form == RS_01 || form == SS_TILE_01 ||
           form == SS_TILE_11 || form == RS_TILE_01;
}

/* An operand's layout in shared memory: blocks of `lines` lines of `span` bytes; a line has `span`
 * bytes of one row or, transposed, of one column. */
struct arrangement {
    int offset; /* in the arena */
    int rows, transposed, swizzle, element_bytes;
    int span, lines;
};

DEVICE struct arrangement arrange(int offset, int rows, int transposed, int swizzle,
                                  int element_bytes) {
    struct arrangement result;
    result.offset = offset;
    result.rows = rows;
    result.transposed = transposed;
    result.swizzle = swizzle;
    result.element_bytes = element_bytes;
    result.span = swizzle ? swizzle : 16;
    result.lines = transposed ? DEPTH_BYTES / element_bytes : rows;
    return result;
}

/* Offset of an element's first byte. */
DEVICE u32 element_place(const struct arrangement *it, int row, int depth) {
    const int line = it->transposed ? depth : row;
    const int byte = (it->transposed ? row : depth) * it->element_bytes;
    const u32 place = (u32)((byte / it->span * it->lines + line) * it->span + byte % it->span);
    const u32 exchanged = it->swizzle ? (place >> 7) & (u32)(it->swizzle / 16 - 1) : 0;
    return (u32)it->offset + (place ^ (exchanged << 4));
}

/* The operand's descriptor at its k-step `step`. */
DEVICE u64 step_descriptor(const struct arrangement *it, int step) {
    const int group = 8 * it->span, block = it->lines * it->span;
    const int byte = step * STEP_BYTES;
    const int advance = it->transposed ? byte / it->element_bytes * it->span
                                       : byte / it->span * block + byte % it->span;
    const bool exchanged = it->transposed && it->swizzle == 0;
    return shared_descriptor(shared_address((u32)(it->offset + advance)),
                             (u32)(exchanged ? group : block), (u32)(exchanged ? block : group),
                             it->swizzle);
}

DEVICE void lay_out(const struct arrangement *it, const void *from) {
    const unsigned char *const bytes = (const unsigned char *)from;
    const int depth = DEPTH_BYTES / it->element_bytes;
    for (int i = (int)threadIdx.x; i < it->rows * depth; i += THREADS) {
        const u32 place = element_place(it, i / depth, i % depth);
        for (int j = 0; j < it->element_bytes; ++j) {
            arena[place + (u32)j] = bytes[i * it->element_bytes + j];
        }
    }
}

/* A's registers of k-step `step`, from the plain [64][depth]. */
DEVICE void load_fragment(u32 *registers, const void *a, int step) {
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
    for (int i = 0; i < 4; ++i) {
        const int byte = step * STEP_BYTES + lane % 4 * 4 + i / 2 * 16;
        registers[i] = ((const u32 *)a)[((row + i % 2 * 8) * DEPTH_BYTES + byte) / 4];
    }
}

// clang-format off
//@for n in N..N + 1
DEVICE void multiply(float *d, int form, const u32 *fragment, u64 a, u64 b, int accumulate) {
    if (form == SS_00) {
        wgmma_ss_n${n}_t00(d, a, b, accumulate);
    } else if (form == SS_01) {
        wgmma_ss_n${n}_t01(d, a, b, accumulate);
    } else if (form == SS_10) {
        wgmma_ss_n${n}_t10(d, a, b, accumulate);
    } else if (form == SS_11) {
        wgmma_ss_n${n}_t11(d, a, b, accumulate);
    } else if (form == RS_00) {
        wgmma_rs_n${n}_t00(d, fragment, b, accumulate);
    } else if (form == RS_01) {
        wgmma_rs_n${n}_t01(d, fragment, b, accumulate);
    } else {
        wgmma_fp8_ss_n${n}(d, a, b, accumulate);
    }
}

DEVICE void multiply_tile(float *d, int form, const u32 *fragments, u64 a, u64 b, int accumulate) {
    if (form == SS_TILE_00) {
        wgmma_ss_tile_n${n}_t00(d, a, b, accumulate);
    } else if (form == SS_TILE_01) {
        wgmma_ss_tile_n${n}_t01(d, a, b, accumulate);
    } else if (form == SS_TILE_10) {
        wgmma_ss_tile_n${n}_t10(d, a, b, accumulate);
    } else if (form == SS_TILE_11) {
        wgmma_ss_tile_n${n}_t11(d, a, b, accumulate);
    } else if (form == RS_TILE_00) {
        wgmma_rs_tile_n${n}_t00(d, fragments, b, accumulate);
    } else {
        wgmma_rs_tile_n${n}_t01(d, fragments, b, accumulate);
    }
}
//@end
// clang-format on

DEVICE void store_result(float *out, const float *d) {
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
        out[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
    }
}

KERNEL void __launch_bounds__(128, 1)
    KERNEL_NAME(const __grid_constant__ struct micro_params params) {
    const int form = params.form, element_bytes = form == FP8_SS ? 1 : 2;
    const struct arrangement a =
        arrange(A_OFFSET, ROWS, is_a_transposed(form), params.swizzle, element_bytes);
    const struct arrangement b =
        arrange(B_OFFSET, N, is_b_transposed(form), params.swizzle, element_bytes);
    float d[N / 2];
    u32 fragments[STEPS * 4];
    lay_out(&a, params.a);
    lay_out(&b, params.b);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
        d[i] = params.count ? (float)i : 1e30f;
    }
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        load_fragment(&fragments[4 * step], params.a, step);
    }
    fence_proxy_async();
    __syncthreads();
    wgmma_fence();
    if (form >= SS_TILE_00) {
        multiply_tile(d, form, fragments, step_descriptor(&a, 0), step_descriptor(&b, 0),
                      params.count);
        wgmma_commit();
    } else {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            multiply(d, form, &fragments[4 * step], step_descriptor(&a, step),
                     step_descriptor(&b, step), params.count || step > 0);
            wgmma_commit();
        }
    }
    wgmma_wait(3);
    wgmma_wait(2);
    wgmma_wait(1);
    wgmma_wait(0);
    store_result((float *)params.out, d);
}
