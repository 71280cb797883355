"""The drop-ins against what the originals document: shapes, types, masks, lse conventions, empty rows.

The truth is computed here from each original's own definition, in double precision.
"""

import inspect
import math
import re
import subprocess
import sys
import types

import pytest
import smelt_kernels as smelt
import smelt_kernels.compat
import torch
from conftest import Problem, check_grad, check_out, check_sums
from smelt_kernels.compat import cudnn, deep_gemm, flash_mla, miles, nemo, prime_rl, slime, tilelang


def attend(q, kv, indices, scale, dv, sink=None):
    """out, natural lse without the sink, of indices whose negative slots are masked; differentiable."""
    out, lse, _ = smelt._reference.sparse_attention(q, kv, indices, scale, dv, sink=sink)
    return out, lse


def doubled(*tensors):
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


@pytest.fixture
def problem(device):
    made = Problem(device, tokens=5, rows=9, heads=2, dqk=192, sink=True, width=7, grad=False)
    made.indices[2] = -1  # an empty row
    return made


def test_flash_mla(device):
    problem = Problem(device, tokens=3, rows=9, heads=1, dqk=576, width=5, lengths=True, sink=True, grad=False)
    problem.indices[1] = -1
    problem.indices[0, 0] = 9  # not below s_kv: masked, too
    out, max_logits, lse = flash_mla.flash_mla_sparse_fwd(
        problem.q,
        problem.kv.unsqueeze(1),
        problem.indices.unsqueeze(1),
        problem.scale,
        attn_sink=problem.sink,
        topk_length=problem.topk_length,
    )
    true_out, true_lse, true_max = smelt._reference.sparse_attention(
        problem.q.double(),
        problem.kv.double(),
        problem.indices,
        problem.scale,
        512,
        sink=problem.sink,
        topk_length=problem.topk_length,
    )
    assert out.shape == (3, 1, 512) and out.dtype is torch.bfloat16
    check_out(out, true_out)
    check_sums(max_logits, true_max)
    empty = true_lse == float("-inf")
    assert bool(empty[1].all()) and bool((lse[empty] == float("inf")).all())
    check_sums(lse.masked_fill(empty, 0), true_lse.masked_fill(empty, 0))
    with pytest.raises(ValueError, match="one KV head"):
        flash_mla.flash_mla_sparse_fwd(
            problem.q, problem.kv.unsqueeze(1).expand(-1, 2, -1), problem.indices.unsqueeze(1), problem.scale
        )


def test_cudnn(problem):
    """Forward and backward by the wrappers, lse as FlashMLA gives it."""
    forward = cudnn.sparse_attention_forward_wrapper(
        problem.q, problem.kv, problem.indices, problem.sink, softmax_scale=problem.scale
    )
    q, kv, sink = doubled(problem.q, problem.kv, problem.sink)
    out, _ = attend(q, kv, problem.indices, problem.scale, problem.dv, sink)
    check_out(forward["out"], out)
    given = torch.empty_like(problem.q)
    result = cudnn.sparse_attention_backward_wrapper(
        problem.q,
        problem.kv,
        forward["out"],
        problem.grad_out,
        forward["lse"],
        problem.sink,
        problem.indices,
        softmax_scale=problem.scale,
        dq=given,
    )
    assert tuple(result.keys()) == ("dq", "dkv", "d_sink") and result["dq"] is given
    dq, dkv, dsink = result
    assert dsink.dtype is torch.float32 and dkv.shape == problem.kv.shape
    for got, true in zip((dq, dkv, dsink), torch.autograd.grad(out, (q, kv, sink), problem.grad_out.double())):
        check_grad(got, true)
    assert tuple(forward.keys()) == ("out", "max_logits", "lse", "lse_indexer")
    whole = cudnn.sparse_attention_backward_wrapper(
        problem.q,
        problem.kv,
        forward["out"],
        problem.grad_out,
        forward["lse"],
        problem.sink,
        problem.indices,
        problem.scale,
        None,
        None,
        torch.empty_like(problem.kv, dtype=torch.float32),
        64,
        True,  # deterministic, before the stream
        None,
        workspace=torch.empty(1, dtype=torch.uint8),
    )
    assert whole["dkv"].dtype is torch.float32 and bool((whole["dkv"] != dkv).any())
    check_grad(whole["dkv"], dkv.double())


def test_lse_of_the_first_slots(device):
    """indexer_topk: lse of them alone, natural, without the sink, +inf where none of them is valid."""
    problem = Problem(device, tokens=5, rows=9, heads=2, dqk=192, width=7, lengths=True, sink=True, grad=False)
    problem.indices[2] = torch.tensor([-1] * 4 + [5] * 3, device=device)
    problem.indices[3] = torch.arange(7, device=device)
    problem.topk_length[2:] = 7
    options = {"attn_sink": problem.sink, "topk_length": problem.topk_length}
    given = problem.q, problem.kv.unsqueeze(1), problem.indices.unsqueeze(1), problem.scale, 128
    three = flash_mla.flash_mla_sparse_fwd(*given, **options)
    assert len(three) == 3
    for count in (1, 4, 7, 9):
        *same, first = flash_mla.flash_mla_sparse_fwd(*given, **options, indexer_topk=count)
        assert all(torch.equal(one, two) for one, two in zip(same, three))
        _, want, _ = smelt._reference.sparse_attention(
            problem.q.double(),
            problem.kv.double(),
            problem.indices[:, :count],
            problem.scale,
            128,
            topk_length=problem.topk_length,
        )
        empty = want == float("-inf")
        assert bool((first[empty] == float("inf")).all()) and bool(empty[2].all()) == (count <= 4)
        check_sums(first.masked_fill(empty, 0), want.masked_fill(empty, 0))
        if count > 7:
            continue
        result = cudnn.sparse_attention_forward_wrapper(
            problem.q, problem.kv, problem.indices, softmax_scale=problem.scale, indexer_topk=count, **options
        )
        assert torch.equal(result["lse_indexer"], first) and torch.equal(result["out"], same[0])
    theirs = problem.q, problem.kv, problem.indices
    for wrong, error in ((-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match="indexer_topk"):
            flash_mla.flash_mla_sparse_fwd(*given, indexer_topk=wrong)
        with pytest.raises(error, match="indexer_topk"):
            cudnn.sparse_attention_forward_wrapper(*theirs, indexer_topk=wrong)
    with pytest.raises(ValueError, match="0 to 7"):
        cudnn.sparse_attention_forward_wrapper(*theirs, indexer_topk=8)


def test_cudnn_composition_for_training(device):
    """Differentiable attention, and the distribution that the indexer learns, at the same slots."""
    problem = Problem(device, tokens=5, rows=9, heads=2, dqk=192, width=7, lengths=True, sink=True)
    problem.indices[2] = -1
    problem.indices[0, 0] = 9  # not below S: masked, too
    given = problem.q, problem.kv, problem.indices
    options = {"softmax_scale": problem.scale, "topk_length": problem.topk_length}
    result = cudnn.sparse_attention(*given, problem.sink, **options)
    assert tuple(result.keys()) == ("out", "max_logits", "lse")
    true_out, true_lse, true_max, true_grads = problem.truth()
    empty = true_lse == float("-inf")
    check_out(result["out"], true_out)
    check_sums(result["max_logits"], true_max)
    assert bool((result["lse"][empty] == float("inf")).all()) and bool(empty[2].all())
    check_sums(result["lse"].masked_fill(empty, 0), true_lse.masked_fill(empty, 0))
    grads = torch.autograd.grad(result["out"], problem.leaves(), problem.grad_out)
    for got, true in zip(grads, true_grads):
        check_grad(got, true)

    target, indices = cudnn.sparse_attention_score_recompute(*given[:2], result["lse"], problem.indices, **options)
    slots = torch.arange(7, device=device)
    valid = (problem.indices >= 0) & (problem.indices < 9) & (slots < problem.topk_length[:, None])
    assert torch.equal(indices, problem.indices.masked_fill(~valid, -1))
    rows = problem.kv.detach().double()[indices.clamp(min=0).long()]
    scores = torch.einsum("thd,twd->thw", problem.q.detach().double(), rows) * problem.scale
    want = scores.masked_fill(~valid[:, None], float("-inf")).softmax(-1).nan_to_num(0.0).sum(1)
    want = want / want.sum(-1, keepdim=True).clamp(min=1e-30)
    assert torch.allclose(target.double(), want, rtol=1e-3, atol=1e-5)
    with pytest.raises(TypeError, match="trusted_compact_metadata"):
        cudnn.sparse_attention(*given, trusted_compact_metadata=1)
    none = cudnn.sparse_attention(*given, None, problem.scale)["out"]
    lists = problem.indices.masked_fill(problem.indices > 8, -1)
    check_out(none, attend(*doubled(*given[:2]), lists, problem.scale, 128)[0])


def test_cudnn_without_a_sink(problem):
    """attn_sink is -inf then."""
    none = torch.full_like(problem.sink, float("-inf"))
    out, _, lse = flash_mla.flash_mla_sparse_fwd(
        problem.q, problem.kv.unsqueeze(1), problem.indices.unsqueeze(1), problem.scale, problem.dv
    )
    result = cudnn.sparse_attention_backward_wrapper(
        problem.q, problem.kv, out, problem.grad_out, lse, none, problem.indices, problem.scale
    )
    q, kv = doubled(problem.q, problem.kv)
    true, _ = attend(q, kv, problem.indices, problem.scale, problem.dv)
    for got, grad in zip((result["dq"], result["dkv"]), torch.autograd.grad(true, (q, kv), problem.grad_out.double())):
        check_grad(got, grad)
    assert bool((result["d_sink"] == 0).all())


@pytest.mark.parametrize("weight", [0.0, 30.0], ids=["small sink", "sink that dominates"])
def test_miles(device, weight):
    """lse has the sink in it; the backward pass keeps its digits where the sink is nearly all of it."""
    problem = Problem(device, batches=2, tokens=3, rows=9, heads=2, dqk=128, sink=True, grad=False)
    problem.indices[0, 1] = -1
    problem.indices[1, 0, 0] = 9  # outside
    sink = (problem.sink + weight).requires_grad_()
    leaves = doubled(problem.q, problem.kv, sink)
    true, true_lse = attend(leaves[0], leaves[1], problem.indices, problem.scale, 128, leaves[2])
    whole = torch.logaddexp(true_lse.double(), leaves[2].detach().expand_as(true_lse)) * math.log2(math.e)
    grads = torch.autograd.grad(true, leaves, problem.grad_out.double())

    out, lse = miles.sparse_mqa_fwd_interface(problem.q, problem.kv, sink, problem.indices, problem.scale)
    check_out(out, true)
    check_sums(lse, whole)
    got = miles.sparse_mqa_bwd_interface(
        problem.q,
        problem.kv,
        sink,
        out,
        problem.grad_out,
        problem.indices,
        lse,
        problem.scale,
        return_dkv_accum_dtype=True,
    )
    assert got[1].dtype is torch.float32
    if weight == 0.0:
        for one, two in zip(got, grads):
            check_grad(one, two)
    # By autograd: out is rounded to bf16 before delta is taken, in both.
    q, kv = problem.q.clone().requires_grad_(), problem.kv.clone().requires_grad_()
    attended = miles.DeepSeekV4SparseAttention.apply(q, kv, sink, problem.indices, problem.scale)
    chunked = miles.sparse_attn_tilelang_head_chunked(q, kv, sink, problem.indices, 1, problem.scale)
    assert torch.equal(attended, chunked)
    direct = torch.autograd.grad(attended, (q, kv, sink), problem.grad_out)
    for one, two, true_grad in zip(direct, got, grads):
        largest = float(true_grad.abs().max())
        assert float((one.double() - two.double()).abs().max()) <= 0.02 * largest
    _, with_lse = miles.sparse_attn_tilelang(q, kv, sink, problem.indices, problem.scale, return_lse=True)
    assert torch.equal(with_lse, lse)


def test_prime_rl(device):
    """The last row of kv is a sentinel; bucketed and plain agree."""
    problem = Problem(device, batches=1, tokens=6, rows=9, heads=2, dqk=192, width=8, grad=False)
    kv = torch.cat([problem.kv, torch.zeros_like(problem.kv[:, :1])], 1).unsqueeze(2)
    lists = problem.indices.masked_fill(problem.indices < 0, 9).unsqueeze(2)
    q64, kv64 = doubled(problem.q, problem.kv)
    true, true_lse = attend(q64, kv64, problem.indices, problem.scale, 128)
    grads = torch.autograd.grad(true, (q64, kv64), problem.grad_out.double())
    for forward, backward in (
        (prime_rl.sparse_mla_fwd_interface, prime_rl.sparse_mla_bwd),
        (
            lambda *a: prime_rl.sparse_mla_fwd_bucketed(*a, bucket_sizes=(4, 16)),
            lambda *a: prime_rl.sparse_mla_bwd_bucketed_sorted(*a, bucket_sizes=(4, 16)),
        ),
    ):
        out, lse = forward(problem.q, kv, lists, problem.scale, 128)
        check_out(out, true)
        check_sums(lse, true_lse.double() * math.log2(math.e))
        dq, dkv = backward(problem.q, kv, out, problem.grad_out, lists, lse, problem.scale)
        assert dkv.shape == kv.shape and bool((dkv[:, -1] == 0).all())
        check_grad(dq, grads[0])
        check_grad(dkv[:, :-1].squeeze(2), grads[1])


def test_nemo(problem, device):
    assert nemo.is_dsa_kernel_available("sparse_attn") is True
    with pytest.raises(ValueError):
        nemo.is_dsa_kernel_available("nope")
    tensors = (problem.q, problem.kv)
    use = nemo.should_use_tilelang
    assert use("torch", available=True, kernel_name="x", tensors=tensors) is False
    assert use("auto", available=True, kernel_name="x", tensors=tensors, require_bf16=True) is True
    assert use("auto", available=True, kernel_name="x", tensors=(problem.q.float(),), require_bf16=True) is False
    with pytest.raises(RuntimeError, match="TileLang backend was requested"):
        use("tilelang", available=False, kernel_name="indexer", tensors=tensors)
    weight = torch.randn(2, 32, 128, device=device).bfloat16()
    out = nemo.tilelang_sparse_attention(
        problem.q, problem.kv.unsqueeze(1), problem.indices.unsqueeze(1), weight, problem.scale
    )
    latent, _ = attend(problem.q.double(), problem.kv.double(), problem.indices, problem.scale, 128)
    want = torch.einsum("thc,hdc->thd", latent, weight.double())
    assert float((out.double() - want).norm()) <= 0.01 * float(want.norm())


def test_modules_come_when_they_are_asked_for():
    program = "import smelt_kernels.compat as c, sys; c.miles.v4_lighting_indexer; print('smelt_kernels.compat.nemo' in sys.modules)"
    run = [sys.executable, "-c", program]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "False\n"
    with pytest.raises(AttributeError, match="nothing"):
        smelt.compat.nothing  # noqa: B018


class LazyCalls:
    """As cuDNN Frontend's namespace: it has nothing before it is asked for."""

    def __getattr__(self, name):
        if name in ("aligned_hca_backward_wrapper", "sparse_attention_backward_wrapper"):
            return 1
        raise AttributeError(name)


def test_install(monkeypatch):
    """In place of packages that are not there, and into one that is."""
    monkeypatch.delitem(sys.modules, "flash_mla", raising=False)
    there = types.ModuleType("cudnn")
    there.DSA = LazyCalls()
    there.something = 2
    monkeypatch.setitem(sys.modules, "cudnn", there)
    with pytest.raises(ValueError, match="no package"):
        smelt.compat.install("flash_mla", "flash_attn")
    smelt.compat.install("flash_mla", "cudnn")
    try:
        from flash_mla import flash_mla_sparse_fwd

        assert flash_mla_sparse_fwd is flash_mla.flash_mla_sparse_fwd
        import cudnn as installed

        assert installed.something == 2 and installed.DSA.aligned_hca_backward_wrapper == 1
        with pytest.raises(AttributeError):
            installed.DSA.nothing  # noqa: B018
        assert installed.DSA.sparse_attention_backward_wrapper is cudnn.sparse_attention_backward_wrapper
        first = installed.DSA
        smelt.compat.install("cudnn")  # once more: the same
        assert installed.DSA is first and first.aligned_hca_backward_wrapper == 1
        del there.DSA
        smelt.compat.install("cudnn")
        with pytest.raises(AttributeError, match="aligned_hca_backward_wrapper"):
            installed.DSA.aligned_hca_backward_wrapper  # noqa: B018
    finally:
        sys.modules.pop("flash_mla", None)


def scores(q, k, weights, begin, end):
    """The indexer's logits by their definition, in double precision."""
    logits = (torch.einsum("thd,sd->ths", q.double(), k.double()).clamp(min=0) * weights.double()[..., None]).sum(1)
    column = torch.arange(k.shape[0], device=q.device)
    return logits.masked_fill((column < begin[:, None]) | (column >= end[:, None]), float("-inf"))


@pytest.fixture
def indexer(device):
    generator = torch.Generator().manual_seed(5)
    q = torch.randn(8, 3, 64, generator=generator).to(device, torch.bfloat16)
    k = torch.randn(8, 64, generator=generator).to(device, torch.bfloat16)
    weights = torch.randn(8, 3, generator=generator).to(device)
    return q, k, weights, torch.tensor([0, 3, 8], dtype=torch.int32, device=device)


def test_slime_indexer(indexer):
    q, k, weights, seqlens = indexer
    starts, ends = slime.generate_varlen_mask_params(seqlens)
    assert starts.tolist() == [0, 0, 0, 3, 3, 3, 3, 3] and ends.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    true = scores(q, k, weights, starts, ends)
    logits = slime.indexer_fwd_interface(q, k.unsqueeze(1), weights, starts, ends)
    inside = true > float("-inf")
    assert torch.equal(logits > float("-inf"), inside)
    assert torch.allclose(logits[inside].double(), true[inside], rtol=1e-5, atol=1e-4)
    found, indices = slime.lighting_indexer(q, k, weights.unsqueeze(-1), starts, ends, 4)
    for row in range(8):
        best = torch.argsort(true[row], descending=True, stable=True)[: min(4, int(ends[row] - starts[row]))]
        assert indices[row].tolist() == best.tolist() + [-1] * (4 - len(best))
    again, same = slime.lighting_indexer(q, k, weights, starts, ends, 4, topk_indices=indices)
    finite = found > float("-inf")
    assert torch.equal(again > float("-inf"), finite) and same is indices
    assert torch.allclose(again[finite], found[finite], rtol=1e-5, atol=1e-5)


def test_nemo_indexer(indexer, device):
    q, k, weights, seqlens = indexer
    indices = nemo.tilelang_indexer_topk(q, k, weights, seqlens, 4)
    starts, ends = slime.generate_varlen_mask_params(seqlens)
    true = scores(q, k, weights, starts, ends)
    assert indices.shape == (8, 1, 4) and indices.dtype is torch.int32
    for row in range(8):
        best = torch.argsort(true[row], descending=True, stable=True)[: min(4, int(ends[row] - starts[row]))]
        assert indices[row, 0].tolist() == sorted(best.tolist()) + [-1] * (4 - len(best))
    # Documents of 3 and 2 tokens, padded to 4 each; a shard of the rows, in its own order.
    sizes = torch.tensor([0, 3, 5], dtype=torch.int32, device=device)
    padded = torch.tensor([0, 4, 8], dtype=torch.int32, device=device)
    starts, ends = nemo._generate_padded_varlen_mask_params(sizes, padded)
    assert starts.tolist() == [0, 0, 0, 0, 4, 4, 4, 4] and ends.tolist() == [1, 2, 3, 3, 5, 6, 6, 6]
    rows = torch.tensor([5, 2, 3], device=device)
    sharded = nemo.tilelang_indexer_topk(q[rows], k, weights[rows], sizes, 4, rows, padded)
    assert sharded[0, 0].tolist() == [4, 5, -1, -1] and sharded[1, 0].tolist() == [0, 1, 2, -1]
    assert sharded[2, 0].tolist() == [-1] * 4  # it pads


def test_prime_rl_indexer(indexer):
    q, k, weights, seqlens = indexer
    starts, ends = slime.generate_varlen_mask_params(seqlens)
    indices = prime_rl.fp8_indexer(q, k, weights.bfloat16(), starts.int(), ends.int(), 4, 0.5)
    assert indices.shape == (8, 4) and indices.dtype is torch.int32
    for row in range(8):
        count = min(4, int(ends[row] - starts[row]))
        assert all(starts[row] <= index < ends[row] for index in indices[row, :count].tolist())
        assert indices[row, count:].tolist() == [8] * (4 - count)


def test_deep_gemm(indexer):
    q, k, weights, seqlens = indexer
    starts, ends = slime.generate_varlen_mask_params(seqlens)
    (q8, q_scale), (k8, k_scale) = smelt.quantize(q), smelt.quantize(k)
    logits = deep_gemm.fp8_mqa_logits(q8, (k8, k_scale), weights * q_scale, starts.int(), ends.int())
    true = scores(q8.float(), k8.float() * k_scale[:, None], weights * q_scale, starts, ends)
    inside = true > float("-inf")
    assert torch.equal(logits > float("-inf"), inside)
    assert torch.allclose(logits[inside].double(), true[inside], rtol=1e-3, atol=1e-3)
    given = (k8, k_scale), weights * q_scale, starts.int(), ends.int()
    assert torch.equal(deep_gemm.fp8_fp4_mqa_logits((q8, None), *given), logits)
    halves = deep_gemm.fp8_mqa_logits(q8, *given, logits_dtype=torch.bfloat16)
    assert torch.equal(halves, logits.bfloat16())
    with pytest.raises(TypeError, match="logits_dtype"):
        deep_gemm.fp8_mqa_logits(q8, *given, logits_dtype=torch.float16)
    with pytest.raises(NotImplementedError, match="fp4"):
        deep_gemm.fp8_fp4_mqa_logits((q8, q_scale), *given)


def test_deep_gemm_compressed(indexer, monkeypatch):
    """Columns counted from each window's first key, some queries at a time; windows beyond the keys."""
    q, k, weights, _ = indexer
    (q8, q_scale), (k8, k_scale) = smelt.quantize(q), smelt.quantize(k)
    begin = torch.tensor([0, 2, 7, 5, -3, 3, 8, 0], dtype=torch.int32, device=q.device)
    end = torch.tensor([3, 8, 8, 5, 2, 12, 9, 8], dtype=torch.int32, device=q.device)
    given = q8, (k8, k_scale), weights * q_scale, begin, end
    logits = deep_gemm.fp8_mqa_logits(*given)
    monkeypatch.setattr(deep_gemm, "CHUNK_BYTES", 3 * 4 * k.shape[0])
    for dtype in (torch.float32, torch.bfloat16):
        compressed = deep_gemm.fp8_mqa_logits(*given, max_seqlen_k=9, logits_dtype=dtype)
        assert compressed.shape == (8, 9) and compressed.dtype is dtype
        for row in range(8):
            first, last = max(0, int(begin[row])), min(8, int(end[row]))
            want = torch.full((9,), float("-inf"), device=q.device, dtype=dtype)
            want[: max(0, last - first)] = logits[row, first:last].to(dtype)
            assert torch.equal(compressed[row], want)
    none = deep_gemm.fp8_mqa_logits(q8, (k8[:0], k_scale[:0]), weights, begin, end, max_seqlen_k=2)
    assert none.shape == (8, 2) and bool((none == float("-inf")).all())


def test_deep_gemm_narrow_heads(device):
    """Of 32, which the kernels do not have by themselves."""
    q, k = torch.randn(4, 2, 32, device=device), torch.randn(6, 32, device=device)
    q, k = q.to(torch.float8_e4m3fn), k.to(torch.float8_e4m3fn)
    weights, k_scale = torch.randn(4, 2, device=device), torch.rand(6, device=device)
    begin = torch.zeros(4, dtype=torch.int32, device=device)
    logits = deep_gemm.fp8_mqa_logits(q, (k, k_scale), weights, begin, begin + 6)
    true = scores(q.float(), k.float() * k_scale[:, None], weights, begin, begin + 6)
    assert torch.allclose(logits.double(), true, rtol=1e-3, atol=1e-3)


def test_cudnn_top_k(device):
    values = torch.randn(6, 20, device=device)
    lengths = torch.tensor([9, 20, 2], dtype=torch.int32, device=device)
    result = cudnn.indexer_top_k_wrapper(values, lengths, 4, next_n=2)
    for row, length in enumerate((8, 9, 19, 20, 1, 2)):
        best = torch.topk(values[row, :length], min(4, length)).indices.sort().values.tolist()
        assert result["indices"][row].tolist() == best + [-1] * (4 - len(best))
        assert torch.equal(result["values"][row, : len(best)], values[row, best])
    assert cudnn.indexer_top_k_wrapper(values[:3], lengths, 4, return_val=False)["values"] is None
    with pytest.raises(ValueError, match="sequences of 2"):
        cudnn.indexer_top_k_wrapper(values, lengths[:2], 4, next_n=2)
    with pytest.raises(NotImplementedError, match="tie_break"):
        cudnn.indexer_top_k_wrapper(values, lengths, 4, next_n=2, tie_break=2)
    values[:, 3:] = float("-inf")  # a value like any other within the length
    result = cudnn.indexer_top_k_wrapper(values[:3], lengths, 4, deterministic=True)
    assert result["indices"].tolist() == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, -1, -1]]
    assert bool((result["values"][:2, 3] == float("-inf")).all())


# ---- arguments --------------------------------------------------------------------------------------

CUDNN_PACKED = "cu_seqlens_q=None cu_seqlens_k=None max_seqlen_q=None max_seqlen_k=None q_causal_offsets=None"
CUDNN_SCALED = (
    "precision='bf16' q_scale=None k_scale=None cu_seqlens_q_scale_padded=None "
    "cu_seqlens_k_scale_padded=None sf_vec_size=32"
)
CUDNN_MADE = "d_index_q=None d_weights=None d_index_k=None stream=None"
TUNING = "block_I=64 num_stages=2 threads=256"
# As the originals declare them: FlashMLA b7643bd (nv_dev), cuDNN Frontend 1.32, DeepGEMM 54e2261, TileLang a35008a42,
# slime 624b824a8, Megatron-LM d98e8a64dd, miles 31f1ca961, prime-rl 559b44772. A default that theirs has not is
# in brackets.
SIGNATURES = {
    "flash_mla.flash_mla_sparse_fwd": "q kv indices sm_scale d_v=512 attn_sink=None topk_length=None indexer_topk=0",
    "deep_gemm.fp8_mqa_logits": "q kv weights cu_seq_len_k_start cu_seq_len_k_end clean_logits=True max_seqlen_k=0 "
    "logits_dtype=torch.float32",
    "cudnn.sparse_attention_backward_wrapper": "q kv out dout lse attn_sink topk_idxs softmax_scale=None "
    "topk_length=None dq=None dkv=None block_tile=64 deterministic=False stream=None workspace=None "
    "q_cluster_mode='off'",
    "cudnn.indexer_forward_wrapper": "q k w ratio=4 qhead_per_kv_head=None m_block_size=128 n_block_size=128 q_stage=2 "
    f"kv_stage=4 sm_scale=1.0 out=None stream=None {CUDNN_PACKED} {CUDNN_SCALED} return_lse=False lse_out=None",
    "cudnn.sparse_attention": "q kv indices attn_sink=None softmax_scale=None topk_length=None "
    "trusted_compact_metadata=False",
    "cudnn.sparse_attention_score_recompute": "q kv lse indices softmax_scale=None topk_length=None",
    "cudnn.sparse_attention_forward_wrapper": "q kv topk_idxs attn_sink=None topk_length=None softmax_scale=None "
    "indexer_topk=0 stream=None",
    "cudnn.indexer_forward_top_k_wrapper": "q k w top_k ratio=4 qhead_per_kv_head=None m_block_size=128 "
    f"n_block_size=128 q_stage=2 kv_stage=4 sm_scale=1.0 stream=None {CUDNN_PACKED} {CUDNN_SCALED} "
    "return_lse=False lse_out=None return_softmax=None softmax_out=None microbatch_rows=-1 "
    "topk_indices_global=True cand_buffer=None out_indices=None out_logits=None cand_batch_offsets=None deterministic=False",
    "cudnn.compress_topk_cand_buffer_size": "bs seqlen_q seqlen_k ratio microbatch_rows=-1 return_lse=False "
    "q_causal_offsets=None precision='bf16'",
    "cudnn.compress_topk_cand_buffer_size_thd": "cu_seqlens_q cu_seqlens_k ratio q_causal_offsets=None",
    "cudnn.indexer_top_k_wrapper": "input_values seq_lens top_k next_n=1 return_val=True num_copy_bits=256 stream=None "
    "tie_break=0 deterministic=False",
    "cudnn.sparse_indexer_score_recompute_wrapper": "q_indexer k_indexer weights topk_indices qhead_per_kv_head=None "
    "topk_length=None topk_indices_global=False out=None stream=None",
    "cudnn.sparse_attn_score_recompute_wrapper": "q_attn k_attn lse topk_indices softmax_scale qhead_per_kv_head=None "
    "topk_length=None topk_indices_global=False out=None stream=None",
    "cudnn.indexer_backward_wrapper": "index_q weights index_k attn_score index_score topk_indices grad_loss[1.0] "
    f"sm_scale=1.0 loss_coeff=1.0 block_I=128 topk_indices_global=False {CUDNN_MADE} backend='default' "
    "workspace=None deterministic=False deterministic_dk_planes[None]",
    "cudnn.dense_attn_score_recompute_wrapper": "q k lse softmax_scale qhead_per_kv_head=None out=None denom_out=None "
    f"ratio=1 {CUDNN_PACKED} {CUDNN_SCALED} stream=None",
    "cudnn.dense_indexer_score_recompute_wrapper": "q k weights qhead_per_kv_head=None out=None denom_out=None "
    f"sm_scale=1.0 ratio=1 {CUDNN_PACKED} {CUDNN_SCALED} stream=None",
    "cudnn.dense_indexer_backward_wrapper": "index_q weights index_k attn_score attn_l1norm index_score index_lse "
    f"grad_loss[1.0] sm_scale=1.0 loss_coeff=1.0 block_I=128 ratio=1 {CUDNN_PACKED} {CUDNN_MADE} workspace=None",
    "cudnn.compactify_wrapper": "indices stream=None",
    "cudnn.local_to_global_wrapper": "local_indices seqlen_k cu_seqlens_q=None cu_seqlens_k=None stream=None",
    "tilelang.sparse_mla_fwd_interface": f"q kv indices sm_scale=None return_p_sum=False d_v=512 {TUNING}",
    "tilelang.sparse_mla_bwd": "q kv o do indices lse sm_scale=None is_casual=True return_kernel=False delta=None",
    "slime.sparse_mla_fwd_interface": f"q kv indices sm_scale=None return_p_sum=False d_v=512 {TUNING}",
    "slime.sparse_mla_bwd": "q kv o do indices lse sm_scale=None is_casual=True return_kernel=False delta=None",
    "slime.indexer_fwd_interface": "q kv weights cu_seqlen_ks cu_seqlen_ke clean_logits=True",
    "slime.indexer_bwd_interface": "index_q weights index_k topk_indices grad_scores",
    "slime.lighting_indexer": "index_q index_k weights cu_seqlen_ks cu_seqlen_ke topk topk_indices=None",
    "megatron.sparse_mla_fwd_interface": f"q kv indices sm_scale=None d_v=512 {TUNING}",
    "megatron.sparse_mla_bwd": "q kv o do indices lse sm_scale=None delta=None",
    "miles.sparse_mqa_fwd_interface": f"q kv attn_sink topk_idxs sm_scale=None {TUNING}",
    "miles.sparse_mqa_bwd_interface": "q kv attn_sink o do topk_idxs lse sm_scale=None",
    "miles.batched_indexer_fwd": "q k weights cu_seqlen_ks cu_seqlen_ke",
    "miles.batched_indexer_bwd": "index_q weights index_k topk_indices grad_scores",
    "prime_rl.sparse_mla_fwd_interface": f"q kv indices sm_scale=None d_v=512 {TUNING}",
    "prime_rl.sparse_mla_bwd": "q kv o do indices lse sm_scale=None",
    "prime_rl.fp8_indexer": "q k w ks ke topk weight_scale=1.0",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    """A call that the original takes, by position or by name, is taken here and means the same; others are errors."""
    module, function = name.split(".")
    parameters = inspect.signature(getattr(getattr(smelt.compat, module), function)).parameters
    kinds = inspect.Parameter
    assert all(each.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY) for each in parameters.values()), (
        "what is misspelt would be swallowed"
    )
    shown = []
    for each in parameters.values():
        default = f"={each.default}" if isinstance(each.default, torch.dtype) else f"={each.default!r}"
        shown.append(each.name + ("" if each.default is kinds.empty else default))
    theirs = re.sub(r"\[(.*?)\]", r"=\1", SIGNATURES[name]).split()
    assert shown[: len(theirs)] == theirs
    beyond = list(parameters.values())[len(theirs) :]
    assert all(each.default is not kinds.empty for each in beyond)


def test_what_is_not_there_is_refused(problem):
    """An argument that asks for something else is an error, and not ignored."""
    q, k = problem.q.unsqueeze(0), problem.kv.unsqueeze(0)
    weights, scale = q[..., 0].float(), torch.ones(1, device=q.device)
    for named in ({"precision": "mxfp8"}, {"q_scale": scale}, {"k_scale": scale}):
        with pytest.raises(NotImplementedError, match="takes bf16 alone"):
            cudnn.indexer_forward_wrapper(q, k, weights, **named)
        with pytest.raises(NotImplementedError, match="takes bf16 alone"):
            cudnn.dense_indexer_score_recompute_wrapper(q, k, weights, **named)
        with pytest.raises(NotImplementedError, match="takes bf16 alone"):
            cudnn.dense_attn_score_recompute_wrapper(q, k, weights, 1.0, **named)
    lse = problem.q[..., 0].float()
    given = (problem.q, problem.kv.unsqueeze(1), problem.q, problem.q, problem.indices.unsqueeze(1), lse)
    for module in (slime, tilelang):
        for named in ({"is_casual": False}, {"return_kernel": True}):
            with pytest.raises(NotImplementedError, match="sparse_mla_bwd is causal"):
                module.sparse_mla_bwd(*given, **named)
