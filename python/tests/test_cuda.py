"""What only a GPU shows: real sizes, streams, CUDA graphs, memory."""

import gc

import pytest
import smelt
import torch
from conftest import Problem, check_grad, check_out, check_sums

pytestmark = pytest.mark.cuda

REAL = {
    "glm-5.2, 64 heads": {"heads": 64, "dqk": 576, "tokens": 300, "rows": 4096, "width": 2048},
    "8 heads, buckets": {
        "heads": 8,
        "dqk": 576,
        "tokens": 300,
        "rows": 4096,
        "width": 2048,
        "lengths": True,
    },
    "deepseek-v4": {
        "heads": 128,
        "dqk": 512,
        "tokens": 70,
        "rows": 4096,
        "width": 640,
        "sink": True,
    },
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
    # detached: a graph that is alive would tie its leaves to the stream it was made on
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


def test_behind_anything(device):
    """The first launch of a call does not order itself behind what the stream did before: its kernel waits.
    Behind a fill, a copy, another stream's work and a long kernel, captured in a graph and not."""
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
        lambda q, kv, i: smelt.sparse_attention(q, kv, i, problem.scale) * 2,
        fullgraph=True,
        mode="reduce-overhead",
    )
    for _ in range(3):
        got = compiled(problem.q, problem.kv, problem.indices).clone()
    assert torch.equal(got, problem.run() * 2)


def test_two_streams(device):
    """Each stream's work waits for what is before it there, and memory is not given away too soon."""
    problems = [
        Problem(device, heads=16, dqk=576, tokens=512, rows=2048, width=512, seed=seed)
        for seed in range(2)
    ]
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
        smelt.sparse_attention(
            problem.q, problem.kv.to("cuda:0"), problem.indices, 0.1, backend="smelt"
        )


def test_cpu_tensors_are_refused(device):
    problem = Problem(torch.device("cpu"), grad=False)
    with pytest.raises(RuntimeError, match="CPU tensors"):
        problem.run()
    with pytest.raises(ValueError, match="kv must be on device"):
        smelt.sparse_attention(
            problem.q.to(device), problem.kv, problem.indices.to(device), 0.1, backend="smelt"
        )
