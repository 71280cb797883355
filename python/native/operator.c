/* Configured operators and their calls. */
#include <stdio.h>
#include <string.h>

#include "emu/emulator.h"
#include "native.h"

PyObject *operator_type;

struct operator_object {
    PyObject_HEAD struct context_object *context;
    struct passes *passes;
    smelt_operator *handle;
};

/* ---- the emulator's memory --------------------------------------------------------------------
 * Its device memory is the host's, of which it must know what belongs to tensors. One call at a
 * time. */

static PyThread_type_lock emulated_call;

static int lend_tensor(const struct emu_interface *emu, const struct tensor_argument *argument,
                       const struct view *view) {
    int64_t last = 0; /* offset of the last element */
    for (int i = 0; i < view->dims; i++) {
        if (view->sizes[i] == 0)
            return 1;
        last += (view->sizes[i] - 1) * view->strides[i];
    }
    return emu->lend((uint64_t)(uintptr_t)view->data,
                     (size_t)(last + 1) * element_bytes(view->element), argument->name);
}

static int lend_bytes(const struct emu_interface *emu, const unsigned char *args, size_t pointer,
                      size_t size, const char *name) {
    void *data;
    size_t bytes;
    memcpy(&data, args + pointer, sizeof data);
    memcpy(&bytes, args + size, sizeof bytes);
    return !data || !bytes || emu->lend((uint64_t)(uintptr_t)data, bytes, name);
}

/* Registers a call's buffers with the emulator. NULL, or the name of a buffer that cannot be
 * registered. */
static const char *lend_buffers(const struct emu_interface *emu, const struct call *call) {
    const struct pass *pass = call->pass;
    const unsigned char *args = call->args.bytes;
    for (int i = 0; i < pass->tensor_count; i++)
        if (call->given[i] && !lend_tensor(emu, &pass->tensors[i], &call->views[i]))
            return pass->tensors[i].name;
    if (pass->workspace_offset &&
        !lend_bytes(emu, args, pass->workspace_offset, pass->workspace_size, "workspace"))
        return "workspace";
    if (pass->partition_offset &&
        !lend_bytes(emu, args, pass->partition_offset, pass->partition_size, "partition"))
        return "partition";
    return NULL;
}

/* Before a fork: waits until no other thread is in an emulated call, so that the child finds the emulator
 * and its lock free. Releases the interpreter's lock while it waits: the other thread needs it to log. */
PyObject *pause_emulator(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    Py_BEGIN_ALLOW_THREADS PyThread_acquire_lock(emulated_call, WAIT_LOCK);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

PyObject *resume_emulator(PyObject *module, PyObject *ignored) {
    (void)module, (void)ignored;
    PyThread_release_lock(emulated_call);
    Py_RETURN_NONE;
}

enum { PROBLEM = 8192 };

/* `problem`: "", or an error that the library's message does not contain. */
static smelt_status launch_emulated(const struct operator_object *self, const struct call *call,
                                    char problem[PROBLEM]) {
    const struct emu_interface *emu = emulator();
    smelt_status status = SMELT_ERROR_OUT_OF_MEMORY;
    problem[0] = '\0';
    PyThread_acquire_lock(emulated_call, WAIT_LOCK);
    emu->clear();
    const char *missing = lend_buffers(emu, call);
    if (missing)
        snprintf(problem, PROBLEM,
                 "smelt: the emulator cannot map memory to keep track of accesses to %s (it needs "
                 "24 times the tensor's size of address space): raise the limit of the "
                 "process's address space (ulimit -v), or call with smaller tensors",
                 missing);
    else
        status = smelt_operator_launch(self->handle, call->pass->which, &call->args, NULL);
    if (status && !missing && emu->report_count() > 0)
        snprintf(problem, PROBLEM, "%s\nThe emulator found: %s", smelt_last_error(),
                 emu->report(0).text);
    emu->take_back();
    PyThread_release_lock(emulated_call);
    return status;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Allocates the call's workspace and puts it into its args. *workspace: a new reference; NULL: none
 * is needed. -1 with an exception. */
static int add_workspace(const struct operator_object *self, struct call *call,
                         PyObject **workspace) {
    const struct pass *pass = call->pass;
    /* PyTorch's allocators align to 512 bytes on a GPU, 64 on the host. */
    const size_t missing = self->context->location == ON_CUDA || pass->workspace_alignment <= 64
                               ? 0
                               : pass->workspace_alignment - 1;
    struct view view;
    size_t bytes = 0;
    *workspace = NULL;
    const smelt_status status =
        pass->workspace_offset
            ? smelt_operator_workspace(self->handle, pass->which, &call->args, &bytes)
            : SMELT_OK;
    if (status) {
        raise_status(status);
        return -1;
    }
    if (bytes == 0)
        return 0;
    const struct view shape = {.dims = 1, .sizes = {(int64_t)(bytes + missing)}, .element = UINT8};
    *workspace = make_tensor(call->like, call->quick, &shape);
    if (!*workspace || tensor_view(*workspace, "workspace", &view)) {
        Py_CLEAR(*workspace);
        return -1;
    }
    void *data = (char *)view.data + -(uintptr_t)view.data % pass->workspace_alignment;
    memcpy(call->args.bytes + pass->workspace_offset, &data, sizeof data);
    memcpy(call->args.bytes + pass->workspace_size, &bytes, sizeof bytes);
    return 0;
}

/* Allocates and launches. *workspace: as for add_workspace. */
static int launch(const struct operator_object *self, struct call *call, PyObject **workspace) {
    struct CUstream_st *stream = NULL;
    const struct context_object *context = self->context;
    char problem[PROBLEM] = "";
    smelt_status status;
    if (add_workspace(self, call, workspace))
        return -1;
    if (context->location == ON_CUDA && current_stream(context->device, &stream))
        goto failed;
    Py_BEGIN_ALLOW_THREADS status =
        context->location == ON_CPU
            ? launch_emulated(self, call, problem)
            : smelt_operator_launch(self->handle, call->pass->which, &call->args, stream);
    Py_END_ALLOW_THREADS if (status == SMELT_OK) return 0;
    if (problem[0])
        PyErr_SetString(
            status == SMELT_ERROR_OUT_OF_MEMORY ? PyExc_MemoryError : PyExc_RuntimeError, problem);
    else
        raise_status(status);
failed:
    Py_CLEAR(*workspace);
    return -1;
}

static PyObject *none(void) {
    Py_INCREF(Py_None);
    return Py_None;
}

/* A call's result: an entry for each output, the tensor that it made or None, then its workspace, a
 * tensor of bytes or None. Takes over the references. */
static PyObject *result_of(struct call *call, PyObject *workspace) {
    const struct pass *const pass = call->pass;
    PyObject *all = PyTuple_New(pass->output_count + 1);
    int count = 0;
    if (!all) {
        Py_XDECREF(workspace);
        return NULL;
    }
    for (int i = 0; i < pass->tensor_count; i++)
        if (pass->tensors[i].flags & OUTPUT) {
            PyTuple_SetItem(all, count++, call->made[i] ? call->made[i] : none());
            call->made[i] = NULL;
        }
    PyTuple_SetItem(all, count, workspace ? workspace : none());
    return all;
}

static PyObject *run(PyObject *object, int which, PyObject *const *given, Py_ssize_t count,
                     PyObject *keywords) {
    const struct operator_object *const self = (struct operator_object *)object;
    const struct context_object *context = self->context;
    PyObject *values[MAX_VALUES], *workspace, *result = NULL;
    struct call call;
    call.pass = &self->passes->of[which];
    if (!call.pass->which)
        return PyErr_Format(PyExc_RuntimeError, "smelt: this operator has no %s pass",
                            which == 0 ? "forward" : "backward");
    if (sort_arguments(call.pass, given, count, keywords, values))
        return NULL;
    if (read_arguments(&call, values, context->location, context->device) == 0 &&
        launch(self, &call, &workspace) == 0)
        result = result_of(&call, workspace);
    for (int i = 0; i < call.pass->tensor_count; i++)
        Py_XDECREF(call.made[i]);
    while (call.copy_count > 0)
        Py_DECREF(call.copies[--call.copy_count]);
    return result;
}

static PyObject *forward(PyObject *self, PyObject *const *given, Py_ssize_t count,
                         PyObject *keywords) {
    return run(self, 0, given, count, keywords);
}

static PyObject *backward(PyObject *self, PyObject *const *given, Py_ssize_t count,
                          PyObject *keywords) {
    return run(self, 1, given, count, keywords);
}

/* kernels(): a dict for each kernel, by pass and in launch order. */
static PyObject *kernels(PyObject *object, PyObject *ignored) {
    const struct operator_object *const self = (struct operator_object *)object;
    PyObject *list = PyList_New(0);
    (void)ignored;
    for (int which = 0; list && which < 2; which++) {
        const enum smelt_pass pass = which == 0 ? SMELT_PASS_FORWARD : SMELT_PASS_BACKWARD;
        smelt_kernel_info info = SMELT_KERNEL_INFO_INIT;
        for (int i = 0; smelt_operator_get_kernel_info(self->handle, pass, i, &info) == SMELT_OK;
             i++) {
            PyObject *item = kernel_dict(&info);
            if (!item || PyList_Append(list, item))
                Py_CLEAR(list);
            Py_XDECREF(item);
            if (!list)
                break;
        }
    }
    return list;
}

/* ---- the type -------------------------------------------------------------------------------- */

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"context", "spec", NULL};
    struct context_object *context;
    const char *spec;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!s:Operator", names, context_type, &context,
                                     &spec))
        return NULL;
    struct operator_object *self = (struct operator_object *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    Py_INCREF(context);
    self->context = context;
    smelt_status status = SMELT_OK;
    if ((self->passes = describe_passes(spec))) {
        Py_BEGIN_ALLOW_THREADS status =
            smelt_operator_create(&self->handle, context->context, spec);
        Py_END_ALLOW_THREADS
    }
    if (self->handle)
        return (PyObject *)self;
    if (status)
        raise_status(status);
    Py_DECREF(self);
    return NULL;
}

static void destroy(PyObject *object) {
    struct operator_object *self = (struct operator_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (!exiting)
        smelt_operator_destroy(&self->handle);
    free_passes(self->passes);
    Py_XDECREF(self->context);
    PyObject_Free(object);
    Py_DECREF(type);
}

PyObject *make_operator_type(void) {
    static PyMethodDef methods[] = {
        {"forward", (PyCFunction)(void (*)(void))forward, METH_FASTCALL | METH_KEYWORDS,
         "Launches the forward pass on PyTorch's current stream. True or a number instead of an "
         "output makes it. Returns an entry for each output, None where it made none, then the "
         "workspace or None."},
        {"backward", (PyCFunction)(void (*)(void))backward, METH_FASTCALL | METH_KEYWORDS,
         "The backward pass likewise."},
        {"kernels", kernels, METH_NOARGS, "A dict of each kernel, pass after pass."},
        {0}};
    static PyType_Slot slots[] = {
        {Py_tp_new, SLOT(create)},
        {Py_tp_dealloc, SLOT(destroy)},
        {Py_tp_methods, methods},
        {Py_tp_doc, "A configured operator: its kernels compiled and loaded."},
        {0}};
    static PyType_Spec spec = {.name = "smelt_kernels._native.Operator",
                               .basicsize = sizeof(struct operator_object),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = slots};
    if (!emulated_call && !(emulated_call = PyThread_allocate_lock()))
        return PyErr_NoMemory();
    return PyType_FromSpec(&spec);
}
