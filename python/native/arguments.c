/* Converts Python arguments to an operator's args struct, by the description of a pass. */
#include <stdio.h>
#include <string.h>

#include "native.h"

/* "[T, H, D]" for messages. */
static void shape_text(const struct pass *pass, const struct tensor_argument *argument, int batched,
                       char text[MAX_DIMS * (MAX_LETTERS + 2)]) {
    const int first = argument->flags & BATCHED && !batched;
    const int end = argument->dims - (argument->flags & ONE_AT_END && argument->dims > 1);
    char *at = text;
    *at++ = '[';
    for (int i = first; i < end; i++)
        at += sprintf(at, "%s%s", i == first ? "" : ", ",
                      pass->symbols[argument->symbols[i]].letters);
    memcpy(at, "]", 2);
}

static int wrong_dims(const struct call *call, const struct tensor_argument *argument, int dims) {
    char packed[MAX_DIMS * (MAX_LETTERS + 2)], whole[sizeof packed];
    shape_text(call->pass, argument, 0, packed);
    shape_text(call->pass, argument, 1, whole);
    if (call->batched >= 0 || !(argument->flags & BATCHED))
        PyErr_Format(PyExc_ValueError, "smelt: %s must be %s, not of %d dimensions", argument->name,
                     call->batched ? whole : packed, dims);
    else
        PyErr_Format(PyExc_ValueError, "smelt: %s must be %s or %s, not of %d dimensions",
                     argument->name, packed, whole, dims);
    return -1;
}

/* "indices must be torch.int32, not torch.int64" */
static int wrong_element(const struct tensor_argument *argument, PyObject *value,
                         enum element expected) {
    PyObject *dtype = PyObject_GetAttrString(value, "dtype");
    if (dtype)
        PyErr_Format(PyExc_TypeError, "smelt: %s must be %s, not %S", argument->name,
                     element_name(expected), dtype);
    Py_XDECREF(dtype);
    return -1;
}

static int check_location(const char *name, const struct view *view, enum location location,
                          int device) {
    if (view->location == location && (location != ON_CUDA || view->device == device))
        return 0;
    if (location == ON_CPU)
        PyErr_Format(PyExc_ValueError,
                     "smelt: %s must be a CPU tensor: the library runs on the emulator", name);
    else
        PyErr_Format(PyExc_ValueError, "smelt: %s must be on device cuda:%d, as the others are",
                     name, device);
    return -1;
}

/* Element type and device. */
static int check_kind(const struct tensor_argument *argument, PyObject *value,
                      const struct view *view, enum location location, int device) {
    const enum element expected = argument->element;
    if (view->element != expected)
        return wrong_element(argument, value, expected);
    return check_location(argument->name, view, location, device);
}

/* `added`: the number of the view's dimensions that the tensor lacks. */
static int check_dims(struct call *call, const struct tensor_argument *argument,
                      const struct view *view, int added) {
    const int whole = argument->dims, may_be_packed = argument->flags & BATCHED;
    if (may_be_packed && call->batched < 0 && view->dims >= whole - 1 && view->dims <= whole)
        call->batched = view->dims == whole;
    if (view->dims != whole - (may_be_packed && call->batched != 1) ||
        (may_be_packed && call->batched < 0))
        return wrong_dims(call, argument, view->dims - added);
    return 0;
}

/* The extent of a symbol whose base has this one. */
static int64_t extent_of(const struct symbol *symbol, int64_t base) {
    return (base * symbol->times + symbol->per - 1) / symbol->per + symbol->plus;
}

static int check_extents(struct call *call, const struct tensor_argument *argument,
                         const struct view *view) {
    const unsigned char *symbols = argument->symbols + (argument->dims - view->dims);
    for (int i = 0; i < view->dims; i++) {
        const struct symbol *const symbol = &call->pass->symbols[symbols[i]];
        const int64_t size = view->sizes[i];
        int64_t *const base = &call->extents[symbol->base];
        if (*base < 0)
            *base = size < symbol->plus ? -1 : (size - symbol->plus) * symbol->per / symbol->times;
        if (*base >= 0 && extent_of(symbol, *base) == size)
            continue;
        PyErr_Format(PyExc_ValueError, "smelt: dimension %d of %s (%s) is %lld, but must be %s%lld",
                     argument->flags & FLATTENED ? i + call->flat_dims - 1 : i, argument->name,
                     symbol->letters, (long long)size, *base < 0 ? "at least " : "",
                     (long long)extent_of(symbol, *base < 0 ? 0 : *base));
        return -1;
    }
    return 0;
}

enum { NEEDS_COPY = 1 }; /* a function's result for a layout that no kernel reads or writes */

/* Combines the leading dimensions of a FLATTENED tensor. 0, -1 with an exception, or NEEDS_COPY. */
static int flatten(struct call *call, const struct tensor_argument *argument, struct view *view) {
    const int ended = argument->flags & ONE_AT_END && argument->dims > 1;
    const int others = argument->dims - 1 - ended, count = view->dims - others;
    int64_t size = 1, stride = others > 0 && view->dims > 0 ? view->sizes[view->dims - 1] : 1;
    int empty = 0;
    if (count < 0)
        return wrong_dims(call, argument, view->dims);
    if (call->flat_dims < 0) {
        call->flat_dims = count;
        memcpy(call->flat, view->sizes, (size_t)count * sizeof *view->sizes);
    }
    if (count != call->flat_dims ||
        memcmp(call->flat, view->sizes, (size_t)count * sizeof *view->sizes) != 0) {
        PyErr_Format(PyExc_ValueError, "smelt: %s must have as many rows as %s, by dimension",
                     argument->name, call->pass->tensors[0].name);
        return -1;
    }
    for (int i = 0; i < count; i++)
        empty |= view->sizes[i] == 0;
    for (int i = count; !empty && i-- > 0;) {
        if (view->sizes[i] == 1)
            continue;
        if (size == 1)
            stride = view->strides[i];
        else if (view->strides[i] != stride * size)
            return NEEDS_COPY;
        size *= view->sizes[i];
    }
    for (int i = 0; i < others; i++) {
        view->sizes[1 + i] = view->sizes[count + i];
        view->strides[1 + i] = view->strides[count + i];
    }
    view->sizes[0] = empty ? 0 : size;
    view->strides[0] = stride;
    view->dims = 1 + others;
    return 0;
}

/* The strides in smelt/tensor.h's form, one for each dimension except the last. 0 or NEEDS_COPY. */
static int take_strides(const struct tensor_argument *argument, const struct view *view,
                        int64_t strides[SMELT_TENSOR_STRIDES]) {
    const int last = view->dims - 1, missing = argument->dims - view->dims;
    const size_t bytes = element_bytes(view->element), alignment = argument->alignment;
    int steps = 0, all_zero = 1;
    if (last >= 0 && view->sizes[last] > 1 && view->strides[last] != 1)
        return NEEDS_COPY;
    if ((uintptr_t)view->data % alignment != 0)
        return NEEDS_COPY;
    for (int i = 0; i < last; i++) {
        strides[i + missing] = view->strides[i];
        if (view->sizes[i] < 2)
            continue;
        steps++;
        all_zero &= view->strides[i] == 0;
        if (view->strides[i] < 0 || (uint64_t)view->strides[i] * bytes % alignment != 0)
            return NEEDS_COPY;
    }
    if (steps > 0 && all_zero) /* the library would take the tensor as packed */
        return NEEDS_COPY;
    if (steps == 0 && last >= 0) /* a single row is packed whatever its strides are */
        memset(strides, 0, SMELT_TENSOR_STRIDES * sizeof *strides);
    return 0;
}

/* Whether this value, given as an output, requests a new tensor. */
static int is_to_be_made(PyObject *value) {
    return value == Py_True || PyFloat_Check(value);
}

/* A new tensor for an output; the inputs, numbers and the spec determine its extents. `wanted`:
 * True, or the fill value. */
static PyObject *make_output(struct call *call, const struct tensor_argument *argument,
                             PyObject *wanted) {
    struct view shape = {0};
    int next = argument->flags & BATCHED && call->batched != 1;
    shape.element = argument->element;
    if (argument->flags & FLATTENED) {
        shape.dims = call->flat_dims;
        memcpy(shape.sizes, call->flat, sizeof shape.sizes);
        next++;
    }
    for (; next < argument->dims - !!(argument->flags & ONE_AT_END); next++) {
        const struct symbol *const symbol = &call->pass->symbols[argument->symbols[next]];
        if (call->extents[symbol->base] < 0)
            return PyErr_Format(PyExc_ValueError, "smelt: %s must be given: its size is not known",
                                argument->name);
        shape.sizes[shape.dims++] = extent_of(symbol, call->extents[symbol->base]);
    }
    PyObject *made = make_tensor(call->like, call->quick, &shape);
    if (!made)
        return NULL;
    call->made[argument - call->pass->tensors] = made;
    if (wanted == Py_True)
        return made;
    PyObject *filled = PyObject_CallMethod(made, "fill_", "O", wanted);
    Py_XDECREF(filled);
    return filled ? made : NULL;
}

/* Views a tensor, checks it and writes it into the args struct. 0, -1 with an exception or NEEDS_COPY.
 */
static int take_tensor(struct call *call, int index, PyObject *value, enum location location,
                       int device) {
    const struct tensor_argument *argument = &call->pass->tensors[index];
    struct view *view = &call->views[index];
    smelt_tensor tensor = {0};
    int problem = 0, added = 0;
    if (tensor_view(value, argument->name, view) ||
        check_kind(argument, value, view, location, device))
        return -1;
    if (argument->flags & FLATTENED && (problem = flatten(call, argument, view)))
        return problem;
    /* A tensor of one element may also be [1]. */
    if (argument->flags & ONE_AT_END && view->dims < (argument->dims > 1 ? MAX_DIMS : 1)) {
        view->sizes[view->dims] = 1;
        view->strides[view->dims++] = 1;
        added = 1;
    }
    if (check_dims(call, argument, view, added) || check_extents(call, argument, view))
        return -1;
    tensor.data = view->data;
    if ((problem = take_strides(argument, view, tensor.strides)))
        return problem;
    memcpy(call->args.bytes + argument->offset, &tensor, sizeof tensor);
    return 0;
}

/* A contiguous copy of an input, kept until the call has been launched. */
static PyObject *copy_input(struct call *call, const char *name, PyObject *value) {
    struct view shape;
    if (tensor_view(value, name, &shape))
        return NULL;
    PyObject *copy = make_tensor(call->like, call->quick, &shape);
    if (!copy)
        return NULL;
    call->copies[call->copy_count++] = copy;
    PyObject *done = PyObject_CallMethod(copy, "copy_", "O", value);
    Py_XDECREF(done);
    return done ? copy : NULL;
}

static int read_tensor(struct call *call, int index, PyObject *value, enum location location,
                       int device) {
    const struct tensor_argument *argument = &call->pass->tensors[index];
    if (value && is_to_be_made(value) && (argument->flags & OUTPUT) && call->like &&
        !(value = make_output(call, argument, value)))
        return -1;
    if (!value || value == Py_None || (value == Py_False && argument->flags & OUTPUT)) {
        if (argument->flags & OPTIONAL)
            return 0;
        PyErr_Format(PyExc_TypeError, "smelt: %s must be a torch.Tensor, not None", argument->name);
        return -1;
    }
    call->given[index] = 1;
    if (!call->like)
        call->like = value;
    int problem = take_tensor(call, index, value, location, device);
    if (problem == NEEDS_COPY && !(argument->flags & (OUTPUT | WRITTEN))) {
        value = copy_input(call, argument->name, value);
        problem = value ? take_tensor(call, index, value, location, device) : -1;
    }
    if (problem == NEEDS_COPY)
        PyErr_Format(PyExc_ValueError,
                     "smelt: %s has a layout that no kernel writes: its last dimension must be "
                     "contiguous, and its rows must begin at multiples of 16 bytes",
                     argument->name);
    return problem ? -1 : 0;
}

/* A tensor of bytes: the forward call's workspace, or a copy of it. */
static int read_partition(struct call *call, PyObject *value, enum location location, int device) {
    const struct pass *const pass = call->pass;
    struct view view;
    if (!value || value == Py_None)
        return 0;
    if (tensor_view(value, "partition", &view))
        return -1;
    if (check_location("partition", &view, location, device))
        return -1;
    if (view.element != UINT8 || view.dims != 1 || (view.sizes[0] > 1 && view.strides[0] != 1)) {
        PyErr_SetString(PyExc_TypeError, "smelt: partition must be the result of the forward call");
        return -1;
    }
    const void *data = view.data;
    const size_t bytes = (size_t)view.sizes[0];
    memcpy(call->args.bytes + pass->partition_offset, &data, sizeof data);
    memcpy(call->args.bytes + pass->partition_size, &bytes, sizeof bytes);
    return 0;
}

/* Replaces Python's message, which does not name the argument. */
static int wrong_scalar(const struct scalar_argument *argument, PyObject *value) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_ValueError, "smelt: %s is out of range: %R", argument->name, value);
    else if (PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "smelt: %s must be %s, not %R", argument->name,
                     argument->type == SMELT_SCALAR_FLOAT ? "a number" : "an int",
                     (PyObject *)Py_TYPE(value));
    return -1;
}

static int out_of_range(const struct scalar_argument *argument, PyObject *value) {
    PyErr_Format(PyExc_ValueError, "smelt: %s is out of range: %R", argument->name, value);
    return -1;
}

static int read_scalar(struct call *call, const struct scalar_argument *argument, PyObject *value) {
    unsigned char *field = call->args.bytes + argument->offset;
    if (argument->type == SMELT_SCALAR_FLOAT) {
        const float number = (float)PyFloat_AsDouble(value);
        memcpy(field, &number, sizeof number);
    } else if (argument->type == SMELT_SCALAR_INT) {
        const long number = PyLong_AsLong(value);
        const int stored = (int)number;
        if (number != stored)
            return out_of_range(argument, value);
        memcpy(field, &stored, sizeof stored);
    } else if (argument->type == SMELT_SCALAR_SIZE) {
        PyObject *const whole = PyNumber_Index(value); /* NumPy's integers, too */
        const size_t number = whole ? PyLong_AsSize_t(whole) : 0;
        Py_XDECREF(whole);
        memcpy(field, &number, sizeof number);
    } else {
        const int64_t number = PyLong_AsLongLong(value);
        if (argument->symbol < 0)
            memcpy(field, &number, sizeof number);
        else if (number >= 0)
            call->extents[argument->symbol] = number;
        else if (!PyErr_Occurred())
            return out_of_range(argument, value);
    }
    return PyErr_Occurred() ? wrong_scalar(argument, value) : 0;
}

/* The library takes B = 0 as 1, so for 0 batches its call gets 0 tokens or rows. */
static void write_extents(struct call *call) {
    const struct pass *const pass = call->pass;
    const int empty = call->batched == 1 && call->extents[pass->tensors[0].symbols[0]] == 0;
    for (int i = 0; i < pass->scalar_count; i++) {
        const struct scalar_argument *const argument = &pass->scalars[i];
        if (argument->symbol < 0)
            continue;
        const int64_t known = call->extents[argument->symbol];
        const int64_t extent = known < 0 || (empty && argument->least == 0) ? 0 : known;
        memcpy(call->args.bytes + argument->offset, &extent, sizeof extent);
    }
}

static const char *pass_name(const struct pass *pass) {
    return pass->which == SMELT_PASS_FORWARD ? "forward" : "backward";
}

int sort_arguments(const struct pass *pass, PyObject *const *given, Py_ssize_t positional,
                   PyObject *keywords, PyObject *values[MAX_VALUES]) {
    const int expected = pass->value_count;
    const Py_ssize_t count = keywords ? PyTuple_Size(keywords) : 0;
    int found = (int)positional - 1;
    if (positional > expected) {
        PyErr_Format(PyExc_TypeError, "the %s pass takes %d arguments, not %zd", pass_name(pass),
                     expected, positional);
        return -1;
    }
    memset(values, 0, sizeof *values * MAX_VALUES);
    memcpy(values, given, (size_t)positional * sizeof *values);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *const name = PyTuple_GetItem(keywords, i);
        int searched = 0; /* starts after the previous one, since callers usually follow the
                             order */
        do
            found = found + 1 < expected ? found + 1 : 0;
        while (pass->names[found] != name && ++searched < expected);
        if (searched == expected) {
            PyErr_Format(PyExc_TypeError, "the %s pass takes no argument %R", pass_name(pass),
                         name);
            return -1;
        }
        values[found] = given[positional + i];
    }
    return 0;
}

int read_arguments(struct call *call, PyObject *const *values, enum location location, int device) {
    const struct pass *const pass = call->pass;
    const int scalars = pass->tensor_count, partition = scalars + pass->scalar_count;
    memset(call->made, 0, sizeof call->made);
    call->copy_count = 0;
    call->like = NULL;
    call->quick = quick_maker(location, device);
    memset(&call->args, 0, pass->args_bytes);
    call->args.size = pass->args_bytes;
    call->batched = call->flat_dims = -1;
    memcpy(call->extents, pass->fixed, sizeof call->extents);
    for (int i = 0; i < pass->scalar_count; i++) /* first: extents may be among them */
        if (values[scalars + i] && read_scalar(call, &pass->scalars[i], values[scalars + i]))
            return -1;
    memset(call->given, 0, sizeof call->given);
    for (int outputs = 0; outputs < 2;
         outputs++) /* these last: their sizes follow from the others */
        for (int i = 0; i < pass->tensor_count; i++)
            if (!(pass->tensors[i].flags & OUTPUT) == !outputs &&
                read_tensor(call, i, values[i], location, device))
                return -1;
    write_extents(call);
    return pass->partition_offset ? read_partition(call, values[partition], location, device) : 0;
}
