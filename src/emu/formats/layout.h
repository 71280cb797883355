/*
 * Memory layouts: wgmma's operands in shared memory, the elements of ldmatrix and stmatrix, boxes
 * of tensor maps. Pure functions that access only their arguments.
 *
 * A swizzle is named by its span in bytes: 32, 64 or 128; 0: none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The swizzled address; the function is its own inverse. Exchanges 16-byte pieces within each
 * `span` bytes by XOR of address bits 4.. with bits 7.. (1, 2 or 3 of them). The pattern repeats
 * every 8 * span bytes. */
uint32_t emu_swizzle(uint32_t address, int span);

/* ---- wgmma's operands (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout") ----
 */

/* A or B in shared memory. "Rows" are A's rows (m) or B's columns (n), the dimension
 * other than k. */
struct emu_operand {
    uint32_t address; /* 32-bit shared address of the first element, below 2^18 */
    uint32_t leading; /* leading dimension byte offset */
    uint32_t stride;  /* stride dimension byte offset */
    int base_offset;  /* 0..7, in eighths of a swizzle pattern */
    int swizzle;      /* 0, 32, 64, 128 */
    bool transposed;  /* rows are contiguous ("MN-major"), not k */
    int element_bytes;
    int rows;      /* 64 for A, N for B */
    bool reserved; /* reserved bits of the descriptor are set */
};

void emu_operand_decode(struct emu_operand *operand, uint64_t descriptor, int rows, bool transposed,
                        int element_bytes);

/* Why the instruction rejects this operand; NULL: it does not. */
const char *emu_operand_problem(const struct emu_operand *operand);

/* Shared address of element (row, k). */
uint32_t emu_operand_element(const struct emu_operand *operand, int row, int k);

/* A run of bytes that the instruction reads. */
struct emu_piece {
    uint32_t address; /* multiple of 16 */
    uint32_t bytes;   /* 16 */
};
enum { EMU_OPERAND_PIECES = 512 }; /* of 256 rows at most */

/* The 16-byte pieces that hold rows `first` to `first` + `count` - 1 (multiples of 8); returns
 * their number. */
int emu_operand_pieces(const struct emu_operand *operand, int first, int count,
                       struct emu_piece *pieces);

/* Loads rows `first` to `first` + `count` - 1: rows[i] gets the 32 bytes of its k elements in
 * order. memory[0] is the byte at shared address `base`. */
void emu_operand_load(const struct emu_operand *operand, int first, int count,
                      const uint8_t *memory, uint32_t base, uint8_t (*rows)[32]);

/* ---- ldmatrix, stmatrix (b16 elements) ---- */

/* `count` 8 x 8 matrices (1, 2, 4). rows[8 * i + j] points to the 16 bytes of row j of matrix i,
 * whose address lane 8 * i + j supplies. registers[lane][i] holds the lane's two elements of matrix
 * i (or of its transpose): row lane / 4, columns 2 * (lane % 4) and the next. */
void emu_ldmatrix(uint32_t *const *registers, const uint8_t *const *rows, int count,
                  bool transposed);
void emu_stmatrix(uint8_t *const *rows, const uint32_t *const *registers, int count,
                  bool transposed);

/* ---- tensor maps ---- */

enum { EMU_TENSOR_RANK = 5, EMU_TENSOR_MAGIC = 0x736d746d, EMU_TENSOR_BYTES = 128 };

/* The content of a CUtensorMap's 128 opaque bytes. Dimension 0 is the contiguous one. */
struct emu_tensor_map {
    uint32_t magic;
    uint8_t rank;
    uint8_t type; /* CUtensorMapDataType */
    uint8_t element_bytes;
    uint8_t swizzle; /* span */
    uint64_t address;
    uint64_t dimensions[EMU_TENSOR_RANK];  /* elements */
    uint64_t strides[EMU_TENSOR_RANK - 1]; /* bytes, of dimensions 1.. */
    uint16_t box[EMU_TENSOR_RANK];
    uint8_t steps[EMU_TENSOR_RANK]; /* traversal strides, "elementStrides" */
};

/* cuTensorMapEncodeTiled, with its arguments in its order. False, with the reason in `why`, when
 * the arguments violate its documentation or need a feature that is not emulated (interleaving, NaN
 * fill). `map` has EMU_TENSOR_BYTES and is filled on success only. `strides` is not read for rank
 * 1. */
bool emu_tensor_map_encode(void *map, int type, uint32_t rank, uint64_t address,
                           const uint64_t *dimensions, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *element_strides, int interleave, int swizzle,
                           int promotion, int fill, char *why, size_t why_size);

/* NULL: not a tensor map. */
const struct emu_tensor_map *emu_tensor_map_at(const void *opaque);

/* Bytes of a box: what a load's mbarrier transaction counts. */
uint32_t emu_tensor_box_bytes(const struct emu_tensor_map *map);
/* Bytes from a box's first to its last shared address: more than its own bytes if its rows are
 * narrower than the swizzle's span, since each row begins a new span; the gaps are left alone. */
uint32_t emu_tensor_box_extent(const struct emu_tensor_map *map);

/* Why the instruction rejects a box's coordinates or address; NULL: it does not. */
const char *emu_tensor_problem(const struct emu_tensor_map *map, const int32_t *coordinates,
                               uint32_t shared);

struct emu_tensor_piece {
    uint64_t global; /* 0: outside the tensor: loads read 0, stores are dropped */
    uint32_t shared; /* address, swizzled */
    uint32_t bytes;  /* at most 16, within one aligned 16 bytes of shared memory */
};

/* Visits every byte of a box once, row by row. The coordinates of its first element, dimension 0
 * first, may be outside the tensor; its shared address is `shared`. */
void emu_tensor_walk(const struct emu_tensor_map *map, const int32_t *coordinates, uint32_t shared,
                     void (*visit)(void *context, const struct emu_tensor_piece *piece),
                     void *context);
