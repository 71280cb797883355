"""prime-rl's sparse MLA kernels.

Their contract: q [1, T, H, 576], kv [1, S + 1, 1, 576], whose last row is a sentinel that masked slots
name (S; anything above counts as masked, too); indices [1, T, 1, topk]; lse [1, T, H] in base 2. The
sentinel's gradient is 0. The bucketed calls sort queries by their valid slots, here on the device and
without a copy; the order of slots within a row has no effect. Their bounds are taken as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._indexer import indexer_topk, quantize
from .._sparse_attention import sparse_attention, sparse_attention_backward
from ._conventions import from_base2, int32, one_group, to_base2
from .tilelang import _scale

DEFAULT_BUCKET_SIZES = (256, 512, 1024, 1536, 2048)


def _forward(q, kv, indices, sm_scale, d_v, buckets):
    rows, lists = one_group(kv, indices)
    out, lse = sparse_attention(
        q,
        rows[:, :-1],
        lists,
        _scale(q, sm_scale),
        dv=d_v,
        buckets=buckets,
        return_lse=True,
        backend="smelt",
    )
    return out, to_base2(lse)


def _backward(q, kv, o, do, indices, lse, sm_scale, buckets):
    rows, lists = one_group(kv, indices)
    dq, dkv, _ = sparse_attention_backward(
        do, q, rows[:, :-1], lists, o, from_base2(lse), _scale(q, sm_scale), buckets=buckets
    )
    return dq, torch.nn.functional.pad(dkv, (0, 0, 0, 1)).unsqueeze(-2)


@torch.no_grad()
def sparse_mla_fwd_interface(
    q: Tensor, kv: Tensor, indices: Tensor, sm_scale: float | None = None, d_v: int = 512, **tuning
) -> tuple[Tensor, Tensor]:
    """(out [1, T, H, d_v] bf16, lse [1, T, H] fp32 in base 2)"""
    return _forward(q, kv, indices, sm_scale, d_v, None)


@torch.no_grad()
def sparse_mla_bwd(
    q: Tensor,
    kv: Tensor,
    o: Tensor,
    do: Tensor,
    indices: Tensor,
    lse: Tensor,
    sm_scale: float | None = None,
    **tuning,
) -> tuple[Tensor, Tensor]:
    """(dq, dkv), of the shapes of q and kv."""
    return _backward(q, kv, o, do, indices, lse, sm_scale, None)


@torch.no_grad()
def sparse_mla_fwd_bucketed(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    sm_scale: float | None = None,
    d_v: int = 512,
    bucket_sizes: tuple[int, ...] = DEFAULT_BUCKET_SIZES,
) -> tuple[Tensor, Tensor]:
    """As sparse_mla_fwd_interface."""
    return _forward(q, kv, indices, sm_scale, d_v, bucket_sizes)


@torch.no_grad()
def sparse_mla_bwd_bucketed(
    q: Tensor,
    kv: Tensor,
    o: Tensor,
    do: Tensor,
    indices: Tensor,
    lse: Tensor,
    sm_scale: float | None = None,
    bucket_sizes: tuple[int, ...] = DEFAULT_BUCKET_SIZES,
    sort_bwd_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """As sparse_mla_bwd."""
    return _backward(q, kv, o, do, indices, lse, sm_scale, bucket_sizes)


def sparse_mla_bwd_bucketed_sorted(
    q: Tensor,
    kv: Tensor,
    o: Tensor,
    do: Tensor,
    indices: Tensor,
    lse: Tensor,
    sm_scale: float | None = None,
    bucket_sizes: tuple[int, ...] = DEFAULT_BUCKET_SIZES,
):
    """As sparse_mla_bwd."""
    return sparse_mla_bwd_bucketed(q, kv, o, do, indices, lse, sm_scale, bucket_sizes)


@torch.no_grad()
def fp8_indexer(
    q: Tensor,
    k: Tensor,
    w: Tensor,
    ks: Tensor,
    ke: Tensor,
    topk: int,
    weight_scale: float = 1.0,
    chunk_size: int | None = None,
) -> Tensor:
    """[T, topk] int32 by descending score, of bf16 q [T, H, D] and k [S, D] rounded to e4m3 row by row; S, the
    sentinel's row, where a window has no more keys. chunk_size, which older ones have, has no effect."""
    q_rows, weights = quantize(q, factor=w.float() * weight_scale, backend="smelt")
    k_rows, k_scale = quantize(k, backend="smelt")
    indices, _, _ = indexer_topk(
        q_rows,
        k_rows,
        weights,
        int32(ks),
        int32(ke),
        topk,
        k_scale=k_scale,
        order="score",
        backend="smelt",
    )
    return indices.masked_fill(indices < 0, k.shape[0])


fp8_indexer_full = fp8_indexer  # the same without chunks
