"""Other packages' calls, on smelt: same names, shapes, data types and conventions.

Import a call from here, or put it where a program imports it::

    import smelt.compat
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
            "sparse_attention_forward_wrapper",
            "sparse_attention_backward_wrapper",
            "indexer_forward_wrapper",
            "indexer_top_k_wrapper",
            "sparse_indexer_score_recompute_wrapper",
            "sparse_attn_score_recompute_wrapper",
            "indexer_backward_wrapper",
        ),
    ),
    "deep_gemm": ("", ("fp8_mqa_logits",)),
}


def _package(name: str) -> types.ModuleType:
    """The installed package, else an empty one in its place."""
    try:
        return importlib.import_module(name)
    except ImportError:
        module = types.ModuleType(name, f"smelt in the place of {name}")
        sys.modules[name] = module
        return module


def install(*names: str) -> None:
    """Puts smelt's calls into the packages of these names ("flash_mla", "cudnn", "deep_gemm"), which need not be
    installed; what else they have stays. Programs that imported a call by name before keep theirs."""
    for name in names:
        if name not in _PACKAGES:
            raise ValueError(
                f"smelt: {name!r} is no package that can be stood in for: "
                f"{', '.join(sorted(_PACKAGES))}"
            )
    for name in names:
        holder_name, calls = _PACKAGES[name]
        ours = importlib.import_module(f"{__name__}.{name}")
        package = _package(name)
        holder = package
        if holder_name:
            holder = types.SimpleNamespace()
            try:
                holder.__dict__.update(vars(getattr(package, holder_name)))
            except (AttributeError, ImportError, TypeError):
                pass  # it has none, or one that cannot be had without what is missing here
            setattr(package, holder_name, holder)
        for call in calls:
            setattr(holder, call, getattr(ours, call))
