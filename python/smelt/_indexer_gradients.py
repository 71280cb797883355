"""The indexer's gradients: of its logits at each query's slots, which are indexer_scores or what
indexer_topk chose."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _indexer_reference as _reference
from . import _native
from ._checks import choose, floating, one_masked, optional_tensors, selected, tensors
from ._eager import detached, for_operator, is_plain, launched, operator_of, table
from ._library import define, refuse_derivatives
from ._sparse_attention import is_deterministic, topk_for

SELECTED = "Tensor q, Tensor k, Tensor weights, Tensor indices, Tensor? topk_length"
OPTIONS = "bool? deterministic, ScalarType? dk_dtype, int free_multiprocessors, str backend"


def slots_key(family, q, indices, *more):
    topk = topk_for(indices.shape[-1])
    return (family, ("heads", q.shape[1]), ("dim", q.shape[2]), ("topk", topk), *more)


_calls = table((2, 0, 0, 1, 0, 0))


def _gradients(grad, *arguments):
    """dq, dk and dweights."""
    *given, deterministic, dk_dtype, free, backend = arguments
    q, k, weights, indices, _ = given
    more = (("deterministic", 1),) if is_deterministic(deterministic) else ()
    found = operator_of(q, slots_key("indexer_bwd", q, indices, *more), backend)
    if found is None:
        selected(*given, grad)
        dq, dk, dweights = _reference.scores_backward(grad, *given)
        return dq, dk.to(dk_dtype or k.dtype), dweights
    wide = dk_dtype is torch.float32
    made = (True, True, None if wide else True, True if wide else None, None)
    said = (bool(more), dk_dtype, free, backend)
    grad = grad.float()
    _calls.remember(*given, grad, said, _native.Known([found], 0, made, (free,)))
    dq, dweights, dk, *_ = launched(found.forward, (*given, grad), made, (free,))
    return dq, dk, dweights


def _quick(grad, *arguments):
    """As _gradients, where the module launches by itself; else None."""
    if torch.compiler.is_compiling():
        return None
    *given, deterministic, dk_dtype, free, backend = arguments
    said = (is_deterministic(deterministic), dk_dtype, free, backend)
    found = _calls.run(*given, grad, said)
    return None if found is None else (found[0], found[2], found[1])


def gradients(grad, *arguments):
    """In a backward function: by the operator where somebody is watching."""
    found = _quick(grad, *arguments)
    if found is None:
        found = (gradients_operator if for_operator(grad) else _gradients)(grad, *arguments)
    return found


def _fake_gradients(_grad, *arguments):
    q, k, weights = arguments[:3]
    dk_dtype = arguments[6]
    return (
        q.new_empty(q.shape),
        k.new_empty(k.shape, dtype=dk_dtype or k.dtype),
        weights.new_empty(weights.shape),
    )


gradients_operator = define(
    f"indexer_bwd(Tensor grad, {SELECTED}, {OPTIONS}) -> (Tensor dq, Tensor dk, Tensor dweights)",
    _gradients,
    _fake_gradients,
)
refuse_derivatives("indexer_bwd", "indexer_scores")


def check_selected(q, k, weights, indices, topk_length, dk_dtype):
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
    """dq [T, H, D] bf16, dk [S, D] in dk_dtype (bf16 where it is None) and dweights [T, H] fp32 of indexer_scores,
    whose arguments the others are, by grad [T, width], its gradient: for programs that do without autograd."""
    options = (deterministic, dk_dtype, free_multiprocessors, backend)
    found = _quick(grad, q, k, weights, indices, topk_length, *options)
    if found is not None:
        return found
    check_selected(q, k, weights, indices, topk_length, dk_dtype)
    tensors(grad=grad)
    floating(grad=grad)
    if not indices.shape[1] and grad.shape == indices.shape:
        slot = one_masked(indices)
        named = {"topk_length": topk_length, "dk_dtype": dk_dtype, "backend": backend}
        return indexer_backward(grad.new_zeros(slot.shape), q, k, weights, slot, **named)
    given = (*detached(grad, q, k, weights), indices, topk_length)
    run = _gradients if is_plain(*given) else gradients_operator
    return run(*given, *options)
