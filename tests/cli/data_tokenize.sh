#!/usr/bin/env bash
# Text becomes a token cache that recipes and llm.c's scripts read; bad arguments and files are named.
source "$(dirname "$0")/common.sh"

printf 'one two\nthree' >a.txt
printf ' four\n' >b.txt
tokenize() { answered data tokenize "$@"; }

expect 0 tokenize a.txt b.txt --tokenizer bytes --out ab.bin
grep -q '^ab.bin: 19 tokens of 19 bytes and 4 words from 2 files, by bytes, in ' output ||
  fail "$(cat output)"
[ "$(stat -c %s ab.bin)" -eq $((1024 + 2 * 19)) ] || fail "ab.bin has another size"
[ "$(od -An -tu4 -N12 ab.bin | xargs)" = "20240520 1 19" ] || fail "another header"
[ "$(od -An -tu2 -j1024 -N6 ab.bin | xargs)" = "111 110 101" ] || fail "other tokens"
grep -q "$(sha256sum a.txt | cut -d' ' -f1)" ab.bin.json || fail "$(cat ab.bin.json)"

# An older cache is replaced; text, and what is read, is not.
expect 0 tokenize a.txt --tokenizer bytes --out ab.bin --json
grep -q '"tokens":13,"bytes":13,"words":3' output || fail "$(cat output)"
[ -z "$(ls ./*.tmp 2>/dev/null)" ] || fail "temporary files are left: $(ls)"
expect 2 tokenize a.txt --tokenizer bytes --out b.txt
cp a.txt text.bin
expect 2 tokenize b.txt --tokenizer bytes --out text.bin
grep -q "'text.bin' exists and is not a token cache" output || fail "$(cat output)"
cmp a.txt text.bin || fail "a text was replaced"
cp a.txt new.bin.json
expect 2 tokenize b.txt --tokenizer bytes --out new.bin
grep -q "'new.bin.json' exists and is not a token cache's side file" output || fail "$(cat output)"
cp ab.bin new.bin
expect 2 tokenize b.txt --tokenizer bytes --out new.bin
grep -q "'new.bin.json' exists and is not a token cache's side file" output || fail "$(cat output)"
rm new.bin
expect 2 tokenize new.bin.json --tokenizer bytes --out new.bin
grep -q "'new.bin.json' is one of the files to read" output || fail "$(cat output)"
cmp a.txt new.bin.json || fail "a text was replaced"
cp a.txt tmp.bin.tmp
expect 0 tokenize tmp.bin.tmp --tokenizer bytes --out tmp.bin
cmp a.txt tmp.bin.tmp || fail "a text was replaced"
rm tmp.bin.tmp
expect 2 tokenize ab.bin.json --tokenizer bytes --out ab.bin
grep -q "'ab.bin.json' is one of the files to read" output || fail "$(cat output)"
expect 2 tokenize ab.bin --tokenizer bytes --out ab.bin
grep -q 'one of the files to read' output || fail "$(cat output)"

expect 2 tokenize ab.bin --tokenizer bytes --out c.bin
grep -q "'ab.bin' is a token cache, not text" output || fail "$(cat output)"
expect 2 tokenize a.txt --tokenizer byte --out c.bin
grep -q "unknown tokenizer 'byte'; did you mean 'bytes'" output || fail "$(cat output)"
expect 2 tokenize a.txt --tokenizer words --out c.bin
grep -q "unknown tokenizer 'words'" output || fail "$(cat output)"
grep -q 'one of: bytes' output || fail "$(cat output)"
expect 2 tokenize a.txt --tokenizer bytes --special-tokens encode --out c.bin
grep -q -- '--special-tokens encode: tokenizer bytes has none' output || fail "$(cat output)"
[ ! -e c.bin ] || fail "a cache was written"
expect 0 tokenize a.txt --tokenizer bytes --special-tokens text --out kept_text.bin
expect 2 tokenize a.txt --tokenizer bytes --vocab v.json --out c.bin
grep -q 'vocab: unknown key' output || fail "$(cat output)"
expect 2 tokenize a.txt --tokenizer gpt2 --vocab v.json --out c.bin
grep -q 'merges: required key is missing' output || fail "$(cat output)"
expect 13 tokenize a.txt --tokenizer gpt2 --vocab v.json --merges m.txt --out c.bin
expect 13 tokenize a.txt none.txt --tokenizer bytes --out c.bin
grep -q "no 'none.txt' in" output || fail "$(cat output)"
# A pipe that nobody writes to is no file, to read or to replace.
mkfifo pipe.txt pipe.bin
expect 13 timeout 60 "$program" data tokenize pipe.txt --tokenizer bytes --out c.bin
grep -q "pipe.txt: is not a regular file" output || fail "$(cat output)"
expect 2 timeout 60 "$program" data tokenize a.txt --tokenizer bytes --out pipe.bin
rm pipe.txt pipe.bin
expect 21 tokenize a.txt --tokenizer bytes --out no_folder/c.bin
limited() {
  (
    ulimit -f 1
    "$program" data tokenize a.txt b.txt --tokenizer bytes --out c.bin
  )
}
expect 21 limited
[ -z "$(ls c.bin* 2>/dev/null)" ] || fail "a full disk left $(ls c.bin*)"

# Recipes: evaluate.stride is for windows of a text, and no longer than a window.
expect 10 answered check "$tiny" evaluate.stride=4
grep -q 'evaluate.stride=4: the samples of data.source shapes are not windows' output || fail "$(cat output)"
text="data={source: text, sequence: 4, train: {files: [a.txt]}, valid: {files: [ab.bin]}}"
expect 10 answered check "$tiny" "$text" evaluate.stride=5
grep -q 'command line: evaluate.stride=5: 5 would leave tokens out' output || fail "$(cat output)"

# Documents and special tokens, of a tokenizer that has an end-of-text token: id 256.
python3 - <<'END'
import json
own = [b for b in range(256) if 32 < b < 127 or 160 < b != 173]
rest = [b for b in range(256) if b not in own]
symbols = {b: chr(b) for b in own} | {b: chr(256 + i) for i, b in enumerate(rest)}
json.dump({symbols[b]: b for b in range(256)} | {"<|endoftext|>": 256}, open("ids.json", "w"))
open("merges.txt", "w").write("#version: 0.2\n")
open("d.jsonl", "w").write('{"id": 1, "text": "one two"}\n{"text": "three\\n"}\n')
END
printf 'a<|endoftext|>b' >special.txt
gpt2=(--tokenizer gpt2 --vocab ids.json --merges merges.txt)
ids() { od -An -v -tu2 -j1024 "$1" | xargs; }
expect 13 tokenize special.txt "${gpt2[@]}" --out d.bin
grep -q 'special.txt: byte 1: the special token <|endoftext|>' output || fail "$(cat output)"
grep -q -- '--special-tokens' output || fail "no next step: $(cat output)"
expect 0 tokenize special.txt "${gpt2[@]}" --special-tokens encode --out d.bin
[ "$(ids d.bin)" = "97 256 98" ] || fail "special tokens are $(ids d.bin)"
grep -q '"special_tokens": "encode"' d.bin.json || fail "$(cat d.bin.json)"
expect 0 tokenize special.txt "${gpt2[@]}" --special-tokens text --out d.bin
[ "$(ids d.bin | wc -w)" = 15 ] || fail "special tokens are $(ids d.bin)"
expect 0 tokenize b.txt b.txt "${gpt2[@]}" --documents files --out d.bin
[ "$(ids d.bin)" = "32 102 111 117 114 10 256 32 102 111 117 114 10 256" ] || fail "$(ids d.bin)"
expect 0 tokenize d.jsonl "${gpt2[@]}" --documents lines --out d.bin
[ "$(ids d.bin)" = "111 110 101 32 116 119 111 256 116 104 114 101 101 10 256" ] || fail "$(ids d.bin)"
grep -q '"documents": "lines"' d.bin.json || fail "$(cat d.bin.json)"
expect 13 tokenize b.txt "${gpt2[@]}" --documents lines --out d.bin
grep -q 'b.txt:1: not a JSON object with a string "text"' output || fail "$(cat output)"
expect 13 tokenize b.txt --tokenizer bytes --documents files --out d.bin
grep -q 'tokenizer bytes lacks' output || fail "$(cat output)"
expect 2 tokenize b.txt "${gpt2[@]}" --documents pages --out d.bin
grep -q 'documents' output || fail "$(cat output)"
documents="data={source: text, sequence: 4, documents: lines, train: {files: [d.jsonl]}, valid: {files: [a.txt]}}"
expect 10 answered check "$tiny" "$documents"
grep -q 'data.documents: ' output || fail "$(cat output)"

# Training and evaluation: windows of 8 of 19 tokens, 2 of them; with a stride of 2, 6 of them.
cat >lm.yaml <<'END'
run: {root: ., threads: 1}
data: {source: text, sequence: 8, train: {files: [a.txt]}, valid: {files: [ab.bin]}}
model: {backbone: gpt2, width: 16, depth: 1, heads: 2}
task: {name: lm}
train: {duration: 2step, batch: 2, group: 1}
END
expect 0 tokenize a.txt b.txt --tokenizer bytes --out ab.bin
expect 0 ranks 2 train lm.yaml
expect 0 "$program" eval run --json
grep -q '"tokens":16[,}]' output || fail "$(cat output)"
expect 0 "$program" eval run --json evaluate.stride=2
grep -q '"tokens":18[,}]' output || fail "$(cat output)"
expect 10 "$program" eval run evaluate.stride=9
expect 13 "$program" eval run data.sequence=19
grep -q 'ab.bin: 19 tokens, a sample needs 20' output || fail "$(cat output)"

# Another vocabulary is refused, even where both are padded to the same weights.
rm ab.bin.json
gpt2='{name: gpt2, vocab: none.json, merges: none.txt, vocabulary: '
sed -i 's/files: \[ab.bin\]/files: [valid.bin]/; s/files: \[a.txt\]/files: [ab.bin]/' lm.yaml
cp ab.bin valid.bin
cut=(run.name=cut model.pad_vocabulary=64)
expect 75 ranks 2 train lm.yaml "${cut[@]}" "data.tokenizer=${gpt2}300}" run.stop_after=1step
grep -rq 'ab.bin: no side file .*ab.bin.json: its tokenizer is not checked' cut/log ||
  fail "no note of a missing side file: $(cat output)"
expect 12 ranks 2 train lm.yaml "${cut[@]}" "data.tokenizer=${gpt2}301}" run.on_existing=resume
grep -q 'vocabulary 301' output || fail "$(cat output)"
# Where weights differ as well, the data are named, not the weights' shapes.
expect 75 ranks 2 train lm.yaml run.name=plain "data.tokenizer=${gpt2}300}" run.stop_after=1step
expect 12 ranks 2 train lm.yaml run.name=plain "data.tokenizer=${gpt2}301}" run.on_existing=resume
grep -q 'vocabulary 301' output || fail "$(cat output)"
expect 0 ranks 2 train lm.yaml "${cut[@]}" "data.tokenizer=${gpt2}300}" run.on_existing=resume
