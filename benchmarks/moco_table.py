#!/usr/bin/env python3
"""Pretrains the small models of configs/moco on CIFAR-10 by MoCo v3 and judges them beside random features, pixels and training from scratch.

    benchmarks/moco_table.py [--models sparse_mlp mixer] [--seeds 1 2] [--ranks 2] [--root FOLDER] [--json FILE] [-- key=value...]

k-NN and linear-probe accuracy on batch 5 after pretraining, of the same model with random weights and of the pixels; accuracy after fine-tuning on 10 % of the labels, beside the same training from random weights. Finished runs are not trained again. What follows `--` goes to every run.
"""
import argparse
import json
import pathlib
import statistics
import sys

from compare_runs import origin
from training_table import HERE, read_summary, train

RECIPES = HERE / "configs/moco"
MODELS = {"sparse_mlp": "", "mixer": "_mixer"}  # how their probe's and fine-tuning's recipes end
# One step that changes nothing: an evaluation of the first weights.
UNTRAINED = ["train.duration=1step", "optimizer.lr=1e-12", "schedule.warmup=0step", "evaluate.every=1step",
             "checkpoint.every=never"]
PIXELS = ["~model", "model.backbone=flat_pixels", "parallel.expert_ranks=1"]


def run(recipe, seed, arguments, variant, overrides):
    """The last evaluation of a run, and its summary."""
    root = pathlib.Path(arguments.root) / variant
    root.mkdir(parents=True, exist_ok=True)
    folder = train(RECIPES / f"{recipe}.yaml", seed,
                   argparse.Namespace(root=root, ranks=arguments.ranks, overrides=arguments.given + overrides))
    return folder, read_summary(folder)


def judge(model, seed, arguments):
    """Accuracies in percent by what was measured, and the summaries of the runs."""
    end, pretraining = MODELS[model], f"tiny_cifar10_{model}"
    folder, pretrained = run(pretraining, seed, arguments, "pretrained", [])
    take = [f"model.init_from.from={folder}"]
    runs = {"pretrained": pretrained}
    for name, recipe, overrides in [
            ("random", pretraining, UNTRAINED),
            ("pixels", pretraining, [*PIXELS, *UNTRAINED, "~optimizer.rules"]),
            ("probe", f"tiny_cifar10_probe{end}", take),
            ("probe of random", f"tiny_cifar10_probe{end}", ["~model.init_from"]),
            ("probe of pixels", f"tiny_cifar10_probe{end}", [*PIXELS, "optimizer.lr=0.01"]),
            ("fine-tuned", f"tiny_cifar10_finetune{end}", take),
            ("from scratch", f"tiny_cifar10_finetune{end}", ["~model.init_from"])]:
        runs[name] = run(recipe, seed, arguments, name.replace(" ", "_"), overrides)[1]
    accuracy = {name: 100 * summary["evaluation"].get("knn_top1", summary["evaluation"].get("top1"))
                for name, summary in runs.items()}
    return accuracy, runs


def table(scores, summaries, seeds):
    def cells(model, name):
        return ", ".join(f"{scores[model][seed][name]:.2f}" for seed in seeds)

    yield "| model | k-NN: pretrained | random | pixels | probe: pretrained | random | pixels |\n|---|---|---|---|---|---|---|"
    for model in scores:
        names = ["pretrained", "random", "pixels", "probe", "probe of random", "probe of pixels"]
        yield f"| {model} | " + " | ".join(cells(model, name) for name in names) + " |"
    yield "\n| model | 10 % of the labels: fine-tuned | from scratch | gain | feature std | router agreement |\n|---|---|---|---|---|---|"
    for model in scores:
        gain = statistics.fmean(scores[model][seed]["fine-tuned"] - scores[model][seed]["from scratch"] for seed in seeds)
        last = [summaries[f"{model} seed {seed}: pretrained"]["evaluation"] for seed in seeds]
        std = ", ".join(f"{one['feature_std']:.4f}" for one in last)
        agreement = ", ".join(f"{one['key_router_agreement']:.3f}" if "key_router_agreement" in one else "–" for one in last)
        yield (f"| {model} | {cells(model, 'fine-tuned')} | {cells(model, 'from scratch')} | {gain:+.2f} | {std} | "
               f"{agreement} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--root", default="runs/moco_table")
    parser.add_argument("--json", type=pathlib.Path)
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:split])
    arguments.given = words[split + 1:]
    scores, summaries = {model: {} for model in arguments.models}, {}
    for seed in arguments.seeds:
        for model in arguments.models:
            scores[model][seed], runs = judge(model, seed, arguments)
            summaries.update({f"{model} seed {seed}: {name}": summary for name, summary in runs.items()})
    print("\n".join(table(scores, summaries, arguments.seeds)))
    if arguments.json:
        result = {**origin("moco_table"), "scores": scores, "runs": summaries}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
