"""Compiling ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from . import _native, _progress, _runtime
from ._checks import Passes, choose, integer

_PASSES = {"forward": 1, "backward": 2, "both": 3, None: 0}


def presets() -> list[str]:
    """Lists the models whose operators smelt knows by name.

    Returns:
        Names that `warm` takes.

    Example:
        >>> "glm-5.2" in smelt.presets()
        True
    """
    return _native.presets()


def _is_operator(name: str) -> bool:
    """Whether the name is that of an operator without required keys, and so a spec."""
    try:
        return bool(_native.expand(name))
    except ValueError:
        return False


def _operators(what, tp: int, passes) -> list[str]:
    """The specs that a preset's name, a spec, a module or a list of these stands for."""
    if isinstance(what, str):
        return [what] if ":" in what or _is_operator(what) else _native.preset(what, tp, _PASSES[passes])
    if isinstance(what, torch.nn.Module):
        parts = [each.smelt_specs() for each in what.modules() if hasattr(each, "smelt_specs")]
        if not parts:
            raise ValueError(
                f"smelt: no module of {type(what).__name__} has a method smelt_specs(), which names its operators"
            )
        return _operators(parts, tp, passes)
    if isinstance(what, Iterable):
        return [spec for each in what for spec in _operators(each, tp, passes)]
    raise TypeError(f"smelt: a preset, a spec, a module or a list of these is needed, not {what!r}")


def warm(
    what: str | torch.nn.Module | Iterable[Any],
    *,
    tp: int = 1,
    passes: Passes | None = None,
    arch: str | None = None,
    jobs: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[dict[str, Any]]:
    """Compiles kernels ahead of time and stores them in the cache.

    Args:
        what: A preset ("glm-5.2"), a spec ("sparse_attn:heads=64,dqk=576,dv=512,topk=2048,passes=both"), a
            torch.nn.Module with parts that have a method smelt_specs(), which returns any of these, or a list of these.
        tp: Ranks of tensor parallelism, which divide the heads of a preset.
        passes: Of a preset; None means "both".
        arch: The GPU's architecture, such as "sm_90a"; None means the current device's. Required without a device.
        jobs: Threads that compile; 0 means one for each processor.
        progress: Called as progress(done, total, kernel) after each kernel. An exception that it raises ends the work
            and is raised here. None means a bar, where standard error is a terminal.

    Returns:
        One dict for each kernel, with its spec and state ("cached" or "compiled").

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a preset, a spec or `passes` is unknown, or a module names no operator.
        RuntimeError: a kernel cannot be compiled, or there is no device and `arch` is None.

    Example:
        >>> kernels = smelt.warm("glm-5.2", tp=8, arch="sm_90a")
        >>> compiled = [kernel["spec"] for kernel in kernels if kernel["state"] == "compiled"]
    """
    choose(passes, "passes", tuple(_PASSES))
    tp, jobs = integer(tp, "tp"), integer(jobs, "jobs")
    if arch is not None and not isinstance(arch, str):
        raise TypeError(f"smelt: arch must be a str or None, not {type(arch).__name__}")
    if progress is not None and not callable(progress):
        raise TypeError(f"smelt: progress must be callable, not {type(progress).__name__}")
    operators = _operators(what, tp, passes)
    if arch is not None:
        context = _native.Context(0, arch, _runtime.nvrtc_path())
    else:
        context = _runtime.context(-1 if _runtime.EMULATED else torch.cuda.current_device())
    kernels = dict.fromkeys(kernel for spec in operators for kernel in context.kernels(spec))
    if progress is not None or not _progress.wanted():
        return context.prepare(tuple(kernels), jobs, progress)
    try:
        return context.prepare(tuple(kernels), jobs, _progress.draw)
    finally:
        _progress.clear()
