"""The indexer's eager reference: what its operators mean, in plain PyTorch. Slow, and anywhere."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ._reference import CHUNK_BYTES, in_its_own_types, valid_slots

NEVER = float("-inf")
E4M3_MAX = 448.0
SMALLEST_SCALE = 2.0**-126


def windows(cu_seqlens, cu_seqlens_padded, cu_seqlens_keys, causal_offset, query_indices, tokens, rows, ratio):
    """The operator indexer_windows."""
    device = cu_seqlens.device
    row = torch.arange(tokens, device=device) if query_indices is None else query_indices.long()
    place = cu_seqlens if cu_seqlens_padded is None else cu_seqlens_padded
    if place.shape[0] == 1:
        nothing = torch.zeros(tokens, dtype=torch.int32, device=device)
        return nothing, nothing.clone()
    place = place.long().clamp(min=0).cummax(0).values
    document = (torch.searchsorted(place, row, right=True) - 1).clamp(0, place.shape[0] - 2)
    first, behind = place[document], place[document + 1]
    length = behind - first
    if cu_seqlens_padded is not None:
        sizes = cu_seqlens.long()
        length = torch.minimum(length, (sizes[document + 1] - sizes[document]).clamp(min=0))
    position = row - first
    inside = (row >= first) & (row < behind) & (position < length)
    seen = position + 1
    if causal_offset is not None:
        seen = seen + causal_offset.long()[document]
    if cu_seqlens_keys is None:
        seen = torch.minimum(seen, length)
    keys = seen.clamp(min=0) // max(ratio, 1)
    if cu_seqlens_keys is not None:
        bounds = cu_seqlens_keys.long()
        first = bounds[document]
        keys = torch.minimum(keys, (bounds[document + 1] - first).clamp(min=0))
    begin, end = first.clamp(0, rows), (first + keys).clamp(0, rows)
    empty = ~inside | (end <= begin)
    return begin.masked_fill(empty, 0).int(), end.masked_fill(empty, 0).int()


def quantize(x, scale, groups=1):
    """The operator quantize: y, dequantized, scales [..., groups]."""
    wide = x.float().unflatten(-1, (groups, -1))
    largest = wide.nan_to_num(0.0, NEVER, NEVER).abs().amax(-1)
    # By a tensor: by a number, a GPU multiplies with its reciprocal.
    scales = (largest / torch.full_like(largest, E4M3_MAX)).clamp(min=SMALLEST_SCALE)
    if scale == "power_of_two":
        fraction, exponent = torch.frexp(scales)
        scales = torch.where(
            scales.isinf(), scales, torch.ldexp(torch.ones_like(scales), exponent - (fraction == 0.5).int())
        )
    scaled = (wide * (1 / scales).unsqueeze(-1)).clamp(-E4M3_MAX, E4M3_MAX)
    y = scaled.to(torch.float8_e4m3fn)
    dequantized = (y.float() * scales.unsqueeze(-1)).to(torch.bfloat16)
    return y.flatten(-2), dequantized.flatten(-2), scales


def inside(window_begin, window_end, rows):
    column = torch.arange(rows, device=window_begin.device)
    return (column >= window_begin.unsqueeze(-1)) & (column < window_end.unsqueeze(-1))


@in_its_own_types
def logits(
    q, k, weights, k_scale, window_begin, window_end, candidates=None, scale=0.0, activation="relu", groups=1, block_max=1,
    candidate_block=0,
):  # fmt: skip
    """The operator indexer_logits."""
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    tokens, heads, rows = q.shape[0], q.shape[1], k.shape[0]
    total = torch.zeros((tokens, groups, rows), dtype=wide, device=q.device)
    keys = k.to(wide).T
    for head in range(heads):
        products = _activated(q[:, head].to(wide) @ keys, activation)
        total[:, head * groups // heads] += products * (scale or 1.0 if weights is None else weights[:, head, None])
    if k_scale is not None:
        total *= k_scale
    total = total.masked_fill(total.isnan(), NEVER) + 0.0
    total = total.masked_fill(~inside(window_begin, window_end, rows).unsqueeze(1), NEVER)
    if block_max > 1:
        total = largest(total, block_max)
    if candidates is not None:
        rows = total.shape[-1]  # of blocks
        listed = keys_of(candidates, candidate_block // block_max)
        is_key = ((listed >= 0) & (listed < rows)).unsqueeze(1)
        total = torch.nn.functional.pad(total, (0, 1), value=NEVER)  # where no key is
        total = total.gather(2, torch.where(is_key, listed.unsqueeze(1), rows).expand(-1, groups, -1))
    return total if groups > 1 else total.squeeze(1)


def largest(scores, block):
    """The largest of each `block` of the last dimension, of which the last block may be cut off."""
    columns = scores.shape[-1]
    return torch.nn.functional.pad(scores, (0, -columns % block), value=NEVER).unflatten(-1, (-1, block)).amax(-1)


def keys_of(candidates, block):
    """The keys of listed blocks, or blocks of keys, [T, C * block]; of a negative number they are negative."""
    return (candidates.long().unsqueeze(-1) * block + torch.arange(block, device=candidates.device)).flatten(1)


def clean_(logits, window_begin, window_end):
    """The operator indexer_clean."""
    logits.masked_fill_(~inside(window_begin, window_end, logits.shape[1]), NEVER)
    return ()


def select(
    logits, topk, window_begin, window_end, offset, limit, index_offset, order, groups=1, pinned=0, expand=1, tail=False,
    width=0, keys=None, block=1, candidates=None, candidate_block=0,
):  # fmt: skip
    """The operator topk_select. indexer_topk's: of entries of `block` of the `keys` each, in which windows count; with
    candidates logits are of their keys."""
    scores = logits if groups > 1 else logits.unsqueeze(1)
    scores = torch.nn.functional.pad(scores, (0, 1), value=NEVER)  # an element that no window has
    scores = scores.masked_fill(scores.isnan(), NEVER) + 0.0  # -0 counts as 0
    tokens, _, columns = scores.shape
    device = scores.device
    keys = columns - 1 if keys is None else keys
    begin = torch.zeros(tokens, dtype=torch.int64, device=device) if window_begin is None else window_begin.long()
    end = torch.full_like(begin, keys) if window_end is None else window_end.long()
    begin, end = begin.clamp(0, keys).unsqueeze(-1), end.clamp(0, keys).unsqueeze(-1)
    low, high = begin // block, torch.where(end > begin, -(-end // block), begin // block)
    entry = torch.arange(columns, device=device).expand(tokens, -1)
    if candidates is not None:
        entry = torch.nn.functional.pad(keys_of(candidates, candidate_block // block), (0, 1), value=-1)
    legal = (entry >= low) & (entry < high)
    legal[:, -1] = False
    kind = torch.where(legal, torch.where(entry >= high - pinned, 0, 1), 2).unsqueeze(1).expand_as(scores)
    # Pinned entries come first and those outside last, whatever their scores: two stable sorts.
    by_score = torch.sort(scores, dim=-1, descending=True, stable=True).indices
    by_kind = torch.sort(kind.gather(2, by_score), dim=-1, stable=True).indices
    chosen = by_score.gather(2, by_kind)[..., :topk]
    chosen = torch.nn.functional.pad(chosen, (0, topk - chosen.shape[2]), value=columns - 1)
    lengths = legal.sum(-1, keepdim=True).clamp(max=topk)
    missing = (torch.arange(topk, device=device) >= lengths).unsqueeze(1).expand_as(chosen)
    chosen = chosen.masked_fill(missing, columns - 1)
    if order == "index":
        chosen = torch.sort(chosen, dim=-1).values
    values = scores.gather(2, chosen).float().masked_fill(missing, NEVER)
    indices = entry.unsqueeze(1).expand_as(scores).gather(2, chosen).masked_fill(missing, -1)
    lengths = lengths.expand(-1, scores.shape[1])
    if expand > 1:
        rows = -(-keys * expand // block)
        most = rows + (expand - 1 if block == 1 else 0)
        limit = torch.full_like(begin, rows) if limit is None else limit.long().clamp(0, most).unsqueeze(-1)
        first = -(-end // block) * expand if tail else None
        indices, lengths = _expanded(indices, lengths, limit, first, expand, width)
    added = index_offset + (0 if offset is None else offset.long()[:, None, None])
    wrapped = (indices + added + 2**31) % 2**32 - 2**31
    made = wrapped.masked_fill(indices < 0, -1).int(), values, lengths.int()
    return made if groups > 1 else tuple(each.squeeze(1) for each in made)


def _expanded(entries, lengths, limit, first, expand, width):
    """Lists of rows [T, G, width], and how many they have, of entries [T, G, topk] that are -1 from lengths [T, G] on; limit
    [T, 1]. first: of the tail, [T, 1]; None: there is none."""
    step = torch.arange(expand, device=entries.device)
    rows = (entries.unsqueeze(-1) * expand + step).flatten(2)
    rows = rows.masked_fill((rows < 0) | (rows >= limit.unsqueeze(1)), -1)
    rows = torch.nn.functional.pad(rows, (0, width - rows.shape[2]), value=-1)
    if first is not None:
        tail = torch.maximum(limit // expand * expand, first) + step[:-1]  # [T, expand - 1]
        tail = tail.masked_fill(tail >= limit, -1).unsqueeze(1).expand(-1, rows.shape[1], -1)
        rows = rows.scatter(2, lengths.unsqueeze(-1) * expand + step[:-1], tail)
    return rows, (rows >= 0).sum(-1)


def _activated(products, activation):
    return products.relu() if activation == "relu" else products


def _selected(q, k, indices, topk_length):
    """By chunks of queries: where they are, the keys that their slots name (zeros where masked), which slots
    count, and q . k [t, H, width]."""
    wide = torch.promote_types(q.dtype, torch.float32)
    valid = valid_slots(indices, k.shape[0], topk_length)
    keys = torch.cat([k, k.new_zeros((1, k.shape[1]))]).to(wide)
    slots = torch.where(valid, indices.long(), k.shape[0])
    step = max(1, CHUNK_BYTES // max(1, indices.shape[1] * k.shape[1] * keys.element_size()))
    for begin in range(0, max(1, q.shape[0]), step):
        part = slice(begin, begin + step)
        chosen = keys[slots[part]]
        products = torch.einsum("thd,twd->thw", q[part].to(wide), chosen)
        yield part, slots[part], chosen, valid[part], products


def _below(indices, limit):
    return indices if limit is None else indices.masked_fill(indices >= limit.unsqueeze(1), -1)


@in_its_own_types
def scores(q, k, weights, indices, topk_length, limit=None, activation="relu"):
    """The operator indexer_scores."""
    parts = []
    for part, _, _, valid, products in _selected(q, k, _below(indices, limit), topk_length):
        logits = (_activated(products, activation) * weights[part].to(products.dtype).unsqueeze(-1)).sum(1)
        parts.append(logits.masked_fill(~valid, NEVER))
    return torch.cat(parts)


@in_its_own_types
def scores_backward(grad, q, k, weights, indices, topk_length, limit=None, activation="relu"):
    """The operator indexer_bwd: dq, dk and dweights."""
    dqs, dweights, dk = [], [], None
    for part, slots, chosen, valid, products in _selected(q, k, _below(indices, limit), topk_length):
        shares = torch.where(valid, grad[part].to(products.dtype), 0.0).unsqueeze(1)
        weighted = shares * weights[part].to(products.dtype).unsqueeze(-1)
        weighted = weighted * (products > 0) if activation == "relu" else weighted.expand_as(products)
        dqs.append(torch.einsum("thw,twd->thd", weighted, chosen))
        dweights.append((shares * _activated(products, activation)).sum(-1))
        by_slot = torch.einsum("thw,thd->twd", weighted, q[part].to(products.dtype))
        if dk is None:
            dk = by_slot.new_zeros((k.shape[0] + 1, k.shape[1]))
        dk.index_add_(0, slots.flatten(), by_slot.flatten(0, 1))
    return torch.cat(dqs), dk[:-1], torch.cat(dweights)


def loss(logits, target, indices, topk_length, weight, rows, query_weight):
    """The operator indexer_loss: the loss, the queries', and the gradient by the logits."""
    wide = torch.float64 if logits.dtype is torch.float64 else torch.float32
    info = torch.finfo(torch.float32)
    valid = valid_slots(indices, rows, topk_length)
    logits = logits.to(wide).nan_to_num(NEVER, info.max, NEVER).masked_fill(~valid, NEVER)
    target = torch.where(valid & (target > 0), target, torch.zeros_like(target)).to(wide)
    total = target.sum(-1, keepdim=True)
    factor = torch.full(logits.shape[:-1], query_weight, device=logits.device)
    factor = factor if weight is None else factor * weight
    counts = (total >= info.tiny) & (total <= info.max) & factor.isfinite().unsqueeze(-1)
    factor = torch.where(counts.squeeze(-1), factor, torch.zeros_like(factor)).to(wide)
    p = torch.where(counts, target / total, torch.zeros_like(target))
    log_q = logits.log_softmax(-1)
    log_q = log_q.masked_fill(log_q.isnan(), NEVER)  # all of the row is -inf
    terms = torch.where(p > 0, p * (p.log() - log_q), torch.zeros_like(p))
    losses = torch.where(factor == 0, torch.zeros_like(factor), factor * terms.sum(-1))
    return losses.sum(), losses, factor.unsqueeze(-1) * (log_q.exp() - p)


# ---- dense attention --------------------------------------------------------------------------------


def _dense_parts(q, k, window_begin, window_end, scale):
    """By chunks of queries: where they are, attention's scores [t, H, S], and which keys are in their windows."""
    wide = torch.promote_types(q.dtype, torch.float32)
    keys = k.to(wide).repeat_interleave(q.shape[1] // k.shape[1], 1)
    step = max(1, CHUNK_BYTES // max(1, q.shape[1] * k.shape[0] * keys.element_size()))
    for begin in range(0, max(1, q.shape[0]), step):
        part = slice(begin, begin + step)
        scores = torch.einsum("thd,shd->ths", q[part].to(wide), keys) * scale
        yield part, scores, inside(window_begin[part], window_end[part], k.shape[0])


@in_its_own_types
def dense_lse(q, k, window_begin, window_end, scale):
    """The operator dense_lse."""
    parts = []
    for _, scores, within in _dense_parts(q, k, window_begin, window_end, scale):
        parts.append(scores.masked_fill(~within.unsqueeze(1), NEVER).logsumexp(-1))
    return torch.cat(parts)


def _pooled_windows(window_begin, window_end, rows, size):
    """Windows of the pools all of whose keys a window has."""
    begin, end = window_begin.clamp(0, rows), window_end.clamp(0, rows)
    return ((begin + size - 1) // size).to(torch.int32), (end // size).to(torch.int32)


def _largest_of_blocks(marks, target, within, size):
    """Logits and targets of blocks of keys, each in the place of the lowest key with the block's largest logit: with the
    keys that have one."""
    rows = marks.shape[1]
    padded = -(-rows // size) * size
    shown = marks.nan_to_num(float("-inf"), torch.finfo(marks.dtype).max, float("-inf"))
    key = torch.arange(padded, device=marks.device).view(1, -1, size)
    inside = F.pad(within, (0, padded - rows)).unflatten(1, (-1, size))
    shown = F.pad(shown, (0, padded - rows), value=float("-inf")).unflatten(1, (-1, size))
    best = shown.masked_fill(~inside, float("-inf")).amax(-1, keepdim=True)
    first = torch.where(inside & (shown == best), key, padded).amin(-1)
    sums = F.pad(target.masked_fill(~within, 0), (0, padded - rows)).unflatten(1, (-1, size)).sum(-1)
    chosen = within.new_zeros(target.shape[0], padded + 1)
    chosen.scatter_(1, first, True)
    targets = target.new_zeros(target.shape[0], padded + 1).scatter_(1, first, sums)
    return targets[:, :rows], chosen[:, :rows]


@in_its_own_types
def dense_loss(
    q, k, lse, index_q, index_k, index_weights, window_begin, window_end, weight, scale, query_weight,
    activation="relu", granularity=1, block_max=1,
):  # fmt: skip
    """The operator indexer_dense_loss: the loss, the queries', dq, dk and dweights of the indexer's."""
    wide = torch.promote_types(index_q.dtype, torch.float32)
    rows, keys = k.shape[0], index_k.to(wide)
    begins, ends = window_begin, window_end
    if granularity > 1:
        begins, ends = _pooled_windows(window_begin, window_end, rows, granularity)
    column = torch.arange(keys.shape[0], dtype=torch.int32, device=q.device)
    losses, dqs, dweights, dk = [], [], [], torch.zeros_like(keys)
    for part, scores, within in _dense_parts(q, k, window_begin, window_end, scale):
        target = (scores - lse[part].unsqueeze(-1)).exp().sum(1)
        queries, factors = index_q[part].to(wide), index_weights[part].to(wide)
        windows = begins[part], ends[part]
        marks = logits(index_q[part], index_k, index_weights[part], None, *windows, activation=activation)
        if granularity > 1:
            target = F.pad(target, (0, -rows % granularity)).unflatten(1, (-1, granularity)).sum(-1)
            within = (column >= windows[0].unsqueeze(1)) & (column < windows[1].unsqueeze(1))
        if block_max > 1:
            target, within = _largest_of_blocks(marks, target, within, block_max)
        slots = torch.where(within, column, -1)
        own = None if weight is None else weight[part]
        _, each, grad = loss(marks, target, slots, None, own, keys.shape[0], query_weight)
        products = torch.einsum("thd,sd->ths", queries, keys)
        shares = torch.where(within, grad, torch.zeros_like(grad)).to(wide).unsqueeze(1)
        weighted = shares * factors.unsqueeze(-1)
        weighted = weighted * (products > 0) if activation == "relu" else weighted
        losses.append(each)
        dqs.append(torch.einsum("ths,sd->thd", weighted, keys))
        dweights.append((shares * _activated(products, activation)).sum(-1))
        dk += torch.einsum("ths,thd->sd", weighted, queries)
    losses = torch.cat(losses)
    return losses.sum(), losses, torch.cat(dqs), dk, torch.cat(dweights)
