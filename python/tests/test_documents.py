"""The documents' Python blocks run, on small tensors and in the eager reference."""

import pathlib
import re

import pytest
import smelt_kernels as smelt
import torch

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTS = ("README.md", "docs/pytorch.md")
HEADS = 4


def blocks():
    """Each block, named by its document and first line; without those that install smelt in another package."""
    for document in DOCUMENTS:
        for text in re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S):
            if ".install(" not in text:
                yield pytest.param(text, id=f"{document}: {text.splitlines()[0][:40]}")


def given(text):
    """The names that a block assumes: tensors of latent attention, or of grouped heads in a block without `kv`."""
    grouped = not re.search(r"\bkv\b", re.sub("#.*", "", text))
    # Where the second of two documents begins; MiniMax-M3's blocks have 128 keys.
    begin, tokens, width = (128, 144, 64) if grouped else (16, 32, 576)

    def random(*shape):
        return torch.randn(*shape, dtype=torch.bfloat16).mul_(0.1).requires_grad_()

    lists = torch.randint(-1, tokens, (tokens, 128), dtype=torch.int32)
    cu_seqlens = torch.tensor([0, begin, tokens], dtype=torch.int32)
    names = {
        "q": random(tokens, HEADS, width), "kv": random(tokens, 576), "k": random(tokens, 4, 64), "v": random(tokens, 4, 64),
        "iq": random(tokens, HEADS, 64), "ik": random(tokens, 64), "pooled_k": random(tokens // 4, 64),
        "weights": torch.rand(tokens, HEADS, requires_grad=True), "per_query": torch.ones(tokens),
        "w_vc": random(HEADS, 32, 512), "indices": lists, "replayed": lists.clone(), "cu_seqlens": cu_seqlens,
        "tokens": tokens, "rows": tokens, "pools": tokens // 4, "scale": 0.1, "smelt": smelt, "torch": torch,
    }  # fmt: skip
    names["begin"], names["end"] = smelt.indexer_windows(cu_seqlens, tokens, tokens)
    names["end_of_tokens"] = names["end"]
    if "pooled_k" in text and "cu_seqlens" not in text and "dense" not in text:  # windows of pools
        names["begin"], names["end"] = smelt.indexer_windows(
            cu_seqlens, tokens, tokens // 4, ratio=4, cu_seqlens_keys=cu_seqlens // 4
        )
    return names


@pytest.mark.parametrize("text", list(blocks()))
def test_block_runs(text):
    torch.manual_seed(0)
    smelt.set_backend("torch")
    try:
        names = given(text)
        if "backward(grad)" in text:
            last = 32 if "project_values" in text else 512
            names["grad"] = torch.ones(len(names["q"]), HEADS, last, dtype=torch.bfloat16)
        exec(text, names)
        if "loss" in names:
            assert torch.isfinite(names["loss"])
            names["loss"].backward()
    finally:
        smelt.set_backend("smelt")
