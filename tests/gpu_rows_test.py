#!/usr/bin/env python3
"""benchmarks/gpu/run over stand-ins of programs: what fails leaves its last output, and the others go on."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parent.parent / "benchmarks/gpu/run"
PASSES = r'''#!/bin/sh
printf '[ RUN      ] LayerGpu.Works\nsaid by the test\n[       OK ] LayerGpu.Works (3 ms)\n[==========] 1 test ran.\n'
'''
FAILS = r'''#!/bin/sh
printf '[ RUN      ] LayerGpu.Fails\nno such GPU\n[  FAILED  ] LayerGpu.Fails (3 ms)\n[==========] 1 test ran.\n'
exit 1
'''
CRASHES = r'''#!/bin/sh
case "$*" in *list_tests*) printf 'LayerGpu.\n  Crashes\n  Follows\n'; exit ;; esac
printf '[ RUN      ] LayerGpu.Crashes\n'
kill -SEGV $$
'''


class GpuRowsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.build = pathlib.Path(self.folder.name) / "build"
        (self.build / "benchmarks").mkdir(parents=True)
        (self.build / "libshoal_cuda.so").touch()
        for part in ("runtime", "parallel", "moe", "sparse", "models", "launch"):
            self.program(f"tests_{part}", PASSES)
        self.program("shoal", "#!/bin/sh\necho 'ok nccl 2.28.9'\n")

    def tearDown(self):
        self.folder.cleanup()

    def program(self, name, text):
        (self.build / name).write_text(text)
        (self.build / name).chmod(0o755)

    def run_rows(self, *arguments, seconds=60, **variables):
        out = pathlib.Path(self.folder.name) / "results"
        environment = {**os.environ, "BUILD": str(self.build), "CIFAR10": "", "WIKITEXT2": "", **variables}
        done = subprocess.run(["bash", RUN, out, str(seconds), *arguments], env=environment, capture_output=True,
                              text=True)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        rows = json.loads((out / "summary.json").read_text())["rows"]
        self.page = (out / "summary.md").read_text()
        return done, {row["row"]: row for row in rows}

    def test_a_row_that_fails_leaves_its_last_output_and_the_others_go_on(self):
        done, rows = self.run_rows("bad=echo first; echo last words >&2; exit 3", "good=echo a | tr a b", "tests_moe")
        self.assertEqual({name: row["status"] for name, row in rows.items()},
                         {"works": "ok", "bad": "FAILED 3", "good": "ok", "tests_moe": "ok"})
        self.assertEqual(rows["bad"]["last_lines"], ["first", "last words"])
        self.assertIn("## bad: FAILED 3\n\n```\nfirst\nlast words\n```", self.page)
        self.assertEqual(rows["good"]["said"], ["b"])
        self.assertEqual(done.returncode, 1)

    def test_the_first_row_says_how_many_ranks_nccl_had(self):
        _, rows = self.run_rows("none=true")
        self.assertIn("2.28: one rank", rows["works"]["ranks"])
        self.program("shoal", "#!/bin/sh\necho 'ok nccl 2.30.1'\n")
        _, rows = self.run_rows("none=true")
        self.assertIn("2.30: two ranks", rows["works"]["ranks"])

    def test_nothing_else_is_tried_without_a_gpu(self):
        self.program("tests_runtime", FAILS)
        done, rows = self.run_rows()
        self.assertEqual(list(rows), ["works"])
        self.assertEqual(rows["works"]["failed_part"], "plug-in")
        self.assertEqual(rows["works"]["last_lines"], ["no such GPU"])
        self.assertIn("no such GPU", done.stdout)
        self.assertEqual(done.returncode, 1)
        _, rows = self.run_rows("tests_moe", EVEN_WITHOUT_GPU="1")
        self.assertEqual(rows["tests_moe"]["status"], "ok")

    def test_a_test_that_did_not_pass_runs_again_by_itself(self):
        self.program("tests_sparse", FAILS)
        self.program("tests_models", CRASHES)
        _, rows = self.run_rows("tests_sparse", "tests_models")
        self.assertEqual(rows["tests_models"]["tests"]["ended_in"], ["LayerGpu.Crashes"])
        self.assertLessEqual({"again_LayerGpu.Fails", "again_LayerGpu.Crashes", "again_LayerGpu.Follows"}, set(rows))

    def test_rows_end_at_their_limit_and_do_not_start_without_time(self):
        _, rows = self.run_rows("slow=sleep 60", "late=true", seconds=13)
        self.assertEqual(rows["slow"]["status"], "left out")
        self.assertIn("cut off", rows["slow"]["why"])
        self.assertEqual(rows["late"]["why"], "no time")

    def test_a_second_call_runs_what_is_left_or_named(self):
        _, rows = self.run_rows("tests_moe")
        self.program("tests_moe", FAILS)
        _, rows = self.run_rows("tests_sparse")
        self.assertEqual(rows["tests_moe"]["status"], "ok")
        _, rows = self.run_rows("tests_moe")
        self.assertEqual(rows["tests_moe"]["status"], "FAILED 1")

    def test_says_what_it_needs(self):
        for variables, word in (({"PYTHON": "no_such_python"}, "PYTHON"), ({"BUILD": "/none"}, "BUILD")):
            done = subprocess.run(["bash", RUN, self.folder.name + "/results"], env={**os.environ, **variables},
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)
        done = subprocess.run(["bash", RUN.with_name("pack"), self.build, self.folder.name],
                              env={**os.environ, "CIFAR10": ""}, capture_output=True, text=True)
        self.assertIn("CIFAR10 is not set", done.stderr)


if __name__ == "__main__":
    unittest.main()
