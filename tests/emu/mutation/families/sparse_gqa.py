"""What the families of the operator sparse_gqa share: no configurations of its own."""

from configurations import Check


def check(name, keys, options, topk, family, knobs="", **more):
    """A check of the operator with these keys, of which the family's kernel has all but topk."""
    knobs = "," + knobs if knobs else ""
    if family != "sparse_gqa_bwd":  # which has that variant only
        knobs = ",variant=mma" + knobs
    passes = "" if family == "sparse_gqa_fwd" else ",passes=backward"
    kernel = keys if family == "sparse_gqa_fwd" else keys.replace(",sink=1", "").replace(",deterministic=1", "")
    return Check(name, f"sparse_gqa:{keys},topk={topk}{passes}{knobs}", f"{family}:{kernel}{knobs}", options, **more)
