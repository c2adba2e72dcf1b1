#!/usr/bin/env python3
"""Runs clang-tidy with .clang-tidy on the files given, or on those that differ from main.

Usage: tests/tidy.py [FILE...]      needs clang-tidy and a configured build/release

The build's own commands name a precompiled header of GCC and a warning of GCC: both are left out.
"""
import json
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
BUILD = os.path.join(ROOT, "build", "release")


def adapt(command):
    words = command.split()
    launcher = [i for i, word in enumerate(words) if os.path.basename(word) == "ccache"]
    words = words[launcher[0] + 1:] if launcher else words
    kept, skip = [], False
    for i, word in enumerate(words):
        if skip:
            skip = False
        elif word == "-include" and words[i + 1].endswith("cmake_pch.hxx"):
            skip = True
        elif word not in ("-Winvalid-pch", "-Wno-restrict"):
            kept.append(word)
    return " ".join(kept)


def sources_of(entry):
    """The entries of the sources that a unity file includes, or of the source itself."""
    command, unit = adapt(entry["command"]), entry["file"]
    if "/Unity/unity_" not in unit:
        return [{**entry, "command": command}] if unit.endswith(".cpp") else []
    with open(unit, encoding="utf-8") as file:
        sources = re.findall(r'#include "([^"]+)"', file.read())
    return [{**entry, "command": command.replace(unit, source), "file": source} for source in sources]


def main():
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    adapted = [one for entry in entries for one in sources_of(entry)]
    folder = os.path.join(BUILD, "tidy")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(adapted, file)
    names = sys.argv[1:] or subprocess.run(
        ["git", "diff", "--name-only", "--diff-filter=d", "main"], cwd=ROOT, text=True,
        capture_output=True, check=True).stdout.split()
    known = {os.path.relpath(e["file"], ROOT) for e in adapted}
    names = [n for n in (os.path.relpath(os.path.abspath(n), ROOT) for n in names) if n in known]
    if not names:
        print("tidy: no sources to look at")
        return 0
    return subprocess.run(["clang-tidy", "--quiet", "-p", folder, *names], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
