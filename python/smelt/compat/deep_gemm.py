"""DeepGEMM's `deep_gemm.fp8_mqa_logits`.

Its contract: q [T, H, D] e4m3, kv = (k [S, D] e4m3, k_scale [S] fp32), weights [T, H] fp32, windows
[cu_seq_len_k_start, cu_seq_len_k_end) int32; logits [T, S] fp32. Outside its window a row is -inf here whether
clean_logits asks for it or not: it costs nothing. The compressed form (max_seqlen_k) is not there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._indexer import indexer_logits


@torch.no_grad()
def fp8_mqa_logits(
    q: Tensor,
    kv: tuple[Tensor, Tensor],
    weights: Tensor,
    cu_seq_len_k_start: Tensor,
    cu_seq_len_k_end: Tensor,
    clean_logits: bool = True,
    max_seqlen_k: int = 0,
    logits_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """logits [T, S] fp32"""
    if max_seqlen_k or logits_dtype is not torch.float32:
        raise NotImplementedError(
            "smelt: fp8_mqa_logits with max_seqlen_k or another logits_dtype is not there"
        )
    k, k_scale = kv
    return indexer_logits(
        q, k, weights, cu_seq_len_k_start, cu_seq_len_k_end, k_scale=k_scale, backend="smelt"
    )
