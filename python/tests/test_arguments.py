"""Wrong arguments, one at a time, of each public function: the error names the argument."""

import inspect
import re

import numpy
import pytest
import smelt_kernels as smelt
import torch
from everything import bases, call, fresh, fullest, functions, parameters

KINDS = (torch.bfloat16, torch.float32, torch.int32, torch.uint8, torch.float8_e4m3fn, torch.float16, torch.float64)
KINDS += (torch.int64, torch.bool, torch.complex64)
NO_TENSORS = (3, 0.5, "x", b"x", [1.0], {}, object(), torch.float32)
NO_OPTIONS = ("no such", object(), [object()], 1j, numpy.array([[1, 2]]), torch.tensor([4, 4]))
TRUTHS = {"unite", "tail", "ascending", "deterministic", "return_losses", "return_lse", "return_max_logits"}  # any value has a truth value


@pytest.fixture(scope="module")
def everything(device):
    return bases(device)


def names_it(error, name):
    return re.search(rf"\b{name}\b", str(error)) is not None


def wrong_tensors(name, each, value):
    """(arguments, whether the error must name this argument)."""
    for wrong in NO_TENSORS:
        yield wrong, True
    for kind in KINDS:
        if kind is not value.dtype:
            yield value.to(kind), True
    yield value.unsqueeze(0).unsqueeze(0).unsqueeze(0).unsqueeze(0), name not in ("fake_quantize", "quantize")
    if value.dim():
        yield value[0], False
        yield value[:0], False


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", functions())
def test_wrong_arguments(everything, name):
    _, base = fullest(everything, name)
    for each, is_tensor in parameters(name).items():
        if is_tensor and each not in base:
            continue
        if is_tensor:
            wrong = wrong_tensors(name, each, base[each])
        else:
            wrong = () if each in TRUTHS else ((value, True) for value in NO_OPTIONS)
        for value, named in wrong:
            try:
                call(name, {**fresh(base), each: value})
            except (TypeError, ValueError, RuntimeError) as error:
                if name == "project_values" and type(error) is NotImplementedError:
                    continue  # a product by PyTorch
                text = str(error)
                assert "smelt: " in text, (each, value, text)
                if named:
                    assert names_it(text, each), (each, value, text)
                continue
            # A number of another type is legal; other values are not.
            assert isinstance(value, torch.Tensor) and value.is_floating_point() or not named, (each, value)


@pytest.mark.parametrize("name", functions())
def test_integers_of_numpy(everything, name):
    _, base = fullest(everything, name)
    for each, parameter in inspect.signature(getattr(smelt, name)).parameters.items():
        value = base.get(each, parameter.default)
        if type(value) is int:
            call(name, {**fresh(base), each: numpy.int64(value)})
