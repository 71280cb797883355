#include "emu/formats/layout.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    PIECE = 16,       /* bytes: unit of a swizzle, and a row of a core matrix */
    CORE_ROWS = 8,    /* rows of a core matrix; k extent of a transposed one */
    DEPTH_BYTES = 32, /* k extent of a wgmma in bytes */
    ROW_BITS = 7,     /* log2 of the bytes after which a swizzle's XOR changes */
};

uint32_t emu_swizzle(uint32_t address, int span) {
    uint32_t mask = span > PIECE ? (uint32_t)span / PIECE - 1 : 0;
    return address ^ (address >> ROW_BITS & mask) * PIECE;
}

/* ---- wgmma's operands ---- */

void emu_operand_decode(struct emu_operand *operand, uint64_t descriptor, int rows, bool transposed,
                        int element_bytes) {
    static const int spans[] = {0, 128, 64, 32};
    const uint64_t reserved = UINT64_C(0x3ff1c000c000c000);
    *operand = (struct emu_operand){
        .address = (uint32_t)(descriptor & 0x3fff) << 4,
        .leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4,
        .stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4,
        .base_offset = (int)(descriptor >> 49 & 7),
        .swizzle = spans[descriptor >> 62],
        .transposed = transposed,
        .element_bytes = element_bytes,
        .rows = rows,
        .reserved = (descriptor & reserved) != 0,
    };
}

const char *emu_operand_problem(const struct emu_operand *operand) {
    if (operand->reserved)
        return "bits that must be zero are set (14, 15, 30, 31, 46 to 48 or 52 to 61): were the "
               "offsets added to the address before it was encoded?";
    if (operand->transposed && operand->element_bytes != 2)
        return "only 16-bit elements can be transposed";
    if (operand->base_offset && !operand->swizzle)
        return "a base offset needs a swizzle";
    if (operand->rows < 8 || operand->rows > 256 || operand->rows % 8)
        return "the extent is not a multiple of 8 from 8 to 256";
    return NULL;
}

/* Offset of an element before the swizzle: the ISA's table of canonical layouts, in bytes. */
static uint32_t operand_offset(const struct emu_operand *operand, uint32_t row, uint32_t k) {
    uint32_t element = (uint32_t)operand->element_bytes, span = (uint32_t)operand->swizzle;
    uint32_t leading = operand->leading, stride = operand->stride;
    if (!operand->transposed) {
        uint32_t byte = k * element;
        uint32_t group = row / CORE_ROWS * stride;
        if (!span)
            return group + row % CORE_ROWS * PIECE + byte / PIECE * leading + byte % PIECE;
        return group + row % CORE_ROWS * span + byte;
    }
    uint32_t byte = row * element;
    if (!span)
        return byte / PIECE * stride + byte % PIECE + k % CORE_ROWS * PIECE +
               k / CORE_ROWS * leading;
    return byte / span * leading + byte % span + k % CORE_ROWS * span + k / CORE_ROWS * stride;
}

/* A swizzle's pattern is fixed to addresses, not to the operand's start; a base offset shifts it by
 * that many times 128 bytes. */
uint32_t emu_operand_element(const struct emu_operand *operand, int row, int k) {
    uint32_t moved = (uint32_t)operand->base_offset << ROW_BITS;
    uint32_t address = operand->address + operand_offset(operand, (uint32_t)row, (uint32_t)k);
    return emu_swizzle(address - moved, operand->swizzle) + moved;
}

int emu_operand_pieces(const struct emu_operand *operand, int first, int count,
                       struct emu_piece *pieces) {
    int number = 0, depth = DEPTH_BYTES / operand->element_bytes;
    /* A piece is contiguous along k or, if transposed, along the rows. */
    int piece = PIECE / operand->element_bytes;
    int row_step = operand->transposed ? piece : 1, k_step = operand->transposed ? 1 : piece;
    for (int row = first; row < first + count; row += row_step)
        for (int k = 0; k < depth; k += k_step)
            pieces[number++] = (struct emu_piece){emu_operand_element(operand, row, k), PIECE};
    return number;
}

void emu_operand_load(const struct emu_operand *operand, int first, int count,
                      const uint8_t *memory, uint32_t base, uint8_t (*rows)[32]) {
    int element = operand->element_bytes, piece = PIECE / element;
    for (int row = 0; row < count; row += operand->transposed ? piece : 1) {
        if (!operand->transposed) {
            for (int k = 0; k < DEPTH_BYTES / element; k += piece)
                memcpy(&rows[row][k * element],
                       memory + (emu_operand_element(operand, first + row, k) - base), PIECE);
            continue;
        }
        for (int k = 0; k < DEPTH_BYTES / element; k++) {
            const uint8_t *from = memory + (emu_operand_element(operand, first + row, k) - base);
            for (int i = 0; i < piece; i++)
                memcpy(&rows[row + i][k * element], from + i * element, (size_t)element);
        }
    }
}

/* ---- ldmatrix, stmatrix ---- */

/* Row and column of a lane's element `half` (0, 1) of a matrix. */
struct cell {
    int row, column;
};

static struct cell owned(int lane, int half, bool transposed) {
    int major = lane / 4, minor = lane % 4 * 2 + half;
    return transposed ? (struct cell){minor, major} : (struct cell){major, minor};
}

void emu_ldmatrix(uint32_t *const *registers, const uint8_t *const *rows, int count,
                  bool transposed) {
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < count; i++) {
            uint16_t halves[2];
            for (int half = 0; half < 2; half++) {
                struct cell cell = owned(lane, half, transposed);
                memcpy(&halves[half], rows[8 * i + cell.row] + 2 * cell.column, 2);
            }
            registers[lane][i] = halves[0] | (uint32_t)halves[1] << 16;
        }
    }
}

void emu_stmatrix(uint8_t *const *rows, const uint32_t *const *registers, int count,
                  bool transposed) {
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < count; i++) {
            for (int half = 0; half < 2; half++) {
                struct cell cell = owned(lane, half, transposed);
                uint16_t value = (uint16_t)(registers[lane][i] >> 16 * half);
                memcpy(rows[8 * i + cell.row] + 2 * cell.column, &value, 2);
            }
        }
    }
}

/* ---- tensor maps ---- */

_Static_assert(sizeof(struct emu_tensor_map) <= EMU_TENSOR_BYTES, "fits a CUtensorMap");

enum {
    TYPES = 13,
    LARGEST_BOX = 256,
    LARGEST_STEP = 8,
    LARGEST_BOX_BYTES = 227 * 1024, /* of shared memory; the driver accepts 128 KB but not 256 */
    SWIZZLES = 4,
    PROMOTIONS = 4,
};

static const uint64_t largest_dimension = UINT64_C(1) << 32, stride_limit = UINT64_C(1) << 40;

/* Bytes of an element, by CUtensorMapDataType: UINT8, UINT16, UINT32, INT32, UINT64, INT64,
 * FLOAT16, FLOAT32, FLOAT64, BFLOAT16, FLOAT32_FTZ, TFLOAT32, TFLOAT32_FTZ. */
static const uint8_t type_bytes[TYPES] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

/* Sets `why` and returns false. */
__attribute__((format(printf, 3, 4))) static bool refuse(char *why, size_t size, const char *format,
                                                         ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, size, format, arguments);
    va_end(arguments);
    return false;
}

static bool scalars_fit(int type, uint32_t rank, uint64_t address, int interleave, int swizzle,
                        int promotion, int fill, char *why, size_t size) {
    if (type < 0 || type >= TYPES)
        return refuse(why, size, "data type %d: 0 to %d are known", type, TYPES - 1);
    if (rank < 1 || rank > EMU_TENSOR_RANK)
        return refuse(why, size, "rank %u: a tensor has 1 to 5 dimensions", rank);
    if (address % PIECE)
        return refuse(why, size, "address 0x%" PRIx64 ": must be a multiple of 16", address);
    if (interleave)
        return refuse(why, size, "interleave %d: only NONE (0) is emulated", interleave);
    if (swizzle < 0 || swizzle >= SWIZZLES)
        return refuse(why, size, "swizzle %d: NONE, 32B, 64B or 128B (0 to 3) on this GPU",
                      swizzle);
    if (promotion < 0 || promotion >= PROMOTIONS)
        return refuse(why, size, "L2 promotion %d: 0 to 3", promotion);
    if (fill)
        return refuse(why, size, "fill %d: only NONE (0, zeros) is emulated", fill);
    return true;
}

static bool dimension_fits(const struct emu_tensor_map *map, uint32_t i, uint32_t box,
                           uint32_t step, char *why, size_t size) {
    if (map->dimensions[i] < 1 || map->dimensions[i] > largest_dimension)
        return refuse(why, size, "dimension %u is %" PRIu64 ": must be 1 to 2^32", i,
                      map->dimensions[i]);
    if (box < 1 || box > LARGEST_BOX)
        return refuse(why, size, "the box's dimension %u is %u: must be 1 to 256", i, box);
    if (step < 1 || step > LARGEST_STEP)
        return refuse(why, size, "element stride %u is %u: must be 1 to 8", i, step);
    if (i > 0 && (map->strides[i - 1] % PIECE || map->strides[i - 1] >= stride_limit))
        return refuse(why, size,
                      "the stride of dimension %u is %" PRIu64
                      " bytes: must be a multiple of 16 below 2^40",
                      i, map->strides[i - 1]);
    return true;
}

static uint32_t row_bytes(const struct emu_tensor_map *map) {
    return (uint32_t)map->box[0] * map->element_bytes;
}

/* Distance of rows of a box in shared memory: rows narrower than the swizzle leave gaps, which are
 * not written. */
static uint32_t row_pitch(const struct emu_tensor_map *map) {
    return map->swizzle ? map->swizzle : row_bytes(map);
}

bool emu_tensor_map_encode(void *opaque, int type, uint32_t rank, uint64_t address,
                           const uint64_t *dimensions, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *element_strides, int interleave, int swizzle,
                           int promotion, int fill, char *why, size_t why_size) {
    static const uint8_t spans[SWIZZLES] = {0, 32, 64, 128};
    if (!scalars_fit(type, rank, address, interleave, swizzle, promotion, fill, why, why_size))
        return false;
    struct emu_tensor_map map = {
        .magic = EMU_TENSOR_MAGIC,
        .rank = (uint8_t)rank,
        .type = (uint8_t)type,
        .element_bytes = type_bytes[type],
        .swizzle = spans[swizzle],
        .address = address,
    };
    for (uint32_t i = 0; i < rank; i++) {
        map.dimensions[i] = dimensions[i];
        if (i > 0)
            map.strides[i - 1] = strides[i - 1];
        if (!dimension_fits(&map, i, box[i], element_strides[i], why, why_size))
            return false;
        map.box[i] = (uint16_t)box[i];
        /* Dimension 0 has no steps: its element stride is checked and then ignored. */
        map.steps[i] = i > 0 ? (uint8_t)element_strides[i] : 1;
    }
    uint32_t row = row_bytes(&map);
    if (row % PIECE)
        return refuse(why, why_size, "the box is %u bytes wide: must be a multiple of 16", row);
    if (map.swizzle && row > map.swizzle)
        return refuse(why, why_size, "the box is %u bytes wide: at most the swizzle's %u", row,
                      map.swizzle);
    if (emu_tensor_box_bytes(&map) > LARGEST_BOX_BYTES)
        return refuse(why, why_size, "the box has %u bytes: shared memory has %d",
                      emu_tensor_box_bytes(&map), LARGEST_BOX_BYTES);
    memset(opaque, 0, EMU_TENSOR_BYTES);
    memcpy(opaque, &map, sizeof map);
    return true;
}

const struct emu_tensor_map *emu_tensor_map_at(const void *opaque) {
    const struct emu_tensor_map *map = opaque;
    return map->magic == EMU_TENSOR_MAGIC ? map : NULL;
}

/* Elements of a box along a dimension. */
static uint32_t box_count(const struct emu_tensor_map *map, int dimension) {
    return ((uint32_t)map->box[dimension] + map->steps[dimension] - 1) / map->steps[dimension];
}

uint32_t emu_tensor_box_bytes(const struct emu_tensor_map *map) {
    uint64_t bytes = map->element_bytes;
    for (int i = 0; i < map->rank; i++)
        bytes *= box_count(map, i);
    return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

uint32_t emu_tensor_box_extent(const struct emu_tensor_map *map) {
    return emu_tensor_box_bytes(map) / row_bytes(map) * row_pitch(map);
}

const char *emu_tensor_problem(const struct emu_tensor_map *map, const int32_t *coordinates,
                               uint32_t shared) {
    if (shared % 128) /* of all layouts without interleaving */
        return "the shared address is not a multiple of 128";
    if ((int64_t)coordinates[0] * map->element_bytes % PIECE)
        return "the first coordinate is not a multiple of 16 bytes";
    return NULL;
}

/* Visits one row of a box in pieces that are entirely inside or outside the tensor. `global`:
 * address of coordinate 0 of this row; 0: the row is outside. */
static void walk_row(const struct emu_tensor_map *map, int64_t coordinate, uint64_t global,
                     uint32_t shared,
                     void (*visit)(void *context, const struct emu_tensor_piece *piece),
                     void *context) {
    int64_t element = map->element_bytes, first = coordinate * element;
    int64_t end = (int64_t)map->dimensions[0] * element;
    for (uint32_t at = 0; at < row_bytes(map); at += PIECE) {
        uint32_t to = emu_swizzle(shared + at, map->swizzle);
        uint32_t done = 0;
        while (done < PIECE) {
            int64_t byte = first + at + done;
            bool inside = global && byte >= 0 && byte < end;
            /* The next byte that may be on the other side of an edge. */
            int64_t edge = inside ? end : global && byte < 0 ? 0 : byte + PIECE;
            uint32_t bytes = PIECE - done;
            if (edge - byte < bytes)
                bytes = (uint32_t)(edge - byte);
            struct emu_tensor_piece piece = {inside ? global + (uint64_t)byte : 0, to + done,
                                             bytes};
            visit(context, &piece);
            done += bytes;
        }
    }
}

void emu_tensor_walk(const struct emu_tensor_map *map, const int32_t *coordinates, uint32_t shared,
                     void (*visit)(void *context, const struct emu_tensor_piece *piece),
                     void *context) {
    uint32_t rows = emu_tensor_box_bytes(map) / row_bytes(map);
    for (uint32_t row = 0; row < rows; row++) {
        uint32_t rest = row;
        bool inside = true;
        uint64_t global = map->address;
        for (int i = 1; i < map->rank; i++) {
            uint32_t count = box_count(map, i);
            int64_t at = coordinates[i] + (int64_t)(rest % count) * map->steps[i];
            rest /= count;
            inside = inside && at >= 0 && (uint64_t)at < map->dimensions[i];
            global += inside ? (uint64_t)at * map->strides[i - 1] : 0;
        }
        walk_row(map, coordinates[0], inside ? global : 0, shared + row * row_pitch(map), visit,
                 context);
    }
}
