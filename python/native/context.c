/* Contexts; specs, presets and their kernels. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "emu/emulator.h"
#include "native.h"

PyObject *context_type;

const struct emu_interface *emulator(void) {
    static const struct emu_interface *interface;
    static int searched;
    const char *path = getenv("SMELT_CUDA");
    if (!searched && path && *path) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        void *symbol = library ? dlsym(library, "emu_get") : NULL;
        emu_get_function get;
        if (symbol) {
            memcpy(&get, &symbol, sizeof get); /* POSIX: a function's address */
            interface = get();
        }
    }
    searched = 1;
    return interface;
}

/* ---- contexts -------------------------------------------------------------------------------- */

/* Writes to the logger `smelt` of Python's logging; `level` is smelt's. */
static void write_log(void *logger, smelt_log_level level, const char *message) {
    static const int levels[] = {0, 40, 30, 20, 10};
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *done =
        exiting ? NULL : PyObject_CallMethod(logger, "log", "iss", levels[level], "%s", message);
    if (!done)
        PyErr_Clear();
    Py_XDECREF(done);
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(state);
}

static PyObject *get_logger(void) {
    PyObject *logging = PyImport_ImportModule("logging");
    PyObject *logger = logging ? PyObject_CallMethod(logging, "getLogger", "s", "smelt") : NULL;
    Py_XDECREF(logging);
    return logger; /* kept forever, as in logging itself */
}

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"device", "arch", "nvrtc", NULL};
    smelt_context_options options = SMELT_CONTEXT_OPTIONS_INIT;
    int device = -1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|izz:Context", names, &device, &options.arch,
                                     &options.nvrtc_path))
        return NULL;
    options.kind = options.arch ? SMELT_CONTEXT_COMPILE_ONLY : SMELT_CONTEXT_DEVICE;
    options.device = options.arch ? 0 : device;
    options.log = write_log;
    if (!(options.log_user = get_logger()))
        return NULL;
    struct context_object *self = (struct context_object *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->location = emulator() ? ON_CPU : ON_CUDA;
    self->device = options.device;
    smelt_status status;
    Py_BEGIN_ALLOW_THREADS status = smelt_context_create(&self->context, &options);
    Py_END_ALLOW_THREADS if (status) {
        raise_status(status);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void destroy(PyObject *object) {
    struct context_object *self = (struct context_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (!exiting)
        smelt_context_destroy(&self->context);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* supported(spec): "" or the reason why not. */
static PyObject *supported(PyObject *object, PyObject *args) {
    const struct context_object *self = (struct context_object *)object;
    const char *spec, *why = "";
    if (!PyArg_ParseTuple(args, "s:supported", &spec))
        return NULL;
    const smelt_status status = smelt_operator_supported(self->context, spec, &why);
    return PyUnicode_FromString(status == SMELT_OK || *why ? why : smelt_last_error());
}

static PyObject *arch(PyObject *object, PyObject *ignored) {
    (void)ignored;
    return PyUnicode_FromString(smelt_context_arch(((struct context_object *)object)->context));
}

/* The function that smelt_spec_expand calls: appends a text to a list of Python. */
static int append(void *list, const char *text) {
    PyObject *item = PyUnicode_FromString(text);
    const int failed = !item || PyList_Append(list, item);
    Py_XDECREF(item);
    return failed;
}

/* Returns `list` if the status is OK, else raises an exception. */
static PyObject *finish_list(PyObject *list, smelt_status status) {
    if (status == SMELT_OK)
        return list;
    Py_DECREF(list);
    return PyErr_Occurred() ? NULL : raise_status(status);
}

static PyObject *kernels(PyObject *object, PyObject *args) {
    const char *spec;
    if (!PyArg_ParseTuple(args, "s:kernels", &spec))
        return NULL;
    const smelt_context *const context = ((struct context_object *)object)->context;
    PyObject *list = PyList_New(0);
    return list ? finish_list(list, smelt_spec_expand(context, spec, NULL, append, list)) : NULL;
}

static PyObject *plan(PyObject *object, PyObject *args) {
    const char *spec;
    char *text;
    if (!PyArg_ParseTuple(args, "s:plan", &spec))
        return NULL;
    const smelt_status status =
        smelt_kernel_plan(((struct context_object *)object)->context, spec, NULL, 1, &text);
    if (status)
        return raise_status(status);
    PyObject *made = PyUnicode_FromString(text);
    smelt_free(text);
    return made;
}

static PyObject *counters(PyObject *object, PyObject *ignored) {
    smelt_context_info count = SMELT_CONTEXT_INFO_INIT;
    (void)ignored;
    smelt_status status =
        smelt_context_get_info(((struct context_object *)object)->context, &count);
    if (status)
        return raise_status(status);
    return Py_BuildValue("{sKsKsKsKsK}", "cache_hits", (unsigned long long)count.cache_hits,
                         "cache_misses", (unsigned long long)count.cache_misses, "cache_errors",
                         (unsigned long long)count.cache_errors, "compiled",
                         (unsigned long long)count.compiled, "loaded",
                         (unsigned long long)count.loaded);
}

PyObject *kernel_dict(const smelt_kernel_info *info) {
    static const char *const states[] = {"failed", "cached", "compiled", "awaited"};
    return Py_BuildValue("{sssssssssssdsdsisisisn}", "spec", info->spec, "arch", info->arch,
                         "kernel", info->kernel, "state", states[info->state], "error", info->error,
                         "seconds", info->seconds, "compile_seconds", info->compile_seconds,
                         "registers", info->registers, "spill_bytes", info->spill_bytes,
                         "shared_bytes", info->static_shared_bytes + info->dynamic_shared_bytes,
                         "cubin_bytes", (Py_ssize_t)info->cubin_bytes);
}

/* A Python function, and the exception that it raised. */
struct progress {
    PyObject *function, *type, *value, *traceback;
};

/* Calls progress(done, total, kernel) in Python. An exception stops the work, and prepare() raises
 * it. */
static int call_progress(void *user, size_t done, size_t total, const smelt_kernel_info *info) {
    struct progress *const progress = user;
    if (info->state == SMELT_KERNEL_AWAITED)
        return 0;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = PyObject_CallFunction(progress->function, "nns", (Py_ssize_t)done,
                                             (Py_ssize_t)total, info->spec);
    const int stop = result == NULL;
    if (stop && !progress->type)
        PyErr_Fetch(&progress->type, &progress->value, &progress->traceback);
    else if (stop)
        PyErr_Clear();
    Py_XDECREF(result);
    PyGILState_Release(state);
    return stop;
}

static PyObject *kernel_list(const smelt_kernel_info *infos, Py_ssize_t count) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *item = kernel_dict(&infos[i]);
        if (!item || PyList_SetItem(list, i, item))
            Py_CLEAR(list);
    }
    return list;
}

/* prepare(kernels, jobs, progress): compiles kernels into the cache; returns a list of dicts. */
static PyObject *prepare(PyObject *object, PyObject *args) {
    const struct context_object *self = (struct context_object *)object;
    PyObject *kernels, *list = NULL;
    struct progress progress = {.function = Py_None};
    int jobs = 0;
    if (!PyArg_ParseTuple(args, "O!|iO:prepare", &PyTuple_Type, &kernels, &jobs,
                          &progress.function))
        return NULL;
    const Py_ssize_t count = PyTuple_Size(kernels);
    smelt_kernel_request *requests = calloc((size_t)count + 1, sizeof *requests);
    smelt_kernel_info *infos = calloc((size_t)count + 1, sizeof *infos);
    if (!requests || !infos) {
        PyErr_NoMemory();
        goto out;
    }
    requests[0].size = sizeof *requests;
    infos[0].size = sizeof *infos;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!(requests[i].spec = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(kernels, i), NULL)))
            goto out;
    smelt_status status;
    Py_BEGIN_ALLOW_THREADS status = smelt_kernels_prepare(
        self->context, requests, (size_t)count, jobs,
        progress.function == Py_None ? NULL : call_progress, &progress, infos);
    Py_END_ALLOW_THREADS if (progress.type)
        PyErr_Restore(progress.type, progress.value, progress.traceback);
    else if (status) raise_status(status);
    else list = kernel_list(infos, count);
out:
    free(requests);
    free(infos);
    return list;
}

PyObject *make_context_type(void) {
    static PyMethodDef methods[] = {
        {"supported", supported, METH_VARARGS, "supported(spec): \"\" or the reason why not."},
        {"arch", arch, METH_NOARGS, "The architecture that kernels are compiled for."},
        {"kernels", kernels, METH_VARARGS,
         "kernels(spec): the kernels that an operator's calls launch on this context's "
         "architecture."},
        {"plan", plan, METH_VARARGS, "plan(spec): a kernel's plan, JSON."},
        {"counters", counters, METH_NOARGS, "What the context compiled, loaded and found cached."},
        {"prepare", prepare, METH_VARARGS,
         "prepare(kernels, jobs, progress): compiles into the cache."},
        {0}};
    static PyType_Slot slots[] = {{Py_tp_new, SLOT(create)},
                                  {Py_tp_dealloc, SLOT(destroy)},
                                  {Py_tp_methods, methods},
                                  {Py_tp_doc, "A device, its compiler and its cache of kernels."},
                                  {0}};
    static PyType_Spec spec = {.name = "smelt_kernels._native.Context",
                               .basicsize = sizeof(struct context_object),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = slots};
    return PyType_FromSpec(&spec);
}

/* ---- specs and presets ----------------------------------------------------------------------- */

static PyObject *expand(PyObject *module, PyObject *args) {
    const char *spec;
    (void)module;
    if (!PyArg_ParseTuple(args, "s:expand", &spec))
        return NULL;
    PyObject *list = PyList_New(0);
    return list ? finish_list(list, smelt_spec_expand(NULL, spec, NULL, append, list)) : NULL;
}

static PyObject *preset(PyObject *module, PyObject *args) {
    const char *name;
    int tp = 1;
    unsigned passes = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "s|iI:preset", &name, &tp, &passes))
        return NULL;
    PyObject *list = PyList_New(0);
    return list ? finish_list(list, smelt_preset_expand(name, tp, passes, append, list)) : NULL;
}

static PyObject *presets(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    PyObject *list = PyList_New(0);
    return list ? finish_list(list, smelt_list(SMELT_LIST_PRESETS, append, list)) : NULL;
}

static PyObject *canonical(PyObject *module, PyObject *args) {
    const char *spec;
    char *text;
    (void)module;
    if (!PyArg_ParseTuple(args, "s:canonical", &spec))
        return NULL;
    smelt_status status = smelt_spec_canonical(spec, &text);
    if (status)
        return raise_status(status);
    PyObject *result = PyUnicode_FromString(text);
    smelt_free(text);
    return result;
}

PyMethodDef spec_functions[] = {
    {"expand", expand, METH_VARARGS, "expand(spec): an operator's kernels for all architectures."},
    {"preset", preset, METH_VARARGS, "preset(name, tp, passes): the operators that a model needs."},
    {"presets", presets, METH_NOARGS, "The names of the presets."},
    {"canonical", canonical, METH_VARARGS, "canonical(spec): the spec as every tool prints it."},
    {0}};
