#!/usr/bin/env python3
"""Counts the results of a `meson test` run: count-tests.py build/meson-logs/testlog.json

The last line is `N passed, N failed`, with `, N skipped` if some were skipped. The line before counts the
cases (cmocka's, TAP's) of those tests. Status 1 if a test failed or none ran.

    count-tests.py --of NAMES --left FILE [--sums] LOG

is for a run that may have been cut short. It prints one line, with `, N not run` for the tests of the
file NAMES that did not run, which it writes to FILE, and in brackets the number of cases or, with --sums,
the sum of the tests' own counts. Status 3 if nothing failed but some tests did not run.
"""

import argparse
import collections
import json
import pathlib
import re
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP", "IGNORED"}
ENDED = {"INTERRUPT"}  # by the end of the run


def read_results(path):
    try:
        with open(path, encoding="utf-8") as log:
            return [json.loads(line) for line in log if line.strip()]
    except OSError:
        return []


def bare_name(name):
    """Removes project and suites from `smelt:SUITE / NAME` or, in later versions of Meson, `SUITE -
    smelt:NAME`."""
    return re.sub(r"^(?:\S+ / |(?:\S+ - )?[^\s:]+:(?=\S))", "", name)


def output(result):
    return result.get("stdout", "") + result.get("stderr", "")


def count_cases(results):
    """cmocka ends each group with `[==========] N test(s) run.`, in newer versions with the group's name
    before the number; TAP has one `ok` line per case."""
    text = "\n".join(map(output, results))
    groups = re.findall(r"^\[=+\] (?:.*: )?(\d+) test\(s\) run\.", text, re.MULTILINE)
    lines = re.findall(r"^(?:not )?ok\b(?!:)", text, re.MULTILINE)
    return sum(map(int, groups)) + len(lines)


NUMBER = r"(?<!\bunder )(?<!\bon )\b\d+"  # not of `25 checks under 3 schedules`


def add_up(results):
    """The sums of the long tests' lines of counts, such as `857 passed, 0 failed`, over lines with the
    same words."""
    numbers = collections.defaultdict(list)
    for result in results:
        for line in re.findall(r"^\d+ .*\b(?:failed|survived|not run)\b.*$", output(result), re.MULTILINE):
            numbers[re.sub(NUMBER, "{}", line)].append(map(int, re.findall(NUMBER, line)))
    return [words.format(*map(sum, zip(*rows))) for words, rows in numbers.items()]


def summary(results, left=0):
    passed = sum(r["result"] in PASSED for r in results)
    skipped = sum(r["result"] in SKIPPED for r in results)
    failed = len(results) - passed - skipped
    line = f"{passed} passed, {failed} failed"
    line += f", {skipped} skipped" if skipped else ""
    return line + (f", {left} not run" if left else ""), failed


def count(path):
    results = read_results(path)
    if not results:
        print("no test ran: the build failed\n0 passed, 0 failed")
        return 1
    for result in results:
        if result["result"] not in PASSED:
            print(f"{result['result']}: {result['name']}")
    line, failed = summary(results)
    print(f"{count_cases(results)} cases in {len(results)} tests\n{line}")
    return 1 if failed else 0


def count_ended(path, names, left, sums):
    results = [r for r in read_results(path) if r["result"] not in ENDED]
    done = {bare_name(r["name"]) for r in results}
    missing = [name for name in pathlib.Path(names).read_text(encoding="utf-8").splitlines() if name not in done]
    pathlib.Path(left).write_text("".join(name + "\n" for name in missing), encoding="utf-8")
    line, failed = summary(results, len(missing))
    counted = add_up(results) if sums else [f"{count_cases(results)} cases"]
    print(line + (f" ({'; '.join(counted)})" if counted else ""))
    if failed:
        return 1
    return 3 if missing or any("were not run" in text for text in counted) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("log")
    parser.add_argument("--of", metavar="NAMES", help="the tests to run, one name per line")
    parser.add_argument("--left", metavar="FILE", help="output: the names of those that did not run")
    parser.add_argument("--sums", action="store_true", help="print the sums of the tests' own counts")
    arguments = parser.parse_args()
    if arguments.of:
        return count_ended(arguments.log, arguments.of, arguments.left, arguments.sums)
    return count(arguments.log)


if __name__ == "__main__":
    sys.exit(main())
