"""DeepGEMM's `deep_gemm.fp8_mqa_logits`, and `fp8_fp4_mqa_logits` of e4m3.

Its contract: q [T, H, D] e4m3, kv = (k [S, D] e4m3, k_scale [S] fp32), weights [T, H] fp32, windows
[cu_seq_len_k_start, cu_seq_len_k_end) int32; logits [T, S] in logits_dtype, or with max_seqlen_k the columns of
each row's own window from its first key on, [T, max_seqlen_k]. Outside its window a row is -inf for any clean_logits,
because this takes no extra time. The compressed form is gathered from the full one, a chunk of queries at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from .._checks import not_negative, shapes
from .._indexer import CHUNK_BYTES, indexer_logits
from ._conventions import indexer_weights

# smelt's head widths; narrower heads are padded with zeros.
_WIDTHS = (64, 128)


def _pair(name: str, given) -> tuple:
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(f"smelt: {name} must be a tensor and its scales, not {type(given).__name__}")
    return tuple(given)


def _padded_heads(x: Tensor) -> Tensor:
    width = next((width for width in _WIDTHS if width >= x.shape[-1]), x.shape[-1])
    if width == x.shape[-1]:
        return x
    return pad(x.view(torch.uint8), (0, width - x.shape[-1])).view(x.dtype)


def _compressed(logits: Tensor, begin: Tensor, end: Tensor, width: int) -> Tensor:
    """Shifts each row so that it begins at its window's first column."""
    column = torch.arange(width, device=logits.device) + begin.clamp(min=0)[:, None]
    if not logits.shape[1]:
        return logits.new_full(column.shape, float("-inf"))
    inside = (column < end[:, None]) & (column < logits.shape[1])
    return logits.gather(1, column.where(inside, 0)).masked_fill(~inside, float("-inf"))


@torch.no_grad()
def fp8_mqa_logits(
    q: Tensor, kv: tuple[Tensor, Tensor], weights: Tensor, cu_seq_len_k_start: Tensor, cu_seq_len_k_end: Tensor,
    clean_logits: bool = True, max_seqlen_k: int = 0, logits_dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """logits [T, S], or [T, max_seqlen_k], in logits_dtype (fp32 or bf16)"""
    if logits_dtype not in (torch.float32, torch.bfloat16):
        raise TypeError(f"smelt: logits_dtype must be torch.float32 or bfloat16, not {logits_dtype}")
    k, k_scale = _pair("kv", kv)
    windows = {"cu_seq_len_k_start": (cu_seq_len_k_start, "T"), "cu_seq_len_k_end": (cu_seq_len_k_end, "T")}
    shapes(q=(q, "THD"), k=(k, "SD"), k_scale=(k_scale, "S"), weights=(weights, "TH"), **windows)
    not_negative(max_seqlen_k, "max_seqlen_k")
    q, k, weights = _padded_heads(q), _padded_heads(k), indexer_weights(weights)
    if not max_seqlen_k and logits_dtype is torch.float32:
        windows = cu_seq_len_k_start, cu_seq_len_k_end
        return indexer_logits(q, k, weights, *windows, k_scale=k_scale, backend="smelt")
    made = q.new_empty((q.shape[0], max_seqlen_k or k.shape[0]), dtype=logits_dtype)
    rows = max(1, CHUNK_BYTES // max(4, 4 * k.shape[0]))
    for first in range(0, q.shape[0], rows):
        some = slice(first, first + rows)
        begin, end = cu_seq_len_k_start[some], cu_seq_len_k_end[some]
        logits = indexer_logits(q[some], k, weights[some], begin, end, k_scale=k_scale, backend="smelt")
        made[some] = _compressed(logits, begin, end, max_seqlen_k) if max_seqlen_k else logits
    return made


def fp8_fp4_mqa_logits(
    q: tuple[Tensor, Tensor | None], kv: tuple[Tensor, Tensor], weights: Tensor, cu_seq_len_k_start: Tensor,
    cu_seq_len_k_end: Tensor, clean_logits: bool = True, max_seqlen_k: int = 0,
    logits_dtype: torch.dtype = torch.float32,
) -> Tensor:  # fmt: skip
    """fp8_mqa_logits of q = (q, None); q with scales is fp4, which is not supported."""
    q8, q_scale = _pair("q", q)
    if q_scale is not None:
        raise NotImplementedError("smelt: fp8_fp4_mqa_logits of fp4 is not supported")
    windows = cu_seq_len_k_start, cu_seq_len_k_end
    return fp8_mqa_logits(q8, kv, weights, *windows, clean_logits, max_seqlen_k, logits_dtype)
