"""libsmelt through ctypes: the structs of include/smelt that bench/peers' programs need.

The structs here mirror the headers field by field. Run as a program, this module prints a C file of
static assertions that says so, which any C compiler checks:

    python3 bench/peers/smelt_library.py | cc -std=c11 -Iinclude -fsyntax-only -xc -
"""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int64, c_size_t
from ctypes import c_uint, c_uint64, c_void_p

STRIDES = 4
MAX_BUCKETS = 8
PASS_FORWARD, PASS_BACKWARD = 1, 2


class Tensor(ctypes.Structure):
    """smelt_tensor and smelt_const_tensor; strides of 0 mean packed."""

    _fields_ = [("data", c_void_p), ("strides", c_int64 * STRIDES)]


class ContextOptions(ctypes.Structure):
    """All zero but the size: the CUDA context that is current in this thread."""

    _fields_ = [
        ("size", c_size_t),
        ("kind", c_int),
        ("device", c_int),
        ("arch", c_char_p),
        ("nvrtc_path", c_char_p),
        ("cache_dir", c_char_p),
        ("cache_readonly_dir", c_char_p),
        ("cache_cap_bytes", c_uint64),
        ("cache_lock", c_int),
        ("cache_lock_timeout_ms", c_int),
        ("cache_disable", c_int),
        ("cache_recompile", c_int),
        ("log", c_void_p),
        ("log_user", c_void_p),
        ("log_level", c_int),
        ("tuning_disable", c_int),
        ("tuning", c_char_p),
        ("tuning_device", c_char_p),
    ]


class SparseAttnSpec(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("heads", c_int),
        ("dqk", c_int),
        ("dv", c_int),
        ("topk", c_int),
        ("sink", c_int),
        ("deterministic", c_int),
        ("passes", c_uint),
        ("reserved", c_int),
        ("knobs", c_char_p),
        ("buckets", c_int * MAX_BUCKETS),
    ]


_SHAPE_FIELDS = [
    ("size", c_size_t),
    ("batches", c_int64),
    ("tokens", c_int64),
    ("rows", c_int64),
    ("width", c_int64),
    ("scale", c_float),
    ("free_multiprocessors", c_int),
    ("q", Tensor),
    ("kv", Tensor),
    ("indices", Tensor),
    ("topk_length", Tensor),
    ("sink", Tensor),
    ("out", Tensor),
    ("lse", Tensor),
]

_QUERY_FIELDS = [("queries", Tensor), ("query_count", Tensor), ("query_capacity", c_int64)]

_WORKSPACE_FIELDS = [("workspace", c_void_p), ("workspace_bytes", c_size_t)]


class SparseAttnArgs(ctypes.Structure):
    _fields_ = _SHAPE_FIELDS + [("max_logits", Tensor)] + _QUERY_FIELDS + _WORKSPACE_FIELDS


class SparseAttnGradArgs(ctypes.Structure):
    _fields_ = (
        _SHAPE_FIELDS
        + [
            ("grad_out", Tensor),
            ("dq", Tensor),
            ("dkv", Tensor),
            ("dkv_fp32", Tensor),
            ("dkv_sum", Tensor),
            ("dsink", Tensor),
        ]
        + _QUERY_FIELDS
        + [("partition", c_void_p), ("partition_bytes", c_size_t)]
        + _WORKSPACE_FIELDS
        + [("workspace_limit", c_size_t)]
    )


class TopkSelectSpec(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("topk", c_int), ("order", c_int), ("knobs", c_char_p)]


class TopkSelectArgs(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("tokens", c_int64),
        ("rows", c_int64),
        ("index_offset", c_int),
        ("reserved", c_int),
        ("logits", Tensor),
        ("window_begin", Tensor),
        ("window_end", Tensor),
        ("offset", Tensor),
        ("indices", Tensor),
        ("values", Tensor),
        ("lengths", Tensor),
    ] + _WORKSPACE_FIELDS


class IndexerLogitsSpec(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("heads", c_int),
        ("dim", c_int),
        ("dtype", c_int),
        ("reserved", c_int),
        ("knobs", c_char_p),
    ]


class IndexerLogitsArgs(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("tokens", c_int64),
        ("rows", c_int64),
        ("free_multiprocessors", c_int),
        ("reserved", c_int),
        ("q", Tensor),
        ("k", Tensor),
        ("weights", Tensor),
        ("k_scale", Tensor),
        ("window_begin", Tensor),
        ("window_end", Tensor),
        ("logits", Tensor),
    ]


class SparseScoresSpec(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("heads", c_int),
        ("dqk", c_int),
        ("dv", c_int),
        ("topk", c_int),
        ("sink", c_int),
        ("reserved", c_int),
        ("knobs", c_char_p),
    ]


class SparseScoresArgs(ctypes.Structure):
    _fields_ = (
        [field for field in _SHAPE_FIELDS if field[0] != "out"]
        + [("target", Tensor)]
        + _QUERY_FIELDS
    )


class KernelInfo(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("spec", c_char_p),
        ("arch", c_char_p),
        ("kernel", c_char_p),
        ("key", c_char_p),
        ("error", c_char_p),
        ("state", c_int),
        ("status", c_int),
        ("seconds", c_double),
        ("compile_seconds", c_double),
        ("assembler_seconds", c_double),
        ("registers", c_int),
        ("spill_bytes", c_int),
        ("static_shared_bytes", c_int),
        ("dynamic_shared_bytes", c_int),
        ("threads", c_int),
        ("serialised", c_int),
        ("cubin_bytes", c_size_t),
        ("kept", c_int),
        ("emulated", c_int),
    ]


class IndexerTopkSpec(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("heads", c_int),
        ("dim", c_int),
        ("dtype", c_int),
        ("topk", c_int),
        ("order", c_int),
        ("reserved", c_int),
        ("knobs", c_char_p),
    ]


class IndexerTopkArgs(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("tokens", c_int64),
        ("rows", c_int64),
        ("index_offset", c_int),
        ("free_multiprocessors", c_int),
        ("q", Tensor),
        ("k", Tensor),
        ("weights", Tensor),
        ("k_scale", Tensor),
        ("window_begin", Tensor),
        ("window_end", Tensor),
        ("offset", Tensor),
        ("indices", Tensor),
        ("values", Tensor),
        ("lengths", Tensor),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("workspace_limit", c_size_t),
        ("causal_limit", c_int64),
    ]


class IndexerScoresSpec(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("heads", c_int),
        ("dim", c_int),
        ("topk", c_int),
        ("reserved", c_int),
        ("knobs", c_char_p),
    ]


class IndexerScoresArgs(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("tokens", c_int64),
        ("rows", c_int64),
        ("width", c_int64),
        ("free_multiprocessors", c_int),
        ("reserved", c_int),
        ("q", Tensor),
        ("k", Tensor),
        ("weights", Tensor),
        ("indices", Tensor),
        ("topk_length", Tensor),
        ("logits", Tensor),
    ]


class IndexerBwdSpec(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("heads", c_int),
        ("dim", c_int),
        ("topk", c_int),
        ("deterministic", c_int),
        ("knobs", c_char_p),
    ]


class IndexerBwdArgs(ctypes.Structure):
    _fields_ = (
        [
            ("size", c_size_t),
            ("tokens", c_int64),
            ("rows", c_int64),
            ("width", c_int64),
            ("q", Tensor),
            ("k", Tensor),
            ("weights", Tensor),
            ("indices", Tensor),
            ("topk_length", Tensor),
            ("grad", Tensor),
            ("dq", Tensor),
            ("dweights", Tensor),
            ("dk", Tensor),
            ("dk_fp32", Tensor),
            ("dk_sum", Tensor),
        ]
        + _WORKSPACE_FIELDS
        + [("free_multiprocessors", c_int), ("reserved", c_int)]
    )


# Families: the struct of a spec, and those of the passes' arguments.
_OPERATORS = {
    "sparse_attn": (
        SparseAttnSpec,
        {"forward": SparseAttnArgs, "backward": SparseAttnGradArgs},
    ),
    "topk_select": (TopkSelectSpec, {"forward": TopkSelectArgs}),
    "indexer_logits": (IndexerLogitsSpec, {"forward": IndexerLogitsArgs}),
    "indexer_topk": (IndexerTopkSpec, {"forward": IndexerTopkArgs}),
    "indexer_scores": (IndexerScoresSpec, {"forward": IndexerScoresArgs}),
    "sparse_scores": (SparseScoresSpec, {"forward": SparseScoresArgs}),
    "indexer_bwd": (IndexerBwdSpec, {"backward": IndexerBwdArgs}),
}


class SmeltError(RuntimeError):
    """What the library said."""


def with_size(struct_type):
    struct = struct_type()
    struct.size = ctypes.sizeof(struct_type)
    return struct


def _declare(library):
    functions = {
        "smelt_version": (c_char_p, []),
        "smelt_last_error": (c_char_p, []),
        "smelt_free": (None, [c_void_p]),
        "smelt_context_create": (c_int, [POINTER(c_void_p), POINTER(ContextOptions)]),
        "smelt_sparse_attn_get_kernel_info": (
            c_int,
            [c_void_p, c_uint, c_int, POINTER(KernelInfo)],
        ),
    }
    for family, (spec, passes) in _OPERATORS.items():
        calls = {
            "spec_parse": [c_char_p, POINTER(spec), POINTER(c_void_p)],
            "create": [POINTER(c_void_p), c_void_p, POINTER(spec)],
        }
        for which, args in passes.items():
            calls[f"{which}_workspace"] = [c_void_p, POINTER(args), POINTER(c_size_t)]
            calls[which] = [c_void_p, POINTER(args), c_void_p]
        for name, arguments in calls.items():
            functions[f"smelt_{family}_{name}"] = (c_int, arguments)
        functions[f"smelt_{family}_destroy"] = (None, [POINTER(c_void_p)])
    for name, (result, arguments) in functions.items():
        function = getattr(library, name, None)
        if function is None:  # an operator that needs no workspace has no call for it
            continue
        function.restype, function.argtypes = result, arguments


class Library:
    """libsmelt and one context, in the CUDA context current in this thread."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        _declare(self.library)
        self.version = self.library.smelt_version().decode()
        self.context = c_void_p()

    def check(self, status):
        if status != 0:
            raise SmeltError(f"status {status}: {self.library.smelt_last_error().decode()}")

    def make_context(self):
        options = with_size(ContextOptions)
        self.check(self.library.smelt_context_create(byref(self.context), byref(options)))


class Operator:
    """One configured operator of any family, from its text."""

    def __init__(self, library, text):
        self.library, self.handle = library, c_void_p()
        self.family = text.split(":")[0]
        spec, knobs = with_size(_OPERATORS[self.family][0]), c_void_p()
        library.check(self._function("spec_parse")(text.encode(), byref(spec), byref(knobs)))
        try:
            library.check(
                self._function("create")(byref(self.handle), library.context, byref(spec))
            )
        finally:
            library.library.smelt_free(knobs)

    def _function(self, name):
        return getattr(self.library.library, f"smelt_{self.family}_{name}")

    def kernels(self, which):
        """(name, registers, spilt bytes, seconds of compilation) of sparse_attn's pass's kernels, in order."""
        found = []
        while True:
            info = with_size(KernelInfo)
            if self._function("get_kernel_info")(self.handle, which, len(found), byref(info)):
                return found
            found.append(
                (info.kernel.decode(), info.registers, info.spill_bytes, info.compile_seconds)
            )

    def workspace(self, args, which="forward"):
        """Bytes; `which` is "forward" or "backward"."""
        size = c_size_t()
        function = self._function(f"{which}_workspace")
        self.library.check(function(self.handle, byref(args), byref(size)))
        return size.value

    def launch(self, args, stream, which="forward"):
        self.library.check(self._function(which)(self.handle, byref(args), c_void_p(stream)))

    def destroy(self):
        """Once its launches are complete."""
        self._function("destroy")(byref(self.handle))


def assertions():
    """C source that compiles only if the structs above are the headers'."""
    lines = ["#include <stddef.h>", '#include "smelt/smelt.h"']
    structs = {
        "smelt_tensor": Tensor,
        "smelt_const_tensor": Tensor,
        "smelt_kernel_info": KernelInfo,
        "smelt_context_options": ContextOptions,
    }
    for family, (spec, passes) in _OPERATORS.items():
        structs[f"smelt_{family}_spec"] = spec
        for which, args in passes.items():
            grads = which == "backward" and "forward" in passes
            structs[f"smelt_{family}_{'grad_args' if grads else 'args'}"] = args
    for name, struct in structs.items():
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "{name}");')
        for field, kind in struct._fields_:
            place = f"{name}, {field}"
            offset = getattr(struct, field).offset
            size = ctypes.sizeof(kind)
            lines.append(f'_Static_assert(offsetof({place}) == {offset}, "{place}: offset");')
            lines.append(
                f'_Static_assert(sizeof((({name} *)0)->{field}) == {size}, "{place}: size");'
            )
    lines.append(f'_Static_assert(SMELT_PASS_FORWARD == {PASS_FORWARD}, "forward");')
    lines.append(f'_Static_assert(SMELT_PASS_BACKWARD == {PASS_BACKWARD}, "backward");')
    lines.append('_Static_assert(SMELT_CONTEXT_CURRENT == 0, "current");')
    return "\n".join(lines)


if __name__ == "__main__":
    print(assertions())
