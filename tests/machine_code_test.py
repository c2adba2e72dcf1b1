#!/usr/bin/env python3
"""Feeds tests/machine_code.py dumps of good and bad kernels: each rule must find its mistake and nothing else."""
import unittest

import machine_code

FILES = ["moe/a_cuda.cu", "moe/b_cuda.cu"]
HEAD = "\nFatbin {} code:\n================\narch = sm_90\nidentifier = ../../{}\n"


def findings(file, ptx="mul.f32 %f1; fma.rn.f32 %f2;", sass=("FFMA",), registers=32, stack=0, shared=0):
    """Findings on one kernel of the file; moe/a_cuda.cu must not fuse."""
    ptx_dump = HEAD.format("ptx", file) + f".visible .entry kernel(\n.param .u64 p\n)\n{{\n{ptx}\n}}\n"
    head = HEAD.format("elf", file)
    usage = head + f" Function kernel:\n  REG:{registers} STACK:{stack} SHARED:{shared} LOCAL:0 CONSTANT[0]:8\n"
    lines = [f"        /*{16 * i:04x}*/    {'@!P0 ' * (i % 2)}{name} R1, R2 ;" for i, name in enumerate(sass)]
    sass_dump = head + "\n\t\tFunction : kernel\n" + "\n".join(lines) + "\n"
    kernels = machine_code.kernels_of(ptx_dump, usage, sass_dump, FILES)
    return [text.split(": ", 2)[-1] for text in machine_code.findings(kernels, FILES[:1])]


class MachineCode(unittest.TestCase):
    def expect(self, found, *parts):
        self.assertEqual(len(found), len(parts), found)
        for text, part in zip(found, parts):
            self.assertIn(part, text)

    def test_accepts_good_kernels(self):
        self.expect(findings("moe/b_cuda.cu"))
        self.expect(findings("moe/b_cuda.cu", "mul.rn.f32 %f1; mul.f32 %f2;"))  # as erff() has it
        self.expect(findings("moe/a_cuda.cu", "mul.rn.f32 %f1; add.rn.f32 %f2;", ["FMUL", "FADD"]))
        self.expect(findings("moe/a_cuda.cu", "ex2.approx.f32 %f1; fma.rn.f32 %f2;"))

    def test_finds_spills_and_local_memory(self):
        self.expect(findings("moe/b_cuda.cu", stack=8), "local memory, 8 bytes")
        self.expect(findings("moe/b_cuda.cu", sass=["FFMA", "LDL"]), "local memory")
        self.expect(findings("moe/b_cuda.cu", sass=["FFMA", "IADD3", "STL"]), "local memory")

    def test_counts_divisions(self):
        fma = "fma.rn.f32 %f2; "
        self.expect(findings("moe/b_cuda.cu", fma + "div.s64 %rd1; div.u32 %r1; rem.u32 %r1;"))
        self.expect(findings("moe/b_cuda.cu", fma + "div.s64 %rd1; rem.u64 %rd1;"), "2 64-bit divisions")

    def test_keeps_to_the_list_of_unfused_kernels(self):
        self.expect(findings("moe/b_cuda.cu", "mul.rn.f32 %f1;"), "without contraction")
        self.expect(findings("moe/a_cuda.cu", "mul.f32 %f1;"), "with contraction")
        self.expect(findings("moe/a_cuda.cu", "mul.rn.f32 %f1;"), "1 fused products")
        self.expect(findings("moe/b_cuda.cu", sass=["FMUL"]), "no FFMA")

    def test_bounds_registers_and_shared_memory(self):
        self.expect(findings("moe/b_cuda.cu", registers=129, shared=20_000), "129 registers", "20000 bytes")

    def test_needs_all_dumps(self):
        self.expect(findings("moe/b_cuda.cu", sass=[]), "no machine code")
        self.expect(list(machine_code.findings({}, [])), "no kernels")


if __name__ == "__main__":
    unittest.main()
