"""examples/train.py trains like the eager reference, and on two ranks like on one."""

import importlib.util
import os
import pathlib
import socket

import pytest
import smelt_kernels as smelt
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from smelt_kernels import _native, _runtime

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
    """The warm-up's loss falls; the documents are the same in all steps."""
    train = load()
    assert model in train.MODELS and len(train.MODELS) == len(MODELS)
    make = train.batch
    train.batch = lambda step, *rest: make(0, *rest)
    losses, _ = train.train(model, 9, "torch", "cpu", dense=1, warm_up=7)
    assert all(0 < words < 6 for words, _ in losses)
    (_, none), (_, first), *_, (_, last), (_, sparse) = losses
    assert none == 0 < last < 0.7 * first and 0 < sparse < 6, losses


def test_stages_train_what_they_say():
    train = load()
    for stage, steps in (("dense", {"dense": 1}), ("warm-up", {"warm_up": 1})):
        _, model = train.train("msa", 1, "torch", "cpu", **steps)
        _, same = train.train("msa", 0, "torch", "cpu")
        for (name, one), (_, two) in zip(model.named_parameters(), same.named_parameters()):
            assert torch.equal(one, two) == ((".index_" in name) == (stage == "dense")), name


@pytest.mark.parametrize(("model", "steps"), [("v4", 110), ("msa", 60)])
def test_it_learns(model, steps):
    losses, _ = load().train(model, steps, "torch", "cpu", dense=steps // 3, warm_up=steps // 6)
    words = [loss for loss, _ in losses]
    assert sum(words[-10:]) < 0.3 * sum(words[:10])


def test_it_prints_as_it_goes(monkeypatch):
    """The mean losses of the steps since the previous line, at the end of each fifth of a stage or after ten seconds."""
    train, printed, now = load(), [], [0.0]
    monkeypatch.setattr(train.time, "monotonic", lambda: now[0])
    train.print = lambda text, flush=False: printed.append((text, flush))
    progress = train.Progress(30, 10, 5)
    for done in range(1, 31):
        now[0] += 20 if done == 18 else 0.1
        progress([[step, 1.0] for step in range(done)])
        assert len(printed) == min(done, 10) // 2 + min(max(done - 10, 0), 5) + max(done - 15, 0) // 3, done
    progress = train.Progress(12, 0, 0)
    printed.clear()
    for done, lines in zip(range(1, 7), (0, 1, 2, 3, 3, 4)):
        now[0] += 20 if done == 3 else 0.1
        progress([[step, 1.0] for step in range(done)])
        assert len(printed) == lines, done
    assert printed[1] == ("steps    2 to    2   sparse    words 2.0000   indexer 1.0000", True)


def test_its_kernels_can_be_warmed():
    kernels = smelt.warm(load().Model("v4"))
    assert len(kernels) > 4 and {kernel["state"] for kernel in kernels} <= {"compiled", "cached"}


def asked(monkeypatch, train, model, **steps):
    """The kernels for which a step's calls ask, by operator."""
    found = {}

    def find(key, _, spec, *options):
        text = spec(*key[1:], *options)
        found.setdefault(text.split(":")[0], set()).update(_native.expand(text))

    monkeypatch.setattr(_runtime, "find", find)
    train.train(model, 1, "torch", "cpu", **steps)
    return found


def expanded(specs):
    return {kernel for spec in specs for kernel in _native.expand(spec)}


@pytest.mark.parametrize("model", MODELS)
def test_a_model_names_its_kernels(monkeypatch, model):
    train = load()
    named = expanded(spec for _, attention, *_ in train.Model(model).layers for spec in attention.smelt_specs())
    for steps in {"dense": 1}, {"warm_up": 1}, {}:
        for operator, kernels in asked(monkeypatch, train, model, **steps).items():
            assert kernels <= named, (operator, steps)


LATENT = {"WIDTH": 128, "VALUE": 512, "INDEX_DIM": 128}
V4 = {**LATENT, "INDEX_HEADS": 64, "WINDOW": 128}
SIZES = {  # the example's model and its constants, of each preset
    "glm-5.2": ("dsa", {**LATENT, "HEADS": 64, "INDEX_HEADS": 32, "TOPK": 2048}),
    "glm-5.3-flash": ("glm-5.3-flash", {**LATENT, "HEADS": 64, "INDEX_HEADS": 32, "TOPK": 2048, "POOL": 4}),
    "deepseek-v3.2": ("dsa", {**LATENT, "HEADS": 128, "INDEX_HEADS": 64, "TOPK": 2048}),
    "deepseek-v4-flash": ("v4", {**V4, "HEADS": 64, "TOPK": 512}),
    "deepseek-v4-pro": ("v4", {**V4, "HEADS": 128, "TOPK": 1024}),
    "deepseek-v4.1": ("deepseek-v4.1", {**V4, "HEADS": 64, "TOPK": 512, "PUBLISHED": 2048, "POOL": 8}),
    "qwen3.8-flash-next": (
        "qsa",
        {"KV_HEADS": 2, "GROUP": 12, "VALUE": 256, "INDEX_HEADS": 4, "INDEX_DIM": 128, "TOPK": 2048, "POOL": 4},
    ),
    "minimax-m3": ("msa", {"KV_HEADS": 4, "GROUP": 16, "VALUE": 128, "INDEX_DIM": 128, "BLOCK": 128, "BLOCKS": 16}),
}


@pytest.mark.parametrize("preset", smelt.presets())
def test_a_preset_has_the_kernels_of_its_training(monkeypatch, preset):
    """Of the warm-up, whose dense attention is other libraries', and of sparse training. One short document, since the
    eager reference computes."""
    train, (model, sizes) = load(), SIZES[preset]
    vars(train).update(sizes, documents_of=lambda model: (4,))
    of_preset = expanded(_native.preset(preset, 1, 0))
    for steps in {"warm_up": 1}, {}:
        for operator, kernels in asked(monkeypatch, train, model, **steps).items():
            if not steps or operator.startswith("indexer_"):
                assert kernels <= of_preset, (operator, kernels - of_preset)


def rank(number, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
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
