"""libsmelt through ctypes: operators made from spec texts, and calls whose arguments are named tensors and
numbers. The library itself describes its args structs (smelt/operator.h)."""

import ctypes
import os
from ctypes import byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p

import torch

PASSES = {"forward": 1, "backward": 2}
CONTEXT_DEVICE = 1  # enum smelt_context_kind: the primary context of a device
SCALARS = (c_int, c_int64, c_size_t, c_float)  # enum smelt_scalar_type
LONGER = 256  # bytes; a struct longer than the library's is legal if the library's part is filled
ALIGNMENT = 256  # of workspace, in bytes
EMULATOR = os.environ.get("SMELT_CUDA")  # runs kernels on the CPU, on CPU tensors


# The first fields of smelt_pass_info, smelt_tensor_info and smelt_scalar_info.
PASS_INFO = [("args_type", c_char_p), ("args_bytes", c_size_t), ("tensors", c_int), ("scalars", c_int)]
PASS_INFO += [("workspace", c_size_t), ("workspace_bytes", c_size_t)]
TENSOR_INFO = [("name", c_char_p), ("element", c_char_p), ("offset", c_size_t)]
TENSOR_INFO += [(field, c_int) for field in ("type", "role", "optional", "one_of")]
TENSOR_INFO += [("key", c_char_p), ("alignment", c_int), ("dimensions", c_int)]
SCALAR_INFO = [("name", c_char_p), ("offset", c_size_t), ("type", c_int)]


class SmeltError(RuntimeError):
    """A call of the library failed; the message is the library's."""


def struct(*fields):
    """A struct that begins with `size` and these fields."""
    fields = [("size", c_size_t), *fields, ("rest", ctypes.c_char * LONGER)]
    kind = type("struct", (ctypes.Structure,), {"_fields_": fields})
    return kind(size=ctypes.sizeof(kind))


class Layout:
    """The args struct of a pass."""

    def __init__(self, size, tensors, scalars):
        self.size = size
        self.tensors = tensors  # {field: (offset, dimensions)}
        self.scalars = scalars  # {field: (offset, C type)}; "workspace" is among them


class Library:
    """libsmelt with a context on the first device."""

    def __init__(self, path, name="smelt"):
        self.name, self.c = name, ctypes.CDLL(path)
        self.c.smelt_version.restype = self.c.smelt_last_error.restype = c_char_p
        self.version = self.c.smelt_version().decode()
        self.emulator = Emulator(EMULATOR) if EMULATOR else None
        self.context, self.operators = c_void_p(), {}
        options = struct(("kind", c_int), ("device", c_int))
        options.kind = CONTEXT_DEVICE
        self.call("smelt_context_create", byref(self.context), byref(options))

    def call(self, function, *arguments):
        status = getattr(self.c, function)(*arguments)
        if status:
            raise SmeltError(f"status {status}: {self.c.smelt_last_error().decode()}")

    def operator(self, spec):
        """A spec's operator, made once. Thread-safe."""
        if spec not in self.operators:
            self.operators[spec] = self.create(spec)
        return self.operators[spec]

    def create(self, spec):
        handle = c_void_p()
        self.call("smelt_operator_create", byref(handle), self.context, spec.encode())
        return handle

    def launch(self, spec, which, args, stream):
        operator = self.operator(spec)
        self.call("smelt_operator_launch", operator, PASSES[which], args, c_void_p(stream))

    def workspace(self, spec, which, args):
        size = c_size_t()
        operator = self.operator(spec)
        self.call("smelt_operator_workspace", operator, PASSES[which], args, byref(size))
        return size.value

    def layout(self, spec, which):
        named = spec.encode(), PASSES[which]
        found, tensors, scalars = struct(*PASS_INFO), {}, {}
        self.call("smelt_operator_describe", *named, byref(ctypes.c_uint()), byref(found))
        for index in range(found.tensors):
            info = struct(*TENSOR_INFO)
            self.call("smelt_operator_get_tensor", *named, index, byref(info))
            tensors[info.name.decode()] = info.offset, info.dimensions
        for index in range(found.scalars):
            info = struct(*SCALAR_INFO)
            self.call("smelt_operator_get_scalar", *named, index, byref(info))
            scalars[info.name.decode()] = info.offset, SCALARS[info.type]
        if found.workspace:
            scalars["workspace"] = found.workspace, c_void_p
            scalars["workspace_bytes"] = found.workspace_bytes, c_size_t
        return Layout(found.args_bytes, tensors, scalars)


class Call:
    """A pass of an operator with its arguments: {field: tensor, number or None}. `run` launches it."""

    def __init__(self, library, spec, which, arguments):
        self.library, self.spec, self.which = library, spec, which
        self.layout = library.layout(spec, which)
        self.args = ctypes.create_string_buffer(self.layout.size)
        c_size_t.from_buffer(self.args).value = self.layout.size
        self.tensors = {name: value for name, value in arguments.items() if torch.is_tensor(value)}
        for name, tensor in self.tensors.items():
            self._set_tensor(name, tensor)
        for name, value in arguments.items():
            if value is not None and name not in self.tensors:
                self._set(name, value)
        self.workspace_bytes = 0
        if "workspace" in self.layout.scalars:
            self.workspace_bytes = library.workspace(spec, which, self.args)
            device = next(iter(self.tensors.values())).device
            space = torch.empty(self.workspace_bytes + ALIGNMENT, dtype=torch.uint8, device=device)
            self.tensors["workspace"] = space = space[-space.data_ptr() % ALIGNMENT :]
            self._set("workspace", space.data_ptr())
            self._set("workspace_bytes", self.workspace_bytes)

    def _set(self, name, value):
        offset, kind = self.layout.scalars[name]
        kind.from_buffer(self.args, offset).value = value

    def _set_tensor(self, name, tensor):
        """A tensor may lack the first dimension, the batch."""
        offset, dimensions = self.layout.tensors[name]
        c_void_p.from_buffer(self.args, offset).value = tensor.data_ptr()
        if not tensor.is_contiguous():
            strides = [0] * (dimensions - tensor.dim()) + list(tensor.stride()[:-1])
            (c_int64 * len(strides)).from_buffer(self.args, offset + 8)[:] = strides

    def run(self):
        emulator = self.library.emulator
        if not emulator:
            stream = torch.cuda.current_stream().cuda_stream
            return self.library.launch(self.spec, self.which, self.args, stream)
        for name, tensor in self.tensors.items():
            storage = tensor.untyped_storage()
            emulator.lend(storage.data_ptr(), storage.nbytes(), name.encode())
        try:
            self.library.launch(self.spec, self.which, self.args, 0)
        finally:
            emulator.take_back()


class Emulator:
    """Functions of src/emu/emulator.h, for CPU tensors. The device is an sm_89, whose kernels run fastest."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
        library.emu_get.restype = ctypes.POINTER(c_void_p)
        table = library.emu_get()  # its size, then functions
        configure = ctypes.CFUNCTYPE(None, c_void_p)(table[1])
        settings = struct(("major", c_int), ("minor", c_int))
        settings.size, settings.major, settings.minor = 16, 8, 9
        configure(byref(settings))
        self.lend = ctypes.CFUNCTYPE(c_int, ctypes.c_uint64, c_size_t, c_char_p)(table[10])
        self.take_back = ctypes.CFUNCTYPE(None)(table[11])
