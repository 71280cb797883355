"""The warm-up of an indexer's training: its loss against dense attention over each query's whole window. Nothing of
the size T x S is made.

    lse = smelt.dense_lse(q, kv, begin, end, scale)
    loss = smelt.indexer_dense_loss(q, kv, lse, iq, ik, weights, begin, end, scale)
"""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from . import _indexer_reference as _reference
from ._checks import ACTIVATIONS, Activation, Backend, choose, integer, legal_scale, number, power, tensor
from ._indexer_gradients import WEIGHTS, scored_as_kernels_read, type_of_dk
from ._indexer_training import factor_afterwards, loss_rules
from ._library import LibraryOperation, of_groups, spec_text
from ._operation import Scaling, as_kernels_read, may_cast, wants_gradients


def _keys(k):
    """Latent attention's rows as one key head."""
    return k.unsqueeze(1) if tensor(k, "k").dim() == 2 else k


def _heads_are_divided(named) -> None:
    legal_scale(named["scale"])
    heads, kv_heads = named["q"].shape[1], named["k"].shape[1]
    if kv_heads == 0 or heads % kv_heads:
        raise ValueError(f"smelt: kv_heads={kv_heads} does not divide heads={heads}")


def _lse_spec(_, heads, dqk, __, kv_heads, ___) -> str:
    return spec_text("dense_lse", {"heads": heads, "dqk": dqk, "kv_heads": kv_heads})


_lse = LibraryOperation(
    "dense_lse",
    spec=_lse_spec,
    key={"q": 2, "k": 2},
    reference=_reference.dense_lse,
    floats=True,
    rules=_heads_are_divided,
)


def dense_lse(
    q: Tensor,
    k: Tensor,
    window_begin: Tensor,
    window_end: Tensor,
    scale: float,
    *,
    free_multiprocessors: int = 0,
    backend: Backend | None = None,
) -> Tensor:
    """Computes the log-sum-exp of dense attention over windows of keys, for indexer_dense_loss. Not differentiable.

    Args:
        q: [T, H, dqk], bf16.
        k: [S, dqk], or [S, KV, dqk] where H / KV heads read each key head, bf16.
        window_begin: [T] int32: the first key of each query's window.
        window_end: [T] int32: its last key plus one.
        scale: The softmax scale.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        [T, H] fp32, natural logarithms; -inf where the window is empty.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> lse = smelt.dense_lse(q, kv, begin, end, scale)
    """
    if may_cast(q):
        _, q, k = as_kernels_read(backend, q, k)
    given = (q, _keys(k), window_begin, window_end)
    return _lse.call(*given, number(scale, "scale"), free_multiprocessors, backend)[0]


def _spec(
    _, heads, dqk, __, kv_heads, ___, ____, index_heads, index_dim, index_weights_dtype, activation: str,
    groups: int, granularity: int, block_max: int, deterministic: bool | None,
) -> str:  # fmt: skip
    attention = {"heads": heads, "dqk": dqk, "kv_heads": kv_heads}
    indexer = {"index_heads": index_heads, "index_dim": index_dim, "weights_dtype": index_weights_dtype}
    slots = {"groups": groups, "granularity": granularity, "block_max": block_max}
    return spec_text(
        "indexer_dense_loss", attention | indexer | slots | {"activation": activation, "deterministic": deterministic}
    )


def _table(named) -> tuple:
    """Of a shape that is always legal."""
    groups = named["groups"]
    return (None, groups, 64, None, 1, None, None, groups, 64, None), {}


def _by_reference(
    q,
    k,
    lse,
    index_q,
    index_k,
    index_weights,
    window_begin,
    window_end,
    weight,
    scale,
    query_weight,
    activation,
    groups,
    granularity,
    block_max,
):
    parts = []
    for a, b, c, d, e in zip(*(each.chunk(groups, 1) for each in (q, _of_groups(k, groups), lse, index_q, index_weights))):
        part = a, b, c, d, index_k, e, window_begin, window_end, weight, scale, query_weight
        parts.append(_reference.dense_loss(*part, activation, granularity, block_max))
    loss, losses, dq, dk, dweights = zip(*parts)
    losses = losses[0] if groups == 1 else torch.stack(losses, 1)
    return sum(loss), losses, torch.cat(dq, 1), torch.cat(dweights, 1), sum(dk)


def _of_groups(k, groups):
    """Key heads of each group."""
    return k if k.shape[1] % groups == 0 else k.repeat_interleave(groups // k.shape[1], 1)


def _rules(named) -> None:
    """What the spec's check says, of the eager reference's calls."""
    _heads_are_divided(named)
    loss_rules(named)
    groups, kv_heads = named["groups"], named["k"].shape[1]
    for name in ("q", "index_q"):
        if named[name].shape[1] % groups:
            raise ValueError(f"smelt: groups={groups} does not divide the {named[name].shape[1]} heads of {name}")
    if kv_heads % groups and groups % kv_heads:
        raise ValueError(f"smelt: groups={groups} neither divides the {kv_heads} heads of k nor is a multiple of them")
    if named["granularity"] > 1 and named["block_max"] > 1:
        raise ValueError("smelt: granularity and block_max are not legal together; one of them must be 1")


_loss = LibraryOperation(
    "indexer_dense_loss", spec=_spec, key={"q": 2, "k": 2, "index_q": 2}, reference=_by_reference, also=("losses",),
    asked=("index_dq", "index_dweights", "index_dk"), table=_table, sizes=of_groups, floats=True,
    kinds={"index_weights": WEIGHTS}, rules=_rules,
)  # fmt: skip
_loss.differentiable(
    ("index_q", "index_k", "index_weights"), 0, lambda _, made: ((made[2], made[4], made[3]), None),
    Scaling("indexer_dense_loss", ("dq", "dk", "dweights")).flow,
)  # fmt: skip


@overload
def indexer_dense_loss(
    q: Tensor, k: Tensor, lse: Tensor | None, index_q: Tensor, index_k: Tensor, index_weights: Tensor | None,
    window_begin: Tensor, window_end: Tensor, scale: float, *, weight: Tensor | None = None,
    query_weight: float | Tensor = 1.0, return_losses: Literal[False] = False, activation: Activation = "relu",
    groups: int = 1, granularity: int = 1, block_max: int = 1, deterministic: bool | None = None,
    dk_dtype: torch.dtype | None = None, workspace_limit: int = 0, causal_limit: int = 0, free_multiprocessors: int = 0,
    backend: Backend | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def indexer_dense_loss(
    q: Tensor, k: Tensor, lse: Tensor | None, index_q: Tensor, index_k: Tensor, index_weights: Tensor | None,
    window_begin: Tensor, window_end: Tensor, scale: float, *, weight: Tensor | None = None,
    query_weight: float | Tensor = 1.0, return_losses: bool, activation: Activation = "relu", groups: int = 1,
    granularity: int = 1, block_max: int = 1, deterministic: bool | None = None, dk_dtype: torch.dtype | None = None,
    workspace_limit: int = 0, causal_limit: int = 0, free_multiprocessors: int = 0, backend: Backend | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
def indexer_dense_loss(
    q: Tensor,
    k: Tensor,
    lse: Tensor | None,
    index_q: Tensor,
    index_k: Tensor,
    index_weights: Tensor | None,
    window_begin: Tensor,
    window_end: Tensor,
    scale: float,
    *,
    weight: Tensor | None = None,
    query_weight: float | Tensor = 1.0,
    return_losses: bool = False,
    activation: Activation = "relu",
    groups: int = 1,
    granularity: int = 1,
    block_max: int = 1,
    deterministic: bool | None = None,
    dk_dtype: torch.dtype | None = None,
    workspace_limit: int = 0,
    causal_limit: int = 0,
    free_multiprocessors: int = 0,
    backend: Backend | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Computes the indexer's loss against dense attention, with which its training begins, and its gradients in one pass.

    A query's loss is the Kullback-Leibler divergence of the softmax of the indexer's logits over its window from
    attention's probabilities there, summed over heads and normalised. It is differentiable in index_q, index_k and
    index_weights. The mean of tensor-parallel ranks' gradients, each of the loss for its own heads, is the gradient for
    all heads. A query with an empty window has the loss 0.

    Args:
        q: [T, H, dqk], bf16: attention's queries.
        k: [S, dqk], or [S, KV, dqk] where H / KV heads read each key head, bf16.
        lse: [T, H], fp32: attention's log-sum-exp, natural and without a sink; None: dense_lse computes it.
        index_q: [T, HI, DI], bf16: the indexer's queries.
        index_k: [S, DI], or [ceil(S / r), DI] with granularity=r, bf16.
        index_weights: [T, HI], fp32 or bf16; None means that every head has the weight 1.
        window_begin: [T] int32: the first key of each query's window.
        window_end: [T] int32: its last key plus one.
        scale: Attention's softmax scale.
        weight: [T], fp32: multiplies each query's loss. It has no gradient.
        query_weight: One number for all queries, such as 1 / T; a tensor may have any value without a new kernel or
            graph.
        return_losses: Also return each query's loss.
        activation: Of the indexer's products: "relu" or "none".
        groups: G groups of heads, each with a loss of its own: the indexer's heads g * HI / G to (g + 1) * HI / G - 1 learn
            from attention's of the same part. The loss is their sum, and return_losses gives [T, G].
        granularity: r keys of a pool, which is one of the indexer's keys: index_k is [ceil(S / r), DI]. A pool's target is
            the sum of its keys'; the loss is over the pools all of whose keys are in the window. A power of two to 128.
        block_max: r keys of a block, whose logit is the largest of its keys' in the window, and whose target is the sum of
            theirs; the loss is over blocks. Likewise; not with granularity above 1.
        deterministic: Whether index_k's gradient is summed in a fixed order; None follows
            torch.use_deterministic_algorithms.
        dk_dtype: Type in which index_k's gradient is computed, torch.bfloat16 (also if None) or torch.float32.
        workspace_limit: Bytes of workspace at most; 0: room for 528 queries at once.
        causal_limit: Above 0: window_end[t] <= t + causal_limit for each query.
        free_multiprocessors: Multiprocessors that the kernels leave to other streams.
        backend: What computes this call: "smelt", "torch" or "auto" as in set_backend; None means what set_backend set.

    Returns:
        The loss, a scalar of fp32; with return_losses a tuple of it and of the queries' losses, [T] or [T, groups] fp32,
        which are not differentiable.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a shape or a value is not legal.
        RuntimeError: the backend is "smelt" and there is no kernel for the configuration or the device.

    Example:
        >>> lse = smelt.dense_lse(q, kv, begin, end, scale)
        >>> loss = smelt.indexer_dense_loss(q, kv, lse, iq, ik, weights, begin, end, scale)
        >>> loss.backward()  # gradients of iq, ik and weights
    """
    if index_weights is None:
        index_weights = torch.ones(tensor(index_q, "index_q").shape[:2], device=index_q.device)
    if may_cast(q):
        _, q, k = as_kernels_read(backend, q, k)
    if may_cast(index_q):
        index_q, index_k, index_weights = scored_as_kernels_read(backend, index_q, index_k, index_weights)
    choose(activation, "activation", ACTIVATIONS)
    if lse is None:
        lse = dense_lse(q, k, window_begin, window_end, scale, backend=backend)
    groups, granularity = integer(groups, "groups"), power(granularity, "granularity")
    if groups < 1:
        raise ValueError(f"smelt: groups={groups} is not legal; legal: 1 and more")
    factor = factor_afterwards(query_weight)
    wanted = wants_gradients(
        tensor(index_q, "index_q"), tensor(index_k, "index_k"), tensor(index_weights, "index_weights")
    )
    loss, losses, *_ = _loss.call(
        q, _keys(k), lse, index_q, index_k, index_weights, window_begin, window_end, weight, number(scale, "scale"),
        query_weight if factor is None else 1.0, free_multiprocessors, integer(workspace_limit, "workspace_limit", 64),
        integer(causal_limit, "causal_limit", 64), activation, groups, granularity, power(block_max, "block_max"),
        deterministic, type_of_dk(dk_dtype), wanted, wanted, wanted, backend,
    )  # fmt: skip
    if factor is not None:
        loss, losses = loss * factor, losses * factor
    return (loss, losses) if return_losses else loss
