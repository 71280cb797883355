"""NeMo AutoModel's dispatch helpers for DeepSeek sparse attention, by their names."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _runtime
from .._project import project_values
from .slime import SparseMLA

_KERNELS = ("indexer", "sparse_attn")


def is_dsa_kernel_available(name: str) -> bool:
    """Whether a kernel can run here: on a GPU, or on the emulator."""
    if name not in _KERNELS:
        raise ValueError(f"smelt: {name!r} is no kernel of sparse attention: {', '.join(_KERNELS)}")
    return _runtime.EMULATED or torch.cuda.is_available()


def should_use_tilelang(
    backend: str,
    *,
    available: bool,
    kernel_name: str,
    tensors: tuple[Tensor, ...],
    require_bf16: bool = False,
) -> bool:
    """Whether a call takes the kernel: "torch" never, "auto" where it can run, "tilelang" always, with a
    RuntimeError where it cannot."""
    if backend == "torch":
        return False
    where = "cpu" if _runtime.EMULATED else "cuda"
    can = available and all(tensor.device.type == where for tensor in tensors)
    if require_bf16:
        can = can and all(tensor.dtype is torch.bfloat16 for tensor in tensors)
    if backend == "tilelang" and not can:
        raise RuntimeError(f"smelt: {kernel_name}: the TileLang backend was requested, but the kernel is "
                           f"unavailable or tensors are not {where} tensors"
                           + (" in bfloat16" if require_bf16 else ""))
    return can and backend in ("tilelang", "auto")


def tilelang_sparse_attention(q: Tensor, kv_latent: Tensor, topk_indices: Tensor, w_vc: Tensor,
                              softmax_scale: float) -> Tensor:
    """[T, H, v_head_dim]: attention over the latent rows, then each head's value up-projection.

    q [T, H, 576], kv_latent [T, 1, 576], topk_indices [T, 1, topk], w_vc [H, v_head_dim, 512].
    """
    out, _ = SparseMLA.apply(q, kv_latent, topk_indices, softmax_scale)
    return project_values(out, w_vc)
