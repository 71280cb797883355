"""examples/train.py trains like the eager reference, and on two ranks like on one."""

import importlib.util
import os
import pathlib
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

PATH = pathlib.Path(__file__).parents[2] / "examples" / "train.py"
pytestmark = pytest.mark.skipif(not PATH.exists(), reason="the examples are not here")


def load():
    spec = importlib.util.spec_from_file_location("smelt_train", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.DOCUMENTS, module.PERIOD, module.BLOCK = (8, 12), 3, 4  # small: for the emulator
    return module


def close(one, two, tolerance):
    return all(abs(a - b) <= tolerance * abs(b) for x, y in zip(one, two) for a, b in zip(x, y))


MODELS = ("dsa", "v4", "glm-5.3-flash", "deepseek-v4.1", "msa", "qsa")


@pytest.mark.parametrize("model", ["dsa", "v4", "msa"])
def test_losses_are_the_references(device, model):
    """Of a step of the indexer's warm-up and of one with sparse attention."""
    train = load()
    ours, _ = train.train(model, 2, "smelt", device, warm_up=1)
    reference, _ = train.train(model, 2, "torch", device, warm_up=1)
    assert close(ours, reference, 0.01), (ours, reference)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_runs(model):
    train = load()
    assert model in train.MODELS and len(train.MODELS) == len(MODELS)
    losses, trained = train.train(model, 90, "torch", "cpu", dense=40, warm_up=45)
    assert all(0 < words < 6 for words, _ in losses) and not any(loss for _, loss in losses[:40])
    learnt = [loss for _, loss in losses[40:85]]
    assert sum(learnt[-8:]) < 0.8 * sum(learnt[:8]), learnt
    assert all(0 < loss < 6 for _, loss in losses[85:])


def test_phases_train_what_they_say():
    train = load()
    for phase, steps in (("dense", {"dense": 1}), ("warm-up", {"warm_up": 1})):
        _, model = train.train("msa", 1, "torch", "cpu", **steps)
        _, same = train.train("msa", 0, "torch", "cpu")
        for (name, one), (_, two) in zip(model.named_parameters(), same.named_parameters()):
            assert torch.equal(one, two) == ((".index_" in name) == (phase == "dense")), name


@pytest.mark.parametrize(("model", "steps"), [("v4", 110), ("msa", 60)])
def test_it_learns(model, steps):
    losses, _ = load().train(model, steps, "torch", "cpu", dense=steps // 3, warm_up=steps // 6)
    words = [loss for loss, _ in losses]
    assert sum(words[-10:]) < 0.3 * sum(words[:10])


def test_its_kernels_can_be_warmed():
    import smelt_kernels as smelt

    kernels = smelt.warm(load().Model("v4"))
    assert len(kernels) > 4 and {kernel["state"] for kernel in kernels} <= {"compiled", "cached"}


def rank(number, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    from smelt_kernels import _native, _runtime

    if _runtime.EMULATED:
        _native.emulate(8, 9)
    device = "cpu" if _runtime.EMULATED else f"cuda:{number}"
    if device != "cpu":
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if device == "cpu" else "nccl", rank=number, world_size=2)
    losses, model = load().train("dsa", 1, "smelt", device)
    if number == 0:
        torch.save((losses, [parameter.grad.cpu() for parameter in model.parameters()]), results)
    dist.destroy_process_group()


def test_two_ranks(device, tmp_path):
    if device.type == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("one device")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = tmp_path / "results.pt"
    multiprocessing.spawn(rank, (port, results), nprocs=2)
    losses, grads = torch.load(results)
    alone, model = load().train("dsa", 1, "smelt", device)
    assert close(losses, alone, 0.005), (losses, alone)
    for two, parameter in zip(grads, model.parameters()):
        one = parameter.grad.cpu()
        assert float((two - one).norm()) <= 0.03 * float(one.norm()) + 1e-6
