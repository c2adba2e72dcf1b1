"""What rows have said, as one summary.json and one summary.md, with their logs and JSON in two archives."""
import collections
import json
import os
import re
import shutil
import subprocess
import tarfile

import rows

LEFT_OUT = "left out"
TIMEOUT = "TIMEOUT"
MOST_LOG_BYTES = 1 << 20
LAST_LINES = 12
NO_TEST = "this build has no test of that name"
RATIOS = ("over_shoal", "over_sparse", "sparse_over_dense", "all_over_dense", "ratio")


def replace(file, text):
    """Writes a file as a whole: whoever reads it meanwhile gets the old one."""
    new = file.with_name(file.name + ".new")
    new.write_text(text)
    os.replace(new, file)


def tests(text):
    """Tests that passed, by suite; skipped ones; those that failed or have no result; the one in which the program
    ended, with the names of all that had a good end before."""
    begun = re.findall(r"^\[ RUN      \] (\S+)", text, re.M)
    passed = set(re.findall(r"^\[       OK \] (\S+)", text, re.M))
    skipped = set(re.findall(r"^\[  SKIPPED \] (\S+)", text, re.M)) & set(begun)
    ended = [] if re.search(r"^\[==========\] .* ran\.", text, re.M) else begun[-1:]
    return {"passed": collections.Counter(test.split(".")[0] for test in sorted(passed)), "skipped": sorted(skipped),
            "not_passed": sorted(set(begun) - passed - skipped), "ended_in": ended,
            "done_before": sorted(passed | skipped) if ended else []}


def together(counts):
    """The tests of several programs as those of one."""
    return {key: sum((count[key] for count in counts), type(counts[0][key])()) for key in counts[0]}


def has_no_test(text):
    return "[==========] Running 0 tests" in text and "[ RUN      ]" not in text


def listed_tests(text):
    """The names in what --gtest_list_tests prints."""
    names, suite = [], ""
    for line_of in text.splitlines():
        word = line_of.split("#")[0].strip()
        if line_of.startswith("  "):
            names.append(suite + word)
        elif word.endswith("."):
            suite = word
    return names


def ratios(json_rows):
    """The smallest and the largest ratio of each contender to the first."""
    found = collections.defaultdict(list)
    for row in json_rows:
        for key in set(RATIOS) & row.keys():
            found[row.get("contender") or row.get("name") or key].append(row[key])
        for name, value in row.items():
            if isinstance(value, dict) and "over_first" in value:
                found[name].append(value["over_first"])
    return {name: [min(values), max(values)] for name, values in sorted(found.items()) if set(values) != {1}}


def last_lines(text, count=LAST_LINES):
    return [line[:400] for line in text.splitlines() if line.strip()][-count:]


def causes(text, count=LAST_LINES):
    """What a command says of its failure: of tests the words of those that failed, otherwise the last lines."""
    words, inside = [], False
    for line_of in last_lines(text, len(text)):
        if line_of.startswith(("[ RUN ", "[       OK", "[  FAILED", "[  SKIPPED")):
            inside = line_of.startswith("[ RUN ")
        elif inside:
            words.append(line_of)
    failed = re.search(r"^\[  FAILED  \]", text, re.M)
    return words[:count] if words and failed else last_lines(text, count)


def nccl_ranks(text):
    """How many ranks of one process NCCL had on the GPU, by its version in what `shoal doctor` prints."""
    version = re.search(r"nccl\D*(\d+)\.(\d+)[.\d]*", text, re.I)
    if not version:
        return "NCCL of an unknown version"
    shares = (int(version[1]), int(version[2])) >= (2, 30)
    ranks = "two ranks on one GPU" if shares else "one rank, two on one GPU need 2.30"
    return f"NCCL {version[1]}.{version[2]}: {ranks}"


def describe(row, statuses, logs, results):
    """The record of a row whose commands have ended with `statuses`."""
    texts = {part: logs[part].read_text(errors="replace") for part in statuses}
    if all(has_no_test(text) for text in texts.values()):
        return {"status": LEFT_OUT, "why": NO_TEST}
    for part in statuses:
        if statuses[part] == "ok" and has_no_test(texts[part]):
            statuses, texts = {**statuses, part: "FAILED"}, {**texts, part: NO_TEST}
    failed = [part for part, status in statuses.items() if status != "ok"]
    record = {"status": statuses[failed[0]] if failed else "ok"}
    if failed and failed[0]:
        record["failed_part"] = failed[0]
    text = "\n".join(texts.values())
    counts = {part: tests(texts[part]) for part in texts if "[ RUN      ]" in texts[part]}
    if counts:
        record["tests"] = together(list(counts.values()))
    if row.at_once:
        record["parts"] = {part: {"status": status, "tests": counts.get(part)} for part, status in statuses.items()}
    if row.check and not failed:
        try:
            record.update(row.check())
        except Exception as error:  # the other rows go on
            record["status"] = "FAILED"
            texts = {"": str(error) if isinstance(error, rows.Failure) else repr(error)}
            failed = [""]
    if row.name == "works":
        record["ranks"] = nccl_ranks(text)
    file = results / f"{row.name}.json"
    if not failed and file.exists():
        try:
            record["ratios"] = ratios(json.loads(file.read_text()).get("rows", []))
        except Exception as error:
            record.update(status="FAILED", last_lines=[f"{file.name}: {error!r}"])
            return record
    record["last_lines"] = [word for part in failed[:3] for word in causes(texts[part])] or last_lines(text)
    if row.quotes and not failed:
        record["said"] = said_by_tests(text)
    return record


def said_by_tests(text):
    """What tests print besides their own marks, or what else a command printed."""
    noise = re.compile(r"\[[ =\-A-Z]{10}\]|Running main|Note: |\d+ FAILED TEST|$")
    return [line[:200] for line in text.splitlines() if not noise.match(line)][-40:]


def cause_in_short(lines):
    """The first line that is more than a place in a source."""
    return next((line_of for line_of in lines if not line_of.endswith(": Failure")), "no words")


def counted(counts):
    """How many of some tests passed, in words."""
    words = [f"{sum(counts['passed'].values())} passed", f"{len(counts['not_passed'])} failed"]
    words += [f"{len(counts['skipped'])} skipped"] if counts["skipped"] else []
    return ", ".join(words + [f"ended in {test}" for test in counts["ended_in"]])


def said(record):
    """What the record says, in a line."""
    if "why" in record:
        return record["why"]
    parts = [f"in {record['failed_part']}"] if "failed_part" in record else []
    if "ranks" in record:
        parts.append(record["ranks"] if record["status"] == "ok" else cause_in_short(record["last_lines"]))
    if "parts" in record:
        parts += [f"{name} {part['status']}" + (f" ({counted(part['tests'])})" if part["tests"] else "")
                  for name, part in record["parts"].items()]
    elif "tests" in record:
        parts.append(counted(record["tests"]))
    if "losses_apart" in record:
        parts.append(f"losses apart by {record['losses_apart']:.1e} in {record['steps']} steps")
    parts += [f"{name} {least:.2f}-{most:.2f}" for name, (least, most) in record.get("ratios", {}).items()]
    if not parts and record["status"] != "ok":
        parts = record["last_lines"][-1:]
    return ", ".join(parts)


def line(record):
    return f"{record['row']:<34.60} {record['status']:<10} {record['seconds']:6.1f} s  {said(record)[:160]}".rstrip()


def totals(records):
    counts = collections.Counter(record["status"].split(" ")[0] if record["status"] != LEFT_OUT else LEFT_OUT
                                 for record in records)
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def first_line(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines else f"exit code {done.returncode}"


def facts(places):
    """The machine and the programs."""
    query = "name,memory.total,driver_version,compute_mode,clocks.max.sm,clocks.max.mem,power.limit"
    smi = shutil.which("nvidia-smi")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]  # nvidia-smi ignores it
    one = ["-i", visible] if visible else []
    return {"gpu": first_line([smi, *one, "--format=csv,noheader", f"--query-gpu={query}"]) if smi else "no nvidia-smi",
            "cores": os.cpu_count(), "programs": first_line([str(places.build / "shoal"), "--version"]),
            "python": places.python, "warning": os.environ.get("SHOAL_RUN_WARNING", "")}


def markdown(records, machine):
    text = ["# One GPU", "", *(f"- {name}: {value}" for name, value in machine.items() if value), "",
            totals(records), "", "| row | status | s | |", "|---|---|---|---|"]
    cell = str.maketrans({"|": "\\|", "\n": " "})
    text += [f"| {record['row']} | {record['status']} | {record['seconds']} | {said(record).translate(cell)} |"
             for record in records]
    for record in records:
        bad = record["status"] not in ("ok", LEFT_OUT)
        if not bad and not record.get("said"):
            continue
        text += ["", f"## {record['row']}: {record['status']}"]
        if record.get("tests", {}).get("not_passed"):
            text += ["", "Not passed: " + ", ".join(f"`{test}`" for test in record["tests"]["not_passed"])]
        text += ["", "```", *(record["last_lines"] if bad else record["said"]), "```"]
    return "\n".join(text) + "\n"


def pack(file, members, results):
    new = file.with_name(file.name + ".new")
    with tarfile.open(new, "w:gz") as archive:
        for member in members:
            archive.add(member, member.relative_to(results))
    os.replace(new, file)


def write(records, machine, results, out):
    """Writes the summaries and archives anew."""
    replace(out / "summary.json", json.dumps({"machine": machine, "rows": records}, indent=1) + "\n")
    replace(out / "summary.md", markdown(records, machine))
    for log in results.glob("*.log"):
        if log.stat().st_size > MOST_LOG_BYTES:
            log.write_bytes(log.read_bytes()[-MOST_LOG_BYTES:])
    pack(out / "logs.tar.gz", [log for log in sorted(results.glob("*.log")) if log.stat().st_size > 0], results)
    curves = [*results.glob("curve_*/c*/metrics.jsonl")]
    pack(out / "json.tar.gz", sorted([*results.glob("*.json"), *curves]), results)
