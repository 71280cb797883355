"""The indexer's gradients: of its logits at each query's slots, which are indexer_scores or what
indexer_topk chose."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _indexer_reference as _reference
from . import _native, _runtime
from ._checks import Backend, choose, floating, one_masked
from ._operation import Operation, as_kernels_read
from ._sparse_attention import WIDE_TYPES, is_deterministic, topk_for


SLOTS_KEY = {"q": 2, "indices": 1}


def slots_spec(_, heads, dim, __, width, family="indexer_scores") -> str:
    return f"{family}:heads={heads},dim={dim},topk={topk_for(width)}"


def _spec(*key):
    *key, deterministic = key
    return slots_spec(*key, "indexer_bwd") + f",deterministic={deterministic:d}"


def _indexer_bwd(
    key,
    grad: Tensor,
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
    """dq, dk and dweights."""
    if not key[-1]:
        indices, grad = one_masked(indices), grad.new_zeros((*indices.shape[:-1], 1))
    if grad.dtype is not torch.float32:
        floating(grad=grad)
    inputs = (q, k, weights, indices, topk_length, grad.float())
    found = _runtime.find(key, backend, _spec, is_deterministic(deterministic))
    wide = dk_dtype is torch.float32
    if found is not None:
        free = free_multiprocessors
        given = (*inputs, True, True, None if wide else True, True if wide else None)
        dq, dweights, dk, _ = found.backward(*given, free_multiprocessors=free)
        return dq, dk, dweights
    selected_rules(*inputs)
    _native.check("indexer_bwd", 1, *inputs)
    with torch.no_grad():
        dq, dk, dweights = _reference.scores_backward(grad, *inputs[:-1])
    return dq, dk.to(dk_dtype or k.dtype), dweights


def _fake(grad, q, k, weights, *others):
    dk_dtype = others[3]
    return (q.new_empty(q.shape), k.new_empty(k.shape, dtype=dk_dtype or k.dtype), weights.new_empty(weights.shape))


def selected_rules(q, k, weights, indices, *_):
    if q.dim() != 3 or k.dim() != 2 or indices.dim() != 2 or q.shape[0] != indices.shape[0]:
        raise ValueError(
            f"smelt: q must be [T, H, D], k [S, D] and indices [T, width], not {tuple(q.shape)}, "
            f"{tuple(k.shape)} and {tuple(indices.shape)}"
        )
    if q.dtype is not torch.bfloat16 or k.dtype is not torch.bfloat16:
        raise TypeError(f"smelt: q and k must both be torch.bfloat16, not {q.dtype} and {k.dtype}")


def _rules(grad, *others):
    floating(grad=grad)
    selected_rules(*others)
    if grad.shape != others[3].shape:
        raise ValueError(f"smelt: grad must be {tuple(others[3].shape)} as indices is, not {tuple(grad.shape)}")


backward = Operation(_indexer_bwd, _fake, "Tensor dq, Tensor dk, Tensor dweights", SLOTS_KEY, rules=_rules)
backward.refuse_derivatives("indexer_scores")


def scored_as_kernels_read(backend, q, k, weights) -> tuple:
    """The indexer's q, k and weights where may_cast says so: weights are read in fp32."""
    _, q, k = as_kernels_read(backend, q, k)
    if isinstance(weights, Tensor) and weights.is_floating_point():
        weights = weights.float()
    return q, k, weights


def type_of_dk(dk_dtype):
    if dk_dtype is not None:
        choose(dk_dtype, "dk_dtype", WIDE_TYPES)
    return dk_dtype


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
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes indexer_scores' gradients without autograd, for programs that have their own backward pass.

    Args:
        grad: [T, width], the gradient of the logits.
        q: [T, H, D], bf16, as in indexer_scores.
        k: [S, D], bf16.
        weights: [T, H], fp32.
        indices: [T, width], int32. Slots outside 0..S-1 are masked.
        topk_length: [T], int32: the number of a query's slots that count.
        deterministic: Whether dk is summed in a fixed order; None follows torch.use_deterministic_algorithms.
        dk_dtype: Type of dk, torch.bfloat16 (also if None) or torch.float32.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        dq [T, H, D] bf16, dk [S, D] in dk_dtype and dweights [T, H] fp32.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> logits = smelt.indexer_scores(iq, ik, weights, indices)
        >>> dq, dk, dweights = smelt.indexer_backward(torch.ones_like(logits), iq, ik, weights, indices)
    """
    given = (grad, q, k, weights, indices, topk_length)
    return backward.call(*given, deterministic, type_of_dk(dk_dtype), free_multiprocessors, backend)
