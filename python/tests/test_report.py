"""python -m smelt.report: what it reads, what it shows, that the page needs no other file."""

import importlib
import json
import pathlib
import re
import types
import xml.etree.ElementTree as tree

import pytest

pytest.importorskip("matplotlib")
from smelt import report  # noqa: E402

BENCH = {
    "device": {"name": "NVIDIA H200"},
    "results": [
        {
            "spec": "sparse_attn:heads=64,dqk=576,dv=512,topk=2048",
            "pass": "forward",
            "queries": 4096,
            "rows": 8192,
            "lists": lists,
            "ms": {"median": ms, "min": ms, "max": ms},
            "tflops": 500.0,
            "tflops_ratio": 0.75,
            "gather_ratio": 0.5,
        }
        for lists, ms in (("random", 2.0), ("drift", 1.5))
    ]
    + [{"spec": "sparse_attn:heads=3", "error": "no kernel <for it>"}],
}
LINES = """# a comment
{"shape": "h64-8192", "smelt_ms": 2.0, "smelt_min_ms": 1.9, "cudnn_ms": 3.0, "rounds": 24}
{
 "shape": "h16-8192 <few>",
 "ms": {"smelt": 1.0, "pair": 1.5}
}
"""
TABLE = """NVIDIA H200
| Dqk, S, H, topk | flash_mla ms | smelt ms | flash_mla / smelt |
|---|---|---|---|
| 576, S 8192, H 64, topk 256 | 0.345 | 0.300 | 1.150 |
| 576, S 8192, H 8, topk 256 | - | 0.200 | - |

smelt / flash_mla, the 28 rows: geometric mean 1.1
"""


LISTING = """# NVIDIA H200
fp8-h64-16384-causal: 0 finite outside of windows
  smelt                           2.0000 ms   1073.9 TFLOP/s   1.000 x
  smelt variant=mma               3.0000 ms
  deep_gemm + clean               2.5000 ms    927.2 TFLOP/s
bf16-h16
  smelt                           1.0000 ms
"""


def grid(head, names, rows, width):
    """As bench/peers/topk.py and sparse_scores.py print: names and times end at the same places."""
    lines = [head + " ".join(f"{name:>{width}}" for name in names) + "  wrong"]
    for label, times, rest in rows:
        cells = (f"{each:{width}.4f}" if each else f"{'-':>{width}}" for each in times)
        lines.append(f"{label:{len(head)}}" + " ".join(cells) + f"  {rest}")
    return "\n".join(lines) + "\n"


NAMES = ("smelt", "smelt variant=a", "cudnn 1.32", "torch.topk")
TOPK = (
    "# NVIDIA H200, torch 2.11, smelt 0.2.0\n"
    + grid(
        f"{'2048x4096x32768':24} ",
        NAMES,
        [("causal", (0.148, 0.16, 0.185, 2.5), "0 0"), ("equal", (0.222, 0.23, None, 2.6), "0 0")],
        20,
    )
    + grid(f"{'1x1x1048576':24} ", ("smelt", "DeepSeek topk"), [("random", (0.05, 0.18), "0")], 20)
)


class Contender:
    def __init__(self, name):
        self.name, self.target = name, None

    def prepare(self, inputs):
        pass


def test_bench_documents():
    device, results, races = report.read("bench", json.dumps(BENCH))
    assert device == "NVIDIA H200" and races == [] and len(results) == 2
    assert results[1].roofs == {"tflops": 0.75, "gather": 0.5} and results[1].ms == 1.5
    assert results[1].label.endswith("T 4096, S 8192, drift")
    (times,) = report.by_lists(results).values()
    assert times == {"random": 2.0, "drift": 1.5}


def test_peers():
    races = report.read("backward", LINES)[2]
    assert report.ratios(races) == {"h64-8192": {"cudnn": 1.5}, "h16-8192 <few>": {"pair": 1.5}}
    table = report.read("forward", TABLE)[2]
    assert [race.ms for race in table] == [{"flash_mla": 0.345, "smelt": 0.3}, {"smelt": 0.2}]
    assert report.ratios(table)["576, S 8192, H 64, topk 256"]["flash_mla"] == pytest.approx(1.15)


def test_listings():
    races = report.read("indexer", LISTING)[2]
    assert [race.shape for race in races] == ["fp8-h64-16384-causal", "bf16-h16"]
    assert report.ratios(races) == {"fp8-h64-16384-causal": {"deep_gemm + clean": 1.25}}


def test_grids():
    races = report.read("topk", TOPK)[2]
    assert [race.shape for race in races] == [
        "2048x4096x32768, causal",
        "2048x4096x32768, equal",
        "1x1x1048576, random",
    ]
    assert tuple(races[0].ms) == NAMES and races[0].ms["cudnn 1.32"] == 0.185
    assert "cudnn 1.32" not in races[1].ms and races[1].ms["torch.topk"] == 2.6
    assert report.ratios(races)["1x1x1048576, random"] == {"DeepSeek topk": pytest.approx(3.6)}


def test_grids_as_they_are_printed(monkeypatch, capsys):
    """The program's own lines: a change of theirs that the report cannot read shows here."""
    folder = pathlib.Path(__file__).parents[2] / "bench" / "peers"
    if not folder.exists():
        pytest.skip("bench/peers is not here")
    monkeypatch.syspath_prepend(str(folder))
    module = importlib.import_module("sparse_scores")
    inputs = types.SimpleNamespace(error=lambda target: 1e-9)
    monkeypatch.setattr(module, "Inputs", lambda *_: inputs)
    monkeypatch.setattr(module, "attempt", lambda *_: True)
    monkeypatch.setattr(module, "median_ms", lambda ready, *_: dict(zip(ready, (1.5, 3.0))))
    contenders = [Contender("smelt"), Contender("cudnn 1.32")]
    print(f"{'ms; errors':34}" + " ".join(f"{c.name:>34}" for c in contenders))
    options = types.SimpleNamespace(lists="random", rest="0", rounds=1)
    module.time_shape("64x8192x2048", contenders, options)
    (race,) = report.read("sparse_scores", capsys.readouterr().out)[2]
    assert race.ms == {"smelt": 1.5, "cudnn 1.32": 3.0}


def test_the_page(tmp_path):
    files = {"bench.json": json.dumps(BENCH), "backward.txt": LINES, "forward.md": TABLE}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    page, picture = tmp_path / "page.html", tmp_path / "picture.svg"
    arguments = [str(tmp_path / name) for name in files]
    assert report.main([*arguments, "-o", str(page), "--svg", str(picture)]) == 0
    text = page.read_text()
    for shown in (
        "NVIDIA H200",
        "Share of each roof",
        "Time by kind of list",
        "h16-8192 &lt;few&gt;",
    ):
        assert shown in text
    assert "<few>" not in text
    assert not re.search(r'(src|href)="(?!#)', text)  # nothing outside of the page
    assert text.count("<svg") == 2 + 1 + 2 * 2
    before = picture.read_text()
    names = "".join(tree.fromstring(before).itertext())
    assert "flash_mla" in names and "h64-8192" in names
    assert len(before.splitlines()) < 100 and "<metadata" not in before
    assert report.main([*arguments, "-o", str(page), "--svg", str(picture)]) == 0
    assert picture.read_text() == before  # the same data, the same file


def test_a_compact_picture():
    """Numbers of tags are rounded, those of labels stay; whatever is drawn stays."""
    svg = """<svg width="612pt"><metadata><x/></metadata><style type="text/css">*{a: b}</style>
 <g id="axes_1">
  <path d="M 1.256789 2
L -3.04 4.96
z
" style="stroke-width: 0.8"/>
  <text style="font-size: 9px; font-family: 'A', 'B'; text-anchor: end" transform="rotate(-0 1.5 2)">a  1.23456</text>
 </g>
</svg>
"""
    assert report.compact(svg) == (
        f'<svg width="612pt"><style type="text/css">{report.FONT}*{{a: b}}</style>\n<g id="axes_1">'
        '<path d="M 1.3 2 L -3.0 5.0 z " style="stroke-width: 0.8"/>'
        '<text style="font-size: 9px; text-anchor: end">a  1.23456</text></g></svg>\n'
    )


def test_what_it_cannot_read(tmp_path, capsys):
    odd = tmp_path / "odd.json"
    odd.write_text('{"other": 1}')
    assert report.main([str(odd), "-o", str(tmp_path / "page.html")]) == 2
    assert report.main([str(tmp_path / "missing.json")]) == 2
    errors = capsys.readouterr().err
    assert "odd.json: no measurements" in errors and "missing.json: No such file" in errors
