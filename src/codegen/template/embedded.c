/* See engine.h: the library's own templates and their texts. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "codegen/template/engine.h"

struct smelt__template *smelt__templates_unpack(const unsigned char *packed, size_t packed_size,
                                                struct smelt__message *message) {
    const size_t table_size = (size_t)smelt__template_count * sizeof *smelt__templates;
    uLongf text_size = 0, unpacked;
    for (int i = 0; i < smelt__template_count; i++)
        text_size += smelt__templates[i].length + 1;
    struct smelt__template *const table = malloc(table_size + text_size);
    char *text = (char *)table + table_size;
    unpacked = text_size;
    const int result =
        table ? uncompress((Bytef *)text, &unpacked, packed, (uLong)packed_size) : Z_MEM_ERROR;
    if (result == Z_MEM_ERROR)
        smelt__message_set_out_of_memory(message);
    else if (result != Z_OK || unpacked != text_size)
        smelt__message_set(message, "the templates in this libsmelt are damaged: install it again");
    if (result != Z_OK || unpacked != text_size) {
        free(table);
        return NULL;
    }
    memcpy(table, smelt__templates, table_size);
    for (int i = 0; i < smelt__template_count; i++) {
        table[i].text = text;
        text += table[i].length + 1;
    }
    return table;
}

static _Atomic(struct smelt__template *) embedded;

/* The library may be unloaded before the process ends. */
__attribute__((destructor)) static void free_embedded(void) {
    free(atomic_load(&embedded));
}

const struct smelt__template *smelt__templates_embedded(struct smelt__message *message) {
    struct smelt__template *seen = atomic_load(&embedded);
    if (seen)
        return seen;
    struct smelt__template *const table =
        smelt__templates_unpack(smelt__templates_packed, smelt__templates_packed_size, message);
    if (!table || atomic_compare_exchange_strong(&embedded, &seen, table))
        return table;
    free(table); /* another thread was faster */
    return seen;
}
