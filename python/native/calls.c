/*
 * Calls that were made before: found again by a look at their tensors, and launched, without
 * running Python. What a table here does not know, or what somebody watches, the package's Python
 * functions see to.
 *
 * A call with gradients goes through the `apply` of an autograd.Function, whose forward function is
 * `node_forward` below: it launches, and says what the node keeps. Its backward function is Python,
 * or for attention `node_backward`, which stands in the node's class as `apply`, where PyTorch's
 * engine looks for it.
 */
#include <string.h>

#include "native.h"

#include <structmember.h>

PyObject *known_type, *calls_type, *pending_type;

/* ---- what of PyTorch decides ----------------------------------------------------------------- */

/* The order in which watch() takes them. */
enum {
    TENSOR,         /* types of plain tensors */
    PARAMETER,      /* likewise */
    DISPATCH_MODES, /* () -> how many are active */
    FUNCTORCH,      /* () -> an interpreter or None */
    PROFILER,       /* a module, has _is_profiler_enabled */
    FORWARD_MODE,   /* a module, has _current_level, -1: none */
    GRAD_MODE,      /* () -> bool */
    DETERMINISTIC,  /* () -> bool */
    AUTOCAST,       /* () -> whether it is on anywhere */
    CASTS,          /* (tensor) -> whether it would make something else of bf16 there */
    WATCHED
};

static PyObject *watched[WATCHED];

static struct {
    PyObject *profiling, *level, *requires_grad, *saved_tensors, *to_save, *materialize_grads,
        *known;
} names;

PyObject *watch(PyObject *module, PyObject *const *values, Py_ssize_t count) {
    static const struct {
        PyObject **name;
        const char *text;
    } all[] = {
        {&names.profiling, "_is_profiler_enabled"},
        {&names.level, "_current_level"},
        {&names.requires_grad, "requires_grad"},
        {&names.saved_tensors, "saved_tensors"},
        {&names.to_save, "to_save"},
        {&names.materialize_grads, "materialize_grads"},
        {&names.known, "known"},
    };
    (void)module;
    if (count != WATCHED)
        return PyErr_Format(PyExc_TypeError, "watch takes %d arguments", (int)WATCHED);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!*all[i].name && !(*all[i].name = PyUnicode_InternFromString(all[i].text)))
            return NULL;
    for (int i = 0; i < WATCHED; i++) {
        Py_INCREF(values[i]); /* for good */
        watched[i] = values[i];
    }
    Py_RETURN_NONE;
}

/* The truth of a result; takes the reference. -1 with an exception. */
static int truth(PyObject *result) {
    const int is = result ? PyObject_IsTrue(result) : -1;
    Py_XDECREF(result);
    return is;
}

static int asked(int which) {
    return truth(PyObject_CallNoArgs(watched[which]));
}

/* Whether nobody looks into the program: no mode, transform, profiler or derivative in forward
 * mode. -1 with an exception. */
static int is_quiet(void) {
    int busy = asked(DISPATCH_MODES);
    if (busy == 0)
        busy = asked(FUNCTORCH);
    if (busy == 0)
        busy = truth(PyObject_GetAttr(watched[PROFILER], names.profiling));
    if (busy != 0)
        return busy < 0 ? -1 : 0;
    PyObject *level = PyObject_GetAttr(watched[FORWARD_MODE], names.level);
    const long number = level ? PyLong_AsLong(level) : -1;
    Py_XDECREF(level);
    return PyErr_Occurred() ? -1 : number < 0;
}

static int is_plain(PyObject *object) {
    PyObject *const type = (PyObject *)Py_TYPE(object);
    return type == watched[TENSOR] || type == watched[PARAMETER];
}

/* ---- what is known of a call ----------------------------------------------------------------- */

enum { MOST_SAVED = 16, BACKWARD_OUTPUTS = 4 };

struct known_object {
    PyObject_HEAD PyObject *operators;  /* a list: None in the place of one not made yet */
    int which, pass;                    /* of them; of its passes */
    PyObject *made, *scalars;           /* tuples: the pass's other arguments */
    PyObject *options;                  /* Python's, for what goes on there */
    int result;                         /* which output autograd knows, -1: none */
    int saved_count, saved[MOST_SAVED]; /* for the backward pass: inputs, then what the launch
                                           returned */
    /* What node_backward takes, NULL: Python's backward functions have it. */
    PyObject *gradients; /* (outputs.., dsink) of the pass's arguments */
    PyObject *backward_scalars;
    int deterministic; /* -1: as PyTorch says */
};

static int read_places(PyObject *tuple, struct known_object *known) {
    const Py_ssize_t count = PyTuple_Size(tuple);
    if (count > MOST_SAVED) {
        PyErr_SetString(PyExc_ValueError, "Known: too many are saved");
        return -1;
    }
    known->saved_count = (int)count;
    for (Py_ssize_t i = 0; i < count; i++) {
        const long place = PyLong_AsLong(PyTuple_GetItem(tuple, i));
        known->saved[i] = (int)place;
        if (place < 0 || place > MAX_VALUES) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "Known: there is no place %ld", place);
            return -1;
        }
    }
    return 0;
}

static PyObject *make_known(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *arguments[] = {"operators",     "which",  "made",  "scalars",   "options",
                                "pass_number",   "result", "saved", "gradients", "backward_scalars",
                                "deterministic", NULL};
    struct known_object given = {.options = Py_None, .result = -1, .deterministic = -1}, *self;
    PyObject *saved = NULL;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "O!iO!O!|OiiO!O!O!i:Known", arguments, &PyList_Type, &given.operators,
            &given.which, &PyTuple_Type, &given.made, &PyTuple_Type, &given.scalars, &given.options,
            &given.pass, &given.result, &PyTuple_Type, &saved, &PyTuple_Type, &given.gradients,
            &PyTuple_Type, &given.backward_scalars, &given.deterministic) ||
        (saved && read_places(saved, &given)))
        return NULL;
    if (given.pass < 0 || given.pass >= MAX_PASSES)
        return PyErr_Format(PyExc_ValueError, "Known: there is no pass %d", given.pass);
    if (!(self = (struct known_object *)PyType_GenericAlloc(type, 0)))
        return NULL;
    given.ob_base = self->ob_base;
    *self = given;
    Py_INCREF(self->operators);
    Py_INCREF(self->made);
    Py_INCREF(self->scalars);
    Py_INCREF(self->options);
    Py_XINCREF(self->gradients);
    Py_XINCREF(self->backward_scalars);
    return (PyObject *)self;
}

static void destroy_known(PyObject *object) {
    struct known_object *self = (struct known_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->operators);
    Py_XDECREF(self->made);
    Py_XDECREF(self->scalars);
    Py_XDECREF(self->options);
    Py_XDECREF(self->gradients);
    Py_XDECREF(self->backward_scalars);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Its operator, borrowed; NULL: there is none (any more). */
static PyObject *operator_of(const struct known_object *known, int which) {
    PyObject *found = PyList_GetItem(known->operators, which);
    if (!found)
        PyErr_Clear();
    return found && Py_TYPE(found) == (PyTypeObject *)operator_type ? found : NULL;
}

/* ---- the table ------------------------------------------------------------------------------- */

enum { MOST_CALLS = 4096, MOST_SIZES = 2 /* of a tensor, in the key */ };

struct calls_object {
    PyObject_HEAD PyObject *known; /* a dict: of (bytes, what was said) */
    int count;                     /* tensors of a call */
    int sizes[MAX_TENSORS];        /* how many of each one's last sizes count */
    unsigned gradients;            /* bit i: tensor i may want gradients */
    int casts;                     /* whether autocast concerns the call */
    PyObject *apply;               /* of the autograd.Function, NULL: there are no gradients */
};

static PyObject *make_calls(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *arguments[] = {"sizes", "gradients", "casts", "apply", NULL};
    PyObject *sizes, *apply = NULL;
    unsigned gradients = 0;
    int casts = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!|IpO:Calls", arguments, &PyTuple_Type,
                                     &sizes, &gradients, &casts, &apply))
        return NULL;
    const Py_ssize_t count = PyTuple_Size(sizes);
    if (count < 1 || count > MAX_TENSORS)
        return PyErr_Format(PyExc_ValueError, "Calls: 1 to %d tensors", (int)MAX_TENSORS);
    struct calls_object *self = (struct calls_object *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->count = (int)count;
    self->gradients = gradients;
    self->casts = casts;
    if (apply && apply != Py_None) {
        Py_INCREF(apply);
        self->apply = apply;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        self->sizes[i] = (int)PyLong_AsLong(PyTuple_GetItem(sizes, i));
        if (self->sizes[i] < 0 || self->sizes[i] > MOST_SIZES)
            PyErr_SetString(PyExc_ValueError, "Calls: 0 to 2 sizes of a tensor");
    }
    if (!PyErr_Occurred())
        self->known = PyDict_New();
    if (!self->known)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void destroy_calls(PyObject *object) {
    struct calls_object *self = (struct calls_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->known);
    Py_XDECREF(self->apply);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Views of all tensors, and the key. *key NULL without an exception: they are none of a call that
 * could be here. */
static int look(const struct calls_object *self, PyObject *const *values, struct view *views,
                PyObject **key) {
    int64_t words[1 + MAX_TENSORS * (1 + MOST_SIZES)];
    int count = 1;
    *key = NULL;
    for (int i = 0; i < self->count; i++) {
        struct view *view = &views[i];
        if (values[i] == Py_None && i > 0) {
            words[count++] = -1;
            continue;
        }
        if (!is_plain(values[i]))
            return 0;
        if (tensor_view(values[i], "a tensor", view)) {
            PyErr_Clear(); /* Python says it with the tensor's name */
            return 0;
        }
        if (i == 0)
            words[0] = view->place == ON_CUDA ? view->device : -1 - (int64_t)view->place;
        words[count++] = (int64_t)view->element * 256 + view->dims;
        for (int size = 1; size <= self->sizes[i]; size++)
            words[count++] = size <= view->dims ? view->sizes[view->dims - size] : -1;
    }
    PyObject *bytes =
        PyBytes_FromStringAndSize((const char *)words, (Py_ssize_t)((size_t)count * sizeof *words));
    if (!bytes)
        return -1;
    *key = PyTuple_New(2);
    if (!*key) {
        Py_DECREF(bytes);
        return -1;
    }
    PyObject *said = values[self->count];
    Py_INCREF(said);
    PyTuple_SetItem(*key, 0, bytes);
    PyTuple_SetItem(*key, 1, said);
    return 0;
}

/* NULL: not there, or what was said has no hash. A reference of the caller's own: other threads,
 * which run whenever a tensor is made, may clear the table. */
static struct known_object *recall(const struct calls_object *self, PyObject *const *values,
                                   struct view *views) {
    PyObject *key;
    if (look(self, values, views, &key) || !key)
        return NULL;
    PyObject *found = PyDict_GetItemWithError(self->known, key);
    Py_DECREF(key);
    if (!found && PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Clear();
    Py_XINCREF(found);
    return (struct known_object *)found;
}

/* Whether an equal value means the same at every later call. What a program can change in place, a
 * tensor say, is found again by its identity, whatever number is in it by then. */
static int is_constant(PyObject *value) {
    if (PyTuple_Check(value)) {
        for (Py_ssize_t i = 0; i < PyTuple_Size(value); i++)
            if (!is_constant(PyTuple_GetItem(value, i)))
                return 0;
        return 1;
    }
    return value == Py_None || PyLong_Check(value) || PyFloat_Check(value) ||
           PyUnicode_Check(value) || is_dtype(value);
}

/* remember(tensors.., said, known): from now on run() has it. */
static PyObject *remember(PyObject *object, PyObject *const *values, Py_ssize_t count) {
    struct calls_object *self = (struct calls_object *)object;
    struct view views[MAX_TENSORS];
    PyObject *key;
    if (count != self->count + 2 ||
        !PyObject_TypeCheck(values[count - 1], (PyTypeObject *)known_type))
        return PyErr_Format(PyExc_TypeError, "remember takes %d tensors, what was said, a Known",
                            self->count);
    if (!is_constant(values[self->count]))
        Py_RETURN_NONE;
    if (look(self, values, views, &key))
        return NULL;
    if (key) {
        if (PyDict_Size(self->known) >= MOST_CALLS)
            PyDict_Clear(self->known);
        if (PyDict_SetItem(self->known, key, values[count - 1])) {
            if (!PyErr_ExceptionMatches(PyExc_TypeError)) { /* without a hash */
                Py_DECREF(key);
                return NULL;
            }
            PyErr_Clear();
        }
        Py_DECREF(key);
    }
    Py_RETURN_NONE;
}

static PyObject *forget(PyObject *object, PyObject *ignored) {
    (void)ignored;
    PyDict_Clear(((struct calls_object *)object)->known);
    Py_RETURN_NONE;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* What the pass takes: inputs, other arguments. Borrowed; the number of them. */
static Py_ssize_t gather(PyObject *const *inputs, int count, PyObject *made, PyObject *scalars,
                         PyObject *values[MAX_VALUES]) {
    const Py_ssize_t outputs = PyTuple_Size(made), last = PyTuple_Size(scalars);
    if (count + outputs + last > MAX_VALUES) {
        PyErr_SetString(PyExc_ValueError, "too many arguments");
        return -1;
    }
    memcpy(values, inputs, (size_t)count * sizeof *values);
    for (Py_ssize_t i = 0; i < outputs; i++)
        values[count + i] = PyTuple_GetItem(made, i);
    for (Py_ssize_t i = 0; i < last; i++)
        values[count + outputs + i] = PyTuple_GetItem(scalars, i);
    return count + outputs + last;
}

/* What the operator returns: what it made, then its workspace. */
static PyObject *launch(const struct known_object *known, struct call *call,
                        PyObject *const *inputs, int count) {
    PyObject *values[MAX_VALUES], *found = operator_of(known, known->which);
    if (!found)
        return PyErr_Format(PyExc_RuntimeError, "smelt: no operator");
    const Py_ssize_t all = gather(inputs, count, known->made, known->scalars, values);
    return all < 0 ? NULL : run_operator(found, known->pass, call, values, all, count);
}

/* ---- through autograd ------------------------------------------------------------------------ */

/* A call on its way through a Function's apply, its last argument there: what it brings beside the
 * tensors that may want gradients, and what it takes home beside the one that has them. Neither
 * passes through autograd, whose work grows with every argument and result. */
struct pending_object {
    PyObject_HEAD struct known_object *known;
    PyObject *results;       /* what the launch returned */
    PyObject *const *inputs; /* these are who is calling's, and NULL once that is over */
    struct call *call;
    int count; /* of inputs */
};

static void destroy_pending(PyObject *object) {
    struct pending_object *self = (struct pending_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->known);
    Py_XDECREF(self->results);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* What the node keeps for its backward pass. */
static int save(PyObject *ctx, const struct pending_object *pending) {
    const struct known_object *known = pending->known;
    PyObject *all = PyTuple_New(known->saved_count);
    for (int i = 0; all && i < known->saved_count; i++) {
        const int place = known->saved[i];
        PyObject *one = place < pending->count
                            ? pending->inputs[place]
                            : PyTuple_GetItem(pending->results, place - pending->count);
        if (!one) {
            Py_CLEAR(all);
            break;
        }
        Py_INCREF(one);
        PyTuple_SetItem(all, i, one);
    }
    const int failed = !all || PyObject_SetAttr(ctx, names.to_save, all) ||
                       PyObject_SetAttr(ctx, names.materialize_grads, Py_False) ||
                       PyObject_SetAttr(ctx, names.known, (PyObject *)known);
    Py_XDECREF(all);
    return failed ? -1 : 0;
}

/* node_forward(ctx, tensors.., pending): of the Function. */
PyObject *node_forward(PyObject *module, PyObject *const *values, Py_ssize_t count) {
    (void)module;
    struct pending_object *pending =
        count > 1 && Py_TYPE(values[count - 1]) == (PyTypeObject *)pending_type
            ? (struct pending_object *)values[count - 1]
            : NULL;
    if (!pending || !pending->call || pending->results)
        return PyErr_Format(PyExc_TypeError, "node_forward is for Calls.run alone");
    pending->results = launch(pending->known, pending->call, pending->inputs, pending->count);
    if (!pending->results || save(values[0], pending))
        return NULL;
    PyObject *result = PyTuple_GetItem(pending->results, pending->known->result);
    Py_XINCREF(result);
    return result;
}

/* The arguments of apply: the tensors that may want gradients, and the call. */
static PyObject *node_arguments(const struct calls_object *self, PyObject *const *values,
                                PyObject *pending) {
    PyObject *args[MAX_TENSORS + 1], *tuple;
    int count = 0;
    for (int i = 0; i < self->count; i++)
        if (self->gradients >> i & 1)
            args[count++] = values[i];
    args[count++] = pending;
    if (!(tuple = PyTuple_New(count)))
        return NULL;
    for (int i = 0; i < count; i++) {
        Py_INCREF(args[i]);
        PyTuple_SetItem(tuple, i, args[i]);
    }
    return tuple;
}

/* As run(), of a call that wants gradients; `call` has the views. */
static PyObject *run_node(const struct calls_object *self, struct known_object *known,
                          struct call *call, PyObject *const *values) {
    struct pending_object *pending =
        (struct pending_object *)PyType_GenericAlloc((PyTypeObject *)pending_type, 0);
    PyObject *results = NULL;
    if (!pending)
        return NULL;
    Py_INCREF(known);
    pending->known = known;
    pending->inputs = values;
    pending->call = call;
    pending->count = self->count;
    PyObject *args = node_arguments(self, values, (PyObject *)pending);
    PyObject *out = args ? PyObject_CallObject(self->apply, args) : NULL;
    pending->call = NULL;
    pending->inputs = NULL;
    if (out && pending->results && PyTuple_GetItem(pending->results, known->result) == out) {
        results = pending->results;
        Py_INCREF(results);
    } else if (out) {
        PyErr_SetString(PyExc_RuntimeError, "smelt: autograd returned another tensor");
    }
    Py_XDECREF(out);
    Py_XDECREF(args);
    Py_DECREF(pending);
    return results;
}

/* Whether autograd has to know of the call. -1 with an exception. */
static int wants_gradients(const struct calls_object *self, PyObject *const *values) {
    int wants = self->gradients ? asked(GRAD_MODE) : 0;
    if (wants <= 0)
        return wants;
    wants = 0;
    for (int i = 0; i < self->count && wants == 0; i++)
        if (self->gradients >> i & 1 && values[i] != Py_None)
            wants = truth(PyObject_GetAttr(values[i], names.requires_grad));
    return wants;
}

/* Whether autocast is in the way, or an exception is set. */
static int is_cast(PyObject *tensor) {
    const int on = asked(AUTOCAST);
    return on > 0 ? truth(PyObject_CallFunctionObjArgs(watched[CASTS], tensor, NULL)) : on;
}

/* run(tensors.., said): of a call made before, what the operator made and its workspace; an empty
 * tuple where it made nothing. None: Python has to see to it. */
static PyObject *run(PyObject *object, PyObject *const *values, Py_ssize_t count) {
    const struct calls_object *self = (struct calls_object *)object;
    struct call call;
    if (count != self->count + 1)
        return PyErr_Format(PyExc_TypeError, "run takes %d tensors and what was said", self->count);
    int quiet = is_quiet();
    struct known_object *known = quiet > 0 ? recall(self, values, call.views) : NULL;
    PyObject *results = NULL;
    if (known && ((self->casts && is_cast(values[0])) || !operator_of(known, known->which)))
        Py_CLEAR(known);
    const int gradients = known && known->result >= 0 ? wants_gradients(self, values) : 0;
    const int here = known && !PyErr_Occurred() && (!gradients || self->apply);
    if (here)
        results = gradients ? run_node(self, known, &call, values)
                            : launch(known, &call, values, self->count);
    Py_XDECREF(known);
    if (here && !results && PyErr_ExceptionMatches(layout_error)) /* Python copies */
        PyErr_Clear();
    if (results && !PyTuple_Check(results)) {
        Py_DECREF(results);
        results = PyTuple_New(0);
    }
    if (results || PyErr_Occurred())
        return results;
    Py_RETURN_NONE;
}

/* ---- attention's backward function ----------------------------------------------------------- */

enum { NODE_INPUTS = 9, NODE_SAVED = 10 /* the inputs of the pass, then the partition */ };

/* Python's backward function, which does what node_backward does not. */
static PyObject *in_python(PyObject *ctx, PyObject *grad) {
    PyObject *class = PyObject_GetAttrString(ctx, "_forward_cls");
    PyObject *function = class ? PyObject_GetAttrString(class, "backward") : NULL;
    PyObject *result = function ? PyObject_CallFunctionObjArgs(function, ctx, grad, NULL) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(class);
    return result;
}

/* The operator of the mode that is asked for, borrowed; NULL: Python makes it, or an exception. */
static PyObject *backward_operator(const struct known_object *known) {
    enum { BACKWARD_PASS = 1, DETERMINISTIC_PASS = 2 }; /* places of known->operators */
    const int mode = known->deterministic < 0 ? asked(DETERMINISTIC) : known->deterministic;
    return mode < 0 ? NULL : operator_of(known, mode ? DETERMINISTIC_PASS : BACKWARD_PASS);
}

/* (dq, dkv, dsink or None, None) of what the pass returned: dq, dkv, dsink where there is a sink,
 * the workspace. */
static PyObject *order_gradients(PyObject *made, int has_sink) {
    PyObject *all = made ? PyTuple_New(BACKWARD_OUTPUTS) : NULL;
    for (int i = 0; all && i < BACKWARD_OUTPUTS; i++) {
        PyObject *one = i < 2 + has_sink ? PyTuple_GetItem(made, i) : Py_None;
        Py_XINCREF(one);
        PyTuple_SetItem(all, i, one);
    }
    Py_XDECREF(made);
    return all;
}

/* Launches. NULL without an exception: Python has to see to it. */
static PyObject *launch_backward(const struct known_object *known, PyObject *saved,
                                 PyObject *grad) {
    enum { OUTPUTS = 4 };
    PyObject *values[MAX_VALUES], *inputs[NODE_INPUTS + 1 + OUTPUTS + 2];
    struct call call;
    if (PyTuple_Size(saved) != NODE_SAVED || PyTuple_Size(known->gradients) != OUTPUTS + 1)
        return NULL;
    PyObject *found = backward_operator(known);
    if (!found || !has_element(grad, BF16))
        return NULL;
    int count = 0;
    for (; count < NODE_INPUTS; count++)
        inputs[count] = PyTuple_GetItem(saved, count);
    inputs[count++] = grad;
    for (int i = 0; i < OUTPUTS; i++)
        inputs[count++] = PyTuple_GetItem(known->gradients, i);
    inputs[count++] = PyTuple_GetItem(saved, NODE_INPUTS);
    PyObject *sink = PyTuple_GetItem(known->gradients, OUTPUTS);
    inputs[count++] = sink;
    PyObject *none = PyTuple_New(0);
    const Py_ssize_t all = none ? gather(inputs, count, none, known->backward_scalars, values) : -1;
    Py_XDECREF(none);
    return all < 0
               ? NULL
               : order_gradients(run_operator(found, 1, &call, values, all, 0), sink == Py_True);
}

/* apply(grad_out), of the node's class. */
static PyObject *node_backward(PyObject *ctx, PyObject *const *values, Py_ssize_t count) {
    if (count != 1)
        return PyErr_Format(PyExc_TypeError, "apply takes one gradient, not %zd", count);
    const int create_graph = asked(GRAD_MODE);
    if (create_graph < 0)
        return NULL;
    PyObject *const grad = values[0];
    if (create_graph || grad == Py_None || !is_plain(grad))
        return in_python(ctx, grad);
    PyObject *known = PyObject_GetAttr(ctx, names.known);
    PyObject *saved = known ? PyObject_GetAttr(ctx, names.saved_tensors) : NULL;
    PyObject *result = NULL;
    int python = 0;
    if (saved) {
        const struct known_object *const of = (struct known_object *)known;
        python = Py_TYPE(known) != (PyTypeObject *)known_type || !of->gradients;
        if (!python)
            result = launch_backward(of, saved, grad);
        /* A RuntimeError is also of a gradient without memory, vmap's, which Python knows. */
        if (!result && (!PyErr_Occurred() || PyErr_ExceptionMatches(layout_error) ||
                        PyErr_ExceptionMatches(PyExc_RuntimeError))) {
            PyErr_Clear();
            python = 1;
        }
    }
    Py_XDECREF(saved);
    Py_XDECREF(known);
    return python ? in_python(ctx, grad) : result;
}

/* take_backward(class of a Function's nodes): its nodes run node_backward. */
PyObject *take_backward(PyObject *module, PyObject *class) {
    static PyMethodDef definition = {"apply", (PyCFunction)(void (*)(void))node_backward,
                                     METH_FASTCALL, "The backward pass of one node."};
    (void)module;
    if (!PyType_Check(class))
        return PyErr_Format(PyExc_TypeError, "take_backward takes a class");
    PyObject *method = PyDescr_NewMethod((PyTypeObject *)class, &definition);
    const int failed = !method || PyObject_SetAttrString(class, "apply", method);
    Py_XDECREF(method);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- the types ------------------------------------------------------------------------------- */

PyObject *make_known_type(void) {
    static PyMemberDef members[] = {
        {"operators", T_OBJECT, offsetof(struct known_object, operators), READONLY, NULL},
        {"options", T_OBJECT, offsetof(struct known_object, options), READONLY, NULL},
        {0}};
    static PyType_Slot slots[] = {
        {Py_tp_new, SLOT(make_known)},
        {Py_tp_dealloc, SLOT(destroy_known)},
        {Py_tp_members, members},
        {Py_tp_doc, "What a call says beside its tensors, looked through."},
        {0}};
    static PyType_Spec spec = {.name = "smelt._native.Known",
                               .basicsize = sizeof(struct known_object),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = slots};
    return PyType_FromSpec(&spec);
}

PyObject *make_calls_type(void) {
    static PyMethodDef methods[] = {
        {"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL,
         "run(tensors.., said): what was made and the workspace; None: Python has to see to it."},
        {"remember", (PyCFunction)(void (*)(void))remember, METH_FASTCALL,
         "remember(tensors.., said, known): such calls are known now."},
        {"forget", forget, METH_NOARGS, "No call is known any more."},
        {0}};
    static PyType_Slot slots[] = {{Py_tp_new, SLOT(make_calls)},
                                  {Py_tp_dealloc, SLOT(destroy_calls)},
                                  {Py_tp_methods, methods},
                                  {Py_tp_doc, "The calls of a function that were made before."},
                                  {0}};
    static PyType_Spec spec = {.name = "smelt._native.Calls",
                               .basicsize = sizeof(struct calls_object),
                               .flags = Py_TPFLAGS_DEFAULT,
                               .slots = slots};
    return PyType_FromSpec(&spec);
}

PyObject *make_pending_type(void) {
    static PyType_Slot slots[] = {{Py_tp_dealloc, SLOT(destroy_pending)},
                                  {Py_tp_doc, "A call on its way through autograd."},
                                  {0}};
    static PyType_Spec spec = {.name = "smelt._native.Pending",
                               .basicsize = sizeof(struct pending_object),
                               .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = slots};
    return PyType_FromSpec(&spec);
}
