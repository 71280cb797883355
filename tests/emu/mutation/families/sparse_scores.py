"""Shared by the families of the operator sparse_scores; no configurations."""

from configurations import Check


def check(name, keys, options, topk, knobs, **more):
    """A check of the operator with these keys, which except for topk and sink are also its kernel's."""
    knobs = "," + knobs if knobs else ""
    kernel = keys.replace(",sink=1", "")
    return Check(name, f"sparse_scores:{keys},topk={topk}{knobs}",
                 f"sparse_scores_fwd:{kernel}{knobs}", options, **more)
