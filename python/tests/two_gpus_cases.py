"""What test_devices.py runs in a process whose driver has two GPUs (two_gpus.py): each public function on either, with
the other one current, on a stream that is not the default one and whose earlier work is late."""

import pytest
import torch
from conftest import DRIVER
from everything import bases, differentiable, functions
from test_hostile import call, floats_of, tensors_of
from torch.autograd.graph import _engine_run_backward, saved_tensors_hooks
from two_gpus import TwoGpus

WITHOUT_A_KERNEL = {"project_values", "selection_difference"}
EVERYWHERE = {"indexer_loss", "indexer_dense_loss"}  # its backward pass is a product of PyTorch's
# The backward pass of these is a product of PyTorch's, or nothing.
NO_BACKWARD_KERNEL = WITHOUT_A_KERNEL | EVERYWHERE | {"fake_quantize"}


@pytest.fixture(scope="module")
def gpus():
    with TwoGpus(DRIVER) as gpus:
        gpus.everything = bases(torch.device("cuda", 0))
        gpus.forget()
        yield gpus


@pytest.fixture(params=[True, False], ids=["exchange", "methods"])
def exchange(request, gpus):
    """How the module looks at tensors: the older way, which is the same for all, of some functions."""
    if not request.param and request.node.callspec.params["name"] not in ("quantize", "sparse_attention"):
        pytest.skip("as of the others")
    gpus.setup(request.param)
    return request.param


def of(gpus, name):
    """The function's sets of arguments, one after another."""
    for function, given in gpus.everything.values():
        if function == name:
            gpus.forget()
            yield given


def placed(gpus, given, device):
    """Copies of its tensors there."""
    return {
        each: gpus.on(device, value.detach().clone()) if isinstance(value, torch.Tensor) else value
        for each, value in given.items()
    }


def delay(gpus, given, stream):
    """The tensors get their values on the stream, late."""

    def fill(tensor, values):
        with torch.no_grad():
            tensor.view(torch.uint8).copy_(values)

    for value in given.values():
        if isinstance(value, torch.Tensor):
            raw = value.detach().view(torch.uint8)
            gpus.pending.setdefault(stream, []).append(lambda raw=raw, values=raw.clone(): fill(raw, values))
            raw.fill_(0)


def launches(gpus):
    made = gpus.launches[:]
    gpus.launches.clear()
    return made


@pytest.mark.parametrize("name", functions())
def test_streams_and_devices(gpus, exchange, name):
    """On a device the first call is new to the package, the second one is known."""
    for given in of(gpus, name):
        want = tensors_of(call(name, placed(gpus, given, 0)))
        launches(gpus)
        for device, current in ((1, 0), (1, 1), (0, 1))[: 3 if exchange else 1]:
            gpus.home, gpus.device = device, current
            there = placed(gpus, given, device)
            with gpus.stream(device, 1) as stream:
                # PyTorch, which takes no part in the delay, computes from lists with a limit first.
                if name not in WITHOUT_A_KERNEL and not (name == "indexer_scores" and "limit" in given):
                    delay(gpus, there, stream)
                got = tensors_of(call(name, there))
            assert set(launches(gpus)) == ({(device, stream)} if name not in WITHOUT_A_KERNEL else set())
            for one, two in zip(got, want, strict=True):
                assert gpus.device_of(one) == device
                assert torch.equal(one.float(), two.float())


@pytest.mark.parametrize("name", functions())
def test_gradients(gpus, exchange, name):
    for given in of(gpus, name):
        leaves, wanted = differentiable(name, given), {}
        if not leaves:
            return
        for device, current in ((0, 0), (1, 0), (1, 1), (0, 1))[: 4 if exchange else 2]:
            gpus.home, gpus.device = device, current
            there = placed(gpus, given, device)
            for each in leaves:
                there[each].requires_grad_()
            with gpus.stream(device, 0):
                out = floats_of(call(name, there))
            grad = gpus.on(device, torch.ones(out.shape, dtype=out.dtype))
            launches(gpus)
            with gpus.stream(device, 1) as stream:  # PyTorch makes the forward pass's the current one, on a GPU
                got = _engine_run_backward(
                    (out,), (grad,), False, False, tuple(there[each] for each in leaves), True, False
                )
            of_kernels = set(launches(gpus))
            assert of_kernels == set() if name in NO_BACKWARD_KERNEL else of_kernels == {(device, stream)}
            for each, one in zip(leaves, got):
                assert gpus.device_of(one) == device
                torch.testing.assert_close(one, wanted.setdefault(each, one), rtol=0.02, atol=1e-2, check_device=False)


@pytest.mark.parametrize("name", sorted(set(functions()) - WITHOUT_A_KERNEL))
def test_tensors_elsewhere(gpus, exchange, name):
    """On the other GPU, or on the CPU: an error that names the tensor, and no launch."""
    for given in of(gpus, name):
        gpus.home = gpus.device = 0
        names = [each for each, value in given.items() if isinstance(value, torch.Tensor)]
        call(name, placed(gpus, given, 0))  # the second time it is known
        launches(gpus)
        for other in (1, None) if len(names) > 1 else (None,):
            named = 0
            for each in names:
                there = placed(gpus, given, 0)
                gpus.on(other, there[each])
                with pytest.raises((ValueError, RuntimeError), match="must be on device cuda:|on the CPU") as caught:
                    call(name, there)
                named += f"{each} must be" in str(caught.value)
                assert not launches(gpus)
            # All but the one by whose device the others' are judged.
            assert named >= len(names) - 1, (named, names)


@pytest.mark.parametrize("name", functions())
def test_what_a_node_kept_elsewhere(gpus, exchange, name):
    """Tensors that a hook of the program's brings back to another device, one at a time."""
    for given in of(gpus, name):
        leaves = differentiable(name, given)
        if not leaves or name in WITHOUT_A_KERNEL | EVERYWHERE:
            return
        gpus.home = gpus.device = 0
        there = placed(gpus, given, 0)
        for each in leaves:
            there[each].requires_grad_()
        kept = []
        with saved_tensors_hooks(lambda each: kept.append(each.detach()) or len(kept) - 1, lambda at: brought(at)):
            out = floats_of(call(name, there))
        grad = gpus.on(0, torch.ones(out.shape, dtype=out.dtype))
        launches(gpus)
        for moved in range(len(kept)):

            def brought(at, moved=moved):
                return gpus.on(1, kept[at].clone()) if at == moved else kept[at]

            with pytest.raises((ValueError, RuntimeError), match="must be on device cuda:"):
                _engine_run_backward((out,), (grad,), True, False, tuple(there[each] for each in leaves), True, False)
            assert not launches(gpus)
