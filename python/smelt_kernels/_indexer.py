"""The lightning indexer: windows, logits, exact top-k."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypedDict, overload

import torch
from torch import Tensor

from . import _indexer_reference as _reference
from ._checks import ACTIVATIONS, ORDERS, Activation, Backend, Order, choose, integer, number, power, whole
from ._indexer_gradients import WEIGHTS, backward, of_type, scored_as_kernels_read
from ._library import LibraryOperation
from ._operation import is_traced, may_cast

if TYPE_CHECKING:
    from typing_extensions import Unpack

CHUNK_BYTES = 128 << 20  # of logits, that indexer_topk holds at a time
_DTYPES = {torch.bfloat16: "bf16", torch.float8_e4m3fn: "fp8"}
_LOGITS = {torch.float32: "fp32", torch.bfloat16: "bf16"}  # that indexer_topk chooses from


# ---- windows ----------------------------------------------------------------------------------------


def _windows_spec(_) -> str:
    return "indexer_windows"


_windows = LibraryOperation(
    "indexer_windows", spec=_windows_spec, key={"cu_seqlens": 0}, reference=_reference.windows
)


def indexer_windows(
    cu_seqlens: Tensor,
    tokens: int,
    rows: int,
    *,
    cu_seqlens_padded: Tensor | None = None,
    cu_seqlens_keys: Tensor | None = None,
    causal_offset: Tensor | None = None,
    query_indices: Tensor | None = None,
    ratio: int = 1,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor]:
    """Builds, on the device, the window of keys [begin, end) that each query of packed documents may choose from.

    A query at position p of document d sees the document's tokens 0 to p + causal_offset[d], and thus the document's
    first (p + causal_offset[d] + 1) // ratio keys. Windows are clipped to 0..rows; a query that sees no key, or is
    padding, has the window [0, 0).

    Args:
        cu_seqlens: [D + 1], int32: document d has the rows cu_seqlens[d] to cu_seqlens[d + 1] - 1.
        tokens: T, the number of queries.
        rows: S, the number of keys.
        cu_seqlens_padded: [D + 1], int32: document d starts at row cu_seqlens_padded[d] instead; the rows between its
            end and the next document are padding.
        cu_seqlens_keys: [D + 1], int32: where the documents' keys lie, if not where cu_seqlens says.
        causal_offset: [D], int32: tokens ahead of a document's first query, such as a prefix.
        query_indices: [T], int32: the row of each query, in any order, for a shard of a context-parallel batch; None
            means that query t is row t.
        ratio: Tokens that share a key.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        begin and end, each [T] int32.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> cu_seqlens = torch.tensor([0, 3, 5], dtype=torch.int32, device=q.device)  # documents of 3 and 2 tokens
        >>> begin, end = smelt.indexer_windows(cu_seqlens, 5, 5)
        >>> begin.tolist(), end.tolist()
        ([0, 0, 0, 3, 3], [1, 2, 3, 4, 5])
    """
    given = (cu_seqlens, cu_seqlens_padded, cu_seqlens_keys, causal_offset, query_indices)
    return _windows.call(*given, tokens, rows, ratio, backend)


# ---- logits -----------------------------------------------------------------------------------------


_SCORED = {"q": tuple(_DTYPES), "k": tuple(_DTYPES), "weights": WEIGHTS}  # legal types


def _keys(**options) -> str:
    """A spec's optional keys, of those that have other values than their defaults."""
    others = {name: each for name, each in options.items() if each != _DEFAULTS[name]}
    return "".join(f",{name}={int(each) if type(each) is bool else each}" for name, each in others.items())


_DEFAULTS = {
    **{"activation": "relu", "weights": True, "groups": 1, "block_max": 1, "candidate_block": 0},
    **{"pinned": 0, "expand": 1, "tail": False, "publish": 0, "publish_block": 1, "publish_pinned": 0},
    "logits": "fp32",
}


def _scored_rules(named) -> None:
    q, k, k_scale = named["q"], named["k"], named["k_scale"]
    if k.dtype is not q.dtype:
        raise TypeError(f"smelt: k must be {q.dtype} as q is, not {k.dtype}")
    if (k_scale is None) == (q.dtype is torch.float8_e4m3fn):
        raise ValueError("smelt: k_scale goes with torch.float8_e4m3fn, and with nothing else")
    if q.shape[1] % named["groups"]:
        raise ValueError(f"smelt: groups = {named['groups']} does not divide the {q.shape[1]} heads of q")
    if named["weights"] is not None and named["scale"] not in (0, 1):
        raise ValueError("smelt: scale goes with weights=None: fold it into weights")


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
    _scored_rules(named)
    _list_rules(named)


# Specs with the options of a call, of a shape that is always legal (see LibraryOperation's table).


def _logits_table(named) -> str:
    options = {name: named[name] for name in ("activation", "groups", "block_max", "candidate_block")}
    return f"indexer_logits:heads={options['groups']},dim=64,dtype=bf16{_keys(**options)}"


def _list_table(named) -> str:
    """The keys of both selections."""
    topk, pinned = named["topk"], named["pinned"]
    topk = min(topk, _MOST_TOPK) if isinstance(topk, int) else max(pinned, 1)
    options = {name: named[name] for name in ("groups", "expand", "tail")}
    return f"topk={topk},order={named['order']}{_keys(pinned=min(pinned, _MOST_TOPK), **options)}"


def _select_table(named) -> str:
    return f"topk_select:{_list_table(named)}"


def _topk_table(named) -> str:
    shape = f"heads={named['groups']},dim=64,dtype=bf16"
    options = ("activation", "block_max", "candidate_block", "publish", "publish_block", "publish_pinned", "logits")
    return f"indexer_topk:{shape},{_list_table(named)}{_keys(**{name: named[name] for name in options})}"


_MOST_TOPK = 16384


def _groups_of(named) -> dict:
    return {"G": named["groups"]}


def _logits_spec(
    kind, heads, dim, weights, weights_type, activation: str, groups: int, block_max: int, candidate_block: int
) -> str:
    options = {"activation": activation, "groups": groups, "block_max": block_max, "candidate_block": candidate_block}
    of = f"heads={heads},dim={dim},dtype={_DTYPES[kind]}{_keys(weights=weights, **options)}"
    return f"indexer_logits:{of}{of_type(weights_type)}"


def _topk_spec(
    kind, heads, dim, weights, weights_type, topk: int, order: str, activation: str, groups: int, block_max: int, pinned: int,
    expand: int, tail: bool, candidate_block: int, publish: int, publish_block: int, publish_pinned: int,
    logits: str,
) -> str:  # fmt: skip
    options = {"weights": weights, "activation": activation, "groups": groups, "block_max": block_max, "pinned": pinned}
    options |= {"expand": expand, "tail": tail, "candidate_block": candidate_block, "publish": publish}
    options |= {"publish_block": publish_block, "publish_pinned": publish_pinned, "logits": logits}
    of = f"heads={heads},dim={dim},dtype={_DTYPES[kind]},topk={topk},order={order}{_keys(**options)}"
    return f"indexer_topk:{of}{of_type(weights_type)}"


def _head_scale(scale, weights) -> float:
    """The library's argument, of which 0 is the default."""
    if scale is None:
        return 0.0
    scale = float(number(scale, "scale"))
    if scale == 0 or not math.isfinite(scale):
        raise ValueError(f"smelt: scale = {scale} is not legal; legal: finite numbers but 0")
    if weights is not None:
        raise ValueError("smelt: scale goes with weights=None: fold it into weights")
    return scale


_PLAIN_SCORING = 1, 1, 0  # the most calls


def _scoring(groups, block_max, candidates, candidate_block) -> tuple:
    """groups, block_max, candidate_block as the spec has them."""
    if candidate_block is None and candidates is None and groups == block_max == 1:
        return _PLAIN_SCORING
    if (candidates is None) != (candidate_block is None):
        raise ValueError("smelt: candidates and candidate_block, the keys of a listed block, go together")
    listed = 0 if candidates is None else power(candidate_block, "candidate_block")
    return int(_at_least_one(groups, "groups")), power(block_max, "block_max"), listed


def _at_least_one(value, name) -> int:
    if value is None:
        raise TypeError(f"smelt: {name} must be an int, not NoneType")
    return int(whole(value, name))


def _not_negative(value, name) -> int:
    found = int(integer(value, name))
    if found < 0:
        raise ValueError(f"smelt: {name} must not be negative, and is {found}")
    return found


_logits = LibraryOperation(
    "indexer_logits",
    spec=_logits_spec,
    key={"q": 2},
    reference=_reference.logits,
    kinds=_SCORED,
    table=_logits_table,
    sizes=_groups_of,
    rules=_scored_rules,
)


def indexer_logits(
    q: Tensor,
    k: Tensor,
    weights: Tensor | None,
    window_begin: Tensor,
    window_end: Tensor,
    *,
    k_scale: Tensor | None = None,
    activation: Activation = "relu",
    scale: float | None = None,
    groups: int = 1,
    block_max: int = 1,
    candidates: Tensor | None = None,
    candidate_block: int | None = None,
    free_multiprocessors: int = 0,
    backend: Backend | None = None,
) -> Tensor:
    """Computes the indexer's logits: for query t and key s in its window, the sum over heads of weights * max(0, q . k).

    Args:
        q: [T, H, D], bf16 or torch.float8_e4m3fn.
        k: [S, D], of q's type.
        weights: [T, H], fp32 or bf16. A softmax scale, and with fp8 the scales of q, are folded into them by the caller. None:
            every head has the weight `scale`.
        window_begin: [T], int32: each query's first key.
        window_end: [T], int32: one past each query's last key.
        k_scale: [S], fp32, with fp8 only: multiplies the logits of each key.
        activation: "none" sums the products q . k themselves, instead of max(0, q . k).
        scale: The weight of every head, without weights; None means 1.
        groups: G groups of H / G heads each have logits of their own.
        block_max: r keys of a block, from key 0 on, of which the largest logit inside the window is written: a power of
            two up to 128.
        candidates: [T, C], int32: numbers of blocks of candidate_block keys each, whose keys alone are scored, at a cost
            in proportion to C; numbers of no block, such as -1, give -inf. In any order.
        candidate_block: r keys of a listed block: a power of two up to 128, at least block_max.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        [T, S] fp32, -inf outside the windows. With groups [T, G, S]; S is the number of blocks, ceil(S / r), with
        block_max, and C * r with candidates, of which number c * r + i is of key candidates[t, c] * r + i. With both it is
        C * candidate_block / block_max: the blocks of block_max keys in the listed blocks.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> logits = smelt.indexer_logits(iq, ik, weights, begin, end)  # bf16 [T, 64, 128] and [S, 128], fp32 [T, 64]
        >>> indices, values, lengths = smelt.topk_select(logits, 64, window_begin=begin, window_end=end)
        >>> blocks = smelt.indexer_logits(iq, ik, None, begin, end, scale=0.1, groups=4, block_max=128)
        >>> blocks.shape == (iq.shape[0], 4, -(-ik.shape[0] // 128))
        True
    """
    choose(activation, "activation", ACTIVATIONS)
    if may_cast(q):
        q, k, weights = scored_as_kernels_read(backend, q, k, weights)
    given = (q, k, weights, k_scale, window_begin, window_end, candidates)
    options = _scoring(groups, block_max, candidates, candidate_block)
    return _logits.call(*given, free_multiprocessors, _head_scale(scale, weights), activation, *options, backend)[0]


def _clean_spec(_) -> str:
    return "indexer_clean"


_clean = LibraryOperation(
    "indexer_clean", spec=_clean_spec, key={"logits": 0}, reference=_reference.clean_, written=("logits",)
)


def clean_logits_(
    logits: Tensor, window_begin: Tensor, window_end: Tensor, *, backend: Backend | None = None
) -> Tensor:
    """Writes -inf to the elements of a matrix outside the windows, in place.

    Args:
        logits: [T, S], fp32; written.
        window_begin: [T], int32: each query's first key.
        window_end: [T], int32: one past each query's last key.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        `logits`.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> logits = torch.randn(begin.shape[0], 9, device=begin.device)
        >>> smelt.clean_logits_(logits, begin, end) is logits
        True
    """
    _clean.call(window_begin, window_end, logits, 0, backend)
    return logits


# ---- top-k ------------------------------------------------------------------------------------------


def _select_spec(kind, topk: int, order: str, groups: int, pinned: int, expand: int, tail: bool) -> str:
    options = {"groups": groups, "pinned": pinned, "expand": expand, "tail": tail}
    return f"topk_select:topk={topk},order={order}{',dtype=bf16' * (kind is torch.bfloat16)}{_keys(**options)}"


def _lists(topk, order, pinned, expand, tail, width) -> tuple:
    """topk, order, pinned, expand, tail, width as the operators have them."""
    choose(order, "order", ORDERS)
    topk = _at_least_one(topk, "topk")
    tail = bool(tail if isinstance(tail, (bool, Tensor)) else integer(tail, "tail"))
    if expand == 1 and pinned == 0 and not tail and width is None:
        return topk, order, 0, 1, False, 0
    pinned, expand = _not_negative(pinned, "pinned"), power(expand, "expand")
    if width is not None:
        return topk, order, pinned, expand, tail, _at_least_one(width, "width")
    return topk, order, pinned, expand, tail, topk * expand + (expand - 1) * tail if expand > 1 else 0


_select = LibraryOperation(
    "topk_select",
    spec=_select_spec,
    key={"logits": 0},
    reference=_reference.select,
    also=("values", "lengths"),
    kinds={"logits": (torch.float32, torch.bfloat16)},
    table=_select_table,
    sizes=_groups_of,
    rules=_list_rules,
)


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
    topk, order, pinned, expand, tail, width = _lists(topk, order, pinned, expand, tail, width)
    groups = _at_least_one(groups, "groups")
    return _select.call(*given, width, index_offset, topk, order, groups, pinned, expand, tail, backend)


def _two_steps(
    q, k, weights, k_scale, window_begin, window_end, offset, limit, candidates, width, index_offset, scale, topk, order,
    activation, groups, block_max, pinned, expand, tail, candidate_block, publish, publish_block, publish_pinned,
    logits,
):  # fmt: skip
    """The eager reference by chunks of queries, so that no more than CHUNK_BYTES of logits are held."""
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
    """Of the values, which are the logits of what was chosen."""
    index_offset, free, scale, expand, backend, activation, groups, block_max = options
    for name, value in (("groups", groups), ("block_max", block_max)):
        if value > 1:
            raise RuntimeError(
                f"smelt: indexer_topk's values have no gradients with {name}={value}; indexer_scores computes the logits of its "
                "indices with gradients"
            )
    if index_offset:
        indices = indices - index_offset
    if offset is not None:
        indices = indices - offset.unsqueeze(1)
    if expand > 1:
        indices, lengths = _entries(indices, lengths, window_end, grad.shape[-1], expand), None
    own = q.new_full(q.shape[:2], scale or 1.0, dtype=torch.float32) if weights is None else weights
    given = q, k, own, indices, lengths, None, free, activation
    dq, dk, dweights = backward.in_backward(grad, *given, None, None, backend)
    return dq, dk, None if weights is None else dweights


def _entries(rows, lengths, window_end, topk, expand):
    """Of lists of rows, before which offsets were added: the entries; -1 where none has a row there."""
    slots = torch.arange(0, topk * expand, expand, device=rows.device)
    entries = rows[:, : topk * expand : expand].div(expand, rounding_mode="floor")
    is_entry = (slots < lengths.unsqueeze(1)) & (entries < window_end.unsqueeze(1))  # others are the tail's
    return entries.masked_fill(~is_entry, -1)


_topk = LibraryOperation(
    "indexer_topk",
    spec=_topk_spec,
    key={"q": 2},
    reference=_two_steps,
    also=("values", "lengths"),
    made_with={"published": "publish"},
    kinds=_SCORED,
    table=_topk_table,
    sizes=_groups_of,
    rules=_chosen_rules,
)
_topk.differentiable(("q", "k", "weights"), 1, _saved_choice, _choice_gradients)


def _ascend(candidates, keys, block) -> None:
    """Refuses lists that the operator's ties and orders do not allow for, where their numbers are on the host."""
    if type(candidates) is not Tensor or candidates.device.type != "cpu" or is_traced() or candidates.dim() != 2:
        return
    is_block = (candidates >= 0) & (candidates < -(-keys // block))
    numbers = torch.where(is_block, candidates, -1)
    before = torch.nn.functional.pad(numbers.cummax(1).values if numbers.numel() else numbers, (1, 0), value=-1)[:, :-1]
    wrong = (is_block & (numbers <= before)).any(1)
    if wrong.any():
        raise ValueError(
            f"smelt: candidates of query {int(wrong.int().argmax())} do not ascend; sort them, name each block once, and put -1 "
            "anywhere"
        )


def _publication(publish, publish_block, publish_pinned) -> tuple:
    """publish, publish_block, publish_pinned as the spec has them."""
    if publish is None and publish_block == 1 and publish_pinned == 0:
        return 0, 1, 0
    count = 0 if publish is None else _at_least_one(publish, "publish")
    return count, power(publish_block, "publish_block"), _not_negative(publish_pinned, "publish_pinned")


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
    q: Tensor,
    k: Tensor,
    weights: Tensor | None,
    window_begin: Tensor,
    window_end: Tensor,
    topk: int,
    *,
    publish: None = None,
    **options: Unpack[TopkOptions],
) -> tuple[Tensor, Tensor, Tensor]: ...
@overload
def indexer_topk(
    q: Tensor,
    k: Tensor,
    weights: Tensor | None,
    window_begin: Tensor,
    window_end: Tensor,
    topk: int,
    *,
    publish: int,
    **options: Unpack[TopkOptions],
) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
@overload
def indexer_topk(
    q: Tensor,
    k: Tensor,
    weights: Tensor | None,
    window_begin: Tensor,
    window_end: Tensor,
    topk: int,
    *,
    publish: int | None,
    **options: Unpack[TopkOptions],
) -> tuple[Tensor, Tensor, Tensor] | tuple[Tensor, Tensor, Tensor, Tensor]: ...
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
    topk, order, pinned, expand, tail, width = _lists(topk, order, pinned, expand, tail, width)
    groups, block_max, candidate_block = _scoring(groups, block_max, candidates, candidate_block)
    publication = _publication(publish, publish_block, publish_pinned)
    choose(logits_dtype, "logits_dtype", tuple(_LOGITS))
    if may_cast(q):
        q, k, weights = scored_as_kernels_read(backend, q, k, weights)
    if isinstance(q, Tensor) and q.dtype is torch.float8_e4m3fn:  # which has no gradients
        weights = weights.detach() if isinstance(weights, Tensor) else weights
    if candidates is not None and candidate_block and isinstance(k, Tensor) and k.dim():
        _ascend(candidates, k.shape[0], candidate_block)
    indices, values, lengths, blocks = _topk.call(
        q,
        k,
        weights,
        k_scale,
        window_begin,
        window_end,
        offset,
        limit,
        candidates,
        width,
        index_offset,
        free_multiprocessors,
        _head_scale(scale, weights),
        causal_limit,
        workspace_limit,
        topk,
        order,
        activation,
        groups,
        block_max,
        pinned,
        expand,
        tail,
        candidate_block,
        *publication,
        _LOGITS[logits_dtype],
        backend,
    )
    return (indices, values, lengths, blocks) if publication[0] else (indices, values, lengths)
