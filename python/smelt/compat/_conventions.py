"""What other packages hand around instead of a natural log-sum-exp without the sink, by name."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LN2 = math.log(2.0)
LOG2E = 1.0 / LN2
NEVER = float("-inf")


class TupleDict(dict):
    """cuDNN Frontend's: a dict whose values also come by number, and as a tuple."""

    def __iter__(self):
        return iter(self.values())

    def __getitem__(self, key):
        return (
            tuple(self.values())[key] if isinstance(key, (int, slice)) else super().__getitem__(key)
        )


def to_flash_mla(lse: Tensor) -> Tensor:
    """FlashMLA: natural, without the sink, +inf for an empty row."""
    return lse.masked_fill(lse == NEVER, float("inf"))


def from_flash_mla(lse: Tensor) -> Tensor:
    return lse.masked_fill(lse == float("inf"), NEVER)


def of_heads_that_count(lse: Tensor) -> Tensor:
    """lse for sums over heads, in which +inf is an empty row or a head that only fills a tile up: 0 of them."""
    return lse.clamp(max=1e30)


def to_base2(lse: Tensor) -> Tensor:
    """The TileLang ports of DeepSeek-V3.2: log2, without a sink."""
    return lse * LOG2E


def from_base2(lse: Tensor) -> Tensor:
    return lse * LN2


def to_base2_with_sink(lse: Tensor, sink: Tensor) -> Tensor:
    """The TileLang ports of DeepSeek-V4: log2 of the whole denominator, the sink in it."""
    return torch.logaddexp(lse, sink.float().expand_as(lse)) * LOG2E


def need_dimensions(**given: tuple[Tensor, int]) -> None:
    """Each tensor has at least so many dimensions: what follows counts on them."""
    for name, (tensor, least) in given.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"smelt: {name} must be a torch.Tensor, not {type(tensor).__name__}")
        if tensor.dim() < least:
            raise ValueError(
                f"smelt: {name} must have {least} dimensions or more, not {tensor.dim()}"
            )


def one_group(kv: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """kv [.., S, 1, D] and indices [.., T, 1, W] without the dimension of KV heads, int32 indices."""
    need_dimensions(kv=(kv, 3), indices=(indices, 3))
    if kv.shape[-2] != 1 or indices.shape[-2] != 1:
        raise ValueError(
            f"smelt: one KV head is supported, not {kv.shape[-2]} (kv {tuple(kv.shape)}, "
            f"indices {tuple(indices.shape)})"
        )
    return kv.squeeze(-2), int32(indices.squeeze(-2))


def int32(indices: Tensor) -> Tensor:
    return indices if indices.dtype is torch.int32 else indices.to(torch.int32)
