"""Every public function's docstring: its arguments, its result, its errors, and an example that runs."""

import ast
import contextlib
import doctest
import inspect
import io
import pathlib
import re

import pytest
import smelt_kernels as smelt
import torch

FUNCTIONS = sorted(name for name in smelt.__all__ if inspect.isfunction(getattr(smelt, name)))
EXPENSIVE = {"warm"}
FILES = re.compile(r"\b(?:docs|include|examples|tests|scripts|bench|templates)/\w|\w\.md\b|\bsmelt/\w+\.h\b")


def sections(name):
    """{title: text} of a docstring in Google's style."""
    parts = re.split(r"^(Args|Returns|Raises|Example):\n", inspect.getdoc(getattr(smelt, name)), flags=re.M)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2]))}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_and_results(name):
    found = sections(name)
    signature = inspect.signature(getattr(smelt, name))
    described = re.findall(r"^    (\w+): \S", found.get("Args", ""), re.M)
    assert described == list(signature.parameters)
    assert re.match(r"    [^\n:]+\n", found["Returns"])  # up to a colon in its first line the documents show a type
    assert re.match(r"[A-Z][^\n]*[.:]\n|[A-Z][^.]*\.", found[""])
    if signature.parameters:
        assert "Error: " in found["Raises"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples_run(name, device):
    examples = doctest.DocTestParser().get_examples(sections(name)["Example"])
    assert examples and any(name in each.source for each in examples)
    for each in examples:
        ast.parse(each.source)
    if name in EXPENSIVE:
        return
    made = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=made).to(device, torch.bfloat16).requires_grad_()

    def numbers(*values):
        return torch.tensor(values, dtype=torch.int32, device=device)

    known = {
        "torch": torch, "smelt": smelt, "step": lambda: None, "q": normal(3, 8, 576), "kv": normal(9, 576),
        "indices": numbers((0, 4, -1), (8, 2, 1), (7, 3, 2)), "scale": 576**-0.5, "grad": normal(3, 8, 512).detach(),
        "gq": normal(3, 8, 64), "gk": normal(9, 2, 64), "gv": normal(9, 2, 64),
        "blocks": numbers(((0, -1),), ((0, 1),), ((1, 0),)), "iq": normal(3, 64, 128), "ik": normal(9, 128),
        "weights": normal(3, 64).detach().float(), "begin": numbers(0, 0, 5), "end": numbers(2, 9, 9),
    }  # fmt: skip
    before = smelt.set_backend("auto" if name == "set_backend" else "torch")
    try:
        for each in examples:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(each.source, f"<example of {name}>", "single"), known)
            assert not each.want or printed.getvalue() == each.want, each.source
    finally:
        smelt.set_backend(before)


def test_no_docstring_names_a_file_that_a_wheel_lacks():
    """Tests the package's Python files; needs the repository."""
    for path in sorted(pathlib.Path(smelt.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node) or ""
                assert path.name == "report.py" or not FILES.search(text), (path.name, text)
