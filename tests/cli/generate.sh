#!/usr/bin/env bash
# A language model continues texts, the same on any number of ranks and for any batch.
source "$(dirname "$0")/common.sh"

for _ in $(seq 60); do echo 'the cat sat on the mat. the dog ran. é'; done >train.txt
head -n 20 train.txt >valid.txt
cat >text.yaml <<'END'
run: {name: run, root: ., threads: 1}
data: {source: text, sequence: 16, train: {files: [train.txt]}, valid: {files: [valid.txt]}}
model:
  backbone: gpt2
  width: 16
  depth: 2
  heads: 2
  context: 40
  moe: {router: {name: top_k, k: 1}, experts: {count: 3, hidden: 16}}
task: {name: lm}
optimizer: {name: adamw, lr: 1e-2}
train: {duration: 60step, batch: 16, group: 2, precision: float64}
END
expect 0 "$program" train text.yaml
expect 0 "$program" eval run --json
for key in perplexity bits_per_byte loss tokens samples; do
  grep -q "\"$key\":" output || fail "no $key: $(cat output)"
done

# json ARGUMENT...: the values of this expression over the answer, `j`.
json() {
  local expression=$1
  shift
  "$@" 2>messages.txt | python3 -c "import json, sys; j = json.load(sys.stdin); print(($expression))"
}
run=("$program" generate run --prompt 'the cat' --tokens 12)
text=$(json 'j["prompt"], bytes(j["tokens"]).decode("utf8", "replace") == j["text"], len(j["tokens"]), j["stop"]' \
  "${run[@]}" --json)
[ "$text" = "('the cat', True, 12, 'tokens')" ] || fail "JSON is $text"
"${run[@]}" >first.txt
"${run[@]}" >second.txt
cmp first.txt second.txt || fail 'not the same text again'
grep -q '^the cat' first.txt || fail "no prompt: $(cat first.txt)"
"${run[@]}" --seed 9 >other.txt
! cmp -s first.txt other.txt || fail 'the seed changes nothing'

printf 'the dog ran.' >prompt.txt
many=(generate run --prompt 'the' --prompt 'sat on' --prompt-file prompt.txt --samples 2 --top-k 9
  --top-p 0.9 --temperature 0.8 --tokens 9 --json)
expected=$(json 'j["sequences"]' "$program" "${many[@]}")
[ "$(json 'len(j["sequences"])' "$program" "${many[@]}")" = 6 ] || fail 'not six texts'
for batch in 1 4; do
  [ "$(json 'j["sequences"]' "$program" "${many[@]}" --batch $batch)" = "$expected" ] ||
    fail "--batch $batch changes the texts"
done
for count in 2 3; do
  [ "$(json 'j["sequences"]' ranks $count "${many[@]}")" = "$expected" ] ||
    fail "$count ranks change the texts: $(cat messages.txt)"
done

# Another seed than the model's would send hashed tokens to other experts.
expect 10 "$program" eval run run.seed=2
grep -q 'run.seed: the model was trained with seed 1, got 2' output || fail "$(cat output)"
expect 10 "$program" generate run --prompt 'the' run.seed=2

# The context ends a text, which is said.
[ "$(json 'j["stop"], len(j["tokens"])' "$program" generate run --prompt 'the cat' --tokens 1000 --json)" = "('context', 33)" ] ||
  fail 'the context does not end a text'
grep -q "context of 40 tokens" messages.txt || fail "no note: $(cat messages.txt)"

expect 2 "$program" generate run
grep -q -- '--prompt TEXT' output || fail "$(cat output)"
expect 2 "$program" generate run --prompt ''
expect 2 "$program" generate run --prompt "$(printf 'x%.0s' $(seq 40))"
grep -q '40 tokens' output || fail "$(cat output)"
expect 13 "$program" generate run --prompt-file missing.txt
expect 0 "$program" train "$tiny" run.root=. run.name=images train.duration=1step \
  parallel.expert_ranks=1
expect 10 "$program" generate images --prompt x
grep -q 'task lm' output || fail "$(cat output)"
