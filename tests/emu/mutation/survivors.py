"""Known survivors: mutants that harmless.py does not recognise and that no test catches, in
survivors.txt. Lines for each variant of a template (section_of) and reason:

    SECTION WHY MUTANT MUTANT ...

WHY: one of REASONS. MUTANT: a hash of the function, the text of the line and the change, so it survives edits elsewhere
and moves to another part of the variant. If its own line changes, a mutant counts as a new survivor, and the old hash
matches nothing; `mutate.py --accept` rewrites the file. `mutate.py --known --list` prints the mutants with their places,
changes and reasons.
"""

import collections
import hashlib
import pathlib
import re
import textwrap

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


def section_of(file):
    """templates/a.sm90_sums.cuh: a.sm90, the variant, since code moves between its files; templates/common/x.cuh:
    common; a kernel's main file, templates/a.sm90_few.cu: a.sm90_few."""
    path = pathlib.PurePosixPath(file).relative_to("templates")
    if path.suffix == ".cu":
        return str(path.with_suffix(""))
    if len(path.parts) > 1:
        return path.parts[0]
    return re.sub(r"_[^.]*$", "", path.stem) if "." in path.stem else path.stem


def hash_of(text, digits=6):
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def key_of(name):
    """The key of a mutant in survivors.txt; name: as Mutant.name."""
    file, function, line, change = name
    return section_of(file), hash_of(f"{function} {hash_of(f'{line} :: {change}', 8)}")


def read(text):
    """{key: why}."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            section, why, *mutants = line.split()
            found.update({(section, mutant): why for mutant in mutants if why in REASONS})
    return found


def read_file(path=FILE):
    return read(path.read_text(encoding="utf-8"))


def write(found):
    """The text of {key: why}."""
    groups = collections.defaultdict(list)
    for (section, mutant), why in sorted(found.items()):
        groups[section, why].append(mutant)
    return HEAD + "".join(
        line + "\n" for (section, why), mutants in sorted(groups.items())
        for line in textwrap.wrap(" ".join(mutants), 150, initial_indent=f"{section} {why} ",
                                  subsequent_indent=f"{section} {why} "))


class Known:
    """Looks up mutants by their names."""

    def __init__(self, found=None):
        self.found = read_file() if found is None else found

    def __contains__(self, name):
        return key_of(name) in self.found

    def why(self, name):
        return self.found[key_of(name)]
