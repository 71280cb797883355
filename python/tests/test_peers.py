"""bench/peers: its rows and cases; small rows through the whole harness, on the emulator."""

import pathlib
import runpy

import pytest
from smelt_kernels import _runtime

ROOT = pathlib.Path(__file__).parents[2]
LIBRARIES = [ROOT / name / "libsmelt.so" for name in ("build-python", "build")]
if not (ROOT / "bench" / "peers").exists():
    pytest.skip("bench/peers is not here", allow_module_level=True)


@pytest.fixture
def peers(monkeypatch):
    """A function that runs a command line and returns its exit status."""
    monkeypatch.syspath_prepend(str(ROOT / "bench" / "peers"))
    path = ROOT / "bench" / "peers" / "__main__.py"
    return runpy.run_path(str(path), run_name="peers")["main"]


def lines(capsys, text):
    return sum(text in line for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    "command, text, count",
    [
        ("forward", "h", 41),
        ("forward --only sink", "d512-sink", 4),
        ("accuracy", "Dqk", 673),  # FlashMLA's tests and 56 further cases
        ("accuracy", "few slots", 56),
        ("accuracy --heads 3", "H 3,", 330),
    ],
)
def test_lists(peers, capsys, command, text, count):
    assert peers([*command.split(), "--list"]) == 0
    assert lines(capsys, text) == count


@pytest.mark.parametrize(
    "command, text",
    [
        ("forward --rows h8-64-long", "row h8-64-long: long is none of sN, kN"),
        ("indexer_logits --rows fp8", "row fp8: expected fp8-h64-16384-causal"),
        ("forward --only nothing", "--only nothing: no name of a row"),
        ("forward --rounds 0", "--rounds: 0: expected a whole number, at least 1"),
        ("forward --rest soon", "--rest: soon: expected numbers"),
        ("forward --library none.so", "--library none.so: [Errno 2]"),
    ],
)
def test_refusals(peers, capsys, command, text):
    with pytest.raises(SystemExit, match="2"):
        peers(command.split())
    assert text in capsys.readouterr().err


SMALL = {
    "forward": "--rows h2-3-s20-k16,h2-3-s20-k16-d512-sink --only sink",
    "backward": "--rows h2-3-s20-k16-sink --deterministic", "training_step": "--rows h2-3-s20-k16-causal",
    "msa_step": "--rows h1-20-k1", "indexer_logits": "--rows fp8-h8-3x40-causal",
    "topk_select": "--rows 16x3x200-special", "indexer_topk": "--rows fp8-h8-2x2100-causal --steps",
    "sparse_scores": "--rows h2-16-k16", "indexer_scores": "--rows h2-16-k16-drift",
    "indexer_bwd": "--rows h16-16-k16 --deterministic",
}  # fmt: skip


def small(shapes):
    found = [str(path) for path in LIBRARIES if path.exists()]
    if not _runtime.EMULATED or not found:
        pytest.skip("needs the emulator and a libsmelt.so in build/")
    return [shapes, *SMALL[shapes].split(), *f"--smelt-only --rounds 1 --library {found[0]}".split()]


@pytest.mark.parametrize("shapes", SMALL)
def test_small_rows(peers, capsys, shapes):
    """The report reads the printed lines."""
    report = pytest.importorskip("smelt_kernels.report")
    assert peers(small(shapes)) == 0
    printed = capsys.readouterr().out
    (race,) = report.read(shapes, printed)[2]
    table = printed[printed.index("\n| shape") :]
    assert "smelt" in race.ms and set(race.ms) == set(report.read(shapes, table)[2][0].ms)


def test_wrong_results(peers, capsys, monkeypatch):
    """A row whose error exceeds its limit."""
    import forward

    monkeypatch.setattr(forward.Row, "BOUNDS", {"error": 1e-6})
    assert peers(small("forward")) == 1
    assert "WRONG" in capsys.readouterr().out


def test_accuracy(peers, capsys, monkeypatch):
    small("forward")
    library = [str(path) for path in LIBRARIES if path.exists()][0]
    command = f"accuracy --heads 2 --only --verbose --library {library}".split()
    command.insert(4, "T 1, S 128")
    assert peers(command) == 0
    import accuracy

    monkeypatch.setitem(accuracy.TOLERANCES, "lse", (1e-12, 1e-12, 1e-7))
    assert peers(command) == 1
    assert "lse: Distance(elements=2, misses=2, strange=0" in capsys.readouterr().out
