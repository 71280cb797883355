/* See args_table.h. The part that the harness shares: no messages, no library state. */
#include <string.h>

#include "ops/args_table.h"

int smelt__table_number(const struct smelt__args_table *tables,
                        int64_t (*value)(const void *spec, const char *key), const void *spec) {
    int number = 0;
    for (const struct smelt__table_key *by = tables->by; by && by->key; by++)
        if (value(spec, by->key) > by->above && !(by->unless && value(spec, by->unless) > 0))
            number += by->step;
    return number;
}

void smelt__args_extents(const struct smelt__args_table *table, const void *args,
                         int64_t *extents) {
    for (int i = 0; i < table->symbol_count; i++) {
        const struct smelt__symbol *symbol = &table->symbols[i];
        if (symbol->key)
            continue;
        extents[i] = 0;
        if (symbol->field)
            memcpy(&extents[i], (const char *)args + symbol->field, sizeof extents[i]);
        if (symbol->times)
            extents[i] *= extents[symbol->times];
        if (symbol->per) /* no overflow for any number */
            extents[i] =
                extents[i] / extents[symbol->per] + (extents[i] % extents[symbol->per] > 0);
        extents[i] += symbol->plus;
    }
}

void smelt__tensor_pack(const struct smelt__tensor_row *row, const int64_t *extents,
                        smelt_tensor *tensor) {
    const int strides = row->dimensions - 1;
    for (int i = 0; i < strides; i++)
        if (tensor->strides[i] != 0)
            return;
    /* Extents are at most 2^31 - 1, but for what checks refuse anyway: wrapping is harmless. */
    uint64_t stride = strides >= 0 ? (uint64_t)extents[row->shape[strides]] : 1;
    for (int i = strides - 1; i >= 0; i--) {
        tensor->strides[i] = (int64_t)stride;
        if (i > 0) /* the outermost extent is no stride's factor */
            stride *= (uint64_t)extents[row->shape[i]];
    }
}
