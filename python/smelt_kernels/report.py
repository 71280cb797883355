"""Measurements as a page: `python -m smelt_kernels.report results.json… [-o report.html] [--svg FILE]`.

Takes what `smelt bench --json` writes, and what bench/peers prints: lines of JSON, or a table whose columns
"NAME ms" are contenders' times. Makes one HTML file that needs no other (figures are SVG within it):
time by shape, the peers' time over smelt's, the share of each roof, and time by kind of list, each with its
table. `--svg` writes the first figures as one picture. Needs matplotlib: `pip install smelt-kernels[report]`.
"""

from __future__ import annotations

import argparse
import html
import io
import json
import re
import sys
from typing import NamedTuple

OURS = "smelt"  # contenders whose first word it is are smelt; of this very name: the one that is compared
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#9c6b4e", "#a463f2")
ROW_INCHES, GAP, WIDTH_INCHES = 0.14, 0.7, 8.5  # of a bar; between groups, in bars; of a figure
FONT = "text{font-family: DejaVu Sans, Verdana, Arial, sans-serif}"
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 960px; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; font-size: 13px } td, th { padding: 2px 10px; border-bottom: 1px solid #ddd }
td { text-align: right } td:first-child, th:first-child { text-align: left } svg { max-width: 100%; height: auto }
"""


class Result(NamedTuple):
    """One shape of `smelt bench`."""

    operator: str  # "sparse_attn, backward"
    keys: str  # of its spec
    sizes: str  # "T 4096, S 8192"
    lists: str
    ms: float
    roofs: dict  # share of a ceiling, by what it is of

    @property
    def label(self):
        return f"{self.keys}; {self.sizes}" + (f", {self.lists}" if self.lists != "random" else "")


class Race(NamedTuple):
    """One shape of bench/peers: contenders timed alternately."""

    source: str
    shape: str
    ms: dict  # by contender


# ---- reading ------------------------------------------------------------------------------------


def read_bench(document) -> list[Result]:
    found = []
    for each in document["results"]:
        if "ms" not in each:  # a spec that could not be run
            continue
        family, _, keys = each["spec"].partition(":")
        passed = each.get("pass", "forward")
        found.append(
            Result(
                family + (f", {passed}" if passed != "forward" else ""),
                ", ".join(part for part in keys.split(",") if not part.startswith("passes=")),
                f"T {each['queries']}, S {each['rows']}",
                each.get("lists", ""),
                each["ms"]["median"],
                {name[:-6]: share for name, share in each.items() if name.endswith("_ratio")},
            )
        )
    return found


def read_line(source, line) -> Race | None:
    """A line of JSON of bench/peers: {"shape", "ms": {NAME: …}}, or {"shape", "NAME_ms": …}."""
    if not isinstance(line, dict) or "shape" not in line:
        return None
    times = line.get("ms")
    if not isinstance(times, dict):
        times = {
            name[:-3]: time for name, time in line.items() if name.endswith("_ms") and not name.endswith("_min_ms")
        }
    return Race(source, line["shape"], times) if times else None


def read_table(source, lines) -> list[Race]:
    """A Markdown table of bench/peers."""
    found, names = [], None
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            names = None
        elif names is None:
            names = [cell[:-3] if cell.endswith(" ms") else None for cell in cells]
        else:
            times = {}
            for name, cell in zip(names, cells):
                try:
                    times.update({name: float(cell)} if name else {})
                except ValueError:  # "-": was not timed
                    continue
            if times:
                found.append(Race(source, cells[0], times))
    return found


def read(source: str, text: str):
    """(device or None, results, races) of one file."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        document = None
    if isinstance(document, dict) and "results" in document:
        return document.get("device", {}).get("name"), read_bench(document), []
    races = []
    for part in [document] if document is not None else _documents(text):
        race = read_line(source, part)
        races.extend([race] if race else [])
    return None, [], races or read_table(source, text.splitlines())


def _documents(text: str) -> list:
    """JSON objects among other text, each of which begins a line."""
    decoder, found, start = json.JSONDecoder(), [], 0
    while start < len(text):
        end = text.find("\n", start)
        next_line = len(text) if end < 0 else end + 1
        if text.startswith("{", start):
            try:
                made, next_line = decoder.raw_decode(text, start)
                found.append(made)
            except json.JSONDecodeError:
                pass
        start = next_line
    return found


def is_ours(name: str) -> bool:
    return re.match(rf"{OURS}\b", name) is not None


def ratios(races: list[Race]) -> dict[str, dict[str, float]]:
    """{shape: {peer: its time over smelt's}}"""
    found = {}
    for race in races:
        mine = race.ms.get(OURS)
        others = {name: time for name, time in race.ms.items() if not is_ours(name)}
        if mine and others:
            found.setdefault(race.shape, {}).update({name: time / mine for name, time in others.items()})
    return found


def by_lists(results: list[Result]) -> dict[str, dict[str, float]]:
    """{shape: {kind of list: ms}}, of shapes timed with several kinds."""
    found = {}
    for result in results:
        shape = f"{result.operator}: {result.keys}; {result.sizes}"
        found.setdefault(shape, {})[result.lists] = result.ms
    return {shape: times for shape, times in found.items() if len(times) > 1}


# ---- drawing ------------------------------------------------------------------------------------


def _pyplot():
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("smelt: the report needs matplotlib: pip install smelt-kernels[report]") from None
    matplotlib.use("svg")
    # Text stays text, and the same data make the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "smelt", "font.size": 9})
    from matplotlib import pyplot

    return pyplot


def draw(axes, values: dict[str, dict[str, float]], what: str, mark: float | None = None) -> None:
    """Bars, a group for each label, of the series that it has."""
    series = list(dict.fromkeys(name for row in values.values() for name in row))
    bars, middles, position = {name: [] for name in series}, [], 0.0
    for row in values.values():
        middles.append(position + (len(row) - 1) / 2)
        for name, length in row.items():
            bars[name].append((position, length))
            position += 1
        position += GAP
    for number, name in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        axes.barh(*zip(*bars[name]), 1.0, label=name, color=colour, edgecolor="white")
    axes.set_yticks(middles, values.keys())
    axes.set_ylim(position - GAP, -1)
    axes.set_xlabel(what)
    axes.spines[["top", "right"]].set_visible(False)
    if mark is not None:
        axes.axvline(mark, color="#222", linewidth=0.8)
    if len(series) > 1 or mark is not None:
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def rows_of(values: dict[str, dict[str, float]]) -> float:
    """A figure's bars and the gaps between them."""
    return sum(len(row) + GAP for row in values.values())


def svg_of(parts: list[tuple]) -> str:
    """One picture of (title, values, what, mark), below each other."""
    pyplot = _pyplot()
    heights = [0.9 + ROW_INCHES * rows_of(values) for _, values, _, _ in parts]
    figure, all_axes = pyplot.subplots(
        len(parts), 1, figsize=(WIDTH_INCHES, sum(heights)), height_ratios=heights, squeeze=False, layout="constrained"
    )
    for axes, (title, values, what, mark) in zip(all_axes[:, 0], parts):
        draw(axes, values, what, mark)
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    text = written.getvalue()
    return compact(text[text.index("<svg") :])


def compact(svg: str) -> str:
    """The same picture in few lines, one for each axes, axis and legend, and to a tenth of a point."""

    def short(tag):
        text = " ".join(tag[0].split())
        return re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", text)

    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r" font-family: [^;]*;", "", svg)  # once, for all text
    svg = svg.replace('<style type="text/css">', f'<style type="text/css">{FONT}', 1)
    svg = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", svg)
    svg = re.sub(r">\s+<", "><", re.sub(r"<[^>]*>", short, svg))
    return re.sub(r'(?=<g id="(?:axes|matplotlib|legend))', "\n", svg).strip() + "\n"


# ---- the page -----------------------------------------------------------------------------------


def parts_of(results: list[Result], races: list[Race]) -> list[tuple]:
    """The figures: (title, {label: {series: number}}, what the numbers are, a number to mark)."""
    parts = []
    for operator in dict.fromkeys(result.operator for result in results):
        mine = [result for result in results if result.operator == operator]
        times = {result.label: {operator: result.ms} for result in mine}
        parts.append((f"Time: {operator}", times, "ms", None))
        roofs = {result.label: result.roofs for result in mine if result.roofs}
        if roofs:
            parts.append((f"Share of each roof: {operator}", roofs, "of the ceiling", 1.0))
    lists = by_lists(results)
    if lists:
        parts.append(("Time by kind of list", lists, "ms", None))
    for source in dict.fromkeys(race.source for race in races):
        mine = [race for race in races if race.source == source]
        shown = ratios(mine)
        if shown:
            parts.append((f"Peers' time over smelt's: {source}", shown, "above 1: smelt is faster", 1.0))
        times = {race.shape: race.ms for race in mine}
        parts.append((f"Time compared with peers: {source}", times, "ms", None))
    return parts


def table(values: dict[str, dict[str, float]]) -> str:
    series = list(dict.fromkeys(name for row in values.values() for name in row))
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ["", *series])
    lines = [f"<table><tr>{head}</tr>"]
    for label, row in values.items():
        cells = "".join(f"<td>{row[name]:.3f}</td>" if name in row else "<td></td>" for name in series)
        lines.append(f"<tr><td>{html.escape(label)}</td>{cells}</tr>")
    return "\n".join([*lines, "</table>"])


def page(devices: list[str], parts: list[tuple]) -> str:
    sections = [
        f"<h2>{html.escape(part[0])}</h2>\n{svg_of([part])}\n"
        f"<details><summary>Numbers</summary>{table(part[1])}</details>"
        for part in parts
    ]
    about = html.escape(", ".join(dict.fromkeys(devices)) or "GPU not named")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>smelt: measurements</title>'
        f"<style>{STYLE}</style></head><body>\n<h1>smelt: measurements</h1>\n<p>{about}. Medians.</p>\n"
        + "\n".join(sections)
        + "\n</body></html>\n"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m smelt_kernels.report", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="results.json")
    parser.add_argument("-o", "--output", default="report.html", help="the page (report.html)")
    parser.add_argument("--svg", metavar="FILE", help="also the peers' ratios as one picture")
    options = parser.parse_args(arguments)
    devices, results, races = [], [], []
    for name in options.files:
        try:
            with open(name, encoding="utf-8") as file:
                text = file.read()
        except OSError as error:
            print(f"smelt: {name}: {error.strerror}", file=sys.stderr)
            return 2
        device, more_results, more_races = read(name.rpartition("/")[2].partition(".")[0], text)
        if not more_results and not more_races:
            print(f"smelt: {name}: no measurements that this program knows", file=sys.stderr)
            return 2
        devices += [device] if device else []
        results += more_results
        races += more_races
    parts = parts_of(results, races)
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(page(devices, parts))
    if options.svg:
        chosen = [part for part in parts if part[3] is not None and part[2] != "of the ceiling"]
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(svg_of(chosen or parts[:2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
