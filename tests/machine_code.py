#!/usr/bin/env python3
"""Checks what nvcc made of the kernels: no spills and no local memory, at most one 64-bit division, products
and sums fused where they may be and nowhere else, registers and shared memory within bounds.

Usage: tests/machine_code.py PLUGIN            one line per finding; exit 1 if there are any
       tests/machine_code.py PLUGIN --table    prints the counts of every kernel
PLUGIN: libshoal_cuda.so or a kernel's object file. Exit 69 if it or a tool is missing.
"""
import collections
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parent.parent
LISTING = ROOT / "cmake/ShoalCuda.cmake"
SKIPPED = 69
# Most registers of a thread, and bytes of static shared memory of a block, 1 KiB of the system's included.
DEFAULT_BOUNDS = (128, 12 << 10)
BOUNDS = {
    "models/hspmn/kernels/sparse_query_attention_cuda.cu": (168, 44 << 10),
    "moe/kernels/row_top_k_cuda.cu": (64, 4 << 10),  # blocks of 1,024 threads: 64 registers
    "moe/routing/capacity_cuda.cu": (64, 2 << 10),  # the counts take up to 47 KiB more
    "sparse/kernels/diagonals/diagonal_product_cuda.cu": (128, 33 << 10),
}
FATBIN = re.compile(r"^Fatbin \w+ code:\n=+\n(?:.+\n)*?identifier = (\S+)$", re.M)
USAGE = re.compile(r"Function (\w+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
ENTRY = re.compile(r"^(?:\.\w+ )*\.entry (\w+)\(.*?^\}", re.M | re.S)
FUNCTION = re.compile(r"^\s+Function : (\w+)$", re.M)
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?(\w+)", re.M)
DIVISION = re.compile(r"\b(?:div|rem)\.[su]64\b")
FUSIBLE = re.compile(r"\b(?:mul|add|sub)\.(?:ftz\.)?f(?:32|64)\b")  # no rounding of its own
FLOATING_POINT = re.compile(r"\b(?:mul|add|sub|fma)\.(?:\w+\.)*f(?:32|64)\b")
ROUNDED_PRODUCT = re.compile(r"\bmul\.rn\.(?:ftz\.)?f(?:32|64)\b")
EXPANDS_TO_FMA = re.compile(r"\b(?:fma|div|rcp|sqrt|ex2|lg2|call)\b[\w.]*")


class Kernel:
    """What the dumps say of a kernel; the largest values, if it was compiled for several chips."""

    def __init__(self, file):
        self.file, self.ptx, self.registers, self.shared, self.local = file, None, 0, 0, 0
        self.opcodes = collections.Counter()

    @property
    def divisions(self):
        return len(DIVISION.findall(self.ptx or ""))

    @property
    def fused(self):
        return sum(self.opcodes[name] for name in ("FFMA", "DFMA"))


def sections(dump, files):
    """Yields (source, text) of the plug-in's pieces, one for each source and chip."""
    heads = list(FATBIN.finditer(dump))
    for head, after in zip(heads, heads[1:] + [None]):
        source = next((file for file in files if head[1].endswith(file)), head[1])
        yield source, dump[head.end():after.start() if after else len(dump)]


def kernels_of(ptx, usage, sass, files):
    """Kernels by name, read from three dumps of cuobjdump."""
    kernels = {}
    for source, text in sections(usage, files):
        for name, registers, stack, shared, local in USAGE.findall(text):
            kernel = kernels.setdefault(name, Kernel(source))
            kernel.registers = max(kernel.registers, int(registers))
            kernel.shared = max(kernel.shared, int(shared))
            kernel.local = max(kernel.local, int(stack) + int(local))
    for _, text in sections(ptx, files):
        for entry in ENTRY.finditer(text):
            if entry[1] in kernels:
                kernels[entry[1]].ptx = entry[0]
    parts = FUNCTION.split(sass)
    for name, text in zip(parts[1::2], parts[2::2]):
        if name in kernels:
            kernels[name].opcodes.update(INSTRUCTION.findall(text))
    return kernels


def findings(kernels, unfused):
    if not kernels:
        yield "no kernels"
    fused_files = collections.Counter()
    for name, kernel in kernels.items():
        at = f"{kernel.file}: {name}"
        if kernel.ptx is None or not kernel.opcodes:
            yield f"{at}: no PTX or no machine code in the plug-in"
            continue
        if kernel.local or kernel.opcodes["LDL"] or kernel.opcodes["STL"]:
            yield f"{at}: spills or local memory, {kernel.local} bytes"
        if kernel.divisions > 1:
            yield f"{at}: {kernel.divisions} 64-bit divisions, at most 1"
        registers, shared = BOUNDS.get(kernel.file, DEFAULT_BOUNDS)
        if kernel.registers > registers:
            yield f"{at}: {kernel.registers} registers, at most {registers}"
        if kernel.shared > shared:
            yield f"{at}: {kernel.shared} bytes of shared memory, at most {shared}"
        if kernel.file not in unfused:
            if FLOATING_POINT.search(kernel.ptx):
                fused_files[kernel.file] += kernel.fused
            if ROUNDED_PRODUCT.search(kernel.ptx) and not FUSIBLE.search(kernel.ptx):
                yield f"{at}: compiled without contraction, and not in SHOAL_UNFUSED_KERNELS"
        elif FUSIBLE.search(kernel.ptx):
            yield f"{at}: compiled with contraction, in spite of SHOAL_UNFUSED_KERNELS"
        elif kernel.fused and not EXPANDS_TO_FMA.search(kernel.ptx):
            yield f"{at}: {kernel.fused} fused products in a kernel that must not fuse"
    yield from (f"{file}: no FFMA or DFMA" for file, count in fused_files.items() if count == 0)


def tool_path():
    """PATH, and where the toolkit and the wheels have cuobjdump and nvdisasm."""
    nvcc = shutil.which("nvcc")
    toolkits = [os.path.dirname(os.path.realpath(nvcc))] if nvcc else []
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    wheels = [folder for place in (sysconfig.get_path("purelib"), f"{cache}/shoal/torch-*")
              for folder in glob.glob(os.path.join(place, "nvidia/*/bin"))]
    return os.pathsep.join([os.environ.get("PATH", ""), *toolkits, "/usr/local/cuda/bin", *wheels])


def main(plugin, options):
    path = tool_path()
    missing = [tool for tool in ("cuobjdump", "nvdisasm") if not shutil.which(tool, path=path)]
    if missing or not os.path.isfile(plugin):
        print(f"skipped: no {plugin}: built without nvcc" if not missing else
              f"skipped: no {' and no '.join(missing)}: run launch/setup")
        return SKIPPED
    folders = ("runtime", "parallel", "moe", "sparse", "models", "launch")
    files = [str(file.relative_to(ROOT)) for folder in folders for file in (ROOT / folder).rglob("*.cu")]
    unfused = re.search(r"set\(SHOAL_UNFUSED_KERNELS([^)]*)\)", LISTING.read_text())[1].split()
    ptx, usage, sass = (subprocess.run([shutil.which("cuobjdump", path=path), option, plugin], check=True, text=True,
                                       stdout=subprocess.PIPE, env={**os.environ, "PATH": path}).stdout
                        for option in ("-ptx", "-res-usage", "-sass"))
    kernels = kernels_of(ptx, usage, sass, files)
    if options == ["--table"]:
        for name, kernel in sorted(kernels.items(), key=lambda item: (item[1].file, item[0])):
            print(kernel.file, name, f"{kernel.divisions} divisions", f"{kernel.registers} registers",
                  f"{kernel.shared} bytes shared", f"{kernel.fused} fused")
        return 0
    found = list(findings(kernels, unfused))
    print("\n".join(found + [f"machine_code: {len(kernels)} kernels, {len(found)} findings"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
