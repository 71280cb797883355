"""The indexer's gradients: of its logits at each query's slots, which are indexer_scores or what
indexer_topk chose."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _indexer_reference as _reference
from ._checks import ACTIVATIONS, Activation, Backend, choose
from ._library import LibraryOperation, spec_text
from ._operation import as_kernels_read
from ._sparse_attention import WIDE_TYPES, topk_for


SLOTS_KEY = {"q": 2, "indices": 1}
WEIGHTS = (torch.float32, torch.bfloat16)  # legal types


def _spec(_, heads, dim, __, width, weights_dtype, activation: str, deterministic: bool | None) -> str:
    keys = {"heads": heads, "dim": dim, "topk": topk_for(width), "activation": activation}
    return spec_text("indexer_bwd", keys | {"deterministic": deterministic, "weights_dtype": weights_dtype})


backward = LibraryOperation(
    "indexer_bwd", which=1, spec=_spec, key=SLOTS_KEY, reference=_reference.scores_backward, kinds={"weights": WEIGHTS}
)
backward.refuse_derivatives("indexer_scores")


def scored_as_kernels_read(backend, q, k, weights) -> tuple:
    """The indexer's q, k and weights where may_cast says so: weights are read in fp32 or bf16."""
    _, q, k = as_kernels_read(backend, q, k)
    if isinstance(weights, Tensor) and weights.is_floating_point() and weights.dtype is not torch.bfloat16:
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
    limit: Tensor | None = None,
    activation: Activation = "relu",
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
        weights: [T, H], fp32 or bf16.
        indices: [T, width], int32. Slots outside 0..S-1 are masked.
        topk_length: [T], int32: the number of a query's slots that count.
        limit: [T], int32: keys from it on are masked.
        activation: As in indexer_scores.
        deterministic: Whether dk is summed in a fixed order; None follows torch.use_deterministic_algorithms.
        dk_dtype: Type of dk, torch.bfloat16 (also if None) or torch.float32.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        dq [T, H, D] bf16, dk [S, D] in dk_dtype and dweights [T, H] of weights' type.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> logits = smelt.indexer_scores(iq, ik, weights, indices)
        >>> dq, dk, dweights = smelt.indexer_backward(torch.ones_like(logits), iq, ik, weights, indices)
    """
    choose(activation, "activation", ACTIVATIONS)
    given = (grad, q, k, weights, indices, topk_length, limit)
    return backward.call(*given, free_multiprocessors, activation, deterministic, type_of_dk(dk_dtype), backend)
