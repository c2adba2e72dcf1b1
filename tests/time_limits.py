#!/usr/bin/env python3
"""Whether every CTest entry may take six times what it took on two quiet cores.

Usage: tests/time_limits.py BUILD             one line per finding; exit 1 if there are any
       tests/time_limits.py BUILD --write     writes tests/times.txt from the build's runs
"""
import json
import math
import pathlib
import re
import subprocess
import sys

FILE = pathlib.Path(__file__).with_name("times.txt")
FACTOR = 6
EVERYWHERE = {"unit", "ranks", "mpi", "cli"}  # entries of other labels are not on every machine


def times():
    lines = [line.split() for line in FILE.read_text().splitlines() if not line.startswith("#")]
    return {name: int(seconds) for name, seconds in lines}


def entries(build):
    """Name, seconds allowed and labels of each."""
    listing = json.loads(subprocess.check_output(
        ["ctest", "--test-dir", build, "--show-only=json-v1"], stderr=subprocess.DEVNULL))
    for test in listing["tests"]:
        properties = {p["name"]: p["value"] for p in test["properties"]}
        yield test["name"], properties.get("TIMEOUT"), properties.get("LABELS", [])


def findings(build):
    took = times()
    for name, limit, labels in entries(build):
        seconds = took.get(name, 0)
        if limit is None:
            yield f"{name}: has no limit"
        elif limit < FACTOR * seconds:
            yield f"{name}: took {seconds} s, and its limit is {limit:g} s"
        elif seconds < 1 and not EVERYWHERE.isdisjoint(labels):
            yield f"{name}: has no time in {FILE.name}: run it, then this with --write"


def write(build):
    # A line per entry: name, number of runs that passed, mean of their seconds.
    costs = (pathlib.Path(build) / "Testing/Temporary/CTestCostData.txt").read_text()
    found = re.findall(r"^(\S+) [1-9]\d* ([\d.]+)$", costs, re.M)
    took = times() | {name: math.ceil(float(seconds)) for name, seconds in found}
    head = [line for line in FILE.read_text().splitlines() if line.startswith("#")]
    FILE.write_text("\n".join(head + [f"{name} {took[name]}" for name in sorted(took)]) + "\n")


if __name__ == "__main__":
    if sys.argv[2:] == ["--write"]:
        write(sys.argv[1])
    else:
        problems = list(findings(sys.argv[1]))
        print("\n".join(problems), end="\n" if problems else "")
        sys.exit(1 if problems else 0)
