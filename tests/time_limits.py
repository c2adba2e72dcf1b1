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


def times():
    lines = [line.split() for line in FILE.read_text().splitlines() if not line.startswith("#")]
    return {name: int(seconds) for name, seconds in lines}


def limits(build):
    listing = json.loads(subprocess.check_output(
        ["ctest", "--test-dir", build, "--show-only=json-v1"], stderr=subprocess.DEVNULL))
    return {test["name"]: next((p["value"] for p in test["properties"] if p["name"] == "TIMEOUT"), None)
            for test in listing["tests"]}


def findings(build):
    took = times()
    for name, limit in limits(build).items():
        if limit is None:
            yield f"{name}: has no limit"
        elif limit < FACTOR * took.get(name, 0):
            yield f"{name}: took {took[name]} s, and its limit is {limit:g} s"


def write(build):
    # A line per entry: name, number of runs, mean of their seconds.
    costs = (pathlib.Path(build) / "Testing/Temporary/CTestCostData.txt").read_text()
    found = re.findall(r"^(\S+) \d+ ([\d.]+)$", costs, re.M)
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
