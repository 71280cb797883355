/* Inspects a call's tensors: decides whether the call may go to the kernels directly, and returns
 * the types and sizes from which its operator's spec follows. In Python this would take a quarter
 * of a forward call's time. */
#include "native.h"

/* In the order of watch()'s arguments. */
enum {
    TENSOR,         /* types of plain tensors */
    PARAMETER,      /* likewise */
    DISPATCH_MODES, /* () -> the number of active ones */
    FUNCTORCH,      /* () -> an interpreter or None */
    PROFILER,       /* a module with _is_profiler_enabled */
    FORWARD_MODE,   /* a module with _current_level, -1: none */
    WATCHED
};

static PyObject *watched[WATCHED];
static PyObject *name_profiling, *name_level;

PyObject *watch(PyObject *module, PyObject *const *values, Py_ssize_t count) {
    (void)module;
    if (count != WATCHED)
        return PyErr_Format(PyExc_TypeError, "watch takes %d arguments", (int)WATCHED);
    name_profiling = PyUnicode_InternFromString("_is_profiler_enabled");
    name_level = PyUnicode_InternFromString("_current_level");
    if (!name_profiling || !name_level)
        return NULL;
    for (int i = 0; i < WATCHED; i++) {
        Py_INCREF(values[i]); /* kept forever */
        watched[i] = values[i];
    }
    Py_RETURN_NONE;
}

/* The value as a number; takes over the reference. -1 with an exception. */
static long number_of(PyObject *value) {
    const long number = value ? PyLong_AsLong(value) : -1;
    Py_XDECREF(value);
    return number;
}

/* Whether no dispatch mode, transform, profiler or forward-mode AD is active. -1 with an
 * exception. */
static int is_quiet(void) {
    if (number_of(PyObject_CallNoArgs(watched[DISPATCH_MODES])) != 0)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *interpreter = PyObject_CallNoArgs(watched[FUNCTORCH]);
    Py_XDECREF(interpreter);
    if (interpreter != Py_None)
        return interpreter ? 0 : -1;
    if (number_of(PyObject_GetAttr(watched[PROFILER], name_profiling)) != 0)
        return PyErr_Occurred() ? -1 : 0;
    const long level = number_of(PyObject_GetAttr(watched[FORWARD_MODE], name_level));
    return PyErr_Occurred() ? -1 : level < 0;
}

static int append(PyObject *key, Py_ssize_t *length, PyObject *item) {
    return item ? PyTuple_SetItem(key, (*length)++, item) : -1;
}

/* Fills in the device and the types and last sizes of the tensors in the key. -1 with an
 * exception. */
static int fill_key(PyObject *key, const char *counts, PyObject *const *tensors, PyObject *names,
                    Py_ssize_t count) {
    Py_ssize_t length = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        struct view view;
        if (counts[i] == NOT_IN_KEY)
            continue;
        const char *name = names == Py_None
                               ? "a tensor"
                               : PyUnicode_AsUTF8AndSize(PyTuple_GetItem(names, i), NULL);
        if (!name || tensor_view(tensors[i], name, &view))
            return -1;
        if (view.location == ELSEWHERE || view.dims < counts[i]) {
            PyErr_Format(PyExc_ValueError, "smelt: %s has too few dimensions or is not on a GPU",
                         name);
            return -1;
        }
        if (length == 1 &&
            PyTuple_SetItem(key, 0, PyLong_FromLong(view.location == ON_CUDA ? view.device : -1)))
            return -1;
        if (append(key, &length, type_of(tensors[i], view.element)))
            return -1;
        for (int size = counts[i]; size > 0; size--)
            if (append(key, &length, PyLong_FromLongLong(view.sizes[view.dims - size])))
                return -1;
    }
    return 0;
}

/* look(counts, arguments, names): the key of a call's operator; None: PyTorch intercepts the call,
 * or a tensor is not a plain one with memory. counts: a byte per tensor, the number of its last
 * sizes in the key. names: None, or the arguments' names; then the result is a key or an
 * exception. */
PyObject *look(PyObject *module, PyObject *const *values, Py_ssize_t count) {
    char *counts;
    Py_ssize_t tensors, length = 1;
    PyObject *given[MAX_TENSORS];
    (void)module;
    PyObject *const names = count == 3 ? values[2] : NULL;
    if (!names || PyBytes_AsStringAndSize(values[0], &counts, &tensors) || tensors > MAX_TENSORS ||
        !PyTuple_Check(values[1]) || PyTuple_Size(values[1]) < tensors ||
        (names != Py_None && (!PyTuple_Check(names) || PyTuple_Size(names) < tensors)))
        return PyErr_Format(PyExc_TypeError, "look takes bytes, a tuple, and None or names");
    const int always = names != Py_None, quiet = always ? 1 : watched[0] ? is_quiet() : 0;
    if (quiet < 0)
        return NULL;
    if (!quiet)
        Py_RETURN_NONE;
    for (Py_ssize_t i = 0; i < tensors; i++) {
        given[i] = PyTuple_GetItem(values[1], i);
        PyObject *const type = (PyObject *)Py_TYPE(given[i]);
        if (!always && type != watched[TENSOR] && type != watched[PARAMETER] &&
            (given[i] != Py_None || counts[i] != NOT_IN_KEY))
            Py_RETURN_NONE;
        length += counts[i] == NOT_IN_KEY ? 0 : 1 + counts[i];
    }
    PyObject *key = PyTuple_New(length);
    if (key && fill_key(key, counts, given, names, tensors) == 0)
        return key;
    Py_XDECREF(key);
    if (always)
        return NULL;
    PyErr_Clear();
    Py_RETURN_NONE;
}
