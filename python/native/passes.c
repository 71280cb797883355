/* An operator's passes, as the library describes them (smelt/operator.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native.h"

/* The number of the symbol with these letters, which is added to the pass if it is new; -1: the
 * table is full. "D+1" is the extent of D plus one, "C*8" eight times that of C, "S/4" a quarter of
 * that of S, rounded up. */
static int symbol_of(struct pass *pass, const char *letters) {
    for (int i = 0; i < pass->symbol_count; i++)
        if (strcmp(pass->symbols[i].letters, letters) == 0)
            return i;
    const size_t length = strcspn(letters, "+*/");
    const int number = pass->symbol_count;
    if (number == MAX_SYMBOLS)
        return -1;
    pass->symbol_count++;
    struct symbol *const symbol = &pass->symbols[number];
    *symbol = (struct symbol){.base = number, .times = 1, .per = 1};
    snprintf(symbol->letters, sizeof symbol->letters, "%s", letters);
    pass->fixed[number] = -1;
    if (letters[length]) {
        char base[MAX_LETTERS];
        const int64_t value = atoll(letters + length + 1);
        snprintf(base, sizeof base, "%.*s", (int)length, letters);
        symbol->plus = letters[length] == '+' ? (int)value : 0;
        symbol->times = letters[length] == '*' ? value : 1;
        symbol->per = letters[length] == '/' ? value : 1;
        symbol->base = symbol_of(pass, base);
    }
    return symbol->base < 0 ? -1 : number;
}

/* The letters of a dimension. */
static void dimension_text(const smelt_tensor_info *info, int dimension, char text[MAX_LETTERS]) {
    const int64_t times = info->times[dimension], per = info->per[dimension];
    const int divided = per > 1;
    if (!*info->of[dimension])
        snprintf(text, MAX_LETTERS, "%s", info->shape[dimension]);
    else if (times == per)
        snprintf(text, MAX_LETTERS, "%s", info->of[dimension]);
    else
        snprintf(text, MAX_LETTERS, "%s%c%lld", info->of[dimension], divided ? '/' : '*',
                 (long long)(divided ? per : times));
}

static int is_fixed(const char *letters) {
    return strcmp(letters, "1") == 0;
}

static int take_tensor(struct pass *pass, const smelt_tensor_info *info) {
    const int last = info->dimensions - 1;
    struct tensor_argument *const tensor = &pass->tensors[pass->tensor_count++];
    tensor->name = info->name;
    tensor->offset = info->offset;
    tensor->element = (enum element)info->type;
    tensor->alignment = (size_t)info->alignment;
    tensor->dims = info->dimensions;
    if (info->optional || info->one_of || *info->key) /* the library checks which optional tensors
                                                         are required together */
        tensor->flags |= OPTIONAL;
    if (info->role != SMELT_ROLE_INPUT)
        tensor->flags |= info->role == SMELT_ROLE_OUTPUT ? OUTPUT : WRITTEN;
    pass->output_count += info->role == SMELT_ROLE_OUTPUT;
    if (strcmp(info->shape[0], "B") == 0)
        tensor->flags |= BATCHED;
    if (strcmp(info->shape[0], pass->flattened) == 0)
        tensor->flags |= FLATTENED;
    if (is_fixed(info->shape[last]))
        tensor->flags |= ONE_AT_END;
    for (int i = 0; i <= last; i++) {
        char letters[MAX_LETTERS];
        dimension_text(info, i, letters);
        const int number = symbol_of(pass, letters);
        if (number < 0)
            return -1;
        tensor->symbols[i] = (unsigned char)number;
        if (info->extents[i] >= 0 && pass->symbols[number].base == number)
            pass->fixed[number] = info->extents[i];
    }
    return 0;
}

static int take_scalar(struct pass *pass, const smelt_scalar_info *info) {
    const int is_extent = *info->letter != '\0';
    pass->scalars[pass->scalar_count++] = (struct scalar_argument){
        .name = info->name,
        .type = info->type,
        .offset = info->offset,
        .symbol = is_extent ? symbol_of(pass, info->letter) : -1,
        .least = info->least,
        .most = info->most,
    };
    return is_extent && pass->scalars[pass->scalar_count - 1].symbol < 0 ? -1 : 0;
}

static int name_arguments(struct pass *pass) {
    int count = 0;
    for (int i = 0; i < pass->tensor_count; i++)
        pass->names[count++] = PyUnicode_InternFromString(pass->tensors[i].name);
    for (int i = 0; i < pass->scalar_count; i++)
        pass->names[count++] = PyUnicode_InternFromString(pass->scalars[i].name);
    if (pass->partition_offset)
        pass->names[count++] = PyUnicode_InternFromString("partition");
    pass->value_count = count;
    while (count > 0)
        if (!pass->names[--count])
            return -1;
    return 0;
}

static int too_large(const char *spec) {
    PyErr_Format(PyExc_SystemError, "smelt: %s has more arguments than this module expects", spec);
    return -1;
}

/* -1 with an exception. */
static int fill_pass(const char *spec, enum smelt_pass which, struct pass *pass) {
    smelt_pass_info info = SMELT_PASS_INFO_INIT;
    unsigned all;
    smelt_status status = smelt_operator_describe(spec, which, &all, &info);
    if (status == SMELT_OK && (info.tensors > MAX_TENSORS || info.scalars > MAX_SCALARS ||
                               info.args_bytes > MAX_ARGS_BYTES))
        return too_large(spec);
    pass->which = which;
    pass->args_bytes = info.args_bytes;
    pass->workspace_offset = info.workspace_offset;
    pass->workspace_size = info.workspace_bytes_offset;
    pass->workspace_alignment = info.workspace_alignment;
    pass->partition_offset = info.partition_offset;
    pass->partition_size = info.partition_bytes_offset;
    pass->flattened = info.flattened;
    for (int i = 0; i < info.tensors && status == SMELT_OK; i++) {
        smelt_tensor_info tensor = SMELT_TENSOR_INFO_INIT;
        status = smelt_operator_get_tensor(spec, which, i, &tensor);
        if (status == SMELT_OK && take_tensor(pass, &tensor))
            return too_large(spec);
    }
    for (int i = 0; i < info.scalars && status == SMELT_OK; i++) {
        smelt_scalar_info scalar = SMELT_SCALAR_INFO_INIT;
        status = smelt_operator_get_scalar(spec, which, i, &scalar);
        if (status == SMELT_OK && take_scalar(pass, &scalar))
            return too_large(spec);
    }
    if (status != SMELT_OK)
        raise_status(status);
    return status != SMELT_OK || name_arguments(pass) ? -1 : 0;
}

void free_passes(struct passes *passes) {
    for (int i = 0; passes && i < PASSES; i++)
        for (int name = 0; name < passes->of[i].value_count; name++)
            Py_XDECREF(passes->of[i].names[name]);
    free(passes);
}

struct passes *describe_passes(const char *spec) {
    unsigned all;
    const smelt_status status = smelt_operator_describe(spec, SMELT_PASS_FORWARD, &all, NULL);
    if (status != SMELT_OK)
        return (void *)raise_status(status);
    struct passes *const passes = calloc(1, sizeof *passes);
    if (!passes)
        return (void *)PyErr_NoMemory();
    for (int i = 0; i < PASSES; i++) {
        const enum smelt_pass which = i == 0 ? SMELT_PASS_FORWARD : SMELT_PASS_BACKWARD;
        if ((all & which) && fill_pass(spec, which, &passes->of[i])) {
            free_passes(passes);
            return NULL;
        }
    }
    return passes;
}

/* ---- describe() ------------------------------------------------------------------------------ */

/* Appends what may be NULL, with its exception, and takes the reference. */
static int append(PyObject *list, PyObject *item) {
    const int failed = !item || PyList_Append(list, item);
    Py_XDECREF(item);
    return failed;
}

static PyObject *letters_of(const struct pass *pass, const struct tensor_argument *tensor) {
    PyObject *letters = PyList_New(0);
    for (int i = 0; letters && i < tensor->dims; i++)
        if (append(letters, PyUnicode_InternFromString(pass->symbols[tensor->symbols[i]].letters)))
            Py_CLEAR(letters);
    return letters;
}

static PyObject *describe_tensor(const struct pass *pass, const struct tensor_argument *tensor) {
    PyObject *letters = letters_of(pass, tensor);
    return letters
               ? Py_BuildValue("(siIN)", tensor->name, (int)tensor->element, tensor->flags, letters)
               : NULL;
}

static PyObject *describe_scalar(const struct pass *pass, const struct scalar_argument *scalar) {
    return Py_BuildValue("(sisLL)", scalar->name, scalar->type == SMELT_SCALAR_FLOAT,
                         scalar->symbol < 0 ? "" : pass->symbols[scalar->symbol].letters,
                         (long long)scalar->least, (long long)scalar->most);
}

static PyObject *describe_pass(const struct pass *pass) {
    if (!pass->which)
        Py_RETURN_NONE;
    PyObject *tensors = PyList_New(0), *scalars = PyList_New(0);
    int failed = !tensors || !scalars;
    for (int i = 0; i < pass->tensor_count && !failed; i++)
        failed = append(tensors, describe_tensor(pass, &pass->tensors[i]));
    for (int i = 0; i < pass->scalar_count && !failed; i++)
        failed = append(scalars, describe_scalar(pass, &pass->scalars[i]));
    if (!failed)
        return Py_BuildValue("(NNi)", tensors, scalars, pass->partition_offset > 0);
    Py_XDECREF(tensors);
    Py_XDECREF(scalars);
    return NULL;
}

PyObject *describe(PyObject *module, PyObject *spec) {
    PyObject *all = NULL;
    (void)module;
    const char *const text = PyUnicode_AsUTF8AndSize(spec, NULL);
    struct passes *const passes = text ? describe_passes(text) : NULL;
    PyObject *const forward = passes ? describe_pass(&passes->of[0]) : NULL;
    PyObject *const backward = forward ? describe_pass(&passes->of[1]) : NULL;
    if (backward)
        all = PyTuple_Pack(2, forward, backward);
    Py_XDECREF(forward);
    Py_XDECREF(backward);
    free_passes(passes);
    return all;
}
