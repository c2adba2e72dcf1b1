#!/usr/bin/env python3
"""Checks that the sources keep to docs/style.md: format, sizes, include order, doc blocks, forbidden
calls; and that the pages on the code name only files and names that exist.

Usage: tests/lint.py [ROOT]                prints FILE:LINE: what, one line per finding; exit 1 if any
       tests/lint.py --figures [ROOT]      prints sizes and counts of the product's folders
"""
import collections
import functools
import graphlib
import os
import re
import shutil
import subprocess
import sys

from cpp_text import blank, functions, parameters

FOLDERS = ["runtime", "parallel", "moe", "sparse", "models", "launch"]
MAY_INCLUDE = {
    "runtime": {"runtime"},
    "parallel": {"runtime", "parallel"},
    "moe": {"runtime", "parallel", "moe"},
    "sparse": {"runtime", "parallel", "sparse"},
    "models": {"runtime", "parallel", "moe", "sparse", "models"},
    "launch": set(FOLDERS),
    "tests": set(FOLDERS) | {"tests"},
    "benchmarks": set(FOLDERS) | {"benchmarks"},
    "docs": set(FOLDERS),  # examples
    "cmake": set(),  # the precompiled header
}
# The rooms of a folder; a file includes its own room and those to its left. "" is the folder itself.
ROOMS = {
    "runtime": ["base", "files", "records", "yaml", "options", "device", "random", "kernels", "products",
                "module", "text", "data", "data/loader", "data/transforms", "data/images", "data/shards",
                "data/sequences", "optim"],
    "parallel": ["comm", "nccl", "gradients", "checkpoint"],
    "moe": ["kernels", "routing", "routers", "losses", "exchange", "experts", "", "nexus/kernels", "nexus"],
    "sparse": ["patterns", "grow_rules", "permutations", "kernels", "kernels/rows", "kernels/blocks",
               "kernels/diagonals", "layers", "training", ""],
    "models": ["kernels", "blocks", "vision", "decoder", "hspmn/kernels", "hspmn",
               "attention_experts/kernels", "attention_experts", "moco", "", "backbones", "tasks", "formats"],
    "launch": ["recipe", "job", "machine", "pages", "runs", "report", "data", "model", "weights", "step",
               "check", "evaluate", "train", "predict", "convert", "maps", "inspect", "new_recipe",
               "command_line", ""],
}
# The rooms of routers, sources, backbones and papers, and the rooms of launch/ that may know them: what they
# save and record is read there. Reading, listing and resizing images is no source's alone.
MEMBERS = re.compile(r"(runtime/data/(images(?!/(image_file|image_list|resized_crop)\.h)|sequences)|moe/(routers|nexus)"
                     r"|sparse/(patterns|grow_rules|permutations|training)"
                     r"|models/(backbones|tasks|hspmn|attention_experts|moco))/")
MAY_KNOW_MEMBERS = {"weights", "convert", "maps", "inspect", "report"}
REGISTRATION = re.compile(r'Registration<(?:Router|DataSource|Backbone), \w+> \w+[{(]\s*"(\w+)"')
COMMAND_LINES = ("launch/main.cpp", "launch/command_line/subcommands.cpp", "launch/command_line/shared_options.cpp",
                 "launch/command_line/text_commands.cpp", "launch/command_line/describe_commands.cpp",
                 "benchmarks/support/program.cpp")
TEST_FOLDERS = set(FOLDERS) | {"parsers", "mpi", "members"}
SOURCE = (".h", ".cpp", ".cu", ".cuh")
DESIGN_PAGES = ("docs/design.md", "docs/style.md")
MAX_ROOM_SOURCES = 25
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_KERNEL_LINES = 120
MAX_PARAMETERS = 5

RANDOM_FILES = re.compile(r"^runtime/random/")
GENERATOR = re.compile(
    r"std::(random_device|mt19937|minstd_rand|default_random_engine|shuffle\s*\()"
    r"|\b(torch|at)::(rand|randn|randint|randperm|rand_like|randn_like|randint_like|normal"
    r"|bernoulli|multinomial|dropout|manual_seed|Generator|native_dropout)\b"
    r"|(\.|->)(uniform_|normal_|random_|bernoulli_|bernoulli|multinomial|exponential_|geometric_)\s*\("
    r"|\b(srand|drand48|rand)\s*\(|torch::nn::init::")
LOAD = re.compile(r"\b(torch::load|torch::save|pickle_load|pickle_save|torch::jit::load|torch::pickle)\b")
GETENV = re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b")
PRINT = re.compile(r"\bstd::(cout|cerr)\b|(?<![\w:.>])(std::)?(f?printf|puts|putchar)\s*\(")
HASTY_READER = re.compile(r"^[^#\n]*[^|]\| *(grep (-\w+ )*-\w*q|head\b)", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
TORCH_HEADER = re.compile(r"^(torch|ATen|c10)/")
DOC_LINE = re.compile(r"^[^\n]*?///(?!/)(<?) ?(.*)$")
ENUM = re.compile(r"\benum class (\w+)[^{;]*\{([^}]*)\}")
ENUM_WORDS = re.compile(r"\bkEnumWords<(?:\w+::)*(\w+)>\s*\{([^}]*)\}")
LEANING = re.compile(r"(Of|Those|That|The same|As|Its|Their|They|It)\b")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
CODE_SPAN = re.compile(r"`([^`\n]+)`")
FILE_NAME = re.compile(r"[\w.-]+\.(h|cpp|cu|cuh|py|sh|md|txt|yaml|json)")
FILE_PATH = re.compile(r"[\w.-]+(/[\w.-]+)+/?")
LISTED_FILE = re.compile(r"[\w.-]+(/[\w.-]+)*/[\w-]+\.(h|cpp|cu|cuh|py)\b")
BRACES = re.compile(r"(.*)\{([^{}]*)\}(.*)")
NAME = re.compile(r"([A-Za-z]\w*(?:::\w+)*)(?:\(\))?")
IDENTIFIER = re.compile(r"\w*[a-z]\w*[A-Z_]\w*|[A-Z]\w*[a-z]\w*")


def room_of(path):
    """The top folder and the room in it; "" for a file of the top folder itself."""
    parts = path.split("/")
    return parts[0], "/".join(parts[1:-1])


def circles(uses):
    """Yields circles of the graph, node to nodes that it uses, until cutting one use of each leaves none."""
    while True:
        try:
            return graphlib.TopologicalSorter(uses).prepare()
        except graphlib.CycleError as error:
            circle = error.args[1]
            yield circle[:-1]
            uses[circle[1]].remove(circle[0])


class Linter:
    def __init__(self, root):
        self.root = root
        self.findings = []
        self.files = self.list_files()
        self.sources = [f for f in self.files if f.endswith(SOURCE)]
        self.texts = {f: self.read(f) for f in self.sources}
        self.codes = {f: blank(t) for f, t in self.texts.items()}

    def list_files(self):
        """Tracked and new files; all files where there is no git."""
        git = subprocess.run(["git", "-C", self.root, "ls-files", "-co", "--exclude-standard"],
                             capture_output=True, text=True)
        if git.returncode == 0:
            names = git.stdout.splitlines()
        else:
            names = [os.path.relpath(os.path.join(d, f), self.root)
                     for d, _, fs in os.walk(self.root) for f in fs]
            names = [n for n in names if not n.startswith(("build/", "runs/", ".git/"))]
        return sorted(n for n in names if os.path.isfile(os.path.join(self.root, n)))

    def read(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as file:
            return file.read()

    def report(self, name, line, what):
        self.findings.append(f"{name}:{line}: {what}")

    def report_matches(self, name, pattern, what):
        for match in pattern.finditer(self.codes[name]):
            line = self.codes[name].count("\n", 0, match.start()) + 1
            self.report(name, line, f"{what}: {match.group().strip()}")

    def includes(self, name):
        """(line, bracket, path) of every include; blanked code tells which are not comments."""
        for match in INCLUDE.finditer(self.texts[name]):
            hash_at = match.start() + match.group().index("#")
            if self.codes[name][hash_at] == "#":
                yield self.texts[name].count("\n", 0, hash_at) + 1, match.group(1), match.group(2)

    def check_format(self):
        tool = shutil.which("clang-format")
        if not tool:
            self.report("clang-format", 0, "not found: run launch/setup")
            return
        if not self.sources:
            return
        run = subprocess.run([tool, "--dry-run", "--ferror-limit=1", *self.sources], cwd=self.root,
                             capture_output=True, text=True)
        for match in re.finditer(r"^(\S+?):(\d+):\d+: warning", run.stderr, re.M):
            self.report(match.group(1), match.group(2), "not formatted: clang-format -i " + match.group(1))
        if run.returncode != 0:
            self.report("clang-format", 0, run.stderr.strip())

    def check_sizes(self):
        for name in self.files:
            if not name.endswith(SOURCE + (".py", ".sh", ".cmake")) and not name.startswith("launch/"):
                continue
            count = self.read(name).count("\n")
            if count > MAX_FILE_LINES:
                self.report(name, count, f"{count} lines in one file, at most {MAX_FILE_LINES}")
        for name in self.sources:
            is_kernel = name.endswith((".cu", ".cuh", "_cpu.cpp", "_cuda.cpp"))
            limit = MAX_KERNEL_LINES if is_kernel else MAX_FUNCTION_LINES
            for head, line, count in functions(self.codes[name]):
                if count > limit:
                    self.report(name, line, f"{count} lines in one function, at most {limit}")
                # Autograd functions and kernels take each tensor and size by itself.
                found = len(parameters(head))
                if found > MAX_PARAMETERS and not is_kernel and "AutogradContext" not in head:
                    self.report(name, line, f"{found} parameters, at most {MAX_PARAMETERS}: use a struct")

    def check_includes(self):
        for name in self.sources:
            top = name.split("/")[0]
            if name.endswith((".h", ".cuh")) and "#pragma once" not in self.codes[name]:
                self.report(name, 1, "no #pragma once")
            for line, bracket, path in self.includes(name):
                folder = path.split("/")[0]
                if bracket == '"' and top in MAY_INCLUDE and folder not in MAY_INCLUDE[top]:
                    self.report(name, line, f'"{path}": {top} may include {", ".join(sorted(MAY_INCLUDE[top]))}')
                if path in ("torch/torch.h", "torch/all.h"):
                    self.report(name, line, f"<{path}> is slow to compile: include what you use")
                if path.startswith("CLI/") and name not in COMMAND_LINES:
                    self.report(name, line, f"<{path}>: only {' and '.join(COMMAND_LINES)} include CLI11")
                if path == "random" and not RANDOM_FILES.match(name):
                    self.report(name, line, "<random>: randomness comes from runtime/random/random.h")
                if name.endswith((".cu", ".cuh")) and TORCH_HEADER.match(path):
                    self.report(name, line, f"<{path}>: kernels include no torch headers")

    def check_rooms(self):
        """Files stand in the rooms of their folder, and include rooms to their left only."""
        for name in self.sources:
            top, room = room_of(name)
            if top not in ROOMS:
                continue
            if room not in ROOMS[top]:
                self.report(name, 1, f"no room of {top}: " + ", ".join(r or top for r in ROOMS[top]))
                continue
            for line, bracket, path in self.includes(name):
                other_top, other = room_of(path)
                if bracket != '"' or other_top != top or other not in ROOMS[top]:
                    continue
                if ROOMS[top].index(other) > ROOMS[top].index(room):
                    self.report(name, line, f'"{path}": {top}/{room} comes before {top}/{other}')

    def check_members(self):
        """Launch knows no router, source, backbone or paper: it neither includes them nor compares their names."""
        names = {name for source in self.sources for name in REGISTRATION.findall(self.read(source))}
        compared = re.compile(r'[!=]= *"(%s)"|"(%s)" *[!=]=' % (("|".join(sorted(names)),) * 2))
        for source in self.sources:
            top, room = room_of(source)
            if top != "launch" or room in MAY_KNOW_MEMBERS:
                continue
            for line, _, path in self.includes(source):
                if MEMBERS.match(path):
                    self.report(source, line, f'"{path}": launch/{room} knows no router, source, backbone or paper')
            for match in compared.finditer(self.read(source)) if names else ():
                line = self.read(source).count("\n", 0, match.start()) + 1
                self.report(source, line, f"{match[0]}: a member of an open set says itself what differs for it")

    def check_room_sizes(self):
        rooms = collections.Counter(os.path.dirname(name) for name in self.sources
                                    if name.split("/")[0] in ROOMS)
        for room, count in sorted(rooms.items()):
            if count > MAX_ROOM_SOURCES:
                self.report(room, 0, f"{count} sources in one room, at most {MAX_ROOM_SOURCES}")

    def check_circles(self):
        """A header and its source are one node; no way of includes leads back to its beginning."""
        uses = {}
        for name in self.sources:
            if name.split("/")[0] not in ROOMS:
                continue
            node = os.path.splitext(name)[0]
            others = {os.path.splitext(path)[0] for _, bracket, path in self.includes(name)
                      if bracket == '"' and path in self.texts}
            uses.setdefault(node, set()).update(others - {node})
        for circle in circles(uses):
            self.report(circle[0], 0, "includes itself by way of " + ", ".join(circle[1:]))

    def check_doc_blocks(self):
        """A doc block has a subject of its own; a note behind a field may lean on the field."""
        for name in self.sources:
            if name.split("/")[0] not in FOLDERS and not name.startswith(("benchmarks/", "tests/support/")):
                continue
            was_doc = False
            for line, text in enumerate(self.texts[name].splitlines(), 1):
                match = DOC_LINE.match(text)
                is_trailing = bool(match) and not text.lstrip().startswith("///")
                if match and (is_trailing or not was_doc):
                    opening = LEANING.match(match.group(2))
                    if opening:
                        self.report(name, line, f'a doc block opens with "{opening.group()}": name its subject')
                was_doc = bool(match)

    def check_enum_words(self):
        """An enum has as many words as enumerators, whose values are the indices of the words."""
        bodies = {enum: body for name in self.sources for enum, body in ENUM.findall(self.codes[name])}
        for name in self.sources:
            own = {**bodies, **dict(ENUM.findall(self.codes[name]))}
            for match in ENUM_WORDS.finditer(self.texts[name]):
                if self.codes[name][match.start()] == " ":
                    continue  # in a comment
                enum, words = match.groups()
                enumerators = [part for part in own.get(enum, "").split(",") if part.strip()]
                if words.count('"') != 2 * len(enumerators) or "=" in own.get(enum, ""):
                    self.report(name, self.texts[name].count("\n", 0, match.start()) + 1,
                                f"kEnumWords<{enum}> needs a word for each enumerator, and these no values of their own")

    def check_design_pages(self):
        """The files and names in code spans of the pages for developers exist, and the files in listings."""
        for page in (name for name in DESIGN_PAGES if name in self.files):
            text = self.read(page)
            spans = [(match.start() + at.start(), at.group()) for match in FENCE.finditer(text)
                     for at in LISTED_FILE.finditer(match.group())]
            text = FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
            spans += [(span.start(), span.group(1)) for span in CODE_SPAN.finditer(text)]
            for start, code in spans:
                line = text.count("\n", 0, start) + 1
                for missing in self.missing_from(code):
                    self.report(page, line, f"{missing} does not exist")

    def missing_from(self, code):
        """The paths and names in a code span, such as `moe/a.{h,cpp}` or `RankGrid::world`, that do not exist."""
        braces = BRACES.fullmatch(code)
        if braces:
            for part in braces.group(2).split(","):
                yield from self.missing_from(braces.group(1) + part.strip() + braces.group(3))
        elif FILE_PATH.fullmatch(code) or FILE_NAME.fullmatch(code):
            is_ours = code.split("/")[0] in self.top_folders or FILE_NAME.fullmatch(code.split("/")[-1])
            if is_ours and code.rstrip("/") not in self.paths:
                yield code
        elif NAME.fullmatch(code):
            yield from (word for word in NAME.fullmatch(code).group(1).split("::")
                        if IDENTIFIER.fullmatch(word) and word not in self.product_words)

    @functools.cached_property
    def top_folders(self):
        return {name.split("/")[0] for name in self.files if "/" in name}

    @functools.cached_property
    def paths(self):
        """Files and folders from the root on, and the names of files alone."""
        folders = {name[:at.start()] for name in self.files for at in re.finditer("/", name)}
        return set(self.files) | folders | {os.path.basename(name) for name in self.files}

    @functools.cached_property
    def product_words(self):
        return {word for name in self.sources if name.split("/")[0] in FOLDERS
                for word in re.findall(r"\w+", self.texts[name])}

    def check_calls(self):
        for name in self.sources:
            top = name.split("/")[0]
            self.report_matches(name, LOAD, "pickles are not loaded or saved")
            if not RANDOM_FILES.match(name):
                self.report_matches(name, GENERATOR, "randomness comes from runtime/random/random.h")
            if top not in ("launch", "tests", "benchmarks", "docs"):
                self.report_matches(name, GETENV, "only launch/ reads the environment")
                self.report_matches(name, PRINT, "library code does not print")

    def check_scripts(self):
        """With pipefail, a reader that stops early ends its writer by a signal, now and then."""
        for name in self.files:
            with open(os.path.join(self.root, name), encoding="utf-8", errors="replace") as file:
                text = file.read()
            for match in HASTY_READER.finditer(text) if re.match("#!.*sh\n", text) else ():
                self.report(name, text.count("\n", 0, match.start(1)) + 1,
                            f"{match.group(1)} reads less than is written to it; use a file or <<<")

    def check_parsers(self):
        """The parsers and all they include are free of torch."""
        listed = re.search(r"set\(SHOAL_PARSER_SOURCES([^)]*)\)", self.read("CMakeLists.txt"))
        if not listed:
            self.report("CMakeLists.txt", 1, "no SHOAL_PARSER_SOURCES")
            return
        todo = [(name, "CMakeLists.txt") for name in listed.group(1).split()]
        seen = set()
        while todo:
            name, why = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            if name not in self.texts:
                self.report(why, 1, f"{name} is not there")
                continue
            for line, bracket, path in self.includes(name):
                if TORCH_HEADER.match(path):
                    self.report(name, line, f"<{path}> in a parser (reached from {why})")
                elif bracket == '"':
                    todo.append((path, name))

    def check_unfused_kernels(self):
        """Kernels listed as compiled without contraction say in their first line why, and no others do."""
        build = "cmake/ShoalCuda.cmake"
        listed = re.search(r"set\(SHOAL_UNFUSED_KERNELS([^)]*)\)", self.read(build)) if build in self.files else None
        names = listed.group(1).split() if listed else []
        for name in names:
            if name not in self.texts:
                self.report(build, 1, f"{name} is not there")
        for name in (name for name in self.sources if name.endswith(".cu")):
            says_why = re.match(r"// Must not fuse: \w", self.texts[name]) is not None
            if says_why != (name in names):
                self.report(name, 1, "say why in the first line: // Must not fuse: REASON" if name in names else
                            f"says that it must not fuse, but is not in SHOAL_UNFUSED_KERNELS of {build}")

    def check_layout(self):
        for name in self.sources:
            parts = name.split("/")
            if parts[0] == "tests" and name.endswith("_test.cpp") and parts[1] not in TEST_FOLDERS:
                self.report(name, 1, f"no test program is built from tests/{parts[1]}")
            elif len(parts) < 2 or parts[0] not in MAY_INCLUDE:
                self.report(name, 1, "sources live in " + ", ".join(MAY_INCLUDE))

    def figures(self):
        """(what, value) of what the checks above limit, over the product's folders."""
        product = [name for name in self.sources if name.split("/")[0] in FOLDERS]
        rooms = collections.Counter(os.path.dirname(name) for name in product)
        room, in_room = rooms.most_common(1)[0]
        bodies = [(count, name, head.split("(")[0].split()[-1]) for name in product
                  if not name.endswith((".cu", ".cuh", "_cpu.cpp", "_cuda.cpp"))
                  for head, _, count in functions(self.codes[name])]
        longest = max(bodies)
        yield "product lines (.h .cpp .cu .cuh)", sum(self.texts[name].count("\n") for name in product)
        yield "sources", len(product)
        yield "rooms", len(rooms)
        yield "sources of the largest room", f"{in_room} ({room})"
        yield "lines of the longest file", max(self.texts[name].count("\n") for name in product)
        yield "lines of the longest function but kernels", f"{longest[0]} ({longest[1]}: {longest[2]})"
        for what, check in (("includes against the order of folders and rooms", self.check_rooms),
                            ("circles of includes", self.check_circles),
                            ("doc blocks without a subject of their own", self.check_doc_blocks)):
            before = len(self.findings)
            check()
            yield what, len(self.findings) - before

    def run(self):
        self.check_layout()
        self.check_sizes()
        self.check_includes()
        self.check_rooms()
        self.check_members()
        self.check_room_sizes()
        self.check_circles()
        self.check_doc_blocks()
        self.check_enum_words()
        self.check_design_pages()
        self.check_calls()
        self.check_scripts()
        self.check_parsers()
        self.check_unfused_kernels()
        self.check_format()
        return self.findings


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--figures"]
    linter = Linter(os.path.abspath(arguments[0] if arguments else os.path.join(os.path.dirname(__file__), "..")))
    if "--figures" in sys.argv[1:]:
        for what, value in linter.figures():
            print(f"{what}: {value}")
        return 0
    findings = linter.run()
    for finding in findings:
        print(finding)
    print(f"lint: {len(linter.sources)} sources, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
