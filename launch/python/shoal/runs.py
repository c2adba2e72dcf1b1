"""Reads the metrics of runs as columns."""
import json
import os

from .layers import Error


def runs(root):
    """Returns the runs below a folder, or the run in it, by name: columns of logged steps (`train`) and evaluations
    (`evaluate`), {"step": [...], "loss": [...], ...}, with None for missing values. The last row of a step counts;
    broken lines, such as an incomplete last one, are left out. Hidden folders are not searched."""
    if not os.path.isdir(root):
        raise Error(f"'{root}' is not a folder")
    found = {}
    for folder, below, files in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if "metrics.jsonl" in files:
            name = os.path.relpath(folder, root)
            found[os.path.basename(os.path.abspath(root)) if name == "." else name] = read_run(folder)
            below.clear()
    return found


def read_run(folder):
    kinds = {"train": {}, "evaluate": {}}
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = json.loads(line)
                kinds["evaluate" if record.pop("event", None) else "train"][int(record["step"])] = record
            except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
                continue
    tables = {kind: [rows[step] for step in sorted(rows)] for kind, rows in kinds.items()}
    names = {kind: dict.fromkeys(name for row in rows for name in row) for kind, rows in tables.items()}
    return {kind: {name: [row.get(name) for row in rows] for name in names[kind]} for kind, rows in tables.items()}
