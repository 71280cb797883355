"""Conversions between smelt's conventions (natural log-sum-exp without the sink, int32 lists) and those of other
packages."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .._checks import optional_tensor, tensor

LN2 = math.log(2.0)
LOG2E = 1.0 / LN2
NEVER = float("-inf")


class TupleDict(dict):
    """cuDNN Frontend's result: a dict whose values can also be indexed by number and unpacked as a tuple."""

    def __iter__(self):
        return iter(self.values())

    def __getitem__(self, key):
        return tuple(self.values())[key] if isinstance(key, (int, slice)) else super().__getitem__(key)


def to_flash_mla(lse: Tensor) -> Tensor:
    """FlashMLA: natural, without the sink, +inf for an empty row."""
    return lse.masked_fill(lse == NEVER, float("inf"))


def need_floats(**given: Tensor) -> None:
    """Refuses other types, of which kernels would compute with rounded numbers."""
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise TypeError(f"smelt: {name} must be a tensor of a floating type, not {kind}")


def from_flash_mla(lse: Tensor) -> Tensor:
    need_floats(lse=lse)
    return lse.masked_fill(lse == float("inf"), NEVER)


def lse_of_valid_heads(lse: Tensor) -> Tensor:
    """lse for sums over heads. +inf marks an empty row or a padding head; it becomes a number whose exponential is
    0."""
    need_floats(lse=lse)
    return lse.clamp(max=1e30)


def to_base2(lse: Tensor) -> Tensor:
    """The TileLang ports of DeepSeek-V3.2: log2, without a sink."""
    return lse * LOG2E


def from_base2(lse: Tensor) -> Tensor:
    need_floats(lse=lse)
    return lse * LN2


def to_base2_with_sink(lse: Tensor, sink: Tensor) -> Tensor:
    """The TileLang ports of DeepSeek-V4: log2 of the denominator with the sink."""
    return torch.logaddexp(lse, sink.float().expand_as(lse)) * LOG2E


def need_dimensions(**given: tuple) -> None:
    """Checks dimensions. Each value is a tensor and its legal numbers of dimensions."""
    for name, (tensor, *legal) in given.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"smelt: {name} must be a torch.Tensor, not {type(tensor).__name__}")
        if tensor.dim() not in legal:
            raise ValueError(f"smelt: {name} must have {' or '.join(map(str, legal))} dimensions, not {tensor.dim()}")


def without_heads(name: str, keys: Tensor, dimensions: int) -> Tensor:
    """Keys with the given number of dimensions; they may also come as [.., S, 1, D]."""
    need_dimensions(**{name: (keys, dimensions, dimensions + 1)})
    if keys.dim() == dimensions:
        return keys
    if keys.shape[-2] != 1:
        raise ValueError(f"smelt: one KV head is supported, not {keys.shape[-2]} ({name})")
    return keys.squeeze(-2)


def indexer_weights(weights: Tensor) -> Tensor:
    """The weights in a type that the operators read: fp32, or bf16 as they are."""
    return weights if weights.dtype is torch.bfloat16 else weights.float()


def without_kv_heads(q: Tensor, kv: Tensor, indices: Tensor, *legal: int) -> tuple[Tensor, Tensor]:
    """kv [.., S, 1, D] and indices [.., T, 1, W] without the dimension of KV heads, int32 indices. `legal`: q's legal
    numbers of dimensions; kv and indices must have as many as q."""
    need_dimensions(q=(q, *legal))
    need_dimensions(kv=(kv, q.dim()), indices=(indices, q.dim()))
    if kv.shape[-2] != 1 or indices.shape[-2] != 1:
        raise ValueError(
            f"smelt: one KV head is supported, not {kv.shape[-2]} (kv {tuple(kv.shape)}, "
            f"indices {tuple(indices.shape)})"
        )
    return kv.squeeze(-2), slots("indices", indices.squeeze(-2))


def check_head_count(qhead_per_kv_head: int | None, q: Tensor) -> None:
    """Checks that all query heads share one KV head."""
    if qhead_per_kv_head not in (None, q.shape[-2]):
        raise ValueError(
            f"smelt: qhead_per_kv_head must be None or {q.shape[-2]}, the number of q's heads, not {qhead_per_kv_head}"
        )


# ---- integers ------------------------------------------------------------------------------------

_LEAST, _MOST = torch.iinfo(torch.int32).min, torch.iinfo(torch.int32).max
_INTEGERS = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)


def bounds(name: str, given: Tensor | None) -> Tensor | None:
    """Lengths and bounds of windows as int32, clamped to its range. Runs on the device."""
    if optional_tensor(given, name) is None or given.dtype is torch.int32:
        return given
    if given.dtype not in _INTEGERS:
        raise TypeError(f"smelt: {name} must be of an integer type, not {given.dtype}")
    return (given.clamp(_LEAST, _MOST) if given.dtype is torch.int64 else given).to(torch.int32)


def slots(name: str, given: Tensor) -> Tensor:
    """Lists of rows as int32; numbers outside its range become -1 (masked)."""
    small = bounds(name, tensor(given, name))
    return small.masked_fill(small != given, -1) if given.dtype is torch.int64 else small


def slots_in_window(topk_indices: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    """Given slots as int32, -1 outside each query's window."""
    need_dimensions(topk_indices=(topk_indices, 2), cu_seqlen_ks=(begin, 1), cu_seqlen_ke=(end, 1))
    lists = slots("topk_indices", topk_indices)
    return lists.masked_fill((lists < begin[:, None]) | (lists >= end[:, None]), -1)


# ---- output tensors ------------------------------------------------------------------------------


def _span(tensor: Tensor) -> tuple[int, int]:
    """The bytes of a contiguous tensor."""
    begin = tensor.data_ptr()
    return begin, begin + tensor.numel() * tensor.element_size()


def check_outputs(device: torch.device, **outputs: tuple) -> None:
    """Checks output tensors before the computation. Each value is a tensor or None, its shape and its legal types. Any
    strides are legal with which no two elements share memory."""
    spans = {}
    for name, (given, shape, *types) in outputs.items():
        if given is None:
            continue
        if not isinstance(given, Tensor):
            raise TypeError(f"smelt: {name} must be a torch.Tensor, not {type(given).__name__}")
        if given.shape != shape or given.dtype not in types or given.device != device:
            raise ValueError(
                f"smelt: {name} must be {' or '.join(dict.fromkeys(map(str, types)))} {list(shape)} on {device}, not "
                f"{given.dtype} {list(given.shape)} on {given.device}"
            )
        if any(step == 0 and size > 1 for step, size in zip(given.stride(), given.shape)):
            raise ValueError(f"smelt: {name} is expanded: some of its elements share memory")
        if torch.compiler.is_compiling() or given.is_meta or not given.is_contiguous():
            continue
        begin, end = _span(given)
        for other, (first, last) in spans.items():
            if begin < last and first < end:
                raise ValueError(f"smelt: {name} and {other} share memory")
        spans[name] = begin, end


def output_matrix(given: Tensor | None, shape: tuple, *read: Tensor) -> Tensor:
    """An fp32 matrix to fill in parts while the tensors in `read` are in use: `given`, unless it shares memory with
    them."""
    if given is not None:
        mine = given.untyped_storage().data_ptr()
        if all(mine != tensor.untyped_storage().data_ptr() for tensor in read):
            return given
    return read[0].new_empty(shape, dtype=torch.float32)


def into(given: Tensor | None, made: Tensor) -> Tensor:
    """The result, copied to the caller's tensor if there is one (checked by check_outputs)."""
    return made if given is None or given is made else given.copy_(made)


def gradient_type(given: Tensor | None, like: Tensor) -> torch.dtype:
    """The type of a gradient."""
    return like.dtype if given is None else given.dtype


def fp32_for(given: Tensor | None) -> torch.dtype | None:
    """fp32 if the gradient's tensor is fp32, so that the kernel does not round it."""
    return torch.float32 if given is not None and given.dtype is torch.float32 else None
