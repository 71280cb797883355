/* A tensor's address, shape, strides, element type and device; new tensors. */
#include <string.h>

#include "dlpack.h"
#include "native.h"

static PyObject *tensor_type; /* torch.Tensor */
static PyObject *dtypes[OTHER_ELEMENT];
static PyObject *maker; /* (tensor, sizes, dtype) -> tensor */
/* (sizes, strides, dtype) -> tensor, by location; NULL: this PyTorch has none. The one for GPUs
 * uses the current device, current_device(). */
static PyObject *makers[ELSEWHERE], *current_device;
static PyObject *stream_of; /* (device) -> address of a stream */
/* (tensor) -> address, sizes, strides, dtype, enum location, device's number */
static PyObject *viewer;
static const struct dlpack_exchange *exchange;

static const struct {
    const char *name;
    size_t bytes;
} elements[] = {
    [BF16] = {"torch.bfloat16", 2}, [FP32] = {"torch.float32", 4},
    [INT32] = {"torch.int32", 4},   [E4M3] = {"torch.float8_e4m3fn", 1},
    [UINT8] = {"torch.uint8", 1},   [OTHER_ELEMENT] = {"another type", 1},
};

const char *element_name(enum element element) {
    return elements[element].name;
}

size_t element_bytes(enum element element) {
    return elements[element].bytes;
}

/* ---- through the exchange interface ---------------------------------------------------------- */

static enum element element_of(struct dlpack_type type) {
    if (type.lanes != 1)
        return OTHER_ELEMENT;
    switch (type.code) {
    case DLPACK_BFLOAT:
        return type.bits == 16 ? BF16 : OTHER_ELEMENT;
    case DLPACK_FLOAT:
        return type.bits == 32 ? FP32 : OTHER_ELEMENT;
    case DLPACK_INT:
        return type.bits == 32 ? INT32 : OTHER_ELEMENT;
    case DLPACK_UINT:
        return type.bits == 8 ? UINT8 : OTHER_ELEMENT;
    case DLPACK_E4M3FN:
        return E4M3;
    default:
        return OTHER_ELEMENT;
    }
}

static int too_many_dims(const char *name, int dims) {
    PyErr_Format(PyExc_ValueError, "smelt: %s has %d dimensions, more than any argument", name,
                 dims);
    return -1;
}

static int view_by_exchange(PyObject *object, const char *name, struct view *view) {
    struct dlpack_tensor tensor = {0};
    if (exchange->view(object, &tensor))
        return -1;
    if (tensor.dims > MAX_DIMS)
        return too_many_dims(name, tensor.dims);
    view->data = tensor.data ? (char *)tensor.data + tensor.byte_offset : NULL;
    view->dims = tensor.dims;
    for (int i = 0; i < tensor.dims; i++) {
        view->sizes[i] = tensor.sizes[i];
        view->strides[i] = tensor.strides[i];
    }
    view->element = element_of(tensor.type);
    view->location = tensor.device.type == DLPACK_CPU    ? ON_CPU
                     : tensor.device.type == DLPACK_CUDA ? ON_CUDA
                                                         : ELSEWHERE;
    view->device = tensor.device.index;
    return 0;
}

/* ---- through a function, before PyTorch 2.10 -------------------------------------------------- */

static int read_sizes(PyObject *tuple, int count, int64_t *values) {
    for (int i = 0; i < count; i++)
        values[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    return PyErr_Occurred() ? -1 : 0;
}

static int read_int(PyObject *number, long long *value) {
    if (!number)
        return -1;
    *value = (long long)PyLong_AsUnsignedLongLongMask(number);
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

static int view_by_function(PyObject *object, const char *name, struct view *view) {
    PyObject *sizes, *strides, *dtype, *found = PyObject_CallFunctionObjArgs(viewer, object, NULL);
    unsigned long long address;
    int location, failed = -1;
    if (!found || !PyArg_ParseTuple(found, "KO!O!Oii", &address, &PyTuple_Type, &sizes,
                                    &PyTuple_Type, &strides, &dtype, &location, &view->device))
        goto out;
    view->data = (void *)(uintptr_t)address;
    view->dims = (int)PyTuple_Size(sizes);
    view->location = (enum location)location;
    if (view->dims > MAX_DIMS)
        failed = too_many_dims(name, view->dims);
    else if (!read_sizes(sizes, view->dims, view->sizes))
        failed = read_sizes(strides, view->dims, view->strides);
    view->element = OTHER_ELEMENT;
    for (int i = 0; i < OTHER_ELEMENT; i++)
        if (dtype == dtypes[i])
            view->element = (enum element)i;
out:
    Py_XDECREF(found);
    return failed;
}

/* ---- both ------------------------------------------------------------------------------------ */

int tensor_view(PyObject *object, const char *name, struct view *view) {
    const int known = (PyObject *)Py_TYPE(object) == tensor_type ||
                      (tensor_type ? PyObject_IsInstance(object, tensor_type) : 0);
    if (known < 0)
        return -1;
    if (!known) {
        PyErr_Format(PyExc_TypeError, "smelt: %s must be a torch.Tensor, not %R", name,
                     (PyObject *)Py_TYPE(object));
        return -1;
    }
    return exchange ? view_by_exchange(object, name, view) : view_by_function(object, name, view);
}

PyObject *type_of(PyObject *tensor, enum element element) {
    if (element == OTHER_ELEMENT)
        return PyObject_GetAttrString(tensor, "dtype");
    Py_INCREF(dtypes[element]);
    return dtypes[element];
}

int current_stream(int device, struct CUstream_st **stream) {
    void *address = NULL;
    long long number = 0;
    if (exchange) {
        if (exchange->current_stream(DLPACK_CUDA, device, &address))
            return -1;
    } else {
        if (read_int(PyObject_CallFunction(stream_of, "i", device), &number))
            return -1;
        address = (void *)(uintptr_t)number;
    }
    *stream = address;
    return 0;
}

/* ---- new tensors ----------------------------------------------------------------------------- */

static PyObject *tuple_of(const int64_t *values, int count) {
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(values[i]);
        if (!number || PyTuple_SetItem(tuple, i, number))
            Py_CLEAR(tuple);
    }
    return tuple;
}

PyObject *quick_maker(enum location location, int device) {
    PyObject *found = location == ELSEWHERE ? NULL : makers[location];
    if (!found || location == ON_CPU)
        return found;
    long long current;
    if (read_int(PyObject_CallNoArgs(current_device), &current)) {
        PyErr_Clear();
        return NULL;
    }
    return current == device ? found : NULL;
}

/* A cache of sizes and strides of contiguous tensors as tuples, which are the same in every
 * training step. */
struct kept_shape {
    int dims;
    int64_t sizes[MAX_DIMS];
    PyObject *tuples[2]; /* sizes, strides; NULL: a free entry */
};

/* New references to both. -1 with an exception. */
static int shape_tuples(const struct view *shape, PyObject *tuples[2]) {
    enum { BITS = 6 };
    static struct kept_shape all[1 << BITS];
    const size_t bytes = (size_t)shape->dims * sizeof *shape->sizes;
    uint64_t hash = (uint64_t)shape->dims;
    for (int i = 0; i < shape->dims; i++)
        hash = (hash ^ (uint64_t)shape->sizes[i]) * UINT64_C(0x9e3779b97f4a7c15);
    struct kept_shape *kept = &all[hash >> (64 - BITS)];
    if (!kept->tuples[0] || kept->dims != shape->dims ||
        memcmp(kept->sizes, shape->sizes, bytes) != 0) {
        int64_t steps[MAX_DIMS], step = 1;
        for (int i = shape->dims; i-- > 0; step *= shape->sizes[i] > 1 ? shape->sizes[i] : 1)
            steps[i] = step;
        PyObject *sizes = tuple_of(shape->sizes, shape->dims);
        PyObject *strides = sizes ? tuple_of(steps, shape->dims) : NULL;
        if (!strides) {
            Py_XDECREF(sizes);
            return -1;
        }
        Py_XDECREF(kept->tuples[0]);
        Py_XDECREF(kept->tuples[1]);
        kept->tuples[0] = sizes;
        kept->tuples[1] = strides;
        kept->dims = shape->dims;
        memcpy(kept->sizes, shape->sizes, bytes);
    }
    for (int i = 0; i < 2; i++) { /* another thread may replace the entry while the tensor is
                                     made */
        Py_INCREF(kept->tuples[i]);
        tuples[i] = kept->tuples[i];
    }
    return 0;
}

PyObject *make_tensor(PyObject *like, PyObject *quick, const struct view *shape) {
    PyObject *const dtype = dtypes[shape->element];
    PyObject *tuples[2];
    if (shape_tuples(shape, tuples))
        return NULL;
    PyObject *made = quick ? PyObject_CallFunctionObjArgs(quick, tuples[0], tuples[1], dtype, NULL)
                           : PyObject_CallFunctionObjArgs(maker, like, tuples[0], dtype, NULL);
    Py_DECREF(tuples[0]);
    Py_DECREF(tuples[1]);
    return made;
}

/* The exchange interface of a tensor type; NULL: none of a known version. */
static const struct dlpack_exchange *find_exchange(PyObject *type) {
    PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    const struct dlpack_exchange *found = NULL;
    if (capsule)
        found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    PyErr_Clear();
    Py_XDECREF(capsule);
    while (found && found->version.major != DLPACK_MAJOR)
        found = found->previous;
    return found && found->view && found->current_stream ? found : NULL;
}

/* Keeps setup's makers: (for the CPU, for a GPU, current device), each a function or None. */
static void keep_makers(PyObject *given) {
    PyObject *const cpu = PyTuple_GetItem(given, 0), *const cuda = PyTuple_GetItem(given, 1);
    current_device = PyTuple_GetItem(given, 2);
    makers[ON_CPU] = cpu == Py_None ? NULL : cpu;
    makers[ON_CUDA] = cuda == Py_None || current_device == Py_None ? NULL : cuda;
}

PyObject *setup(PyObject *module, PyObject *args) {
    PyObject *type, *types, *make, *at_once, *stream, *view;
    int use_exchange = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!OO!OO|p:setup", &type, &PyTuple_Type, &types, &make,
                          &PyTuple_Type, &at_once, &stream, &view, &use_exchange))
        return NULL;
    if (PyTuple_Size(types) != OTHER_ELEMENT || PyTuple_Size(at_once) != 3)
        return PyErr_Format(PyExc_ValueError, "setup: %d element types and 3 makers are needed",
                            (int)OTHER_ELEMENT);
    Py_INCREF(type);
    Py_INCREF(types); /* kept with the objects that they refer to */
    Py_INCREF(at_once);
    Py_INCREF(make);
    Py_INCREF(stream);
    Py_INCREF(view);
    tensor_type = type;
    for (int i = 0; i < OTHER_ELEMENT; i++)
        dtypes[i] = PyTuple_GetItem(types, i);
    maker = make;
    keep_makers(at_once);
    stream_of = stream;
    viewer = view;
    exchange = use_exchange ? find_exchange(type) : NULL;
    return PyBool_FromLong(exchange != NULL);
}
