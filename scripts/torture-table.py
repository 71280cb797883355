#!/usr/bin/env python3
"""Shows a run of the torture tests row by row: torture-table.py build/meson-logs/testlog-full.json

A row has the test's name, result and duration, and the figures that it printed ("figure: ..."), or the
reason why it was skipped. scripts/count-tests.py counts the rows.
"""

import json
import sys
import textwrap

VERDICTS = {"OK": "ok", "SKIP": "SKIPPED"}
WIDTH = 100
INDENT = " " * 6


def said(result, words):
    for line in result.get("stdout", "").splitlines():
        if line.startswith(words):
            yield line[len(words) :].strip()


def name_of(result):
    name = result["name"].split(" / ")[-1]
    return name.removeprefix("torture ").removesuffix(", whole")


def main():
    with open(sys.argv[1], encoding="utf-8") as log:
        results = [json.loads(line) for line in log if line.strip()]
    total = 0.0
    for result in results:
        verdict = VERDICTS.get(result["result"], "FAILED")
        total += result["duration"]
        print(f"{name_of(result):44} {verdict:8} {result['duration']:8.1f} s")
        lines = list(said(result, "figure:"))
        if verdict == "SKIPPED":
            lines += list(said(result, "skipped:")) or ["no reason given"]
        for line in lines:
            print(textwrap.fill(line, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT))
    print(f"\n{len(results)} rows in {total:.0f} s")


if __name__ == "__main__":
    main()
