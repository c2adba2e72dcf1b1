#!/usr/bin/env python3
"""The reader in launch/python against the program: outputs of small trained models, preprocessing, metrics,
refusals, and the Python of docs/python.md.

Usage: reader_peer.py SHOAL MODEL_OUTPUTS SCRATCH [--only WORD]

Each model is trained for some steps in float32 and in float64 and exported; `model_outputs` runs its
checkpoint on random inputs, and the reader runs the export. Needs torch, safetensors and Pillow.
"""
import argparse
import concurrent.futures
import csv
import json
import math
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "launch" / "python"))
sys.dont_write_bytecode = True
import shoal
import torch
from safetensors.torch import load_file, save_file

TOLERANCES = {"float32": 1e-5, "float64": 1e-12}  # of the largest output of the batch
IMAGES = {"source": "shapes", "image_size": 16, "classes": 5, "train": {"samples": 32}, "valid": {"samples": 8}}
UNIT_IMAGES = {**IMAGES, "normalise": {"mean": [0, 0, 0], "std": [1, 1, 1]}}
TEXT = {"source": "mqar", "sequence": 32, "vocabulary": 40, "pairs": 4, "train": {"samples": 32}, "valid": {"samples": 8}}
EXPRESSIONS = {"source": "listops", "min_length": 3, "max_length": 24, "max_depth": 3, "max_args": 5,
               "train": {"samples": 32}, "valid": {"samples": 8}}
CLASSIFY, LM = {"name": "classify"}, {"name": "lm"}
MOCO = {"name": "moco_v3", "hidden": 24, "out": 10, "references": 0}
DENOISE = {"name": "denoise", "sigma": 0}
EXPERTS = {"count": 4, "hidden": 20}


def moe(router, experts=EXPERTS, **more):
    return {"router": router, "losses": [], "experts": experts, **more}


def sparse_mlp(token, channel=None, **sparse):
    return {"backbone": "sparse_mlp", "patch": 4, "width": 24, "dense_blocks": 1, "sparse_blocks": 1,
            "sparse": {"token_moe": token, "channel_moe": channel or token, **sparse}}


MIXER = {"backbone": "mixer", "patch": 4, "width": 24, "depth": 2}
VIT = {"backbone": "vit", "patch": 4, "width": 24, "depth": 2, "heads": 3}
CONVNEXT = {"backbone": "convnext", "stem_patch": 2, "depths": [1, 2], "widths": [12, 24], "layer_scale": 0.5}
GPT2 = {"backbone": "gpt2", "width": 24, "depth": 2, "heads": 4, "init_std": 0.2}
HSPMN = {"backbone": "hspmn", "width": 24, "depth": 2, "heads": 4, "kv_heads": 2, "hidden": 32, "init_std": 0.2,
         "gate": {"rate": 0.4, "anneal_steps": 0, "first_rate": 0.4, "anchor_every": 16}}
DENOISER = {"backbone": "adaptive_attention", "patch": 4, "width": 24, "depth": 2, "heads": 3}
BY_EXPERTS = {"sparse_blocks": {"from": 0, "every": 1}}
TOP_2 = moe({"name": "top_k", "k": 2})
NEXUS = {"experts": {"count": 3, "hidden": 20}, "memory": {"count": 2, "keys": 9, "k": 3}, "slots": 2}
SPARSE = {"density": 0.5, "pattern": {"name": "unstructured"}, "rule": {"name": "rigl", "every": "1step"}}


def gate(**changes):
    return {**HSPMN, "gate": {**HSPMN["gate"], **changes}}


def hard(mixing, experts, router):
    return {**DENOISER, "attention": {"mixing": mixing, "experts": experts, "router": router, "losses": []}}


CASES = {  # name: data, model, task and, of some, other sections
    "mixer": (IMAGES, MIXER, CLASSIFY),
    "mixer, no blocks": (IMAGES, {**MIXER, "depth": 0}, CLASSIFY),
    "mixer, tanh": (IMAGES, {**MIXER, "gelu": "tanh"}, {"name": "linear_probe"}),
    "sparse_mlp": (IMAGES, sparse_mlp(moe({"name": "importance_score", "k": 1}), TOP_2), CLASSIFY),
    "sparse_mlp, no rescale": (IMAGES, sparse_mlp(moe({"name": "importance_score", "k": 2, "eval_drop": 0.3,
                               "weights": {"renorm_after_drop": True}}), rescale=False, outer_residual=True), CLASSIFY),
    "sparse_mlp, dense channels": (IMAGES, {**sparse_mlp(TOP_2), "sparse": {"token_moe": TOP_2, "channel_moe": None,
                                   "channel_hidden": 20}}, CLASSIFY),
    "vit": (IMAGES, {**VIT, "layer_scale": 0.5}, CLASSIFY),
    "vit, sin_cos": (IMAGES, {**VIT, "pool": "mean", "positions": "sin_cos"}, CLASSIFY),
    "vit, experts": (IMAGES, {**VIT, **BY_EXPERTS, "moe": TOP_2}, CLASSIFY),
    "vit, nexus": (IMAGES, {**VIT, **BY_EXPERTS, "nexus": NEXUS}, CLASSIFY),
    "vit, nexus of the paper": (IMAGES, {**VIT, **BY_EXPERTS, "nexus": {**NEXUS, "variant": "paper"}}, CLASSIFY),
    "convnext": (IMAGES, CONVNEXT, CLASSIFY),
    "convnext, experts": (IMAGES, {**CONVNEXT, **BY_EXPERTS, "moe": TOP_2}, CLASSIFY),
    "flat_pixels": (IMAGES, {"backbone": "flat_pixels"}, CLASSIFY),
    "gpt2": (TEXT, GPT2, LM),
    "gpt2, Llama": (TEXT, {**GPT2, "position": "rope", "kv_heads": 2, "norm": "rms", "mlp": "swiglu", "bias": False,
                           "pad_vocabulary": 32, "scale_attn_by_inverse_layer_idx": True}, {**LM, "tied": False}),
    "gpt2, experts": (TEXT, {**GPT2, **BY_EXPERTS, "moe": TOP_2}, LM),
    "gpt2, lengths": (EXPRESSIONS, {**GPT2, **BY_EXPERTS, "moe": moe({"name": "hash", "k": 2})},
                      {**CLASSIFY, "pool": "last"}),
    "hspmn": (TEXT, HSPMN, LM),
    "hspmn, experts": (TEXT, {**gate(capacity=0.9, block=2), **BY_EXPERTS, "moe": TOP_2}, LM),
    "hspmn, predictor": (TEXT, gate(select="topk_predictor", temperature="learned"), LM),
    "hspmn, random": (TEXT, gate(select="random"), LM),
    "hspmn, topk, lengths": (EXPRESSIONS, {**gate(select="topk", block=3), "causal": False, **BY_EXPERTS,
                             "nexus": NEXUS}, CLASSIFY),
    "hspmn, dense and none": (TEXT, {**HSPMN, "contextual": "none", "dense_blocks": [1]}, LM),
    "adaptive_attention": (UNIT_IMAGES, {**DENOISER, "attention": {"experts": [{"k": 3}, {"share": 0.3}, {}]}}, DENOISE),
    "adaptive_attention, hard": (UNIT_IMAGES, {**hard("hard", [{"k": 4, "candidates": {"from": "window", "window": 3}},
        {"k": 5, "candidates": {"from": "pooled", "block": 3, "keep": 2}}, {}], {"name": "top_k", "k": 2}),
        "final_norm": True}, {**DENOISE, "residual": True}),
    "adaptive_attention, shared keys": (UNIT_IMAGES, hard("hard_shared_kv", [{"k": 3}, {"k": 9}],
                                        {"name": "mlp", "k": 1}), DENOISE),
    "adaptive_attention, standard": (UNIT_IMAGES, {**DENOISER, "attention": None}, DENOISE),
    "moco_v3": (IMAGES, sparse_mlp(TOP_2), MOCO),
    "masks": (IMAGES, {**VIT, **BY_EXPERTS, "moe": TOP_2}, CLASSIFY, {"sparsity": SPARSE}),
    "low rank": (IMAGES, VIT, CLASSIFY, {"sparsity": {"density": 0.5, "layers": ["mlp"], "rule": {"name": "static"},
                 "pattern": {"name": "butterfly", "low_rank": 0.3}}}),
    "permutations": (IMAGES, {**VIT, **BY_EXPERTS, "moe": TOP_2}, CLASSIFY, {"sparsity": {**SPARSE,
                     "permutation": {"name": "random"}}}),
    "folded": (IMAGES, MIXER, CLASSIFY, {"sparsity": {**SPARSE, "permutation": {"name": "random"}}}),
}
ROUTERS = {
    "noisy_top_k": {}, "sigmoid": {"bias": {"rate": 0.1}, "weights": {"scale": 2.5}},
    "sqrt_softplus": {"groups": {"count": 2, "keep": 1, "score": "max"}}, "sinkhorn": {}, "mlp": {"k": 2},
    "expert_choice": {"factor": 0.7}, "hash": {}, "top_k": {"noise": "learned", "weights": {"normalise": "sum"}},
}
for name, options in ROUTERS.items():
    CASES[f"router {name}"] = (IMAGES, {**VIT, **BY_EXPERTS, "moe": moe({"name": name, **options})}, CLASSIFY)
CASES["experts gated, shared"] = (IMAGES, {**VIT, **BY_EXPERTS, "moe": moe({"name": "top_k"}, {"kind": "gated", **EXPERTS},
                                  shared={"count": 2, "hidden": 12})}, CLASSIFY)
CASES["experts memory"] = (IMAGES, {**VIT, **BY_EXPERTS, "moe": moe({"name": "top_k"}, {"kind": "memory", "count": 3,
                           "keys": 8, "k": 3})}, CLASSIFY)


def flow(value):
    """YAML of one line; words have no quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(own)}" for key, own in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


class Tests:
    def __init__(self, program, outputs, scratch):
        self.program, self.model_outputs, self.scratch = program, outputs, pathlib.Path(scratch)
        self.failures = []

    def run(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, cwd=self.scratch)
        if done.returncode != 0:
            raise RuntimeError(f"shoal {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def check(self, what, good, why=""):
        print(f"{'ok  ' if good else 'FAIL'} {what}{': ' if why else ''}{why}", flush=True)
        if not good:
            self.failures.append(what)

    def train(self, name, data, model, task, more, *overrides):
        """A run of this name."""
        recipe = {"run": {"name": name, "root": "runs", "threads": 1, "tensorboard": False}, "data": data, "model": model,
                  "task": task, "optimizer": {"name": "adamw", "lr": 0.03}, "schedule": {"name": "constant"},
                  "train": {"duration": "4step", "batch": 8, "group": 4, "log_every": "1step"},
                  "evaluate": {"every": "never"}, "checkpoint": {"every": "never"}, **more}
        file = self.scratch / f"{name}.yaml"
        file.write_text("\n".join(f"{key}: {flow(value)}" for key, value in recipe.items()) + "\n")
        self.run("train", file, *overrides)

    def inputs(self, model, dtype):
        generator = torch.Generator().manual_seed(3)
        if model.samples["image"]:
            return {"image": torch.rand(6, *model.samples["image"], generator=generator).to(dtype)}
        sequence = model.samples["sequence"]
        inputs = {"token": torch.randint(0, model.samples["vocabulary"], (6, sequence), generator=generator)}
        if model.recipe["data"]["source"] == "listops":
            inputs["length"] = torch.randint(1, sequence + 1, (6,), generator=generator)
        return inputs

    def compare_outputs(self, case, precision):
        data, model, task, *more = CASES[case]
        name = re.sub(r"\W+", "_", case) + "_" + precision
        self.train(name, data, model, task, more[0] if more else {}, f"train.precision={precision}")
        run = self.scratch / "runs" / name
        if case == "folded":
            self.run("fold", run, f"{name}_folded")
            run = self.scratch / f"{name}_folded"
        self.run("export", run, "--to", "safetensors", f"{name}_out")
        loaded = shoal.load(self.scratch / f"{name}_out" / "model.safetensors")
        inputs = self.inputs(loaded, getattr(torch, precision))
        source, target = self.scratch / f"{name}.in", self.scratch / f"{name}.outputs"
        save_file(inputs, source)
        subprocess.run([self.model_outputs, run, source, target], check=True)
        wanted = load_file(target)["outputs"]
        own = loaded(inputs.get("image", inputs.get("token")), *([inputs["length"]] if "length" in inputs else []))
        wanted, own = wanted.double().flatten(1), own.double().flatten(1)
        largest = wanted.abs().max().item()
        difference = (own - wanted).abs().max().item() / largest if own.shape == wanted.shape else math.inf
        spread = (wanted - wanted.mean(0)).abs().max().item() / largest  # no comparison of constants
        self.check(f"{case}, {precision}", difference <= TOLERANCES[precision] and spread > 1e-3,
                   f"{difference:.1e} of the largest output, {largest:.2g}; they differ by {spread:.1g}")

    def attempt(self, what, run, *arguments):
        try:
            run(*arguments)
        except Exception as error:
            self.check(what, False, f"{type(error).__name__}: {error}")


def write_png(path, image_HWC):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    height, width, _ = image_HWC.shape
    rows = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in image_HWC)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def photographs(folder):
    """Images of many sizes in two classes, [(image, label)] in the order of an evaluation."""
    sizes = [(24, 24), (31, 50), (97, 40), (17, 90), (200, 133), (25, 24), (128, 256), (16, 16)]
    generator, images = torch.Generator().manual_seed(5), []
    for label, kind in enumerate(("cat", "dog")):
        for index, (height, width) in enumerate(sizes[label::2]):
            image = torch.randint(0, 256, (height, width, 3), generator=generator, dtype=torch.uint8)
            write_png(folder / kind / f"{index}.png", image)
            images.append((image, label))
    return images


def check_transform(tests):
    """By the loss of a linear model of pixels: a byte that differs changes it by far more than rounding."""
    images = photographs(tests.scratch / "photographs" / "val")
    photographs(tests.scratch / "photographs" / "train")
    for resize in ("none", 24, 37):
        name = f"transform_{resize}"
        data = {"source": "image_folder", "path": "photographs", "classes": 2, "image_size": 24,
                "valid": {"crop": {"name": "center", "resize": resize}}}
        tests.train(name, data, {"backbone": "flat_pixels"}, CLASSIFY, {}, "train.precision=float64")
        wanted = json.loads(tests.run("eval", f"runs/{name}", "--json"))["loss"]
        tests.run("export", f"runs/{name}", "--to", "safetensors", f"{name}_out")
        model = shoal.load(tests.scratch / f"{name}_out")
        transform = shoal.transform(model)
        logits = model(torch.stack([transform(image) for image, _ in images]))
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([label for _, label in images])).item()
        tests.check(f"preprocessing, resize {resize}", abs(loss - wanted) <= 1e-12 * wanted, f"loss {loss}, {wanted}")


def check_predict(tests):
    """By the probabilities that `shoal predict` prints: photographs for a model of a source that crops, and for
    those of small images that are used as they are or, of CIFAR, resized and cropped."""
    (tests.scratch / "cifar").mkdir()
    for name in ("train.bin", "valid.bin"):
        records = b"".join(bytes([label]) + random.Random(label).randbytes(3072) for label in range(10))
        (tests.scratch / "cifar" / name).write_bytes(records)
    cifar = {"source": "cifar", "path": "cifar", "train": {"files": ["train.bin"]}, "valid": {"files": ["valid.bin"]}}
    resized = {**cifar, "valid": {**cifar["valid"], "crop": {"name": "center", "resize": 40}}}
    for name, data in (("small", IMAGES), ("cifar", cifar), ("cifar_resized", resized)):
        tests.train(name, data, VIT, CLASSIFY, {}, "train.precision=float64")
        tests.run("export", f"runs/{name}", "--to", "safetensors", f"{name}_out")
    images = photographs(tests.scratch / "photographs" / "val")
    for name in ("transform_37", "small", "cifar", "cifar_resized"):
        lines = tests.run("predict", f"runs/{name}", "photographs/val", "--json", "--top-k", 2).splitlines()
        model = shoal.load(tests.scratch / f"{name}_out")
        transform, difference = shoal.transform(model), 0.0
        for line, (image, _) in zip(lines, images, strict=True):
            shares = model(transform(image).unsqueeze(0)).softmax(1)[0]
            for top in json.loads(line)["top"]:
                difference = max(difference, abs(shares[top["class"]].item() - top["probability"]))
        tests.check(f"predict, {name}, {len(lines)} photographs", difference <= 1e-12, f"{difference:.1e}")


def check_runs(tests):
    tests.train("metrics", IMAGES, MIXER, CLASSIFY, {"evaluate": {"every": "2step"}})
    with open(tests.scratch / "runs/metrics/metrics.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    read = shoal.runs(tests.scratch / "runs")["metrics"]
    for kind, event in (("train", ""), ("evaluate", "eval")):
        wanted = [float(row["loss"]) for row in rows if row["event"] == event]
        tests.check(f"runs, {kind}", read[kind]["loss"] == wanted and len(wanted) >= 2, str(wanted))
    tests.check("runs, one run", shoal.runs(tests.scratch / "runs/metrics") == {"metrics": read})
    for name in ("damaged", ".hidden/run"):
        (tests.scratch / "damaged" / name).mkdir(parents=True)
        lines = (tests.scratch / "runs/metrics/metrics.jsonl").read_bytes().splitlines(keepends=True)
        broken = [b'{"step": 1, "lo\n', b"\0\0\n", b"\xff\n", b"[1]\n", b"2\n", b'{"loss": 1}\n', b'{"step": [1]}\n',
                  b'{"step": Infinity}\n']
        (tests.scratch / "damaged" / name / "metrics.jsonl").write_bytes(b"".join([lines[0], *broken, *lines[1:]]) + b'{"st')
    tests.check("runs, broken lines and hidden folders", shoal.runs(tests.scratch / "damaged") == {"damaged": read})
    try:
        shoal.runs(tests.scratch / "missing")
        tests.check("runs, no folder", False, "it did not")
    except shoal.Error as error:
        tests.check("runs, no folder", "missing" in str(error), str(error))


def check_refusals(tests):
    tests.train("refused", IMAGES, {**VIT, **BY_EXPERTS, "moe": TOP_2}, CLASSIFY, {})
    tests.run("export", "runs/refused", "--to", "safetensors", "refused")
    out = tests.scratch / "refused"
    text = (out / "recipe.json").read_text()
    # Clones, as the file that is written again below is mapped into memory.
    tensors = {name: tensor.clone() for name, tensor in load_file(out / "model.safetensors").items()}

    def refuses(what, word, recipe=text, change=None):
        (out / "recipe.json").write_text(recipe)
        changed = dict(tensors)
        if change:
            change(changed)
        save_file(changed, out / "model.safetensors")
        try:
            shoal.load(out)
            tests.check(f"refuses {what}", False, "it did not")
        except shoal.Error as error:
            tests.check(f"refuses {what}", word in str(error), str(error))

    refuses("a router", "'forced'", text.replace('"top_k"', '"forced"'))
    refuses("a backbone", "'resnet'", text.replace('"vit"', '"resnet"'))
    refuses("a task", "'rank'", text.replace('"classify"', '"rank"'))
    refuses("a tensor too many", "backbone.registers", change=lambda t: t.update({"backbone.registers": torch.ones(2)}))
    refuses("a tensor too few", "'head.weight'", change=lambda t: t.pop("head.weight"))
    save_file(tensors, out / "model.safetensors")
    (out / "recipe.json").write_text(text)
    transform = shoal.transform(shoal.load(out))
    for image in (torch.zeros(16, 16, 1, dtype=torch.uint8), torch.zeros(16, 16, 3)):
        try:
            transform(image)
            tests.check(f"refuses an image {list(image.shape)}", False, "it did not")
        except shoal.Error as error:
            tests.check(f"refuses an image {list(image.shape)}", True, str(error))
    (out / "recipe.json").unlink()
    try:
        shoal.load(out / "model.safetensors")
        tests.check("refuses a file without recipe.json", False, "it did not")
    except shoal.Error as error:
        tests.check("refuses a file without recipe.json", "recipe.json" in str(error))


def check_page(tests):
    """The Python of docs/python.md runs, on a model of photographs and the runs of the other tests."""
    folder = tests.scratch / "page"
    (folder / "out").mkdir(parents=True)
    for file in (tests.scratch / "transform_37_out").iterdir():
        shutil.copy(file, folder / "out")
    shutil.copytree(tests.scratch / "runs/metrics", folder / "runs/photographs")
    write_png(folder / "photograph.png", photographs(folder / "unused")[4][0])
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/python.md").read_text(), re.M | re.S)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "launch/python"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=folder, env=environment, capture_output=True, text=True)
    tests.check(f"docs/python.md, {len(blocks)} blocks", done.returncode == 0 and len(blocks) >= 2 and "cat" in done.stdout,
                done.stdout.strip() + done.stderr.strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("shoal", "model_outputs", "scratch"):
        parser.add_argument(name)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tests = Tests(os.path.abspath(arguments.shoal), os.path.abspath(arguments.model_outputs), arguments.scratch)
    shutil.rmtree(tests.scratch, ignore_errors=True)
    tests.scratch.mkdir(parents=True)
    tests.scratch = tests.scratch.resolve()
    os.environ["OMP_NUM_THREADS"] = "1"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for case in CASES:
            for precision in TOLERANCES:
                if arguments.only in case:
                    pool.submit(tests.attempt, f"{case}, {precision}", tests.compare_outputs, case, precision)
    for check in (check_transform, check_predict, check_runs, check_refusals, check_page):
        if arguments.only in check.__name__:
            tests.attempt(check.__name__, check, tests)
    print(f"{len(tests.failures)} failures{': ' if tests.failures else ''}{', '.join(tests.failures)}")
    sys.exit(1 if tests.failures else 0)


if __name__ == "__main__":
    main()
