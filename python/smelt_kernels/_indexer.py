"""The lightning indexer's windows and logits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from . import _indexer_reference as _reference
from ._checks import ACTIVATIONS, Activation, Backend, are_ints, choose, number, power, whole
from ._indexer_gradients import WEIGHTS, scored_as_kernels_read
from ._library import LibraryOperation, of_groups, spec_text
from ._operation import may_cast

CHUNK_BYTES = 128 << 20  # of logits that exist at a time in a call in chunks of queries


# ---- windows ----------------------------------------------------------------------------------------


_windows = LibraryOperation("indexer_windows", key={"cu_seqlens": 0}, reference=_reference.windows)


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


SCORED = dict.fromkeys(("q", "k"), (torch.bfloat16, torch.float8_e4m3fn)) | {"weights": WEIGHTS}  # legal types


def scored_rules(named) -> None:
    q, k, k_scale = named["q"], named["k"], named["k_scale"]
    if k.dtype is not q.dtype:
        raise TypeError(f"smelt: k must be {q.dtype} as q is, not {k.dtype}")
    if (k_scale is None) == (q.dtype is torch.float8_e4m3fn):
        raise ValueError("smelt: k_scale goes with torch.float8_e4m3fn, and with nothing else")
    if q.shape[1] % named["groups"]:
        raise ValueError(f"smelt: groups = {named['groups']} does not divide the {q.shape[1]} heads of q")
    if named["weights"] is not None and named["scale"] not in (0, 1):
        raise ValueError("smelt: scale goes with weights=None: fold it into weights")


def scored_table(named) -> tuple:
    """Of a shape that is always legal."""
    return (torch.bfloat16, named["groups"], 64, True, None), {}


def _logits_spec(
    dtype, heads, dim, weights, weights_dtype, activation: str, groups: int, block_max: int, candidate_block: int
) -> str:
    return spec_text("indexer_logits", locals())


def head_scale(scale, weights) -> float:
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


def scoring(groups, block_max, candidates, candidate_block) -> tuple:
    """groups, block_max, candidate_block as the spec has them."""
    if candidate_block is None and candidates is None and are_ints(groups, block_max) and groups == block_max == 1:
        return _PLAIN_SCORING
    if (candidates is None) != (candidate_block is None):
        raise ValueError("smelt: candidates and candidate_block, the keys of a listed block, go together")
    listed = 0 if candidates is None else power(candidate_block, "candidate_block")
    return whole(groups, "groups"), power(block_max, "block_max"), listed


_logits = LibraryOperation(
    "indexer_logits", spec=_logits_spec, key={"q": 2}, reference=_reference.logits, kinds=SCORED, table=scored_table,
    sizes=of_groups, rules=scored_rules,
)  # fmt: skip


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
    options = scoring(groups, block_max, candidates, candidate_block)
    return _logits.call(*given, free_multiprocessors, head_scale(scale, weights), activation, *options, backend)[0]


_clean = LibraryOperation("indexer_clean", key={"logits": 0}, reference=_reference.clean_, written=("logits",))


def clean_logits_(
    logits: Tensor, window_begin: Tensor, window_end: Tensor, *, backend: Backend | None = None
) -> Tensor:
    """Writes -inf to the elements of a matrix outside the windows, in place.

    Args:
        logits: [T, S], fp32; written. It must not require a gradient, unless gradients are off (torch.no_grad).
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
