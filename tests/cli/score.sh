#!/usr/bin/env bash
# A language model scores continuations, the same alone, among others and on any number of ranks.
source "$(dirname "$0")/common.sh"

python3 - <<'END'
import json
own = [b for b in range(256) if 32 < b < 127 or 160 < b != 173]
rest = [b for b in range(256) if b not in own]
symbols = {b: chr(b) for b in own} | {b: chr(256 + i) for i, b in enumerate(rest)}
tokens = [symbols[b] for b in range(256)] + [symbols[32] + "s", symbols[32] + "sa", "<|endoftext|>"]
json.dump({token: i for i, token in enumerate(tokens)}, open("vocab.json", "w"))
open("merges.txt", "w").write(f"#version: 0.2\n{symbols[32]} s\n{symbols[32]}s a\n")
text = "the cat sat on the mat. the dog ran. " * 12
open("train.jsonl", "w").write("".join(json.dumps({"text": text[i:]}) + "\n" for i in range(4)))
END
export XDG_CACHE_HOME=$PWD/cache
cat >text.yaml <<'END'
run: {name: run, root: ., threads: 1}
data:
  source: text
  tokenizer: {name: gpt2, vocab: vocab.json, merges: merges.txt, vocabulary: 259}
  documents: lines
  sequence: 16
  train: {files: [train.jsonl]}
  valid: {files: [valid.jsonl]}
model:
  backbone: gpt2
  width: 16
  depth: 2
  heads: 2
  context: 20
  moe: {router: {name: top_k, k: 1}, experts: {count: 3, hidden: 16}}
task: {name: lm}
optimizer: {name: adamw, lr: 1e-2}
train: {duration: 40step, batch: 8, group: 2, precision: float64}
END
cp train.jsonl valid.jsonl
expect 0 "$program" train text.yaml
expect 0 "$program" train text.yaml run.name=forced train.duration=2step \
  'model.moe.router={name: forced, k: 1}'

# Two texts, two lists, no context, a long text, blanks before a continuation, a context that is cut.
cat >questions.jsonl <<'END'
{"id": "a", "context": "the cat", "continuation": " sat on"}
{"context": "the dog", "continuation": " sat on", "logprob": "x"}
{"context": [116, 104, 101, 32], "continuation": [109, 97, 116]}
{"continuation": "the cat sat"}
{"context": "", "continuation": "the cat sat on the mat. the dog ran. the cat sat on the mat."}
{"context": "the cat ", "continuation": "sat on"}
{"context": "the dog ran. the cat sat on the mat. the", "continuation": " dog"}
{"context": "on", "continuation": " the mat. the dog ran. the cat sat on"}
END
score() { "$program" score "$@" 2>messages.txt; }
score run questions.jsonl >answers.jsonl || fail "$(cat messages.txt)"
[ "$(grep -c 'note: questions.jsonl:7:' messages.txt)" = 1 ] || fail "no note: $(cat messages.txt)"
python3 - <<'END' || fail "wrong answers: $(cat answers.jsonl)"
import json
a = [json.loads(line) for line in open("answers.jsonl")]
assert a[0]["id"] == "a" and set(a[0]) == {"id", "logprob", "greedy", "tokens"}
assert [x["tokens"] for x in a] == [5, 5, 3, 9, 56, 5, 4, 35], [x["tokens"] for x in a]
assert all(isinstance(x["logprob"], float) and x["logprob"] < 0 for x in a)
assert a[0]["logprob"] > a[1]["logprob"]  # the model has learned who sat
assert abs(a[0]["logprob"] - a[5]["logprob"]) < 1e-9  # the blank belongs to the continuation
END

# same FILE FILE: equal answers, but for rounding.
same() {
  python3 - "$@" <<'END' || fail "$* differ"
import json, sys
a, b = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
assert len(a) == len(b) > 0
for x, y in zip(a, b):
    assert abs(x.pop("logprob") - y.pop("logprob")) < 1e-9 and x == y, (x, y)
END
}
for run in run forced; do
  score "$run" questions.jsonl >all.jsonl
  : >each.jsonl
  while read -r line; do
    echo "$line" >one.jsonl
    answered score "$run" one.jsonl >>each.jsonl 2>messages.txt
  done <questions.jsonl
  same all.jsonl each.jsonl
  tac questions.jsonl >backwards.jsonl
  answered score "$run" backwards.jsonl train.batch=4 2>messages.txt | tac >reversed.jsonl
  same all.jsonl reversed.jsonl
  for count in 2 3; do
    ranks "$count" score "$run" questions.jsonl >ranks.jsonl
    same all.jsonl ranks.jsonl
  done
done
same answers.jsonl <(score run questions.jsonl --best)
ranks 2 score run - <questions.jsonl >ranks.jsonl
same answers.jsonl ranks.jsonl
for input in - /dev/stdin; do
  python3 "$here/socket_input.py" questions.jsonl "$program" score run "$input" >socket.jsonl \
    2>messages.txt || fail "from a socket: $(cat messages.txt)"
  same answers.jsonl socket.jsonl
done

# Loads that are replayed are those of the checkpoint's step.
for layer in 0 1; do
  printf '{"step":%d,"layer":"blocks.'$layer'.moe","load":[%s]}\n' 1 1,0,0 3 0,1,0
done >loads.jsonl
forced() {
  score forced questions.jsonl --override "model.moe.router={name: forced, k: 1, $1}" ||
    fail "$(cat messages.txt)"
}
forced 'load: replay, file: loads.jsonl' >replayed.jsonl
forced 'load: one, unit: 1' >of_step.jsonl
forced 'load: one, unit: 0' >of_start.jsonl
same replayed.jsonl of_step.jsonl
(same replayed.jsonl of_start.jsonl) 2>messages.txt && fail "the units do not matter"

# Greedy is what `generate` writes.
text=$("$program" generate run --prompt 'the cat' --tokens 4 --temperature 0 --json |
  python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["tokens"]))')
score run - <<<"{\"context\": [116, 104, 101, 32, 99, 97, 116], \"continuation\": $text}" >output
grep -q '"greedy":true,"tokens":4' output || fail "$(cat output)"
score run - <<<'{"context": [116, 104, 101, 32, 99, 97, 116], "continuation": [0, 0, 0, 0]}' >output
grep -q '"greedy":false' output || fail "$(cat output)"

# Many lines; a wrong one ends it, and the answers before it are written.
for _ in $(seq 150); do cat questions.jsonl; done >many.jsonl
expect 0 score run many.jsonl --out many.out
[ "$(wc -l <many.out)" = 1200 ] || fail "$(wc -l <many.out) answers"
same answers.jsonl <(sed -n 1193,1200p many.out)
expect 21 answered score run many.jsonl --out many.out
grep -q 'File exists' output || fail "$(cat output)"
echo '{"context": "a"}' >>many.jsonl
expect 13 "$program" score run many.jsonl --out wrong.out
grep -q 'many.jsonl:1201: not an object with a "continuation"' output || fail "$(cat output)"
same many.out wrong.out
refused() {
  echo "$1" >one.jsonl
  expect 13 answered score run one.jsonl
  grep -q "one.jsonl:1: $2" output || fail "$(cat output)"
}
refused 'the cat' 'not an object'
refused '' 'not an object'
refused '{"context": "the", "continuation": [3]}' 'context and continuation must be two texts, or two'
refused '{"context": [1], "continuation": [259]}' '.* lists of token ids below 259'
refused '{"context": [1], "continuation": [1.5]}' '.* token ids'
refused '{"context": "the", "continuation": ""}' 'the continuation adds no token'
refused '{"context": "the", "continuation": "<|endoftext|>"}' '.*special token <|endoftext|>'
grep -q 'add data.special_tokens=encode to the command' output || fail "no next step: $(cat output)"
expect 0 answered score run one.jsonl data.special_tokens=encode
grep -q '"tokens":1' output || fail "$(cat output)"
expect 0 answered score run /dev/null
[ ! -s output ] || fail "answers to nothing: $(cat output)"
expect 13 answered score run missing.jsonl
expect 13 answered score run .
expect 13 "$program" score run - <.
grep -q -- '-: cannot be read' output || fail "$(cat output)"
expect 21 answered score run questions.jsonl --out missing/answers.jsonl

# Bytes have no end of text to begin with; models of other tasks score nothing.
printf 'the cat sat on the mat. the dog ran.' >train.txt
cp train.txt valid.txt
expect 0 "$program" train text.yaml run.name=bytes train.duration=1step data.documents=none \
  'data.tokenizer={name: bytes}' 'data.train.files=[train.txt]' 'data.valid.files=[valid.txt]'
echo '{"continuation": "the"}' >one.jsonl
expect 13 answered score bytes one.jsonl
grep -q 'no end-of-text token to begin with' output || fail "$(cat output)"
expect 0 score bytes - <<<'{"context": "the", "continuation": " cat"}'
expect 0 "$program" train "$tiny" run.root=. run.name=images train.duration=1step parallel.expert_ranks=1
expect 10 answered score images questions.jsonl
grep -q 'task lm' output || fail "$(cat output)"
