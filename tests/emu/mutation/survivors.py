"""Known survivors: mutants that harmless.py does not recognise and that no test catches, in
survivors.txt. A line for each function of a template's variant (section_of):

    SECTION FUNCTION WHY=MUTANT,MUTANT,... WHY=...

WHY: one of REASONS. MUTANT: a hash of the text of the line and of the change, so it survives edits elsewhere and moves
to another part of the variant. If its own line changes, a mutant counts as a new survivor, and the old hash matches
nothing; `mutate.py --accept` rewrites the file. `mutate.py --known
--list` prints the mutants with their places, changes and reasons.
"""

import collections
import hashlib
import pathlib
import re

FILE = pathlib.Path(__file__).resolve().parent / "survivors.txt"
REASONS = {
    "time": "work is repeated or useless, a wait is longer: only time is lost",
    "unread": "no code reads the value, or only its sign, or whether it is 0",
    "equal": "both give the same result in the cases where they differ",
    "again": "the value is overwritten before it is read",
    "order": "another order, place or thread, equally correct",
    "range": "the values cannot be that large, or never take that value",
    "rounding": "smaller than the results' tolerance",
    "unseen": "an error that the emulator cannot detect: beyond its memory, or left to the compiler",
}
HEAD = "# Surviving mutants that are known (survivors.py). Reasons:\n" + \
    "".join(f"#   {name:9} {words}\n" for name, words in REASONS.items())


class SurvivorsError(Exception):
    pass


def section_of(file):
    """templates/a.sm90_sums.cuh: a.sm90, the variant, since code moves between its files; templates/common/x.cuh:
    common; a kernel's main file, templates/a.sm90_few.cu: a.sm90_few."""
    path = pathlib.PurePosixPath(file).relative_to("templates")
    if path.suffix == ".cu":
        return str(path.with_suffix(""))
    if len(path.parts) > 1:
        return path.parts[0]
    return re.sub(r"_[^.]*$", "", path.stem) if "." in path.stem else path.stem


def key_of(name):
    """The key of a mutant in survivors.txt; name: as Mutant.name."""
    file, function, line, change = name
    return section_of(file), function, hashlib.sha256(f"{line} :: {change}".encode()).hexdigest()[:8]


def read(text):
    """{key: why}."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        parts = [] if line.startswith("#") else line.split()
        groups = [part.partition("=") for part in parts[2:]]
        if parts and (not groups or any(why not in REASONS or not mutants for why, _, mutants in groups)):
            raise SurvivorsError(f"{number}: `SECTION FUNCTION WHY=MUTANT,MUTANT ...`, WHY one of "
                                 f"{', '.join(REASONS)}")
        for why, _, mutants in groups:
            for mutant in mutants.split(","):
                key = (parts[0], parts[1], mutant)
                if key in found:
                    raise SurvivorsError(f"{number}: given twice: {mutant}")
                found[key] = why
    return found


def read_file(path=FILE):
    return read(path.read_text(encoding="utf-8"))


def write(found):
    """The text of {key: why}."""
    lines = collections.defaultdict(lambda: collections.defaultdict(list))
    for (section, function, mutant), why in sorted(found.items()):
        lines[section, function][why].append(mutant)
    return HEAD + "".join(
        " ".join([*place, *(f"{why}={','.join(mutants)}" for why, mutants in sorted(groups.items()))]) +
        "\n" for place, groups in sorted(lines.items()))


class Known:
    """Looks up mutants by their names."""

    def __init__(self, found=None):
        self.found = read_file() if found is None else found

    def __contains__(self, name):
        return key_of(name) in self.found

    def why(self, name):
        return self.found[key_of(name)]
