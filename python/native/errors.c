/* Converts errors to Python exceptions. */
#include "native.h"

int exiting;

PyObject *raise_status(smelt_status status) {
    PyObject *type = PyExc_RuntimeError;
    if (status == SMELT_ERROR_INVALID_ARGUMENT || status == SMELT_ERROR_INVALID_SPEC)
        type = PyExc_ValueError;
    else if (status == SMELT_ERROR_OUT_OF_MEMORY)
        type = PyExc_MemoryError;
    PyErr_Format(type, "smelt: %s", smelt_last_error());
    return NULL;
}
