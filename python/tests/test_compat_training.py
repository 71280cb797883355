"""The drop-ins of what trains the indexer, against definitions in double precision."""

import pytest
import torch
from conftest import check_grad, check_sums
from smelt_kernels.compat import cudnn, miles, slime
from test_indexer_training import true_logits

NEVER = float("-inf")
BATCHES, TOKENS, ROWS, HEADS, DIM, WIDTH = 2, 4, 6, 2, 64, 4


@pytest.fixture
def indexer(device):
    """q [B, T, H, D], k [B, S, D], weights [B, T, H], lists of each batch's own rows."""
    generator = torch.Generator().manual_seed(7)
    q = torch.randn(BATCHES, TOKENS, HEADS, DIM, generator=generator).to(device, torch.bfloat16)
    k = torch.randn(BATCHES, ROWS, DIM, generator=generator).to(device, torch.bfloat16)
    weights = torch.randn(BATCHES, TOKENS, HEADS, generator=generator).to(device)
    lists = torch.rand(BATCHES, TOKENS, ROWS, generator=generator).argsort(-1)[..., :WIDTH]
    lists[0, 1, 2:] = -1
    lists[1, 3] = -1
    return q, k, weights, lists.to(device, torch.int32)


def by_batch(function, *tensors):
    return torch.stack([function(*(tensor[batch] for tensor in tensors)) for batch in range(BATCHES)])


def by_step(tensor):
    """Miles' layout: tokens before batches."""
    return tensor.transpose(0, 1).contiguous()


def gradients(q, k, weights, lists, grad):
    """Of the logits at the slots, in double precision."""
    leaves = [tensor.detach().double().requires_grad_() for tensor in (q, k, weights)]
    logits = by_batch(true_logits, *leaves, lists)
    return torch.autograd.grad(logits[lists >= 0], leaves, grad.double()[lists >= 0])


def test_cudnn_indexer_backward(indexer, device):
    """The gradient of the mean divergence, by autograd of its definition."""
    q, k, weights, lists = indexer
    target = torch.rand(lists.shape, device=device).masked_fill(lists < 0, 0.0)
    target = target / target.sum(-1, keepdim=True).clamp(min=1e-30)
    leaves = [tensor.detach().double().requires_grad_() for tensor in (q, k, weights)]
    logits = 0.5 * by_batch(true_logits, *leaves, lists)
    log_predict = logits[lists[..., 0] >= 0].log_softmax(-1)
    share = target.double()[lists[..., 0] >= 0]
    terms = torch.where(share > 0, torch.xlogy(share, share) - share * log_predict, 0.0)
    loss = 3.0 * terms.sum() / (BATCHES * TOKENS)
    want = torch.autograd.grad(2.0 * loss, leaves)
    predict = logits.detach().softmax(-1).nan_to_num(0.0).float()
    d_index_k = torch.empty_like(k)
    result = cudnn.indexer_backward_wrapper(
        q,
        weights.bfloat16(),
        k,
        target,
        predict,
        lists,
        torch.full((1,), 2.0, device=device),
        sm_scale=0.5,
        loss_coeff=3.0,
        d_index_k=d_index_k,
    )
    assert tuple(result)[2] is d_index_k and result["d_weights"].dtype is torch.bfloat16
    for got, true in zip(result, (want[0], want[2], want[1])):
        assert float((got.double() - true).norm()) < 0.02 * float(true.norm())
    whole = {"d_weights": torch.empty_like(weights), "d_index_k": torch.empty_like(k, dtype=torch.float32)}
    finer = cudnn.indexer_backward_wrapper(
        q,
        weights.bfloat16(),
        k,
        target,
        predict,
        lists,
        torch.full((1,), 2.0, device=device),
        sm_scale=0.5,
        loss_coeff=3.0,
        backend="default",
        deterministic=True,
        **whole,
    )
    plain = cudnn.indexer_backward_wrapper(q, weights, k, target, predict, lists, 2.0, loss_coeff=3.0, sm_scale=0.5)
    assert torch.allclose(plain["d_weights"], whole["d_weights"], rtol=0.01, atol=1e-4)
    for name, coarse in (("d_weights", result["d_weights"]), ("d_index_k", d_index_k)):
        assert finer[name] is whole[name] and bool((finer[name] != coarse).any())
        assert torch.allclose(finer[name], coarse.float(), rtol=0.01, atol=1e-5)


def test_cudnn_indexer_forward(indexer):
    q, k, weights, _ = indexer
    offsets = torch.tensor([1, 4], dtype=torch.int32, device=q.device)
    (scores,) = cudnn.indexer_forward_wrapper(q, k, weights, ratio=2, sm_scale=0.5, q_causal_offsets=offsets)
    for batch in range(BATCHES):
        every = torch.arange(ROWS, device=q.device).expand(TOKENS, ROWS)
        seen = (torch.arange(1, TOKENS + 1, device=q.device) + offsets[batch]) // 2
        lists = torch.where(every < seen[:, None], every, -1)
        want = 0.5 * true_logits(q[batch].double(), k[batch].double(), weights[batch].double(), lists)
        check_sums(scores[batch].masked_fill(lists < 0, 0), want.masked_fill(lists < 0, 0))
        assert bool((scores[batch][lists < 0] == float("-inf")).all())
    packed = cudnn.indexer_forward_wrapper(
        q.flatten(0, 1),
        k.flatten(0, 1).unsqueeze(1),
        weights.flatten(0, 1),
        ratio=2,
        sm_scale=0.5,
        cu_seqlens_q=torch.tensor([0, TOKENS, 2 * TOKENS], dtype=torch.int32, device=q.device),
        cu_seqlens_k=torch.tensor([0, ROWS, 2 * ROWS], dtype=torch.int32, device=q.device),
        max_seqlen_k=ROWS + 1,
        q_causal_offsets=offsets,
    )["scores"]
    assert torch.equal(packed[:, :ROWS], scores.flatten(0, 1))
    room = torch.empty(BATCHES, TOKENS, device=q.device)
    again, lse = cudnn.indexer_forward_wrapper(
        q, k, weights, 2, sm_scale=0.5, q_causal_offsets=offsets, return_lse=True, lse_out=room
    )
    assert lse is room and torch.equal(again, scores) and torch.equal(lse, scores.logsumexp(-1))
    assert bool((packed[:, ROWS:] == float("-inf")).all())
    with pytest.raises(NotImplementedError, match="bf16"):
        cudnn.indexer_forward_wrapper(q, k, weights, precision="fp8")


def test_slime_scores_take_gradients(indexer):
    q, k, weights, _ = indexer
    leaves = [tensor[0].clone().requires_grad_() for tensor in (q, k, weights)]
    begin = torch.zeros(TOKENS, dtype=torch.int32, device=q.device)
    end = torch.tensor([1, 2, 5, 6], dtype=torch.int32, device=q.device)
    found, chosen = slime.lighting_indexer(*leaves, begin, end, 3)
    given, _ = slime.lighting_indexer(*leaves, begin, end, 3, topk_indices=chosen)
    for one, two in zip(*(torch.autograd.grad(each[chosen >= 0].sum(), leaves) for each in (found, given))):
        check_grad(one, two)
    outside = torch.full_like(chosen, 5)
    scores, _ = slime.lighting_indexer(*leaves, begin, end, 3, topk_indices=outside)
    assert bool((scores[:3] == float("-inf")).all()) and bool((scores[3] > float("-inf")).all())


def test_miles_indexer(indexer):
    q, k, weights, _ = indexer
    leaves = [by_step(tensor).requires_grad_() for tensor in (q, k[:, :2], weights)]
    found, chosen = miles.v4_lighting_indexer(*leaves, 2, 4)
    assert found.shape == chosen.shape == (BATCHES, TOKENS, 2)  # no more than there are keys
    assert chosen[0].tolist()[0] == [-1, -1] and chosen[1].tolist()[1] == [0, -1]
    windows = miles._make_causal_cu_seqlens(TOKENS, 2, 2, q.device)
    assert windows[1].tolist() == [0, 1, 1, 2]
    logits = miles.batched_indexer_fwd(*leaves, *windows)
    at = logits.gather(2, chosen.clamp(min=0).long())
    assert torch.equal(at[chosen >= 0], found[chosen >= 0])
    grad = torch.randn(found.shape, device=q.device)
    used = chosen >= 0
    got = torch.autograd.grad(found[used], leaves, grad[used])
    want = gradients(q, k[:, :2], weights, chosen, grad)
    for one, true in zip(got, want):
        check_grad(one, by_step(true))
    dq, dw, dk = miles.batched_indexer_bwd(*(leaves[i] for i in (0, 2, 1)), chosen, grad)
    for one, two in zip((dq, dk, dw), want):
        check_grad(one, by_step(two))


OFFSETS = [1, 4]


def dense_lists(device):
    """The keys that each query sees, of two in three tokens each, [B, T, S]."""
    every = torch.arange(ROWS, device=device).expand(BATCHES, TOKENS, ROWS)
    first = torch.tensor(OFFSETS, device=device)[:, None]
    seen = (torch.arange(1, TOKENS + 1, device=device) + first) // 2
    return torch.where(every < seen[..., None], every, -1)


def packing(device):
    """What says that batches are documents in a row: the columns are one more than there are keys."""
    return {
        "cu_seqlens_q": torch.tensor([0, TOKENS, 2 * TOKENS], dtype=torch.int32, device=device),
        "cu_seqlens_k": torch.tensor([0, ROWS, 2 * ROWS], dtype=torch.int32, device=device),
        "max_seqlen_k": ROWS + 1,
    }


@pytest.mark.parametrize("everywhere", [False, True], ids=["local", "global"])
@pytest.mark.parametrize("packed", [False, True], ids=["batches", "packed"])
def test_cudnn_indexer_forward_top_k(indexer, device, packed, everywhere, monkeypatch):
    """The best of indexer_forward_wrapper's scores, which a test holds; the lowest of equals, and -1 behind them."""
    q, k, weights, _ = indexer
    k[:, 3] = k[:, 2]  # logits that are equal
    offsets = torch.tensor(OFFSETS, dtype=torch.int32, device=device)
    options = {"ratio": 2, "sm_scale": 0.5, "q_causal_offsets": offsets}
    scores, lse = cudnn.indexer_forward_wrapper(q, k, weights, return_lse=True, **options)
    given, lead = (q, k.unsqueeze(2), weights), (BATCHES, TOKENS)
    if packed:
        given, lead = [tensor.flatten(0, 1) for tensor in given], (BATCHES * TOKENS,)
        cu = packing(device)
        options |= {name: cu[name] for name in ("cu_seqlens_q", "cu_seqlens_k")}
    for top_k in (2, ROWS + 1):
        best, values = torch.full((*scores.shape[:2], top_k), -1, device=device), None
        for batch in range(BATCHES):
            for row, logits in enumerate(scores[batch]):
                order = torch.sort(logits, descending=True, stable=True).indices
                count = min(top_k, int((logits > NEVER).sum()))
                best[batch, row, :count] = order[:count].sort().values
        values = torch.nn.functional.pad(scores, (0, 1), value=NEVER).gather(2, best % (ROWS + 1))
        values = values.masked_fill(best < 0, NEVER)
        softmax = values.double().softmax(-1).nan_to_num(0.0)
        if everywhere:
            first = ROWS * torch.arange(BATCHES, device=device)[:, None, None]
            best = torch.where(best < 0, -1, best + first)
        result = cudnn.indexer_forward_top_k_wrapper(*given, top_k, topk_indices_global=everywhere, **options)
        assert tuple(result.keys()) == ("indices", "logits", "softmax")
        assert result["indices"].dtype is torch.int32 and result["softmax"].dtype is torch.float32
        assert torch.equal(result["indices"].long(), best.view(*lead, top_k))
        assert torch.equal(result["logits"], values.view(*lead, top_k))
        assert torch.allclose(result["softmax"].double(), softmax.view(*lead, top_k), atol=1e-6)
        # The log-sum-exp of more than was chosen, by chunks, and into what is the caller's.
        monkeypatch.setattr(cudnn, "CHUNK_BYTES", 3 * 4 * ROWS)
        into = {
            "out_indices": torch.empty_like(result["indices"]),
            "out_logits": torch.empty_like(result["logits"]),
            "lse_out": torch.empty(lead, device=device),
        }
        again = cudnn.indexer_forward_top_k_wrapper(
            *given, top_k, topk_indices_global=everywhere, return_softmax=False, **options, **into
        )
        assert tuple(again.keys()) == ("indices", "logits", "lse")
        assert all(one is two for one, two in zip(again, into.values()))
        assert torch.equal(again["indices"], result["indices"])
        assert torch.equal(again["logits"], result["logits"])
        assert torch.allclose(again["lse"], lse.view(lead), rtol=1e-6)


def test_cudnn_indexer_forward_top_k_refuses(indexer, device):
    q, k, weights, _ = indexer
    call = cudnn.indexer_forward_top_k_wrapper
    for named, error in (
        ({"precision": "mxfp8"}, NotImplementedError),
        ({"q_scale": weights}, NotImplementedError),
        ({"ratio": 0}, ValueError),
        ({"top_k": 0}, ValueError),
        ({"cu_seqlens_q": torch.zeros(2, dtype=torch.int32, device=device)}, ValueError),
        ({"out_indices": torch.empty(BATCHES, TOKENS, 2, dtype=torch.int64, device=device)}, ValueError),
        ({"out_logits": torch.empty(BATCHES, TOKENS, 3, device=device)}, ValueError),
        ({"softmax_out": torch.empty(TOKENS, 2, device=device)}, ValueError),
    ):
        with pytest.raises(error):
            call(q, k, weights, **{"top_k": 2, **named})
    for nothing in ((q[:0], k[:0], weights[:0]), (q[:, :0], k, weights[:, :0]), (q, k[:, :0], weights)):
        result = call(*nothing, 2, return_lse=True)
        assert result["indices"].shape == (*nothing[0].shape[:2], 2)
        assert bool((result["indices"] == -1).all()) and bool((result["softmax"] == 0).all())
        assert bool((result["lse"] == NEVER).all())
    assert cudnn.compress_topk_cand_buffer_size(2, 8, 4, 2) == 0
    begin, count = cudnn.compress_topk_cand_buffer_size_thd(
        *(packing(device)[name] for name in ("cu_seqlens_q", "cu_seqlens_k")), 2
    )
    assert begin.tolist() == [0, 0, 0] and begin.dtype is torch.int64 and count == 0


@pytest.mark.parametrize("packed", [False, True], ids=["batches", "packed"])
def test_cudnn_dense_training(indexer, device, packed):
    """Scores, and the gradient of the mean divergence over all keys, by autograd of its definition."""
    q, k, weights, _ = indexer
    lists = dense_lists(device)
    leaves = [tensor.detach().double().requires_grad_() for tensor in (q, k, weights)]
    logits = 0.5 * by_batch(true_logits, *leaves, lists)
    target = torch.rand(lists.shape, device=device).masked_fill(lists < 0, 0.0)
    target[1, 0] = 0.0  # of which nothing can be learnt
    used = target.sum(-1) > 0
    share = (target / target.sum(-1, keepdim=True))[used].double()
    terms = torch.where(share > 0, torch.xlogy(share, share) - share * logits[used].log_softmax(-1), 0.0)
    want = torch.autograd.grad(2.0 * 3.0 * terms.sum() / (BATCHES * TOKENS), leaves)
    options = {"ratio": 2, "sm_scale": 0.5, "q_causal_offsets": torch.tensor(OFFSETS, device=device)}
    given = [q, weights, k, target, target.sum(-1)]
    if packed:
        wider = torch.nn.functional.pad(target, (0, 1))
        given = [tensor.flatten(0, 1) for tensor in (q, weights, k, wider, given[4])]
        options |= packing(device)
    scores, lse = cudnn.dense_indexer_score_recompute_wrapper(given[0], given[2], given[1], **options)
    found = scores[..., :ROWS].reshape(lists.shape)
    check_sums(found.masked_fill(lists < 0, 0), logits.detach().masked_fill(lists < 0, 0))
    assert bool((found[lists < 0] == float("-inf")).all())
    assert torch.equal(lse, scores.logsumexp(-1))
    d_index_k = torch.full_like(given[2], 7.0)
    result = cudnn.dense_indexer_backward_wrapper(
        *given, scores, lse, torch.full((1,), 2.0, device=device), loss_coeff=3.0, d_index_k=d_index_k, **options
    )
    assert tuple(result)[2] is d_index_k
    for got, like, true in zip(result, given, (want[0], want[2], want[1])):
        assert got.shape == like.shape and got.dtype is like.dtype
        check_grad(got.reshape(true.shape), true)
