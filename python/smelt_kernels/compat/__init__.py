"""Other packages' calls, on smelt: same names, shapes, data types and conventions.

Import a call from here, or put it where a program imports it::

    import smelt_kernels as smelt
    smelt.compat.install("flash_mla", "cudnn", "deep_gemm")   # before the program's own imports

    from flash_mla import flash_mla_sparse_fwd
    import cudnn; cudnn.DSA.sparse_attention_backward_wrapper

Each module says the contract that it keeps, and where it goes beyond.
"""

from __future__ import annotations

import importlib
import sys
import types

# What `install` knows: of each package the attribute that holds the calls ("" for the package itself),
# and the calls.
_PACKAGES = {
    "flash_mla": ("", ("flash_mla_sparse_fwd",)),
    "cudnn": (
        "DSA",
        (
            "sparse_attention",
            "sparse_attention_score_recompute",
            "sparse_attention_forward_wrapper",
            "sparse_attention_backward_wrapper",
            "indexer_forward_wrapper",
            "indexer_forward_top_k_wrapper",
            "compress_topk_cand_buffer_size",
            "compress_topk_cand_buffer_size_thd",
            "indexer_top_k_wrapper",
            "compactify_wrapper",
            "local_to_global_wrapper",
            "sparse_indexer_score_recompute_wrapper",
            "sparse_attn_score_recompute_wrapper",
            "indexer_backward_wrapper",
            "dense_attn_score_recompute_wrapper",
            "dense_indexer_score_recompute_wrapper",
            "dense_indexer_backward_wrapper",
        ),
    ),
    "deep_gemm": ("", ("fp8_mqa_logits", "fp8_fp4_mqa_logits")),
}


_MODULES = ("cudnn", "deep_gemm", "flash_mla", "megatron", "miles", "nemo", "prime_rl", "slime", "tilelang")


def __getattr__(name: str):
    """The modules, imported when they are asked for."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _package(name: str) -> types.ModuleType:
    """The installed package, else an empty one in its place."""
    try:
        return importlib.import_module(name)
    except ImportError:
        module = types.ModuleType(name, f"smelt in the place of {name}")
        sys.modules[name] = module
        return module


class _Calls(types.SimpleNamespace):
    """In the place of a package's object that holds calls: ours, and what else the package's own has, which may
    make it only when it is asked for."""

    def __getattr__(self, name):
        own = self.__dict__.get("_own")
        if own is None:
            raise AttributeError(f"smelt: there is no {name} in the place of a package that is not here")
        return getattr(own, name)


def _install_megatron(name: str) -> None:
    """Into Megatron-LM, which is there: its modules of TileLang, with TileLang or without."""
    ours = importlib.import_module(f"{__name__}.{name}")
    for module_name, calls in ours.MODULES.items():
        module = importlib.import_module(f"{ours.PACKAGE}.{module_name}")
        for call in calls:
            setattr(module, call, getattr(ours, call))
        if module_name in ours.THERE:
            setattr(module, ours.THERE[module_name], True)


def install(*names: str) -> None:
    """Puts smelt's calls into the packages of these names ("flash_mla", "cudnn", "deep_gemm"), which need not be
    installed; what else they have stays. Programs that imported a call by name before keep theirs. "megatron" is
    Megatron-LM, which must be there: its calls of TileLang's kernels."""
    for name in names:
        if name not in _PACKAGES and name != "megatron":
            raise ValueError(
                f"smelt: {name!r} is no package that can be stood in for: {', '.join(sorted((*_PACKAGES, 'megatron')))}"
            )
    for name in names:
        if name == "megatron":
            _install_megatron(name)
            continue
        holder_name, calls = _PACKAGES[name]
        ours = importlib.import_module(f"{__name__}.{name}")
        package = _package(name)
        holder = package
        if holder_name:
            try:
                own = getattr(package, holder_name)
            except (AttributeError, ImportError):
                own = None  # it has none, or one that cannot be had without what is missing here
            holder = own if isinstance(own, _Calls) else _Calls(_own=own)
            setattr(package, holder_name, holder)
        for call in calls:
            setattr(holder, call, getattr(ours, call))
