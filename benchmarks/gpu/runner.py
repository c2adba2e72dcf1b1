#!/usr/bin/env python3
"""Runs rows on one GPU within a time budget; a row that fails leaves its last output, and the others go on.

`run`, which finds Python and the programs, starts this:
    runner.py --build BUILD --work FOLDER --out FOLDER [--seconds N] [ROW...]
"""
import argparse
import concurrent.futures
import dataclasses
import fnmatch
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import report
import rows

LEAST_SECONDS = 12  # with less time no row starts
MOST_AGAIN_SECONDS = 100
MOST_BESIDE = 8


class Runner:
    def __init__(self, places, out, deadline):
        self.places, self.out, self.deadline = places, out, deadline
        self.lock = threading.Lock()
        self.records_file = places.results / "rows.json"
        self.records = json.loads(self.records_file.read_text()) if self.records_file.exists() else {}
        self.env = {**os.environ, "PATH": f"{places.build}:{places.build}/benchmarks:{os.environ['PATH']}"}

    def is_done(self, row):
        """True if an earlier call has run the row to its end or to its own limit."""
        return self.records.get(row.name, {"status": report.LEFT_OUT})["status"] != report.LEFT_OUT

    def run(self, row, deadline=None):
        """Runs the row and keeps its record."""
        deadline = min(deadline or self.deadline, self.deadline)
        record = {"row": row.name, "status": report.LEFT_OUT, "seconds": 0}
        if row.absent:
            record["why"] = row.absent
        elif deadline - time.time() < LEAST_SECONDS:
            record["why"] = "no time"
        else:
            record.update(self.run_parts(row, deadline))
        self.keep(record)

    def run_parts(self, row, deadline):
        start = time.time()
        end = min(start + row.limit, deadline)
        logs = {part: self.places.results / f"{row.name}{'.' + part if part else ''}.log" for part in row.parts}
        if row.at_once:
            with concurrent.futures.ThreadPoolExecutor(len(row.parts)) as pool:
                ended = list(pool.map(lambda part: self.run_command(row, part, logs[part], end), row.parts))
            statuses = dict(zip(row.parts, ended))
        else:
            statuses = {}
            for part in row.parts:
                statuses[part] = self.run_command(row, part, logs[part], end)
                if statuses[part] != "ok":
                    break
        record = report.describe(row, statuses, logs, self.places.results)
        record["seconds"] = round(time.time() - start, 1)
        if record["status"] == report.TIMEOUT and end == deadline:
            record = {**record, "status": report.LEFT_OUT, "why": "cut off by the end of the time"}
        return record

    def run_command(self, row, part, log, end):
        """Starts one command of a row, ends it at the time `end` at the latest, and returns how it ended."""
        command = [str(word) for word in row.parts[part]]
        with open(log, "wb") as output:
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                           env={**self.env, **row.env}, start_new_session=True)
            except OSError as error:
                output.write(f"{command[0]}: {error.strerror}\n".encode())
                return "FAILED 127"
            try:
                code = process.wait(max(0.0, end - time.time()))
            except subprocess.TimeoutExpired:
                return report.TIMEOUT
            finally:
                self.end(process)
        return "ok" if code == 0 else f"FAILED {code}"

    @staticmethod
    def end(process):
        """Ends what the command has left running."""
        for number, seconds in ((signal.SIGTERM, 3), (signal.SIGKILL, 10)):
            try:
                os.killpg(process.pid, number)
                process.wait(seconds)
            except ProcessLookupError:
                return
            except subprocess.TimeoutExpired:
                continue

    def keep(self, record):
        with self.lock:
            self.records.pop(record["row"], None)  # the order is that of the runs
            self.records[record["row"]] = record
            report.replace(self.records_file, json.dumps(self.records, indent=1))
            print(report.line(record), flush=True)

    def write(self):
        report.write(list(self.records.values()), self.facts(), self.places.results, self.out)

    def facts(self):
        if not hasattr(self, "known_facts"):
            self.known_facts = report.facts(self.places)
        return self.known_facts

    def run_beside(self, chosen, deadline=None):
        """Runs rows beside each other, in their order."""
        threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // MOST_BESIDE)), "OMP_WAIT_POLICY": "passive"}
        chosen = [dataclasses.replace(row, env={**threads, **row.env}) for row in chosen]
        with concurrent.futures.ThreadPoolExecutor(MOST_BESIDE) as pool:
            list(pool.map(lambda row: self.run(row, deadline), chosen))
        self.write()

    def not_passed(self, part):
        """Tests of a program that failed, or that it did not come to."""
        counts = self.records.get(f"tests_{part}", {}).get("tests")
        if counts is None:
            return []
        if not counts["ended_in"]:
            return counts["not_passed"]
        listed = subprocess.run([*self.places.tests(part), "--gtest_list_tests"], capture_output=True, text=True)
        return [test for test in report.listed_tests(listed.stdout) if test not in counts["done_before"]]

    def run_again(self):
        """Runs each test that did not pass by itself and kernel by kernel: a fault spoils what follows it in its
        process. Forgets how tests ended that pass now."""
        failed = [(part, test) for part in rows.TEST_PROGRAMS for test in self.not_passed(part)]
        again = [rows.Row(f"again_{test.replace('/', '-')}", 40, {"": self.places.tests(part, test)},
                          env={"CUDA_LAUNCH_BLOCKING": "1"}) for part, test in failed]
        names = {row.name for row in again}
        self.records = {name: record for name, record in self.records.items()
                        if name in names or not name.startswith("again_")}
        self.run_beside([row for row in again if not self.is_done(row)], time.time() + MOST_AGAIN_SECONDS)


def own_row(word):
    name, _, command = word.partition("=")
    return rows.Row(name, 300, {"": ["bash", "-c", command]}, quotes=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("build", "work", "out"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=540)
    parser.add_argument("--even-without-gpu", action="store_true")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    start = time.time()
    results = arguments.work.resolve()
    results.mkdir(parents=True, exist_ok=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    places = rows.Places(build=arguments.build.resolve(), results=results, python=sys.executable,
                         cifar10=os.environ.get("CIFAR10", ""), wikitext2=os.environ.get("WIKITEXT2", ""))
    runner = Runner(places, arguments.out, start + arguments.seconds)
    named = [word for word in arguments.rows if "=" not in word]

    def chosen(known):
        """The rows that the command names, or else those that no earlier call has run."""
        if arguments.rows:
            return [row for row in known if any(fnmatch.fnmatchcase(row.name, word) for word in named)]
        return [row for row in known if not runner.is_done(row)]

    first, beside, alone = rows.first_row(places), rows.rows_beside(places), rows.rows_alone(places)
    known = [row.name for row in beside + alone]
    for word in named:
        if not any(fnmatch.fnmatchcase(name, word) for name in known):
            sys.exit(f"run: no row is called '{word}'; there are {' '.join(known)}, and NAME=COMMAND")
    runner.run(first)
    runner.write()
    plugin = runner.records[first.name].get("parts", {}).get("plug-in", {"status": "ok"})
    if plugin["status"].startswith("FAILED") and not arguments.even_without_gpu:
        print(f"run: the plug-in's test failed, nothing else is tried; {arguments.out}/summary.md says why, and "
              "EVEN_WITHOUT_GPU=1 runs the other rows")
        return 1
    for word in arguments.rows:
        if "=" in word:
            runner.run(own_row(word))
    runner.run_beside(chosen(beside))
    runner.run_again()
    for row in chosen(alone):
        runner.run(row)
        runner.write()
    runner.write()
    print(report.totals(runner.records.values()))
    return 0 if all(record["status"] in ("ok", report.LEFT_OUT) for record in runner.records.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
