#!/usr/bin/env python3
"""What README.md and the pages of docs/ promise: commands, options, links.

Usage: tests/documents.py commands FILE...          the commands of fenced blocks without a language
                                                    or in sh, as FILE:LINE<TAB>COMMAND
       tests/documents.py links FILE...             links, anchors and recipes that are not there
       tests/documents.py words MOST FILE...        pages of more than MOST words
       tests/documents.py options PROGRAM FILE...   commands and options that `PROGRAM --help` lacks
The last three print one line per finding, and exit 1 if there is any.
"""
import glob
import os
import re
import subprocess
import sys

FENCE = re.compile(r"^```(\S*)\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
RECIPE = re.compile(r"\bconfigs/[\w/{}*,.]*\.yaml|\bconfigs/[\w/]+/")
LOOP = re.compile(r"^for .*?^done$", re.M | re.S)
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))


def one_line(loop):
    """A loop with its lines ended by `;`, but behind `do`, and continued by backslashes."""
    ended = re.sub(r"(?<!\bdo)(?<!\\)\n", ";\n", loop.group())
    return re.sub(r"(?<!\\)\n", "\\\\\n", ended)


def read(name):
    with open(name, encoding="utf-8") as file:
        return file.read()


def commands(name):
    """(line, command) of the fenced blocks; where lines begin with `$ `, those alone are commands.
    A shell loop, `for … done` at the margin, is one command."""
    text = read(name)
    for match in FENCE.finditer(text):
        if match.group(1) not in ("", "sh"):
            continue
        first = text.count("\n", 0, match.start(2)) + 1
        body = LOOP.sub(one_line, match.group(2)).replace("\\\n", "\0\n")  # keeps line numbers
        has_prompt = re.search(r"^\$ ", body, re.M)
        command, start = "", 0
        for number, line in enumerate(body.split("\n"), first):
            if has_prompt:
                if not line.startswith("$ "):
                    continue
                line = line[2:]
            if not command:
                start = number
            command += line.replace("\0", " ")
            if line.endswith("\0"):
                continue
            if command.strip() and not command.lstrip().startswith("#"):
                yield start, re.sub(r"\s+# .*$", "", command).strip()
            command = ""


def anchor(heading):
    """GitHub's: lower case, spaces to hyphens, all else but letters, digits, _ and - dropped."""
    text = re.sub(r"[`*]", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(name):
    text = FENCE.sub("", read(name))
    return {anchor(match.group(1)) for match in re.finditer(r"^#+ (.*)$", text, re.M)}


def expand(pattern):
    """`a{b,c}` as ab and ac."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if not match:
        return [pattern]
    return [one for part in match.group(1).split(",")
            for one in expand(pattern[:match.start()] + part + pattern[match.end():])]


def check_links(names):
    for name in names:
        text = read(name)
        for match in LINK.finditer(text):
            target, _, part = match.group(1).partition("#")
            line = text.count("\n", 0, match.start()) + 1
            if target.startswith(("http:", "https:")):
                continue
            path = os.path.join(os.path.dirname(name), target) if target else name
            if not os.path.exists(path):
                yield f"{name}:{line}: {target} is not there"
            elif part and part not in anchors(path):
                yield f"{name}:{line}: {path} has no heading #{part}"
        for match in RECIPE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            for one in expand(match.group()):
                if one != "configs/mine.yaml" and not glob.glob(os.path.join(ROOT, one)):
                    yield f"{name}:{line}: {one} is not there"


def check_words(most, names):
    for name in names:
        words = len(read(name).split())
        if words > most:
            yield f"{name}:1: {words} words, at most {most}: the rest belongs on another page"


class Help:
    """The commands and options that a program's help names, asked for once each."""

    def __init__(self, program):
        self.program = program
        self.known = {}

    def of(self, path):
        if path not in self.known:
            run = subprocess.run([self.program, *path, "--help"], capture_output=True, text=True)
            text = run.stdout
            below = text.partition("\nSubcommands:\n")[2]
            names = set(re.findall(r"^  ([a-z]+) ", below, re.M))
            options = set(re.findall(r"(?<![\w-])(-[a-zA-Z]|--[a-z][\w-]*)", text))
            self.known[path] = names, options
        return self.known[path]


def check_options(program, names):
    """Inline commands, as `shoal ckpt verify|ls PATH` or `shoal data pack FOLDER --out DIR`."""
    help_of = Help(program)
    for name in names:
        text = FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), read(name))
        for match in CODE.finditer(text):
            words = match.group(1).replace("\\|", "|").split()
            if words[0] not in ("shoal", "build/release/shoal") or len(words) < 2:
                continue
            line = text.count("\n", 0, match.start()) + 1
            path = ()
            for word in words[1:]:
                choices = word.split("|")
                commands_here = help_of.of(path)[0]
                if not commands_here or not re.fullmatch(r"[a-z|]+", word):
                    break
                missing = [choice for choice in choices if choice not in commands_here]
                if missing:
                    yield f"{name}:{line}: unknown command {' '.join((*path, missing[0]))}"
                    break
                path += (choices[0],)
            for option in re.findall(r"(?<![\w-])(-[a-zA-Z]|--[a-z][\w-]*)(?![\w-])", match.group(1)):
                if option not in help_of.of(path)[1]:
                    yield f"{name}:{line}: shoal {' '.join(path)} has no option {option}"


def main():
    what, arguments = sys.argv[1], sys.argv[2:]
    if what == "commands":
        for name in arguments:
            for line, command in commands(name):
                print(f"{os.path.relpath(name, ROOT)}:{line}\t{command}")
        return 0
    findings = list(check_links(arguments) if what == "links" else
                    check_words(int(arguments[0]), arguments[1:]) if what == "words" else
                    check_options(arguments[0], arguments[1:]))
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
