"""Other packages' calls, on smelt: same names, shapes, data types and conventions.

Import a call from here, or have it put where a trainer or a library has its own::

    import smelt_kernels as smelt
    smelt.compat.install("slime")

Each module says the contract that it keeps, and where it goes beyond.
"""

from __future__ import annotations

import importlib

from ._install import Report, install, uninstall

__all__ = ["Report", "install", "uninstall"]

_MODULES = ("cudnn", "deep_gemm", "flash_mla", "megatron", "miles", "nemo", "prime_rl", "slime", "tilelang", "xtuner")


def __getattr__(name: str):
    """The modules, imported when they are asked for."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
