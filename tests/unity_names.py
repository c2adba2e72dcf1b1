#!/usr/bin/env python3
"""Names that two files, compiled as one, both declare for themselves, with their lines, and pragmas
that would hold for the files behind.

Usage: tests/unity_names.py BUILD      one line per finding; exit 1 if there are any

The compiler reports two functions of one signature, after minutes. A call that finds another file's
overload it does not. Looked at are the groups of this build; another file more makes others.
"""
import collections
import json
import pathlib
import re
import sys

import cpp_text

NAMESPACE = re.compile(r"\bnamespace\s*([\w:]*)\s*$")
FUNCTION = re.compile(
    r"^(?!TEST|INSTANTIATE|using|struct|class|enum)[A-Za-z_][^;{}=(\n]*?[ &*>](\w+)\(", re.M)
CONSTANT = re.compile(
    r"^(?:static |inline )*(?:constexpr|const|static) [^;{}=(\n]*?[ &*>](\w+)(?:\[\w*\])*\s*[=;]", re.M)
MORE = re.compile(r", *(\w+)(?:\[\w*\])*\s*[=,;]")  # `constexpr int kA = 1, kB = 2;`
TYPE = re.compile(
    r"^(?:struct|class|union|enum(?: class)?) (\w+)(?: final)?\s*(?::[^;=]*)?;", re.M)
ALIAS = re.compile(r"^using (\w+) =([^;]*);", re.M)  # several may say the same
USING = re.compile(r"^using (?:\w*::)*(\w+);", re.M)
PRAGMA = re.compile(r"^#pragma GCC optimize", re.M)


def anonymous_parts(text):
    """{namespace: code}: what a file declares in the anonymous namespace of each; all else, the
    bodies of functions and types too, is spaces, so that lines keep their numbers."""
    code, scopes = cpp_text.blank(text), []  # a scope: the name of a namespace, "" if anonymous, else None
    nothing = re.sub(r"[^\n]", " ", code)
    kept, start = collections.defaultdict(lambda: nothing), 0

    def keep(end):
        if "" in scopes and None not in scopes:
            name = "::".join(filter(None, scopes))
            kept[name] = kept[name][:start] + code[start:end] + kept[name][end:]

    for brace in re.finditer(r"[{}]", code):
        keep(brace.start())
        if brace.group() == "{":
            namespace = NAMESPACE.search(code, start, brace.start())
            scopes.append(namespace[1] if namespace else None)
        elif scopes:
            scopes.pop()
        start = brace.end()
    return kept


def declared(text):
    """{(namespace, name): (line, meaning)} of a file's anonymous namespaces, where equal meanings do not
    conflict; {name: line} of `using`."""
    def line(code, match):
        return code.count("\n", 0, match.start(1)) + 1

    own = {}
    for namespace, code in anonymous_parts(text).items():
        for pattern in (FUNCTION, CONSTANT, TYPE, ALIAS):
            for match in pattern.finditer(code):
                meaning = " ".join(match[2].split()) if pattern is ALIAS else match
                own.setdefault((namespace, match[1]), (line(code, match), meaning))
        for first in CONSTANT.finditer(code):
            end = code.find(";", first.start()) + 1
            for match in MORE.finditer(code, first.end(1), end):
                own.setdefault((namespace, match[1]), (line(code, match), match))
    return own, {match[1]: line(text, match) for match in USING.finditer(text)}


def conflicts(texts):
    """{name: places}; `texts`: those of one unit, by file."""
    owners, users, meanings = (collections.defaultdict(set) for _ in range(3))
    for file, text in texts.items():
        own, used = declared(text)
        for declaration, (line, meaning) in own.items():
            owners[declaration].add((file, line))
            meanings[declaration].add(meaning)
        for name, line in used.items():
            users[name].add((file, line))
    found = collections.defaultdict(set)
    for declaration, places in owners.items():
        name = declaration[1]
        places = places | users[name]
        if len({file for file, _ in places}) > 1 and (len(meanings[declaration]) > 1 or users[name]):
            found[name] |= places
    found = {name: [f"{file}:{line}" for file, line in sorted(where)] for name, where in found.items()}
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
    assert conflicts({"a": own, "b": own}) == {"some": ["a:2", "b:2"]}
    assert conflicts({"a": own, "b": "using testing::some;\n"}) == {"some": ["a:2", "b:1"]}
    assert conflicts({"a": own, "b": "int some(int a);\n"}) == {}
    assert conflicts({"a": own, "b": "namespace other {\n" + own + "}\n"}) == {}
    later = ("namespace shoal {\nnamespace {\nstruct Pair {\n  int member(int b) {\n  }\n};\n"
             "int first(int a) {\n  const char* brace = \"}\";\nint hidden(a);\n}\n\n"
             "const int kOne = some(1), kMore = 2;\nconstexpr Pair kTwo[] = {{1}};\nusing Pairs = A<Pair>;\n"
             "int second(int a) {\n}\n}  // namespace\n"
             "int shared(int a) {\n}\nnamespace {\nint third(int a);\n}\n}  // namespace shoal\n")
    lines = {"Pair": 3, "first": 7, "kOne": 12, "kMore": 12, "kTwo": 13, "Pairs": 14, "second": 15, "third": 21}
    assert {name: line for (_, name), (line, _) in declared(later)[0].items()} == lines
    assert conflicts({"a": later, "b": own + later}).keys() == lines.keys() - {"Pairs"}
    assert conflicts({"a": later, "b": later.replace("A<", "B<")})["Pairs"] == ["a:14", "b:14"]
    pragma = '#pragma GCC optimize("O3")\n'
    assert conflicts({"a": pragma}) == {}
    assert conflicts({"a": pragma, "b": ""}) == {"#pragma GCC optimize": ["a"]}


if __name__ == "__main__":
    test()
    sys.exit(main())
