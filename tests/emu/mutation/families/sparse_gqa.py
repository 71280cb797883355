"""What the families of the operator sparse_gqa share: no configurations of its own."""

from configurations import Check


def check(name, keys, options, topk, family, knobs="", variant="mma", **more):
    """A check of the operator with these keys, of which the family's kernel has all but topk."""
    knobs = f",variant={variant}" + ("," + knobs if knobs else "")
    passes = "" if family == "sparse_gqa_fwd" else ",passes=backward"
    kernel = keys if family == "sparse_gqa_fwd" else keys.replace(",sink=1", "").replace(",deterministic=1", "")
    return Check(name, f"sparse_gqa:{keys},topk={topk}{passes}{knobs}", f"{family}:{kernel}{knobs}", options, **more)
