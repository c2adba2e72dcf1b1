"""The rows that one GPU is asked to run: what each of them starts, for how long, and when it passes."""
import dataclasses
import json
import math
import pathlib
import shutil
from collections.abc import Callable

TEST_PROGRAMS = ("moe", "parallel", "runtime", "models", "sparse", "launch")
GPU_TESTS = "*Gpu.*:*Gpu/*"
PEER_BYTES = 6 << 30  # most that the files of a layer's Python peers take


@dataclasses.dataclass
class Row:
    """Commands that share a name, a log and a time limit."""
    name: str
    limit: int  # seconds
    parts: dict[str, list]  # commands by name
    at_once: bool = False  # the parts run beside each other; otherwise one after the other
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    check: Callable[[], dict] | None = None  # facts for the summary; throws Failure
    absent: str = ""  # why the row cannot run here
    quotes: bool = False  # the summary shows what it printed, also if it passes


class Failure(Exception):
    """A row whose commands ended well, but whose numbers do not pass."""


@dataclasses.dataclass
class Places:
    """Where a run finds and leaves things."""
    build: pathlib.Path  # the built programs
    results: pathlib.Path  # logs, JSON and run folders of the rows
    python: str  # an interpreter with PyTorch, for peers
    cifar10: str = ""  # folders of data; empty without them
    wikitext2: str = ""

    def tests(self, part, tests=GPU_TESTS):
        return [self.build / f"tests_{part}", f"--gtest_filter={tests}"]

    def bench(self, name, row, *arguments):
        return [self.build / f"benchmarks/{name}_bench", *arguments, "--json", self.results / f"{row}.json"]


def first_row(places):
    """Proves that the plug-in finds the GPU, that kernels run, and that NCCL moves rows: between two ranks of
    one process on one GPU if this NCCL can do that, otherwise with one rank."""
    few = [f"*{suite}.*/{check}*" for suite in ("NcclSharedContractGpu", "NcclContractGpu")
           for check in ("AllReducesEveryDtype", "Exchanges")]
    return Row("works", 20, {
        "doctor": [places.build / "shoal", "doctor"],
        "plug-in": places.tests("runtime", "DeviceGpu.*"),
        "kernels": places.tests("moe", "PermuteRowsGpu.*:TopKGpu.*"),
        "NCCL": places.tests("parallel", ":".join(few + ["NcclCommunicatorGpu.*"]))}, at_once=True, quotes=True)


def losses_of(folder, device):
    """The losses of a training. Throws Failure unless all are finite; `metrics.jsonl` has null for NaN."""
    lines = (folder / device / "metrics.jsonl").read_text().splitlines()
    losses = [row["loss"] for row in map(json.loads, lines) if "loss" in row]
    for step, loss in enumerate(losses, 1):
        if not isinstance(loss, (int, float)) or not math.isfinite(loss):
            raise Failure(f"{device}: the loss of step {step} is {loss}")
    return losses


def losses_apart(folder, tolerance):
    """The largest relative difference between the losses of a training on the CPU and on the GPU."""
    cpu, cuda = losses_of(folder, "cpu"), losses_of(folder, "cuda")
    apart = max(abs(a - b) / a for a, b in zip(cpu, cuda, strict=True))
    if not apart < tolerance:
        raise Failure(f"losses are apart by {apart:.1e} in {len(cpu)} steps, allowed are {tolerance:.0e}")
    return {"losses_apart": apart, "steps": len(cpu)}


def curve(places, name, recipe, tolerance, *overrides, data):
    """20 steps on the CPU and on the GPU, loss by loss."""
    folder = places.results / f"curve_{name}"
    parts = {device: [places.build / "shoal", "train", f"configs/{recipe}.yaml", *overrides, f"run.device={device}",
                      f"run.name={device}", f"run.root={folder}", "run.on_existing=overwrite",
                      "train.duration=20step", "train.log_every=1step", "evaluate.every=never"]
             for device in ("cpu", "cuda")}
    absent = "" if getattr(places, data) else f"{data.upper()} names no folder"
    return Row(f"curve_{name}", 120, parts, check=lambda: losses_apart(folder, tolerance), absent=absent)


def curve_rows(places):
    gpt2 = "gpt2/tiny_wikitext2_bytes"
    dense = curve(places, "gpt2", gpt2, 1e-4, data="wikitext2")
    dense.parts["generate"] = [places.build / "shoal", "generate", places.results / "curve_gpt2/cuda",
                               "--prompt", "The "]
    rows = [curve(places, "sparse_mlp", "sparse_mlp/tiny_cifar10", 1e-3, "parallel.expert_ranks=1", data="cifar10"),
            dense,
            curve(places, "vit", "vit/tiny_cifar10_moe", 1e-3, "parallel.expert_ranks=1", data="cifar10"),
            curve(places, "gpt2_experts", gpt2 + "_moe", 1e-4, "parallel.expert_ranks=1", data="wikitext2"),
            curve(places, "gpt2_bfloat16", gpt2, 2e-2, "train.precision=bfloat16", data="wikitext2"),
            curve(places, "gpt2_modern", gpt2, 1e-4, "model.position=rope", "model.norm=rms", "model.mlp=swiglu",
                  data="wikitext2"),
            curve(places, "denoise_soft", "denoise/cifar10", 1e-3, data="cifar10"),
            curve(places, "denoise_hard", "denoise/cifar10_hard", 1e-3, data="cifar10")]
    for pattern in ("unstructured", "diagonal", "block, size: 16"):
        rows.append(curve(places, "sparse_" + pattern.split(",")[0], "padst/tiny_cifar10_vit_diagonal", 1e-3,
                          f"sparsity.pattern={{name: {pattern}}}", "sparsity.execution=sparse", data="cifar10"))
    return rows


def memory_for(num_bytes):
    """Makes temporary files lie in memory if there is enough; a container often has 64 MiB."""
    shared = pathlib.Path("/dev/shm")
    return {"TMPDIR": str(shared)} if shared.is_dir() and shutil.disk_usage(shared).free >= num_bytes else {}


def moe_layer(places, name, limit, shape, *arguments, beside=1):
    """A layer beside its Python peers; `beside`: how many such rows run at once."""
    row = f"{name}_{shape}"
    memory = memory_for(beside * PEER_BYTES)
    return Row(row, limit, {"": places.bench("moe_layer", row, "--device", "cuda", "--shape", shape,
                                             "--python", places.python, "--threads", "4", *arguments)}, env=memory)


def some_tests(places, name, part, tests):
    """A few tests by a name of their own, whose output the summary quotes."""
    return Row(name, 90, {"": places.tests(part, tests)}, quotes=True)


def rows_beside(places):
    """Right or wrong: these time nothing, so they run beside each other."""
    rows = [Row(f"tests_{part}", 150, {"": places.tests(part)}) for part in TEST_PROGRAMS]
    rows += [some_tests(places, "layer_is_a_graph", "moe", "MoeLayerGpu.OnOneRankIsACudaGraph"),
             some_tests(places, "host_waits", "launch", "TrainingGpu.WaitsOnceAStepAndALayerAtMost"),
             some_tests(places, "layer_launches", "moe", "*Gpu.*Launches*")]
    rows += curve_rows(places)
    shapes = ("S1", "S2", "S3")
    rows += [moe_layer(places, "moe_layer_float32", 90, shape, "--rounds", "1", beside=len(shapes)) for shape in shapes]
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    rows.append(Row("nccl_memcheck", 150, {"": [sanitizer, "--tool", "memcheck", "--error-exitcode", "9",
                                                *places.tests("parallel", "NcclCommunicatorGpu*")]},
                    env={"CUDA_LAUNCH_BLOCKING": "0"},
                    absent="" if sanitizer else "there is no compute-sanitizer"))
    return rows


def padst_step(places):
    command = [places.python, "benchmarks/compare_runs.py", "configs/padst/vit_b_dynadiag.yaml", "--steps", "40",
               "--rounds", "1", "--case", "dense 1 sparsity=null", "--case", "none 1 sparsity.rule.name=static",
               "--case", "random 1 sparsity.rule.name=static sparsity.permutation.name=random",
               "--json", places.results / "padst_step.json", "--", "run.device=cuda",
               "data={source: shapes, image_size: 224, classes: 1000}", "train.batch=64"]
    return Row("padst_step", 120, {"": command}, env={"SHOAL_PROGRAM": str(places.build / "shoal")})


def rows_alone(places):
    """Benchmarks, one at a time; first those that tell most in a minute."""
    def bench(row, limit, name, *arguments):
        return Row(row, limit, {"": places.bench(name, row, *arguments)})

    def layer(limit, shape, *arguments):
        return moe_layer(places, "moe_layer", limit, shape, "--dtype", "bfloat16", *arguments)

    rows = [bench(part, 60, "exchange_gpu", "--part", part) for part in ("call", "experts_beside", "gradients_before")]
    rows += [bench(part, 60, "gpu_layer", "--part", part) for part in ("permute", "router", "tf32", "optimizer")]
    rows += [bench(part, 90, "gpu_layer", "--part", part) for part in ("experts", "layer")]
    for recipe in ("sparse_mlp/tiny_cifar10", "vit/tiny_cifar10", "vit/tiny_cifar10_moe"):
        row = bench("train_step_" + recipe.replace("/", "_"), 70, "train_step", f"configs/{recipe}.yaml",
                    "--device", "cuda", "--peer-threads", "1", "--python", places.python)
        row.absent = "" if places.cifar10 else "CIFAR10 names no folder"
        rows.append(row)
    rows += [layer(75, "S1"), bench("sparse_model", 90, "sparse_model", "--device", "cuda")]
    rows += [layer(100, shape, "--rounds", "5") for shape in ("Q1", "M1")]
    rows += [bench("sparse_attention", 75, "sparse_attention_gpu"), padst_step(places)]
    rows += [bench(f"sparse_linear_{layout}", 75, "sparse_linear", "--device", "cuda", "--layouts", layout,
                   "--tokens", "1", "64", "8192")
             for layout in ("csr", "constant_fan_in", "diagonal", "block_16", "block_32")]
    rows += [layer(100, shape, "--rounds", "5") for shape in ("D1", "N1", "S2", "S3")]
    return rows
