"""Two GPUs on a machine without one, for test_devices.py: CPU tensors that pretend to be on a GPU, and the emulator as
the driver; the device and stream of each launch are checked.

The module `pretend`s that all tensors are on one GPU, without their contents; TwoGpus is exact.
"""

import contextlib
import ctypes
import os
import struct

import torch
from smelt_kernels import _native, _runtime
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

OBSERVER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
LEND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_char_p)
DLPACK_CUDA = 2
KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU) | torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
RUN, FAILED, SKIPPED = range(3)  # the outcome of a launch


class Settings(ctypes.Structure):
    """struct emu_settings, its head."""

    _fields_ = [("size", ctypes.c_size_t), ("major", ctypes.c_int), ("minor", ctypes.c_int)]


class Interface(ctypes.Structure):
    """struct emu_interface, in src/emu/emulator.h."""

    _fields_ = [
        ("size", ctypes.c_size_t), ("configure", ctypes.CFUNCTYPE(None, ctypes.POINTER(Settings))),
        *((name, ctypes.c_void_p) for name in "report_count report clear kind_name name forbid reserve".split()),
        ("statistics", ctypes.c_void_p), ("lend", LEND), ("take_back", ctypes.CFUNCTYPE(None)),
    ]  # fmt: skip


class Exchange(ctypes.Structure):
    """DLPackExchangeAPI, its head: see native/dlpack.h."""

    VIEW = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
    STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in "allocate export_tensor import_tensor".split()), ("view", VIEW),
        ("current_stream", STREAM),
    ]  # fmt: skip


ALIGNMENT = 512  # bytes
DLTENSOR_DEVICE = 8  # offset of its type and number


class Driver:
    """two_gpus.c, and the emulator below it."""

    def __init__(self):
        self.library = ctypes.CDLL(os.environ["SMELT_CUDA"])
        emu_get = ctypes.CDLL(os.environ["SMELT_NVRTC"]).emu_get
        emu_get.restype = ctypes.POINTER(Interface)
        self.emulator = emu_get().contents
        self.emulator.configure(Settings(ctypes.sizeof(Settings), 8, 9))
        self.observe(lambda *_: SKIPPED)

    def observe(self, function):
        """`function`(after, device, stream) is called before and after each operation, and says RUN, FAILED or
        SKIPPED."""
        self._observer = OBSERVER(function)
        self.library.set_observer(self._observer)

    def make_stream(self, device):
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
        self.library.cuCtxPushCurrent_v2(context)
        assert self.library.cuStreamCreate(ctypes.byref(stream), 1) == 0
        self.library.cuCtxPopCurrent_v2(None)
        return stream.value


def with_exchange(device_of, stream_of):
    """What stands for torch.Tensor, with an exchange interface by which tensors lie on these devices."""
    get, new = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = b"dlpack_exchange_api"
    devices = [struct.pack("ii", DLPACK_CUDA, device) for device in range(2)]
    true = Exchange.from_address(get(torch.Tensor.__dlpack_c_exchange_api__, name))

    def view(tensor, made):
        failed = true.view(tensor, made)
        device = None if failed else device_of(tensor)
        if device is not None:
            ctypes.memmove(made + DLTENSOR_DEVICE, devices[device], 8)
        return failed

    def current_stream(kind, device, stream):
        assert kind == DLPACK_CUDA
        stream[0] = stream_of(device)
        return 0

    table = Exchange(
        true.major, true.minor, None, None, None, None, Exchange.VIEW(view), Exchange.STREAM(current_stream)
    )

    class Meta(type):
        def __instancecheck__(cls, value):
            return isinstance(value, torch.Tensor)

    made = {"__dlpack_c_exchange_api__": new(ctypes.addressof(table), name, None), "kept": (table, true)}
    return Meta("Tensor", (), made)


def make_aligned(sizes, strides, dtype):
    """As torch.empty_strided, beginning where a GPU's allocator lets tensors begin."""
    count = 1 + sum((size - 1) * step for size, step in zip(sizes, strides)) if all(sizes) else 0
    made = torch.empty(0, dtype=dtype)
    storage = torch.UntypedStorage(count * dtype.itemsize + ALIGNMENT)
    return made.set_(storage, -storage.data_ptr() % ALIGNMENT // dtype.itemsize, sizes, strides)


def make_like(like, sizes, dtype):
    return make_aligned(sizes, torch.empty(sizes, device="meta").stride(), dtype)


def on_gpu_0(tensor):
    return 0


def pretend(driver):
    """From now on every CPU tensor is on GPU 0. Launches do nothing."""
    torch.cuda.init = lambda: None
    torch.Tensor.get_device = on_gpu_0
    stream = driver.make_stream(0)
    kind = with_exchange(lambda tensor: 0, lambda device: stream)
    _runtime.SETUP = kind, _runtime.SETUP[1], make_like, (None, make_aligned, lambda: 0), None, None
    _native.setup(*_runtime.SETUP)


class TwoGpus(TorchFunctionMode):
    """Within it, each storage has a device: new tensors are on the CPU, `on` moves them. PyTorch's own functions run
    on the CPU, and a kernel reaches the storages of its own device alone."""

    def __init__(self, driver: Driver):
        super().__init__()
        self.driver = driver
        self.devices = {}  # of storages, by their address: (device, the storage, which keeps the address its own)
        self.home = 0  # of tensors that PyTorch makes in C++
        self.device = 0  # the current one
        self.streams = [[driver.make_stream(device) for _ in range(2)] for device in range(2)]
        self.current = [streams[0] for streams in self.streams]  # of each device
        self.pending = {}  # work on a stream, by its handle: done when a launch there waits for it
        self.launches = []  # (device, stream)

    # ---- what the package sees ----------------------------------------------------------------------

    def __enter__(self):
        super().__enter__()
        del torch.Tensor.get_device  # the base class has PyTorch's own
        self.setup(True)
        self.driver.observe(self._observe)
        return self

    def __exit__(self, *what):
        self.driver.observe(lambda *_: SKIPPED)
        _native.setup(*_runtime.SETUP)
        torch.Tensor.get_device = on_gpu_0
        return super().__exit__(*what)

    def setup(self, exchange):
        """How the native module looks at tensors: by DLPack's exchange interface, or by their methods."""
        at_once = (None, self._make_at_once, lambda: self.device)
        kind = with_exchange(self.device_of, self.current.__getitem__) if exchange else torch.Tensor
        with_streams = at_once, self.current.__getitem__, _runtime._view
        had = _native.setup(kind, _runtime.SETUP[1], self._make, *with_streams, exchange)
        assert had is exchange

    def _make_at_once(self, sizes, strides, dtype):
        return self.on(self.device, make_aligned(sizes, strides, dtype))

    def _make(self, like, sizes, dtype):
        device = self.device_of(_runtime._make(like, sizes, dtype))  # the package's choice
        return self.on(device, make_like(like, sizes, dtype))

    # ---- tensors --------------------------------------------------------------------------------------

    def on(self, device, tensor):
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
            self.devices[storage._cdata] = device, storage
        return tensor

    def forget(self):
        """All tensors but those made by now, when this is called for the first time."""
        self.kept = getattr(self, "kept", None) or dict(self.devices)
        self.devices = dict(self.kept)
        self.launches.clear()

    def device_of(self, tensor):
        """Its number; None: the CPU."""
        with torch._C.DisableTorchFunction():
            key = tensor.untyped_storage()._cdata
            if key not in self.devices:
                self.on(self.home, tensor)
            return self.devices[key][0]

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.__name__
        if name == "__get__":
            name = getattr(function.__self__, "__name__", "")
        if name in ("device", "is_cuda", "is_cpu", "get_device") and isinstance(args[0], torch.Tensor):
            if args[0].is_meta:
                return function(*args, **kwargs)
            device = self.device_of(args[0])
            cuda = device is not None
            return {
                "device": torch.device("cuda", device) if cuda else torch.device("cpu"), "is_cuda": cuda,
                "is_cpu": not cuda, "get_device": device if cuda else -1,
            }[name]  # fmt: skip
        return self._computed(function, args, kwargs)

    def _computed(self, function, args, kwargs):
        inputs = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        device = next((self.device_of(each) for each in inputs if not each.is_meta), None)

        def plain(value):
            nonlocal device
            if isinstance(value, torch.device) and value.type == "cuda":
                device = value.index or 0
                return torch.device("cpu")
            return value

        args, kwargs = tree_map(plain, (args, kwargs))
        if isinstance(function, torch._ops.OpOverload) and function.namespace == "smelt":
            TorchFunctionMode.__enter__(self)  # it runs the package, which shall see what it does outside
            try:
                return function.redispatch(KEYS, *args, **kwargs)
            finally:
                TorchFunctionMode.__exit__(self, None, None, None)
        result = function(*args, **kwargs)
        known = {each.untyped_storage()._cdata for each in inputs if not each.is_meta}
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor) and not each.is_meta and each.untyped_storage()._cdata not in known:
                self.on(device, each)
        return result

    # ---- the driver -----------------------------------------------------------------------------------

    def _observe(self, after, device, stream):
        if after:
            self.driver.emulator.take_back()
            return RUN
        self.launches.append((device, stream))
        for work in self.pending.pop(stream, ()):
            work()
        for owner, storage in self.devices.values():
            if owner == device and storage.nbytes():
                assert self.driver.emulator.lend(storage.data_ptr(), storage.nbytes(), b"a tensor")
        return RUN

    @contextlib.contextmanager
    def stream(self, device, number):
        """Makes it the device's current stream, and not the device the current one."""
        before, self.current[device] = self.current[device], self.streams[device][number]
        try:
            yield self.current[device]
        finally:
            self.current[device] = before
