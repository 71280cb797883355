"""Megatron-LM's sparse attention in TileLang: the functions that `dsa_kernel_backend="tilelang"` calls.

Their contract: q [T, H, 576] or [B, T, H, 576], kv [S, 1, 576] or with batches, indices [T, 1, topk] or with batches,
-1 is masked; lse in base 2, 0 for an empty row. The indexer: index_q [T, H, D], index_k [S, D], weights [T, H]; scores of
masked slots are -inf. Lists and windows determine causality. In addition: any number of heads, slots and rows without
padding, and no rounding of sizes to buckets. `use_relu=False` runs in PyTorch and combines the heads into one query.
Shapes that smelt's indexer does not support run in PyTorch, with one warning.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._checks import shapes
from .._indexer import indexer_logits
from .._indexer_gradients import indexer_backward
from .._indexer_training import indexer_loss, indexer_scores, sparse_scores
from .._selection import indexer_topk
from .._sparse_attention import sparse_attention
from ._conventions import NEVER, bounds, indexer_weights, need_dimensions, need_floats, slots_in_window, slots
from ._mla import attend, gradients

# ---- attention ----------------------------------------------------------------------------------


def _zero_if_empty(lse: Tensor) -> Tensor:
    return lse.masked_fill(lse == NEVER, 0.0)


@torch.no_grad()
def sparse_mla_fwd_interface(
    q: Tensor, kv: Tensor, indices: Tensor, sm_scale: float | None = None, d_v: int = 512, block_I: int = 64,
    num_stages: int = 2, threads: int = 256,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(out [.., T, H, d_v] bf16, lse [.., T, H] fp32 in base 2)"""
    out, lse = attend(q, kv, indices, sm_scale, d_v, 3, 4)
    return out, _zero_if_empty(lse)


@torch.no_grad()
def sparse_mla_bwd(
    q: Tensor, kv: Tensor, o: Tensor | None, do: Tensor, indices: Tensor, lse: Tensor, sm_scale: float | None = None,
    delta: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(dq, dkv), of the shapes of q and kv. With delta (from sparse_mla_delta), o is not read."""
    if o is None and delta is None:
        raise ValueError("smelt: sparse_mla_bwd needs o or delta")
    return gradients(q, kv, o, do, indices, lse, sm_scale, 3, 4, delta=delta)


def sparse_mla_delta(o: Tensor, do: Tensor) -> Tensor:
    """The sums of o * do over the values, fp32."""
    need_floats(o=o, do=do)
    if o.shape != do.shape:
        raise ValueError(f"smelt: o and do differ: {list(o.shape)} and {list(do.shape)}")
    return (o.float() * do.float()).sum(-1)


class SparseMLA:
    """Replaces the original autograd.Function: `SparseMLA.apply(q, kv, indices, scaling)`."""

    @staticmethod
    def apply(q: Tensor, kv: Tensor, indices: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
        """(out, lse in base 2), out differentiable."""
        out, lse = attend(q, kv, indices, scaling, None, 3, 4)
        return out, _zero_if_empty(lse)


# ---- the indexer --------------------------------------------------------------------------------


def _logits_without_relu(index_q: Tensor, index_k: Tensor, weights: Tensor) -> Tensor:
    """Logits without ReLU, [T, S] fp32: the weighted sum over heads of a key's products is one product."""
    return torch.einsum("thd,th->td", index_q.float(), weights.float()) @ index_k.float().t()


def _windowed(logits: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    key = torch.arange(logits.shape[1], device=logits.device)
    seen = (key >= begin[:, None]) & (key < end[:, None])
    return logits.masked_fill(~seen, NEVER)


def _logits_at(logits: Tensor, indices: Tensor) -> Tensor:
    """The logits at each query's slots, -inf at masked slots."""
    slots = (indices >= 0) & (indices < logits.shape[1])
    if not logits.shape[1]:
        return logits.new_full(indices.shape, NEVER)
    return logits.gather(1, indices.long().where(slots, 0)).masked_fill(~slots, NEVER)


@torch.no_grad()
def indexer_fwd_interface(
    q: Tensor, kv: Tensor, weights: Tensor, cu_seqlen_ks: Tensor, cu_seqlen_ke: Tensor, clean_logits: bool = True,
    use_relu: bool = True,
) -> Tensor:  # fmt: skip
    """logits [T, S] fp32, -inf outside the windows for any clean_logits."""
    windows = {"cu_seqlen_ks": (cu_seqlen_ks, "T"), "cu_seqlen_ke": (cu_seqlen_ke, "T")}
    shapes(q=(q, "THD"), kv=(kv, "SD"), weights=(weights, "TH"), **windows)
    begin, end = bounds("cu_seqlen_ks", cu_seqlen_ks), bounds("cu_seqlen_ke", cu_seqlen_ke)
    if not use_relu:
        return _windowed(_logits_without_relu(q, kv, weights), begin, end)
    return indexer_logits(q, kv, indexer_weights(weights), begin, end)


@torch.no_grad()
def indexer_bwd_interface(
    index_q: Tensor, weights: Tensor, index_k: Tensor, topk_indices: Tensor, grad_scores: Tensor, use_relu: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """(grad_q, grad_w fp32, grad_k), of the shapes of index_q, weights and index_k."""
    given = {"topk_indices": (topk_indices, "TW"), "grad_scores": (grad_scores, "TW")}
    shapes(index_q=(index_q, "THD"), index_k=(index_k, "SD"), weights=(weights, "TH"), **given)
    lists = slots("topk_indices", topk_indices)
    if use_relu:
        dq, dk, dw = indexer_backward(grad_scores, index_q, index_k, weights.float(), lists)
        return dq, dw, dk
    leaves = [tensor.detach().float().requires_grad_() for tensor in (index_q, weights, index_k)]
    with torch.enable_grad():
        scores = _logits_at(_logits_without_relu(leaves[0], leaves[2], leaves[1]), lists)
        grad = grad_scores.float().masked_fill(scores.isneginf(), 0.0)
        dq, dw, dk = torch.autograd.grad(scores, leaves, grad)
    return dq.to(index_q.dtype), dw, dk.to(index_k.dtype)


def lighting_indexer(
    index_q: Tensor, index_k: Tensor, weights: Tensor, cu_seqlen_ks: Tensor, cu_seqlen_ke: Tensor, topk: int,
    topk_indices: Tensor | None = None, use_relu: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(scores [T, topk] fp32, indices [T, topk] int32, -1 in unused slots), by descending score; or the scores of
    topk_indices. Scores are differentiable in index_q, index_k and weights. topk is limited to S."""
    given = {"cu_seqlen_ks": (cu_seqlen_ks, "T"), "cu_seqlen_ke": (cu_seqlen_ke, "T")}
    given["topk_indices"] = (topk_indices, "TW?")
    shapes(index_q=(index_q, "THD"), index_k=(index_k, "SD"), weights=(weights, "TH"), **given)
    begin, end = bounds("cu_seqlen_ks", cu_seqlen_ks), bounds("cu_seqlen_ke", cu_seqlen_ke)
    topk = min(topk, index_k.shape[0])
    if topk_indices is None and not topk:
        nothing = index_q.new_empty((index_q.shape[0], 0))
        return nothing.float(), nothing.int()
    if topk_indices is not None:
        lists = slots_in_window(topk_indices, begin, end)
    if not use_relu:
        logits = _windowed(_logits_without_relu(index_q, index_k, weights), begin, end)
        if topk_indices is None:
            best, chosen = logits.detach().topk(topk, dim=-1)
            lists = topk_indices = chosen.int().masked_fill(best.isneginf(), -1)
        return _logits_at(logits, lists), topk_indices
    if topk_indices is not None:
        return indexer_scores(index_q, index_k, indexer_weights(weights), lists), topk_indices
    inputs = index_q, index_k, indexer_weights(weights)
    indices, scores, _ = indexer_topk(*inputs, begin, end, topk, order="score")
    return scores, indices


@torch.no_grad()
def lighting_indexer_indices(
    index_q: Tensor, index_k: Tensor, weights: Tensor, cu_seqlen_ks: Tensor, cu_seqlen_ke: Tensor, topk: int,
    use_relu: bool = True,
) -> Tensor:  # fmt: skip
    """lighting_indexer's indices."""
    windows = cu_seqlen_ks, cu_seqlen_ke
    return lighting_indexer(index_q, index_k, weights, *windows, topk, use_relu=use_relu)[1]


# ---- the indexer's training -----------------------------------------------------------------------


@torch.no_grad()
def sparse_indexer_target_interface(query: Tensor, key: Tensor, topk_indices: Tensor, softmax_scale: float) -> Tensor:
    """Attention's probabilities at each query's slots, summed over heads, [T, topk] fp32; query [T, H, D],
    key [S, D]."""
    need_dimensions(query=(query, 3), key=(key, 2), topk_indices=(topk_indices, 2))
    lists = slots("topk_indices", topk_indices)
    _, lse = sparse_attention(query, key, lists, softmax_scale, return_lse=True, backend="smelt")
    return sparse_scores(query, key, lists, lse, softmax_scale, backend="smelt")


class SparseIndexerKLLoss:
    """Replaces the original autograd.Function: `SparseIndexerKLLoss.apply(target, index_logits, valid_mask)`."""

    @staticmethod
    def apply(target: Tensor, index_logits: Tensor, valid_mask: Tensor) -> Tensor:
        """The sum over queries of the divergence of index_logits' softmax over the valid slots from target, which
        is normalised here; differentiable in index_logits. A query whose target is 0 everywhere adds 0 to the loss and
        gets no gradient (in the original the gradient is the softmax)."""
        need_dimensions(valid_mask=(valid_mask, 2))
        if valid_mask.dtype is not torch.bool:
            raise TypeError(f"smelt: valid_mask must be torch.bool, not {valid_mask.dtype}")
        slots = torch.arange(valid_mask.shape[1], device=valid_mask.device, dtype=torch.int32)
        return indexer_loss(index_logits, target, slots.masked_fill(~valid_mask, -1), backend="smelt")
