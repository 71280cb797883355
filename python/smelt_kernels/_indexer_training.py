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
from . import _native, _runtime
from . import _reference as _attention_reference
from ._checks import Backend, integer, legal_scale, number, one_masked, tensor, whole
from ._indexer_gradients import SLOTS_KEY, backward, scored_as_kernels_read, selected_rules, slots_spec, type_of_dk
from ._operation import Operation, as_kernels_read, is_traced, may_cast, wants_gradients
from ._sparse_attention import ATTENTION_KEY, attention_rules, attention_spec, fp32, listed, topk_for

# ---- attention's probabilities ----------------------------------------------------------------------


def _sparse_scores(
    key,
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    topk_length: Tensor | None,
    sink: Tensor | None,
    queries: Tensor | None,
    query_count: Tensor | None,
    lse: Tensor,
    scale: float,
    dv: int,
    topk: int,
    free_multiprocessors: int,
    backend: str | None,
):
    width = key[-1]
    inputs = (q, kv, indices if width else one_masked(indices), topk_length, sink)
    inputs += (queries, query_count, lse)
    found = _runtime.find(key, backend, _scores_spec, dv, topk, sink is not None)
    if found is None:
        target = _scores_by_reference(scale, *inputs)
    else:
        # Queries that a list leaves out keep 0.
        target = True if queries is None else 0.0
        free = free_multiprocessors
        target, _ = found.forward(*inputs, target, scale=scale, free_multiprocessors=free)
    return (target if width else target.new_empty((*target.shape[:-1], 0)),)


def _scores_spec(_, heads, dqk, __, ___, width, *options):
    return attention_spec("sparse_scores", heads, dqk, width, *options)


def _scores_by_reference(scale, q, kv, indices, topk_length, sink, queries, query_count, lse):
    legal_scale(scale)
    inputs = (q, kv, indices, topk_length, sink, queries, query_count, lse)
    _native.check("sparse_scores", 0, *inputs)
    with torch.no_grad():
        target = _attention_reference.sparse_scores(q, kv, indices, lse, scale, topk_length=topk_length, sink=sink)
        if queries is not None:
            named = listed(queries, query_count, lse[..., 0].numel()).view(indices.shape[:-1])
            target = target * named.unsqueeze(-1)
    return target


def _fake_scores(q, _kv, indices, *_):
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32  # the eager reference's
    return (indices.new_empty(indices.shape, dtype=wide),)


_scores = Operation(_sparse_scores, _fake_scores, "Tensor target", ATTENTION_KEY, rules=attention_rules)


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
        *given,
        number(scale, "scale"),
        0 if dv is None else whole(dv, "dv"),
        0 if topk is None else whole(topk, "topk"),
        free_multiprocessors,
        backend,
    )[0]


# ---- the indexer's logits at the slots, and its gradients -------------------------------------------


def _indexer_scores(
    key,
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    indices: Tensor,
    topk_length: Tensor | None,
    deterministic: bool | None,
    dk_dtype: torch.dtype | None,
    free_multiprocessors: int,
    backend: str | None,
):
    width = key[-1]
    inputs = (q, k, weights, indices if width else one_masked(indices), topk_length)
    found = _runtime.find(key, backend, slots_spec)
    if found is not None:
        free = free_multiprocessors
        logits, _ = found.forward(*inputs, True, free_multiprocessors=free)
    else:
        selected_rules(*inputs)
        _native.check("indexer_scores", 0, *inputs)
        with torch.no_grad():
            logits = _reference.scores(*inputs)
    return (logits if width else logits.new_empty((*logits.shape[:-1], 0)),)


def _fake_logits(_q, _k, _weights, indices, *_):
    return (indices.new_empty(indices.shape, dtype=torch.float32),)


_logits = Operation(_indexer_scores, _fake_logits, "Tensor logits", SLOTS_KEY, rules=selected_rules)
_logits.differentiable(
    ("q", "k", "weights"),
    0,
    lambda arguments, made: (arguments[:5], arguments[5:]),
    lambda grad, options, *saved: backward.in_backward(grad, *saved, *options),
)


def indexer_scores(
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    indices: Tensor,
    *,
    topk_length: Tensor | None = None,
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
        weights: [T, H], fp32.
        indices: [T, width], int32. Slots outside 0..S-1 are masked.
        topk_length: [T], int32: the number of a query's slots that count.
        deterministic: Whether k's gradient is summed in a fixed order; None follows torch.use_deterministic_algorithms.
        dk_dtype: Type of k's gradient, torch.bfloat16 (also if None) or torch.float32. PyTorch rounds a gradient to the
            type of its tensor unless it is declared fp32: see dkv_dtype of sparse_attention.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        [T, width] fp32, -inf at masked slots.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> logits = smelt.indexer_scores(iq, ik, weights, indices)
        >>> logits.shape == indices.shape
        True
    """
    if may_cast(q):
        q, k, weights = scored_as_kernels_read(backend, q, k, weights)
    given = (q, k, weights, indices, topk_length)
    return _logits.call(*given, deterministic, type_of_dk(dk_dtype), free_multiprocessors, backend)[0]


# ---- the loss ---------------------------------------------------------------------------------------


def _indexer_loss(
    key,
    logits: Tensor,
    target: Tensor,
    indices: Tensor,
    topk_length: Tensor | None,
    weight: Tensor | None,
    rows: int,
    query_weight: float,
    with_grad: bool,
    free_multiprocessors: int,
    backend: str | None,
):
    """The loss, the queries' losses and the gradient by the logits (None without `with_grad`)."""
    inputs = (logits, target, indices, topk_length, weight)
    if not key[-1]:  # no slot: no loss
        loss, losses = logits.new_zeros(()), logits.new_zeros(logits.shape[:1])
        return loss, losses, logits.new_zeros(logits.shape) if with_grad else None
    found = _runtime.find(key, backend, _loss_spec)
    if found is not None:
        made = found.forward(
            *inputs,
            loss=True,
            losses=True,
            grad=True if with_grad else None,
            rows=rows,
            query_weight=query_weight,
            free_multiprocessors=free_multiprocessors,
        )
        return made[0], made[1], made[2] if with_grad else None
    _loss_rules(*inputs)
    _native.check("indexer_loss", 0, *inputs)
    rows, query_weight = integer(rows, "rows"), number(query_weight, "query_weight")
    with torch.no_grad():
        loss, losses, grad = _reference.loss(*inputs, rows, query_weight)
    return loss, losses, grad if with_grad else None


def _loss_spec(_, width):
    return f"indexer_loss:topk={topk_for(width)}"


def _fake_loss(logits, *others):
    with_grad = others[6]
    losses = logits.new_empty(logits.shape[:1])
    return logits.new_empty(()), losses, logits.new_empty(logits.shape) if with_grad else None


def _loss_rules(logits, target, indices, *_):
    if logits.dim() != 2 or not logits.shape == target.shape == indices.shape:
        raise ValueError(
            f"smelt: logits, target and indices must all be [T, width], not {tuple(logits.shape)}, "
            f"{tuple(target.shape)} and {tuple(indices.shape)}"
        )
    for name, value in (("logits", logits), ("target", target)):
        if value.dtype is not torch.float32:
            raise TypeError(f"smelt: {name} must be torch.float32, not {value.dtype}")


def _indexer_loss_backward(key, grad_loss: Tensor, grad: Tensor):
    return (grad * grad_loss,)


_loss_backward = Operation(
    _indexer_loss_backward, lambda _, grad: (grad.new_empty(grad.shape),), "Tensor grad", {"grad_loss": 0}
)
_loss_backward.refuse_derivatives("indexer_loss")


def _loss_gradients(grad_loss, _, grad):
    if torch.is_grad_enabled() and not is_traced():
        grad = grad.detach().requires_grad_()  # it depends on the logits, which are not kept
    return _loss_backward.in_backward(grad_loss, grad)


_loss = Operation(
    _indexer_loss, _fake_loss, "Tensor loss, Tensor losses, Tensor grad", {"indices": 1}, rules=_loss_rules
)
_loss.differentiable(("logits",), 0, lambda _, made: ((made[2],), None), _loss_gradients)


@overload
def indexer_loss(
    logits: Tensor,
    target: Tensor,
    indices: Tensor,
    *,
    rows: int | None = None,
    topk_length: Tensor | None = None,
    weight: Tensor | None = None,
    query_weight: float | Tensor = 1.0,
    return_losses: Literal[False] = False,
    free_multiprocessors: int = 0,
    backend: Backend | None = None,
) -> Tensor: ...
@overload
def indexer_loss(
    logits: Tensor,
    target: Tensor,
    indices: Tensor,
    *,
    rows: int | None = None,
    topk_length: Tensor | None = None,
    weight: Tensor | None = None,
    query_weight: float | Tensor = 1.0,
    return_losses: Literal[True],
    free_multiprocessors: int = 0,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def indexer_loss(
    logits: Tensor,
    target: Tensor,
    indices: Tensor,
    *,
    rows: int | None = None,
    topk_length: Tensor | None = None,
    weight: Tensor | None = None,
    query_weight: float | Tensor = 1.0,
    return_losses: bool,
    free_multiprocessors: int = 0,
    backend: Backend | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...
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
        logits: [T, width], fp32: the values of indexer_topk, or indexer_scores.
        target: [T, width], fp32: sparse_scores, added up over ranks; it need not be normalised.
        indices: [T, width], int32: slots below 0, or not below `rows`, are masked.
        rows: S, the number of keys; None means that no index is too large.
        topk_length: [T], int32: the number of a query's slots that count.
        weight: [T], fp32: multiplies each query's loss.
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
    # A number that changes from step to step (1 / T) multiplies afterwards: kernels and graphs do not depend on it.
    later = is_compiling() or isinstance(query_weight, (Tensor, torch.SymFloat, torch.SymInt))
    if isinstance(query_weight, Tensor) and query_weight.numel() != 1:
        raise ValueError(f"smelt: query_weight must be one number, not {tuple(query_weight.shape)}: weight [T] has many")
    wanted = wants_gradients(tensor(logits, "logits"))
    loss, losses, *_ = _loss.call(
        logits,
        target,
        indices,
        topk_length,
        weight,
        (1 << 31) - 1 if rows is None else rows,
        1.0 if later else query_weight,
        wanted,
        free_multiprocessors,
        backend,
    )
    if later:
        loss, losses = loss * query_weight, losses * query_weight
    return (loss, losses) if return_losses else loss
