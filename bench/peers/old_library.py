"""Builds of smelt without smelt/operator.h: the same calls through older functions."""

from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_void_p

from smelt_library import Layout, Library, struct

TYPES = {"l": c_int64, "i": c_int, "f": c_float, "p": c_void_p, "s": c_size_t, "t": None}
DIMENSIONS = {"q": 4, "kv": 3, "indices": 3}  # of sparse_attn's tensors, which may have strides

# The fields of each args struct after `size`: a type, then the fields of this type.
SHAPE = "l batches tokens rows width f scale i free_multiprocessors "
ATTENTION = SHAPE + "t q kv indices topk_length sink "
QUERIES = " t queries query_count l query_capacity "
SPACE = " p workspace s workspace_bytes "
LOGITS = "t q k weights k_scale window_begin window_end "
FIELDS = {
    "sparse_attn.forward": ATTENTION + "out lse max_logits" + QUERIES + SPACE,
    "sparse_attn.backward": ATTENTION + "out lse grad_out dq dkv dkv_fp32 dkv_sum dsink" + QUERIES
    + "p partition s partition_bytes" + SPACE + "workspace_limit",
    "sparse_scores.forward": ATTENTION + "lse target" + QUERIES,
    "topk_select.forward": "l tokens rows i index_offset reserved t logits window_begin window_end offset "
    "indices values lengths" + SPACE,
    "indexer_logits.forward": "l tokens rows i free_multiprocessors reserved " + LOGITS + "logits",
    "indexer_topk.forward": "l tokens rows i index_offset free_multiprocessors " + LOGITS
    + "offset indices values lengths" + SPACE + "workspace_limit l causal_limit",
    "indexer_scores.forward": "l tokens rows width i free_multiprocessors reserved t q k weights indices "
    "topk_length logits",
    "indexer_bwd.backward": "l tokens rows width t q k weights indices topk_length grad dq dweights dk dk_fp32 "
    "dk_sum" + SPACE + "i free_multiprocessors reserved",
}  # fmt: skip


class OldLibrary(Library):
    def create(self, spec):
        family, parsed, handle, knobs = spec.split(":")[0], struct(), c_void_p(), c_void_p()
        self.call(f"smelt_{family}_spec_parse", spec.encode(), byref(parsed), byref(knobs))
        self.call(f"smelt_{family}_create", byref(handle), self.context, byref(parsed))
        return handle

    def launch(self, spec, which, args, stream):
        call = f"smelt_{spec.split(':')[0]}_{which}"
        self.call(call, self.operator(spec), args, c_void_p(stream))

    def workspace(self, spec, which, args):
        size, function = c_size_t(), f"smelt_{spec.split(':')[0]}_{which}_workspace"
        self.call(function, self.operator(spec), args, byref(size))
        return size.value

    def layout(self, spec, which):
        tensors, scalars, offset, kind = {}, {}, 8, None
        for word in FIELDS[f"{spec.split(':')[0]}.{which}"].split():
            if word in TYPES:
                kind = word
            elif kind == "t":
                tensors[word] = offset, DIMENSIONS.get(word, 0)
                offset += 40  # a pointer and four strides
            else:
                scalars[word] = offset, TYPES[kind]
                offset += 4 if kind in "if" else 8
        return Layout(offset, tensors, scalars)
