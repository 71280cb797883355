"""The lightning indexer's choice: exact top-k of logits, and logits and top-k in one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, overload

import torch
from torch import Tensor

from . import _indexer_reference as _reference
from ._checks import (
    ACTIVATIONS, ORDERS, Activation, Backend, Order, are_ints, choose, integer, not_negative, power, whole,
)  # fmt: skip
from ._indexer import CHUNK_BYTES, SCORED, head_scale, scored_rules, scored_table, scoring
from ._indexer_gradients import backward, scored_as_kernels_read
from ._library import LibraryOperation, of_groups, spec_text
from ._operation import is_traced, may_cast

if TYPE_CHECKING:
    from typing_extensions import Unpack

_LOGITS = {torch.float32: "fp32", torch.bfloat16: "bf16"}  # that indexer_topk chooses from
_MOST_TOPK = 16384


# ---- lists ------------------------------------------------------------------------------------------


def _list_rules(named) -> None:
    topk, expand, tail, width = (named[name] for name in ("topk", "expand", "tail", "width"))
    needed = topk * expand + (expand - 1) * tail
    if width < needed if expand > 1 else width not in (0, topk):
        text = f"lists of topk = {topk}, expand = {expand}, tail = {tail} need {needed} slots"
        raise ValueError(f"smelt: width = {width} is {'too small' if width < needed else 'too large'}: {text}")
    if named["limit"] is not None and expand == 1:
        raise ValueError("smelt: limit goes with expand above 1: other lists hold entries, not rows")
    if named["limit"] is None and tail:
        raise ValueError("smelt: tail needs limit, each query's number of rows, up to which it appends them")


def _chosen_rules(named) -> None:
    scored_rules(named)
    _list_rules(named)


def _legal_lists(named) -> dict:
    """Replaces illegal topk and pinned by legal ones, for `table` of a LibraryOperation."""
    topk, pinned = named["topk"], min(named["pinned"], _MOST_TOPK)
    return {"topk": min(topk, _MOST_TOPK) if isinstance(topk, int) else max(pinned, 1), "pinned": pinned}


def lists(topk, order, pinned, expand, tail, width) -> tuple:
    """topk, order, pinned, expand, tail and width, checked, as the operators take them."""
    choose(order, "order", ORDERS)
    topk = whole(topk, "topk")
    tail = bool(tail if isinstance(tail, (bool, Tensor)) else integer(tail, "tail"))
    if are_ints(expand, pinned) and expand == 1 and pinned == 0 and not tail and width is None:
        return topk, order, 0, 1, False, 0
    pinned, expand = not_negative(pinned, "pinned"), power(expand, "expand")
    needed = topk * expand + (expand - 1) * tail if expand > 1 else 0
    return topk, order, pinned, expand, tail, needed if width is None else whole(width, "width")


# ---- topk_select ------------------------------------------------------------------------------------


def _select_spec(dtype, topk: int, order: str, groups: int, pinned: int, expand: int, tail: bool) -> str:
    return spec_text("topk_select", locals())


_select = LibraryOperation(
    "topk_select", spec=_select_spec, key={"logits": 0}, reference=_reference.select, also=("values", "lengths"),
    kinds={"logits": (torch.float32, torch.bfloat16)}, table=lambda named: ((torch.float32,), _legal_lists(named)),
    sizes=of_groups, rules=_list_rules,
)  # fmt: skip


def topk_select(
    logits: Tensor,
    topk: int,
    *,
    window_begin: Tensor | None = None,
    window_end: Tensor | None = None,
    offset: Tensor | None = None,
    index_offset: int = 0,
    order: Order = "index",
    groups: int = 1,
    pinned: int = 0,
    expand: int = 1,
    limit: Tensor | None = None,
    tail: bool = False,
    width: int | None = None,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Selects the topk largest logits in each row's window: exactly, and with the same bits in every run.

    Of equal logits those with the lowest index are selected; -0 counts as 0, NaN as -inf.

    Args:
        logits: [T, S], fp32 or bf16; with groups [T, G, S].
        topk: How many to select, up to 16384 (up to 9096 on GPUs with 99 KB of shared memory in a block).
        window_begin: [T], int32: each row's first column; None means 0.
        window_end: [T], int32: one past each row's last column; None means S.
        offset: [T], int32: added to a row's indices.
        index_offset: Added to all indices.
        order: "index" (ascending, fastest for attention) or "score" (descending logits; not with pinned and expand).
        groups: G rows of logits of each query, which share its window, offset and limit.
        pinned: How many of a window's last columns are selected in any case; they count among topk.
        expand: r rows of a KV table that a column stands for: lists hold rows, ascending, of column e the rows e * r to
            e * r + r - 1. A power of two up to 128.
        limit: [T], int32, with expand: a query's number of rows; lists hold rows below it. None means S * r.
        tail: Whether lists end with the rows after the last complete column: from the larger of window_end * r and the
            last multiple of r up to limit, up to limit. Needs expand and limit.
        width: Slots of a list, with expand; None means as many as are needed, topk * r, with tail r - 1 more.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        indices [T, topk] int32, values [T, topk] fp32 and lengths [T] int32. Slots beyond a row's length, where the
        window is shorter than topk, have index -1 and value -inf. With groups [T, G, topk] and [T, G]. With expand
        indices are [T, width] and lengths count their rows; values are of the selected columns, [T, topk] still.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> logits = torch.tensor([[1.0, 5.0, 3.0, 4.0]], device=q.device)
        >>> indices, values, lengths = smelt.topk_select(logits, 2)
        >>> indices.tolist(), values.tolist()
        ([[1, 3]], [[5.0, 4.0]])
        >>> limit = torch.tensor([7], dtype=torch.int32, device=q.device)  # of 3 complete pools of 2, and a row
        >>> pools = {"window_begin": limit * 0, "window_end": limit // 2, "expand": 2, "limit": limit, "tail": True}
        >>> smelt.topk_select(logits, 2, **pools)[0].tolist()
        [[2, 3, 4, 5, 6]]
    """
    given = (logits, window_begin, window_end, offset, limit)
    topk, order, pinned, expand, tail, width = lists(topk, order, pinned, expand, tail, width)
    groups = whole(groups, "groups")
    return _select.call(*given, width, index_offset, topk, order, groups, pinned, expand, tail, backend)


# ---- indexer_topk -----------------------------------------------------------------------------------


def _topk_spec(
    dtype, heads, dim, weights, weights_dtype, topk: int, order: str, activation: str, groups: int, block_max: int,
    pinned: int, expand: int, tail: bool, candidate_block: int, publish: int, publish_block: int, publish_pinned: int,
    logits: str,
) -> str:  # fmt: skip
    return spec_text("indexer_topk", locals())


def _two_steps(
    q, k, weights, k_scale, window_begin, window_end, offset, limit, candidates, width, index_offset, scale, topk, order,
    activation, groups, block_max, pinned, expand, tail, candidate_block, publish, publish_block, publish_pinned,
    logits,
):  # fmt: skip
    """The eager reference in chunks of queries, so that at most CHUNK_BYTES of logits exist at a time."""
    rows, keys = max(1, CHUNK_BYTES // max(4, 4 * groups * k.shape[0])), k.shape[0]
    parts = []
    for first in range(0, max(1, q.shape[0]), rows):

        def cut(*tensors, part=slice(first, first + rows)):
            return [None if each is None else each[part] for each in tensors]

        (queries, own), window, listed = cut(q, weights), cut(window_begin, window_end), cut(candidates)
        scoring = *listed, scale, activation, groups, block_max, candidate_block
        scores = _reference.logits(queries, k, own, k_scale, *window, *scoring)
        scores = scores.to(torch.bfloat16).to(scores.dtype) if logits == "bf16" else scores
        lists = *cut(offset, limit), index_offset, order, groups, pinned, expand, tail, width
        made = _reference.select(scores, topk, *window, *lists, keys, block_max, *listed, candidate_block)
        blocks = None
        if publish:
            scores = _reference.largest(scores, publish_block // block_max)
            of_blocks = None, None, 0, "index", groups, publish_pinned, 1, False, 0, keys, publish_block
            blocks = _reference.select(scores, publish, *window, *of_blocks)[0]
        parts.append((*made, blocks))
    return tuple(None if each[0] is None else torch.cat(each) for each in zip(*parts))


def _saved_choice(arguments, made):
    named = dict(zip(_topk.names, arguments))
    lists = made[0], made[2], named["offset"], named["window_end"] if named["expand"] > 1 else None
    options = ("index_offset", "free_multiprocessors", "scale", "expand", "backend", "activation", "groups", "block_max")
    return (named["q"], named["k"], named["weights"], *lists), [named[name] for name in options]


def _choice_gradients(grad, options, q, k, weights, indices, lengths, offset, window_end):
    """The gradients of the values, which are the logits of the selected keys."""
    index_offset, free, scale, expand, backend, activation, groups, block_max = options
    for name, value in (("groups", groups), ("block_max", block_max)):
        if value > 1:
            raise RuntimeError(
                f"smelt: indexer_topk's values have no gradients with {name}={value}; indexer_scores computes the logits "
                "of its indices with gradients"
            )
    if index_offset:
        indices = indices - index_offset
    if offset is not None:
        indices = indices - offset.unsqueeze(1)
    if expand > 1:
        indices, lengths = entries_of(indices, lengths, window_end, k.shape[0], grad.shape[-1], expand), None
    own = q.new_full(q.shape[:2], scale or 1.0, dtype=torch.float32) if weights is None else weights
    given = q, k, own, indices, lengths, None, free, activation
    dq, dk, dweights = backward.in_backward(grad, *given, None, None, backend)
    return dq, dk, None if weights is None else dweights


def entries_of(rows, lengths, window_end, keys, topk, expand):
    """The entries of lists of rows without offsets, [T, topk]; -1 where there is no further entry."""
    slots = torch.arange(0, topk * expand, expand, device=rows.device)
    entries = rows[:, : topk * expand : expand].div(expand, rounding_mode="floor")
    is_entry = (slots < lengths.unsqueeze(1)) & (entries < window_end.clamp(max=keys).unsqueeze(1))  # others are the tail's
    return entries.masked_fill(~is_entry, -1)


_topk = LibraryOperation(
    "indexer_topk", spec=_topk_spec, key={"q": 2}, reference=_two_steps, also=("values", "lengths"),
    made_with={"published": "publish"}, kinds=SCORED, table=lambda named: (scored_table(named)[0], _legal_lists(named)),
    sizes=of_groups, rules=_chosen_rules,
)  # fmt: skip
_topk.differentiable(("q", "k", "weights"), 1, _saved_choice, _choice_gradients)


def ascend(candidates, keys, block) -> None:
    """Refuses candidates that do not ascend, if they are on the host."""
    if type(candidates) is not Tensor or candidates.device.type != "cpu" or is_traced() or candidates.dim() != 2:
        return
    is_block = (candidates >= 0) & (candidates < -(-keys // block))
    numbers = torch.where(is_block, candidates, -1)
    before = torch.nn.functional.pad(numbers.cummax(1).values if numbers.numel() else numbers, (1, 0), value=-1)[:, :-1]
    wrong = (is_block & (numbers <= before)).any(1)
    if wrong.any():
        raise ValueError(
            f"smelt: candidates of query {int(wrong.int().argmax())} do not ascend; sort them, name each block once, and "
            "put -1 anywhere"
        )


def publication(publish, publish_block, publish_pinned) -> tuple:
    """publish, publish_block and publish_pinned, checked, as the spec has them."""
    if publish is None and are_ints(publish_block, publish_pinned) and publish_block == 1 and publish_pinned == 0:
        return 0, 1, 0
    count = 0 if publish is None else whole(publish, "publish")
    return count, power(publish_block, "publish_block"), not_negative(publish_pinned, "publish_pinned")


# What type checkers need to know: with `publish`, the type of the result.
if TYPE_CHECKING:

    class ChoiceOptions(TypedDict, total=False):
        offset: Tensor | None
        pinned: int
        expand: int
        limit: Tensor | None
        tail: bool
        width: int | None
        candidates: Tensor | None
        candidate_block: int | None
        publish_block: int
        publish_pinned: int
        free_multiprocessors: int
        workspace_limit: int
        causal_limit: int
        backend: Backend | None

    class TopkOptions(ChoiceOptions, total=False):
        k_scale: Tensor | None
        index_offset: int
        order: Order
        activation: Activation
        scale: float | None
        groups: int
        block_max: int
        logits_dtype: torch.dtype


@overload
def indexer_topk(
    q: Tensor, k: Tensor, weights: Tensor | None, window_begin: Tensor, window_end: Tensor, topk: int, *,
    publish: None = None, **options: Unpack[TopkOptions],
) -> tuple[Tensor, Tensor, Tensor]: ...  # fmt: skip
@overload
def indexer_topk(
    q: Tensor, k: Tensor, weights: Tensor | None, window_begin: Tensor, window_end: Tensor, topk: int, *, publish: int,
    **options: Unpack[TopkOptions],
) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...  # fmt: skip
@overload
def indexer_topk(
    q: Tensor, k: Tensor, weights: Tensor | None, window_begin: Tensor, window_end: Tensor, topk: int, *,
    publish: int | None, **options: Unpack[TopkOptions],
) -> tuple[Tensor, Tensor, Tensor] | tuple[Tensor, Tensor, Tensor, Tensor]: ...  # fmt: skip
def indexer_topk(
    q: Tensor,
    k: Tensor,
    weights: Tensor | None,
    window_begin: Tensor,
    window_end: Tensor,
    topk: int,
    *,
    k_scale: Tensor | None = None,
    offset: Tensor | None = None,
    index_offset: int = 0,
    order: Order = "index",
    activation: Activation = "relu",
    scale: float | None = None,
    groups: int = 1,
    block_max: int = 1,
    pinned: int = 0,
    expand: int = 1,
    limit: Tensor | None = None,
    tail: bool = False,
    width: int | None = None,
    candidates: Tensor | None = None,
    candidate_block: int | None = None,
    publish: int | None = None,
    publish_block: int = 1,
    publish_pinned: int = 0,
    logits_dtype: torch.dtype = torch.float32,
    free_multiprocessors: int = 0,
    workspace_limit: int = 0,
    causal_limit: int = 0,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor, Tensor] | tuple[Tensor, Tensor, Tensor, Tensor]:
    """Computes indexer_logits and selects the topk largest of each window, without storing the matrix of logits.

    The results have the same bits as those of topk_select(indexer_logits(...)). With bf16 the values are differentiable
    in q, k and weights; see `groups` and `block_max`, with which they are not, and `expand`.

    Args:
        q: [T, H, D], bf16 or torch.float8_e4m3fn.
        k: [S, D], of q's type.
        weights: [T, H], fp32 or bf16. A softmax scale, and with fp8 the scales of q, are folded into them by the caller. None:
            every head has the weight `scale`.
        window_begin: [T], int32: each query's first key.
        window_end: [T], int32: one past each query's last key.
        topk: How many keys to select, up to 16384 (up to 9096 on GPUs with 99 KB of shared memory in a block).
        k_scale: [S], fp32, with fp8 only: multiplies the logits of each key.
        offset: [T], int32: added to a query's indices.
        index_offset: Added to all indices.
        order: "index" (ascending, fastest for attention) or "score" (descending logits; not with pinned and expand).
        activation: As in indexer_logits.
        scale: As in indexer_logits.
        groups: As in indexer_logits; each group selects for itself. A gradient of the values is an error: compute them with
            indexer_scores.
        block_max: As in indexer_logits: entries that are selected are blocks of r keys, and indices their numbers. A
            window has the blocks of its keys. A gradient of the values is an error: compute them with indexer_scores.
        pinned: How many of a window's last entries are selected in any case; they count among topk.
        expand: r rows of a KV table that a key (or block) stands for, as in topk_select. Of a value there is a gradient if
            the limit leaves a row of its key in the list.
        limit: As in topk_select, with expand.
        tail: As in topk_select, with expand and limit.
        width: As in topk_select, with expand.
        candidates: [T, C], int32: numbers of blocks of candidate_block keys, ascending, such as another layer's
            `published`; keys of these blocks alone are scored and selected from. Numbers of no block, such as -1, count
            for nothing. With block_max, blocks of block_max keys in them are selected. Not with pinned and publish.
        candidate_block: Keys of such a block: a power of two up to 128, at least block_max.
        publish: How many blocks of publish_block keys to select from the same logits, for other layers' `candidates`.
        publish_block: Keys of a published block, which counts by its largest logit in the window: a power of two up to
            128, at least block_max.
        publish_pinned: How many of a window's last blocks are published in any case.
        logits_dtype: torch.bfloat16 rounds the logits to bf16 before the selection, which halves the workspace: of logits
            that round to the same number the lowest keys are selected, and values are the rounded ones. Gradients are
            those of the logits before rounding.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        workspace_limit: Bytes of workspace, for any T and S; 0 means 128 MB.
        causal_limit: Unless 0, a promise that window_end[t] <= t + causal_limit for each query t (1 where query t is at
            key t and sees no later key). A long call then takes a twentieth less time.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        indices [T, topk] int32, values [T, topk] fp32 and lengths [T] int32; with publish also published [T, publish]
        int32, blocks' numbers, ascending.

        Slots beyond a query's length, where the window is shorter than topk, have index -1 and value -inf; published ends
        with -1, too. With groups there is a dimension G after T in all of them. With expand indices are [T, width] rows.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device; or a gradient of
            values that have none was asked for.

    Example:
        >>> indices, logits, lengths = smelt.indexer_topk(iq, ik, weights, begin, end, 64)
        >>> out = smelt.sparse_attention(q, kv, indices, scale, topk_length=lengths)
        >>> *_, blocks = smelt.indexer_topk(iq, ik, weights, begin, end, 4, publish=2, publish_block=4, publish_pinned=1)
        >>> within, *_ = smelt.indexer_topk(iq, ik, weights, begin, end, 4, candidates=blocks, candidate_block=4)
    """
    choose(activation, "activation", ACTIVATIONS)
    topk, order, pinned, expand, tail, width = lists(topk, order, pinned, expand, tail, width)
    groups, block_max, candidate_block = scoring(groups, block_max, candidates, candidate_block)
    published = publication(publish, publish_block, publish_pinned)
    choose(logits_dtype, "logits_dtype", tuple(_LOGITS))
    if may_cast(q):
        q, k, weights = scored_as_kernels_read(backend, q, k, weights)
    if isinstance(q, Tensor) and q.dtype is torch.float8_e4m3fn:  # which has no gradients
        weights = weights.detach() if isinstance(weights, Tensor) else weights
    if candidates is not None and candidate_block and isinstance(k, Tensor) and k.dim():
        ascend(candidates, k.shape[0], candidate_block)
    indices, values, lengths, blocks = _topk.call(
        q, k, weights, k_scale, window_begin, window_end, offset, limit, candidates, width, index_offset,
        free_multiprocessors, head_scale(scale, weights), causal_limit, workspace_limit, topk, order, activation,
        groups, block_max, pinned, expand, tail, candidate_block, *published, _LOGITS[logits_dtype], backend,
    )  # fmt: skip
    return (indices, values, lengths, blocks) if published[0] else (indices, values, lengths)
