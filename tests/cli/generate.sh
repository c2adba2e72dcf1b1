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

for start in "$program" 'ranks 2'; do
  # shellcheck disable=SC2086
  expect 2 $start generate run -
  grep -q 'standard input is read by --prompt-file -' output || fail "no next step: $(cat output)"
done

# Another seed would send hashed tokens to other experts; other models do not depend on it.
expect 0 "$program" eval run run.seed=2
expect 0 "$program" train text.yaml run.name=hashed 'model.moe.router={name: hash, k: 1}' \
  train.duration=2step
for command in "eval hashed" "generate hashed --prompt the"; do
  expect 12 "$program" $command run.seed=2
  grep -q 'were trained with run.seed 1; with 2 ' output || fail "$(cat output)"
done

# The context ends a text, which is said.
[ "$(json 'j["stop"], len(j["tokens"])' "$program" generate run --prompt 'the cat' --tokens 1000 --json)" = "('context', 33)" ] ||
  fail 'the context does not end a text'
grep -q "context of 40 tokens" messages.txt || fail "no note: $(cat messages.txt)"

# Without a prompt it is standard input; nothing in there is no prompt. Output comes token by token.
expect 2 "$program" generate run </dev/null
grep -q -- '--prompt TEXT' output || fail "$(cat output)"
printf 'the cat' | "$program" generate run --tokens 12 >piped.txt
cmp first.txt piped.txt || fail 'standard input is not the prompt'
printf 'the cat' | "$program" generate run --prompt-file - --tokens 12 >piped.txt
cmp first.txt piped.txt || fail '--prompt-file - is not standard input'
printf 'the cat' | ranks 2 generate run --prompt-file - --tokens 12 >piped.txt
cmp first.txt piped.txt || fail '--prompt-file - of two ranks is not standard input'
(printf 'the'; sleep 1; printf ' cat') | "$program" generate run --tokens 12 >piped.txt
cmp first.txt piped.txt || fail 'a slow pipe is cut'
mkfifo reader.txt
timeout 60 "$program" generate run --prompt 'the cat' --tokens 30 >reader.txt 2>messages.txt &
job=$!
read -r -N 7 start <reader.txt
[ "$start" = 'the cat' ] || fail "the pipe begins with '$start'"
wait "$job" || true
[ ! -s messages.txt ] || fail "a closed pipe is told: $(cat messages.txt)"
expect 2 "$program" generate run --prompt ''
expect 2 "$program" generate run --prompt "$(printf 'x%.0s' $(seq 40))"
grep -q '40 tokens' output || fail "$(cat output)"
expect 13 "$program" generate run --prompt-file missing.txt
mkfifo pipe.txt
expect 13 timeout 60 "$program" generate run --prompt-file pipe.txt
grep -q -- '--prompt-file pipe.txt: cannot be read' output || fail "$(cat output)"
expect 0 "$program" generate run --prompt-file <(echo 'the cat') --tokens 2
expect 13 "$program" generate run --prompt-file .
grep -q -- '--prompt-file .: cannot be read' output || fail "$(cat output)"
expect 13 "$program" generate run --prompt-file - <.
grep -q -- '--prompt-file -: cannot be read' output || fail "$(cat output)"
for input in '' --prompt-file=/dev/stdin; do
  expect 0 python3 "$here/socket_input.py" prompt.txt "$program" generate run --tokens 2 $input
  grep -q '^the dog ran.' output || fail "no prompt from a socket: $(cat output)"
done
expect 12 "$program" generate run --prompt 'the cat' model.heads=1
grep -q 'model.heads  checkpoint: 2   recipe: 1' output || fail "$(cat output)"
expect 0 "$program" generate run --prompt 'the cat' --tokens 2 --override model.heads=1
grep -q '^warning: the model differs from the one the weights were trained in:' output ||
  fail "no warning: $(cat output)"
expect 0 "$program" train "$tiny" run.root=. run.name=images train.duration=1step \
  parallel.expert_ranks=1
expect 10 "$program" generate images --prompt x
grep -q 'task lm' output || fail "$(cat output)"

# Ids of another tokenizer are refused: that of the checkpoint is known by what its files hold.
python3 - <<'END'
import json
own = [b for b in range(256) if 32 < b < 127 or 160 < b != 173]
rest = [b for b in range(256) if b not in own]
symbols = {b: chr(b) for b in own} | {b: chr(256 + i) for i, b in enumerate(rest)}
for name, pair in (("a", "th"), ("b", "at")):
    tokens = [symbols[b] for b in range(256)] + [pair]
    json.dump({token: i for i, token in enumerate(tokens)}, open(f"{name}.json", "w"))
    open(f"{name}.txt", "w").write(f"#version: 0.2\n{pair[0]} {pair[1]}\n")
END
export XDG_CACHE_HOME=$PWD/cache
cp a.json vocab.json
cp a.txt merges.txt
bpe=(train text.yaml run.name=bpe train.duration=2step
  'data.tokenizer={name: gpt2, vocab: vocab.json, merges: merges.txt, vocabulary: 257}')
expect 0 "$program" "${bpe[@]}"
expect 0 "$program" eval bpe
cp b.json vocab.json
cp b.txt merges.txt
refused() {
  expect 12 "$@"
  grep -q 'data.tokenizer: the checkpoint.s token ids are those of another tokenizer' output ||
    fail "$(cat output)"
}
refused "$program" eval bpe
refused ranks 2 generate bpe --prompt 'the'
refused "$program" "${bpe[@]}" train.duration=3step run.on_existing=resume
refused "$program" "${bpe[@]}" run.name=tuned model.init_from=bpe
a=(data.tokenizer.vocab=a.json data.tokenizer.merges=a.txt)
expect 0 "$program" eval bpe "${a[@]}"
expect 0 "$program" generate bpe --prompt 'the' --tokens 2 "${a[@]}"
expect 0 "$program" "${bpe[@]}" train.duration=3step run.on_existing=resume --override
