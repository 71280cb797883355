/* Kernels that are compiled at their first launch: see compiler.h. */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "emu/compiler/compiler.h"

int emu_is_lazy(void) {
    const char *value = secure_getenv("SMELT_EMU_LAZY");
    return value && strcmp(value, "1") == 0;
}

/* The image is the ELF header of a shared object without segments, then the kernel's name and the C
 * text, both with their final 0. e_flags holds `edited`. The driver takes the end of the section headers
 * for a file's size: the image has none, and their offset is its size. */
int emu_make_lazy(const char *name, const char *text, int edited, unsigned char **object,
                  size_t *bytes) {
    const size_t name_bytes = strlen(name) + 1, text_bytes = strlen(text) + 1;
    Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_DYN,
        .e_version = EV_CURRENT,
        .e_flags = (Elf64_Word)edited,
        .e_ehsize = sizeof header};
    *bytes = sizeof header + name_bytes + text_bytes;
    header.e_shoff = *bytes;
    *object = malloc(*bytes);
    if (!*object)
        return -1;
    memcpy(*object, &header, sizeof header);
    memcpy(*object + sizeof header, name, name_bytes);
    memcpy(*object + sizeof header + name_bytes, text, text_bytes);
    return 0;
}

const char *emu_lazy_name(const unsigned char *image) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    return header.e_phnum == 0 ? (const char *)image + sizeof header : NULL;
}

int emu_compile_lazy(const unsigned char *image, unsigned char **object, size_t *bytes, char *log,
                     size_t log_size) {
    const char *name = emu_lazy_name(image);
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    return emu_compile(name + strlen(name) + 1, (int)header.e_flags, object, bytes, log, log_size);
}
