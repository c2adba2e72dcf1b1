#!/usr/bin/env python3
"""Trains recipes, each with several seeds, and prints the table that configs/README.md shows.

    benchmarks/training_table.py [--seeds 1 2] [--ranks 2] [--root FOLDER] RECIPE... [-- key=value...]

Runs that are finished are not trained again, others go on where they stopped. What follows `--` goes to every run.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent


def is_finished(folder):
    """A run that was stopped or failed has a summary too."""
    file = folder / "summary.json"
    return file.exists() and json.loads(file.read_text())["exit_code"] == 0


def train(recipe, seed, arguments):
    """The run's folder."""
    name = f"{recipe.parent.name}_{recipe.stem}_seed{seed}"
    folder = pathlib.Path(arguments.root) / name
    command = [HERE / "launch/run", "-n", str(arguments.ranks), "train", recipe,
               f"run.root={arguments.root}", f"run.name={name}", f"run.seed={seed}",
               "run.on_existing=resume", *arguments.overrides]
    if not is_finished(folder):
        with open(f"{folder}.txt", "w") as log:
            subprocess.run([str(word) for word in command], check=True, stdout=log, stderr=log)
    return folder


def mean(values):
    values = list(values)
    return statistics.fmean(values) if values else None


def results(folder):
    """What one run's summary says; expert statistics are means over its layers at the last step."""
    summary = json.loads((folder / "summary.json").read_text())
    layers = summary.get("moe", [])
    return {"top1": 100 * summary["evaluation"]["top1"],
            "load_cv": mean(layer["load_cv"] for layer in layers),
            "entropy": mean(layer["load_entropy"] for layer in layers),
            "dropped": mean(100 * layer["dropped"] for layer in layers),
            "images_per_second": summary["samples_per_second"]}


def cell(values, digits):
    values = [value for value in values if value is not None]
    return ", ".join(f"{value:.{digits}f}" for value in values) if values else "–"


def row(recipe, runs):
    columns = [("top1", 2), ("load_cv", 2), ("entropy", 3), ("dropped", 1),
               ("images_per_second", 0)]
    cells = [cell([run[key] for run in runs], digits) for key, digits in columns]
    return f"| `{recipe.parent.name}/{recipe.name}` | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="+", type=pathlib.Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--root", default="runs/table")
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:split])
    arguments.overrides = words[split + 1:]
    pathlib.Path(arguments.root).mkdir(parents=True, exist_ok=True)
    print("| recipe | top-1 % | load CV | load entropy | dropped % | images/s |")
    print("|---|---|---|---|---|---|", flush=True)
    for recipe in arguments.recipes:
        runs = [results(train(recipe, seed, arguments)) for seed in arguments.seeds]
        print(row(recipe, runs), flush=True)


if __name__ == "__main__":
    main()
