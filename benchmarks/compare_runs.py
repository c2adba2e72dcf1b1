#!/usr/bin/env python3
"""Trains one recipe in several ways, in turns, and prints the ratios of their step times.

    benchmarks/compare_runs.py RECIPE [--rounds 5] [--steps 60] [--json FILE]
        --case "NAME RANKS [key=value...]" --case ... [-- key=value...]

Of each run the median step counts, the first tenth left out; of each case the median, over the rounds, of its ratio to the first case of that round. What follows `--` goes to every run. Needs a built program; launch/run starts the ranks.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent


def launcher(ranks):
    """What starts the program. Without MPI, or in a bundle, whose MPI may be another than the machine's, a single
    rank is started directly."""
    if ranks != "1" or (shutil.which("mpirun") and (HERE / "launch/run").exists()):
        return [HERE / "launch/run", "-n", ranks]
    return [os.environ.get("SHOAL_PROGRAM", HERE / "build/release/shoal")]


def step_seconds(recipe, case, arguments, root):
    """Median of a run's steps, in seconds."""
    name, ranks, *overrides = case
    command = [*launcher(ranks), "train", recipe, f"run.root={root}",
               f"run.name={name}", "run.on_existing=overwrite",
               f"train.duration={arguments.steps}step", "train.log_every=1step",
               "evaluate.every=never", "checkpoint.every=never", *arguments.overrides, *overrides]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    lines = [json.loads(line) for line in open(root / name / "metrics.jsonl")]
    steps = [line for line in lines if "samples_per_second" in line][arguments.steps // 10:]
    batch = lines[1]["samples"] - lines[0]["samples"]
    return statistics.median(batch / step["samples_per_second"] for step in steps)


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def origin(benchmark):
    """What the JSON of a result begins with."""
    return {"benchmark": benchmark, "command": shlex.join(sys.argv),
            "hardware": {"cores": os.cpu_count(), "cpu": processor()},
            "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=pathlib.Path)
    parser.add_argument("--case", action="append", required=True, type=shlex.split,
                        help="name, number of ranks, overrides; the first is what others are compared with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", type=pathlib.Path)
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:split])
    arguments.overrides = words[split + 1:]
    seconds = {case[0]: [] for case in arguments.case}
    with tempfile.TemporaryDirectory() as root:
        for _ in range(arguments.rounds):
            for case in arguments.case:
                seconds[case[0]].append(
                    step_seconds(arguments.recipe, case, arguments, pathlib.Path(root)))
    base = seconds[arguments.case[0][0]]
    rows = []
    for name, *how in arguments.case:
        ratios = [own / first for own, first in zip(seconds[name], base)]
        rows.append({"name": name, "how": " ".join(how),
                     "median_ms": 1e3 * statistics.median(seconds[name]),
                     "ratio": statistics.median(ratios), "ratios": ratios})
        print(f"{name:<24} {rows[-1]['median_ms']:8.2f} ms per step   {rows[-1]['ratio']:.3f} x")
    if arguments.json:
        arguments.json.write_text(json.dumps(
            {**origin("compare_runs"), "rounds": arguments.rounds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
