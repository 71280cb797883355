"""cuDNN Frontend's `cudnn.DSA`: the sparse attention's wrappers, and the top-k's.

Their contract: q [T, H, D], kv [S, D], topk_idxs [T, topk], lse [T, H] natural and of the keys alone
(FlashMLA's +inf of empty rows is taken, too), attn_sink [H] fp32, -inf for none; results in a dict that
unpacks as a tuple. Beyond it: any number of heads, masked slots anywhere, empty rows. Of top-k: rows shorter
than top_k, which end with -1; indices come ascending. Their indexer's forward and backward wrappers are not
there.
"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from .._indexer import topk_select
from .._sparse_attention import sparse_attention, sparse_attention_backward
from ._conventions import from_flash_mla, int32, to_flash_mla


class TupleDict(dict):
    """A dict whose values also come by number, and as a tuple."""

    def __iter__(self):
        return iter(self.values())

    def __getitem__(self, key):
        return (
            tuple(self.values())[key] if isinstance(key, (int, slice)) else super().__getitem__(key)
        )


def _on(stream):
    """Work on a stream of the driver's, None: PyTorch's current one."""
    if stream is None:
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(int(stream)))


def _scale(q: Tensor, softmax_scale: float | None) -> float:
    return q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale


@torch.no_grad()
def sparse_attention_forward_wrapper(
    q: Tensor,
    kv: Tensor,
    topk_idxs: Tensor,
    attn_sink: Tensor | None = None,
    topk_length: Tensor | None = None,
    softmax_scale: float | None = None,
    stream=None,
) -> TupleDict:
    """{"out", "max_logits", "lse"}"""
    with _on(stream):
        out, lse, max_logits = sparse_attention(
            q,
            kv,
            int32(topk_idxs),
            _scale(q, softmax_scale),
            dv=512 if q.shape[-1] in (512, 576) else None,
            sink=attn_sink,
            topk_length=topk_length,
            return_lse=True,
            return_max_logits=True,
            backend="smelt",
        )
    return TupleDict(out=out, max_logits=max_logits, lse=to_flash_mla(lse))


@torch.no_grad()
def sparse_attention_backward_wrapper(
    q: Tensor,
    kv: Tensor,
    out: Tensor,
    dout: Tensor,
    lse: Tensor,
    attn_sink: Tensor,
    topk_idxs: Tensor,
    softmax_scale: float | None = None,
    topk_length: Tensor | None = None,
    dq: Tensor | None = None,
    dkv: Tensor | None = None,
    block_tile: int = 64,
    stream=None,
) -> TupleDict:
    """{"dq", "dkv", "d_sink"}; dq and dkv are written into the tensors that are given."""
    with _on(stream):
        grads = sparse_attention_backward(
            dout,
            q,
            kv,
            int32(topk_idxs),
            out,
            from_flash_mla(lse),
            _scale(q, softmax_scale),
            topk_length=topk_length,
            sink=attn_sink,
        )
        results = [
            made if given is None else given.copy_(made) for given, made in zip((dq, dkv), grads)
        ]
    return TupleDict(dq=results[0], dkv=results[1], d_sink=grads[2])


@torch.no_grad()
def indexer_top_k_wrapper(
    input_values: Tensor,
    seq_lens: Tensor,
    top_k: int,
    next_n: int = 1,
    return_val: bool = True,
    num_copy_bits: int = 256,
    stream=None,
) -> TupleDict:
    """{"indices", "values"} of the rows of input_values [N, S], of which groups of next_n share an entry of
    seq_lens: the last row of a group has that length, those before it one less each."""
    if input_values.shape[0] != seq_lens.numel() * next_n:
        raise ValueError(
            f"smelt: {input_values.shape[0]} rows are not {seq_lens.numel()} sequences of {next_n}"
        )
    with _on(stream):
        behind = torch.arange(1 - next_n, 1, device=seq_lens.device, dtype=torch.int32)
        end = (int32(seq_lens).reshape(-1, 1) + behind).flatten()
        indices, values, _ = topk_select(
            input_values.float(),
            top_k,
            window_begin=torch.zeros_like(end),
            window_end=end,
            backend="smelt",
        )
    return TupleDict(indices=indices, values=values.to(input_values.dtype) if return_val else None)
