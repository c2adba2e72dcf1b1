#!/usr/bin/env python3
"""Expert layers of Python PyTorch against Shoal's, interleaved in one run.

Starts expert_bank_bench --serve and takes turns with it: Shoal, dense, unbind, grouped_mm, dense ...
The yardstick is the Python dense MLP of equal FLOPs. One thread each, forward and backward.

    PYTHONPATH=<folder with torch> python3 benchmarks/peers/expert_bank.py \\
        build/release/benchmarks/expert_bank_bench [--rounds 15] [--json FILE] [--shape ID]
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
try:
    import torch
except ImportError:
    sys.exit("expert_bank.py: no torch for this Python; set PYTHONPATH to a folder that has it")

SHAPES = ["e4_top2", "e8_top1", "e16_top1", "e64_top2"]


class Shoal:
    """The C++ program, asked for one call at a time."""

    def __init__(self, program):
        self.process = subprocess.Popen(
            [program, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what, shape):
        print(what, shape, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"expert_bank.py: the program ended at '{what} {shape}'")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Problem:
    """The same layer in Python: stacked experts [E, in, out], rows sorted by expert."""

    def __init__(self, rows, width, hidden):
        torch.manual_seed(1)
        experts, total = len(rows), sum(rows)
        self.rows = rows
        self.ends = torch.tensor(rows, dtype=torch.int32).cumsum(0).to(torch.int32)
        self.x = torch.randn(total, width, requires_grad=True)
        self.upstream = torch.randn(total, width)
        self.w1 = (torch.randn(experts, width, hidden) / width**0.5).requires_grad_()
        self.b1 = torch.randn(experts, hidden).requires_grad_()
        self.w2 = (torch.randn(experts, hidden, width) / hidden**0.5).requires_grad_()
        self.b2 = torch.randn(experts, width).requires_grad_()
        self.dense_layers = [p[0].detach().clone().requires_grad_()
                             for p in (self.w1, self.b1, self.w2, self.b2)]

    def dense(self):
        w1, b1, w2, b2 = self.dense_layers
        hidden = torch.nn.functional.gelu(torch.addmm(b1, self.x, w1))
        return torch.addmm(b2, hidden, w2)

    def unbind(self):
        parts = []
        stacks = zip(self.x.split(self.rows), self.w1.unbind(0), self.b1.unbind(0),
                     self.w2.unbind(0), self.b2.unbind(0))
        for x, w1, b1, w2, b2 in stacks:
            hidden = torch.nn.functional.gelu(torch.addmm(b1, x, w1))
            parts.append(torch.addmm(b2, hidden, w2))
        return torch.cat(parts)

    def grouped_mm(self):
        expert = torch.repeat_interleave(torch.arange(len(self.rows)), torch.tensor(self.rows))
        hidden = torch.nn.functional.grouped_mm(self.x, self.w1, offs=self.ends)
        hidden = torch.nn.functional.gelu(hidden + self.b1[expert])
        return torch.nn.functional.grouped_mm(hidden, self.w2, offs=self.ends) + self.b2[expert]

    def clear(self):
        for tensor in [self.x, self.w1, self.b1, self.w2, self.b2, *self.dense_layers]:
            tensor.grad = None

    def time(self, what):
        start = time.perf_counter()
        getattr(self, what)().backward(self.upstream)
        self.clear()
        return 1e6 * (time.perf_counter() - start)


def measure(shoal, shape, rounds):
    info = shoal.ask("rows", shape)
    problem = Problem(info["rows"], info["width"], info["hidden"])
    times = {"shoal": [], "dense": [], "unbind": [], "grouped_mm": []}
    for turn in range(rounds + 2):
        for name, values in times.items():
            if name == "shoal":
                spent = shoal.ask("experts", shape)["us"]
            else:
                spent = problem.time(name)
            if turn >= 2:
                values.append(spent)
    row = {"shape": shape, "rounds": rounds, "rows_per_expert": info["rows"]}
    for name, values in times.items():
        row[name + "_us"] = statistics.median(values)
        row[name + "_min_us"] = min(values)
    # Each turn's own ratio: a slow spell of the machine hits both sides of it.
    for name in ("shoal", "unbind", "grouped_mm"):
        row[name + "_over_dense"] = statistics.median(
            a / b for a, b in zip(times[name], times["dense"]))
    print(f"{shape:9} dense {row['dense_us'] / 1e3:8.1f} ms   over dense: "
          f"shoal {row['shoal_over_dense']:.3f}  unbind {row['unbind_over_dense']:.3f}  "
          f"grouped_mm {row['grouped_mm_over_dense']:.3f}", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    shoal = Shoal(options.program)
    rows = [measure(shoal, shape, options.rounds)
            for shape in ([options.shape] if options.shape else SHAPES)]
    shoal.close()
    if options.json:
        with open("/proc/cpuinfo") as cpuinfo:
            cpu = next((line.split(":")[1].strip() for line in cpuinfo if "model name" in line),
                       platform.processor())
        report = {"benchmark": "expert_bank_peer", "command": " ".join(sys.argv),
                  "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                  "hardware": {"cpu": cpu, "cores": os.cpu_count()}, "threads": 1,
                  "dtype": "float32", "torch": torch.__version__, "rows": rows}
        with open(options.json, "w") as file:
            json.dump(report, file, indent=2)


if __name__ == "__main__":
    main()
