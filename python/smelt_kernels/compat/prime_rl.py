"""prime-rl's sparse MLA kernels, its DeepSeek-V4 attention and its indexer.

Their contract: q [1, T, H, 576], kv [1, S + 1, 1, 576], whose last row is a sentinel that masked slots name (slots
above S are masked, too); indices [1, T, 1, topk]; lse [1, T, H] in base 2. The sentinel's gradient is 0. The bucketed
calls sort queries by their number of valid slots, on the device and without a copy, with the given bounds; the order of
slots within a row has no effect.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._quantize import quantize
from .._selection import indexer_topk
from ._conventions import bounds, need_dimensions, without_kv_heads
from ._mla import attend, gradients
from .miles import sparse_attn_tilelang

DEFAULT_BUCKET_SIZES = (256, 512, 1024, 1536, 2048)


def _keys(kv: Tensor) -> Tensor:
    """kv without the sentinel."""
    need_dimensions(kv=(kv, 4))
    return kv[:, :-1]


def _backward(q, kv, o, do, indices, lse, sm_scale, buckets):
    dq, dkv = gradients(q, _keys(kv), o, do, indices, lse, sm_scale, 4, buckets=buckets)
    return dq, torch.nn.functional.pad(dkv, (0, 0, 0, 0, 0, 1))  # the sentinel's gradient is 0


@torch.no_grad()
def sparse_mla_fwd_interface(
    q: Tensor, kv: Tensor, indices: Tensor, sm_scale: float | None = None, d_v: int = 512, block_I: int = 64,
    num_stages: int = 2, threads: int = 256,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(out [1, T, H, d_v] bf16, lse [1, T, H] fp32 in base 2)"""
    return attend(q, _keys(kv), indices, sm_scale, d_v, 4)


@torch.no_grad()
def sparse_mla_bwd(
    q: Tensor, kv: Tensor, o: Tensor, do: Tensor, indices: Tensor, lse: Tensor, sm_scale: float | None = None
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
    return attend(q, _keys(kv), indices, sm_scale, d_v, 4, buckets=bucket_sizes)


@torch.no_grad()
def sparse_mla_bwd_bucketed(
    q: Tensor, kv: Tensor, o: Tensor, do: Tensor, indices: Tensor, lse: Tensor, sm_scale: float | None = None,
    bucket_sizes: tuple[int, ...] = DEFAULT_BUCKET_SIZES, sort_bwd_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As sparse_mla_bwd."""
    return _backward(q, kv, o, do, indices, lse, sm_scale, bucket_sizes)


def sparse_mla_bwd_bucketed_sorted(
    q: Tensor, kv: Tensor, o: Tensor, do: Tensor, indices: Tensor, lse: Tensor, sm_scale: float | None = None,
    bucket_sizes: tuple[int, ...] = DEFAULT_BUCKET_SIZES,
):  # fmt: skip
    """As sparse_mla_bwd."""
    return sparse_mla_bwd_bucketed(q, kv, o, do, indices, lse, sm_scale, bucket_sizes)


def dsv4_sparse_attn(
    q: Tensor, kv: Tensor, indices: Tensor, sinks: Tensor, sm_scale: float | None = None, block_I: int = 64,
    num_stages: int = 2, threads: int = 256,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(out [B, T, H, D], differentiable, and lse [B, T, H]: log2 of the denominator with the sink) of q
    [B, T, H, D], kv [B, S + 1, 1, D] with the sentinel's row, indices [B, T, 1, topk], sinks [H]."""
    rows, lists = without_kv_heads(q, _keys(kv), indices, 4)
    return sparse_attn_tilelang(q, rows, sinks, lists, sm_scale, return_lse=True)


@torch.no_grad()
def fp8_indexer(
    q: Tensor, k: Tensor, w: Tensor, ks: Tensor, ke: Tensor, topk: int, weight_scale: float = 1.0,
    chunk_size: int | None = None,
) -> Tensor:  # fmt: skip
    """[T, topk] int32 by descending score, of bf16 q [T, H, D] and k [S, D], rounded to e4m3 with a power-of-two scale
    per row; S, the sentinel's row, after a window's last key. weight_scale has no effect, as in the original, nor has
    chunk_size, an argument of older versions."""
    need_dimensions(q=(q, 3), k=(k, 2), w=(w, 2))
    q_rows, weights = quantize(q, factor=w.float(), scale="power_of_two", backend="smelt")
    k_rows, k_scale = quantize(k, scale="power_of_two", backend="smelt")
    indices, _, _ = indexer_topk(
        q_rows, k_rows, weights, bounds("ks", ks), bounds("ke", ke), topk, k_scale=k_scale, order="score",
        backend="smelt",
    )  # fmt: skip
    return indices.masked_fill(indices < 0, k.shape[0])


fp8_indexer_full = fp8_indexer  # the same without chunks
