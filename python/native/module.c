/* The module smelt_kernels._native. */
#include "emu/emulator.h"
#include "native.h"

static PyObject *version(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return PyUnicode_FromString(smelt_version());
}

/* Whether the emulator is the driver; tensors are then CPU tensors. */
static PyObject *emulated(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    return PyBool_FromLong(emulator() != NULL);
}

/* emulate(major, minor): the compute capability of the device of later contexts. */
static PyObject *emulate(PyObject *module, PyObject *args) {
    struct emu_settings settings = {.size = sizeof settings};
    const struct emu_interface *emu = emulator();
    (void)module;
    if (!PyArg_ParseTuple(args, "ii:emulate", &settings.major, &settings.minor))
        return NULL;
    if (!emu) {
        PyErr_SetString(PyExc_RuntimeError, "smelt: SMELT_CUDA does not name the emulator");
        return NULL;
    }
    emu->configure(&settings);
    Py_RETURN_NONE;
}

/* At the interpreter's exit: nothing is unloaded, since launches may be running. */
static PyObject *leave(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    exiting = 1;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"setup", setup, METH_VARARGS,
     "setup(tensor type, dtypes, make, make at once, stream, view[, exchange])"},
    {"describe", describe, METH_O,
     "describe(operator): the tensors and scalars of each pass, as native.h says."},
    {"watch", (PyCFunction)(void (*)(void))watch, METH_FASTCALL,
     "watch(..): PyTorch's functions that decide whether a call may go directly, in look.c's "
     "order."},
    {"look", (PyCFunction)(void (*)(void))look, METH_FASTCALL,
     "look(counts, arguments, names): the key of a call's operator, or None."},
    {"version", version, METH_NOARGS, "The library's version."},
    {"emulated", emulated, METH_NOARGS, "Whether kernels run on the emulator, on CPU tensors."},
    {"emulate", emulate, METH_VARARGS, "emulate(major, minor): the compute capability to emulate."},
    {"leave", leave, METH_NOARGS, "Called at the interpreter's exit."},
    {"pause_emulator", pause_emulator, METH_NOARGS,
     "Called before a fork: waits for emulated calls."},
    {"resume_emulator", resume_emulator, METH_NOARGS, "Called after a fork, in both processes."},
    {0}};

/* Adds `object` to the module; NULL with an exception fails. */
static int add(PyObject *module, const char *name, PyObject *object) {
    return object ? PyModule_AddObjectRef(module, name, object) : -1;
}

PyMODINIT_FUNC PyInit__native(void); /* Python looks this name up */

PyMODINIT_FUNC PyInit__native(void) {
    static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                            "smelt_kernels._native",
                                            "The C API of smelt.",
                                            -1,
                                            functions,
                                            0,
                                            0,
                                            0,
                                            0};
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    context_type = make_context_type();
    operator_type = make_operator_type();
    if (add(module, "Context", context_type) || add(module, "Operator", operator_type) ||
        PyModule_AddFunctions(module, spec_functions))
        Py_CLEAR(module);
    return module;
}
