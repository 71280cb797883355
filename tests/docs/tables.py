#!/usr/bin/env python3
"""tables.py PROGRAM ROOT: headers and docs/operators.md describe the operators' tensors as the library does.

PROGRAM is built from tensors.c. For each args struct in include/smelt/ and each table of tensors in docs/operators.md
it compares names, shapes, element types, which tensors may be NULL and when, and which are read, written or added to.
Exit status 1, with a line for each difference.
"""
import pathlib
import re
import subprocess
import sys

# Specs whose element types are not those of the operator's bare name.
OTHER_TYPES = ["indexer_logits:heads=64,dim=128,dtype=fp8", "indexer_topk:heads=64,dim=128,topk=2048,dtype=fp8",
               "topk_select:topk=8,dtype=bf16", *(f"{each},weights_dtype=bf16" for each in (
                   "indexer_logits:heads=64,dim=128,dtype=fp8", "indexer_topk:heads=64,dim=128,topk=2048,dtype=fp8",
                   "indexer_scores:heads=64,dim=128,topk=2048", "indexer_bwd:heads=64,dim=128,topk=2048",
                   "indexer_dense_loss:heads=64,dqk=576,index_heads=64,index_dim=128"))]
COMMENT = r"/\*(?:(?!\*/).)*\*/"
FIELD = re.compile(rf"(^ *{COMMENT}\n)?^ *(smelt_const_tensor|smelt_tensor)\s+(\w+);\s*({COMMENT})?", re.M | re.S)
TYPE = "(?:bf16|fp32|int32|e4m3)"
SHAPE = re.compile(rf"\[([^]]*)\] ({TYPE}(?:(?:, | or ){TYPE})*|likewise)")
TABLE = re.compile(r"^## ([^\n]*)$|^\| tensor \|[^\n]*\n\|[-|]*\n((?:\|[^\n]*\n)*)", re.M)
OPTIONAL = re.compile(r"\boptional\b|\bor NULL\b|\bNULL: |\bNULL with ")
KEYED = re.compile(r"[Ee]xactly when|[Ww]ith \w+=1")


class Tensor:
    """A description of a tensor, by the library or by a text; two descriptions must not differ."""

    def __init__(self, shape, elements, const, optional, keyed, one_of, accumulated):
        self.says = {"shape": shape, "element types": sorted(elements), "an input": const, "optional": optional,
                     "bound to a key": keyed, "one of several": one_of, "added to": accumulated}


def described(program, specs):
    """{args struct: {name: Tensor}}, in the library's order."""
    found = {}
    lines = subprocess.run([program, *specs], check=True, capture_output=True, text=True).stdout.splitlines()
    for args, name, shape, element, role, optional, one_of, key in map(str.split, lines):
        known = found.setdefault(args, {}).get(name)
        elements = {element, *(known.says["element types"] if known else ())}
        found[args][name] = Tensor(shape.split(","), elements, role == "input", optional == "1", key != "-",
                                   one_of != "0", role == "accumulated")
    return found


def shape_and_types(text, before):
    """Of "[T, H] bf16 or e4m3"; `before`: the types that "likewise" stands for."""
    match = SHAPE.search(text)
    if not match:
        return None, []
    types = before if match[2] == "likewise" else re.split(", | or ", match[2])
    return [each.strip() for each in match[1].split(",")], types


def header_tensors(text):
    """{args struct: {name: Tensor}}"""
    found = {}
    for struct, args in re.findall(r"^typedef struct \w+ \{\n(.*?)^\} (smelt_\w*args);", text, re.M | re.S):
        tensors, types, one_of = {}, [], "no field"
        for ahead, kind, name, behind in FIELD.findall(struct):
            comment = re.sub(r"\s*\*?\s+", " ", ahead + behind)
            shape, types = shape_and_types(re.sub(r"\s+", " ", behind), types)
            output = kind == "smelt_tensor"
            if re.search("[Ee]xactly one", comment):
                one_of = name  # and what begins with it: dkv, dkv_fp32, dkv_sum
            tensors[name] = Tensor(shape, types, not output, bool(OPTIONAL.search(comment)),
                                   bool(KEYED.search(comment)), f"{name}_".startswith(f"{one_of}_"),
                                   output and "added to" in behind)
        found[args] = tensors
    return found


def page_tensors(text, described):
    """The same for docs/operators.md; properties that it does not state are taken from the library."""
    found, stem = {}, ""
    for title, rows in TABLE.findall(text):
        stem = title or stem
        if title:
            continue
        args = "smelt_" + re.sub(r", forward$", "", stem).replace(", backward", "_grad") + "_args"
        tensors = found.setdefault(args, {})
        for row in rows.splitlines():
            names, shape, remark = (cell.strip() for cell in row.split("|")[1:4])
            forward = args.replace("_grad", "") if "_grad" in args else "smelt_sparse_attn_args"
            page_row(tensors, described[args], found.get(forward, {}), re.split(", | or ", names), shape, remark)
    return found


def page_row(tensors, known, forward, names, shape, remark):
    sizes, types = shape_and_types(shape, list(tensors.values())[-1].says["element types"] if tensors else [])
    for number, name in enumerate(names):
        const = known[name].says["an input"] if name in known else None
        if sizes is None:  # as above
            says = forward[name].says
            tensors[name] = Tensor(says["shape"], says["element types"], const, const and says["optional"],
                                   const and says["bound to a key"], False, False)
            continue
        own = [types[number]] if len(names) == len(types) > 1 else types
        tensors[name] = Tensor(sizes, own, const, remark.startswith("optional"),
                               bool(re.search(r"exactly when|only with", remark)), "exactly one" in remark,
                               not const and f"{name} is added to" in remark)


def differences(where, said, library):
    for args, tensors in library.items():
        if args not in said:
            yield f"{where}: has no tensors of {args}"
        for name in sorted({*said.get(args, {}), *tensors} if args in said else ()):
            if name not in tensors or name not in said[args]:
                yield f"{where}: {args} {'lacks' if name in tensors else 'has no'} {name}"
                continue
            for what, value in tensors[name].says.items():
                if said[args][name].says[what] != value:
                    yield f"{where}: {args}, {name}: {what}: {said[args][name].says[what]}, but the library says {value}"


def main(program, root):
    include = pathlib.Path(root, "include/smelt")
    stems = re.findall(r'#include "smelt/(\w+)\.h"', (include / "operators.h").read_text())
    library = described(program, stems + OTHER_TYPES)
    headers = {}
    for stem in stems:
        headers.update(header_tensors((include / f"{stem}.h").read_text()))
    page = page_tensors(pathlib.Path(root, "docs/operators.md").read_text(), library)
    wrong = [*differences("include/smelt", headers, library), *differences("docs/operators.md", page, library)]
    print("\n".join(wrong) or f"{sum(map(len, library.values()))} tensors of {len(library)} structs")
    return bool(wrong)


sys.exit(main(*sys.argv[1:]))
