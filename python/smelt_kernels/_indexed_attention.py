"""A layer's sparse attention and the loss of its indexer in one call, with one node of autograd; and how far two choices
of keys differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import torch
from torch import Tensor

from . import _native, _runtime
from ._checks import Backend, choose, number, tensor, whole
from ._description import bind
from ._indexer import scoring
from ._indexer_gradients import backward as _index_backward
from ._indexer_gradients import WEIGHTS, scored_as_kernels_read, type_of_dk
from ._indexer_training import _loss, _scores, factor_afterwards
from ._operation import Operation, is_batched, may_cast, wants_gradients
from ._selection import _topk, ascend, entries_of, lists, publication
from ._sparse_attention import (
    WIDE_TYPES, Buckets, _attention, _backward, _buckets, attended_as_kernels_read, fp32, topk_for, value_width,
)  # fmt: skip

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._selection import ChoiceOptions

EVERY_ROW = (1 << 31) - 1
_PARAMETERS = {
    **dict.fromkeys(("q", "kv", "index_q", "index_k", "index_weights", "window_begin", "window_end"), "Tensor"),
    **dict.fromkeys(("sink", "weight", "offset", "limit", "candidates"), "Tensor | None"),
    **{"topk": "int", "scale": "float", "dv": "int", "query_weight": "float", "buckets": "tuple[int, ...]"},
    **{"deterministic": "bool | None", "dkv_dtype": "torch.dtype | None", "dk_dtype": "torch.dtype | None"},
    **dict.fromkeys(("free_multiprocessors", "workspace_limit", "causal_limit", "pinned", "expand"), "int"),
    **{"tail": "bool", **dict.fromkeys(("width", "candidate_block", "publish", "publish_block", "publish_pinned"), "int")},
    **{"with_grad": "bool", "backend": "str | None"},
}
# Arguments of the choice that have other names here, and those that are always the same.
_INDEX = {"q": "index_q", "k": "index_k", "weights": "index_weights"}
_ALWAYS = {"k_scale": None, "index_offset": 0, "scale": 0.0, "order": "index", "activation": "relu", "groups": 1}
_ALWAYS |= {"block_max": 1, "logits": "fp32"}  # values are the loss's


def _of_choice(named) -> tuple:
    """indexer_topk's arguments."""
    return tuple([_ALWAYS[name] if name in _ALWAYS else named[_INDEX.get(name, name)] for name in _topk.names])


def _run(operation, *arguments):
    """An operation's kernel function: of tensors that are plain here, whatever the call was."""
    return operation.kernel(_native.look(operation.key, arguments, operation.names), *arguments)


def _on_one_device(**tensors):
    """Before the first launch, since each operator reads only some of the tensors."""
    devices = {name: _native.look(b"\0", (each,), (name,))[0] for name, each in tensors.items() if each is not None}
    home = max(devices.values()) if devices["q"] < 0 else devices["q"]
    for name, device in devices.items():
        if device != home:
            raise ValueError(f"smelt: {name} must be on device cuda:{home}, as the others are")


def _same_rows(named):
    """Lists of pools may be of any number of rows."""
    rows, keys = named["kv"].shape[0], named["index_k"].shape[0]
    if rows != keys and named["expand"] == 1 and named["offset"] is None:
        raise ValueError(
            f"smelt: index_k must have as many rows as kv, since both are chosen by the same numbers: {keys}, not {rows}"
        )


def _kernel(_, *arguments):
    """out, loss, indices, lengths, lse, the loss's gradient by the logits at the slots (None without with_grad), published
    blocks (None without publish), the entries of which the lists hold rows (None with expand=1) and attention's partition."""
    named = dict(zip(_PARAMETERS, arguments))
    _on_one_device(**{name: named[name] for name, kind in _PARAMETERS.items() if kind.startswith("Tensor")})
    _same_rows(named)
    q, kv, topk, expand, offset = (named[name] for name in ("q", "kv", "topk", "expand", "offset"))
    free, scale, dv, backend = (named[name] for name in ("free_multiprocessors", "scale", "dv", "backend"))
    with _runtime.HeldWarnings():
        indices, logits, lengths, published = _run(_topk, *_of_choice(named))
        lists = q, kv, indices, lengths, named["sink"], None, None
        width = topk_for(indices.shape[1])
        attention = free, scale, dv, width, named["buckets"], False, named["workspace_limit"], named["deterministic"]
        out, lse, _, *partition = _run(_attention, *lists, *attention, named["dkv_dtype"], backend)
        keys = kv if kv.dtype is q.dtype else kv.to(q.dtype)
        target = _run(_scores, q, keys, *lists[2:], lse, free, scale, dv, width, backend)[0]
        slots, entries = (indices, lengths), None
        if expand > 1:
            own = indices if offset is None else indices - offset.unsqueeze(1)
            entries = entries_of(own, lengths, named["window_end"], len(named["index_k"]), topk, expand)
            target, slots = target[:, : topk * expand].unflatten(1, (topk, expand)).sum(-1), (entries, None)
        given = logits, target, *slots, named["weight"]
        loss, _, grad = _run(_loss, *given, EVERY_ROW, free, named["query_weight"], named["with_grad"], backend)
    return out, loss, indices, lengths, lse, grad, published, entries, *partition


def _fake(*arguments):
    named = dict(zip(_PARAMETERS, arguments))
    q, topk, expand = named["q"], named["topk"], named["expand"]
    tokens, heads, dqk = q.shape

    def numbers(count, kind=torch.int32):
        return q.new_empty((tokens, count), dtype=kind)

    return (
        q.new_empty((tokens, heads, named["dv"] or value_width(dqk))),
        q.new_empty((), dtype=torch.float32),
        numbers(named["width"] if expand > 1 else topk),
        q.new_empty((tokens,), dtype=torch.int32),
        q.new_empty((tokens, heads), dtype=torch.float32),
        numbers(topk, torch.float32) if named["with_grad"] else None,
        numbers(named["publish"]) if named["publish"] else None,
        numbers(topk) if expand > 1 else None,
    )


class _Indexed(Operation):
    def check_arguments(self, arguments) -> None:
        named = dict(zip(self.names, arguments))
        rows = [row for row in _attention.rows if row.name in ("q", "kv", "sink")]
        if named["q"].dim() != 3:
            raise ValueError(f"smelt: q must be [T, H, dqk], not of {named['q'].dim()} dimensions")
        sizes = bind(rows, named, _attention.kinds).sizes
        scored = [row._replace(name=_INDEX.get(row.name, row.name)) for row in _topk.rows if row.name not in _ALWAYS]
        kinds = {row.name: (row.kind,) for row in scored} | {"index_weights": WEIGHTS}
        of_index = bind(scored, named, kinds).sizes
        if sizes["T"] != of_index["T"]:
            raise ValueError(f"smelt: index_q must be of as many queries as q: {of_index['T']}, not {sizes['T']}")
        _same_rows(named)
        _topk.check_arguments(_of_choice(named))
        if named["weight"] is not None:
            of_loss = [row for row in _loss.rows if row.name == "weight"]
            bind([rows[0], *of_loss], named, {"q": _attention.kinds["q"], "weight": _loss.kinds["weight"]})


def _saved(arguments, made):
    named = dict(zip(_PARAMETERS, arguments))
    inputs = [named[name] for name in ("q", "kv", "sink", "index_q", "index_k", "index_weights")]
    entries = made[7] if named["expand"] > 1 else None
    partition = made[8] if len(made) > 8 else None
    options = {name: each for name, each in named.items() if not _PARAMETERS[name].startswith("Tensor")}
    return (*inputs, made[0], *made[2:6], entries, partition), options


def _flow(grads, options, q, kv, sink, index_q, index_k, index_weights, out, indices, lengths, lse, grad, entries, partition):
    grad_out, grad_loss = grads
    free, backend, deterministic = (options[name] for name in ("free_multiprocessors", "backend", "deterministic"))
    gradients = [None] * 6
    # The indexer's gradients first: attention's are larger, and should not be held meanwhile.
    if grad_loss is not None and options["with_grad"]:
        # Those of index_q and index_k are linear in the weights, too: a product [T, Hi] in the place of one [T, topk].
        several = is_batched(grad_loss)
        slots, weights = (grad * grad_loss, index_weights) if several else (grad, index_weights.float() * grad_loss)
        chosen = (indices, lengths) if entries is None else (entries, None)
        given = slots, index_q, index_k, weights, *chosen, None
        dq, dk, dweights = _index_backward.in_backward(*given, free, "relu", deterministic, options["dk_dtype"], backend)
        gradients[3:] = dq, dk, dweights if several else (dweights * grad_loss).to(index_weights.dtype)
    if grad_out is not None:
        lists = q, kv, indices, lengths, sink, None, None
        given = free, options["scale"], options["workspace_limit"], topk_for(indices.shape[1]), options["buckets"]
        made = _backward.in_backward(
            grad_out, *lists, out, lse, partition, *given, deterministic, options["dkv_dtype"], backend
        )
        gradients[:3] = made if sink is not None else (*made[:2], None)
    return gradients


_indexed = _Indexed("indexed_attention", _kernel, _fake, _PARAMETERS, 8, {"q": 2, "kv": 0})
_LEAVES = ("q", "kv", "sink", "index_q", "index_k", "index_weights")
_indexed.differentiable(_LEAVES, (0, 1), _saved, _flow)


if TYPE_CHECKING:

    class _Options(ChoiceOptions, total=False):
        dv: int | None
        sink: Tensor | None
        weight: Tensor | None
        query_weight: float | Tensor
        buckets: Buckets
        deterministic: bool | None
        dkv_dtype: torch.dtype | None
        dk_dtype: torch.dtype | None


@overload
def indexed_attention(
    q: Tensor, kv: Tensor, index_q: Tensor, index_k: Tensor, index_weights: Tensor, window_begin: Tensor,
    window_end: Tensor, topk: int, scale: float, *, publish: None = None, **options: Unpack[_Options],
) -> tuple[Tensor, Tensor, Tensor]: ...  # fmt: skip
@overload
def indexed_attention(
    q: Tensor, kv: Tensor, index_q: Tensor, index_k: Tensor, index_weights: Tensor, window_begin: Tensor,
    window_end: Tensor, topk: int, scale: float, *, publish: int, **options: Unpack[_Options],
) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...  # fmt: skip
@overload
def indexed_attention(
    q: Tensor, kv: Tensor, index_q: Tensor, index_k: Tensor, index_weights: Tensor, window_begin: Tensor,
    window_end: Tensor, topk: int, scale: float, *, publish: int | None, **options: Unpack[_Options],
) -> tuple[Tensor, Tensor, Tensor] | tuple[Tensor, Tensor, Tensor, Tensor]: ...  # fmt: skip
def indexed_attention(
    q: Tensor,
    kv: Tensor,
    index_q: Tensor,
    index_k: Tensor,
    index_weights: Tensor,
    window_begin: Tensor,
    window_end: Tensor,
    topk: int,
    scale: float,
    *,
    dv: int | None = None,
    sink: Tensor | None = None,
    weight: Tensor | None = None,
    query_weight: float | Tensor = 1.0,
    buckets: Buckets = None,
    pinned: int = 0,
    expand: int = 1,
    limit: Tensor | None = None,
    tail: bool = False,
    width: int | None = None,
    offset: Tensor | None = None,
    candidates: Tensor | None = None,
    candidate_block: int | None = None,
    publish: int | None = None,
    publish_block: int = 1,
    publish_pinned: int = 0,
    deterministic: bool | None = None,
    dkv_dtype: torch.dtype | None = None,
    dk_dtype: torch.dtype | None = None,
    free_multiprocessors: int = 0,
    workspace_limit: int = 0,
    causal_limit: int = 0,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor, Tensor] | tuple[Tensor, Tensor, Tensor, Tensor]:
    """Attends to the keys that the indexer chooses, and computes the loss that trains the indexer: a layer's step in one call.

    The results and gradients are those of this chain of calls:

        indices, logits, lengths = indexer_topk(index_q, index_k, index_weights, window_begin, window_end, topk)
        out, lse = sparse_attention(q, kv, indices, scale, topk_length=lengths, return_lse=True)
        target = sparse_scores(q, kv, indices, lse, scale, topk_length=lengths)
        loss = indexer_loss(logits, target, indices, topk_length=lengths)

    Autograd has one node for it, which keeps the inputs, indices, lengths, out, lse and the loss's gradient by the logits
    at the slots; nothing of the size T x S is made. `out` has gradients of q, kv and sink alone, and `loss` of index_q,
    index_k and index_weights alone: the choice has none, and the target counts as constant. Inputs are not detached: where
    the loss shall not train what index_q, index_k and index_weights are made from, the caller detaches that.

    With `expand` the indexer chooses pools of `expand` rows of kv, and index_k has a key for each. The target of a pool is then
    the sum of its rows', and rows of the tail, for which the indexer has no logit, are attended to and not learnt.

    In a context-parallel program q, index_q, index_weights and the windows are of the rank's own queries (indexer_windows'
    query_indices), kv and index_k are gathered, and the ranks' losses are added up. Where tensor parallelism divides the
    heads, use the chain, and add up the targets over ranks.

    Args:
        q: [T, H, dqk], bf16, as in sparse_attention.
        kv: [S, dqk], bf16.
        index_q: [T, Hi, D], bf16: the indexer's queries.
        index_k: [S, D], bf16: the indexer's keys, of the same rows as kv; with expand or offset of other rows.
        index_weights: [T, Hi], fp32 or bf16: with the indexer's scale folded into them.
        window_begin: [T], int32: each query's first key. indexer_windows makes windows once for all layers.
        window_end: [T], int32: one past each query's last key.
        topk: How many keys to choose.
        scale: Attention's softmax scale.
        dv: As in sparse_attention.
        sink: As in sparse_attention.
        weight: As in indexer_loss.
        query_weight: As in indexer_loss.
        buckets: As in sparse_attention.
        pinned: As in indexer_topk.
        expand: As in indexer_topk: rows of kv that a key of index_k stands for.
        limit: As in indexer_topk, with expand.
        tail: As in indexer_topk, with expand and limit.
        width: As in indexer_topk, with expand.
        offset: As in indexer_topk: added to a query's indices, so that they name rows of kv.
        candidates: As in indexer_topk.
        candidate_block: As in indexer_topk.
        publish: As in indexer_topk.
        publish_block: As in indexer_topk.
        publish_pinned: As in indexer_topk.
        deterministic: Whether the gradients of kv and index_k are summed in a fixed order; None follows
            torch.use_deterministic_algorithms.
        dkv_dtype: As in sparse_attention.
        dk_dtype: As in indexer_scores, of index_k's gradient.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        workspace_limit: As in indexer_topk, and of a deterministic backward pass as in sparse_attention.
        causal_limit: As in indexer_topk.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        out [T, H, dv] bf16, the loss, a scalar of fp32, and the chosen indices [T, topk] int32, ascending, -1 behind a
        query's last one; with expand [T, width] rows. With publish also the published blocks, [T, publish] int32.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> out, loss, indices = smelt.indexed_attention(q, kv, iq, ik, weights, begin, end, 64, scale)
        >>> (out.float().square().mean() + loss / len(q)).backward()
    """
    factor = factor_afterwards(query_weight)
    wanted = None
    if may_cast(tensor(q, "q")):
        wanted, q, kv = attended_as_kernels_read(backend, q, kv, dkv_dtype)
    if may_cast(tensor(index_q, "index_q")):
        index_q, index_k, index_weights = scored_as_kernels_read(backend, index_q, index_k, index_weights)
    if dkv_dtype is not None:
        choose(dkv_dtype, "dkv_dtype", WIDE_TYPES)
    leaves = (tensor(index_q, "index_q"), tensor(index_k, "index_k"), tensor(index_weights, "index_weights"))
    shape = lists(topk, "index", pinned, expand, tail, width)
    candidate_block = scoring(1, 1, candidates, candidate_block)[2]
    published = publication(publish, publish_block, publish_pinned)
    if candidate_block and leaves[1].dim():
        ascend(candidates, leaves[1].shape[0], candidate_block)
    out, loss, indices, _, _, _, blocks, *_ = _indexed.call(
        q, kv, *leaves, window_begin, window_end, sink if sink is None else fp32(sink), weight, offset, limit,
        candidates, shape[0], number(scale, "scale"), 0 if dv is None else whole(dv, "dv"),
        query_weight if factor is None else 1.0, () if buckets is None else _buckets(buckets), deterministic, dkv_dtype,
        type_of_dk(dk_dtype), free_multiprocessors, workspace_limit, causal_limit, *shape[2:], candidate_block,
        *published, wants_gradients(*leaves), backend,
    )  # fmt: skip
    if factor is not None:
        loss = loss * factor
    out = out if wanted is None else out.to(wanted)
    return (out, loss, indices, blocks) if published[0] else (out, loss, indices)


# ---- two choices ------------------------------------------------------------------------------------


def _sorted_lists(lists: Tensor, name: str, ascending: bool) -> tuple[Tensor, Tensor]:
    """The lists in ascending order, masked slots last; and each list's number of entries."""
    if tensor(lists, name).dtype not in (torch.int32, torch.int64):
        raise TypeError(f"smelt: {name} must be torch.int32 or torch.int64, not {lists.dtype}")
    if not lists.dim():
        raise ValueError(f"smelt: {name} must be [..., width], not of 0 dimensions")
    count = (lists >= 0).sum(-1, keepdim=True)
    lists = torch.where(lists < 0, torch.iinfo(lists.dtype).max, lists)
    return lists.contiguous() if ascending else lists.sort(-1).values, count


def selection_difference(a: Tensor, b: Tensor, *, ascending: bool = False) -> tuple[Tensor, Tensor]:
    """Counts in how many entries two choices of keys differ, on the device: to compare a replayed choice with a new one.

    A query's list is a multiset of its entries of 0 and more: their order does not matter, negative ones do not count, and an
    entry that is listed n times counts n times. The difference of two lists is the size of the larger one less the size
    of what they have in common (of an entry that is n times in one and m times in the other, the smaller number). It is 0
    for equal multisets; of lists of one length it is how many entries of either are not in the other.

    Args:
        a: [..., width], int32 or int64, as indexer_topk's indices.
        b: [..., another width], of a's type and queries.
        ascending: A promise that the entries of every list ascend, with negative ones at the end alone, as indexer_topk's
            are. The lists are then not sorted first.

    Returns:
        The difference of each query's lists, [...] int32, and their sum, a scalar of int64. Neither waits for the device.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the lists are not of the same queries.

    Example:
        >>> a = torch.tensor([[1, 4, 6, -1], [2, 3, 5, 7]])
        >>> b = torch.tensor([[6, 1, 4, -1], [2, 3, 5, 8]])
        >>> each, total = smelt.selection_difference(a, b)
        >>> each.tolist(), total.item()
        ([0, 1], 1)
    """
    (one, count), (two, others) = _sorted_lists(a, "a", ascending), _sorted_lists(b, "b", ascending)
    if one.dtype is not two.dtype:
        raise TypeError(f"smelt: b must be {one.dtype} as a is, not {two.dtype}")
    if one.shape[:-1] != two.shape[:-1]:
        raise ValueError(f"smelt: b must be of a's queries, {tuple(a.shape[:-1])}, not {tuple(b.shape[:-1])}")
    first = torch.searchsorted(two, one, out_int32=True)  # where an entry of one begins in two
    times = torch.minimum(torch.searchsorted(two, one, right=True, out_int32=True), others) - first
    slots = torch.arange(one.shape[-1], device=one.device)
    common = ((slots - torch.searchsorted(one, one, out_int32=True) < times) & (slots < count)).sum(-1)
    each = torch.maximum(count, others).squeeze(-1) - common
    return each.int(), each.sum()
