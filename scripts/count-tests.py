#!/usr/bin/env python3
"""Counts the results of a `meson test` run: count-tests.py build/meson-logs/testlog.json

The last line is `N passed, N failed`, with `, N skipped` when some were. The line before counts the
cases (cmocka's, TAP's) inside those tests. Status 1 when a test failed or none ran.
"""

import json
import re
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP", "IGNORED"}


def read_results(path):
    try:
        with open(path, encoding="utf-8") as log:
            return [json.loads(line) for line in log if line.strip()]
    except OSError:
        return []


def count_cases(results):
    """cmocka ends each group with `[==========] N test(s) run.`, newer ones put the group's name
    before the number; TAP has one `ok` line a case."""
    text = "\n".join(r.get("stdout", "") + r.get("stderr", "") for r in results)
    groups = re.findall(r"^\[=+\] (?:.*: )?(\d+) test\(s\) run\.", text, re.MULTILINE)
    lines = re.findall(r"^(?:not )?ok\b(?!:)", text, re.MULTILINE)
    return sum(map(int, groups)) + len(lines)


def main():
    results = read_results(sys.argv[1])
    passed = sum(r["result"] in PASSED for r in results)
    skipped = sum(r["result"] in SKIPPED for r in results)
    failed = len(results) - passed - skipped
    if not results:
        print("no test ran: the build failed")
        failed = 1
    for result in results:
        if result["result"] not in PASSED:
            print(f"{result['result']}: {result['name']}")
    print(f"{count_cases(results)} cases in {len(results)} tests")
    line = f"{passed} passed, {failed} failed"
    print(line + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
