"""NeMo AutoModel's dispatch helpers for DeepSeek sparse attention, by their names."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import _runtime
from .._indexer import indexer_windows
from .._project import project_values
from .._selection import indexer_topk
from ._conventions import bounds, indexer_weights, need_dimensions
from .slime import SparseMLA

_KERNELS = ("indexer", "sparse_attn")


def is_dsa_kernel_available(name: str) -> bool:
    """Whether a kernel can run here: on a GPU, or on the emulator."""
    if name not in _KERNELS:
        raise ValueError(f"smelt: {name!r} is not a kernel of sparse attention; legal: {', '.join(_KERNELS)}")
    return _runtime.EMULATED or torch.cuda.is_available()


def should_use_tilelang(
    backend: str, *, available: bool, kernel_name: str, tensors: tuple[Tensor, ...], require_bf16: bool = False
) -> bool:
    """Whether a call uses the kernel: "torch" never, "auto" if it can run, "tilelang" always (RuntimeError if it
    cannot)."""
    if backend == "torch":
        return False
    where = "cpu" if _runtime.EMULATED else "cuda"
    can = available and all(tensor.device.type == where for tensor in tensors)
    if require_bf16:
        can = can and all(tensor.dtype is torch.bfloat16 for tensor in tensors)
    if backend == "tilelang" and not can:
        raise RuntimeError(
            f"smelt: {kernel_name}: the TileLang backend was requested, but the kernel is "
            f"unavailable or tensors are not {where} tensors" + (" in bfloat16" if require_bf16 else "")
        )
    return can and backend in ("tilelang", "auto")


def tilelang_sparse_attention(
    q: Tensor, kv_latent: Tensor, topk_indices: Tensor, w_vc: Tensor, softmax_scale: float
) -> Tensor:
    """[T, H, v_head_dim]: attention over the latent rows, then each head's value up-projection.

    q [T, H, 576], kv_latent [T, 1, 576], topk_indices [T, 1, topk], w_vc [H, v_head_dim, 512].
    """
    out, _ = SparseMLA.apply(q, kv_latent, topk_indices, softmax_scale)
    return project_values(out, w_vc)


def tilelang_indexer_topk(
    index_q: Tensor, index_k: Tensor, head_weights: Tensor, cu_seqlens: Tensor, index_topk: int,
    query_indices: Tensor | None = None, cu_seqlens_padded: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """[T, 1, index_topk] int32 for packed documents, ascending, -1 in unused slots.

    index_q [T, H, D] and index_k [S, D] bf16, head_weights [T, H]; query_indices: each local query's row in
    the padded layout. The host does not wait for the device. A padding query selects nothing (the original selects its
    document's keys, which are not used).
    """
    need_dimensions(index_q=(index_q, 3), index_k=(index_k, 2), head_weights=(head_weights, 2))
    begin, end = indexer_windows(
        bounds("cu_seqlens", cu_seqlens), index_q.shape[0], index_k.shape[0],
        cu_seqlens_padded=bounds("cu_seqlens_padded", cu_seqlens_padded),
        query_indices=None if query_indices is None else bounds("query_indices", query_indices.flatten()),
        backend="smelt",
    )  # fmt: skip
    indices, _, _ = indexer_topk(
        index_q, index_k, indexer_weights(head_weights), begin, end, index_topk,
        causal_limit=1 if query_indices is None else 0, backend="smelt",
    )  # fmt: skip
    return indices.unsqueeze(1)


def _generate_padded_varlen_mask_params(cu_seqlens: Tensor, cu_seqlens_padded: Tensor) -> tuple[Tensor, Tensor]:
    """(starts, ends) int32 of every row of the padded layout, as in the original: a padding row gets the keys of its
    document, and no window is empty."""
    if cu_seqlens.shape != cu_seqlens_padded.shape or cu_seqlens.numel() < 2:
        raise ValueError(
            f"smelt: cu_seqlens and cu_seqlens_padded must be [documents + 1], not "
            f"{tuple(cu_seqlens.shape)} and {tuple(cu_seqlens_padded.shape)}"
        )
    sizes = bounds("cu_seqlens", cu_seqlens).diff()
    places = bounds("cu_seqlens_padded", cu_seqlens_padded)
    row = torch.arange(int(places[-1]), device=places.device, dtype=torch.int32)
    document = (torch.bucketize(row, places, right=True) - 1).clamp(0, sizes.shape[0] - 1)
    starts = places[document]
    ends = torch.minimum(row + 1, starts + sizes[document])
    return starts, torch.maximum(ends, starts + 1)
