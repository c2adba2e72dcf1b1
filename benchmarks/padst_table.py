#!/usr/bin/env python3
"""Trains a small model dense and by each method of PA-DST, each with several seeds, and prints what a method or a permutation of the inputs changes.

    benchmarks/padst_table.py [--model vit] [--seeds 1 2 3 4 5] [--ranks 2] [--root FOLDER] [--json FILE] [--only NAME...] [-- key=value...]

Runs of one seed have the same data order and first weights, so that differences are taken seed by seed; their mean has a 95 % interval by Student's t. It is compared with the paper's table 11 (vit) or 12 (gpt2). Where the paper finds a method better, this holds if the interval of the gain is above zero, fails if it is below, and is open if it contains zero; "no better" fails if the interval is above zero, and is not refuted otherwise. A gain in bits per byte is a negative difference. Pairs with a method that the paper has no row of have no verdict. Finished runs are not trained again. What follows `--` goes to every run.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys

from compare_runs import origin
from training_table import HERE, read_summary, train

RECIPES = HERE / "configs/padst"
STRUCTURES = ["srigl", "dsb", "pbfly", "dynadiag"]
METHODS = ["dense", "rigl", "set", *STRUCTURES,
           *(f"{structure} {permutation}" for structure in STRUCTURES
             for permutation in ("random", "learned"))]
# Metric, factor, digits shown and whether more of it is better; what the recipes' names begin with; methods without
# a row in the paper's table.
MODELS = {"vit": ("top1", 100, 2, True, "tiny_cifar10_vit", []),
          "gpt2": ("bits_per_byte", 1, 4, False, "tiny_wikitext2_bytes_gpt2", ["set", "dsb"])}
# 97.5 % quantiles of Student's t, by degrees of freedom.
QUANTILES = [None, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


def variant(stem, name):
    """A method's recipe, and the overrides for its permutation."""
    method, *permutation = name.split()
    return (RECIPES / f"{stem}_{method}.yaml",
            [f"sparsity.permutation.name={one}" for one in permutation])


def comparisons():
    """Pairs (a, b) and what the paper finds of a beside b: better, or no difference."""
    yield "rigl", "set", "better"
    for structure in STRUCTURES:
        yield "rigl", structure, "better"
        yield f"{structure} learned", structure, "better"
        yield f"{structure} learned", f"{structure} random", "better"
        yield f"{structure} random", structure, "no better"


def interval(differences):
    """The mean of two differences or more and the half width of its 95 % interval."""
    count = len(differences)
    return (statistics.fmean(differences),
            QUANTILES[count - 1] * statistics.stdev(differences) / math.sqrt(count))


def verdict(mean, half, is_more_better, expected):
    gain = mean if is_more_better else -mean
    if expected == "no better":
        return "fails" if gain - half > 0 else "not refuted"
    return "holds" if gain - half > 0 else "fails" if gain + half < 0 else "open"


def table(scores, seeds, unit, digits):
    yield f"| method | {unit} by seed | mean |\n|---|---|---|"
    for name, values in scores.items():
        cells = ", ".join(f"{values[seed]:.{digits}f}" for seed in seeds)
        yield f"| {name} | {cells} | {statistics.fmean(values.values()):.{digits}f} |"


def compare(scores, seeds, is_more_better, without_row):
    """The comparisons whose runs are there; `paper` and `direction` are None where it has no row."""
    for first, second, expected in comparisons():
        if first not in scores or second not in scores:
            continue
        mean, half = interval([scores[first][seed] - scores[second][seed] for seed in seeds])
        has_rows = not {first.split()[0], second.split()[0]} & set(without_row)
        yield {"method": first, "beside": second, "difference": mean, "half_width": half,
               "paper": expected if has_rows else None,
               "direction": verdict(mean, half, is_more_better, expected) if has_rows else None}


def comparison_table(rows, digits):
    yield "| method | compared with | difference, 95 % interval | direction in the paper |\n|---|---|---|---|"
    for row in rows:
        paper = f"{row['paper']}: {row['direction']}" if row["paper"] else "not in the paper"
        yield (f"| {row['method']} | {row['beside']} | {row['difference']:+.{digits}f} ± "
               f"{row['half_width']:.{digits}f} | {paper} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="vit")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--root", default="runs/padst_table")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", choices=METHODS, metavar="NAME", default=METHODS,
                        help=f"default: all of {', '.join(METHODS)}; quote those of two words")
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:split])
    if not 2 <= len(arguments.seeds) <= len(QUANTILES):
        parser.error(f"--seeds: an interval takes 2 to {len(QUANTILES)} seeds")
    given, root = words[split + 1:], pathlib.Path(arguments.root)
    metric, factor, digits, is_more_better, stem, without_row = MODELS[arguments.model]
    chosen = {name: variant(stem, name) for name in METHODS if name in arguments.only}
    scores, summaries = {name: {} for name in chosen}, {}
    for seed in arguments.seeds:  # all methods of a seed first, so that a part is a fair table
        for name, (recipe, overrides) in chosen.items():
            arguments.root = root / name.replace(" ", "_")
            arguments.root.mkdir(parents=True, exist_ok=True)
            arguments.overrides = overrides + given
            summary = read_summary(train(recipe, seed, arguments))
            scores[name][seed] = factor * summary["evaluation"][metric]
            summaries[f"{name} seed {seed}"] = summary
    rows = list(compare(scores, arguments.seeds, is_more_better, without_row))
    print("\n".join([*table(scores, arguments.seeds, metric, digits), "", *comparison_table(rows, digits)]))
    if arguments.json:
        result = {**origin("padst_table"), "metric": metric, "scores": scores,
                  "comparisons": rows, "runs": summaries}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
