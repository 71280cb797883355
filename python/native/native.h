/*
 * smelt_kernels._native: the C API in Python, as thin as it can be. Written against Python's stable ABI, so
 * that one build serves every Python from 3.10 on, and without PyTorch's headers: tensors are
 * looked at through DLPack's exchange interface where PyTorch has it, else through their methods.
 *
 * tensors.c   what is where: address, shape, strides, element type, device of a tensor
 * look.c      whether a call may go directly, and the key of its operator
 * arguments.c Python arguments into an operator's args struct, by a table
 * context.c   contexts, specs and presets
 * operator.c  configured operators and their calls
 * module.c    the module, exceptions
 */
#ifndef SMELT_PYTHON_NATIVE_H
#define SMELT_PYTHON_NATIVE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <stddef.h>
#include <stdint.h>

#include <smelt/smelt.h>

/* A function in a type's slot: Python has them as void *, for which ISO C has no conversion. */
#define SLOT(function) __extension__(void *)(function)

/* ---- tensors --------------------------------------------------------------------------------- */

enum { MAX_DIMS = 5, SYMBOLS = 26 };

enum element { BF16, FP32, INT32, E4M3, UINT8, OTHER_ELEMENT, AS_MADE };
enum place { ON_CPU, ON_CUDA, ELSEWHERE };

struct view {
    void *data;
    int64_t sizes[MAX_DIMS], strides[MAX_DIMS];
    int dims;
    enum element element;
    enum place place;
    int device; /* its number, of CUDA's */
};

/* Looks at a tensor; `name` is for the message. -1 with TypeError or ValueError. */
int tensor_view(PyObject *object, const char *name, struct view *view);

/* "torch.bfloat16" */
const char *element_name(enum element element);
size_t element_bytes(enum element element);

/* A tensor's torch.dtype, of an element type that tensor_view found: a new reference. */
PyObject *type_of(PyObject *tensor, enum element element);

/* The stream that PyTorch works on, of a CUDA device. -1 with an exception. */
int current_stream(int device, struct CUstream_st **stream);

/* What makes tensors there without PyTorch's dispatcher, in a third of the time; NULL: there is
 * nothing, or it would make them elsewhere. Borrowed; good as long as this thread's device stays.
 */
PyObject *quick_maker(enum place place, int device);

/* A new contiguous tensor by PyTorch's allocator: dims, sizes and element of `shape` count.
 * `quick`: what quick_maker says of the place; where that is NULL on the device of `like`. */
PyObject *make_tensor(PyObject *like, PyObject *quick, const struct view *shape);

/* setup(tensor type, dtypes, make, make at once, stream): what the above need of PyTorch. */
PyObject *setup(PyObject *module, PyObject *args);

/* Of the module: see look.c. */
enum { NOT_IN_KEY = 127 };
PyObject *watch(PyObject *module, PyObject *const *values, Py_ssize_t count);
PyObject *look(PyObject *module, PyObject *const *values, Py_ssize_t count);

/* ---- arguments of a call --------------------------------------------------------------------- */

/* ROWS: rows begin at multiples of 16 bytes. OUTPUT: the call writes it; True in its place asks for a
 * new tensor, a float for one filled with that number. WRITTEN: the call writes into the tensor that
 * Python gives. FOLDED: any number of dimensions stand for the first letter, the same ones in all
 * FOLDED tensors of the call. */
enum { OPTIONAL = 1, ROWS = 2, OUTPUT = 4, FOLDED = 8, WRITTEN = 16 };

/* A tensor of an args struct. Its element AS_MADE: the one that the operator was made for. `shape`
 * has a letter a dimension: each letter is one extent in all tensors of a call. A leading B is
 * missing in the packed layout, in all tensors that have it. A 1 at the end is a dimension that the
 * library counts and the tensor has not. */
struct tensor_argument {
    const char *name, *shape;
    int letters; /* how many the shape has */
    enum element element;
    unsigned flags;
    size_t offset; /* of a smelt_tensor or smelt_const_tensor */
};

enum scalar_kind { INT, LONG, FLOAT, SIZE, SYMBOL };

struct scalar_argument {
    const char *name;
    enum scalar_kind kind;
    size_t offset; /* of a SYMBOL none: the extent that a letter, `symbol`, stands for */
    char symbol;
};

/* An extent that the args struct holds as an int64_t. */
struct extent_argument {
    char symbol;
    size_t offset;
};

enum { MAX_TENSORS = 20, MAX_VALUES = MAX_TENSORS + 5, MAX_ARGS_BYTES = 2048 };

/* A pass of an operator and its arguments, which Python gives by name. */
struct pass {
    const char *name;
    PyObject *names[MAX_VALUES]; /* interned: of the tensors, then of the scalars */
    size_t args_bytes;
    const struct tensor_argument *tensors;
    int tensor_count;
    const struct scalar_argument *scalars;
    int scalar_count;
    const struct extent_argument *extents;
    int extent_count;
    int partition;                           /* which tensor is a byte buffer, -1: none */
    size_t partition_offset, partition_size; /* of its pointer and its size */
    size_t workspace_offset, workspace_size; /* likewise, of the workspace */
    size_t workspace_alignment;              /* a multiple of 16 */
    smelt_status (*workspace)(const void *handle, const void *args,
                              size_t *bytes); /* may be NULL */
    smelt_status (*launch)(const void *handle, const void *args, struct CUstream_st *stream);
};

struct call {
    const struct pass *pass;
    union {
        size_t size; /* first in every args struct */
        unsigned char bytes[MAX_ARGS_BYTES];
    } args;
    int64_t extents[SYMBOLS]; /* -1: not known yet */
    struct view views[MAX_TENSORS];
    int given[MAX_TENSORS];
    PyObject *made[MAX_TENSORS];   /* outputs that the call made, in the order of the table */
    PyObject *copies[MAX_TENSORS]; /* of inputs in a layout that no kernel reads */
    int made_count, copy_count;
    PyObject *like;           /* the first tensor: new ones lie where it does */
    PyObject *quick;          /* quick_maker's */
    int64_t folded[MAX_DIMS]; /* the dimensions that FOLDED tensors have ahead of the others */
    int folded_dims;          /* how many, -1: not known yet */
    int batched;              /* -1: not known yet */
    enum element element;     /* that AS_MADE stands for */
    int shapes_only;          /* see check() */
};

/* Fills call->args from `values`, NULL where Python gives none. `place`, `device`: where tensors must
 * be. -1 with an exception. The caller releases call->made and call->copies, also then. */
int read_arguments(struct call *call, PyObject *const *values, enum place place, int device);

/* Tensors in the order of the pass, and arguments by name, into the order of the pass. -1 with TypeError.
 */
int sort_arguments(const struct pass *pass, PyObject *const *given, Py_ssize_t positional,
                   PyObject *keywords, PyObject *values[MAX_VALUES]);

/* check(operator, pass, arguments as of a call): raises what a call with these tensors would raise about their
 * shapes, devices and integer types. The eager reference takes them in any layout and floating type. */
PyObject *check(PyObject *module, PyObject *const *values, Py_ssize_t count, PyObject *keywords);

/* ---- operators ------------------------------------------------------------------------------- */

enum { MAX_PASSES = 2 };

/* What a spec fixes. */
struct made {
    int64_t extents[SYMBOLS]; /* [letter - 'A'], -1: not fixed */
    enum element element;     /* that AS_MADE stands for */
};

/* A kind of operator. */
struct operator_class {
    const char *name; /* "sparse_attn": the family of its specs */
    smelt_status (*create)(void **handle, smelt_context *context, const char *spec,
                           struct made *made);
    smelt_status (*supported)(const smelt_context *context, const char *spec, const char **why);
    void (*destroy)(void *handle);
    struct pass *passes[MAX_PASSES]; /* forward, backward; NULL: none */
};

/* Of a spec's family, its arguments named; NULL with an exception. */
const struct operator_class *find_operator_class(const char *spec);

extern const struct operator_class sparse_attn_class, indexer_logits_class, indexer_windows_class,
    indexer_clean_class, indexer_quantize_class, topk_select_class, indexer_topk_class,
    indexer_loss_class, indexer_scores_class, indexer_bwd_class, sparse_scores_class;

/* ---- contexts -------------------------------------------------------------------------------- */

struct context_object {
    PyObject_HEAD smelt_context *context;
    enum place place; /* of tensors: ON_CPU with the emulator */
    int device;
};

extern PyObject *context_type, *operator_type;
PyObject *make_context_type(void);
PyObject *make_operator_type(void);
extern PyMethodDef spec_functions[]; /* of the module: expand, presets, ... */

/* The emulator in the driver's place, NULL: there is none. */
const struct emu_interface *emulator(void);

/* ---- errors ---------------------------------------------------------------------------------- */

extern int exiting; /* the interpreter ends: what is loaded stays */

/* The library's message as a Python exception; returns NULL. */
PyObject *raise_status(smelt_status status);

#endif
