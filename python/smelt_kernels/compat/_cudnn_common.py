"""Shared by the wrappers of `cudnn.DSA`: streams, batches and documents, masks, the gradient of the divergence."""

from __future__ import annotations

import contextlib
import math

import torch
from torch import Tensor

from .._checks import finite, not_negative, number, whole
from ._conventions import bounds, indexer_weights, need_dimensions, slots, without_heads

# The originals clip log-probabilities at -100: the loss term of a key below has no gradient, and the target's sum
# leaves the key out.
CLIPPED = -100.0
CLIPPED_PROBABILITY = math.exp(CLIPPED)
LEAST_SUM = 1e-10  # a smaller sum of a target counts as 0


def on_stream(stream):
    """Runs on a stream of PyTorch or of the driver; None: PyTorch's current stream."""
    if stream is None:
        return contextlib.nullcontext()
    if isinstance(stream, torch.cuda.Stream):
        return torch.cuda.stream(stream)
    return torch.cuda.stream(torch.cuda.ExternalStream(int(stream)))


def packed(*tensors: Tensor | None) -> list[Tensor | None]:
    """The tensors with batches and tokens as one dimension."""
    return [None if tensor is None else tensor.flatten(0, 1) for tensor in tensors]


def packed_lists(topk_indices: Tensor, rows: int, are_global: bool) -> Tensor:
    """Lists of rows of all batches, which have `rows` rows each, [B * T, topk] int32; masked slots are negative."""
    lists = slots("topk_indices", topk_indices)
    if not are_global:
        lists = shifted(lists, batch_starts(lists, rows), rows)
    return lists.flatten(0, 1)


def batch_starts(lists: Tensor, rows: int) -> Tensor:
    """The first row of each batch among all rows, for lists of three dimensions."""
    return (torch.arange(lists.shape[0], device=lists.device) * rows)[:, None, None]


def shifted(lists: Tensor, first: Tensor, rows: Tensor | int) -> Tensor:
    """Converts row numbers within a batch or document, whose `rows` rows begin at `first`, to global row numbers. Slots
    outside of its rows become -1. Computes in int64, where nothing wraps."""
    mine = (lists >= 0) & (lists < rows)
    return slots("lists", torch.where(mine, lists.long() + first, -1))


def ends(tokens: int, rows: int, offset, ratio: int, device) -> Tensor:
    """The number of keys that each query of a document sees; offset: the first query's, in tokens."""
    whole(ratio, "ratio")
    end = torch.arange(1, tokens + 1, device=device)
    return ((end + offset) // ratio).clamp(0, rows).int()


def causal_offsets(q_causal_offsets: Tensor | None, documents: int) -> Tensor | None:
    """The offset of each document's first query, int32."""
    if q_causal_offsets is None:
        return None
    if not isinstance(q_causal_offsets, Tensor) or q_causal_offsets.shape != (documents,):
        raise ValueError(
            f"smelt: q_causal_offsets must be [{documents}], not {list(getattr(q_causal_offsets, 'shape', ()))}"
        )
    return bounds("q_causal_offsets", q_causal_offsets)


def are_packed(cu_seqlens_q: Tensor | None, cu_seqlens_k: Tensor | None) -> bool:
    """Whether documents are packed along one dimension, without a batch dimension."""
    if (cu_seqlens_q is None) != (cu_seqlens_k is None):
        raise ValueError("smelt: cu_seqlens_q and cu_seqlens_k must be given together")
    if cu_seqlens_q is None:
        return False
    need_dimensions(cu_seqlens_q=(cu_seqlens_q, 1), cu_seqlens_k=(cu_seqlens_k, 1))
    if cu_seqlens_q.shape != cu_seqlens_k.shape or not cu_seqlens_q.shape[0]:
        raise ValueError(
            "smelt: cu_seqlens_q and cu_seqlens_k must both be [documents + 1], not "
            f"{list(cu_seqlens_q.shape)} and {list(cu_seqlens_k.shape)}"
        )
    return True


def on_host(name: str, cu_seqlens: Tensor, rows: int) -> list[int]:
    """The numbers, which must ascend within 0..rows. The host waits for the device."""
    numbers = bounds(name, cu_seqlens).tolist()
    if any(a > b for a, b in zip([0, *numbers], [*numbers, rows])):
        raise ValueError(f"smelt: {name} must ascend within 0 to {rows}, not {numbers}")
    return numbers


def documents(q, k, cu_seqlens_q, cu_seqlens_k, max_seqlen_k, q_causal_offsets, **per_head) -> tuple:
    """The number of columns of a queries x keys matrix, the keys, and for each document (or batch) its queries, its
    keys and the offset of its first query. per_head: tensors with a number for each query and head. The host waits for
    cu_seqlens."""
    is_packed = are_packed(cu_seqlens_q, cu_seqlens_k)
    need_dimensions(q=(q, 3 if is_packed else 4))
    for name, each in per_head.items():
        need_dimensions(**{name: (each, q.dim() - 1)})
        if each.shape != q.shape[:-1]:
            raise ValueError(f"smelt: {name} must be {list(q.shape[:-1])}, not {list(each.shape)}")
    keys = without_heads("k", k, 2 if is_packed else 3)
    if is_packed:
        first, mine = (
            on_host(name, each, tensor.shape[0])
            for name, each, tensor in (("cu_seqlens_q", cu_seqlens_q, q), ("cu_seqlens_k", cu_seqlens_k, k))
        )
        longest = max((b - a for a, b in zip(mine, mine[1:])), default=0)
        width = longest if max_seqlen_k is None else not_negative(max_seqlen_k, "max_seqlen_k")
        if width < longest:
            raise ValueError(
                f"smelt: max_seqlen_k must be {longest} or more, the longest document's number of keys, not {width}"
            )
        parts = [(slice(*first[i : i + 2]), slice(*mine[i : i + 2])) for i in range(len(first) - 1)]
    else:
        if k.shape[0] != q.shape[0]:
            raise ValueError(f"smelt: k has {k.shape[0]} batches, q {q.shape[0]}")
        width, parts = k.shape[1], [(batch, batch) for batch in range(q.shape[0])]
    offsets = causal_offsets(q_causal_offsets, len(parts))
    offsets = [0] * len(parts) if offsets is None else offsets
    return width, keys, [(*part, offset) for part, offset in zip(parts, offsets)]


def need_bf16(name: str, precision: str, sf_vec_size: int = 32, *scales: Tensor | None) -> None:
    """Refuses other precisions. scales: q_scale, k_scale, cu_seqlens_q_scale_padded, cu_seqlens_k_scale_padded."""
    if str(precision).lower() != "bf16":
        remedy = "indexer_forward_wrapper and smelt.indexer_topk also read e4m3 with a scale per row (fp8)"
        raise NotImplementedError(f"smelt: {name} supports bf16 only: dequantize q and k ({remedy})")
    _no_block_scales(name, "bf16", sf_vec_size, *scales)


def is_fp8(name: str, precision: str, sf_vec_size: int, q_scale, k_scale, *block_starts: Tensor | None) -> bool:
    """Whether the precision is fp8, with a scale per row. Refuses all others but bf16, and wrong scales."""
    if str(precision).lower() != "fp8":
        need_bf16(name, precision, sf_vec_size, q_scale, k_scale, *block_starts)
        return False
    _no_block_scales(name, "fp8", sf_vec_size, None, None, *block_starts)
    for scale, given in (("q_scale", q_scale), ("k_scale", k_scale)):
        if getattr(given, "dtype", None) is not torch.float32:
            raise TypeError(f"smelt: {name} in fp8: {scale} must be a tensor of torch.float32")
    return True


def _no_block_scales(name: str, precision: str, sf_vec_size: int, *scales: Tensor | None) -> None:
    names = "q_scale", "k_scale", "cu_seqlens_q_scale_padded", "cu_seqlens_k_scale_padded"
    for scale, given in zip(names, scales):
        if given is not None:
            raise NotImplementedError(f"smelt: {name} in {precision}: {scale} must be None")
    if sf_vec_size != 32:
        raise NotImplementedError(f"smelt: {name} has no block scales: sf_vec_size must be 32, not {sf_vec_size}")


def scaled(weights: Tensor, sm_scale: float) -> Tensor:
    """The indexer's weights times sm_scale, which the operators do not have."""
    return indexer_weights(weights) if finite(sm_scale, "sm_scale") == 1.0 else weights.float() * sm_scale


def share(grad_loss: Tensor | float, loss_coeff: float, sm_scale: float, queries: int) -> Tensor | float:
    """The factor of a query's divergence. grad_loss stays on the device, so that graphs can be captured."""
    if isinstance(grad_loss, Tensor):
        if grad_loss.numel() != 1:
            raise ValueError(f"smelt: grad_loss must be one number, not {list(grad_loss.shape)}")
        grad_loss = grad_loss.float().reshape(())
    else:
        number(grad_loss, "grad_loss")
    factor = finite(loss_coeff, "loss_coeff") * finite(sm_scale, "sm_scale")
    return grad_loss * (factor / max(1, queries))


def divergence_gradient(predict: Tensor, target: Tensor, counts: Tensor) -> Tensor:
    """The gradient with respect to the logits of sum(target * (log target - log predict)) over the valid slots, where
    predict is the softmax over these."""
    target = target.masked_fill(~counts, 0.0)
    return predict * target.sum(-1, keepdim=True) - target


def normalised(scores: Tensor) -> Tensor:
    """Scores divided by their sum; 0 where the sum is 0."""
    whole = scores.sum(-1, keepdim=True)
    return torch.where(whole > LEAST_SUM, scores / whole, 0.0)
