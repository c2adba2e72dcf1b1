#!/usr/bin/env python3
"""Feeds tests/lint.py good and bad trees: each rule must find its mistake and nothing else."""
import os
import subprocess
import sys
import tempfile
import unittest

LINT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lint.py")
STYLE = os.path.join(os.path.dirname(LINT), "..", ".clang-format")
BUILD = "set(SHOAL_PARSER_SOURCES\n    runtime/base/error.cpp)\n"


def lint(files):
    """Runs the linter on a tree of these files; returns (exit status, findings)."""
    with tempfile.TemporaryDirectory() as root:
        with open(STYLE, encoding="utf-8") as style:
            files = {"CMakeLists.txt": BUILD, "runtime/base/error.cpp": "int error;\n",
                     ".clang-format": style.read(), **files}
        for name, text in files.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        run = subprocess.run([sys.executable, LINT, root], capture_output=True, text=True)
        return run.returncode, run.stdout.splitlines()[:-1]


def function_of(lines, head="void f()"):
    return head + " {\n" + "  g();\n" * (lines - 2) + "}\n"


class Lint(unittest.TestCase):
    def finds(self, name, text, *expected):
        status, findings = lint({name: text})
        self.assertEqual(status, 1 if expected else 0, findings)
        self.assertEqual(len(findings), len(expected), findings)
        for finding, part in zip(findings, expected):
            self.assertTrue(finding.startswith(name), finding)
            self.assertIn(part, finding)

    def test_accepts_a_tidy_file(self):
        self.finds("moe/a.cpp", '#include "runtime/base/error.h"\n\nint f() { return 1; }\n')

    def test_finds_a_badly_formatted_file(self):
        self.finds("moe/a.cpp", "int  f( ) {return 1;}\n", "not formatted")

    def test_limits_files(self):
        self.finds("moe/a.cpp", "int f();\n" * 500)
        self.finds("moe/a.cpp", "int f();\n" * 501, "501 lines in one file")

    def test_limits_functions(self):
        self.finds("moe/a.cpp", function_of(60))
        self.finds("moe/a.cpp", function_of(61), "61 lines in one function")
        nested = "namespace shoal {\nclass A {\n" + "  void f() {\n" + "    g();\n" * 70 + "  }\n};\n"
        self.finds("moe/a.cpp", nested + "}  // namespace shoal\n", "72 lines in one function")

    def test_counts_from_the_head_of_a_constructor(self):
        head = "A::A(int n)\n    : first_{n}, second_(n) {\n"
        self.finds("moe/a.cpp", head.replace("\n    ", " ") + "  g();\n" * 59 + "}\n",
                   "61 lines in one function")

    def test_gives_kernels_more_room(self):
        self.finds("moe/a_cpu.cpp", function_of(120))
        self.finds("moe/a.cu", function_of(121), "121 lines in one function")

    def test_limits_parameters(self):
        self.finds("moe/a.cpp", "void f(std::map<int, int> a, int b, int c, int d, int e) {}\n")
        self.finds("moe/a.cpp", "void f(int a, int b, int c, int d, int e, int g) {}\n",
                   "6 parameters")

    def test_keeps_the_order_of_folders(self):
        self.finds("models/a.cpp", '#include "runtime/c.h"\n#include "sparse/b.h"\n')
        self.finds("moe/a.cpp", '#include "sparse/b.h"\n', "moe may include")
        self.finds("runtime/base/a.cpp", '#include "parallel/b.h"\n', "runtime may include")
        self.finds("launch/a.cpp", '#include "tests/b.h"\n', "launch may include")
        self.finds("launch/a.cpp", '#include "b.h"\n', "launch may include")

    def test_keeps_the_order_of_rooms(self):
        self.finds("moe/experts/a.cpp", '#include "moe/experts/c.h"\n#include "moe/kernels/b.h"\n')
        self.finds("moe/kernels/a.cpp", '#include "moe/experts/b.h"\n', "moe/kernels comes before")
        self.finds("moe/moe_layer.cpp", '#include "moe/nexus/b.h"\n', "comes before moe/nexus")
        self.finds("runtime/a.cpp", "int a;\n", "no room of runtime")

    def test_keeps_members_out_of_launch(self):
        header = '#include "models/backbones/vit.h"\n'
        self.finds("launch/step/a.cpp", header, "launch/step knows no router")
        self.finds("launch/convert/a.cpp", header)
        registration = ('#include "models/backbones/vit.h"\n\n'
                        'const Registration<Backbone, Vit> registered{"vit", "a transformer"};\n')
        status, findings = lint({"models/backbones/vit.cpp": registration,
                                 "launch/check/a.cpp": 'bool b = name() == "vit";\nbool c = name() == "text";\n'})
        self.assertEqual((status, len(findings)), (1, 1), findings)
        self.assertIn("launch/check/a.cpp:1:", findings[0])

    def test_limits_rooms(self):
        files = {f"moe/exchange/a{i:02}.cpp": "int a;\n" for i in range(26)}
        status, findings = lint(files)
        self.assertEqual(findings, ["moe/exchange:0: 26 sources in one room, at most 25"])
        files.popitem()
        self.assertEqual(lint(files)[0], 0)

    def test_finds_circles(self):
        a, b = "moe/exchange/a", "moe/exchange/b"
        files = {a + ".h": "#pragma once\n\nint a;\n", b + ".h": f'#pragma once\n\n#include "{a}.h"\n',
                 b + ".cpp": f'#include "{b}.h"\n'}
        self.assertEqual(lint(files)[0], 0)
        files[a + ".cpp"] = f'#include "{a}.h"\n\n#include "{b}.h"\n'
        status, findings = lint(files)
        self.assertEqual(len(findings), 1, findings)
        self.assertIn("includes itself by way of", findings[0])

    def test_names_rooms(self):
        self.finds("moe/attic/a.cpp", "int a;\n", "no room of moe")

    def test_refuses_slow_and_misplaced_headers(self):
        self.finds("moe/a.cpp", "#include <torch/torch.h>\n", "slow to compile")
        self.finds("launch/a.cpp", "#include <CLI/CLI.hpp>\n", "only launch/")
        self.finds("launch/main.cpp", "#include <CLI/CLI.hpp>\n")
        self.finds("moe/a.h", "int f();\n", "no #pragma once")
        self.finds("moe/a.cu", "#include <ATen/ATen.h>\n", "no torch headers")

    def test_keeps_torch_out_of_what_parsers_include(self):
        status, findings = lint({
            "runtime/base/error.cpp": '#include "runtime/base/deep.h"\n',
            "runtime/base/deep.h": "#pragma once\n#include <torch/types.h>\n"})
        self.assertEqual(status, 1)
        self.assertIn("runtime/base/deep.h:2: <torch/types.h> in a parser", findings[0])

    def test_refuses_generators_outside_random(self):
        for call in ["torch::randn({2})", "at::rand({2})", "x.normal_()", "std::mt19937 g",
                     "torch::manual_seed(1)", "std::random_device d"]:
            self.finds("tests/moe/a_test.cpp", f"void f() {{ {call}; }}\n", "runtime/random/random.h")
        self.finds("runtime/random/random.cpp", "void f() { torch::randn({2}); }\n")
        self.finds("moe/a.cpp", "#include <random>\n", "runtime/random/random.h")

    def test_refuses_pickles_environment_and_printing(self):
        self.finds("launch/a.cpp", "void f() { torch::load(a, b); }\n", "pickles")
        self.finds("runtime/base/a.cpp", 'void f() { std::getenv("A"); }\n', "environment")
        self.finds("launch/a.cpp", 'void f() { std::getenv("A"); }\n')
        self.finds("runtime/base/a.cpp", "void f() { std::cout << 1; }\n", "does not print")
        self.finds("runtime/base/a.cpp", 'void f() { std::snprintf(a, 1, "b"); }\n')

    def test_asks_why_kernels_must_not_fuse(self):
        why, build = "// Must not fuse: ties.\n", {"cmake/ShoalCuda.cmake": "set(SHOAL_UNFUSED_KERNELS\n    moe/a.cu)\n"}
        self.assertEqual(lint({"moe/a.cu": why + "int a;\n", "moe/b.cu": "int b;\n", **build})[0], 0)
        for files, finding in [({"moe/a.cu": "int a;\n"}, "moe/a.cu:1: say why in the first line"),
                               ({"moe/a.cu": "int a;\n" + why}, "moe/a.cu:1: say why in the first line"),
                               ({"moe/a.cu": "// Must not fuse:\n"}, "moe/a.cu:1: say why in the first line"),
                               ({"moe/a.cu": why, "moe/b.cu": why}, "moe/b.cu:1: says that it must not fuse"),
                               ({}, "cmake/ShoalCuda.cmake:1: moe/a.cu is not there")]:
            findings = lint({**files, **build})[1]
            self.assertEqual(len(findings), 1, findings)
            self.assertIn(finding, findings[0])

    def test_ignores_comments_and_strings(self):
        self.finds("moe/a.cpp", "// torch::load(a) and std::mt19937\n"
                   'const char* a = "getenv(b) {{{";\n'
                   'const char* b = R"x(torch::load {)x";\n'
                   "char c = '{';\nint d = 1'000'000;\n")

    def test_refuses_doc_blocks_without_a_subject(self):
        for opening in ["Of a row.", "Those of it.", "That one.", "The same again.", "As above.", "Its name.",
                        "Their sum.", "They end.", "It ends."]:
            self.finds("moe/a.cpp", f"/// {opening}\nint a;\n", "a doc block opens with")
        self.finds("moe/a.cpp", "int a;  ///< Of a row\n", 'opens with "Of"')
        self.finds("moe/a.cpp", "int a;  ///< of its row\n")
        self.finds("moe/a.cpp", "/// A row of\n/// Those of rows, and\n/// As above.\nint a;\n")
        self.finds("moe/a.cpp", "/// Offset, Assignment, Items.\nint a;\n\n/// Italy.\nint b;\n")
        self.finds("moe/a.cpp", "// Of a row.\nint a;\n")
        self.finds("tests/moe/a_test.cpp", "/// Of a row.\nint a;\n")

    def test_counts_the_words_of_an_enum(self):
        words = 'template <>\ninline constexpr std::array kEnumWords<Order>{%s};\n'
        order = "enum class Order { kFirst, kLast };\n\n"
        self.finds("moe/a.h", "#pragma once\n\n" + order + words % '"first", "last"')
        self.finds("moe/a.h", "#pragma once\n\n// kEnumWords<Order>{\"first\"}\n")
        expected = "needs a word for each enumerator"
        self.finds("moe/a.h", "#pragma once\n\n" + order + words % '"first"', expected)
        self.finds("moe/a.h", "#pragma once\n\n" + words % '"first"', expected)
        valued = order.replace("kLast", "kLast = 2")
        self.finds("moe/a.h", "#pragma once\n\n" + valued + words % '"first", "last"', expected)

    def test_checks_the_pages_on_the_code(self):
        def design(text):
            return lint({"moe/a.h": "#pragma once\nstruct RowSum {\n  int num_rows;\n};\n",
                         "moe/a.cpp": "int a;\n", "docs/design.md": text})[1]
        self.assertEqual(design("`moe/a.{h,cpp}`, `a.h`, `moe/`, `RowSum::num_rows`, `RowSum()`, `mpirun`,\n"
                                "`shoal check`, `build/release/shoal`, `other/place`\n```\nsum   moe/a.cpp   RowSums\n```\n"), [])
        self.assertEqual(design("```\nmoe/c.cpp\n```\n"), ["docs/design.md:2: moe/c.cpp does not exist"])
        self.assertEqual(design("Text\n`moe/b.h` `moe/attic` `b.cpp` `moe/a.{h,cu}` `RowSums` `RowSum::num_row`"),
                         [f"docs/design.md:2: {name} does not exist" for name in
                          ["moe/b.h", "moe/attic", "b.cpp", "moe/a.cu", "RowSums", "num_row"]])

    def test_refuses_pipes_to_readers_that_stop_early(self):
        options = "#!/usr/bin/env bash\nset -euo pipefail\n"
        self.finds("launch/a", options + "ldd a | grep -qF b\n", "launch/a:3: grep -q reads less than is written")
        self.finds("tests/a.sh", options + "! b | grep -c -xq b\n", "reads less than")
        self.finds("tests/a.sh", options + "b 2>&1 | head -n 1\n", "reads less than")
        self.finds("tests/a.sh", options + "# a | head\na || grep -q b c\ngrep -q b <<<\"$(a)\"\na | sed -n 1p\n")
        self.finds("tests/a.md", "a | head\n")

    def test_refuses_tests_that_no_program_builds(self):
        self.finds("tests/attic/a_test.cpp", "int f();\n", "no test program")
        self.finds("tools/a.cpp", "int f();\n", "sources live in")


if __name__ == "__main__":
    unittest.main()
