"""slime's GLM-5 kernels, which NeMo AutoModel, Megatron and others vendor: packed layout.

Their contract: q [T, H, 576], kv [S, 1, 576], indices [T, 1, topk], -1 is masked; lse [T, H] in base 2.
The lists determine causality. If the backward pass gets delta, the sums of o * do, it does not read o. Arguments that
only tune the original kernels (block_I, num_stages, threads) have no effect.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._checks import optional_tensor
from .._indexer import indexer_logits, indexer_windows
from .._indexer_gradients import indexer_backward
from .._indexer_training import indexer_scores
from .._selection import indexer_topk
from ._conventions import bounds, indexer_weights, need_dimensions, slots_in_window, slots, without_heads
from ._mla import attend, gradients


@torch.no_grad()
def sparse_mla_fwd_interface(
    q: Tensor, kv: Tensor, indices: Tensor, sm_scale: float | None = None, return_p_sum: bool = False, d_v: int = 512,
    block_I: int = 64, num_stages: int = 2, threads: int = 256,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(out [T, H, d_v] bf16, lse [T, H] fp32 in base 2)"""
    if return_p_sum:
        raise NotImplementedError("smelt: sparse_mla_fwd_interface with return_p_sum is not supported")
    return attend(q, kv, indices, sm_scale, d_v, 3)


@torch.no_grad()
def sparse_mla_bwd(
    q: Tensor, kv: Tensor, o: Tensor, do: Tensor, indices: Tensor, lse: Tensor, sm_scale: float | None = None,
    is_casual: bool = True, return_kernel: bool = False, delta: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(dq, dkv), of the shapes of q and kv."""
    if not is_casual or return_kernel:
        raise NotImplementedError("smelt: sparse_mla_bwd supports only is_casual=True and return_kernel=False")
    # The original's delta has a batch dimension.
    if optional_tensor(delta, "delta") is not None and delta.dim() == 3 and delta.shape[0] == 1:
        delta = delta.squeeze(0)
    return gradients(q, kv, o, do, indices, lse, sm_scale, 3, delta=delta)


class SparseMLA:
    """Replaces the original autograd.Function: `SparseMLA.apply(q, kv, indices, scaling)`."""

    @staticmethod
    def apply(q: Tensor, kv: Tensor, indices: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
        """(out, lse in base 2), out differentiable."""
        return attend(q, kv, indices, scaling, None, 3)


class SGLangSparseMLA:
    """Replaces the original autograd.Function with FlashMLA's forward pass: `SGLangSparseMLA.apply(q, kv, indices,
    scaling)`. lse is in base 2, as the original backward pass expects it; FlashMLA's is natural."""

    @staticmethod
    def apply(q: Tensor, kv: Tensor, indices: Tensor, scaling: float, d_v: int = 512) -> tuple[Tensor, Tensor]:
        """(out, lse in base 2 and bf16), out differentiable."""
        out, lse = attend(q, kv, indices, scaling, d_v, 3)
        return out, lse.bfloat16()


def generate_varlen_mask_params(cu_seqlens: Tensor) -> tuple[Tensor, Tensor]:
    """Each packed query's window of keys: (starts, ends). Waits for the device to learn their number;
    smelt.indexer_windows takes the number and does not wait."""
    need_dimensions(cu_seqlens=(cu_seqlens, 1))
    tokens = int(cu_seqlens[-1])
    starts, ends = indexer_windows(bounds("cu_seqlens", cu_seqlens), tokens, tokens, backend="smelt")
    return starts.to(cu_seqlens.dtype), ends.long()


@torch.no_grad()
def indexer_fwd_interface(
    q: Tensor, kv: Tensor, weights: Tensor, cu_seqlen_ks: Tensor, cu_seqlen_ke: Tensor, clean_logits: bool = True
) -> Tensor:
    """logits [T, S] fp32 of q [T, H, D] and the keys kv [S, D], -inf outside the windows for any clean_logits."""
    need_dimensions(q=(q, 3), weights=(weights, 2))
    windows = bounds("cu_seqlen_ks", cu_seqlen_ks), bounds("cu_seqlen_ke", cu_seqlen_ke)
    return indexer_logits(q, without_heads("kv", kv, 2), indexer_weights(weights), *windows, backend="smelt")


@torch.no_grad()
def indexer_bwd_interface(
    index_q: Tensor, weights: Tensor, index_k: Tensor, topk_indices: Tensor, grad_scores: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(grad_q, grad_w fp32, grad_k fp32), of the shapes of index_q, weights and index_k."""
    need_dimensions(index_q=(index_q, 3), topk_indices=(topk_indices, 2))
    dq, dk, dw = indexer_backward(
        grad_scores, index_q, without_heads("index_k", index_k, 2), _weights(weights).float(),
        slots("topk_indices", topk_indices), dk_dtype=torch.float32, backend="smelt",
    )  # fmt: skip
    return dq, dw.view(weights.shape), dk.view(index_k.shape)


def _weights(weights: Tensor) -> Tensor:
    """[T, H], fp32 or bf16, of [T, H] or [T, H, 1]."""
    need_dimensions(weights=(weights, 2, 3))
    return indexer_weights(weights.squeeze(-1) if weights.dim() == 3 else weights)


def lighting_indexer(
    index_q: Tensor, index_k: Tensor, weights: Tensor, cu_seqlen_ks: Tensor, cu_seqlen_ke: Tensor, topk: int,
    topk_indices: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(scores [T, topk] fp32, indices [T, topk] int32, -1 in unused slots), by descending score; or the scores of
    topk_indices. Scores are differentiable in index_q, index_k and weights."""
    need_dimensions(index_q=(index_q, 3))
    begin, end = bounds("cu_seqlen_ks", cu_seqlen_ks), bounds("cu_seqlen_ke", cu_seqlen_ke)
    keys, factors = without_heads("index_k", index_k, 2), _weights(weights)
    if topk_indices is not None:
        lists = slots_in_window(topk_indices, begin, end)
        return indexer_scores(index_q, keys, factors, lists, backend="smelt"), topk_indices
    indices, scores, _ = indexer_topk(index_q, keys, factors, begin, end, topk, order="score", backend="smelt")
    return scores, indices
