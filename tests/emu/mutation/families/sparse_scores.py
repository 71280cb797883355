"""What the families of the operator sparse_scores share: no configurations of its own."""

from configurations import Check


def check(name, keys, options, topk, knobs, **more):
    """A check of the operator with these keys, which its kernel has, too, but for topk and sink."""
    knobs = "," + knobs if knobs else ""
    kernel = keys.replace(",sink=1", "")
    return Check(name, f"sparse_scores:{keys},topk={topk}{knobs}",
                 f"sparse_scores_fwd:{kernel}{knobs}", options, **more)
