"""What trains the lightning indexer: attention's probabilities at the selected slots, the indexer's logits
there, the loss between them, and the indexer's gradients. Nothing of the size T x S is made.

    indices, logits, _ = smelt.indexer_topk(iq, ik, weights, begin, end, topk)       # logits are differentiable
    out, lse = smelt.sparse_attention(q, kv, indices, scale, return_lse=True)
    target = smelt.sparse_scores(q, kv, indices, lse, scale)                          # add up over ranks here
    loss = smelt.indexer_loss(logits, target, indices)

Gradients go through the custom operators' autograd.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import _indexer_reference as _reference
from . import _reference as _attention_reference
from ._checks import choose, optional_tensors, tensors, whole
from ._eager import is_plain, launched, once, refuse_tangents, wants_gradients
from ._indexer import _detached, _operator
from ._library import define, library, refuse_derivatives
from ._sparse_attention import INPUTS, is_deterministic, listed, topk_for, value_width

# ---- attention's probabilities ----------------------------------------------------------------------


def _scores(*arguments):
    *given, scale, dv, topk, free, backend = arguments
    q, kv, indices, topk_length, sink, queries, query_count, lse = given
    key = (
        "sparse_scores",
        ("heads", q.shape[-2]),
        ("dqk", q.shape[-1]),
        ("dv", dv),
        ("topk", topk or topk_for(indices.shape[-1])),
        *((("sink", 1),) if sink is not None else ()),
    )
    found = _operator(q, key, backend)
    if found is None:
        target = _attention_reference.sparse_scores(
            q, kv, indices, lse, scale, topk_length=topk_length, sink=sink
        )
        if queries is not None:
            named = listed(queries, query_count, lse[..., 0].numel()).view(indices.shape[:-1])
            target = target * named.unsqueeze(-1)
        return target
    if queries is None:
        return launched(found.forward, given, (True,), (scale, free))[0]
    target = torch.zeros_like(
        indices, dtype=torch.float32, memory_format=torch.contiguous_format
    )
    launched(found.forward, given, (target,), (scale, free))
    return target


def _fake_scores(*arguments):
    indices = arguments[2]
    return indices.new_empty(indices.shape, dtype=torch.float32)


_call_scores = define(
    f"sparse_scores({INPUTS}, Tensor lse, float scale, int dv, int topk, int free_multiprocessors, "
    "str backend) -> Tensor",
    _scores,
    _fake_scores,
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
    backend: str = "auto",
) -> Tensor:
    """Attention's probabilities at each query's slots, summed over heads: fp32, of the shape of `indices`.

    All but lse as sparse_attention has it; lse [.., T, H] is its own, natural and without the sink, which is in
    the denominator where `sink` is given. Masked slots are 0. What the indexer learns to predict; the sums of
    other ranks' heads are the caller's to add. Without gradients.
    """
    tensors(q=q, kv=kv, indices=indices, lse=lse)
    if q.dim() not in (3, 4) or not indices.dim():
        raise ValueError(
            f"smelt: q must be [T, H, dqk] or [B, T, H, dqk], not of {q.dim()} dimensions, indices [T, width] "
            f"or [B, T, width], not of {indices.dim()}"
        )
    optional_tensors(topk_length=topk_length, sink=sink, queries=queries, query_count=query_count)
    given = (*_detached(q, kv), indices, topk_length)
    given += (None if sink is None else sink.detach().float(), queries, query_count, lse.detach())
    return (_scores if is_plain(q, kv) else _call_scores)(
        *given,
        scale,
        value_width(q.shape[-1]) if dv is None else whole(dv, "dv"),
        0 if topk is None else whole(topk, "topk"),
        free_multiprocessors,
        backend,
    )


# ---- the indexer's logits at the slots, and its gradients -------------------------------------------

SELECTED = "Tensor q, Tensor k, Tensor weights, Tensor indices, Tensor? topk_length"


def _key(family, q, indices, *more):
    topk = topk_for(indices.shape[-1])
    return (family, ("heads", q.shape[1]), ("dim", q.shape[2]), ("topk", topk), *more)


def _logits(*arguments):
    *given, _, _, free, backend = arguments
    q, _, _, indices, _ = given
    found = _operator(q, _key("indexer_scores", q, indices), backend)
    if found is None:
        return _reference.scores(*given)
    return launched(found.forward, given, (True,), (free,))[0]


def _fake_logits(*arguments):
    indices = arguments[3]
    return indices.new_empty(indices.shape, dtype=torch.float32)


def _gradients(grad, *arguments):
    """dq, dk and dweights."""
    *given, deterministic, dk_dtype, free, backend = arguments
    q, k, weights, indices, _ = given
    more = (("deterministic", 1),) if is_deterministic(deterministic) else ()
    found = _operator(q, _key("indexer_bwd", q, indices, *more), backend)
    if found is None:
        dq, dk, dweights = _reference.scores_backward(grad, *given)
        return dq, dk.to(dk_dtype or k.dtype), dweights
    wide = dk_dtype is torch.float32
    made = (True, True, None if wide else True, True if wide else None, None)
    dq, dweights, dk, *_ = launched(found.forward, (*given, grad.float()), made, (free,))
    return dq, dk, dweights


def _fake_gradients(_grad, *arguments):
    q, k, weights = arguments[:3]
    dk_dtype = arguments[6]
    return (
        q.new_empty(q.shape),
        k.new_empty(k.shape, dtype=dk_dtype or k.dtype),
        weights.new_empty(weights.shape),
    )


_OPTIONS = "bool? deterministic, ScalarType? dk_dtype, int free_multiprocessors, str backend"
_call_logits = define(
    f"indexer_scores({SELECTED}, {_OPTIONS}) -> Tensor",
    _logits,
    _fake_logits,
)
_call_gradients = define(
    f"indexer_bwd(Tensor grad, {SELECTED}, {_OPTIONS}) -> (Tensor dq, Tensor dk, Tensor dweights)",
    _gradients,
    _fake_gradients,
)


def _keep(ctx, inputs, output):
    *given, _, _, _, _ = inputs
    ctx.save_for_backward(*given)
    ctx.options = inputs[len(given) :]


def _flow(ctx, grad):
    given = ctx.saved_tensors
    dq, dk, dweights = _call_gradients(grad, *given, *ctx.options)
    return dq, dk.to(given[1].dtype), dweights, *(None,) * 6


torch.library.register_autograd("smelt::indexer_scores", _flow, setup_context=_keep, lib=library)
refuse_derivatives("indexer_bwd", "indexer_scores")


def _keep_choice(ctx, inputs, output):
    q, k, weights, _, _, _, offset, _, ctx.index_offset, _, ctx.free, _, _, ctx.backend = inputs
    indices, _, lengths = output
    ctx.mark_non_differentiable(indices, lengths)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, weights, indices, lengths, offset)


def _flow_choice(ctx, _indices, grad, _lengths):
    """Of indexer_topk's values: they are the logits of what was chosen."""
    none = (None,) * 11
    if grad is None:
        return None, None, None, *none
    q, k, weights, indices, lengths, offset = ctx.saved_tensors
    indices = indices - ctx.index_offset
    if offset is not None:
        indices = indices - offset.unsqueeze(1)
    options = (None, None, ctx.free, ctx.backend)
    return *_call_gradients(grad, q, k, weights, indices, lengths, *options), *none


torch.library.register_autograd(
    "smelt::indexer_topk", _flow_choice, setup_context=_keep_choice, lib=library
)


def _check_selected(q, k, weights, indices, topk_length, dk_dtype):
    tensors(q=q, k=k, weights=weights, indices=indices)
    optional_tensors(topk_length=topk_length)
    if q.dim() != 3 or k.dim() != 2 or indices.dim() != 2 or q.shape[0] != indices.shape[0]:
        raise ValueError(
            f"smelt: q must be [T, H, D], k [S, D] and indices [T, width], not {tuple(q.shape)}, "
            f"{tuple(k.shape)} and {tuple(indices.shape)}"
        )
    if q.dtype is not torch.bfloat16 or k.dtype is not torch.bfloat16:
        raise TypeError(f"smelt: q and k must both be torch.bfloat16, not {q.dtype} and {k.dtype}")
    if dk_dtype is not None:
        choose(dk_dtype, "dk_dtype", (torch.bfloat16, torch.float32))


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
    backend: str = "auto",
) -> Tensor:
    """The indexer's logits at each query's slots: fp32 [T, width], -inf at masked ones; differentiable.

    q [T, H, D] and k [S, D] bf16, weights [T, H] fp32, indices [T, width] int32 of which the first topk_length
    [T] count: sum over heads of weights * max(0, q . k[index]). Gradients flow to q, k and weights, k's with
    the same bits in every run where `deterministic` (None: as torch.use_deterministic_algorithms says), and
    summed in fp32, which dk_dtype=torch.float32 hands out.
    """
    _check_selected(q, k, weights, indices, topk_length, dk_dtype)
    refuse_tangents(q, k, weights)
    direct = is_plain(q, k) and not wants_gradients(q, k, weights)
    run = _logits if direct else _call_logits
    options = (deterministic, dk_dtype, free_multiprocessors, backend)
    return run(q, k, weights, indices, topk_length, *options)


def indexer_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    weights: Tensor,
    indices: Tensor,
    *,
    topk_length: Tensor | None = None,
    deterministic: bool | None = None,
    dk_dtype: torch.dtype | None = None,
    free_multiprocessors: int = 0,
    backend: str = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dweights of indexer_scores, for programs that do without autograd; grad [T, width] fp32."""
    _check_selected(q, k, weights, indices, topk_length, dk_dtype)
    tensors(grad=grad)
    if not grad.is_floating_point():
        raise TypeError(f"smelt: grad must be of a floating type, not {grad.dtype}")
    run = _gradients if is_plain(q, k) else _call_gradients
    given = _detached(grad, q, k, weights)
    options = (deterministic, dk_dtype, free_multiprocessors, backend)
    return run(*given, indices, topk_length, *options)


# ---- the loss ---------------------------------------------------------------------------------------


def _loss(*arguments):
    *given, rows, query_weight, with_grad, free, backend = arguments
    logits, _, indices, _, _ = given
    key = ("indexer_loss", ("topk", topk_for(indices.shape[1])))
    found = _operator(logits, key, backend)
    if found is None:
        loss, losses, grad = _reference.loss(*given, rows, query_weight)
        return loss, losses, grad if with_grad else logits.new_empty((0,))
    made = (True, True, True if with_grad else None)
    scalars = (rows, query_weight, free)
    loss, losses, grad, *_ = launched(found.forward, (*given, None), made, scalars)
    return loss.view(()), losses, grad if with_grad else logits.new_empty((0,))


def _fake_loss(*arguments):
    logits, with_grad = arguments[0], arguments[7]
    return (
        logits.new_empty(()),
        logits.new_empty(logits.shape[:1]),
        logits.new_empty(logits.shape if with_grad else (0,)),
    )


_call_loss = define(
    "indexer_loss(Tensor logits, Tensor target, Tensor indices, Tensor? topk_length, Tensor? weight, "
    "SymInt rows, float query_weight, bool with_grad, int free_multiprocessors, str backend) -> "
    "(Tensor loss, Tensor losses, Tensor grad)",
    _loss,
    _fake_loss,
)


def _keep_grad(ctx, inputs, output):
    _, losses, grad = output
    ctx.mark_non_differentiable(losses, grad)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(grad)


def _flow_loss(ctx, grad_loss, _losses, _grad):
    none = (None,) * 9
    return (None if grad_loss is None else ctx.saved_tensors[0] * grad_loss, *none)


torch.library.register_autograd(
    "smelt::indexer_loss", once(_flow_loss), setup_context=_keep_grad, lib=library
)


def indexer_loss(
    logits: Tensor,
    target: Tensor,
    indices: Tensor,
    *,
    rows: int | None = None,
    topk_length: Tensor | None = None,
    weight: Tensor | None = None,
    query_weight: float = 1.0,
    return_losses: bool = False,
    free_multiprocessors: int = 0,
    backend: str = "auto",
):
    """The indexer's loss: the sum over queries of the Kullback-Leibler divergence of its softmax over a query's
    slots from the target's; a scalar, differentiable in `logits`. With return_losses also those of the queries.

    logits [T, width] fp32 (indexer_topk's values or indexer_scores), target [T, width] fp32 (sparse_scores,
    added up over ranks; need not be normalised), indices [T, width] int32: slots below 0, not below `rows`
    (where given) or not below topk_length [T] are masked. weight [T] fp32 and query_weight multiply each
    query's loss. Queries without a slot or a target count 0; include/smelt/indexer_loss.h says what NaN and
    infinities become. Loss and gradient come from one pass, with the same bits in every run.
    """
    tensors(logits=logits, target=target, indices=indices)
    optional_tensors(topk_length=topk_length, weight=weight)
    if logits.dim() != 2 or not logits.shape == target.shape == indices.shape:
        raise ValueError(
            f"smelt: logits, target and indices must all be [T, width], not {tuple(logits.shape)}, "
            f"{tuple(target.shape)} and {tuple(indices.shape)}"
        )
    for name, value in (("logits", logits), ("target", target)):
        if value.dtype is not torch.float32:
            raise TypeError(f"smelt: {name} must be torch.float32, not {value.dtype}")
    if not logits.shape[1]:  # no slot: no loss
        nothing = logits.sum()
        return (nothing, logits.sum(1).detach()) if return_losses else nothing
    refuse_tangents(logits)
    wanted = wants_gradients(logits)
    rows = (1 << 31) - 1 if rows is None else rows
    run = _loss if is_plain(logits, target) and not wanted else _call_loss
    given = (logits, target.detach(), indices, topk_length, weight)
    loss, losses, _ = run(*given, rows, query_weight, wanted, free_multiprocessors, backend)
    return (loss, losses) if return_losses else loss
