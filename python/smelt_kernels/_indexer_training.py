"""What trains the lightning indexer: attention's probabilities at the selected slots, the indexer's logits
there, the loss between them, and the indexer's gradients. Nothing of the size T x S is made.

    indices, logits, _ = smelt.indexer_topk(iq, ik, weights, begin, end, topk)       # logits are differentiable
    out, lse = smelt.sparse_attention(q, kv, indices, scale, return_lse=True)
    target = smelt.sparse_scores(q, kv, indices, lse, scale)                          # add up over ranks here
    loss = smelt.indexer_loss(logits, target, indices)
"""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor
from torch.compiler import is_compiling

from . import _indexer_reference as _reference
from . import _reference as _attention_reference
from ._checks import ACTIVATIONS, Activation, Backend, choose, finite, floating, number, power, shapes, tensor, whole
from ._indexer_reference import NEVER
from ._indexer_gradients import SLOTS_KEY, WEIGHTS, backward, scored_as_kernels_read, type_of_dk
from ._library import LibraryOperation, spec_text
from ._operation import Scaling, as_kernels_read, may_cast, wants_gradients
from ._sparse_attention import ATTENTION_KEY, attention_rules, attention_spec, fp32, topk_for

# ---- attention's probabilities ----------------------------------------------------------------------


def _scores_spec(_, heads, dqk, __, ___, width, dv: int, topk: int, sink) -> str:
    return attention_spec("sparse_scores", heads, dqk, width, dv, topk, sink)


_scores = LibraryOperation(
    "sparse_scores", spec=_scores_spec, key=ATTENTION_KEY, reference=_attention_reference.sparse_scores, floats=True,
    rules=attention_rules,
)


def sparse_scores(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    lse: Tensor,
    scale: float,
    *,
    dv: int | None = None,
    topk: int | None = None,
    topk_length: Tensor | None = None,
    sink: Tensor | None = None,
    queries: Tensor | None = None,
    query_count: Tensor | None = None,
    free_multiprocessors: int = 0,
    backend: Backend | None = None,
) -> Tensor:
    """Computes attention's probabilities at each query's slots, summed over heads: the indexer's target. Not differentiable.

    Where tensor parallelism divides the heads, the caller adds up the ranks' sums.

    Args:
        q: [T, H, dqk] or [B, T, H, dqk], bf16, as in sparse_attention.
        kv: [S, dqk] or [B, S, dqk], bf16.
        indices: [T, width] or [B, T, width], int32. Slots outside 0..S-1 are masked.
        lse: [T, H] or [B, T, H], fp32: sparse_attention's, natural and without the sink.
        scale: The softmax scale.
        dv: As in sparse_attention; selects the kernel.
        topk: The largest number of valid slots of a query; None means `width` rounded up to a multiple of 128.
        topk_length: [T] or [B, T], int32: the number of a query's slots that count.
        sink: [H], a logit of each head in the softmax's denominator.
        queries: [N] int32: compute only these queries (b * T + t), each named once. The others' result is 0.
        query_count: [1] int32: how many entries of `queries` count.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        fp32, of the shape of `indices`; 0 at masked slots.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> out, lse = smelt.sparse_attention(q, kv, indices, scale, return_lse=True)
        >>> target = smelt.sparse_scores(q, kv, indices, lse, scale)
    """
    if may_cast(q):
        _, q, kv = as_kernels_read(backend, q, kv)
    given = (q, kv, indices, topk_length, fp32(sink), queries, query_count, lse)
    return _scores.call(
        *given, free_multiprocessors, number(scale, "scale"), 0 if dv is None else whole(dv, "dv"),
        0 if topk is None else whole(topk, "topk"), backend,
    )[0]  # fmt: skip


# ---- the indexer's logits at the slots, and its gradients -------------------------------------------


def _slots_spec(_, heads, dim, __, width, weights_dtype, activation: str) -> str:
    return _spec_of_slots(heads, dim, width, weights_dtype, activation, 1)


def _spec_of_slots(heads, dim, width, weights_dtype, activation, block_max):
    keys = {"heads": heads, "dim": dim, "topk": topk_for(width), "activation": activation, "block_max": block_max}
    return spec_text("indexer_scores", keys | {"granularity": block_max, "weights_dtype": weights_dtype})


_logits = LibraryOperation(
    "indexer_scores", spec=_slots_spec, key=SLOTS_KEY, reference=_reference.scores, gradient=backward,
    kinds={"weights": WEIGHTS},
)  # fmt: skip


def _blocks_spec(
    _, heads, dim, __, width, weights_dtype, activation: str, block_max: int, deterministic: bool | None,
    dk_dtype: torch.dtype | None,
) -> str:  # fmt: skip
    """The last two are the gradients'."""
    return _spec_of_slots(heads, dim, width, weights_dtype, activation, block_max)


def _blocks_by_reference(q, k, weights, indices, topk_length, limit, activation, block_max):
    length = topk_length if topk_length is None else topk_length.unsqueeze(1)
    rows, valid = _attention_reference.block_rows(indices.unsqueeze(1), block_max, len(k), length, limit)
    rows = torch.where(valid, rows, -1).int().squeeze(1)
    logits = _reference.scores(q, k, weights, rows, None, None, activation).view(*indices.shape, block_max)
    rows = rows.view_as(logits)
    logits = logits.masked_fill(logits.isnan(), NEVER)
    best = logits.argmax(-1, keepdim=True)
    largest = logits.gather(-1, best).squeeze(-1)
    return largest, rows.gather(-1, best).squeeze(-1).masked_fill(largest == NEVER, -1)


_blocks = LibraryOperation(
    "indexer_scores", name="indexer_block_scores", spec=_blocks_spec, key=SLOTS_KEY, reference=_blocks_by_reference,
    also=("keys",), kinds={"weights": WEIGHTS},
)  # fmt: skip


def _saved_blocks(arguments, made):
    named = dict(zip(_blocks.names, arguments))
    options = [named[name] for name in ("free_multiprocessors", "activation", "deterministic", "dk_dtype", "backend")]
    return (named["q"], named["k"], named["weights"], made[1]), options


def _block_gradients(grad, options, q, k, weights, keys):
    """Of a block's logit: that of the key that has it."""
    return backward.in_backward(grad, q, k, weights, keys, None, None, *options)


_blocks.differentiable(("q", "k", "weights"), 0, _saved_blocks, _block_gradients)


def indexer_scores(
    q: Tensor,
    k: Tensor,
    weights: Tensor | None,
    indices: Tensor,
    *,
    topk_length: Tensor | None = None,
    limit: Tensor | None = None,
    activation: Activation = "relu",
    block_max: int = 1,
    scale: float = 1.0,
    deterministic: bool | None = None,
    dk_dtype: torch.dtype | None = None,
    free_multiprocessors: int = 0,
    backend: Backend | None = None,
) -> Tensor:
    """Computes the indexer's logits at each query's slots: the sum over heads of weights * max(0, q . k[index]).

    Differentiable in q, k and weights.

    Args:
        q: [T, H, D], bf16.
        k: [S, D], bf16.
        weights: [T, H], fp32 or bf16; None means that every head has the weight 1.
        indices: [T, width], int32. Slots outside 0..S-1 are masked. Or [T, G, width], a list for each of G groups of H / G
            heads, which alone are summed.
        topk_length: [T], or [T, G] beside lists of groups, int32: the number of a list's slots that count.
        limit: [T], int32: keys from it on are masked, for causal attention t + 1. None: none are.
        activation: "relu" as above, or "none": q . k[index] itself.
        block_max: Above 1, `indices` are numbers of blocks of so many keys, and a block's logit is the largest of its
            keys', whose gradient is that of the first key that has it.
        scale: Multiplies the weights.
        deterministic: Whether k's gradient is summed in a fixed order; None follows torch.use_deterministic_algorithms.
        dk_dtype: Type of k's gradient, torch.bfloat16 (also if None) or torch.float32. PyTorch rounds a gradient to the
            type of its tensor unless it is declared fp32: see dkv_dtype of sparse_attention.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        fp32 of the shape of `indices`, -inf at masked slots.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> logits = smelt.indexer_scores(iq, ik, weights, indices)
        >>> logits.shape == indices.shape
        True
    """
    choose(activation, "activation", ACTIVATIONS)
    block_max = power(block_max, "block_max")
    lists = tensor(indices, "indices").shape[:-1]
    if weights is None:
        weights = torch.ones(tensor(q, "q").shape[:2], device=q.device)
    if may_cast(q):
        q, k, weights = scored_as_kernels_read(backend, q, k, weights)
    if finite(scale, "scale") != 1.0:
        floating(weights=tensor(weights, "weights"))
        weights = weights.float() * scale
    if len(lists) == 2:  # a list of a group of heads is a query
        shapes(q=(q, "THD"), weights=(weights, "TH"), indices=(indices, "TGW"), limit=(limit, "T?"))
        per_group = isinstance(topk_length, Tensor) and topk_length.dim() > 1
        shapes(indices=(indices, "TGW"), topk_length=(topk_length, "TG?" if per_group else "T?"))
        if q.shape[1] % max(1, lists[1]):
            raise ValueError(f"smelt: indices has {lists[1]} lists of {lists[0]} queries, but q is {list(q.shape)}")
        q, weights = (each.unflatten(1, (lists[1], -1)).flatten(0, 1) for each in (q, weights))
        indices = indices.flatten(0, 1)
        if topk_length is not None:
            topk_length = topk_length.flatten() if per_group else topk_length.repeat_interleave(lists[1])
        limit = limit if limit is None else limit.repeat_interleave(lists[1])
    given = (q, k, weights, indices, topk_length, limit, free_multiprocessors, activation)
    options = deterministic, type_of_dk(dk_dtype), backend
    logits = _blocks.call(*given, block_max, *options)[0] if block_max > 1 else _logits.call(*given, *options)[0]
    return logits.unflatten(0, lists) if len(lists) == 2 else logits


# ---- the loss ---------------------------------------------------------------------------------------


def _loss_spec(_, width) -> str:
    return spec_text("indexer_loss", {"topk": topk_for(width)})


def loss_rules(named) -> None:
    query_weight = number(named["query_weight"], "query_weight")
    if isinstance(query_weight, (float, int)) and not 0 < abs(query_weight) <= torch.finfo(torch.float32).max:
        raise ValueError(f"smelt: query_weight = {query_weight} is not legal; legal: finite numbers but 0")


_loss = LibraryOperation(
    "indexer_loss", spec=_loss_spec, key={"indices": 1}, reference=_reference.loss, also=("losses",),
    asked=("grad",), rules=loss_rules,
)  # fmt: skip
_loss.differentiable(("logits",), 0, lambda _, made: ((made[2],), None), Scaling("indexer_loss", ("grad",)).flow)


def factor_afterwards(query_weight):
    """query_weight as the factor by which the loss is multiplied after its kernels, so that neither they nor a graph
    depend on its value: 1 / T, for example, changes from step to step. None: the kernels take query_weight."""
    if not isinstance(query_weight, Tensor):
        return query_weight if is_compiling() or isinstance(query_weight, (torch.SymFloat, torch.SymInt)) else None
    if query_weight.numel() != 1:
        raise ValueError(f"smelt: query_weight must be one number, not {tuple(query_weight.shape)}: weight [T] has many")
    if query_weight.is_complex():
        raise TypeError(f"smelt: query_weight must be real, not {query_weight.dtype}")
    return query_weight.reshape(()).float()


@overload
def indexer_loss(
    logits: Tensor, target: Tensor, indices: Tensor, *, rows: int | None = None, topk_length: Tensor | None = None,
    weight: Tensor | None = None, query_weight: float | Tensor = 1.0, return_losses: Literal[False] = False,
    free_multiprocessors: int = 0, backend: Backend | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def indexer_loss(
    logits: Tensor, target: Tensor, indices: Tensor, *, rows: int | None = None, topk_length: Tensor | None = None,
    weight: Tensor | None = None, query_weight: float | Tensor = 1.0, return_losses: Literal[True],
    free_multiprocessors: int = 0, backend: Backend | None = None,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def indexer_loss(
    logits: Tensor, target: Tensor, indices: Tensor, *, rows: int | None = None, topk_length: Tensor | None = None,
    weight: Tensor | None = None, query_weight: float | Tensor = 1.0, return_losses: bool,
    free_multiprocessors: int = 0, backend: Backend | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def indexer_loss(
    logits: Tensor,
    target: Tensor,
    indices: Tensor,
    *,
    rows: int | None = None,
    topk_length: Tensor | None = None,
    weight: Tensor | None = None,
    query_weight: float | Tensor = 1.0,
    return_losses: bool = False,
    free_multiprocessors: int = 0,
    backend: Backend | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Computes the loss that trains the indexer, and its gradient, in one pass: the sum over queries of a divergence.

    A query's loss is the Kullback-Leibler divergence of the softmax of its logits from its target, normalised. It is
    differentiable in `logits` and has the same bits in every run. A query without a valid slot, or with a target of 0
    everywhere, has the loss 0. A target that is negative or NaN counts as 0, a logit that is NaN as -inf. A slot with a
    target and a logit of -inf makes the loss infinite.

    Args:
        logits: [T, width], fp32: the values of indexer_topk, or indexer_scores. T may stand for several dimensions here
            and below: [T, G, width] for G lists of a query.
        target: [T, width], fp32: sparse_scores or sparse_gqa_scores, added up over ranks; it need not be normalised.
        indices: [T, width], int32: slots below 0, or not below `rows`, are masked.
        rows: S, the number of keys (of blocks, if entries are blocks); None means that no index is too large.
        topk_length: [T], int32: the number of a query's slots that count.
        weight: [T], fp32: multiplies each query's loss. It has no gradient.
        query_weight: One number for all queries, such as 1 / T; a tensor may have any value without a new kernel or
            graph.
        return_losses: Also return each query's loss.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        The loss, a scalar of fp32; with return_losses a tuple of it and of the queries' losses, [T] fp32, which are not
        differentiable.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> indices, logits, _ = smelt.indexer_topk(iq, ik, weights, begin, end, 64)
        >>> out, lse = smelt.sparse_attention(q, kv, indices, scale, return_lse=True)
        >>> target = smelt.sparse_scores(q, kv, indices, lse, scale)
        >>> loss = smelt.indexer_loss(logits, target, indices)
        >>> loss.backward()  # gradients of iq, ik and weights
    """
    factor = factor_afterwards(query_weight)
    wanted = wants_gradients(tensor(logits, "logits"))
    loss, losses, *_ = _loss.call(
        logits, target, indices, topk_length, weight, (1 << 31) - 1 if rows is None else rows, free_multiprocessors,
        query_weight if factor is None else 1.0, wanted, backend,
    )  # fmt: skip
    if factor is not None:
        loss, losses = loss * factor, losses * factor
    return (loss, losses) if return_losses else loss
