/*
 * A cubin is a 64-bit ELF file. Its section .nv.info is a list of attributes: a byte of format, a
 * byte of code, and two bytes that hold the value or, with FORMAT_SIZED, the size of the value that
 * follows. The attributes read here are pairs of a symbol index and a number; a kernel's symbol
 * index is in the header of its section .text.NAME. (The format is undocumented; cuobjdump -elf
 * prints it.)
 */
#include <elf.h>
#include <stdint.h>
#include <string.h>

#include "runtime/cubin.h"

enum {
    FORMAT_SIZED = 4,
    CODE_REGISTERS = 0x2f,
    CODE_FRAME_BYTES = 0x11,
    SYMBOL = 0xffffff /* mask: up to sm_89 the high byte is the register count */
};

struct image {
    const unsigned char *bytes;
    size_t count;
};

/* Copies a range; 0 when it is outside the image. */
static int take(const struct image *image, uint64_t offset, void *piece, size_t count) {
    if (offset > image->count || count > image->count - offset)
        return 0;
    memcpy(piece, image->bytes + offset, count);
    return 1;
}

static int take_section(const struct image *image, const Elf64_Ehdr *header, uint64_t number,
                        Elf64_Shdr *section) {
    return number < header->e_shnum && header->e_shentsize == sizeof *section &&
           header->e_shoff <= image->count &&
           take(image, header->e_shoff + number * sizeof *section, section, sizeof *section);
}

/* Whether a section's name is `first` followed by `second`. */
static int is_named(const struct image *image, const Elf64_Shdr *names, const Elf64_Shdr *section,
                    const char *first, const char *second) {
    const size_t first_length = strlen(first), length = first_length + strlen(second) + 1;
    const uint64_t offset = names->sh_offset + section->sh_name;
    return names->sh_offset <= image->count && offset <= image->count &&
           length <= image->count - offset &&
           memcmp(image->bytes + offset, first, first_length) == 0 &&
           memcmp(image->bytes + offset + first_length, second, length - first_length) == 0;
}

/* The value of an attribute of a symbol. */
static int find_attribute(const struct image *image, const Elf64_Shdr *info, int code,
                          uint32_t symbol, int *value) {
    for (uint64_t at = 0; at + 4 <= info->sh_size && info->sh_offset <= image->count;) {
        unsigned char head[4];
        uint32_t pair[2];
        if (!take(image, info->sh_offset + at, head, sizeof head))
            return 0;
        const unsigned size = head[0] == FORMAT_SIZED ? head[2] | (unsigned)head[3] << 8 : 0;
        if (head[1] == code && size == sizeof pair &&
            take(image, info->sh_offset + at + sizeof head, pair, sizeof pair) &&
            pair[0] == symbol && pair[1] <= INT32_MAX) {
            *value = (int)pair[1];
            return 1;
        }
        at += sizeof head + size;
    }
    return 0;
}

enum smelt__output smelt__output_of(const void *bytes, size_t count) {
    const struct image image = {bytes, count};
    Elf64_Ehdr header;

    if (!take(&image, 0, &header, sizeof header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64)
        return SMELT__OUTPUT_UNKNOWN;
    if (header.e_machine == EM_CUDA)
        return SMELT__OUTPUT_CUBIN;
    return header.e_type == ET_DYN ? SMELT__OUTPUT_EMULATED : SMELT__OUTPUT_UNKNOWN;
}

const char *smelt__output_name(enum smelt__output output) {
    return output == SMELT__OUTPUT_CUBIN      ? "a cubin"
           : output == SMELT__OUTPUT_EMULATED ? "a kernel for the emulator"
                                              : "something else";
}

int smelt__cubin_read(const void *cubin, size_t bytes, const char *kernel_name,
                      struct smelt__cubin_figures *figures) {
    const struct image image = {cubin, bytes};
    Elf64_Ehdr header;
    Elf64_Shdr names, section, info = {0};
    int found_info = 0, found_code = 0;
    uint32_t symbol = 0;

    if (!take(&image, 0, &header, sizeof header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 ||
        !take_section(&image, &header, header.e_shstrndx, &names))
        return 0;
    for (unsigned i = 0; take_section(&image, &header, i, &section); i++) {
        if (is_named(&image, &names, &section, ".nv.info", "")) {
            info = section;
            found_info = 1;
        } else if (is_named(&image, &names, &section, ".text.", kernel_name)) {
            symbol = section.sh_info & SYMBOL;
            found_code = 1;
        }
    }
    figures->frame_bytes = 0;
    if (!found_info || !found_code ||
        !find_attribute(&image, &info, CODE_REGISTERS, symbol, &figures->registers))
        return 0;
    find_attribute(&image, &info, CODE_FRAME_BYTES, symbol, &figures->frame_bytes);
    return 1;
}
