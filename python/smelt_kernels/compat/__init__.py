"""Functions of other packages on smelt's kernels, with the same names, shapes, data types and conventions.

Import a function from here, or replace a trainer's or a library's functions::

    import smelt_kernels as smelt
    smelt.compat.install("slime")

Each module documents the original's contract and what smelt supports in addition.
"""

from __future__ import annotations

import importlib

from ._install import Report, install, uninstall

__all__ = ["Report", "install", "uninstall"]

_MODULES = tuple("cudnn deep_gemm flash_mla flash_msa megatron miles nemo prime_rl slime tilelang xtuner".split())


def __getattr__(name: str):
    """Imports a module at its first use."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
