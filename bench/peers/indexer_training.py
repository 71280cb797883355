"""The operators that train the indexer, compared with cuDNN Frontend's."""

import math

import attention
from harness import DEVICE, reference, torch

SAMPLE = 16  # queries that are compared with double precision


def sample(count):
    return torch.linspace(0, count - 1, SAMPLE, device=DEVICE).long()


class Target(attention.Row):
    """sparse_scores, compared with cuDNN's sparse_attn_score_recompute_wrapper, which divides each query's row by its
    sum. Check: "error", the largest error of sampled queries' rows divided by their sums; for cuDNN "peer's
    error"."""

    FLAGS, LISTS = (), ("random", "drift")
    SETS = {"all": "h64-8192,h128-8192,h32-8192,h16-8192,h8-8192"}
    BOUNDS = {"error": 1e-4}

    def make(self, options):
        self.dv = self.dqk // 128 * 128
        self.make_inputs(options)
        # Close to the true one, which would need a forward pass; the work is the same for any lse.
        self.lse = torch.full((self.tokens, self.heads), math.log(self.topk) + 0.5, device=DEVICE)
        self.flops = 2 * self.pairs * self.heads * self.dqk

    def spec(self):
        return super().spec().replace("sparse_attn", "sparse_scores")

    def arguments(self):
        return {**super().arguments(), "lse": self.lse}

    def outputs(self):
        return attention.uninitialised(target=(self.tokens, self.topk))

    def peers(self, options):
        return {"cudnn": self.cudnn}

    def cudnn(self):
        from cudnn import DSA

        results = self.outputs()
        inputs = [tensor[None] for tensor in (self.q, self.kv, self.lse, self.indices)]
        options = {"softmax_scale": self.scale, "out": results["target"][None]}
        return lambda: DSA.sparse_attn_score_recompute_wrapper(*inputs, **options), results

    def check(self, contenders, options):
        some = sample(self.tokens)
        q, kv = self.q[some].double(), self.kv.double()
        right = reference().sparse_scores(q, kv, self.indices[some], self.lse[some], self.scale)
        right = right / right.sum(dim=1, keepdim=True)
        found = {}
        for each in contenders:
            got = each.results["target"][some].double()
            off = got / got.sum(dim=1, keepdim=True) - right
            found[each.name] = {judged(each): float(off.abs().max())}
        return found


def judged(contender):
    """smelt's errors have a limit; a peer's are only shown."""
    return "error" if contender.name.startswith("smelt") else "peer's error"


class Scores(attention.Row):
    """indexer_scores, compared with cuDNN's sparse_indexer_score_recompute_wrapper, which also computes the softmax
    over a query's slots and has bf16 weights; smelt gets the same numbers. Check: "error", the largest error of
    sampled queries' logits, relative to the sum of their terms' absolute values; "peer's error", of cuDNN's
    probabilities, relative to the largest one."""

    DQK, NUMBERS, FLAGS, LISTS = 128, {"s": "rows", "k": "topk"}, (), ("random", "drift")
    SETS = {"all": "h64-8192,h32-8192,h16-8192,h8-8192,h64-8192-drift,h32-8192-drift"}
    BOUNDS = {"error": 1e-5}

    def make(self, options):
        self.make_inputs(options)
        weights = torch.randn(self.tokens, self.heads, device=DEVICE) / 100
        self.weights = weights.bfloat16().float()
        self.flops, self.bytes = 2 * self.heads * self.dqk * self.pairs, 2 * self.dqk * self.pairs

    def spec(self):
        return f"indexer_scores:heads={self.heads},dim={self.dqk},topk={self.topk}"

    def arguments(self):
        named = {"tokens": self.tokens, "rows": self.rows, "width": self.topk}
        tensors = {"q": self.q, "k": self.kv, "weights": self.weights, "indices": self.indices}
        return {**named, **tensors, "topk_length": self.length}

    def outputs(self):
        return attention.uninitialised(logits=(self.tokens, self.topk))

    def peers(self, options):
        return {"cudnn": self.cudnn}

    def cudnn(self):
        from cudnn import DSA

        results = self.outputs()
        inputs = self.q[None], self.kv[None], self.weights.bfloat16()[None], self.indices[None]
        wrapper, out = DSA.sparse_indexer_score_recompute_wrapper, results["logits"][None]
        return lambda: wrapper(*inputs, out=out), results

    def check(self, contenders, options):
        some, found = sample(self.tokens), {}
        scores, lists = reference("_indexer_reference").scores, (self.indices[some], None)
        q, k, weights = self.q[some].double(), self.kv.double(), self.weights[some].double()
        logits, sizes = (scores(q, k, weights, *lists), scores(q.abs(), k.abs(), weights.abs(), *lists))
        for each in contenders:
            right, over = logits, sizes
            if judged(each) != "error":
                right = logits.softmax(dim=1)
                over = right.amax(dim=1, keepdim=True)
            off = (each.results["logits"][some].double() - right).abs() / over
            found[each.name] = {judged(each): float(off.max())}
        return found


class Gradients(Scores):
    """indexer_bwd, compared with cuDNN's indexer_backward_wrapper, which supports only 64 heads, first computes the
    loss's gradient from two matrices of probabilities (included in its time), and has bf16 weights. smelt gets the
    gradient that cuDNN's first kernel computes, or a similar one, and the same weights. Checks: the largest difference
    of a query's dq and of a key's dk from fp32, relative to its norm (rows above 1e-3 of the largest)."""

    SETS = {
        "all": """h64-8192,h64-16384,h64-8192-drift,h64-16384-drift,h32-8192,h32-8192-drift,h16-8192,h16-8192-drift"""
    }
    BOUNDS = {"dq": 2e-2, "dk": 2e-2}
    CUDNN_HEADS = 64
    which, deterministic = "backward", True

    def make(self, options):
        super().make(options)
        shape = self.tokens, self.topk
        self.target = torch.rand(shape, device=DEVICE).pow_(8)
        self.target /= self.target.sum(dim=1, keepdim=True)
        self.predicted = torch.randn(shape, device=DEVICE).softmax(dim=1)
        self.grad = (self.predicted - self.target) / self.tokens
        self.flops *= 3

    def spec(self):
        return super().spec().replace("indexer_scores", "indexer_bwd")

    def arguments(self):
        return {**super().arguments(), "grad": self.grad}

    def outputs(self):
        shapes = {"dq": (*self.q.shape, "bf16"), "dk": (*self.kv.shape, "bf16")}
        return attention.uninitialised(dweights=self.weights.shape, **shapes)

    def contenders(self, options):
        """cuDNN first, because it computes the gradient for smelt."""
        found = super().contenders(options)
        return {name: found[name] for name in sorted(found, key=lambda name: name != "cudnn")}

    def peers(self, options):
        return {"cudnn": self.cudnn} if self.heads == self.CUDNN_HEADS else {}

    def cudnn(self):
        from cudnn import DSA

        target, results = self.target.clone()[None], {}
        inputs = {
            "index_q": self.q[None], "weights": self.weights.bfloat16()[None], "index_k": self.kv[None],
            "attn_score": target, "index_score": self.predicted[None], "topk_indices": self.indices[None],
            "grad_loss": torch.ones(1, device=DEVICE),
        }  # fmt: skip
        found = DSA.indexer_backward_wrapper(**inputs)
        torch.cuda.synchronize()
        self.grad.copy_(target[0])  # overwritten by its first kernel; later launches differ
        results.update(dq=found["d_index_q"][0].clone(), dk=found["d_index_k"][0].clone())
        return lambda: DSA.indexer_backward_wrapper(**inputs), results

    def check(self, contenders, options):
        exact = reference("_indexer_reference").scores_backward
        q, k, lists = self.q.float(), self.kv.float(), (self.indices, None)
        dq, dk, _ = exact(self.grad, q, k, self.weights, *lists)
        return {
            each.name: {
                "dq": attention.worst_row(each.results["dq"].flatten(1), dq.flatten(1)),
                "dk": attention.worst_row(each.results["dk"], dk),
            }
            for each in contenders
        }
