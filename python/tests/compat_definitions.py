"""Definitions of the originals of smelt.compat in plain PyTorch and double precision, independent of smelt.
compat_cases.py names the definition and the source of each drop-in's original."""

import math

import torch

NEVER = float("-inf")
LOG2E = math.log2(math.e)


def gathered(rows, lists):
    """rows [S, D] at lists [T, W]; invalid slots, which are masked, name the last row."""
    return rows[lists.long().clamp(0, rows.shape[0] - 1)]


def valid_slots(lists, rows, length=None):
    valid = (lists >= 0) & (lists < rows)
    if length is not None:
        valid = valid & (torch.arange(lists.shape[1], device=lists.device) < length[:, None])
    return valid


def attention(q, kv, lists, scale, dv, sink=None, length=None):
    """out [T, H, dv], lse [T, H] natural and without the sink, largest score [T, H]; of q [T, H, D], kv [S, D], whose
    first dv columns are the values, lists [T, W]. A query without a slot: 0, -inf, -inf."""
    q, kv = q.double(), kv.double()
    valid = valid_slots(lists, kv.shape[0], length)[:, None]
    keys = gathered(kv, lists)
    scores = (scale * torch.einsum("thd,twd->thw", q, keys)).masked_fill(~valid, NEVER)
    lse = scores.logsumexp(-1)
    whole = lse if sink is None else torch.logaddexp(lse, sink.double().expand_as(lse))
    shares = torch.exp(scores - whole.masked_fill(whole == NEVER, 0.0)[..., None])
    out = torch.einsum("thw,twd->thd", shares.masked_fill(~valid, 0.0), keys[..., :dv])
    return out, lse.detach(), scores.detach().amax(-1)


def probabilities(q, kv, lists, lse, scale, length=None):
    """Attention's probabilities at the slots, summed over heads; lse natural, +inf: the head does not contribute."""
    valid = valid_slots(lists, kv.shape[0], length)[:, None]
    scores = scale * torch.einsum("thd,twd->thw", q.double(), gathered(kv.double(), lists))
    lse = lse.double().nan_to_num(neginf=math.inf)[..., None]
    return torch.exp(scores - lse).masked_fill(~valid, 0.0).sum(1)


def index_logits(q, k, weights, relu=True):
    """[T, S]: sum over heads of weights * relu(q . k); q [T, H, D], k [S, D], weights [T, H]."""
    products = torch.einsum("thd,sd->ths", q.double(), k.double())
    products = products.relu() if relu else products
    return (products * weights.double()[..., None]).sum(1)


def windowed(logits, begin, end):
    column = torch.arange(logits.shape[1], device=logits.device)
    return logits.masked_fill((column < begin[:, None]) | (column >= end[:, None]), NEVER)


def at_slots(logits, lists, length=None):
    """logits [T, S] at lists [T, W], -inf where a slot names nothing."""
    valid = valid_slots(lists, logits.shape[1], length)
    taken = logits.gather(1, lists.long().clamp(0, logits.shape[1] - 1))
    return taken.masked_fill(~valid, NEVER)


def best(logits, count, ascending):
    """Indices of each row's largest logits above -inf, then -1, and these logits, then -inf; in the order of indices or
    by descending logit. Ties go to the lowest index."""
    rows, columns = logits.shape
    indices, values = torch.full((rows, count), -1), torch.full((rows, count), NEVER).double()
    for row in range(rows):
        order = torch.sort(logits[row].detach(), descending=True, stable=True).indices
        order = order[: min(count, int((logits[row] > NEVER).sum()))]
        order = order.sort().values if ascending else order
        indices[row, : len(order)] = order
        values[row, : len(order)] = logits[row].detach()[order]
    return indices, values


def causal_ends(tokens, rows, offset, ratio):
    """The number of keys that each query of a document sees, with one key per `ratio` tokens."""
    return ((torch.arange(1, tokens + 1) + offset) // ratio).clamp(0, rows)


def softmax(logits):
    """0 in rows that see nothing."""
    return logits.double().softmax(-1).nan_to_num(0.0)


def e4m3_rows(x):
    """Rows as e4m3, by vLLM's per_token_group_quant_fp8 with use_ue8m0: values and scales, doubles."""
    largest = x.float().abs().amax(-1).clamp(min=1e-10)
    scales = torch.exp2(torch.ceil(torch.log2(largest / 448.0)))
    values = (x.float() / scales[..., None]).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
    return values.double(), scales.double()


def divergence_gradient(target, log_predict, seen):
    """The gradient with respect to the logits of torch's kl_div with log_target, where log-probabilities below -100 are
    clipped and have no gradient."""
    target = target.double().masked_fill(~(seen & (log_predict >= -100.0)), 0.0)
    predict = log_predict.double().exp().masked_fill(~seen, 0.0)
    return predict * target.sum(-1, keepdim=True) - target


def gradients(made, leaves, grads):
    """Gradients with respect to the leaves for a result's gradient `grads`; infinite elements of the result have
    none."""
    finite = made.isfinite()
    return torch.autograd.grad(made.where(finite, 0.0), leaves, grads.double() * finite)


def doubles(*tensors):
    return [tensor.detach().double().requires_grad_() for tensor in tensors]
