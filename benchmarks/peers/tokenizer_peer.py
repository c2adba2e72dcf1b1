#!/usr/bin/env python3
"""Our GPT-2 tokenizer beside tiktoken and Hugging Face's tokenizers, all made of the same two files.

First the token ids of all texts must be equal, those of the cases below and those of FILE...: any
difference is printed and ends this with code 1. Then the three take turns, on one thread, with the
largest file. Needs tiktoken and tokenizers (code 69 without).

Usage: tokenizer_peer.py --vocab encoder.json --merges vocab.bpe [--program P] [--rounds N]
                         [--json OUT] FILE...
"""
import argparse
import array
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
try:
    import tiktoken
    import tiktoken.load
    import tokenizers
except ModuleNotFoundError as error:
    print(f"no {error.name}: pip install tiktoken tokenizers", file=sys.stderr)
    sys.exit(69)

PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LETTERS = "".join(chr(97 + (i * i * 31 + i * 7) % 26) for i in range(10_240))
CASES = {
    "empty": "",
    "spaces": " " * 1_000,
    "spaces and tabs": " \t \t\t  x   ",
    "lines": "a\n\n\nb\n \n c\n\n",
    "CRLF": "one\r\ntwo\r\n\r\nthree\r",
    "contractions": "I'm you're he'd we'll they've it's don't DON'T 'tis ''s s' '",
    "numbers": "3.14 1,000,000 2024a a2024 x² ٣٤٥ १२३ Ⅳ ½ 四",
    "emoji": "😀 👨‍👩‍👧 👍🏽 🇩🇪 😀😀",
    "combining marks": "e\u0301 n\u0303o a\u0308\u0323 हिन्दी",
    "spaces of Unicode": "a\u00a0b \u00a0 c\u00a0\u00a0d\u2003e\u3000f\u0085g\u2028h\u1680i\u202f",
    "no spaces": "\u180ea \u200b\u200bb \ufeffc\x1c\x1d \x1e\x1f",
    "scripts": "你好，世界。日本語 한국어 Привет, как дела? שלום مرحبا ไทย",
    "end of text": "a<|endoftext|>b <|endoftext|>",
    "zero bytes": "a\0b\0\0",
    "private": "\ue000\U0010ffff\ufffd\ufffe",
    "10 kB without a space": LETTERS,
    "10 kB of one letter": "a" * 10_240,
    "10 kB of marks": "!?" * 5_120,
    "code": "for (int i = 0; i < n; ++i) {\n    x[i] += 1;\n\t}\n",
}


class Ours:
    """The C++ program; each text goes through a file."""

    def __init__(self, program, vocab, merges, folder):
        self.process = subprocess.Popen([program, vocab, merges], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.text, self.out = os.path.join(folder, "text"), os.path.join(folder, "ids")
        if self.process.stdout.readline() != "ready\n":
            sys.exit(f"{program} does not start")

    def encode(self, text):
        """The ids and the seconds they took."""
        pathlib.Path(self.text).write_bytes(text.encode())
        print(json.dumps({"text": self.text, "ids": self.out}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit("our tokenizer ended before it answered")
        return array.array("i", pathlib.Path(self.out).read_bytes()), json.loads(line)["seconds"]


class Theirs:
    """A Python function from text to ids."""

    def __init__(self, function):
        self.function = function

    def encode(self, text):
        begin = time.perf_counter()
        ids = self.function(text)
        seconds = time.perf_counter() - begin
        return array.array("i", ids), seconds


def make_contenders(options, folder):
    ranks = tiktoken.load.data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=options.merges,
                                                          encoder_json_file=options.vocab)
    encoding = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks,
                                 special_tokens={"<|endoftext|>": len(ranks)})
    whole = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(options.vocab, options.merges))
    whole.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return {"ours": Ours(options.program, options.vocab, options.merges, folder),
            "tiktoken": Theirs(encoding.encode_ordinary),
            "tokenizers": Theirs(lambda text: whole.encode(text, add_special_tokens=False).ids)}


def compare(contenders, texts):
    """How often ids differ; prints the first difference of each pair."""
    wrong = 0
    for name, text in texts.items():
        ours, _ = contenders["ours"].encode(text)
        for peer in ("tiktoken", "tokenizers"):
            theirs, _ = contenders[peer].encode(text)
            if ours != theirs:
                wrong += 1
                pairs = enumerate(zip(ours, theirs))
                at = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
                print(f"{name}: token {at}: ours {ours[at:at + 5].tolist()} of {len(ours)}, "
                      f"{peer} {theirs[at:at + 5].tolist()} of {len(theirs)}")
    return wrong


def take_turns(contenders, text, rounds):
    """Median seconds of each contender; the first turn of each does not count."""
    seconds = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, contender in contenders.items():
            taken = contender.encode(text)[1]
            if turn > 0:
                seconds[name].append(taken)
    return {name: statistics.median(all_turns) for name, all_turns in seconds.items()}


def write_report(path, rounds, row):
    info = pathlib.Path("/proc/cpuinfo").read_text()
    models = [line.split(": ")[1] for line in info.splitlines() if line.startswith("model name")]
    report = {"benchmark": "tokenizer", "command": " ".join(sys.argv),
              "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
              "hardware": {"cpu": models[0] if models else "unknown", "cores": os.cpu_count()},
              "tiktoken": tiktoken.__version__, "tokenizers": tokenizers.__version__,
              "rounds": rounds, "rows": [row]}
    pathlib.Path(path).write_text(json.dumps(report, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--program", default=root / "build/release/benchmarks/tokenizer_bench")
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--merges", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("files", nargs="+", metavar="FILE")
    options = parser.parse_args()
    texts = {file: pathlib.Path(file).read_bytes().decode() for file in options.files}
    with tempfile.TemporaryDirectory() as folder:
        contenders = make_contenders(options, folder)
        wrong = compare(contenders, CASES | texts)
        if wrong:
            sys.exit(f"{wrong} comparisons of ids failed")
        print(f"equal ids: {len(CASES)} cases and {', '.join(map(os.path.basename, texts))}")
        file, text = max(texts.items(), key=lambda item: len(item[1]))
        seconds = take_turns(contenders, text, options.rounds)
    megabytes = len(text.encode()) / 1e6
    row = {"file": os.path.basename(file), "megabytes": megabytes}
    for name, taken in seconds.items():
        ratio = taken / seconds["ours"]
        row |= {f"{name}_seconds": taken, f"{name}_over_ours": ratio}
        print(f"{name:<10} {taken:7.3f} s  {megabytes / taken:6.1f} MB/s  {ratio:6.2f} x ours")
    if options.json:
        write_report(options.json, options.rounds, row)


if __name__ == "__main__":
    main()
