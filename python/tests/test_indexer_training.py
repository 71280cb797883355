"""The indexer's training functions, compared with definitions in double precision, and by steps of training."""

import pytest
import smelt_kernels as smelt
import torch
from compat_definitions import at_slots, index_logits, probabilities
from conftest import Problem, check_grad, check_sums

NEVER = float("-inf")


def made(device, tokens=6, rows=21, heads=3, dim=64, width=9, seed=0):
    """q, k, weights and lists with masked slots; one query has no valid slot."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(tokens, heads, dim, generator=generator).to(device, torch.bfloat16)
    k = torch.randn(rows, dim, generator=generator).to(device, torch.bfloat16)
    weights = torch.randn(tokens, heads, generator=generator).to(device)
    order = torch.rand(tokens, rows, generator=generator).argsort(1)
    indices = order[:, :width].masked_fill(torch.rand(tokens, width, generator=generator) < 0.2, -1)
    indices[tokens - 1] = -1
    return q, k, weights, indices.to(device, torch.int32)


def wanting(*tensors):
    return [tensor.clone().requires_grad_() for tensor in tensors]


def true_logits(q, k, weights, indices, topk_length=None):
    """The definition in double precision."""
    return at_slots(index_logits(q, k, weights), indices, topk_length)


def true_loss(logits, target, indices, weight=None):
    losses = []
    for query in range(logits.shape[0]):
        valid = indices[query] >= 0
        share = target[query][valid].double()
        if not valid.any() or share.sum() == 0:
            losses.append(logits[query].new_zeros(()).double())
            continue
        share = share / share.sum()
        log_q = logits[query][valid].double().log_softmax(0)
        losses.append((torch.xlogy(share, share) - share * log_q).sum())
    losses = torch.stack(losses)
    return losses if weight is None else losses * weight


# ---- attention's probabilities ----------------------------------------------------------------------


@pytest.mark.parametrize("batches,sink", [(None, False), (2, True)], ids=["packed", "batches"])
def test_sparse_scores(device, batches, sink):
    problem = Problem(device, tokens=3, heads=2, batches=batches, sink=sink, lengths=True, grad=False)
    _, lse = problem.run(return_lse=True)
    got = smelt.sparse_scores(
        problem.q, problem.kv, problem.indices, lse, problem.scale, dv=problem.dv, topk_length=problem.topk_length,
        sink=problem.sink, backend="smelt",
    )  # fmt: skip
    assert got.shape == problem.indices.shape and got.dtype is torch.float32
    total = lse if problem.sink is None else torch.logaddexp(lse, problem.sink)
    given = [problem.q, problem.kv, problem.indices, total, problem.topk_length]
    given = zip(*given) if batches else [given]
    want = torch.cat([probabilities(*each[:4], problem.scale, each[4]) for each in given])
    torch.testing.assert_close(got.double().view(want.shape), want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_sparse_scores_of_listed_queries(device, backend):
    problem = Problem(device, tokens=4, heads=2, grad=False)
    _, lse = problem.run(return_lse=True)
    lists = (problem.q, problem.kv, problem.indices, lse, problem.scale)
    queries = torch.tensor([2, 0, 9], dtype=torch.int32, device=device)
    got = smelt.sparse_scores(*lists, dv=problem.dv, queries=queries, backend=backend)
    whole = smelt.sparse_scores(*lists, dv=problem.dv, backend=backend)
    assert torch.equal(got[[0, 2]], whole[[0, 2]]) and bool((got[[1, 3]] == 0).all())


# ---- logits and their gradients ---------------------------------------------------------------------


def test_indexer_scores(device):
    """The logits of indexer_logits, at the slots."""
    q, k, weights, indices = made(device)
    lengths = torch.tensor([9, 3, 0, 20, 5, 9], dtype=torch.int32, device=device)
    got = smelt.indexer_scores(q, k, weights, indices, topk_length=lengths, backend="smelt")
    want = true_logits(q.double(), k.double(), weights.double(), indices, lengths)
    assert bool(((got == NEVER) == (want == NEVER)).all())
    finite = want > NEVER
    assert torch.allclose(got[finite].double(), want[finite], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dk_dtype", [None, torch.float32], ids=["bf16", "fp32"])
def test_indexer_gradients(device, dk_dtype):
    q, k, weights, indices = made(device)
    grad = torch.randn(indices.shape, device=device)
    leaves = wanting(q, k, weights)
    logits = smelt.indexer_scores(*leaves, indices, dk_dtype=dk_dtype, backend="smelt")
    got = torch.autograd.grad(logits, leaves, grad)
    wide = wanting(q.double(), k.double(), weights.double())
    used = indices >= 0
    want = torch.autograd.grad(true_logits(*wide, indices)[used], wide, grad.double()[used])
    for one, true, leaf in zip(got, want, leaves):
        assert one.dtype is leaf.dtype
        check_grad(one, true)
    direct = smelt.indexer_backward(grad, q, k, weights, indices, dk_dtype=dk_dtype, backend="smelt")
    assert direct[1].dtype is (dk_dtype or torch.bfloat16)
    assert torch.equal(direct[0], got[0]) and torch.equal(direct[2], got[2])
    assert bool((got[0][-1] == 0).all())  # a key that no query selects has gradient 0


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_weights_in_bf16(device, backend):
    """Logits have the bits of those of the same weights in fp32; the gradient is in bf16."""
    q, k, weights, indices = made(device)
    narrow, grad = weights.bfloat16(), torch.randn(indices.shape, device=device)
    begin, end = (torch.full((len(q),), each, dtype=torch.int32, device=device) for each in (0, len(k)))
    grads = []
    for each in (narrow, narrow.float()):
        leaves = wanting(q, k, each)
        logits = smelt.indexer_scores(*leaves, indices, deterministic=True, backend=backend)
        values = smelt.indexer_topk(*leaves, begin, end, 3, backend=backend)[1]
        found = torch.autograd.grad((logits[indices >= 0] * grad[indices >= 0]).sum(), leaves)
        grads.append((logits, values, smelt.indexer_logits(q, k, each, begin, end, backend=backend), *found))
    assert all(map(torch.equal, grads[0][:3], grads[1][:3]))
    assert grads[0][-1].dtype is torch.bfloat16
    torch.testing.assert_close(grads[0][-1].float(), grads[1][-1], rtol=2**-8, atol=1e-4)
    assert torch.equal(grads[0][3], grads[1][3]) and torch.equal(grads[0][4], grads[1][4])


def test_topk_values_are_differentiable(device):
    q, k, weights, _ = made(device)
    begin = torch.zeros(6, dtype=torch.int32, device=device)
    end = torch.tensor([21, 9, 0, 1, 5, 20], dtype=torch.int32, device=device)
    offset = torch.arange(6, dtype=torch.int32, device=device)
    leaves = wanting(q, k, weights)
    indices, values, lengths = smelt.indexer_topk(
        *leaves, begin, end, 4, offset=offset, index_offset=3, backend="smelt"
    )
    assert not indices.requires_grad and not lengths.requires_grad
    grad = torch.randn(values.shape, device=device)
    got = torch.autograd.grad(values, leaves, grad)
    local = torch.where(indices < 0, indices, indices - 3 - offset[:, None])
    wide = wanting(q.double(), k.double(), weights.double())
    used = local >= 0
    want = torch.autograd.grad(true_logits(*wide, local)[used], wide, grad.double()[used])
    for one, true in zip(got, want):
        check_grad(one, true)
    without = smelt.indexer_topk(q, k, weights, begin, end, 4, offset=offset, index_offset=3, backend="smelt")
    assert all(torch.equal(one, two) for one, two in zip((indices, values, lengths), without))


def test_the_same_gradient_when_deterministic(device):
    q, k, weights, indices = made(device, rows=9)
    grad = torch.randn(indices.shape, device=device)
    runs = [smelt.indexer_backward(grad, q, k, weights, indices, deterministic=True, backend="smelt") for _ in range(2)]
    assert all(torch.equal(one, two) for one, two in zip(*runs))


# ---- the loss ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["smelt", "torch"])
@pytest.mark.parametrize("weighted", [False, True])
def test_loss(device, backend, weighted):
    q, k, weights, indices = made(device)
    logits = true_logits(q.double(), k.double(), weights.double(), indices).float()
    target = torch.rand(indices.shape, device=device)
    target[1] = 0  # no target: no loss
    weight = torch.tensor([1.0, 2.0, 0.0, -1.0, 0.5, 1.0], device=device) if weighted else None
    (leaf,) = wanting(logits)
    loss, losses = smelt.indexer_loss(
        leaf, target, indices, rows=21, weight=weight, return_losses=True, backend=backend
    )
    assert loss.shape == () and not losses.requires_grad
    (wide,) = wanting(logits.double())
    want = true_loss(wide, target, indices, weight)
    check_sums(losses, want)
    assert torch.allclose(loss.double(), want.sum(), rtol=1e-4)
    (got,) = torch.autograd.grad(3 * loss, leaf)
    (true,) = torch.autograd.grad(3 * want.sum(), wide)
    assert torch.allclose(got.double(), true.nan_to_num(0.0), rtol=1e-4, atol=1e-6)
    alone = smelt.indexer_loss(logits, target, indices, rows=21, weight=weight, backend=backend)
    assert torch.equal(alone, loss)


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_loss_of_what_is_not_finite(device, backend):
    logits = torch.tensor([[1.0, float("nan"), 2.0], [NEVER, 0.0, 1.0]], device=device)
    target = torch.tensor([[0.5, 0.0, float("nan")], [0.5, 0.5, -1.0]], device=device)
    indices = torch.tensor([[0, 1, 2], [0, 1, 2]], dtype=torch.int32, device=device)
    (leaf,) = wanting(logits)
    loss, losses = smelt.indexer_loss(leaf, target, indices, return_losses=True, backend=backend)
    want = -torch.tensor([1.0, 2.0]).log_softmax(0)[0]
    assert torch.allclose(losses[0].cpu(), want) and losses[1] == float("inf")
    (grad,) = torch.autograd.grad(loss, leaf)
    assert bool(grad.isfinite().all()) and grad[1, 0] == -0.5


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_scores_of_blocks(device, backend):
    """MSA's logits: a list for each group of heads, no ReLU, no weights, the largest logit of each block's keys."""
    generator = torch.Generator().manual_seed(5)
    q = torch.randn(3, 4, 64, generator=generator).to(device, torch.bfloat16).requires_grad_()
    k = torch.randn(50, 64, generator=generator).to(device, torch.bfloat16).requires_grad_()
    blocks = torch.randint(-1, 8, (3, 2, 4), generator=generator).to(device, torch.int32)
    limit = torch.tensor([0, 21, 99], dtype=torch.int32, device=device)
    options = {"activation": "none", "block_max": 8, "limit": limit, "scale": 0.5, "backend": backend}
    got = smelt.indexer_scores(q, k, None, blocks, **options)
    grad = torch.randn(got.shape, generator=generator).to(device)
    wanted_q, wanted_k = (each.detach().double().requires_grad_() for each in (q, k))
    every = 0.5 * torch.einsum("thd,sd->ths", wanted_q, wanted_k).unflatten(1, (2, 2)).sum(2)
    keys = torch.arange(50, device=device)
    every = every.masked_fill(keys >= limit[:, None, None], float("-inf"))
    every = torch.nn.functional.pad(every, (0, 6 + 8), value=float("-inf")).unflatten(-1, (8, 8)).amax(-1)
    wanted = every.gather(-1, torch.where(blocks < 0, 7, blocks).long())
    assert torch.equal(got == float("-inf"), wanted == float("-inf")) and (got[0] == float("-inf")).all()
    named = wanted > float("-inf")
    length = torch.tensor([4, 2, 3], dtype=torch.int32, device=device)  # of both groups' lists
    shorter = smelt.indexer_scores(q, k, None, blocks, topk_length=length, **options)
    listed = torch.arange(4, device=device) < length[:, None, None]
    assert torch.equal(shorter, got.masked_fill(~listed, float("-inf")))
    for name, wrong, kind in (
        ("limit", [0, 21, 99], TypeError), ("limit", limit.unsqueeze(1), ValueError),
        ("topk_length", length.expand(2, 3), ValueError), ("topk_length", length.view(3, 1), ValueError),
        ("weights", torch.ones(3, 4, dtype=torch.int32, device=device), TypeError),
        ("weights", torch.ones(3, 4, dtype=torch.complex64, device=device), TypeError),
        ("weights", torch.ones(4, device=device), ValueError), ("scale", float("nan"), ValueError),
        ("scale", float("inf"), ValueError),
    ):  # fmt: skip
        with pytest.raises(kind, match=f"smelt: .*{name}"):
            smelt.indexer_scores(**{"q": q, "k": k, "weights": None, "indices": blocks, **options, name: wrong})
    torch.testing.assert_close(got[named].double(), wanted[named], rtol=1e-5, atol=1e-4)
    torch.autograd.backward(got[named], grad[named])
    torch.autograd.backward(wanted[named], grad[named].double())
    for each, true in ((q, wanted_q), (k, wanted_k)):
        assert (each.grad.double() - true.grad).norm() <= 1e-2 * true.grad.norm()


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_scores_below_a_limit(device, backend):
    """As if the lists had no keys from it on; what the loss says of these slots is not read."""
    generator = torch.Generator().manual_seed(6)
    q = torch.randn(3, 4, 64, generator=generator).to(device, torch.bfloat16)
    k = torch.randn(50, 64, generator=generator).to(device, torch.bfloat16)
    weights = torch.randn(3, 4, generator=generator).to(device)
    indices = torch.randint(-1, 51, (3, 20), generator=generator).to(device, torch.int32)
    limit = torch.tensor([0, 21, 99], dtype=torch.int32, device=device)
    found = []
    for lists, own in ((indices, limit), (indices.where(indices < limit.unsqueeze(1), -1), None)):
        leaves = [each.detach().clone().requires_grad_() for each in (q, k, weights)]
        logits = smelt.indexer_scores(*leaves, lists, limit=own, backend=backend)
        grad = torch.where(logits > float("-inf"), 1.0, float("nan"))
        logits.backward(grad)
        found.append([logits, *(each.grad for each in leaves)])
    for got, wanted in zip(*found):
        assert torch.equal(got, wanted)
