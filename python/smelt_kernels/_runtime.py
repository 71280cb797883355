"""Contexts and operators: made once for each device and configuration, and found again."""

from __future__ import annotations

import atexit
import importlib.resources
import importlib.util
import json
import logging
import os
import sys
import threading
import warnings
from typing import Any

import torch

from . import _native, _progress
from ._checks import BACKENDS, Backend, choose


class SmeltWarning(UserWarning):
    """Warns that the eager reference computes, or that inputs are rounded to bf16: once for each cause."""


def _backend_of_environment() -> Backend:
    name: Any = os.environ.get("SMELT_BACKEND") or "auto"
    choose(name, "SMELT_BACKEND", BACKENDS)
    return name


_backend = _backend_of_environment()


def set_backend(name: Backend) -> Backend:
    """Sets what computes the calls that do not name a backend, in all threads.

    A process starts with the environment's SMELT_BACKEND, else with "auto".

    Args:
        name: "smelt" uses kernels alone, and a call without one raises RuntimeError. "torch" uses the eager reference,
            which is slow. "auto" uses the eager reference where there is no kernel, with one SmeltWarning for each
            cause.

    Returns:
        The backend before this call.

    Raises:
        ValueError: `name` is none of these.

    Example:
        >>> smelt.set_backend("smelt")  # nothing is silently slow
        'auto'
    """
    global _backend
    choose(name, "backend", BACKENDS)
    before, _backend = _backend, name
    _found.clear()
    return before


def get_backend() -> Backend:
    """Tells what computes the calls that do not name a backend.

    Returns:
        What set_backend set last, else the environment's SMELT_BACKEND, else "auto".

    Example:
        >>> with_kernels_alone = smelt.get_backend() == "smelt"
    """
    return _backend


def _make(like: torch.Tensor, sizes: tuple, dtype: torch.dtype) -> torch.Tensor:
    return like.new_empty(sizes, dtype=dtype)


def _view(tensor: torch.Tensor) -> tuple:
    """With PyTorch before 2.10: address, sizes, strides, type, `enum location` of native.h, and the CUDA device's number."""
    where = 1 if tensor.is_cuda else 0 if tensor.is_cpu else 2
    sizes = tuple(tensor.shape), tensor.stride(), tensor.dtype
    return tensor.data_ptr(), *sizes, where, tensor.get_device() if where == 1 else 0


# What TorchInductor's programs allocate with: none of PyTorch's dispatcher, a third of the time. PyTorch does
# not promise these names; without them tensors are made by _make.
_guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
_at_once = (
    getattr(_guards, "_empty_strided_cpu", None),
    getattr(_guards, "_empty_strided_cuda", None),
    getattr(torch._C, "_cuda_getDevice", None),
)

# What the module needs of PyTorch. The order of the types is that of `enum element` in native.h. A build of
# PyTorch without CUDA has no streams to name.
SETUP = (
    torch.Tensor,
    (torch.bfloat16, torch.float32, torch.int32, torch.float8_e4m3fn, torch.uint8),
    _make,
    _at_once,
    getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0),
    _view,
)
_native.setup(*SETUP)
atexit.register(_native.leave)

# Whether the emulator stands in the driver's place (SMELT_CUDA names it): tensors are then the CPU's.
EMULATED = _native.emulated()


def nvrtc_path() -> str | None:
    """The NVRTC of this Python's packages that goes with PyTorch's CUDA; None: let the library look."""
    if os.environ.get("SMELT_NVRTC"):
        return None
    major = (torch.version.cuda or "").split(".")[0]
    for folder in (f"cu{major}", "cuda_nvrtc"):
        try:
            spec = importlib.util.find_spec(f"nvidia.{folder}")
        except (ImportError, ValueError):
            continue
        for place in (spec.submodule_search_locations if spec else None) or ():
            path = os.path.join(place, "lib", f"libnvrtc.so.{major}")
            if os.path.isfile(path):
                return path
    return None


class Refused:
    """In an operator's place: why there is none."""

    def __init__(self, reason: str, error: type[Exception] = RuntimeError):
        self.reason, self.error = reason, error

    def __bool__(self):
        return False


_lock = threading.RLock()
_contexts: dict = {}
_operators: dict = {}
MOST_FOUND = 4096
_found: dict = {}  # operators by what the calls' shapes and options say
_warned: set = set()
_held = threading.local()


def _forget():
    """In a forked child: a context serves the process that made it."""
    global _lock
    _lock = threading.RLock()
    _contexts.clear()
    _operators.clear()
    _found.clear()


os.register_at_fork(
    before=_native.pause_emulator, after_in_parent=_native.resume_emulator, after_in_child=_native.resume_emulator
)
os.register_at_fork(after_in_child=_forget)


def context(device: int) -> _native.Context:
    """The context of a CUDA device, or the emulator's (-1)."""
    found = _contexts.get(device)
    if found is None:
        with _lock:
            found = _contexts.get(device)
            if found is None:
                if not EMULATED:
                    torch.cuda.init()
                found = _native.Context(max(device, 0), None, nvrtc_path())
                _contexts[device] = found
    return found


def kernels() -> list[dict[str, Any]]:
    """Lists the kernels that this process has loaded for its calls, in the order of the calls.

    Returns:
        One dict for each kernel. Its keys are "device", "operator" (its spec), "spec", "arch", "variant", "knobs" (of
        its plan), "state" ("cached": read from the disk, "compiled": by this process), "compile_seconds" (whenever that
        was), "seconds" (of getting it ready now), "registers", "spill_bytes", "shared_bytes" and "cubin_bytes".

    Example:
        >>> for kernel in smelt.kernels():
        ...     print(kernel["spec"], kernel["variant"], kernel["state"], kernel["compile_seconds"])
    """
    with _lock:
        made = [(device, spec, each) for (device, spec), each in _operators.items() if type(each) is not Refused]
    found = []
    for device, spec, each in made:
        for kernel in each.kernels():
            plan = json.loads(context(device).plan(kernel["spec"]))
            knobs = {name.lower(): knob["value"] for name, knob in plan["knobs"].items()}
            found.append({"device": device, "operator": spec, **kernel, "variant": plan["variant"], "knobs": knobs})
    return found


def stats() -> dict[str, int]:
    """Counts what this process has compiled, loaded and found in the cache, over all devices.

    Returns:
        "cache_hits" and "cache_misses" (kernels looked up on the disk), "cache_errors" (entries or folders that could
        not be used), "compiled" and "loaded" (kernels), "operators" (configurations in use) and "refused"
        (configurations without a kernel: their calls went to the eager reference or failed).

    Example:
        >>> before = smelt.stats()["compiled"]
        >>> step()
        >>> assert smelt.stats()["compiled"] == before  # a warm step compiles nothing
    """
    with _lock:
        contexts, operators = list(_contexts.values()), list(_operators.values())
    total = dict.fromkeys(("cache_hits", "cache_misses", "cache_errors", "compiled", "loaded"), 0)
    for each in contexts:
        for name, count in each.counters().items():
            total[name] += count
    refused = sum(type(each) is Refused for each in operators)
    return {**total, "operators": len(operators) - refused, "refused": refused}


def _set_up_logging() -> None:
    """The environment's SMELT_LOG: messages of that level go to standard error, where the program's own set-up of
    logging does not say otherwise."""
    level = {"error": "ERROR", "warning": "WARNING", "info": "INFO", "debug": "DEBUG"}.get(os.environ.get("SMELT_LOG", ""))
    logger = logging.getLogger("smelt")
    if level is None or logger.handlers:
        return  # the library refuses another level, and names those there are
    logger.setLevel(level)
    if not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("smelt: %(message)s"))
        logger.addHandler(handler)


_set_up_logging()


def _refusal(device: int, spec: str) -> str:
    """Why an operator cannot be had on a device, or ""."""
    if device < 0 and not EMULATED:
        return (
            "the tensors are on the CPU: move them to a GPU, or run the program on the emulator, "
            "`smelt-kernels emulate -- python PROGRAM`"
        )
    if device >= 0 and EMULATED:
        return "the library runs on the emulator (SMELT_CUDA), which takes CPU tensors"
    if device >= 0 and torch.version.hip:
        return "this PyTorch is for AMD's GPUs"
    return context(device).supported(spec)


def operator(device: int, spec: str):
    """The operator for a spec: a Refused where there is none."""
    found = _operators.get((device, spec))
    return found if found is not None else _create(device, spec)


def _create(device: int, spec: str):
    # Compiling takes a second or more: not under the lock. Of two threads that ask for the same, the
    # library compiles for one.
    reason = _refusal(device, spec)
    if reason:
        made = Refused(f"{spec}: {reason}")
    else:
        with _progress.of_operator(context(device), spec, len(context(device).kernels(spec))):
            made = _native.Operator(context(device), spec)
    with _lock:
        return _operators.setdefault((device, spec), made)


def find(key: tuple, backend: str, spec, *options):
    """A call's operator, for the spec that spec(*key without the device, *options) returns. Where the eager reference
    computes: None if `backend` asks for it, else a Refused, about which the caller warns after checking the arguments."""
    found = _found.get((key, backend, spec, options))
    return found if found is not None else _search(key, backend, spec, options)


def _without_defaults(spec: str) -> str:
    try:
        return _native.canonical(spec)
    except ValueError:  # creating the operator reports it
        return spec


def _search(key: tuple, backend: str, spec, options: tuple):
    given = backend
    backend = _backend if backend is None else backend
    choose(backend, "backend", BACKENDS)
    if backend == "torch":
        return None
    text = spec(*key[1:], *options)
    made = text if type(text) is Refused else operator(key[0], _without_defaults(text))
    if type(made) is Refused:
        if backend == "smelt":
            raise made.error(f"smelt: {made.reason}")
        return made
    if len(_found) >= MOST_FOUND:
        _found.clear()
    _found[key, given, spec, options] = made
    return made


def warn_of(refused: Refused) -> None:
    """Warns, once for each reason, that there is no kernel and the eager reference computes."""
    text = f"smelt: the eager reference computes, which is slow: {refused.reason}"
    held = getattr(_held, "texts", None)
    if held is None:
        warn_once(text)
    else:
        held.append(text)


class HeldWarnings:
    """Delays the warnings of a call's parts until all parts are computed, so that an error in the arguments of a later part
    comes without a warning."""

    def __enter__(self):
        _held.texts = []

    def __exit__(self, kind, *_):
        texts, _held.texts = _held.texts, None
        for text in texts if kind is None else ():
            warn_once(text)


def warn_once(text: str) -> None:
    """Warns of a cause, the first time, at the line of the program that made the call."""
    if text not in _warned and not torch.compiler.is_compiling():
        _warned.add(text)
        warnings.warn(text, SmeltWarning, stacklevel=_level_of_caller())


_LIBRARIES = (f"{__package__}.", "torch.")


def _level_of_caller() -> int:
    """For a warning that the caller of this function gives: how far up the first frame is that is neither this package's
    nor PyTorch's, or where there is none (in a backward pass), the frame before the first of PyTorch's."""
    level, inside, frame = 1, 0, sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "") + "."
        if not name.startswith(_LIBRARIES):
            return level
        inside = inside or (level if name.startswith("torch.") else 0)
        level, frame = level + 1, frame.f_back
    return inside or level


def package_file(*names: str) -> str:
    """A file of this package; of an editable installation in its build folder."""
    return str(importlib.resources.files(__package__).joinpath(*names))


def command_environment() -> dict:
    """For the command `smelt`: this package's emulator and NVRTC."""
    environment = dict(os.environ)
    environment.setdefault("SMELT_EMULATOR", package_file("libsmelt_emu.so"))
    path = nvrtc_path()
    if path:
        environment["SMELT_NVRTC"] = path
    return environment
