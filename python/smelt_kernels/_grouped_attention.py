"""sparse_gqa, sparse attention for grouped heads, and sparse_gqa_scores, the target of its indexers."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from . import _reference, _runtime
from ._checks import LSE_BASES, Backend, LseBase, choose, integer, legal_scale, number, whole
from ._library import LibraryOperation, spec_text
from ._operation import as_kernels_read, may_cast
from ._sparse_attention import LOG2E, NEVER, WIDE_TYPES, fp32, topk_for

GRANULARITIES = (1, 4, 16, 64, 128)
_KEY = {"q": 2, "k": 2, "v": 1, "indices": 2}


def _granularity(value) -> int:
    found = int(integer(value, "granularity"))
    choose(found, "granularity", GRANULARITIES)
    return found


def _spec_of(operator, heads, kv_heads, widths, lists, width, granularity, topk, sink, **options):
    if lists not in (1, kv_heads):
        return _runtime.Refused(f"indices must have 1 list or {kv_heads}, one for each KV head, not {lists}", ValueError)
    keys = {"heads": heads, "kv_heads": kv_heads, **widths, "topk": topk or topk_for(width), "granularity": granularity}
    return spec_text(operator, keys | {"lists": "kv" if lists > 1 else None, "sink": sink, **options})


def _spec(
    kind, heads, dqk, k_kind, kv_heads, _, v_kind, dv, __, lists, width, granularity: int, topk: int, sink, unite: bool
):  # fmt: skip
    if not kind is k_kind is v_kind is torch.bfloat16:
        return _runtime.Refused(f"q, k and v must be torch.bfloat16, not {kind}, {k_kind} and {v_kind}", TypeError)
    shape = heads, kv_heads, {"dqk": dqk, "dv": dv}, lists, width, granularity, topk, sink
    return _spec_of("sparse_gqa", *shape, unite=unite)


def _scores_spec(kind, heads, dqk, k_kind, kv_heads, _, __, lists, width, granularity: int, topk: int, sink):
    if not kind is k_kind is torch.bfloat16:
        return _runtime.Refused(f"q and k must be torch.bfloat16, not {kind} and {k_kind}", TypeError)
    return _spec_of("sparse_gqa_scores", heads, kv_heads, {"dqk": dqk}, lists, width, granularity, topk, sink)


def _backward_spec(
    kind, heads, dqk, k_kind, kv_heads, _, v_kind, dv, __, lists, width, granularity: int, topk: int, sink,
    unite: bool, deterministic: bool | None,
):  # fmt: skip
    text = _spec(kind, heads, dqk, k_kind, kv_heads, _, v_kind, dv, __, lists, width, granularity, topk, sink, unite)
    return text if type(text) is _runtime.Refused else f"{text},passes=backward,deterministic={deterministic:d}"


def _rules(named) -> None:
    legal_scale(named["scale"])
    lists, kv_heads = named["indices"].shape[-2], named["k"].shape[-2]
    if lists not in (1, kv_heads):
        raise ValueError(f"smelt: indices must have 1 list or {kv_heads}, one for each KV head, not {lists}")
    heads = named["q"].shape[-2]
    if heads % kv_heads:
        raise ValueError(f"smelt: q has {heads} heads, which must be a multiple of k's {kv_heads}")


_backward = LibraryOperation(
    "sparse_gqa", which=1, name="sparse_gqa_backward", spec=_backward_spec, key=_KEY, reference=_reference.sparse_gqa_backward,
    floats=True, rules=_rules,
)  # fmt: skip
_backward.refuse_derivatives("sparse_gqa")
_attention = LibraryOperation(
    "sparse_gqa", spec=_spec, key=_KEY, reference=_reference.sparse_gqa, gradient=_backward, fills={"lse": NEVER}, floats=True,
    rules=_rules,
)  # fmt: skip

_scores = LibraryOperation(
    "sparse_gqa_scores", spec=_scores_spec, key={"q": 2, "k": 2, "indices": 2}, reference=_reference.sparse_gqa_scores,
    floats=True, rules=_rules,
)  # fmt: skip


@overload
def sparse_gqa(
    q: Tensor, k: Tensor, v: Tensor, indices: Tensor, scale: float, *, granularity: int, topk: int | None = None,
    topk_length: Tensor | None = None, limit: Tensor | None = None, sink: Tensor | None = None, unite: bool = False,
    deterministic: bool | None = None, return_lse: Literal[False] = False, lse: LseBase = "natural",
    dk_dtype: torch.dtype | None = None, dv_dtype: torch.dtype | None = None, queries: Tensor | None = None,
    query_count: Tensor | None = None, free_multiprocessors: int = 0, backend: Backend | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def sparse_gqa(
    q: Tensor, k: Tensor, v: Tensor, indices: Tensor, scale: float, *, granularity: int, topk: int | None = None,
    topk_length: Tensor | None = None, limit: Tensor | None = None, sink: Tensor | None = None, unite: bool = False,
    deterministic: bool | None = None, return_lse: Literal[True], lse: LseBase = "natural",
    dk_dtype: torch.dtype | None = None, dv_dtype: torch.dtype | None = None, queries: Tensor | None = None,
    query_count: Tensor | None = None, free_multiprocessors: int = 0, backend: Backend | None = None,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
def sparse_gqa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    indices: Tensor,
    scale: float,
    *,
    granularity: int,
    topk: int | None = None,
    topk_length: Tensor | None = None,
    limit: Tensor | None = None,
    sink: Tensor | None = None,
    unite: bool = False,
    deterministic: bool | None = None,
    return_lse: bool = False,
    lse: LseBase = "natural",
    dk_dtype: torch.dtype | None = None,
    dv_dtype: torch.dtype | None = None,
    queries: Tensor | None = None,
    query_count: Tensor | None = None,
    free_multiprocessors: int = 0,
    backend: Backend | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attends, with grouped heads, from each query to the blocks of rows that its lists name; differentiable in q, k, v
    and sink.

    Hq query heads read Hkv KV heads in groups of Hq / Hkv. A query has one list for all heads, or one for each KV head.
    An entry e of a list names the rows e * granularity to (e + 1) * granularity - 1. B batches are a first dimension of
    every tensor except sink. Autocast and fp16 are treated as in sparse_attention.

    Args:
        q: [T, Hq, dqk] or [B, T, Hq, dqk], bf16; dqk is 64, 96, 128, 192 or 256.
        k: [S, Hkv, dqk] or [B, S, Hkv, dqk], bf16.
        v: [S, Hkv, dv] or [B, S, Hkv, dv], bf16; dv is one of dqk's widths, and at most dqk.
        indices: [T, G, width] or [B, T, G, width], int32, with G = 1 (shared by all heads) or Hkv. Entries that name no
            row (such as -1) are masked.
        scale: The softmax scale, positive.
        granularity: Rows of an entry: 1, 4, 16, 64 or 128. It need not divide S.
        topk: The largest number of entries of a list; None means `width` rounded up to a multiple of 128.
        topk_length: [T, G] or [B, T, G], int32: the number of a list's entries that count.
        limit: [T] or [B, T], int32: a query reads only rows below it, for causal attention t + 1. None: all rows.
        sink: [Hq], a logit of each head in the softmax's denominator only.
        unite: Whether lists of neighbouring queries may be united, which is faster where they have much in common. A
            query's rounding then depends on its neighbours' lists, and NaN or infinity in a row of v that one query
            reads may affect its neighbours.
        deterministic: Whether the gradients of k and v are summed in a fixed order; None follows
            torch.use_deterministic_algorithms. All else has the same bits in every run anyway.
        return_lse: Also return lse.
        lse: "natural" for lse in the natural logarithm, "base2" for log2.
        dk_dtype: Type of k's gradient, torch.bfloat16 or torch.float32; None means k's. See sparse_attention's dkv_dtype.
        dv_dtype: Type of v's gradient, likewise.
        queries: [N] int32: compute only these queries (b * T + t). The others' out is 0, their lse -inf.
        query_count: [1] int32: how many entries of `queries` count.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        `out`, or (out, lse).

        - out: [..., T, Hq, dv], bf16; 0 for a query without a valid row.
        - lse: [..., T, Hq], fp32: log(sum(exp(scale * q . k))) over the valid rows, without the sink; -inf for a query
          without one. Not differentiable.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> out = smelt.sparse_gqa(gq, gk, gv, blocks, scale, granularity=64)  # bf16 [T, 8, 64] and [S, 2, 64]
    """
    granularity = _granularity(granularity)
    wanted = None
    if may_cast(q):
        wanted, q, k, v = as_kernels_read(backend, q, k, v)
    for each, name in ((dk_dtype, "dk_dtype"), (dv_dtype, "dv_dtype")):
        if each is not None:
            choose(each, name, WIDE_TYPES)
    if type(lse) is not str or lse != "natural":
        choose(lse, "lse", LSE_BASES)
    out, sums, *_ = _attention.call(
        q, k, v, indices, topk_length, limit, sink if sink is None else fp32(sink), queries, query_count,
        integer(free_multiprocessors, "free_multiprocessors"),
        scale if type(scale) is float else number(scale, "scale"), granularity,
        0 if topk is None else whole(topk, "topk"), bool(unite), deterministic, dk_dtype, dv_dtype, backend,
    )  # fmt: skip
    if wanted is not None:
        out = out.to(wanted)
    if not return_lse:
        return out
    return out, sums if lse == "natural" else sums * LOG2E


def sparse_gqa_scores(
    q: Tensor,
    k: Tensor,
    indices: Tensor,
    lse: Tensor,
    scale: float,
    *,
    granularity: int,
    topk: int | None = None,
    topk_length: Tensor | None = None,
    limit: Tensor | None = None,
    sink: Tensor | None = None,
    queries: Tensor | None = None,
    query_count: Tensor | None = None,
    free_multiprocessors: int = 0,
    backend: Backend | None = None,
) -> Tensor:
    """Computes sparse_gqa's probabilities at the entries of each query's lists, summed over heads and over an entry's rows: the
    target of an indexer that chooses them. Not differentiable.

    The heads of a list are all heads or, with a list for each KV head, those of its KV head. Where tensor parallelism
    divides the heads, the caller adds up the ranks' sums.

    Args:
        q: [T, Hq, dqk] or [B, T, Hq, dqk], bf16, as in sparse_gqa.
        k: [S, Hkv, dqk] or [B, S, Hkv, dqk], bf16.
        indices: [T, G, width] or [B, T, G, width], int32, with G = 1 (shared by all heads) or Hkv. Entries that name no
            row (such as -1) are masked.
        lse: [T, Hq] or [B, T, Hq], fp32: sparse_gqa's, natural and without the sink.
        scale: The softmax scale.
        granularity: Rows of an entry: 1, 4, 16, 64 or 128.
        topk: The largest number of entries of a list; None means `width` rounded up to a multiple of 128.
        topk_length: [T, G] or [B, T, G], int32: the number of a list's entries that count.
        limit: [T] or [B, T], int32: a query reads only rows below it. None: all rows.
        sink: [Hq], a logit of each head in the softmax's denominator.
        queries: [N] int32: compute only these queries (b * T + t), each named once. The others' result is 0.
        query_count: [1] int32: how many entries of `queries` count.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        fp32, of the shape of `indices`; 0 at masked entries.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> out, lse = smelt.sparse_gqa(gq, gk, gv, blocks, scale, granularity=64, return_lse=True)
        >>> target = smelt.sparse_gqa_scores(gq, gk, blocks, lse, scale, granularity=64)
        >>> target.shape == blocks.shape
        True
    """
    granularity = _granularity(granularity)
    if may_cast(q):
        _, q, k = as_kernels_read(backend, q, k)
    return _scores.call(
        q, k, lse, indices, topk_length, limit, sink if sink is None else fp32(sink), queries, query_count,
        integer(free_multiprocessors, "free_multiprocessors"),
        scale if type(scale) is float else number(scale, "scale"), granularity,
        0 if topk is None else whole(topk, "topk"), backend,
    )[0]  # fmt: skip
