"""Megatron-LM's calls of TileLang's kernels, against definitions in double precision."""

import math
import sys
import types

import pytest
import smelt_kernels as smelt
import smelt_kernels.compat
import torch
from conftest import Problem, check_grad, check_out, check_sums
from smelt_kernels.compat import megatron

NEVER = float("-inf")


@pytest.fixture(params=[None, 2], ids=["one", "batches"])
def problem(device, request):
    made = Problem(device, tokens=4, rows=9, heads=2, dqk=576, width=6, batches=request.param)
    made.indices[..., 2, :] = -1  # an empty row
    return made


def test_attention(problem):
    true, true_lse, _, grads = problem.truth()
    kv, lists = problem.kv.unsqueeze(-2), problem.indices.unsqueeze(-2)
    out, lse = megatron.SparseMLA.apply(problem.q, kv, lists, problem.scale)
    check_out(out, true)
    full = true_lse != NEVER
    check_sums(lse[full], true_lse[full] * math.log2(math.e))
    assert bool((lse[~full] == 0).all()) and not bool(full.all())
    for got, want in zip(torch.autograd.grad(out, problem.leaves(), problem.grad_out), grads, strict=True):
        check_grad(got, want)
    plain = problem.q.detach(), kv.detach()
    alone = megatron.sparse_mla_fwd_interface(*plain, lists, sm_scale=problem.scale, block_I=64)
    assert torch.equal(alone[0], out) and torch.equal(alone[1], lse)
    delta = megatron.sparse_mla_delta(alone[0], problem.grad_out)
    assert delta.shape == lse.shape and delta.dtype is torch.float32
    for o in (alone[0], None):
        dq, dkv = megatron.sparse_mla_bwd(*plain, o, problem.grad_out, lists, lse, sm_scale=problem.scale, delta=delta)
        assert dq.shape == problem.q.shape and dkv.shape == kv.shape
        check_grad(dq, grads[0])
        check_grad(dkv.squeeze(-2), grads[1])
    with pytest.raises(ValueError, match="o or delta"):
        megatron.sparse_mla_bwd(*plain, None, problem.grad_out, lists, lse)


@pytest.fixture(params=[64, 16], ids=["kernels", "eager"])
def indexer(device, request):
    """q, k, weights, windows; the kernels have no dimension of 16."""
    made = torch.Generator().manual_seed(3)
    q = torch.randn(5, 3, request.param, generator=made).to(device, torch.bfloat16)
    k = torch.randn(9, request.param, generator=made).to(device, torch.bfloat16)
    weights = torch.randn(5, 3, generator=made).to(device)
    begin = torch.tensor([0, 0, 2, 9, 3], device=device)
    end = torch.tensor([1, 9, 5, 9, 9], device=device)
    return q, k, weights, begin, end


def truth(q, k, weights, begin, end, use_relu):
    """Differentiable logits in double precision."""
    products = torch.einsum("thd,sd->ths", q.double(), k.double())
    products = products.relu() if use_relu else products
    logits = (products * weights.double()[..., None]).sum(1)
    key = torch.arange(k.shape[0], device=q.device)
    return logits.masked_fill((key < begin[:, None]) | (key >= end[:, None]), NEVER)


@pytest.mark.parametrize("use_relu", [True, False], ids=["relu", "linear"])
@pytest.mark.filterwarnings("ignore:smelt")
def test_indexer(indexer, use_relu):
    *inputs, begin, end = indexer
    want = truth(*inputs, begin, end, use_relu)
    logits = megatron.indexer_fwd_interface(*inputs, begin, end, use_relu=use_relu)
    check_sums(logits, want)

    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    scores, indices = megatron.lighting_indexer(*leaves, begin, end, 4, use_relu=use_relu)
    assert scores.shape == indices.shape == (5, 4) and indices.dtype is torch.int32
    best, _ = want.topk(4)
    check_sums(scores.detach(), best)
    assert torch.equal(indices < 0, best == NEVER)
    rows = torch.arange(5, device=logits.device)[:, None]
    assert torch.allclose(want[rows, indices.long().clamp(min=0)][indices >= 0], best[indices >= 0], rtol=1e-5)
    alone = megatron.lighting_indexer_indices(*inputs, begin, end, 4, use_relu=use_relu)
    assert torch.equal(alone, indices)
    given, same = megatron.lighting_indexer(*leaves, begin, end, 4, topk_indices=indices, use_relu=use_relu)
    assert same is indices
    check_sums(given.detach(), best)

    grad = torch.randn(scores.shape, device=scores.device)
    doubles = [tensor.detach().double().requires_grad_() for tensor in inputs]
    at = truth(*doubles, begin, end, use_relu).gather(1, indices.long().clamp(min=0))
    used = indices >= 0
    true = torch.autograd.grad(at[used], doubles, grad[used].double())
    for got in (scores, given):
        for one, two in zip(torch.autograd.grad(got[used], leaves, grad[used]), true, strict=True):
            check_grad(one, two)
    q, k, weights = inputs
    dq, dw, dk = megatron.indexer_bwd_interface(q, weights, k, indices, grad, use_relu=use_relu)
    assert dk.dtype is torch.bfloat16 and dw.dtype is torch.float32
    for one, two in zip((dq, dk, dw), true, strict=True):
        check_grad(one, two)


@pytest.mark.parametrize("use_relu", [True, False], ids=["relu", "linear"])
def test_more_slots_than_keys(device, use_relu):
    """As many slots as there are keys; none of none."""
    q = torch.randn(3, 2, 64, device=device).bfloat16()
    weights = torch.ones(3, 2, device=device)
    begin = torch.zeros(3, dtype=torch.int32, device=device)
    for keys in (2, 0):
        k = torch.randn(keys, 64, device=device).bfloat16()
        scores, indices = megatron.lighting_indexer(q, k, weights, begin, begin + keys, 8, use_relu=use_relu)
        assert scores.shape == indices.shape == (3, keys)
        assert indices.sort(-1).values.tolist() == [list(range(keys))] * 3


def test_target_and_loss(device):
    problem = Problem(device, tokens=4, rows=9, heads=2, dqk=576, width=6, grad=False)
    problem.indices[2] = -1
    target = megatron.sparse_indexer_target_interface(problem.q, problem.kv, problem.indices, problem.scale)
    keys = problem.kv.double()[problem.indices.clamp(min=0).long()]
    products = torch.einsum("thd,twd->thw", problem.q.double(), keys) * problem.scale
    slots = problem.indices >= 0
    want = products.masked_fill(~slots[:, None], NEVER).softmax(-1).nan_to_num(0.0).sum(1)
    assert torch.allclose(target.double(), want, rtol=1e-3, atol=1e-5)

    logits = torch.randn(slots.shape, device=device).requires_grad_()
    loss = megatron.SparseIndexerKLLoss.apply(target, logits, slots)
    double = logits.detach().double().requires_grad_()
    used = slots.any(1)
    share = (want / want.sum(-1, keepdim=True))[used]
    predict = double.masked_fill(~slots, NEVER)[used].log_softmax(-1)
    true = torch.where(slots[used], torch.xlogy(share, share) - share * predict, 0.0).sum()
    assert abs(loss.item() - true.item()) <= 1e-4 * abs(true.item())
    (got,) = torch.autograd.grad(2 * loss, logits)
    check_grad(got, torch.autograd.grad(2 * true, double)[0])


def test_install(monkeypatch):
    """Into modules that look as Megatron's do without TileLang."""
    for name in ("", *megatron.MODULES):
        path = megatron.PACKAGE + ("." + name if name else "")
        parts = path.split(".")
        for at in range(1, len(parts) + 1):
            monkeypatch.setitem(
                sys.modules,
                ".".join(parts[:at]),
                sys.modules.get(".".join(parts[:at])) or types.ModuleType(parts[at - 1]),
            )
    modules = {name: sys.modules[f"{megatron.PACKAGE}.{name}"] for name in megatron.MODULES}
    modules["tilelang_dsa"].SparseMLA = None
    modules["indexer"].HAVE_TILELANG_INDEXER = False
    modules["indexer"].other = 1
    smelt.compat.install("megatron")
    for name, calls in megatron.MODULES.items():
        for call in calls:
            assert getattr(modules[name], call) is getattr(megatron, call)
    assert modules["indexer"].HAVE_TILELANG_INDEXER and modules["indexer"].other == 1
    assert modules["sparse_mla"].HAVE_TILELANG_SPARSE_MLA
