"""Tests that need a GPU: real sizes, streams, CUDA graphs, memory."""

import gc
import os
import signal
import subprocess
import sys

import pytest
import smelt_kernels as smelt
import torch
from conftest import Problem, check_grad, check_out, check_sums
from smelt_kernels.compat import cudnn

pytestmark = pytest.mark.cuda

REAL = {
    "glm-5.2, 64 heads": {"heads": 64, "dqk": 576, "tokens": 300, "rows": 4096, "width": 2048},
    "8 heads, buckets": {"heads": 8, "dqk": 576, "tokens": 300, "rows": 4096, "width": 2048, "lengths": True},
    "deepseek-v4": {"heads": 128, "dqk": 512, "tokens": 70, "rows": 4096, "width": 640, "sink": True},
}


@pytest.mark.parametrize("name", REAL)
def test_real_sizes(device, name):
    problem = Problem(device, **REAL[name])
    options = {"buckets": "auto"} if "buckets" in name else {}
    out, lse = problem.run(return_lse=True, **options)
    true_out, true_lse, _, true_grads = problem.truth()
    check_out(out, true_out)
    check_sums(lse, true_lse)
    for got, true in zip(torch.autograd.grad(out, problem.leaves(), problem.grad_out), true_grads):
        check_grad(got, true)


def step(problem, **options):
    out = problem.run(deterministic=True, **options)
    # detached, because a live graph ties its leaves to its stream
    return (out.detach(), *torch.autograd.grad(out, problem.leaves(), problem.grad_out))


@pytest.mark.parametrize("buckets", [None, "auto"])
def test_graph(device, buckets):
    """Forward and backward captured in one graph, replayed on other inputs."""
    problem = Problem(device, heads=16, dqk=576, tokens=64, rows=512, width=256, lengths=True)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step(problem, buckets=buckets)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(problem, buckets=buckets)
    other = Problem(device, heads=16, dqk=576, tokens=64, rows=512, width=256, lengths=True, seed=3)
    with torch.no_grad():
        for name in ("q", "kv", "indices", "topk_length", "grad_out"):
            getattr(problem, name).copy_(getattr(other, name))
    graph.replay()
    torch.cuda.synchronize()
    for got, want in zip(captured, step(other, buckets=buckets)):
        assert torch.equal(got, want)


def test_choice_and_attention_in_one_graph(device):
    """MSA's blocks for each KV head, attention to them and its gradients, captured together, replayed on other inputs."""
    tokens = 512

    def random(seed):
        generator = torch.Generator(device).manual_seed(seed)
        shapes = ((4, 128), (128,), (64, 128), (4, 128), (4, 128), (64, 128))
        return [torch.randn(tokens, *shape, device=device, generator=generator).bfloat16() for shape in shapes]

    end = torch.arange(1, tokens + 1, dtype=torch.int32, device=device)
    begin = torch.zeros_like(end)

    def step(index_q, index_k, q, k, v, grad_out):
        leaves = [each.detach().requires_grad_() for each in (q, k, v)]
        lists, _, _ = smelt.indexer_topk(
            index_q, index_k, None, begin, end, 2, activation="none", groups=4, block_max=128, pinned=1, backend="smelt"
        )
        out, lse = smelt.sparse_gqa(
            *leaves, lists, 128**-0.5, granularity=128, limit=end, deterministic=True, return_lse=True, backend="smelt"
        )
        return (lists, out.detach(), lse.detach(), *torch.autograd.grad(out, leaves, grad_out))

    inputs, others = random(1), random(2)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step(*inputs)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(*inputs)
    for one, other in zip(inputs, others):
        one.copy_(other)
    graph.replay()
    for got, want in zip(captured, step(*others)):
        assert torch.equal(got, want)


def test_behind_anything(device):
    """The first launch of a call uses PDL, so its kernel must wait for earlier work in the stream: a fill, a copy,
    another stream's work, a long kernel; captured in a graph and not."""
    problem = Problem(device, heads=8, dqk=576, tokens=16, rows=256, width=128)
    want = step(problem)
    q, kv = problem.q.detach().clone(), problem.kv.detach().clone()
    host = problem.kv.detach().cpu().pin_memory()
    big, side = torch.ones(1 << 26, device=device), torch.cuda.Stream()
    problem.q, problem.kv = q.clone().requires_grad_(), kv.clone().requires_grad_()

    def after(kind):
        now = torch.cuda.current_stream()
        with torch.no_grad():
            if kind == "fill":
                problem.kv.copy_(kv)
                big[: 1 << 20].zero_()
            elif kind == "copy":
                problem.kv.copy_(host, non_blocking=True)
            elif kind == "kernel":
                big.mul_(1.0)
                problem.q.copy_(q)
            else:
                side.wait_stream(now)
                with torch.cuda.stream(side):
                    big.mul_(1.0)
                    problem.q.copy_(q)
                now.wait_stream(side)
        return step(problem)

    for kind in ("fill", "copy", "kernel", "stream"):
        for leaf in (problem.q, problem.kv):
            leaf.detach().zero_()
        with torch.no_grad():
            problem.q.copy_(q)
            problem.kv.copy_(kv)
        for _ in range(3):
            for got, one in zip(after(kind), want):
                assert torch.equal(got, one), kind
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = after(kind)
        for _ in range(3):
            if kind in ("kernel", "stream"):
                problem.q.detach().zero_()
            else:
                problem.kv.detach().zero_()
            graph.replay()
            for got, one in zip(captured, want):
                assert torch.equal(got, one), kind


def test_graphed_callable(device):
    problem = Problem(device, heads=8, dqk=576, tokens=32, rows=256, width=128)

    def layer(q, kv):
        return smelt.sparse_attention(q, kv, problem.indices, problem.scale, deterministic=True)

    want = step(problem)
    graphed = torch.cuda.make_graphed_callables(layer, (problem.q, problem.kv))
    out = graphed(problem.q, problem.kv)
    got = (out.detach(), *torch.autograd.grad(out, problem.leaves(), problem.grad_out))
    for one, two in zip(got, want):
        assert torch.equal(one, two)


def test_compile_reduce_overhead(device):
    problem = Problem(device, heads=8, dqk=576, tokens=32, rows=256, width=128, grad=False)
    compiled = torch.compile(
        lambda q, kv, i: smelt.sparse_attention(q, kv, i, problem.scale) * 2, fullgraph=True, mode="reduce-overhead"
    )
    for _ in range(3):
        got = compiled(problem.q, problem.kv, problem.indices).clone()
    assert torch.equal(got, problem.run() * 2)


def training(device, seed):
    """The leaves and windows of a step that trains attention and its indexer, and its loss of them."""
    problem = Problem(device, heads=8, dqk=576, tokens=64, rows=64, width=1, seed=seed)
    made = torch.Generator().manual_seed(seed)
    iq = torch.randn(64, 4, 128, generator=made).to(device, torch.bfloat16).requires_grad_()
    ik = torch.randn(64, 128, generator=made).to(device, torch.bfloat16).requires_grad_()
    weights = torch.randn(64, 4, generator=made).to(device).requires_grad_()
    begin = torch.zeros(64, dtype=torch.int32, device=device)
    end = torch.randint(0, 65, (64,), generator=made).to(device, torch.int32)

    def loss(q, kv, iq, ik, weights, begin, end):
        kept = {"backend": "smelt"}
        indices, logits, lengths = smelt.indexer_topk(iq, ik, weights, begin, end, 16, **kept)
        kept["topk_length"] = lengths
        out, lse = smelt.sparse_attention(q, kv, indices, 0.05, return_lse=True, **kept)
        target = smelt.sparse_scores(q, kv, indices, lse, 0.05, **kept)
        learnt = smelt.indexer_loss(logits, target, indices, **kept)
        scores = smelt.indexer_scores(iq, ik, weights, indices, **kept)
        return out.float().square().mean() + learnt + scores.sigmoid().mean()

    return [problem.q, problem.kv, iq, ik, weights, begin, end], loss


def test_compile_reduce_overhead_trains(device, monkeypatch):
    """Forward and backward passes become graphs, which are replayed on each step's inputs without a call of ours, and
    give what eager calls give."""
    calls = []
    find = smelt._runtime.find
    monkeypatch.setattr(smelt._runtime, "find", lambda *given: calls.append(1) or find(*given))
    given, loss = training(device, 0)
    leaves = given[:5]
    compiled = torch.compile(loss, fullgraph=True, mode="reduce-overhead")
    launched = []
    for step in range(6):
        with torch.no_grad():
            for one, two in zip(given, training(device, step)[0]):
                one.copy_(two)
        torch.compiler.cudagraph_mark_step_begin()
        before = len(calls)
        value = compiled(*given)
        grads = torch.autograd.grad(value, leaves)
        launched.append(len(calls) - before)
        # The next step's replays write where these lie.
        value, grads = value.detach().clone(), [grad.clone() for grad in grads]
        want = loss(*given)
        torch.testing.assert_close(value, want.detach(), rtol=1e-4, atol=1e-5)
        for got, true in zip(grads, torch.autograd.grad(want, leaves)):
            check_grad(got, true)
    assert launched[0] > 0 and launched[-2:] == [0, 0], launched


def test_two_streams(device):
    """Work waits for earlier work in its stream, and memory is not reused too early."""
    problems = [Problem(device, heads=16, dqk=576, tokens=512, rows=2048, width=512, seed=seed) for seed in range(2)]
    want = [step(problem) for problem in problems]
    streams = [torch.cuda.Stream() for _ in problems]
    torch.cuda.synchronize()
    for _ in range(5):
        got = []
        for problem, stream in zip(problems, streams):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(2_000_000)
                got.append(step(problem))
        torch.cuda.synchronize()
        for one, two in zip(got, want):
            assert all(torch.equal(a, b) for a, b in zip(one, two))


def test_no_synchronisation(device):
    problem = Problem(device, heads=16, dqk=576, tokens=64, rows=512, width=256, lengths=True)
    step(problem, buckets="auto")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(problem, buckets="auto")
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_memory_comes_back(device):
    problem = Problem(device, heads=16, dqk=576, tokens=256, rows=1024, width=256)
    step(problem)
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(4):
        step(problem)
    gc.collect()
    assert torch.cuda.memory_allocated() == before


def test_second_device(device):
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    problem = Problem(torch.device("cuda:1"), heads=8, dqk=576, tokens=32, rows=256, width=128)
    out, *grads = step(problem)  # the current device is another
    assert out.device.index == 1 and all(grad.device.index == 1 for grad in grads)
    check_out(out, problem.truth()[0])
    with pytest.raises(ValueError, match="cuda"):
        smelt.sparse_attention(problem.q, problem.kv.to("cuda:0"), problem.indices, 0.1, backend="smelt")


def test_cpu_tensors_are_refused(device):
    problem = Problem(torch.device("cpu"), grad=False)
    with pytest.raises(RuntimeError, match="on the CPU"):
        problem.run()
    with pytest.raises(ValueError, match="kv must be on device"):
        smelt.sparse_attention(problem.q.to(device), problem.kv, problem.indices.to(device), 0.1, backend="smelt")


def indexer_gradients(device):
    """{name: gradients} of cuDNN Frontend's wrappers of the indexer's training, for a grad_loss."""
    made = torch.Generator().manual_seed(1)
    q = torch.randn(1, 128, 64, 128, generator=made).to(device, torch.bfloat16)
    k = torch.randn(1, 128, 128, generator=made).to(device, torch.bfloat16)
    weights = torch.randn(1, 128, 64, generator=made).to(device, torch.bfloat16)
    target = torch.rand(1, 128, 128, generator=made).to(device).tril()
    lists = torch.arange(128, dtype=torch.int32, device=device).expand(1, 128, 128).contiguous()
    lists = lists.masked_fill(lists > torch.arange(128, device=device)[:, None], -1)
    scores, lse = cudnn.dense_indexer_score_recompute_wrapper(q, k, weights)
    predict = scores.softmax(-1)
    share = target / target.sum(-1, keepdim=True)

    def gradients(grad_loss):
        dense = cudnn.dense_indexer_backward_wrapper(
            q, weights, k, target, target.sum(-1), scores, lse, grad_loss, loss_coeff=128.0
        )
        sparse = cudnn.indexer_backward_wrapper(q, weights, k, share, predict, lists, grad_loss, loss_coeff=128.0)
        return {"dense": tuple(dense), "sparse": tuple(sparse)}

    return gradients


def test_drop_ins_in_a_graph(device):
    """A graph's replay reads grad_loss; lists of all keys give the same as no lists."""
    gradients = indexer_gradients(device)
    grad_loss = torch.ones(1, device=device)
    want = gradients(grad_loss)
    for one, two in zip(want["dense"], want["sparse"]):
        assert float((one.float() - two.float()).norm()) <= 0.01 * float(two.float().norm())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = gradients(grad_loss)
    for factor in (0.5, 2.0):
        grad_loss.fill_(factor)
        graph.replay()
        for name, each in got.items():
            for one, two in zip(each, want[name]):
                torch.testing.assert_close(one.float(), factor * two.float(), rtol=0.02, atol=1e-3)


def test_exit_with_work_in_flight():
    """The interpreter exits normally while kernels run and a graph and its operators are alive."""
    program = """
import torch, smelt_kernels as smelt
q = torch.randn(2048, 64, 576, device="cuda").bfloat16().requires_grad_()
kv = torch.randn(4096, 576, device="cuda").bfloat16().requires_grad_()
indices = torch.randint(0, 4096, (2048, 512), device="cuda", dtype=torch.int32)
def step():
    out = smelt.sparse_attention(q, kv, indices, 0.05, backend="smelt")
    return torch.autograd.grad(out.float().sum(), (q, kv))
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    step()
    graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=side):
    kept = step()
for _ in range(20):
    graph.replay()
    step()
print("left")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0 and run.stdout == "left\n", run.stderr
    assert "Error" not in run.stderr, run.stderr


@pytest.mark.filterwarnings("ignore:This process")  # has threads
def test_fork_once_cuda_is_in_use(device):
    """CUDA does not work in a forked child: an error there; the parent continues."""
    problem = Problem(device, grad=False)
    want = problem.run()
    torch.cuda.synchronize()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        status = 1
        try:
            problem.run()
        except RuntimeError as error:
            status = 0 if str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(problem.run(), want)
