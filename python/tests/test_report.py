"""python -m smelt_kernels.report: its input, its contents, and that the page needs no other file."""

import json
import re
import xml.etree.ElementTree as tree

import pytest

pytest.importorskip("matplotlib")
from smelt_kernels import report  # noqa: E402

BENCH = {
    "device": {"name": "NVIDIA H200"},
    "results": [
        {
            "spec": "sparse_attn:heads=64,dqk=576,dv=512,topk=2048", "pass": "forward", "queries": 4096, "rows": 8192,
            "lists": lists, "ms": {"median": ms, "min": ms, "max": ms}, "tflops": 500.0, "tflops_ratio": 0.75,
            "gather_ratio": 0.5,
        }
        for lists, ms in (("random", 2.0), ("drift", 1.5))
    ]
    + [{"spec": "sparse_attn:heads=3", "error": "no kernel <for it>"}],
}  # fmt: skip
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


def test_the_page(tmp_path):
    files = {"bench.json": json.dumps(BENCH), "backward.txt": LINES, "forward.md": TABLE}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    page, picture = tmp_path / "page.html", tmp_path / "picture.svg"
    arguments = [str(tmp_path / name) for name in files]
    assert report.main([*arguments, "-o", str(page), "--svg", str(picture)]) == 0
    text = page.read_text()
    for shown in ("NVIDIA H200", "Share of each roof", "Time by kind of list", "h16-8192 &lt;few&gt;"):
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
    """Numbers in tags are rounded, those in labels are not; drawn elements are kept."""
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
