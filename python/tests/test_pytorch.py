"""PyTorch's requirements on operators: opcheck, compile, export, checkpoint, autocast, transforms, threads."""

import pytest
import smelt_kernels as smelt
import torch
from conftest import Problem
from torch.utils.checkpoint import checkpoint


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(device, dynamic):
    """fullgraph: a graph break is an error. Gradients go through the compiled graph, too."""
    problem = Problem(device, sink=True)

    def layer(q, kv, indices, sink):
        out, lse = smelt.sparse_attention(
            q * 1.0, kv, indices, problem.scale, sink=sink, return_lse=True, lse="base2", deterministic=True
        )
        return out * 2.0, lse

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    arguments = (problem.q, problem.kv, problem.indices, problem.sink)
    want, want_lse = layer(*arguments)
    got, got_lse = compiled(*arguments)
    assert torch.equal(got, want) and torch.equal(got_lse, want_lse)
    for one, two in zip(
        torch.autograd.grad(want, problem.leaves(), problem.grad_out),
        torch.autograd.grad(got, problem.leaves(), problem.grad_out),
    ):
        assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("kind", "batches"), [(torch.float64, None), (torch.bfloat16, 2)], ids=str
)
def test_compile_of_the_eager_reference(device, kind, batches, monkeypatch):
    """The operator's registered gradients equal autograd's in an eager call."""
    problem = Problem(device, sink=True, lengths=True, batches=batches, width=9)
    problem.indices[..., 0, :] = -1
    leaves = [tensor.detach().to(kind).requires_grad_() for tensor in (problem.q, problem.kv)]
    leaves.append(problem.sink)
    named = torch.tensor([0, 3, 1, 99], dtype=torch.int32, device=device)
    options = {"topk_length": problem.topk_length, "buckets": (2, 4), "topk": 5, "backend": "torch"}

    def layer(q, kv, sink, queries):
        out, lse = smelt.sparse_attention(
            q, kv, problem.indices, 0.3, sink=sink, queries=queries, return_lse=True, **options
        )
        return out, smelt.sparse_scores(q, kv, problem.indices, lse, 0.3, sink=sink, backend="torch")

    monkeypatch.setattr(smelt._reference, "CHUNK_BYTES", 5000)  # some queries at a time
    grad = problem.grad_out.to(kind)
    tolerance = {"rtol": 0.02, "atol": 0.02} if kind is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    torch._dynamo.reset()
    for queries in (None, named):
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        results = []
        for function in (layer, compiled):
            out, target = function(*leaves, queries)
            results.append((out, target, *torch.autograd.grad(out, leaves, grad)))
        for one, two in zip(*results):
            torch.testing.assert_close(two, one, **tolerance)


def test_compile_of_sums_that_go_on(device):
    """dkv_sum is written by the graph, too."""
    problem = Problem(device, sink=True, grad=False)
    out, lse = problem.run(return_lse=True)

    def backward(dkv_sum):
        dq, dkv, dsink = smelt.sparse_attention_backward(
            problem.grad_out, problem.q, problem.kv, problem.indices, out, lse, problem.scale, sink=problem.sink,
            dkv_sum=dkv_sum, deterministic=True,
        )  # fmt: skip
        return dq, dkv + 0.0, dsink

    want, got = (torch.ones(problem.kv.shape, device=device) for _ in range(2))
    compiled = torch.compile(backward, fullgraph=True, backend="aot_eager")
    for one, two in zip(backward(want), compiled(got)):
        assert torch.equal(one, two)
    assert torch.equal(want, got) and bool((want != 1).any())


def test_compile_with_inductor(device):
    """On a GPU beside a kernel of Inductor's; for one on the CPU it would run a C++ compiler for half a minute."""
    problem, more = Problem(device, grad=False), int(device.type == "cuda")

    def program(q, kv, indices):
        out = smelt.sparse_attention(q, kv, indices, problem.scale)
        return out + more if more else out

    compiled = torch.compile(program, fullgraph=True)
    assert torch.equal(compiled(problem.q, problem.kv, problem.indices), problem.run() + more)


def test_compiled_autocast(device):
    problem = Problem(device, grad=False)

    def layer(q, kv, indices):
        with torch.autocast(device.type, torch.bfloat16):
            return smelt.sparse_attention(q, kv, indices, problem.scale)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    got = compiled(problem.q.float(), problem.kv.float(), problem.indices)
    assert torch.equal(got, problem.run())


def test_export(device):
    problem = Problem(device, grad=False)

    class Layer(torch.nn.Module):
        def forward(self, q, kv, indices):
            return smelt.sparse_attention(q, kv, indices, problem.scale)

    arguments = (problem.q, problem.kv, problem.indices)
    program = torch.export.export(Layer(), arguments)
    assert any("smelt.sparse_attn" in str(node.target) for node in program.graph.nodes)
    assert torch.equal(program.module()(*arguments), problem.run())


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(device, reentrant):
    problem = Problem(device, sink=True)

    def layer(q, kv, sink):
        return smelt.sparse_attention(q, kv, problem.indices, problem.scale, sink=sink, deterministic=True)

    want = torch.autograd.grad(layer(*problem.leaves()), problem.leaves(), problem.grad_out)
    checkpoint(layer, *problem.leaves(), use_reentrant=reentrant).backward(problem.grad_out)
    for leaf, grad in zip(problem.leaves(), want):
        assert torch.equal(leaf.grad, grad)


def test_profiler_names_it(device):
    problem = Problem(device, grad=False)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        problem.run()
    assert any(event.key == "smelt::sparse_attn" for event in profile.key_averages())


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap(device):
    """PyTorch's fallback makes one call for each."""
    problem = Problem(device, batches=2, grad=False)
    got = torch.vmap(lambda q, kv, i: smelt.sparse_attention(q, kv, i, problem.scale, backend="smelt"))(
        problem.q, problem.kv, problem.indices
    )
    assert torch.equal(got, problem.run())


@pytest.mark.emulated
def test_dtensors_are_refused(device):
    """The error names the argument and says what to pass instead; that works."""
    distributed = pytest.importorskip("torch.distributed.tensor")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        problem = Problem(device)
        want, local = problem.run(), problem.kv
        problem.kv = distributed.distribute_tensor(local.detach(), mesh, [distributed.Replicate()]).requires_grad_()
        with pytest.raises(TypeError, match=r"kv must be a local tensor, not a DTensor: pass kv.to_local\(\)"):
            problem.run()
        problem.kv = problem.kv.to_local()
        assert torch.equal(problem.run(), want)
    finally:
        torch.distributed.destroy_process_group()
