"""Results and gradients against the eager reference in double precision."""

import functools
import math

import pytest
import smelt_kernels as smelt
import torch
from conftest import Operators, Problem, check_grad, check_out, check_sums

CASES = {
    "plain": {}, "one head, one token": {"heads": 1, "tokens": 1, "width": 1, "masked": 0.0}, "narrow": {"dqk": 64},
    "rotary": {"dqk": 192, "heads": 2, "tokens": 3}, "widths of 16s": {"dqk": 160, "dv": 128, "heads": 2, "tokens": 3},
    "and not of 32s": {"dqk": 48, "dv": 16, "heads": 2, "tokens": 3}, "all widths but one masked": {"masked": 0.95},
    "sink": {"sink": True}, "lengths": {"lengths": True}, "batches": {"batches": 2, "sink": True, "lengths": True},
    "ragged heads": {"heads": 17, "tokens": 2},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_results_and_gradients(device, case):
    problem = Problem(device, **case)
    out, lse, highest = problem.run(return_lse=True, return_max_logits=True)
    true_out, true_lse, true_highest, true_grads = problem.truth()
    check_out(out, true_out)
    check_sums(lse, true_lse)
    check_sums(highest, true_highest)
    grads = torch.autograd.grad(out, problem.leaves(), problem.grad_out)
    for got, true, leaf in zip(grads, true_grads, problem.leaves()):
        assert got.dtype is leaf.dtype
        check_grad(got, true)


@pytest.mark.parametrize("buckets,topk,width", [("auto", None, 130), ([4], 8, 12), ((2, 4), 128, 9)])
def test_buckets(device, buckets, topk, width):
    """Rows may be wider than topk: the first valid slots are used."""
    problem = Problem(device, width=width, tokens=4, lengths=True, sink=True, masked=0.6)
    out, lse = problem.run(return_lse=True, buckets=buckets, topk=topk)
    true_out, true_lse, _, true_grads = problem.truth(topk=topk)
    check_out(out, true_out)
    check_sums(lse, true_lse)
    for got, true in zip(torch.autograd.grad(out, problem.leaves(), problem.grad_out), true_grads):
        check_grad(got, true)


def test_layouts_that_need_a_copy(device):
    """A last dimension that is not contiguous, rows that are not aligned to 16 bytes, expanded gradients."""
    plain = Problem(device)
    want = plain.run()
    columns = plain.q.detach().transpose(-1, -2).contiguous().transpose(-1, -2)
    odd = torch.zeros(plain.kv.numel() + 1, device=device, dtype=torch.bfloat16)[1:].view(plain.kv.shape)
    odd.copy_(plain.kv.detach())
    columns.requires_grad_(), odd.requires_grad_()
    got = smelt.sparse_attention(columns, odd, plain.indices, plain.scale, backend="smelt")
    assert torch.equal(got, want)
    got.sum().backward()
    _, _, _, true = plain.truth(grad_out=torch.ones_like(want))
    check_grad(columns.grad, true[0])
    check_grad(odd.grad, true[1])


def test_one_query_for_all(device):
    """A q that is expanded along every dimension: all its strides are 0."""
    problem = Problem(device, tokens=4, heads=2, grad=False)
    one = problem.q[:1, :1, :]
    problem.q = one.expand(4, 2, -1)
    out = problem.run()
    check_out(
        out, smelt.sparse_attention(problem.q.contiguous(), problem.kv, problem.indices, problem.scale, backend="torch")
    )


@pytest.mark.parametrize(
    "sizes",
    [{"tokens": 0}, {"rows": 0, "masked": 1.0}, {"width": 0}, {"batches": 0}, {"batches": 2, "tokens": 0}, {"masked": 1.0}],
    ids=["no token", "no row", "no slot", "no batch", "no token in a batch", "no valid slot"],
)
@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_nothing_at_all(device, sizes, backend):
    problem = Problem(device, sink=True, **sizes)
    out, lse = problem.run(return_lse=True, backend=backend)
    assert out.shape == problem.grad_out.shape and bool((out == 0).all())
    assert lse.shape == out.shape[:-1] and bool((lse == float("-inf")).all())
    for grad, leaf in zip(torch.autograd.grad(out, problem.leaves(), problem.grad_out), problem.leaves()):
        assert grad.shape == leaf.shape and bool((grad == 0).all())


def test_lse_by_name(device):
    problem = Problem(device, grad=False)
    _, natural = problem.run(return_lse=True)
    _, base2 = problem.run(return_lse=True, lse="base2")
    check_sums(base2, natural.double() * math.log2(math.e))
    with pytest.raises(ValueError, match="lse must be one of"):
        problem.run(return_lse=True, lse="e")


def compiled(**options):
    """sparse_attention in a graph of torch.compile."""

    def call(q, kv, indices, scale):
        return smelt.sparse_attention(q, kv, indices, scale, backend="smelt", **options)

    return torch.compile(call, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_kv_gradient_in_fp32(device, how):
    """Under autocast, kv in fp32 gets its gradient without a rounding to bf16 on request."""
    problem = Problem(device)
    kv = problem.kv.detach().float().requires_grad_()
    q = problem.q.detach().float().requires_grad_()
    grads = {}
    for kind in (torch.float32, torch.bfloat16):
        call = functools.partial(smelt.sparse_attention, dkv_dtype=kind, backend="smelt")
        if how == "compiled":
            call = compiled(dkv_dtype=kind)
        with torch.autocast(device.type, torch.bfloat16):
            out = call(q, kv, problem.indices, problem.scale)
        assert out.dtype is torch.bfloat16
        _, grads[kind] = torch.autograd.grad(out, (q, kv), problem.grad_out)
        assert grads[kind].dtype is torch.float32
        check_grad(grads[kind], problem.truth()[3][1])
    assert torch.equal(grads[torch.bfloat16], grads[torch.bfloat16].bfloat16().float())
    assert not torch.equal(grads[torch.float32], grads[torch.float32].bfloat16().float())
    rounded = grads[torch.float32].bfloat16().float()
    assert torch.allclose(rounded, grads[torch.bfloat16], rtol=2**-7, atol=1e-6)


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="this PyTorch declares no types")
@pytest.mark.parametrize("how", ["eager", "again", "operator"])
def test_kv_gradient_of_a_declared_type(device, how):
    """A leaf in bf16 whose gradient is declared to be in fp32 gets the sum as it is."""
    problem = Problem(device)
    problem.kv.grad_dtype = torch.float32
    for _ in range(2 if how == "again" else 1):
        problem.kv.grad = None
        if how == "operator":
            with Operators():
                out = problem.run(dkv_dtype=torch.float32)
        else:
            out = problem.run(dkv_dtype=torch.float32)
        out.backward(problem.grad_out)
    got = problem.kv.grad
    assert got.dtype is torch.float32 and not torch.equal(got, got.bfloat16().float())
    check_grad(got, problem.truth()[3][1])


def test_without_autograd(device):
    """sparse_attention_backward; dkv_sum is added to."""
    problem = Problem(device, sink=True, grad=False)
    out, lse = problem.run(return_lse=True)
    common = {"sink": problem.sink, "deterministic": True}
    arguments = (problem.grad_out, problem.q, problem.kv, problem.indices, out, lse, problem.scale)
    dq, dkv, dsink = smelt.sparse_attention_backward(*arguments, dkv_dtype=torch.float32, **common)
    total = torch.full_like(dkv, 2.0)
    dq2, returned, dsink2 = smelt.sparse_attention_backward(*arguments, dkv_sum=total, **common)
    assert returned is total
    assert torch.equal(dq, dq2) and torch.equal(dsink, dsink2)
    assert torch.allclose(total, dkv + 2.0, rtol=0, atol=1e-6 * float(dkv.abs().max()) + 1e-6)
    for got, true in zip((dq, dkv, dsink), problem.truth()[3]):
        check_grad(got, true)


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_extreme_sinks(device, backend):
    """A sink far above the scores leaves nothing to the slots; only a NaN makes results NaN, those of its own head."""
    problem = Problem(device, heads=6)
    sink = torch.tensor([1.0, 200.0, 3e38, float("inf"), float("-inf"), float("nan")], device=device).requires_grad_()
    problem.sink = sink
    out, lse = problem.run(return_lse=True, backend=backend)
    dq, dkv, dsink = torch.autograd.grad(out, (problem.q, problem.kv, sink), problem.grad_out)
    some = (lse[:, 0] > float("-inf")).unsqueeze(1)  # the queries with a valid slot
    assert not out[:, 1:4].any() and not dq[:, 1:4].any() and not dsink[1:5].any() and dsink[0] != 0
    assert out[:, 4].any() and dq[:, 4].any() and not out[:, :5].isnan().any() and not dq[:, :5].isnan().any()
    assert dsink[5].isnan() and (out[:, 5].isnan() == some).all() and (dq[:, 5].isnan() == some).all()
    assert not lse.isnan().any() and dkv.isnan().any()


@pytest.mark.parametrize("backend", ["smelt", "torch"])
def test_query_list(device, backend):
    problem = Problem(device, sink=True)
    queries = torch.tensor([3, 99, -1, 0, 2], dtype=torch.int32, device=device)
    count = torch.tensor([4], dtype=torch.int32, device=device)  # leaves out 2
    whole, sums = problem.run(return_lse=True, backend=backend)
    out, lse = problem.run(return_lse=True, queries=queries, query_count=count, backend=backend)
    for query in range(problem.q.shape[0]):
        if query in (0, 3):
            assert torch.equal(out[query], whole[query]) and torch.equal(lse[query], sums[query])
        else:
            assert bool((out[query] == 0).all()) and bool((lse[query] == float("-inf")).all())
    grads = torch.autograd.grad(out, problem.leaves(), problem.grad_out)
    only = torch.zeros_like(problem.grad_out)
    only[[0, 3]] = problem.grad_out[[0, 3]]
    for got, true in zip(grads, problem.truth(grad_out=only)[3]):
        check_grad(got, true)


def test_deterministic_as_pytorch_says(device, monkeypatch):
    """The setting is read when the gradient is computed; an argument takes precedence."""
    problem = Problem(device, tokens=2)
    made = []
    operator = smelt._runtime.operator
    monkeypatch.setattr(smelt._runtime, "operator", lambda device, spec: made.append(spec) or operator(device, spec))
    for setting, requested, expected in (
        (False, None, False),
        (True, None, True),
        (True, False, False),
        (False, True, True),
    ):
        out = problem.run(deterministic=requested)
        torch.use_deterministic_algorithms(setting)
        smelt._runtime._found.clear()  # results of searches are cached
        try:
            out.backward(problem.grad_out)
        finally:
            torch.use_deterministic_algorithms(False)
        assert ("deterministic=1" in made[-1]) == expected and "passes=backward" in made[-1]


def test_same_bits_when_deterministic(device):
    problem = Problem(device, tokens=6, heads=4, rows=4, masked=0.0)
    grads = [torch.autograd.grad(problem.run(deterministic=True), problem.leaves(), problem.grad_out) for _ in range(2)]
    assert all(torch.equal(one, two) for one, two in zip(*grads))


def test_value_projection(device):
    problem = Problem(device, grad=False)
    out = problem.run().requires_grad_()
    weight = torch.randn(3, 32, problem.dv, device=device).bfloat16().requires_grad_()
    got = smelt.project_values(out, weight)
    want = torch.einsum("thv,hwv->thw", out.float(), weight.float())
    assert torch.allclose(got.float(), want, rtol=2e-2, atol=2e-2)
    got.sum().backward()
    assert out.grad.shape == out.shape and weight.grad.shape == weight.shape
    with pytest.raises(ValueError, match=r"weight \[H, width, dv\]"):
        smelt.project_values(out, weight[:2])


def exact_dq(q, kv, lists, lse, sink, scale, grad_out, out):
    """dq in double precision, and each row's permitted error by docs/operators.md: rounding to bf16 and in fp32, and
    the error of delta, which is computed from out."""
    q, kv, lse, grad_out, out = (t.detach().double() for t in (q, kv, lse, grad_out, out))
    keys = kv[lists.long()]
    base = lse if sink is None else torch.logaddexp(lse, sink.double())
    p = (torch.einsum("thd,tkd->thk", q, keys) * scale - base[..., None]).exp()
    dp = torch.einsum("thd,tkd->thk", grad_out, keys)
    ds = scale * p * (dp - (p * dp).sum(-1, keepdim=True))
    dq = torch.einsum("thk,tkd->thd", ds, keys)
    lengths = keys.norm(dim=-1)[:, None]
    sizes = torch.einsum("thd,tkd->thk", grad_out.abs(), keys.abs())
    own = 8e-3 * (ds.abs() * lengths).sum(-1)
    lost = 4e-6 * scale * (p * lengths * sizes).sum(-1)
    delta = 2**-9 * ((out * grad_out).abs().sum(-1) + (p * dp.abs()).sum(-1))
    return dq, own + lost + scale * delta * torch.einsum("thk,tkd->thd", p, keys).norm(dim=-1)


@pytest.mark.parametrize("distinct,slots,near,sink", [(1, 64, 1.0, 1.0), (2, 2, 0.05, None)])
def test_few_distinct_keys(device, distinct, slots, near, sink):
    """dp and delta nearly cancel: dq is within the documented bound; with a coarser out it is not."""
    made = torch.Generator().manual_seed(3)
    tokens, heads, dim = 16, 8, 128

    def normal(*shape):
        return torch.randn(*shape, generator=made)

    rows = normal(1, dim) * (1 - near) + normal(tokens + 1, dim) * near  # a small `near` makes rows similar
    made_up = (normal(tokens, heads, dim), rows, normal(tokens, heads, dim))
    q, kv, grad_out = (t.bfloat16().to(device) for t in made_up)
    lists = (torch.arange(tokens)[:, None] + torch.arange(slots) % distinct).int().to(device)
    sinks = None if sink is None else torch.full((heads,), sink, device=device)
    options = {"topk": 64, "sink": sinks}
    scale = dim**-0.5
    leaf = q.clone().requires_grad_()
    out, lse = smelt.sparse_attention(leaf, kv, lists, scale, dv=dim, return_lse=True, backend="smelt", **options)
    out.backward(grad_out)
    dq, bound = exact_dq(q, kv, lists, lse, sinks, scale, grad_out, out)

    def within(got):
        return bool(((got.double() - dq).norm(dim=-1) <= bound).all())

    assert within(leaf.grad)
    coarse = out.detach().to(torch.float8_e4m3fn).to(torch.bfloat16)  # four bits less
    assert not within(smelt.sparse_attention_backward(grad_out, q, kv, lists, coarse, lse, scale, **options)[0])
