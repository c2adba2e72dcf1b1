#!/usr/bin/env python3
"""Names that two files, compiled as one, both declare for themselves, and pragmas that would hold
for the files behind.

Usage: tests/unity_names.py BUILD      one line per finding; exit 1 if there are any

The compiler reports two functions of one signature. A call that finds another file's overload it
does not. Looked at are the groups of this build; another file more makes others.
"""
import collections
import json
import pathlib
import re
import sys

import lint

NAMESPACE = re.compile(r"\bnamespace\s*([\w:]*)\s*$")
FUNCTION = re.compile(
    r"^(?!TEST|INSTANTIATE|using|struct|class|enum)[A-Za-z_][^;{}=(\n]*?[ &*>](\w+)\(", re.M)
USING = re.compile(r"^using (?:\w*::)*(\w+);", re.M)
PRAGMA = re.compile(r"^#pragma GCC optimize", re.M)


def anonymous_part(text):
    """What a file declares in its anonymous namespaces, the bodies of functions and types left out."""
    code, scopes, kept = lint.blank(text), [], []  # a scope: "named", "anonymous" or "other"
    start = 0

    def keep(end):
        if "anonymous" in scopes and "other" not in scopes:
            kept.append(code[start:end])

    for brace in re.finditer(r"[{}]", code):
        keep(brace.start())
        if brace.group() == "{":
            namespace = NAMESPACE.search(code, start, brace.start())
            scopes.append("other" if not namespace else "named" if namespace[1] else "anonymous")
        elif scopes:
            scopes.pop()
        start = brace.end()
    return "".join(kept)


def declared(text):
    """Functions of a file's anonymous namespaces; these and the names that it takes by `using`."""
    own = set(FUNCTION.findall(anonymous_part(text)))
    return own, own | set(USING.findall(text))


def conflicts(texts):
    """{name: files}; `texts`: those of one unit, by file."""
    owners, users = set(), collections.defaultdict(set)
    for file, text in texts.items():
        own, used = declared(text)
        owners |= own
        for name in used:
            users[name].add(file)
    found = {name: sorted(users[name]) for name in owners if len(users[name]) > 1}
    if len(texts) > 1 and any(PRAGMA.search(text) for text in texts.values()):
        found["#pragma GCC optimize"] = sorted(file for file in texts if PRAGMA.search(texts[file]))
    return found


def main():
    build = pathlib.Path(sys.argv[1])
    commands = json.loads((build / "compile_commands.json").read_text())
    units = sorted(c["file"] for c in commands if "/Unity/unity_" in c["file"])
    found = 0
    for unit in map(pathlib.Path, units):
        files = [pathlib.Path(file) for file in re.findall(r'#include "([^"]+)"', unit.read_text())]
        for name, where in sorted(conflicts({str(f): f.read_text() for f in files}).items()):
            print(f"{name}: {', '.join(where)} are compiled as one ({unit})")
            found += 1
    print(f"unity_names: {len(units)} units, {found} findings")
    return found > 0 or not units


def test():
    own = "namespace {\nint some(int a) {\n}\n}  // namespace\n"
    assert conflicts({"a": own, "b": own}) == {"some": ["a", "b"]}
    assert conflicts({"a": own, "b": "using testing::some;\n"}) == {"some": ["a", "b"]}
    assert conflicts({"a": own, "b": "int some(int a);\n"}) == {}
    later = ("namespace shoal {\nnamespace {\nstruct Pair {\n  int member(int b) {\n  }\n};\n"
             "int first(int a) {\n  const char* brace = \"}\";\nint hidden(a);\n}\n\n"
             "const int kOne = some(1);\nint second(int a) {\n}\n}  // namespace\n"
             "int shared(int a) {\n}\nnamespace {\nint third(int a);\n}\n}  // namespace shoal\n")
    assert declared(later)[0] == {"first", "second", "third"}
    assert conflicts({"a": later, "b": own.replace("some", "second")}) == {"second": ["a", "b"]}
    pragma = '#pragma GCC optimize("O3")\n'
    assert conflicts({"a": pragma}) == {}
    assert conflicts({"a": pragma, "b": ""}) == {"#pragma GCC optimize": ["a"]}


if __name__ == "__main__":
    test()
    sys.exit(main())
