"""The eager reference: what the operators mean, in plain PyTorch, differentiable by autograd.

It runs anywhere and in any floating type, computes in fp32 (fp64 of fp64), and is slow: every query's
rows are gathered.

Attention over a shared table of rows is grouped attention with one KV head, whose values are the first columns of its keys.
"""

from __future__ import annotations

import functools

import torch
from torch.utils.checkpoint import checkpoint

CHUNK_BYTES = 1 << 28  # of gathered rows
VALUE_WIDTHS = (64, 128, 256, 512)  # models' dv, from which value_width chooses


def value_width(dqk: int) -> int:
    """The default of dv: dqk, or dqk less the 64 columns of a rotary position."""
    if dqk in VALUE_WIDTHS:
        return dqk
    if dqk - 64 in VALUE_WIDTHS:
        return dqk - 64
    raise ValueError(f"smelt: dv must be given for rows of {dqk} columns")


def in_its_own_types(function):
    """Autocast is the caller's: here products are in the types that are named. The first argument is a tensor."""

    @functools.wraps(function)
    def run(*given, **named):
        first = given[0] if given else next(iter(named.values()))
        with torch.autocast(first.device.type, enabled=False):
            return function(*given, **named)

    return run


def valid_slots(indices, rows, topk_length=None, topk=None):
    """The slots that name a row, of which the first `topk` count: bool, of the shape of `indices`."""
    valid = (indices >= 0) & (indices < rows)
    if topk_length is not None:
        slots = torch.arange(indices.shape[-1], device=indices.device)
        valid = valid & (slots < topk_length.unsqueeze(-1))
    if topk and topk < indices.shape[-1]:
        valid = valid & (valid.cumsum(-1) <= topk)
    return valid


def block_rows(indices, granularity, rows, topk_length=None, limit=None):
    """The rows that entries of granularity rows name, [..., G, width * granularity], and which of them count."""
    entries = valid_slots(indices, -(-rows // granularity), topk_length)
    within = torch.arange(granularity, device=indices.device)
    named = (indices.long().unsqueeze(-1) * granularity + within).flatten(-2)
    end = rows if limit is None else limit.clamp(0, rows).long()[..., None, None]
    return named, entries.repeat_interleave(granularity, -1) & (named < end)


# ---- grouped attention -------------------------------------------------------------------------------
# q [B, T, Hq, D], k [B, S, Hkv, D], v [B, S, Hkv, Dv]; a query's lists of rows and which of their slots count, both [B, T, G, W].


def _chunks(q, width, *tables):
    """The type of the computation; the tables in it, with a row of zeros after the last one; slices of queries whose gathered
    rows fit in CHUNK_BYTES."""
    kind = torch.promote_types(q.dtype, torch.float32)
    tables = [torch.cat([each, each.new_zeros((each.shape[0], 1, *each.shape[2:]))], 1).to(kind) for each in tables]
    columns = sum(each.shape[-1] for each in tables)
    step = max(1, CHUNK_BYTES // max(1, q.shape[0] * width * columns * kind.itemsize))
    return kind, tables, [slice(begin, begin + step) for begin in range(0, max(1, q.shape[1]), step)]


def _of_heads(heads, k, rows, valid):
    """For each KV head: its number, its query heads, its list's number, which slots count, and the slots' rows of k; masked
    slots have the last row."""
    kv_heads, last = k.shape[2], k.shape[1] - 1
    batch = torch.arange(k.shape[0], device=k.device)[:, None, None]
    for head in range(kv_heads):
        of = min(head, rows.shape[2] - 1)
        counts = valid[:, :, of]
        group = slice(head * heads // kv_heads, (head + 1) * heads // kv_heads)
        yield head, group, of, counts, (batch, torch.where(counts, rows[:, :, of], last), head)


def _probabilities(q, keys, valid, sink, scale):
    """The probabilities of the slots and of the sink (0 without one); the slots' log-sum-exp and largest score."""
    scores = torch.einsum("bthd,btwd->bthw", q, keys) * scale
    scores = scores.masked_fill(~valid.unsqueeze(2), float("-inf"))
    highest = (
        scores.detach().amax(-1, keepdim=True)
        if scores.shape[-1]
        else scores.new_full((*scores.shape[:-1], 1), float("-inf"))
    )
    shift = torch.where(highest == float("-inf"), torch.zeros_like(highest), highest)
    weights = torch.exp(scores - shift)
    total = weights.sum(-1, keepdim=True)
    empty = total == 0
    whole = total.masked_fill(empty, 1.0)
    lse, p = shift + torch.log(whole), weights / whole
    of_sink = torch.zeros_like(total)
    if sink is not None:  # from the difference, so that a large sink gives no NaN
        above_sink = lse - sink[:, None]
        of_sink = torch.sigmoid(-above_sink).masked_fill(empty, 0.0)
        p = p * torch.sigmoid(above_sink).masked_fill(empty, 0.0)
    return p, of_sink, lse.detach().masked_fill(empty, float("-inf")).squeeze(-1), highest.squeeze(-1)


def _attend(q, k, v, rows, valid, sink, scale):
    """Of [B, t] queries: out, lse and max_logits."""
    parts = []
    for _, group, _, counts, named in _of_heads(q.shape[2], k, rows, valid):
        own = None if sink is None else sink[group]
        p, _, lse, highest = _probabilities(q[:, :, group], k[named], counts, own, scale)
        parts.append((torch.einsum("bthw,btwd->bthd", p, v[named]), lse, highest))
    return tuple(torch.cat(each, 2) for each in zip(*parts))


def _attention(q, k, v, rows, valid, scale, sink):
    if q.dim() == 3:  # without batches
        lead = (each.unsqueeze(0) for each in (q, k, v, rows, valid))
        return tuple(each.squeeze(0) for each in _attention(*lead, scale, sink))
    kind, tables, slices = _chunks(q, rows.shape[-1], k, v)
    again = torch.is_grad_enabled() and len(slices) > 1
    run = functools.partial(checkpoint, _attend, use_reentrant=False) if again else _attend
    wide = None if sink is None else sink.to(kind)
    parts = [run(q[:, part].to(kind), *tables, rows[:, part], valid[:, part], wide, scale) for part in slices]
    out, lse, highest = (torch.cat(each, 1) for each in zip(*parts))
    return out.to(q.dtype), lse.float().detach(), highest.float().detach()


def _gradients(grad_out, q, k, v, rows, valid, scale, sink):
    """dq, dk, dv and dsink (None without a sink), not rounded, in fp32 or fp64. Without autograd, which does not work in a
    custom operator's kernel."""
    if q.dim() == 3:
        lead = (each.unsqueeze(0) for each in (grad_out, q, k, v, rows, valid))
        *made, dsink = _gradients(*lead, scale, sink)
        return *(each.squeeze(0) for each in made), dsink
    kind, (keys, values), slices = _chunks(q, rows.shape[-1], k, v)
    dq, dk, dv = torch.zeros(q.shape, dtype=kind, device=q.device), torch.zeros_like(keys), torch.zeros_like(values)
    dsink = None if sink is None else torch.zeros_like(sink, dtype=kind)
    for part in slices:
        queries, grads = q[:, part].to(kind), grad_out[:, part].to(kind)
        for head, group, _, counts, named in _of_heads(q.shape[2], keys, rows[:, part], valid[:, part]):
            query, grad, key = queries[:, :, group], grads[:, :, group], keys[named]
            own = None if sink is None else sink[group].to(kind)
            p, of_sink, _, _ = _probabilities(query, key, counts, own, scale)
            dp = torch.einsum("bthd,btwd->bthw", grad, values[named])
            delta = (p * dp).sum(-1, keepdim=True)
            ds = p * (dp - delta) * scale
            dq[:, part, group] = torch.einsum("bthw,btwd->bthd", ds, key)
            dk[:, :, head].index_put_(named[:2], torch.einsum("bthw,bthd->btwd", ds, query), accumulate=True)
            dv[:, :, head].index_put_(named[:2], torch.einsum("bthw,bthd->btwd", p, grad), accumulate=True)
            if sink is not None:
                dsink[group] -= (of_sink * delta).sum((0, 1, 3))
    return dq, dk[:, :-1], dv[:, :-1], dsink


def _sums(q, k, lse, rows, valid, scale, sink):
    """The slots' probabilities, summed over a list's heads: [.., T, G, W], in fp32 or fp64."""
    if q.dim() == 3:
        lead = (each.unsqueeze(0) for each in (q, k, lse, rows, valid))
        return _sums(*lead, scale, sink).squeeze(0)
    kind, (keys,), slices = _chunks(q, rows.shape[-1], k)
    total = lse.to(kind) if sink is None else torch.logaddexp(lse.to(kind), sink.to(kind))
    target = torch.zeros(rows.shape, dtype=kind, device=q.device)
    for part in slices:
        for _, group, of, counts, named in _of_heads(q.shape[2], keys, rows[:, part], valid[:, part]):
            scores = torch.einsum("bthd,btwd->bthw", q[:, part, group].to(kind), keys[named]) * scale
            shares = torch.exp(scores - total[:, part, group].unsqueeze(-1)).sum(2)
            target[:, part, of] += shares.masked_fill(~counts, 0.0)
    return target


# ---- the operators -----------------------------------------------------------------------------------


def _as_grouped(kv, dv, indices, topk_length, topk):
    """k, v, rows and valid."""
    keys, valid = kv.unsqueeze(-2), valid_slots(indices, kv.shape[-2], topk_length, topk)
    return keys, keys[..., :dv], indices.long().unsqueeze(-2), valid.unsqueeze(-2)


@in_its_own_types
def sparse_attention(q, kv, indices, scale, dv=0, topk_length=None, sink=None, topk=0):
    """out, lse and max_logits of q [.., T, H, D], kv [.., S, D], indices [.., T, W]."""
    lists = _as_grouped(kv, dv or value_width(q.shape[-1]), indices, topk_length, topk)
    return _attention(q, *lists, scale, sink)


@in_its_own_types
def sparse_attention_backward(grad_out, q, kv, indices, scale, topk_length=None, sink=None, topk=0):
    """dq, dkv and dsink."""
    lists = _as_grouped(kv, grad_out.shape[-1], indices, topk_length, topk)
    dq, dk, dv, dsink = _gradients(grad_out, q, *lists, scale, sink)
    dk[..., : dv.shape[-1]] += dv
    return dq, dk.squeeze(-2), dsink


@in_its_own_types
def sparse_scores(q, kv, indices, lse, scale, topk_length=None, sink=None):
    """Probabilities at the slots, summed over heads; shapes as sparse_attention's."""
    keys, _, *lists = _as_grouped(kv, 0, indices, topk_length, 0)
    return _sums(q, keys, lse, *lists, scale, sink).squeeze(-2)


@in_its_own_types
def sparse_gqa(q, k, v, indices, scale, granularity, topk_length=None, limit=None, sink=None):
    """out and lse of q [.., T, Hq, D], k [.., S, Hkv, D], v [.., S, Hkv, Dv], indices [.., T, G, W]."""
    lists = block_rows(indices, granularity, k.shape[-3], topk_length, limit)
    return _attention(q, k, v, *lists, scale, sink)[:2]


@in_its_own_types
def sparse_gqa_backward(grad_out, q, k, v, indices, scale, granularity, topk_length=None, limit=None, sink=None):
    """dq, dk, dv and dsink."""
    lists = block_rows(indices, granularity, k.shape[-3], topk_length, limit)
    return _gradients(grad_out, q, k, v, *lists, scale, sink)


@in_its_own_types
def sparse_gqa_scores(q, k, lse, indices, scale, granularity, topk_length=None, limit=None, sink=None):
    """Probabilities at the entries, summed over a list's heads and an entry's rows; shapes as sparse_gqa's."""
    lists = block_rows(indices, granularity, k.shape[-3], topk_length, limit)
    return _sums(q, k, lse, *lists, scale, sink).unflatten(-1, (-1, granularity)).sum(-1)
