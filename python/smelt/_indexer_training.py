"""What trains the lightning indexer: attention's probabilities at the selected slots, the indexer's logits
there, the loss between them, and the indexer's gradients. Nothing of the size T x S is made.

    indices, logits, _ = smelt.indexer_topk(iq, ik, weights, begin, end, topk)       # logits are differentiable
    out, lse = smelt.sparse_attention(q, kv, indices, scale, return_lse=True)
    target = smelt.sparse_scores(q, kv, indices, lse, scale)                          # add up over ranks here
    loss = smelt.indexer_loss(logits, target, indices)

The ways a call goes are those of _sparse_attention.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import _indexer_reference as _reference
from . import _native
from . import _reference as _attention_reference
from ._checks import (
    attended,
    floating,
    integer,
    legal_scale,
    number,
    one_masked,
    optional_tensors,
    selected,
    shapes,
    tensors,
    whole,
)
from ._eager import (
    detached,
    is_plain,
    launched,
    once,
    operator_of,
    refuse_tangents,
    table,
    wants_gradients,
)
from ._indexer_gradients import (
    OPTIONS,
    SELECTED,
    check_selected,
    gradients,
    gradients_operator,
    slots_key,
)
from ._library import define, library
from ._sparse_attention import INPUTS, listed, topk_for, value_width

# ---- attention's probabilities ----------------------------------------------------------------------


_scores_calls = table((2, 0, 1, 0, 0, 0, 0, 0))


def _scores(*arguments, said=None):
    """`said`: what a call says of these options, which the module knows it by."""
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
    found = operator_of(q, key, backend)
    if found is None:
        attended(*given)
        legal_scale(scale)
        target = _attention_reference.sparse_scores(
            q, kv, indices, lse, scale, topk_length=topk_length, sink=sink
        )
        if queries is not None:
            named = listed(queries, query_count, lse[..., 0].numel()).view(indices.shape[:-1])
            target = target * named.unsqueeze(-1)
        return target
    made = (True if queries is None else 0.0,)  # of queries that a list leaves out
    if said is not None:
        known = _native.Known([found], 0, made, (scale, free))
        _scores_calls.remember(*given, said, known)
    return launched(found.forward, given, made, (scale, free))[0]


def _fake_scores(*arguments):
    q, indices = arguments[0], arguments[2]
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32  # the eager reference's
    return indices.new_empty(indices.shape, dtype=wide)


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
    other ranks' heads are the caller's to add. `queries` names each query once. Without gradients.
    """
    said = (scale, dv, topk, free_multiprocessors, backend)
    if not torch.compiler.is_compiling():
        given = (q, kv, indices, topk_length, sink, queries, query_count, lse)
        found = _scores_calls.run(*given, said)
        if found is not None:
            return found[0]
    tensors(q=q, kv=kv, indices=indices, lse=lse)
    if q.dim() not in (3, 4) or not indices.dim():
        raise ValueError(
            f"smelt: q must be [T, H, dqk] or [B, T, H, dqk], not of {q.dim()} dimensions, indices [T, width] "
            f"or [B, T, width], not of {indices.dim()}"
        )
    optional_tensors(topk_length=topk_length, sink=sink, queries=queries, query_count=query_count)
    floating(sink=sink)
    if not indices.shape[-1]:
        options = {"dv": dv, "topk_length": topk_length, "sink": sink, "queries": queries}
        options.update(query_count=query_count, backend=backend)
        return sparse_scores(q, kv, one_masked(indices), lse, scale, **options)[..., :0]
    given = (*detached(q, kv), indices, topk_length)
    given += (None if sink is None else sink.detach().float(), queries, query_count, lse.detach())
    dv = value_width(q.shape[-1]) if dv is None else whole(dv, "dv")
    topk = 0 if topk is None else whole(topk, "topk")
    options = (number(scale, "scale"), dv, topk, free_multiprocessors, backend)
    return _scores(*given, *options, said=said) if is_plain(*given) else _call_scores(*given, *options)


# ---- the indexer's logits at the slots, and its gradients -------------------------------------------

def _logits(*arguments):
    *given, _, _, free, backend = arguments
    q, _, _, indices, _ = given
    found = operator_of(q, slots_key("indexer_scores", q, indices), backend)
    if found is None:
        selected(*given)
        return _reference.scores(*given)
    options = arguments[len(given) :]
    saved = tuple(range(len(given)))
    known = _native.Known([found], 0, (True,), (free,), options, result=0, saved=saved)
    _logits_calls.remember(*given, options, known)
    return launched(found.forward, given, (True,), (free,))[0]


def _fake_logits(*arguments):
    indices = arguments[3]
    return indices.new_empty(indices.shape, dtype=torch.float32)


_call_logits = define(
    f"indexer_scores({SELECTED}, {OPTIONS}) -> Tensor",
    _logits,
    _fake_logits,
)

def _keep(ctx, inputs, output):
    *given, _, _, _, _ = inputs
    ctx.save_for_backward(*given)
    ctx.options = inputs[len(given) :]


def _flow(ctx, grad):
    return *gradients_operator(grad, *ctx.saved_tensors, *ctx.options), *(None,) * 6


torch.library.register_autograd("smelt::indexer_scores", _flow, setup_context=_keep, lib=library)


class _ScoresNode(torch.autograd.Function):
    """Of a call that the module runs."""

    forward = staticmethod(_native.node_forward)

    @staticmethod
    @once
    def backward(ctx, grad):
        if grad is None:
            return None, None, None, None
        return *gradients(grad, *ctx.saved_tensors, *ctx.known.options), None


_logits_calls = table((2, 0, 0, 1, 0), (0, 1, 2), _ScoresNode)


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
    summed in fp32, which dk_dtype=torch.float32 hands out (PyTorch rounds it where k's gradient is not
    declared to be in fp32: see sparse_attention's dkv_dtype).
    """
    options = (deterministic, dk_dtype, free_multiprocessors, backend)
    if not torch.compiler.is_compiling():
        found = _logits_calls.run(q, k, weights, indices, topk_length, options)
        if found is not None:
            return found[0]
    check_selected(q, k, weights, indices, topk_length, dk_dtype)
    if not indices.shape[1]:
        slot = one_masked(indices)
        named = {"topk_length": topk_length, "dk_dtype": dk_dtype, "backend": backend}
        return indexer_scores(q, k, weights, slot, **named)[:, :0]
    refuse_tangents(q, k, weights)
    given = (q, k, weights, indices, topk_length)
    direct = is_plain(*given) and not wants_gradients(q, k, weights)
    return (_logits if direct else _call_logits)(*given, *options)


# ---- the loss ---------------------------------------------------------------------------------------


def _loss(*arguments):
    *given, rows, query_weight, with_grad, free, backend = arguments
    logits, _, indices, _, _ = given
    key = ("indexer_loss", ("topk", topk_for(indices.shape[1])))
    found = operator_of(logits, key, backend)
    if found is None:
        lengths, weight = given[3:]
        shapes(
            logits=(logits, "TW"),
            indices=(indices, "TW", True),
            topk_length=(lengths, "T", True),
            weight=(weight, "T"),
        )
        rows, query_weight = integer(rows, "rows"), number(query_weight, "query_weight")
        loss, losses, grad = _reference.loss(*given, rows, query_weight)
        return loss, losses, grad if with_grad else logits.new_empty((0,))
    made = (None, True, True, True if with_grad else None)
    scalars = (rows, query_weight, free)
    how = {"result": 0, "saved": (len(given) + 2,)} if with_grad else {}  # the gradient
    known = _native.Known([found], 0, made, scalars, **how)
    _loss_calls.remember(*given, arguments[len(given) :], known)
    loss, losses, grad, *_ = launched(found.forward, given, made, scalars)
    return loss, losses, grad if with_grad else logits.new_empty((0,))


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


class _LossNode(torch.autograd.Function):
    """Of a call that the module runs."""

    forward = staticmethod(_native.node_forward)

    @staticmethod
    @once
    def backward(ctx, grad_loss):
        return None if grad_loss is None else ctx.saved_tensors[0] * grad_loss, None


_loss_calls = table((0, 0, 1, 0, 0), (0,), _LossNode)


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
) -> Tensor | tuple[Tensor, Tensor]:
    """The indexer's loss: the sum over queries of the Kullback-Leibler divergence of its softmax over a query's
    slots from the target's; a scalar, differentiable in `logits`. With return_losses also those of the queries,
    fp32 [T], which take no gradient.

    logits [T, width] fp32 (indexer_topk's values or indexer_scores), target [T, width] fp32 (sparse_scores,
    added up over ranks; need not be normalised), indices [T, width] int32: slots below 0, not below `rows`
    (where given) or not below topk_length [T] are masked. weight [T] fp32 and query_weight multiply each
    query's loss. Queries without a slot or a target count 0; include/smelt/indexer_loss.h says what NaN and
    infinities become. Loss and gradient come from one pass, with the same bits in every run.
    """
    wanted = isinstance(logits, Tensor) and wants_gradients(logits)
    rows = (1 << 31) - 1 if rows is None else rows
    said = (rows, query_weight, wanted, free_multiprocessors, backend)
    if not torch.compiler.is_compiling():
        found = _loss_calls.run(logits, target, indices, topk_length, weight, said)
        if found is not None:
            return found[:2] if return_losses else found[0]
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
    given = (logits, target.detach(), indices, topk_length, weight)
    run = _loss if is_plain(*given) and not wanted else _call_loss
    loss, losses, _ = run(*given, *said)
    return (loss, losses) if return_losses else loss
