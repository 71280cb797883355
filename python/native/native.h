/*
 * smelt_kernels._native: a thin layer over the C API. It uses Python's stable ABI, so that one
 * build serves every Python from 3.10 on, and no headers of PyTorch: it reads tensors through
 * DLPack's exchange interface if PyTorch has it, else through a Python function.
 *
 * tensors.c   what is where: address, shape, strides, element type, device of a tensor
 * look.c      whether a call may go directly, and the key of its operator
 * passes.c    an operator's passes, as the library describes them
 * arguments.c Python arguments into an operator's args struct, by a pass
 * context.c   contexts, specs and presets
 * operator.c  configured operators and their calls
 * module.c    the module, exceptions
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <stddef.h>
#include <stdint.h>

#include <smelt/smelt.h>

/* A function in a type's slot, which is a void *; ISO C has no such conversion. */
#define SLOT(function) __extension__(void *)(function)

/* ---- tensors --------------------------------------------------------------------------------- */

enum { MAX_DIMS = SMELT_TENSOR_STRIDES + 1 };

enum element {
    BF16 = SMELT_ELEMENT_BF16,
    FP32 = SMELT_ELEMENT_FP32,
    INT32 = SMELT_ELEMENT_INT32,
    E4M3 = SMELT_ELEMENT_E4M3,
    UINT8, /* for buffers of bytes */
    OTHER_ELEMENT
};
enum location { ON_CPU, ON_CUDA, ELSEWHERE };

struct view {
    void *data;
    int64_t sizes[MAX_DIMS], strides[MAX_DIMS];
    int dims;
    enum element element;
    enum location location;
    int device; /* the CUDA device's number */
};

/* Reads a tensor's properties; `name` is for messages. -1 with TypeError or ValueError. */
int tensor_view(PyObject *object, const char *name, struct view *view);

/* "torch.bfloat16" */
const char *element_name(enum element element);
size_t element_bytes(enum element element);

/* A new reference to the torch.dtype of a tensor with this element type. */
PyObject *type_of(PyObject *tensor, enum element element);

/* PyTorch's current stream on a CUDA device. -1 with an exception. */
int current_stream(int device, struct CUstream_st **stream);

/* A function that makes tensors on a device without PyTorch's dispatcher, in a third of the time.
 * NULL: there is none, or it would use another device. Borrowed; valid until this thread's current
 * device changes. */
PyObject *quick_maker(enum location location, int device);

/* A new contiguous tensor by PyTorch's allocator: dims, sizes and element of `shape` count.
 * `quick`: quick_maker's result; NULL: on the device of `like`. */
PyObject *make_tensor(PyObject *like, PyObject *quick, const struct view *shape);

/* setup(tensor type, dtypes, make, make at once, stream, view): the parts of PyTorch that these
 * functions use. */
PyObject *setup(PyObject *module, PyObject *args);

/* In look's `counts`: the tensor is not in the key. See look.c. */
enum { NOT_IN_KEY = 127 };
PyObject *watch(PyObject *module, PyObject *const *values, Py_ssize_t count);
PyObject *look(PyObject *module, PyObject *const *values, Py_ssize_t count);

/* ---- passes ---------------------------------------------------------------------------------- */

enum {
    MAX_TENSORS = 24,
    MAX_SCALARS = 16,
    MAX_SYMBOLS = 16,
    MAX_LETTERS = 24,
    MAX_VALUES = MAX_TENSORS + MAX_SCALARS + 1,
    MAX_ARGS_BYTES = 1536,
};

/* An extent in a shape: that of symbol `base` (usually this symbol), times `times`, divided by `per` and
 * rounded up, plus `plus`. */
struct symbol {
    char letters[MAX_LETTERS]; /* "T", "dqk", "D+1", "C*8", "S/4" */
    int base, plus;
    int64_t times, per;
};

/* A tensor of an args struct, and how Python's tensor may differ from the library's. OUTPUT: the
 * call writes it; True instead of a tensor requests a new one, a float one filled with that number,
 * False none.
 * WRITTEN: the call adds to the given tensor. BATCHED: in the packed layout all such tensors of the
 * call lack their first dimension, B. FLATTENED: instead of the first dimension there may be any
 * number of dimensions, the same in all such tensors of the call. ONE_AT_END: the last dimension,
 * of extent 1, is missing. */
enum { OPTIONAL = 1, OUTPUT = 2, WRITTEN = 4, BATCHED = 8, FLATTENED = 16, ONE_AT_END = 32 };

struct tensor_argument {
    const char *name;
    size_t offset; /* of a smelt_tensor or smelt_const_tensor */
    size_t alignment;
    enum element element;
    unsigned flags;
    int dims;
    unsigned char symbols[MAX_DIMS];
};

struct scalar_argument {
    const char *name;
    size_t offset;
    enum smelt_scalar_type type;
    int symbol; /* the extent, which tensors or Python give; -1: not an extent */
    int64_t least, most;
};

/* A pass of an operator, or of a spec, whose extents are then in `fixed`. */
struct pass {
    enum smelt_pass which; /* 0: there is no such pass */
    size_t args_bytes;
    struct tensor_argument tensors[MAX_TENSORS];
    struct scalar_argument scalars[MAX_SCALARS];
    int tensor_count, output_count, scalar_count;
    struct symbol symbols[MAX_SYMBOLS];
    int symbol_count;
    int64_t fixed[MAX_SYMBOLS]; /* -1: not fixed */
    const char *flattened;
    PyObject *names[MAX_VALUES]; /* interned: tensors, scalars, "partition" if there is one */
    int value_count;
    size_t partition_offset, partition_size; /* offsets of a pointer and its size; 0: none */
    size_t workspace_offset, workspace_size; /* likewise */
    size_t workspace_alignment;              /* a multiple of 16 */
};

enum { PASSES = 2 };

struct passes {
    struct pass of[PASSES]; /* forward, backward */
};

/* The passes of a spec, or of an operator given by name. NULL with an exception. */
struct passes *describe_passes(const char *spec);
void free_passes(struct passes *passes); /* or NULL */

/* describe(operator): for forward and backward pass None or (tensors, scalars, has a partition). A tensor: (name, element type,
 * flags, letters of its shape); a scalar: (name, whether a float, letter of its extent or "", least, most). */
PyObject *describe(PyObject *module, PyObject *spec);

/* ---- arguments of a call --------------------------------------------------------------------- */

struct call {
    const struct pass *pass;
    union {
        size_t size; /* first in every args struct */
        unsigned char bytes[MAX_ARGS_BYTES];
    } args;
    int64_t extents[MAX_SYMBOLS]; /* -1: not known yet */
    struct view views[MAX_TENSORS];
    int given[MAX_TENSORS];
    PyObject *made[MAX_TENSORS];   /* outputs that the call made, NULL for the other tensors */
    PyObject *copies[MAX_TENSORS]; /* of inputs in a layout that no kernel reads */
    int copy_count;
    PyObject *like;         /* the first tensor: new ones lie where it does */
    PyObject *quick;        /* quick_maker's */
    int64_t flat[MAX_DIMS]; /* the leading dimensions of FLATTENED tensors */
    int flat_dims;          /* their number; -1: not known yet */
    int batched;            /* -1: not known yet */
};

/* Fills call->args from `values` (NULL: not given). `location`, `device`: required of tensors. -1
 * with an exception. In any case the caller releases call->made and call->copies. */
int read_arguments(struct call *call, PyObject *const *values, enum location location, int device);

/* Arguments in the order of the pass (tensors, scalars, the partition), and by name, into that order. -1 with
 * TypeError. */
int sort_arguments(const struct pass *pass, PyObject *const *given, Py_ssize_t positional,
                   PyObject *keywords, PyObject *values[MAX_VALUES]);

/* ---- contexts -------------------------------------------------------------------------------- */

struct context_object {
    PyObject_HEAD smelt_context *context;
    enum location location; /* of tensors; ON_CPU with the emulator */
    int device;
};

extern PyObject *context_type, *operator_type;
PyObject *make_context_type(void);
PyObject *make_operator_type(void);
PyObject *pause_emulator(PyObject *module, PyObject *ignored);
PyObject *resume_emulator(PyObject *module, PyObject *ignored);
/* A kernel's figures as a dict. */
PyObject *kernel_dict(const smelt_kernel_info *info);
extern PyMethodDef spec_functions[]; /* of the module: expand, presets, ... */

/* The emulator if it is the driver, or NULL. */
const struct emu_interface *emulator(void);

/* ---- errors ---------------------------------------------------------------------------------- */

extern int exiting; /* set at the interpreter's exit: nothing is unloaded */

/* Raises the library's message as a Python exception; returns NULL. */
PyObject *raise_status(smelt_status status);
