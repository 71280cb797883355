"""Type checkers, mypy and pyright, agree with typed.py, and find no error in the documents' Python lines."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

TESTS = pathlib.Path(__file__).parent
ROOT = TESTS.parents[1]
DOCUMENTS = ("README.md", "docs/pytorch.md")
# Declarations that the documents' lines assume.
NAMES = {
    "Tensor": "k v blocks limit cu_seqlens end_of_tokens grad ik indices iq kv per_query pooled_k q replayed w_vc weights begin end",
    "int": "pools rows tokens",
    "float": "scale",
    "str": "name",
}
# PyTorch's tensors are all that the package's types name: mypy reads no more of it.
MYPY = """
[mypy]
warn_unused_ignores = True
[mypy-torch.*]
follow_imports = skip
[mypy-torch,torch._tensor,torch._C,torch._C._VariableFunctions,torch.types,torch.nn,torch.nn.modules,torch.nn.modules.module]
follow_imports = silent
"""
CACHE = ROOT / "build" / "mypy" if (ROOT / "build").is_dir() else "mypy"  # mypy's cache of other packages
PYRIGHT = {"typeCheckingMode": "standard", "reportUnnecessaryTypeIgnoreComment": "error"}


def documented() -> str:
    """The documents' Python blocks, a function each."""
    lines = ["import torch", "from torch import Tensor", "import smelt_kernels as smelt"]
    lines += [f"{name}: {kind}" for kind, names in NAMES.items() for name in names.split()]
    for document in DOCUMENTS:
        blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S)
        assert blocks, document
        for number, block in enumerate(blocks):
            lines.append(f"def block_{number}_of_{re.sub('[^a-zA-Z]', '_', document)}() -> None:")
            lines.append(textwrap.indent(block, "    "))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("typing")
    (folder / "documented.py").write_text(documented())
    (folder / "typed.py").write_text((TESTS / "typed.py").read_text())
    (folder / "transformers.pyi").write_text("from typing import Any\nAutoModelForCausalLM: Any\n")
    (folder / "mypy.ini").write_text(MYPY)
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    return folder


@pytest.mark.parametrize(
    "checker, arguments",
    [
        ("mypy", ["--config-file", "mypy.ini", "--cache-dir", str(CACHE), "typed.py", "documented.py"]),
        ("basedpyright", ["--pythonpath", sys.executable]),
    ],
)
def test_checkers_find_no_error(sources, checker, arguments):
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    done = subprocess.run([sys.executable, "-m", checker, *arguments], cwd=sources, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
