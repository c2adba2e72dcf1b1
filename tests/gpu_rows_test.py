#!/usr/bin/env python3
"""benchmarks/gpu/run over stand-ins of programs: what fails leaves its last output, and the others go on."""
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
from unittest import mock

RUN = pathlib.Path(__file__).resolve().parent.parent / "benchmarks/gpu/run"
sys.path[:0] = [str(RUN.parent), str(RUN.parent.parent)]
import compare_runs
import report
import rows as gpu_rows

PASSES = r'''#!/bin/sh
printf '[ RUN      ] LayerGpu.Works\nsaid by the test\n[       OK ] LayerGpu.Works (3 ms)\n[==========] 1 test ran.\n'
'''
FAILS = r'''#!/bin/sh
printf '[ RUN      ] LayerGpu.Fails\nno such GPU\n[  FAILED  ] LayerGpu.Fails (3 ms)\n[==========] 1 test ran.\n'
exit 1
'''
CRASHES = r'''#!/bin/sh
case "$*" in *list_tests*) printf 'LayerGpu.\n  Early\n  Crashes\n  Follows\n'; exit ;; esac
printf '[ RUN      ] LayerGpu.Early\n[       OK ] LayerGpu.Early (3 ms)\n'
head -c 2000000 /dev/zero | tr '\0' x  # logs are cut
printf '\n[ RUN      ] LayerGpu.Crashes\n'
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

    def run_rows(self, *arguments, seconds=60, run=RUN, out="results", **variables):
        out = pathlib.Path(self.folder.name) / out
        environment = {**os.environ, "BUILD": str(self.build), "CIFAR10": "", "WIKITEXT2": "", **variables}
        done = subprocess.run(["bash", run, out, str(seconds), *arguments], env=environment, capture_output=True,
                              text=True, cwd=self.folder.name)
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
        self.assertIn("plug-in FAILED 1 (0 passed, 1 failed), kernels ok (1 passed, 0 failed)", self.page)
        self.assertIn("EVEN_WITHOUT_GPU=1", done.stdout)
        self.assertEqual(done.returncode, 1)
        _, rows = self.run_rows("tests_moe", EVEN_WITHOUT_GPU="1")
        self.assertEqual(rows["tests_moe"]["status"], "ok")

    def test_the_other_rows_are_tried_if_the_plug_in_works(self):
        self.program("shoal", "#!/bin/sh\nexit 3\n")
        self.program("tests_moe", "#!/bin/sh\necho '[==========] Running 0 tests from 0 test suites.'\n")
        _, rows = self.run_rows("tests_moe", "tests_sparse")
        self.assertEqual(rows["works"]["failed_part"], "doctor")
        self.assertEqual(rows["works"]["parts"]["kernels"]["status"], "FAILED")
        self.assertIn(report.NO_TEST, rows["works"]["last_lines"])
        self.assertEqual((rows["tests_moe"]["status"], rows["tests_sparse"]["status"]), (report.LEFT_OUT, "ok"))

    def test_a_skipped_test_has_not_failed(self):
        counts = report.tests("[ RUN      ] A.B\n[  SKIPPED ] A.B (0 ms)\n[==========] 1 test ran.\n"
                              "[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] A.B\n")
        self.assertEqual((counts["skipped"], counts["not_passed"]), (["A.B"], []))

    def test_a_test_that_did_not_pass_runs_again_by_itself(self):
        self.program("tests_sparse", FAILS)
        self.program("tests_models", CRASHES)
        _, rows = self.run_rows("tests_sparse", "tests_models")
        self.assertEqual(rows["tests_models"]["tests"]["ended_in"], ["LayerGpu.Crashes"])
        self.assertLessEqual({"again_LayerGpu.Fails", "again_LayerGpu.Crashes", "again_LayerGpu.Follows"}, set(rows))
        self.assertNotIn("again_LayerGpu.Early", rows)
        self.program("tests_sparse", PASSES)
        self.program("tests_models", PASSES)
        _, rows = self.run_rows("tests_sparse", "tests_models")
        self.assertEqual({row["status"] for row in rows.values()}, {"ok"})

    def test_rows_end_at_their_limit_and_do_not_start_without_time(self):
        _, rows = self.run_rows("slow=sleep 60", "late=true", seconds=20)  # 8 more than a row needs to start
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

    def test_losses_are_finite_and_no_check_ends_the_run(self):
        folder = pathlib.Path(self.folder.name)
        for device, losses in (("cpu", "12"), ("cuda", "1N")):
            (folder / device).mkdir()
            lines = [json.dumps({"loss": None if loss == "N" else float(loss)}) for loss in losses]
            (folder / device / "metrics.jsonl").write_text("\n".join(lines))
        with self.assertRaisesRegex(gpu_rows.Failure, "cuda: the loss of step 2 is None"):
            gpu_rows.losses_apart(folder, 1e-3)
        (folder / "bad.log").touch()
        row = gpu_rows.Row("bad", 9, {"": ["true"]}, check=lambda: 1 / 0)
        record = report.describe(row, {"": "ok"}, {"": folder / "bad.log"}, folder)
        self.assertEqual((record["status"], record["last_lines"]), ("FAILED", ["ZeroDivisionError('division by zero')"]))

    def test_files_of_peers_lie_in_memory_where_there_is_enough(self):
        with mock.patch("shutil.disk_usage") as usage, mock.patch("pathlib.Path.is_dir", return_value=True):
            usage.return_value.free = 2 * gpu_rows.PEER_BYTES
            self.assertEqual(gpu_rows.memory_for(2 * gpu_rows.PEER_BYTES), {"TMPDIR": "/dev/shm"})
            self.assertEqual(gpu_rows.memory_for(3 * gpu_rows.PEER_BYTES), {})

    def test_names_the_gpu_that_programs_see(self):
        self.program("nvidia-smi", '#!/bin/sh\necho "$@"\n')
        with mock.patch.dict(os.environ, PATH=f"{self.build}:{os.environ['PATH']}", CUDA_VISIBLE_DEVICES="3,1"):
            places = gpu_rows.Places(self.build, self.build, sys.executable)
            self.assertTrue(report.facts(places)["gpu"].startswith("-i 3 "))

    def test_a_bundle_starts_one_rank_without_the_machines_mpi(self):
        with mock.patch("shutil.which", return_value="/usr/bin/mpirun"), \
                mock.patch.dict(os.environ, SHOAL_PROGRAM="shoal"):
            self.assertEqual(compare_runs.launcher("1")[1:], ["-n", "1"])
            with mock.patch.object(compare_runs, "HERE", self.build):
                self.assertEqual(compare_runs.launcher("1"), ["shoal"])

    def test_paths_may_be_relative(self):
        folder = pathlib.Path(self.folder.name)
        (folder / "data").mkdir()
        (folder / "python").symlink_to(sys.executable)
        done, rows = self.run_rows("data=echo $CIFAR10", PYTHON="./python", CIFAR10="data", BUILD="build")
        self.assertEqual(rows["data"]["said"], [str(folder / "data")], done.stderr)
        self.assertEqual(json.loads((folder / "results/summary.json").read_text())["machine"]["python"],
                         str(folder / "python"))

    def test_another_folder_has_no_rows_of_earlier_runs_of_a_bundle(self):
        folder = pathlib.Path(self.folder.name)
        for path in ("bundle", "torch", "tmp"):
            (folder / path).mkdir()
        for path in ("torch/__init__.py", "torch/version.py"):
            (folder / path).touch()
        (self.build / "lib").mkdir()
        with tarfile.open(folder / "bundle/bundle.tar.xz", "w:xz") as bundle:
            bundle.add(self.build, "build")
            bundle.add(RUN.parent, "benchmarks/gpu")
            bundle.add(folder / "torch/version.py", "torch_version.py")
        run = folder / "bundle/run"
        run.write_text(RUN.read_text())
        for out in ("one", "other"):
            _, rows = self.run_rows(f"{out}=true", run=run, out=out, TMPDIR=str(folder / "tmp"),
                                    PYTHONPATH=str(folder))
            self.assertEqual(list(rows), ["works", out])

    def test_says_what_it_needs(self):
        for variables, word in (({"PYTHON": "no_such_python"}, "PYTHON"), ({"BUILD": "/none"}, "BUILD"),
                                ({"BUILD": str(self.build), "CIFAR10": "/none"}, "CIFAR10")):
            done = subprocess.run(["bash", RUN, self.folder.name + "/results"], env={**os.environ, **variables},
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)
        done = subprocess.run(["bash", RUN.with_name("pack"), self.build, self.folder.name],
                              env={**os.environ, "CIFAR10": ""}, capture_output=True, text=True)
        self.assertIn("CIFAR10 is not set", done.stderr)


if __name__ == "__main__":
    unittest.main()
