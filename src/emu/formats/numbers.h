/*
 * The GPU's arithmetic on the CPU: conversions, approximate functions and matrix products. Pure
 * functions without state. They expect default rounding (to nearest) and no flushing of subnormals.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* ---- conversions (PTX ISA, "cvt") ---- */

float emu_float_from_bf16(uint16_t bits);
/* Round to nearest even; NaN becomes 0x7fff; above the largest finite value: infinity. */
uint16_t emu_bf16_from_float(float value);
/* cvt.rn.bf16x2.f32: `low` in the lower half. */
uint32_t emu_bf16x2(float low, float high);

float emu_float_from_e4m3(uint8_t bits);
/* Round to nearest even, saturating at 448; NaN becomes 0x7f. */
uint8_t emu_e4m3_from_float(float value);
/* cvt.rn.satfinite.e4m3x2.f32: `low` in the lower byte. */
uint16_t emu_e4m3x2(float low, float high);

/* Subnormals become zero with their sign (.ftz). */
float emu_flush(float value);

/* ---- approximate functions ---- */

/* ex2.approx.ftz.f32. The nearest value; the device is within 2 ulp. */
float emu_exp2(float x);
/* lg2.approx.f32, without ftz: subnormals count. The nearest value. */
float emu_log2(float x);
/* lg2.approx.ftz.f32 */
float emu_log2_flushing(float x);

/* ---- matrix products ---- */

enum emu_element { EMU_BF16 = 0, EMU_E4M3 = 1 };

/* d += a * b for one warp (PTX ISA, mma.m16n8k16 with bf16, mma.m16n8k32 with e4m3 operands; fp32
 * accumulators). Lane i's registers are a[i] (4), b[i] (2) and d[i] (4). numbers.c states how sums
 * are rounded. */
void emu_mma(float *const *d, enum emu_element element, const uint32_t *const *a,
             const uint32_t *const *b);

enum {
    EMU_DEPTH_BYTES = 32,    /* k extent of a wgmma: 16 bf16 or 32 e4m3 */
    EMU_QUARTER_ROWS = 16,   /* rows of A of one of the four warps */
    EMU_WGMMA_COLUMNS = 256, /* at most */
};

/* One warp's rows of A from its lanes' registers a[lane][0..3] (PTX ISA, wgmma, "Register
 * Fragments"): rows[m] gets row m's k elements in order. */
void emu_wgmma_a_registers(const uint32_t *const *a, enum emu_element element,
                           uint8_t (*rows)[EMU_DEPTH_BYTES]);

/* One warp's quarter of a wgmma m64nNk16 (bf16) or m64nNk32 (e4m3): d += a * b, or without
 * `accumulate` d = a * b, where d is not read. `a`: 16 rows; `b`: `columns` columns, each as its k
 * elements in order (as emu_operand_load gives them). d[lane][0 .. columns / 2 - 1] is the ISA's
 * accumulator fragment: row lane / 4 (+ 8 in every second pair), columns 8 * (i / 4) + 2 * (lane %
 * 4) + i % 2. */
void emu_wgmma_quarter(float *const *d, int columns, enum emu_element element, bool accumulate,
                       const uint8_t (*a)[EMU_DEPTH_BYTES], const uint8_t (*b)[EMU_DEPTH_BYTES]);
