//@use micro/params.h
//@use ptx/ldmatrix.cuh
//@use ptx/ldmatrix_x2.cuh
//@use ptx/mma.cuh
//@use ptx/mma_fp8.cuh
//@use ptx/stmatrix.cuh
/*
 * Registers of one warp's lanes. ldmatrix: a: the shared memory before, 128 words; b: each lane's
 * 16-byte row of it; out: each lane's registers. stmatrix: a: each lane's four registers; b as
 * before; out: the shared memory after. mma: `count` products; a: the registers of A and B (128 and
 * 64 words each); b: the accumulators before.
 *
 * Shared memory: TILE, 512 bytes.
 */

enum {
    LOAD_X4 = 0,
    LOAD_X4_TRANS = 1,
    LOAD_X2_TRANS = 2,
    STORE_X4 = 3,
    STORE_X4_TRANS = 4,
    STORE_X2_TRANS = 5,
    MMA = 6,
    MMA_E4M3 = 7,

    TILE_WORDS = 128,
    A_WORDS = 128, /* of one product */
    B_WORDS = 64,
    D_WORDS = 128
};

DEVICE void load(const struct micro_params *params, u32 address, u32 *registers) {
    if (params->form == LOAD_X4) {
        ldmatrix_x4(registers, address);
    } else if (params->form == LOAD_X4_TRANS) {
        ldmatrix_x4_trans(registers, address);
    } else {
        ldmatrix_x2_trans(registers, address);
    }
}

DEVICE void store(const struct micro_params *params, u32 address, const u32 *registers) {
    if (params->form == STORE_X4) {
        stmatrix_x4(address, registers);
    } else if (params->form == STORE_X4_TRANS) {
        stmatrix_x4_trans(address, registers);
    } else {
        stmatrix_x2_trans(address, registers);
    }
}

DEVICE void move_matrices(const struct micro_params *params, int lane) {
    const u32 *const in = (const u32 *)params->a;
    const int *const rows = (const int *)params->b;
    u32 *const out = (u32 *)params->out;
    u32 *const tile = (u32 *)(arena + TILE_OFFSET);
    const u32 address = shared_address((u32)(TILE_OFFSET + 16 * rows[lane]));
    const bool loads = params->form <= LOAD_X2_TRANS;
    u32 registers[4] = {0, 0, 0, 0};
    for (int i = lane; i < TILE_WORDS; i += 32) {
        tile[i] = loads ? in[i] : 0xeeeeeeeeu;
    }
    __syncwarp(0xffffffffu);
    if (loads) {
        load(params, address, registers);
        for (int i = 0; i < 4; ++i) {
            out[4 * lane + i] = registers[i];
        }
    } else {
        for (int i = 0; i < 4; ++i) {
            registers[i] = in[4 * lane + i];
        }
        store(params, address, registers);
        __syncwarp(0xffffffffu);
        for (int i = lane; i < TILE_WORDS; i += 32) {
            out[i] = tile[i];
        }
    }
}

DEVICE void multiply(const struct micro_params *params, int lane) {
    for (int i = 0; i < params->count; ++i) {
        const u32 *const a = (const u32 *)params->a + i * (A_WORDS + B_WORDS);
        const float *const before = (const float *)params->b + i * D_WORDS;
        float *const after = (float *)params->out + i * D_WORDS;
        u32 a_registers[4], b_registers[2];
        float d[4];
        for (int j = 0; j < 4; ++j) {
            a_registers[j] = a[4 * lane + j];
            d[j] = before[4 * lane + j];
        }
        for (int j = 0; j < 2; ++j) {
            b_registers[j] = a[A_WORDS + 2 * lane + j];
        }
        if (params->form == MMA_E4M3) {
            mma_m16n8k32_e4m3(d, a_registers, b_registers);
        } else {
            mma_m16n8k16_bf16(d, a_registers, b_registers);
        }
        for (int j = 0; j < 4; ++j) {
            after[4 * lane + j] = d[j];
        }
    }
}

KERNEL void KERNEL_NAME(const __grid_constant__ struct micro_params params) {
    const int lane = (int)threadIdx.x;
    if (params.form >= MMA) {
        multiply(&params, lane);
    } else {
        move_matrices(&params, lane);
    }
}
