"""Compiling ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from . import _native, _runtime
from ._checks import choose, integer

_PASSES = {"forward": 1, "backward": 2, "both": 3, None: 0}


def presets() -> list[str]:
    """The models whose operators smelt knows by name."""
    return _native.presets()


def _operators(what, tp: int, passes) -> list[str]:
    """The specs that a preset's name, a spec, a module or a list of these stands for."""
    if isinstance(what, str):
        return [what] if ":" in what else _native.preset(what, tp, _PASSES[passes])
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
    what,
    *,
    tp: int = 1,
    passes: str | None = None,
    arch: str | None = None,
    jobs: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[dict]:
    """Compiles the kernels that are needed into the cache, and says of each what became of it.

    what: a preset ("glm-5.2", of which every one of `tp` ranks has its part of the heads), a spec
        ("sparse_attn:heads=64,dqk=576,dv=512,topk=2048,passes=both"), an nn.Module whose parts have a
        method smelt_specs(), which returns any of these, or a list of these.
    passes: of presets, "forward", "backward" or "both" (the default).
    arch: "sm_90a" and such; default: the current device's. Without a device it must be named.
    jobs: threads, 0: one per processor. progress(done, total, kernel) is called after each; what it raises
        ends the work, and comes out here.
    """
    choose(passes, "passes", tuple(_PASSES))
    tp, jobs = integer(tp, "tp"), integer(jobs, "jobs")
    if arch is not None and not isinstance(arch, str):
        raise TypeError(f"smelt: arch must be a str or None, not {type(arch).__name__}")
    if progress is not None and not callable(progress):
        raise TypeError(f"smelt: progress must be callable, not {type(progress).__name__}")
    kernels = dict.fromkeys(kernel for spec in _operators(what, tp, passes) for kernel in _native.expand(spec))
    if arch is not None:
        context = _native.Context(0, arch, _runtime.nvrtc_path())
    else:
        context = _runtime.context(-1 if _runtime.EMULATED else torch.cuda.current_device())
    return context.prepare(tuple(kernels), jobs, progress)
