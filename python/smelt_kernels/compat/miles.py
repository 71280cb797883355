"""miles' DeepSeek-V4 kernels, which NeMo AutoModel, VeOmni and others vendor.

Their contract: q [B, T, H, D], kv [B, S, D], attn_sink [H] fp32, topk_idxs [B, T, topk], slots outside 0..S-1 are
masked; lse is log2 of the denominator with the sink. NeMo's `reference_rounding` selects one of two roundings of the
original kernels and has no effect. The indexer: index_q [T, B, H, D], index_k [S, B, D], weights [T, B, H], one key per
compress_ratio tokens; scores [B, T, ..].
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._checks import shapes, whole
from .._indexer import indexer_logits
from .._sparse_attention import sparse_attention, sparse_attention_backward
from ._conventions import LOG2E, bounds, from_base2, indexer_weights, need_dimensions, need_floats, slots, to_base2_with_sink
from ._mla import scale_of
from .slime import indexer_bwd_interface, indexer_fwd_interface, lighting_indexer  # noqa: F401


@torch.no_grad()
def sparse_mqa_fwd_interface(
    q: Tensor, kv: Tensor, attn_sink: Tensor, topk_idxs: Tensor, sm_scale: float | None = None, block_I: int = 64,
    num_stages: int = 2, threads: int = 256, reference_rounding: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(out [B, T, H, D] bf16, lse [B, T, H] fp32: log2 of the denominator with the sink)"""
    return sparse_attn_tilelang(q, kv, attn_sink, topk_idxs, sm_scale, return_lse=True)


@torch.no_grad()
def sparse_mqa_bwd_interface(
    q: Tensor, kv: Tensor, attn_sink: Tensor, o: Tensor, do: Tensor, topk_idxs: Tensor, lse: Tensor,
    sm_scale: float | None = None, return_dkv_accum_dtype: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(dq, dkv, d_attn_sink); dkv is fp32 with return_dkv_accum_dtype.

    The kernel gets the denominator with the sink as lse, and no sink: subtracting a dominating sink from the
    denominator would lose all precision. The sink's gradient is a sum over queries.
    """
    need_dimensions(kv=(kv, 3), topk_idxs=(topk_idxs, 3))
    shapes(q=(q, "BTHD"), attn_sink=(attn_sink, "H"), lse=(lse, "BTH"))
    need_floats(attn_sink=attn_sink)
    dq, dkv, _ = sparse_attention_backward(
        do, q, kv, slots("topk_idxs", topk_idxs), o, from_base2(lse), scale_of(q, sm_scale),
        dkv_dtype=torch.float32 if return_dkv_accum_dtype else None,
    )  # fmt: skip
    delta = (o.float() * do.float()).sum(-1)
    share = torch.exp2(attn_sink.float() * LOG2E - lse)
    dsink = -(delta * share).sum(dim=tuple(range(delta.dim() - 1)))
    return dq, dkv, dsink


def sparse_attn_tilelang(
    q: Tensor, kv: Tensor, attn_sink: Tensor, topk_idxs: Tensor, sm_scale: float | None = None,
    reference_rounding: bool = False, return_lse: bool = False,
):  # fmt: skip
    """out [B, T, H, D], differentiable; with return_lse also lse, as sparse_mqa_fwd_interface gives it."""
    need_dimensions(q=(q, 4), kv=(kv, 3), topk_idxs=(topk_idxs, 3), attn_sink=(attn_sink, 1))
    out, lse = sparse_attention(
        q, kv, slots("topk_idxs", topk_idxs), scale_of(q, sm_scale), dv=q.shape[-1], sink=attn_sink, return_lse=True,
        backend="smelt",
    )  # fmt: skip
    return (out, to_base2_with_sink(lse, attn_sink.detach())) if return_lse else out


def sparse_attn_tilelang_head_chunked(
    q: Tensor, kv: Tensor, attn_sink: Tensor, topk_idxs: Tensor, max_heads_per_kernel: int,
    sm_scale: float | None = None, reference_rounding: bool = False,
) -> Tensor:  # fmt: skip
    """As sparse_attn_tilelang. All heads run at once; the gradient of kv is summed in fp32."""
    whole(max_heads_per_kernel, "max_heads_per_kernel")
    return sparse_attn_tilelang(q, kv, attn_sink, topk_idxs, sm_scale)


class DeepSeekV4SparseAttention:
    """In the place of their autograd.Function."""

    @staticmethod
    def apply(q, kv, attn_sink, topk_idxs, sm_scale=None, reference_rounding=False) -> Tensor:
        return sparse_attn_tilelang(q, kv, attn_sink, topk_idxs, sm_scale)


class DeepSeekV4SparseAttentionHeadChunked:
    """In the place of their autograd.Function."""

    @staticmethod
    def apply(q, kv, attn_sink, topk_idxs, max_heads_per_kernel, sm_scale=None, reference_rounding=False) -> Tensor:
        return sparse_attn_tilelang_head_chunked(q, kv, attn_sink, topk_idxs, max_heads_per_kernel, sm_scale)


# ---- the indexer --------------------------------------------------------------------------------


def _make_causal_cu_seqlens(seq_len_q: int, seq_len_kv: int, compress_ratio: int, device) -> tuple[Tensor, Tensor]:
    """Each query's window of keys: from 0 to the last complete group."""
    seen = torch.arange(1, seq_len_q + 1, device=device, dtype=torch.int32)
    return torch.zeros_like(seen), seen // compress_ratio


@torch.no_grad()
def batched_indexer_fwd(q: Tensor, k: Tensor, weights: Tensor, cu_seqlen_ks: Tensor, cu_seqlen_ke: Tensor) -> Tensor:
    """logits [B, T, S] fp32, -inf outside the windows."""
    shapes(q=(q, "TBHD"), k=(k, "SBD"), weights=(weights, "TBH"))
    windows = bounds("cu_seqlen_ks", cu_seqlen_ks), bounds("cu_seqlen_ke", cu_seqlen_ke)
    return torch.stack(
        [
            indexer_logits(q[:, batch], k[:, batch], indexer_weights(weights[:, batch]), *windows, backend="smelt")
            for batch in range(q.shape[1])
        ]
    )


@torch.no_grad()
def batched_indexer_bwd(
    index_q: Tensor, weights: Tensor, index_k: Tensor, topk_indices: Tensor, grad_scores: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(grad_q, grad_w fp32, grad_k fp32)"""
    given = {"topk_indices": (topk_indices, "BTW"), "grad_scores": (grad_scores, "BTW")}
    shapes(index_q=(index_q, "TBHD"), index_k=(index_k, "SBD"), weights=(weights, "TBH"), **given)
    parts = [
        indexer_bwd_interface(
            index_q[:, batch], weights[:, batch], index_k[:, batch], topk_indices[batch], grad_scores[batch]
        )
        for batch in range(index_q.shape[1])
    ]
    dq, dw, dk = (torch.stack(each, 1) for each in zip(*parts))
    return dq, dw, dk


def v4_lighting_indexer(
    index_q: Tensor, index_k: Tensor, weights: Tensor, compress_ratio: int, topk: int,
    topk_indices: Tensor | None = None, cu_seqlen_ks: Tensor | None = None, cu_seqlen_ke: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(scores [B, T, topk] fp32, indices [B, T, topk] int32), scores are differentiable in index_q, index_k and
    weights; topk is limited to S."""
    given = {"topk_indices": (topk_indices, "BTW?")}
    shapes(index_q=(index_q, "TBHD"), index_k=(index_k, "SBD"), weights=(weights, "TBH"), **given)
    rows = index_k.shape[0]
    if (cu_seqlen_ks is None) != (cu_seqlen_ke is None):
        raise ValueError("smelt: cu_seqlen_ks and cu_seqlen_ke must be given together")
    if cu_seqlen_ks is None:
        cu_seqlen_ks, cu_seqlen_ke = _make_causal_cu_seqlens(index_q.shape[0], rows, compress_ratio, index_q.device)
    parts = [
        lighting_indexer(
            index_q[:, batch],
            index_k[:, batch],
            weights[:, batch],
            cu_seqlen_ks,
            cu_seqlen_ke,
            min(topk, rows),
            None if topk_indices is None else topk_indices[batch],
        )
        for batch in range(index_q.shape[1])
    ]
    scores, indices = (torch.stack(each) for each in zip(*parts))
    return scores, indices
