#!/usr/bin/env python3
"""Trains recipes, each with several seeds, and prints the table that configs/README.md shows.

    benchmarks/training_table.py [--seeds 1 2] [--ranks 2] [--root FOLDER] [--json FILE] RECIPE... [-- key=value...]

Runs that are finished are not trained again, others go on where they stopped. --json keeps the summary of each run. What follows `--` goes to every run. Of models with token gates the first 256 validation samples are looked at, too.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

from compare_runs import origin

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


def read_summary(folder):
    """Without its checkpoint's path, which is of no use elsewhere."""
    summary = json.loads((folder / "summary.json").read_text())
    return {key: value for key, value in summary.items() if key != "checkpoint"}


def percent(evaluation, key):
    return 100 * evaluation[key] if key in evaluation else None


def mean(values):
    values = list(values)
    return statistics.fmean(values) if values else None


def last_logged(folder, key):
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    values = [line[key] for line in lines if key in line]
    return values[-1] if values else None


def gates(folder):
    """Means over the layers: what the gates do in validation, and their entropy at the last step."""
    if not (folder / "gates.jsonl").exists():
        return None
    seen = subprocess.run([HERE / "launch/run", "-n", "1", "inspect", folder, "--gates",
                           folder / "gates.html", "--samples", "256", "--json"],
                          check=True, stdout=subprocess.PIPE, text=True)
    layers = json.loads(seen.stdout)["layers"]
    logged = [json.loads(line) for line in (folder / "gates.jsonl").read_text().splitlines()]
    entropy = [line["entropy"] for line in logged if line["step"] == logged[-1]["step"]]
    return {"rate": mean(layer["rate"] for layer in layers), "entropy": mean(entropy),
            "token_information": mean(layer["token_information"] for layer in layers),
            "label_information": mean(layer["label_information"] for layer in layers
                                      if layer["label_information"] is not None)}


# A column's title, its digits, and how it is found in a run's summary and its folder. Expert
# statistics are means over the layers at the last step; experts without a token and multiply-adds are
# sums. What tokens tell about experts is a mean over the layers in the last evaluation.
LAYERS = [("load CV", 2, lambda layers: mean(layer["load_cv"] for layer in layers)),
          ("load entropy", 3, lambda layers: mean(layer["load_entropy"] for layer in layers)),
          ("dead", 0, lambda layers: sum(layer["dead_experts"] for layer in layers) if layers else None),
          ("dropped %", 1, lambda layers: mean(100 * layer["dropped"] for layer in layers))]
GATES = [("attending %", 1, lambda gates: 100 * gates["rate"]),
         ("gate entropy", 3, lambda gates: gates["entropy"]),
         ("I(gate; token)", 3, lambda gates: gates["token_information"]),
         ("I(gate; labelled)", 3, lambda gates: gates["label_information"])]
TASKS = {"top1": [("top-1 %", 2, lambda evaluation: 100 * evaluation["top1"])],
         "bits_per_byte": [("bits per byte", 3, lambda evaluation: evaluation["bits_per_byte"]),
                           ("perplexity", 2, lambda evaluation: evaluation["perplexity"])],
         "accuracy": [("correct answers %", 2, lambda evaluation: 100 * evaluation["accuracy"]),
                      ("answers that attend %", 1, lambda evaluation: percent(evaluation, "gate_recall"))],
         "psnr": [("PSNR dB", 2, lambda evaluation: evaluation["psnr"]),
                  ("SSIM", 4, lambda evaluation: evaluation["ssim"]),
                  ("I(token; expert)", 3, lambda evaluation: evaluation.get("moe_mutual_information"))]}


def results(summary):
    """The columns of one run: title, digits and value."""
    evaluation = summary["evaluation"]
    kind = next(kind for kind in TASKS if kind in evaluation)
    columns = [(title, digits, find(evaluation)) for title, digits, find in TASKS[kind]]
    columns += [(title, digits, find(summary.get("moe", []))) for title, digits, find in LAYERS]
    columns.append(("agreement", 2, summary["agreement"]))
    work = summary["multiply_adds"]
    columns.append(("thousand multiply-adds per token", 1, work and work / 1000))
    seen = summary["gates"]
    columns += [(title, digits, seen and find(seen)) for title, digits, find in GATES]
    return columns + [("samples/s", 0, summary["samples_per_second"])]


def cell(values, digits):
    values = [value for value in values if value is not None]
    return ", ".join(f"{value:.{digits}f}" for value in values) if values else "–"


def table(runs_of):
    """`runs_of`: by recipe the columns of each run. Columns that are empty everywhere are left out."""
    digits = {title: digits for runs in runs_of.values() for run in runs
              for title, digits, value in run if value is not None}
    yield "| recipe | " + " | ".join(digits) + " |\n|" + "---|" * (len(digits) + 1)
    for recipe, runs in runs_of.items():
        values = [{title: value for title, _, value in run} for run in runs]
        cells = [cell([own.get(title) for own in values], digits[title]) for title in digits]
        yield f"| `{recipe.parent.name}/{recipe.name}` | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="+", type=pathlib.Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--root", default="runs/table")
    parser.add_argument("--json", type=pathlib.Path)
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:split])
    arguments.overrides = words[split + 1:]
    pathlib.Path(arguments.root).mkdir(parents=True, exist_ok=True)
    runs_of, summaries = {}, {}
    for recipe in arguments.recipes:
        folders = [train(recipe, seed, arguments) for seed in arguments.seeds]
        own = {f.name: {**read_summary(f), "agreement": last_logged(f, "router_agreement"),
                        "multiply_adds": last_logged(f, "moe_multiply_adds"), "gates": gates(f)}
               for f in folders}
        runs_of[recipe] = [results(own[folder.name]) for folder in folders]
        summaries |= own
    print("\n".join(table(runs_of)))
    if arguments.json:
        arguments.json.write_text(json.dumps(
            {**origin("training_table"), "runs": summaries}, indent=1) + "\n")


if __name__ == "__main__":
    main()
