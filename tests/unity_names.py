#!/usr/bin/env python3
"""Names that two files, compiled as one, both declare for themselves.

Usage: tests/unity_names.py BUILD      prints NAME: FILE, FILE; exit 1 if there are any

The compiler reports those of one signature. A call that finds another file's overload it does not.
"""
import collections
import pathlib
import re
import sys

NAMESPACE = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.S | re.M)
FUNCTION = re.compile(r"^(?!TEST|INSTANTIATE|using|struct|class|enum)[A-Za-z_][\w:<>,&*\[\] ]*?[ &*>](\w+)\(", re.M)
USING = re.compile(r"^using (?:\w*::)*(\w+);", re.M)


def declared(text):
    """Functions of a file's anonymous namespaces, and all names that it uses or declares."""
    own = {name for part in NAMESPACE.findall(text) for name in FUNCTION.findall(part)}
    return own, own | set(USING.findall(text))


def conflicts(texts):
    """{name: files}; `texts`: those of one unit, by file."""
    owners, users = collections.defaultdict(set), collections.defaultdict(set)
    for file, text in texts.items():
        own, used = declared(text)
        for name in own:
            owners[name].add(file)
        for name in used:
            users[name].add(file)
    return {name: sorted(users[name]) for name in owners if len(users[name]) > 1}


def main():
    build = pathlib.Path(sys.argv[1])
    found = 0
    units = sorted(build.glob("CMakeFiles/*/Unity/unity_*.cxx"))
    for unit in units:
        files = [pathlib.Path(file) for file in re.findall(r'#include "([^"]+)"', unit.read_text())]
        for name, where in sorted(conflicts({file.name: file.read_text() for file in files}).items()):
            print(f"{name}: {', '.join(where)} ({unit.relative_to(build)}); rename one")
            found += 1
    print(f"unity_names: {len(units)} units, {found} findings")
    return found > 0


def test():
    own = "namespace {\nint some(int a) {\n}\n}  // namespace\n"
    assert conflicts({"a": own, "b": own}) == {"some": ["a", "b"]}
    assert conflicts({"a": own, "b": "using testing::some;\n"}) == {"some": ["a", "b"]}
    assert conflicts({"a": own, "b": "int some(int a);\n"}) == {}


if __name__ == "__main__":
    test()
    sys.exit(main())
