#!/usr/bin/env bash
# Evaluation gives the numbers that training logged, on any number of ranks.
source "$(dirname "$0")/common.sh"

expect 0 ranks 2 train "$tiny" run.root=. run.name=run
field() { grep -o "\"$1\": *[-0-9.e]*" | sed -n 1p | grep -o '[-0-9.e]*$'; }
logged=$(grep '"event":"eval"' run/metrics.jsonl | tail -n 1)
for count in 1 2 3; do
  ranks "$count" eval run --json >evaluation.json 2>messages.txt || fail "$(cat messages.txt)"
  for key in top1 top5 samples; do
    wanted=$(field "$key" <<<"$logged")
    got=$(field "$key" <evaluation.json)
    [ "$wanted" = "$got" ] || fail "$key on $count ranks is '$got', training logged '$wanted'"
  done
done
expect 0 "$program" eval run --best --json
python3 -c 'import json, sys; json.load(sys.stdin)' <output || fail "stdout is not one JSON object"

# Averaged weights are what training and `eval` evaluate, unless the trained ones are asked for.
expect 0 ranks 2 train "$tiny" run.root=. run.name=averaged train.average=0.9
logged=$(grep '"event":"eval"' averaged/metrics.jsonl | tail -n 1)
ranks 2 eval averaged --json >evaluation.json || fail "eval of averaged weights"
[ "$(field loss <evaluation.json)" = "$(field loss <<<"$logged")" ] || fail "not the averages"
ranks 2 eval averaged --json --raw-weights >evaluation.json || fail "eval --raw-weights"
[ "$(field loss <evaluation.json)" != "$(field loss <<<"$logged")" ] || fail "not the raw weights"
expect 12 ranks 2 train "$tiny" run.root=. run.name=averaged run.on_existing=resume
grep -q 'train.average' output || fail "the key is not named: $(cat output)"

# Where the newest checkpoint is damaged, the next older one is named.
expect 0 "$program" train "$tiny" run.root=. run.name=rotten train.duration=4step \
  checkpoint.every=2step parallel.expert_ranks=1
shards=(rotten/ckpt/step-00000004/*.safetensors)
names_older() {
  local command
  for command in "$@"; do
    expect 20 "$program" $command
    grep -q "step-00000004.*; use the next older one, 'rotten/ckpt/step-00000002'" output ||
      fail "'$command' names no older one: $(cat output)"
  done
}
python3 - "${shards[0]}" <<'END' || fail 'no weight of the head in the first shard'
import json, sys
with open(sys.argv[1], "r+b") as file:
    length = int.from_bytes(file.read(8), "little")
    at = 8 + length + json.loads(file.read(length))["head.weight"]["data_offsets"][0]
    file.seek(at)
    byte = file.read(1)[0]
    file.seek(at)
    file.write(bytes([byte ^ 1]))
END
names_older 'eval rotten' 'ckpt digest rotten --override'
printf '\377\376' >>"${shards[0]}"
names_older 'eval rotten' 'ckpt digest rotten --override' 'ckpt digest rotten' 'inspect rotten' \
  'export rotten --to safetensors exported'
echo '{}' >rotten/ckpt/step-00000004/manifest.json
expect 20 ranks 2 eval rotten
grep -q "step-00000004.*; use the next older one, 'rotten/ckpt/step-00000002'" output ||
  fail "no older one: $(cat output)"
expect 20 "$program" train "$tiny" run.root=. run.name=from_rotten model.init_from=rotten \
  train.duration=1step parallel.expert_ranks=1
grep -q "use the next older one, 'rotten/ckpt/step-00000002'" output ||
  fail "no older one: $(cat output)"
expect 0 "$program" eval rotten/ckpt/step-00000002

# A processor without bfloat16 evaluates what one with it has trained.
narrow() { "$program" train "$tiny" run.root=. run.name=narrow train.duration=2step \
  parallel.expert_ranks=1 train.precision=bfloat16; }
if grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo; then
  expect 0 narrow
  expect 0 "$program" eval narrow train.precision=float32
else
  expect 11 narrow
  grep -q 'add train.precision=float32 to the command' output || fail "no way out: $(cat output)"
fi

# Names of files need not be UTF-8; JSON is.
cp "$tiny" $'\xe9.yaml'
expect 0 "$program" train $'\xe9.yaml' run.root=. run.name=bytes train.duration=1step \
  parallel.expert_ranks=1
mv bytes $'bytes-\xe9'
for command in eval 'ckpt ls' 'ckpt digest' inspect 'inspect --experts'; do
  "$program" $command $'bytes-\xe9' --json >bytes.json || fail "$command of a folder with odd bytes"
  python3 -c 'import json; json.load(open("bytes.json", encoding="utf-8"))' || fail "$command: JSON"
done

# The last step is evaluated before it is saved, so that it can be the best.
expect 0 ranks 2 train "$tiny" run.root=. run.name=short train.duration=20step evaluate.every=15step
"$program" ckpt ls short --json | python3 -c '
import json, sys
newest = json.load(sys.stdin)["checkpoints"][-1]
assert newest["step"] == 20 and newest["score"] is not None, newest'
