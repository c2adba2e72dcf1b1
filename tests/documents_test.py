#!/usr/bin/env python3
"""documents.py finds commands, and what is promised and is not there."""
import importlib.util
import os
import stat
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("documents", os.path.join(HERE, "documents.py"))
documents = importlib.util.module_from_spec(spec)
spec.loader.exec_module(documents)

HELP = """Prints.
Options:
  -h,--help         Print this
  --world INT       ranks
Subcommands:
  check             Check a recipe
  ckpt              Checkpoints
"""


class DocumentsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.page = os.path.join(self.folder.name, "page.md")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, text):
        with open(self.page, "w", encoding="utf-8") as file:
            file.write(text)

    def test_words_are_counted(self):
        self.write("a b\nc")
        self.assertEqual(list(documents.check_words(3, [self.page])), [])
        self.assertEqual(len(list(documents.check_words(2, [self.page]))), 1)

    def test_commands_are_those_of_plain_and_sh_blocks(self):
        self.write("```\na --b   # why\n# no command\nc \\\n  d\n```\n```yaml\nx: 1\n```\n"
                   "```sh\ne '#f'\n```\n```\n$ g\noutput\n$ h\n```\n")
        self.assertEqual(list(documents.commands(self.page)),
                         [(2, "a --b"), (4, "c    d"), (11, "e '#f'"), (14, "g"), (16, "h")])

    def test_a_loop_is_one_command(self):
        self.write("```\nfor a in 1 2; do\n  for b in 3; do\n    c $a \\\n      $b\n  done\ndone\nd\n```\n")
        found = list(documents.commands(self.page))
        self.assertEqual([(line, " ".join(command.split())) for line, command in found],
                         [(2, "for a in 1 2; do for b in 3; do c $a $b; done; done"), (8, "d")])

    def test_links_to_nothing_are_found(self):
        self.write("# A `b` c\n[good](#a-b-c) [bad](#d) [good](page.md#a-b-c)\n[bad](no.md)\n"
                   "`configs/quickstart.yaml` `configs/no/such.yaml` `configs/{mixer,nope}/s.yaml`\n")
        found = [line.split(": ", 1)[1] for line in documents.check_links([self.page])]
        self.assertEqual(found, [f"{self.page} has no heading #d", "no.md is not there",
                                 "configs/no/such.yaml is not there",
                                 "configs/nope/s.yaml is not there"])

    def test_commands_and_options_that_help_lacks_are_found(self):
        program = os.path.join(self.folder.name, "program")
        with open(program, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\ncat <<'END'\n{HELP}END\n")
        os.chmod(program, os.stat(program).st_mode | stat.S_IXUSR)
        self.write("`shoal check RECIPE --world N` `shoal ckpt RUN`\n`shoal chekc` `shoal check --wrold 2`\n"
                   "```\nshoal other --not inline\n```\n")
        found = [line.split(": ", 1)[1] for line in documents.check_options(program, [self.page])]
        self.assertEqual(found, ["unknown command chekc", "shoal check has no option --wrold"])


if __name__ == "__main__":
    unittest.main()
