"""The drop-ins of the indexer and its training: see compat_cases.py."""

import math
import types

import compat_definitions as defined
import torch
from compat_cases import Case, cotangent, flat, ints, made, normal, stacked
from compat_cases_attention import B, BEYOND, H, KV, KV4, LENGTHS, LISTS, Q, Q4, S, SCALE, T
from compat_definitions import NEVER
from smelt_kernels.compat import cudnn, deep_gemm, megatron, miles, nemo, prime_rl, slime

IH, ID, IS, K = 3, 64, 6, 4  # heads, their width, keys, topk
IQ, IK, IW = normal(B, T, IH, ID), normal(B, IS, ID), normal(B, T, IH, dtype=torch.float32)
IK[1, 3] = IK[1, 2]  # keys with equal logits
SLOTS = torch.stack(
    [ints([0, -1, 3, 1], [5, 2, -1, -1], [-1] * 4, [4, 3, 2, 1]), ints([2, 0, 1, -1], *[[3, 5, 0, 1]] * 3)]
)
BEGIN, END = ints([0, 1, 4, 2], [3, 6, 4, 6])
OFFSETS = ints([1, 4])[0]
CU_Q, CU_K = ints([0, T, 2 * T])[0], ints([0, 4, 4 + IS])[0]  # two documents, of 4 and of 6 keys
PACKED_K = torch.cat([IK[0, :4], IK[1]])
PACKED = {"cu_seqlens_q": CU_Q, "cu_seqlens_k": CU_K}
SCALES = {
    "precision": "mxfp8", "q_scale": IW, "k_scale": IW, "cu_seqlens_q_scale_padded": CU_Q,
    "cu_seqlens_k_scale_padded": CU_K, "sf_vec_size": 16,
}  # fmt: skip
TILES = {"m_block_size": 64, "n_block_size": 64, "q_stage": 1, "kv_stage": 2, "max_seqlen_q": 99}
HEADS = {"qhead_per_kv_head": IH + 1}


def of_parts(g, q, k, *others):
    """For each batch or document: its queries, keys, parts of other tensors, the number of keys that each query sees,
    and the first query and key."""
    together = getattr(g, "cu_seqlens_q", None) is not None
    if together:
        firsts, keys = g.cu_seqlens_q.tolist(), g.cu_seqlens_k.tolist()
    else:
        firsts = [batch * q.shape[1] for batch in range(q.shape[0] + 1)]
        keys = [batch * k.shape[1] for batch in range(q.shape[0] + 1)]
        q, k, *others = flat(q, k, *others)
    k = k.squeeze(1) if k.dim() == 3 else k
    for part, (first, last) in enumerate(zip(firsts, firsts[1:])):
        mine, theirs = slice(first, last), slice(*keys[part : part + 2])
        offset = 0 if g.q_causal_offsets is None else int(g.q_causal_offsets[part])
        seen = defined.causal_ends(last - first, theirs.stop - theirs.start, offset, g.ratio)
        yield q[mine], k[theirs], [each[mine] for each in others], seen, (first, theirs.start)


def matrix(g, q, k, fill, rows_of, *others):
    """[.., T, S] fp64 of the parts' matrices, `fill` elsewhere."""
    together = g.cu_seqlens_q is not None
    width = k.shape[1]
    if together:
        width = int(g.cu_seqlens_k.diff().max()) if g.max_seqlen_k is None else g.max_seqlen_k
    whole = torch.full((q[..., 0, 0].numel(), width), fill, dtype=torch.float64)
    for mine, theirs, more, seen, (first, _) in of_parts(g, q, k, *others):
        values = defined.windowed(rows_of(mine, theirs, *more), torch.zeros_like(seen), seen)
        values = values.masked_fill(values == NEVER, fill)
        whole[first : first + len(mine), : len(theirs)] = values
    return whole if together else whole.view(*q.shape[:2], width)


def dense_logits(g, weights):
    """With fp8 scales q's are in the weights, unless these are fp32 and contain them already, and k's multiply the sum."""
    if g.precision.lower() == "fp8":
        if weights.dtype is torch.bfloat16:
            weights = g.sm_scale * weights.double() * g.q_scale
        k = torch.cat([g.k.double(), g.k_scale[..., None]], -1)
        return matrix(g, g.q, k, NEVER, lambda q, k, w: defined.index_logits(q, k[:, :-1], w) * k[:, -1], weights)
    return matrix(g, g.q, g.k, NEVER, lambda *each: g.sm_scale * defined.index_logits(*each), weights)


def indexer_forward(g):
    scores = dense_logits(g, g.w)
    return {"scores": scores} | ({"lse": scores.logsumexp(-1)} if g.return_lse else {})


def dense_predict(g):
    scores = dense_logits(g, g.weights)
    return {"out": scores, "denom": scores.logsumexp(-1)}


def dense_target(g):
    def shares(q, k, lse):
        lists = torch.arange(k.shape[0]).expand(q.shape[0], -1)
        return defined.probabilities(q, k, lists, lse, g.softmax_scale)

    out = matrix(g, g.q, g.k, 0.0, shares, g.lse)
    return {"out": out, "denom": out.sum(-1)}


def chosen_of_all(g):
    lead, indices, logits, sums = g.q.shape[:-2], [], [], []
    for q, k, (w,), seen, (_, first) in of_parts(g, g.q, g.k, g.w):
        scores = g.sm_scale * defined.index_logits(q, k, w)
        scores = defined.windowed(scores, torch.zeros_like(seen), seen)
        found, values = defined.best(scores, g.top_k, ascending=True)
        indices.append(found.where(found < 0, found + first) if g.topk_indices_global else found)
        logits.append(values)
        sums.append(scores.logsumexp(-1))
    indices, logits, sums = (torch.cat(each).unflatten(0, lead) for each in (indices, logits, sums))
    results = {"indices": indices, "logits": logits}
    if g.return_softmax is not False or g.softmax_out is not None:
        results["softmax"] = defined.softmax(logits)
    return results | ({"lse": sums} if g.return_lse or g.lse_out is not None else {})


def lists_of_all(lists, rows, are_global):
    """Lists of rows of all batches."""
    first = rows * torch.arange(lists.shape[0])[:, None, None]
    mine = torch.where((lists < 0) | (lists >= rows), -1, lists + first)
    return (lists if are_global else mine).flatten(0, 1)


def lengths(g):
    if g.topk_length is None:
        return torch.full((g.topk_indices[..., 0].numel(),), g.topk_indices.shape[-1])
    return g.topk_length.flatten()


def slot_logits(q, k, w, lists, length):
    return (defined.at_slots(defined.index_logits(q, k, w), lists, length),)


def sparse_predict(g):
    lists = lists_of_all(g.topk_indices, g.k_indexer.shape[1], g.topk_indices_global)
    given = flat(g.q_indexer, g.k_indexer, g.weights)
    (logits,) = slot_logits(*given, lists, lengths(g))
    return {"predict": defined.softmax(logits).view(g.topk_indices.shape)}


def sparse_target(g):
    lists = lists_of_all(g.topk_indices, g.k_attn.shape[1], g.topk_indices_global)
    q, k, lse = flat(g.q_attn, g.k_attn, g.lse)
    shares = defined.probabilities(q, k, lists, lse, g.softmax_scale, lengths(g))
    return {"target": normalised(shares).view(g.topk_indices.shape)}


def normalised(shares):
    whole = shares.sum(-1, keepdim=True)
    return torch.where(whole > 1e-10, shares / whole, 0.0)


def training_target(g):
    scale = g.q.shape[-1] ** -0.5 if g.softmax_scale is None else g.softmax_scale
    shares = defined.probabilities(g.q, g.kv, g.indices, g.lse, scale, g.topk_length)
    valid = defined.valid_slots(g.indices, g.kv.shape[0], g.topk_length)
    return {"target": normalised(shares), "indices": g.indices.masked_fill(~valid, -1)}


def logit_gradients(q, k, w, lists, grad):
    """dq, dk, dw of the logits at the slots."""
    doubles = defined.doubles(q, k, w)
    logits = defined.at_slots(defined.index_logits(*doubles), lists)
    return defined.gradients(logits, doubles, grad)


def sparse_training(g):
    queries = g.index_q.shape[:2].numel()
    factor = g.sm_scale * g.loss_coeff * float(g.grad_loss) / queries
    lists = lists_of_all(g.topk_indices, g.index_k.shape[1], g.topk_indices_global)
    q, k, w, target, predict = flat(g.index_q, g.index_k, g.weights, g.attn_score, g.index_score)
    seen = torch.ones_like(lists, dtype=torch.bool)
    grad = factor * defined.divergence_gradient(target, predict.double().log(), seen)
    dq, dk, dw = logit_gradients(q, k, w, lists, grad)
    likes = {"d_index_q": (dq, g.index_q), "d_weights": (dw, g.weights), "d_index_k": (dk, g.index_k)}
    return {name: made.view(like.shape) for name, (made, like) in likes.items()}


def dense_training(g):
    queries = g.index_lse.numel()
    factor = g.sm_scale * g.loss_coeff * float(g.grad_loss) / queries
    made = [[], [], []]
    others = (g.weights, g.attn_score, g.attn_l1norm, g.index_score, g.index_lse)
    for q, k, (w, target, norm, score, lse), seen, _ in of_parts(g, g.index_q, g.index_k, *others):
        count = k.shape[0]
        lists = torch.arange(count).expand(q.shape[0], -1)
        lists = lists.masked_fill(lists >= seen[:, None], -1)
        log_predict = (score.double() - lse.double()[:, None])[:, :count]
        target = (target.double() / (norm.double()[:, None] + 1e-10))[:, :count]
        grad = factor * defined.divergence_gradient(target, log_predict, lists >= 0)
        for parts, each in zip(made, logit_gradients(q, k, w, lists, grad)):
            parts.append(each)
    dq, dk, dw = (torch.cat(each) for each in made)
    likes = {"d_index_q": (dq, g.index_q), "d_weights": (dw, g.weights), "d_index_k": (dk, g.index_k)}
    return {name: made.view(like.shape) for name, (made, like) in likes.items()}


def port_logits(g):
    keys = g.kv.squeeze(1) if g.kv.dim() == 3 else g.kv
    logits = defined.index_logits(g.q, keys, g.weights, getattr(g, "use_relu", True))
    return {"logits": defined.windowed(logits, g.cu_seqlen_ks, g.cu_seqlen_ke)}


def port_gradients(g):
    keys = g.index_k.squeeze(1) if g.index_k.dim() == 3 else g.index_k
    weights = g.weights.squeeze(-1) if g.weights.dim() == 3 else g.weights
    doubles = defined.doubles(g.index_q, keys, weights)
    logits = defined.index_logits(*doubles, getattr(g, "use_relu", True))
    dq, dk, dw = defined.gradients(defined.at_slots(logits, g.topk_indices), doubles, g.grad_scores)
    return {"dq": dq, "dw": dw.view(g.weights.shape), "dk": dk.view(g.index_k.shape)}


def port_choice(g, narrow=False):
    """lighting_indexer: differentiable scores, and indices; `narrow`: at most as many slots as keys."""
    keys = g.index_k.squeeze(1) if g.index_k.dim() == 3 else g.index_k
    weights = g.weights.squeeze(-1) if g.weights.dim() == 3 else g.weights
    doubles = defined.doubles(g.index_q, keys, weights)
    logits = defined.index_logits(*doubles, getattr(g, "use_relu", True))
    logits = defined.windowed(logits, g.cu_seqlen_ks, g.cu_seqlen_ke)
    count = min(g.topk, keys.shape[0]) if narrow else g.topk
    given = getattr(g, "topk_indices", None)
    indices = defined.best(logits, count, ascending=False)[0] if given is None else given
    scores = defined.at_slots(logits, indices)
    grads = defined.gradients(scores, doubles, cotangent(scores))
    likes = ("index_q", g.index_q), ("index_k", g.index_k), ("weights", g.weights)
    grads = {f"grad_{name}": grad.view(like.shape) for (name, like), grad in zip(likes, grads)}
    return {"scores": scores.detach(), "indices": indices} | grads


def miles_choice(g):
    """The same for [T, B, ..], by batch; one key per compress_ratio tokens."""
    tokens, rows = g.index_q.shape[0], g.index_k.shape[0]
    begin, end = g.cu_seqlen_ks, g.cu_seqlen_ke
    if begin is None:
        end = defined.causal_ends(tokens, rows, 0, g.compress_ratio)
        begin = torch.zeros_like(end)
    parts = []
    for batch in range(g.index_q.shape[1]):
        given = None if g.topk_indices is None else g.topk_indices[batch]
        one = {"index_q": g.index_q[:, batch], "index_k": g.index_k[:, batch], "weights": g.weights[:, batch]}
        one |= {"cu_seqlen_ks": begin, "cu_seqlen_ke": end, "topk": g.topk, "topk_indices": given}
        parts.append((types.SimpleNamespace(**one), batch))
    doubles = defined.doubles(g.index_q, g.index_k, g.weights)
    indices, scores = [], []
    for one, batch in parts:
        indices.append(port_choice(one, narrow=True)["indices"])
        logits = defined.index_logits(*(each[:, batch] for each in doubles))
        logits = defined.windowed(logits, one.cu_seqlen_ks, one.cu_seqlen_ke)
        scores.append(defined.at_slots(logits, indices[-1]))
    indices, scores = torch.stack(indices), torch.stack(scores)
    grads = defined.gradients(scores, doubles, cotangent(scores))
    names = ("index_q", "index_k", "weights")
    grads = {f"grad_{name}": grad for name, grad in zip(names, grads)}
    return {"scores": scores.detach(), "indices": indices} | grads


def fp8_choice(g):
    """prime-rl's fp8_indexer; S after a window's last key."""
    (q, q_scale), (k, k_scale) = defined.e4m3_rows(g.q), defined.e4m3_rows(g.k)
    logits = defined.index_logits(q, k * k_scale[:, None], g.w.float() * q_scale)
    indices, _ = defined.best(defined.windowed(logits, g.ks, g.ke), g.topk, ascending=False)
    return {"indices": indices.masked_fill(indices < 0, g.k.shape[0])}


def document_windows(g):
    """NeMo: each local query's window of keys; padding has an empty window."""
    bounds = g.cu_seqlens if g.cu_seqlens_padded is None else g.cu_seqlens_padded
    rows = torch.arange(len(g.index_q)) if g.query_indices is None else g.query_indices
    windows = []
    for row in rows.tolist():
        window = (0, 0)
        for first, last, size in zip(bounds, bounds[1:], g.cu_seqlens.diff().tolist()):
            if first <= row < last and row - int(first) < size:
                window = int(first), row + 1
        windows.append(window)
    return torch.tensor(windows).T


def nemo_choice(g):
    logits = defined.index_logits(g.index_q, g.index_k, g.head_weights)
    logits = defined.windowed(logits, *document_windows(g))
    return {"indices": defined.best(logits, g.index_topk, ascending=True)[0].unsqueeze(1)}


def divergence(g):
    """Megatron's SparseIndexerKLLoss."""
    (logits,) = defined.doubles(g.index_logits)
    target = g.target.double().masked_fill(~g.valid_mask, 0.0)
    target = target / target.sum(-1, keepdim=True).clamp(min=1e-300)
    seen = g.valid_mask | ~g.valid_mask.any(-1, keepdim=True)
    log_predict = logits.masked_fill(~seen, NEVER).log_softmax(-1).masked_fill(~g.valid_mask, 0.0)
    loss = torch.where(target > 0, target * (target.clamp(min=1e-300).log() - log_predict), 0.0).sum()
    (grad,) = torch.autograd.grad(loss, logits, cotangent(loss).double())
    return {"loss": loss.detach(), "grad_index_logits": grad}


LENGTHS4 = ints([4, 1, 4, 3], [2, 4, 4, 4])
TARGET = torch.rand(B, T, K, generator=made).masked_fill(SLOTS < 0, 0.0)
PREDICT = defined.softmax(stacked(lambda *each: slot_logits(*each, None), IQ, IK, IW, SLOTS)[0]).float()
PREDICT[1, 1, 2] = 0.0  # so small that the original clips it
GLOBAL = torch.where(SLOTS < 0, -1, SLOTS + IS * torch.arange(B)[:, None, None].int())
ALL = torch.rand(B, T, IS, generator=made)
ALL[1, 0] = 0.0  # a target without weight
SCORES = normal(B, T, IS, dtype=torch.float32)
SCORES[0, 3, 1] = -300.0  # the same for matrices
DENSE = dict(zip(("attn_score", "index_score"), (ALL, SCORES)))
DENSE |= {"attn_l1norm": ALL.sum(-1), "index_lse": SCORES.logsumexp(-1)}
ATTENTION_LSE = normal(B, T, H, dtype=torch.float32)
ATTENTION_LSE[0, 1, 1] = math.inf  # a padding head
TRAINING = {"grad_loss": torch.tensor([2.0]), "loss_coeff": 3.0, "sm_scale": 0.5}
GRADIENTS = {
    "d_index_q": ("d_index_q",),
    "d_weights": ("d_weights", torch.float32),
    "d_index_k": ("d_index_k", torch.float32),
}
PORT_INDEXER = {"cu_seqlen_ks": BEGIN, "cu_seqlen_ke": END}
DOCUMENTS = {"cu_seqlens": ints([0, 3, 7])[0], "cu_seqlens_padded": ints([0, 4, 8])[0]}
SHARD = {"query_indices": ints([5, 2, 3, 7])[0]}
PACKED_LISTS = torch.cat([SLOTS[0], SLOTS[1]])
E4M3_Q, E4M3_K = normal(T, IH, ID).to(torch.float8_e4m3fn), normal(IS, ID).to(torch.float8_e4m3fn)
E4M3 = {
    "q": E4M3_Q, "kv": (E4M3_K, torch.rand(IS, generator=made)), "weights": IW[0], "cu_seq_len_k_start": BEGIN,
    "cu_seq_len_k_end": END,
}  # fmt: skip
FP8 = {"q": normal(8, IH, ID), "k": normal(40, ID), "w": normal(8, IH)}
FP8 |= {"ks": ints([0, 0, 0, 0, 0, 1, 5, 0])[0], "ke": ints([40, 40, 40, 40, 40, 3, 17, 0])[0]}


def deep_gemm_logits(g):
    q, (k, k_scale) = g.q[0] if isinstance(g.q, tuple) else g.q, g.kv
    logits = defined.index_logits(q, k.double() * k_scale.double()[:, None], g.weights)
    logits = defined.windowed(logits, g.cu_seq_len_k_start, g.cu_seq_len_k_end)
    if not g.max_seqlen_k:
        return {"logits": logits}
    whole = torch.full((len(q), g.max_seqlen_k), NEVER, dtype=torch.float64)
    for row, first in enumerate(g.cu_seq_len_k_start.tolist()):
        mine = logits[row, first:][: g.max_seqlen_k]
        whole[row, : len(mine)] = mine
    return {"logits": whole}


def top_values(g):
    """cuDNN's top-k of rows; groups of next_n rows share a length."""
    values = g.input_values.double()
    last = g.seq_lens.long().repeat_interleave(g.next_n)
    ends = last - g.next_n + 1 + torch.arange(len(values)) % g.next_n
    indices, found = defined.best(defined.windowed(values, torch.zeros_like(ends), ends), g.top_k, True)
    return {"indices": indices} | ({"values": found} if g.return_val else {})


def compacted(g):
    rows = [[slot for slot in row if slot >= 0] for row in g.indices.flatten(0, -2).tolist()]
    width = g.indices.shape[-1]
    lists = [row + [-1] * (width - len(row)) for row in rows]
    return {"indices": torch.tensor(lists), "topk_length": torch.tensor([len(row) for row in rows])}


def globally(g):
    """Rows of all batches or documents; -1 for slots outside the query's batch or document."""
    lists = g.local_indices.clone().long()
    for row in range(lists.shape[0]):
        if g.cu_seqlens_q is None:
            first, count = row * g.seqlen_k, g.seqlen_k
        else:
            part = int((g.cu_seqlens_q[1:-1] <= row).sum())
            first = int(g.cu_seqlens_k[part])
            count = int(g.cu_seqlens_k[part + 1]) - first
        outside = (lists[row] < 0) | (lists[row] >= count)
        lists[row] = (lists[row] + first).masked_fill(outside, -1)
    return {"indices": lists}


DENSE_FORWARD = {"q": IQ, "k": IK.unsqueeze(2), "q_causal_offsets": OFFSETS, "sm_scale": 0.5, "ratio": 2}
PACKED_FORWARD = {"q": IQ.flatten(0, 1), "k": PACKED_K.unsqueeze(1), "q_causal_offsets": OFFSETS} | PACKED
PACKED_FORWARD |= {"ratio": 1, "max_seqlen_k": 7}
Q_SCALE, K_SCALE = normal(B, T, IH, dtype=torch.float32), normal(B, IS, 1, dtype=torch.float32)


def in_fp8(given):
    """With q and k in e4m3."""
    return given | {name: given[name].to(torch.float8_e4m3fn) for name in "qk"} | {"precision": "FP8"}


RECOMPUTED = {"out": ("out",), "denom_out": ("denom",)}
PACKED_BOUNDS = ("q_causal_offsets", "cu_seqlens_q", "cu_seqlens_k")
ATTENDED = {"lse": ATTENTION_LSE, "softmax_scale": SCALE}
TARGETS = {"q": Q4, "k": KV4[:, :IS].unsqueeze(2)} | ATTENDED | {"q_causal_offsets": OFFSETS, "ratio": 2}
PACKED_TARGETS = {"q": Q4.flatten(0, 1), "k": torch.cat([KV4[0, :4], KV4[1, :IS]]).unsqueeze(1)} | PACKED
PACKED_TARGETS |= {"lse": ATTENTION_LSE.flatten(0, 1), "softmax_scale": SCALE}
PORT_CHOICE = {"index_q": IQ[0], "index_k": IK[0], "weights": IW[0], "topk": K} | PORT_INDEXER
CHOSEN = {"leaves": ("index_q", "index_k", "weights"), "bounds": ("cu_seqlen_ks", "cu_seqlen_ke")}
LOGITS = {"q": IQ[0], "kv": IK[0], "weights": IW[0]} | PORT_INDEXER
SLOT_GRADIENTS = {"index_q": IQ[0], "weights": IW[0], "index_k": IK[0], "topk_indices": SLOTS[0]}
SLOT_GRADIENTS |= {"grad_scores": normal(T, K, dtype=torch.float32)}
BY_STEP = {name: value.transpose(0, 1) for name, value in (("q", IQ), ("k", IK), ("weights", IW))}
BY_STEP_INDEX = {"index_q": BY_STEP["q"], "index_k": BY_STEP["k"], "weights": BY_STEP["weights"]}


def miles_logits(g):
    parts = zip(*(each.unbind(1) for each in (g.q, g.k, g.weights)))
    logits = [defined.windowed(defined.index_logits(*each), g.cu_seqlen_ks, g.cu_seqlen_ke) for each in parts]
    return {"logits": torch.stack(logits)}


def miles_gradients(g):
    inputs = (each.unbind(1) for each in (g.index_q, g.index_k, g.weights))
    dq, dk, dw = zip(*(logit_gradients(*each) for each in zip(*inputs, g.topk_indices, g.grad_scores)))
    return {"dq": torch.stack(dq, 1), "dw": torch.stack(dw, 1), "dk": torch.stack(dk, 1)}


def target_of_query(g):
    lists = g.topk_indices
    _, lse, _ = defined.attention(g.query, g.key, lists, g.softmax_scale, 1)
    return {"target": defined.probabilities(g.query, g.key, lists, lse, g.softmax_scale)}


def padded_windows(g):
    starts, ends = [], []
    for first, last, size in zip(g.cu_seqlens_padded, g.cu_seqlens_padded[1:], g.cu_seqlens.diff()):
        for row in range(int(first), int(last)):
            starts.append(int(first))
            ends.append(max(min(row + 1, int(first + size)), int(first) + 1))
    return {"starts": torch.tensor(starts), "ends": torch.tensor(ends)}


def packed_windows(g):
    starts = [int(first) for first, last in zip(g.cu_seqlens, g.cu_seqlens[1:]) for _ in range(first, last)]
    return {"starts": torch.tensor(starts), "ends": torch.arange(1, len(starts) + 1)}


INDEXER = {
    "deep_gemm.fp8_mqa_logits": Case(
        deep_gemm.fp8_mqa_logits, E4M3, deep_gemm_logits, bounds=("cu_seq_len_k_start", "cu_seq_len_k_end"),
        changes={"max_seqlen_k": 3, "logits_dtype": torch.bfloat16}, tuning={"clean_logits": False},
    ),
    "deep_gemm.fp8_mqa_logits, narrow": Case(
        deep_gemm.fp8_mqa_logits,
        E4M3 | {"q": E4M3_Q[..., :32].contiguous(), "kv": (E4M3_K[:, :32].contiguous(), E4M3["kv"][1])},
        deep_gemm_logits, bounds=("cu_seq_len_k_start", "cu_seq_len_k_end"),
    ),
    "deep_gemm.fp8_fp4_mqa_logits": Case(
        deep_gemm.fp8_fp4_mqa_logits, E4M3 | {"q": (E4M3_Q, None)}, deep_gemm_logits,
        bounds=("cu_seq_len_k_start", "cu_seq_len_k_end"),
        changes={"max_seqlen_k": 3, "logits_dtype": torch.bfloat16, "q": (E4M3_Q, IW[0])},
        tuning={"clean_logits": False},
    ),
    "cudnn.indexer_forward_wrapper": Case(
        cudnn.indexer_forward_wrapper, DENSE_FORWARD | {"w": IW}, indexer_forward, bounds=("q_causal_offsets",),
        outputs={"out": ("scores",)},
        changes=SCALES | HEADS | {"ratio": 3, "sm_scale": 2.0, "return_lse": True, "cu_seqlens_q": CU_Q},
        tuning=TILES | {"max_seqlen_k": 99, "lse_out": torch.empty(B, T)},
    ),
    "cudnn.indexer_forward_wrapper, packed": Case(
        cudnn.indexer_forward_wrapper, PACKED_FORWARD | {"w": IW.flatten(0, 1), "return_lse": True}, indexer_forward,
        bounds=PACKED_BOUNDS, outputs={"out": ("scores",), "lse_out": ("lse",)},
        changes={"max_seqlen_k": 5, "cu_seqlens_k": None},
    ),
    "cudnn.indexer_forward_wrapper, fp8": Case(
        cudnn.indexer_forward_wrapper,
        in_fp8(DENSE_FORWARD) | {"w": IW.bfloat16(), "q_scale": Q_SCALE, "k_scale": K_SCALE},
        indexer_forward,
        bounds=("q_causal_offsets",),
        outputs={"out": ("scores",)},
        changes={"q_scale": None, "k_scale": K_SCALE.bfloat16(), "sm_scale": 2.0, "precision": "bf16"}
        | {"cu_seqlens_k_scale_padded": CU_K, "w": IW.half()},
    ),
    "cudnn.indexer_forward_wrapper, packed fp8": Case(
        cudnn.indexer_forward_wrapper,
        in_fp8(PACKED_FORWARD)
        | {"w": IW.flatten(0, 1), "q_scale": Q_SCALE.flatten(0, 1), "k_scale": torch.cat([K_SCALE[0, :4], K_SCALE[1]])},
        indexer_forward,
        bounds=PACKED_BOUNDS,
        outputs={"out": ("scores",)},
        changes={"k_scale": K_SCALE[0], "q_scale": IW},
        tuning={"sm_scale": 2.0},
        unread=("q_scale",),
    ),
    "cudnn.indexer_forward_top_k_wrapper": Case(
        cudnn.indexer_forward_top_k_wrapper,
        DENSE_FORWARD | {"w": IW, "top_k": K},
        chosen_of_all,
        bounds=("q_causal_offsets",),
        outputs={"out_indices": ("indices",), "out_logits": ("logits",), "softmax_out": ("softmax",)},
        changes=SCALES
        | HEADS
        | {"ratio": 3, "sm_scale": 2.0, "return_lse": True, "cu_seqlens_q": CU_Q, "top_k": IS + 1}
        | {"topk_indices_global": False, "return_softmax": False, "lse_out": torch.empty(B, T)},
        tuning=TILES
        | {"microbatch_rows": 2, "cand_buffer": torch.empty(1), "deterministic": True, "max_seqlen_k": 99}
        | {"cand_batch_offsets": torch.zeros(3, dtype=torch.int64)},
    ),
    "cudnn.indexer_forward_top_k_wrapper, packed": Case(
        cudnn.indexer_forward_top_k_wrapper,
        PACKED_FORWARD | {"w": IW.flatten(0, 1), "top_k": K, "return_lse": True, "topk_indices_global": False},
        chosen_of_all, bounds=PACKED_BOUNDS,
        outputs={"out_indices": ("indices",), "out_logits": ("logits",), "lse_out": ("lse",)},
        changes={"topk_indices_global": True, "cu_seqlens_q": None},
    ),
    "cudnn.compress_topk_cand_buffer_size": Case(
        cudnn.compress_topk_cand_buffer_size,
        {"bs": B, "seqlen_q": T, "seqlen_k": S, "ratio": 2},
        lambda g: {"elements": torch.tensor(0)},
        changes={"precision": "mxfp8"},
        tuning={"bs": 3, "seqlen_q": 5, "seqlen_k": 5, "ratio": 1, "microbatch_rows": 2}
        | {"return_lse": True, "q_causal_offsets": OFFSETS},
    ),
    "cudnn.compress_topk_cand_buffer_size_thd": Case(
        cudnn.compress_topk_cand_buffer_size_thd, PACKED | {"ratio": 2},
        lambda g: {"begin": torch.zeros(3, dtype=torch.int64), "elements": torch.tensor(0)},
        changes={"cu_seqlens_q": None}, tuning={"ratio": 1, "q_causal_offsets": OFFSETS},
        unread=("cu_seqlens_q", "cu_seqlens_k"),
    ),
    "cudnn.indexer_top_k_wrapper": Case(
        cudnn.indexer_top_k_wrapper,
        {"input_values": normal(6, 20), "seq_lens": ints([9, 20, 2])[0], "top_k": K, "next_n": 2}, top_values,
        bounds=("seq_lens",), changes={"return_val": False, "tie_break": 2, "top_k": 2, "next_n": 3},
        tuning={"num_copy_bits": 128, "deterministic": True, "tie_break": 1},
    ),
    "cudnn.compactify_wrapper": Case(cudnn.compactify_wrapper, {"indices": SLOTS}, compacted, lists=("indices",)),
    "cudnn.local_to_global_wrapper": Case(
        cudnn.local_to_global_wrapper, {"local_indices": SLOTS, "seqlen_k": 5}, globally, lists=("local_indices",),
        changes={"seqlen_k": 4, "cu_seqlens_q": CU_Q},
    ),
    "cudnn.local_to_global_wrapper, packed": Case(
        cudnn.local_to_global_wrapper, {"local_indices": PACKED_LISTS, "seqlen_k": 99} | PACKED, globally,
        lists=("local_indices",), bounds=("cu_seqlens_q", "cu_seqlens_k"), changes={"cu_seqlens_k": None},
    ),
    "cudnn.sparse_indexer_score_recompute_wrapper": Case(
        cudnn.sparse_indexer_score_recompute_wrapper,
        {"q_indexer": IQ, "k_indexer": IK, "weights": IW.bfloat16(), "topk_indices": SLOTS, "topk_length": LENGTHS4},
        sparse_predict, lists=("topk_indices",), bounds=("topk_length",), outputs={"out": ("predict",)},
        changes=HEADS | {"topk_indices_global": True},
    ),
    "cudnn.sparse_attn_score_recompute_wrapper": Case(
        cudnn.sparse_attn_score_recompute_wrapper,
        {"q_attn": Q4, "k_attn": KV4, "topk_indices": SLOTS, "topk_length": LENGTHS4} | ATTENDED, sparse_target,
        lists=("topk_indices",), bounds=("topk_length",), outputs={"out": ("target",)},
        changes=HEADS | {"topk_indices_global": True, "softmax_scale": 0.05},
    ),
    "cudnn.sparse_attention_score_recompute": Case(
        cudnn.sparse_attention_score_recompute,
        {"q": Q, "kv": KV, "lse": ATTENTION_LSE[0], "indices": BEYOND, "topk_length": LENGTHS}, training_target,
        lists=("indices",), bounds=("topk_length",), changes={"softmax_scale": 0.05},
    ),
    "cudnn.indexer_backward_wrapper": Case(
        cudnn.indexer_backward_wrapper,
        {"index_q": IQ, "weights": IW.bfloat16(), "index_k": IK, "topk_indices": SLOTS}
        | {"attn_score": TARGET, "index_score": PREDICT}
        | TRAINING,
        sparse_training,
        lists=("topk_indices",),
        outputs=GRADIENTS,
        changes={"grad_loss": 3.0, "sm_scale": 1.0, "loss_coeff": 1.0, "topk_indices_global": True}
        | {"backend": "sm90", "deterministic_dk_planes": 5},
        tuning={"block_I": 64, "workspace": torch.empty(1), "deterministic": True}
        | {"backend": "sm100_v2", "deterministic_dk_planes": 96},
    ),
    "cudnn.dense_attn_score_recompute_wrapper": Case(
        cudnn.dense_attn_score_recompute_wrapper, TARGETS, dense_target, bounds=("q_causal_offsets",),
        outputs=RECOMPUTED, changes=SCALES | HEADS | {"ratio": 1, "softmax_scale": 0.05, "cu_seqlens_k": CU_K},
        tuning={"max_seqlen_q": 99, "max_seqlen_k": 99},
    ),
    "cudnn.dense_attn_score_recompute_wrapper, packed": Case(
        cudnn.dense_attn_score_recompute_wrapper, PACKED_TARGETS, dense_target, bounds=PACKED_BOUNDS[1:],
        outputs=RECOMPUTED, changes={"max_seqlen_k": 8},
    ),
    "cudnn.dense_indexer_score_recompute_wrapper": Case(
        cudnn.dense_indexer_score_recompute_wrapper, DENSE_FORWARD | {"weights": IW}, dense_predict,
        bounds=("q_causal_offsets",), outputs=RECOMPUTED,
        changes=SCALES | HEADS | {"ratio": 1, "sm_scale": 2.0, "cu_seqlens_k": CU_K},
        tuning={"max_seqlen_q": 99, "max_seqlen_k": 99},
    ),
    "cudnn.dense_indexer_score_recompute_wrapper, packed": Case(
        cudnn.dense_indexer_score_recompute_wrapper, PACKED_FORWARD | {"weights": IW.flatten(0, 1)}, dense_predict,
        bounds=PACKED_BOUNDS, outputs=RECOMPUTED,
    ),
    "cudnn.dense_indexer_backward_wrapper": Case(
        cudnn.dense_indexer_backward_wrapper,
        {"index_q": IQ, "weights": IW.bfloat16(), "index_k": IK, "ratio": 2, "q_causal_offsets": OFFSETS}
        | DENSE
        | TRAINING,
        dense_training,
        bounds=("q_causal_offsets",),
        outputs=GRADIENTS,
        changes={"grad_loss": 3.0, "sm_scale": 1.0, "loss_coeff": 1.0, "ratio": 1, "cu_seqlens_k": CU_K},
        tuning={"block_I": 64, "workspace": torch.empty(1), "deterministic": True}
        | {"max_seqlen_q": 99, "max_seqlen_k": 99},
    ),
    "cudnn.dense_indexer_backward_wrapper, packed": Case(
        cudnn.dense_indexer_backward_wrapper,
        {"index_q": IQ.flatten(0, 1), "weights": IW.flatten(0, 1), "index_k": PACKED_K}
        | {name: value.flatten(0, 1) for name, value in DENSE.items()}
        | TRAINING
        | PACKED,
        dense_training,
        bounds=PACKED_BOUNDS[1:],
        outputs=GRADIENTS,
        changes={"max_seqlen_k": 7},
    ),
    "slime.generate_varlen_mask_params": Case(
        slime.generate_varlen_mask_params, {"cu_seqlens": ints([0, 3, 7])[0]}, packed_windows
    ),
    "slime.indexer_fwd_interface": Case(
        slime.indexer_fwd_interface, LOGITS | {"kv": IK[0].unsqueeze(1)}, port_logits, bounds=CHOSEN["bounds"],
        tuning={"clean_logits": False},
    ),
    "slime.indexer_bwd_interface": Case(
        slime.indexer_bwd_interface, SLOT_GRADIENTS | {"index_k": IK[0].unsqueeze(1), "weights": IW[0].unsqueeze(-1)},
        port_gradients, lists=("topk_indices",),
    ),
    "slime.lighting_indexer": Case(
        slime.lighting_indexer, PORT_CHOICE | {"weights": IW[0].unsqueeze(-1)}, port_choice, **CHOSEN,
        changes={"topk": 2},
    ),
    "slime.lighting_indexer, given": Case(
        slime.lighting_indexer, PORT_CHOICE | {"topk_indices": SLOTS[0], "weights": IW[0].bfloat16()}, port_choice,
        **CHOSEN, lists=("topk_indices",),
    ),
    "megatron.indexer_fwd_interface": Case(
        megatron.indexer_fwd_interface, LOGITS, port_logits, bounds=CHOSEN["bounds"], changes={"use_relu": False},
        tuning={"clean_logits": False},
    ),
    "megatron.indexer_bwd_interface": Case(
        megatron.indexer_bwd_interface, SLOT_GRADIENTS, port_gradients, lists=("topk_indices",),
        changes={"use_relu": False},
    ),
    "megatron.lighting_indexer": Case(
        megatron.lighting_indexer, PORT_CHOICE, lambda g: port_choice(g, narrow=True), **CHOSEN,
        changes={"topk": IS + 1, "use_relu": False, "topk_indices": SLOTS[0]},
    ),
    "megatron.lighting_indexer, linear": Case(
        megatron.lighting_indexer, PORT_CHOICE | {"topk_indices": SLOTS[0], "use_relu": False}, port_choice, **CHOSEN,
        lists=("topk_indices",),
    ),
    "megatron.lighting_indexer, of a width that the kernels lack": Case(
        megatron.lighting_indexer, PORT_CHOICE | {"index_q": IQ[0, ..., :16], "index_k": IK[0, :, :16]},
        lambda g: port_choice(g, narrow=True), **CHOSEN,
    ),
    "megatron.lighting_indexer_indices": Case(
        megatron.lighting_indexer_indices, PORT_CHOICE, lambda g: {"indices": port_choice(g, narrow=True)["indices"]},
        bounds=CHOSEN["bounds"], changes={"topk": 2, "use_relu": False},
    ),
    "megatron.sparse_indexer_target_interface": Case(
        megatron.sparse_indexer_target_interface,
        {"query": Q, "key": KV, "topk_indices": LISTS, "softmax_scale": SCALE}, target_of_query,
        lists=("topk_indices",), changes={"softmax_scale": 0.05},
    ),
    "megatron.SparseIndexerKLLoss.apply": Case(
        megatron.SparseIndexerKLLoss.apply,
        {"target": TARGET[0], "index_logits": normal(T, K, dtype=torch.float32), "valid_mask": SLOTS[0] >= 0},
        divergence, leaves=("index_logits",),
    ),
    "miles.batched_indexer_fwd": Case(
        miles.batched_indexer_fwd, BY_STEP | PORT_INDEXER, miles_logits, bounds=CHOSEN["bounds"]
    ),
    "miles.batched_indexer_bwd": Case(
        miles.batched_indexer_bwd,
        BY_STEP_INDEX | {"topk_indices": SLOTS, "grad_scores": normal(B, T, K, dtype=torch.float32)}, miles_gradients,
        lists=("topk_indices",),
    ),
    "miles.v4_lighting_indexer": Case(
        miles.v4_lighting_indexer,
        BY_STEP_INDEX | {"compress_ratio": 1, "topk": K},
        miles_choice,
        leaves=CHOSEN["leaves"],
        changes={"topk": IS + 1, "compress_ratio": 2, "topk_indices": SLOTS, "cu_seqlen_ks": BEGIN}
        | {"cu_seqlen_ke": END},
    ),
    "miles.v4_lighting_indexer, given": Case(
        miles.v4_lighting_indexer,
        BY_STEP_INDEX | {"compress_ratio": 1, "topk": K, "topk_indices": SLOTS} | PORT_INDEXER, miles_choice, **CHOSEN,
        lists=("topk_indices",), tuning={"compress_ratio": 2},
    ),
    "prime_rl.fp8_indexer": Case(
        prime_rl.fp8_indexer, FP8 | {"topk": K}, fp8_choice, bounds=("ks", "ke"), changes={"topk": 2},
        tuning={"weight_scale": -0.5, "chunk_size": 4},
    ),
    "nemo.tilelang_indexer_topk": Case(
        nemo.tilelang_indexer_topk,
        {"index_q": normal(4, IH, ID), "index_k": normal(8, ID), "head_weights": IW[0], "index_topk": 2}
        | DOCUMENTS
        | SHARD,
        nemo_choice,
        bounds=("cu_seqlens", "cu_seqlens_padded", "query_indices"),
        changes={"index_topk": K},
    ),
    "nemo.tilelang_indexer_topk, whole": Case(
        nemo.tilelang_indexer_topk,
        {"index_q": normal(7, IH, ID), "index_k": normal(7, ID), "head_weights": normal(7, IH), "index_topk": 2}
        | {"cu_seqlens": DOCUMENTS["cu_seqlens"]},
        nemo_choice,
        bounds=("cu_seqlens",),
    ),
    "nemo._generate_padded_varlen_mask_params": Case(
        nemo._generate_padded_varlen_mask_params, DOCUMENTS, padded_windows
    ),
}  # fmt: skip
