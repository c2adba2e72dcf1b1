#!/usr/bin/env bash
# Folded checkpoints evaluate as what they were folded from, and every command takes them.
# $1 is the program, the working directory an empty scratch.
source "$(dirname "$0")/common.sh"

sparse='sparsity={density: 0.5, pattern: {name: block, size: 4}, permutation: {name: learned, until: 50%}}'
expect 0 ranks 2 train "$tiny" run.root=. run.name=run "$sparse" checkpoint.keep_last=10

# While permutations are soft there is no order to fold.
expect 12 "$program" fold run/ckpt/step-00000010 folded
grep -q 'still soft at step 10' output || fail "not named: $(cat output)"
grep -q 'hard from 50% of the training on' output || fail "no time: $(cat output)"
expect 0 "$program" fold run folded
expect 21 "$program" fold run folded
expect 2 "$program" fold folded again
grep -q 'nothing to fold' output || fail "not named: $(cat output)"

expect 0 answered ckpt verify folded
expect 0 answered inspect folded --tensors
! grep -qE 'optimizer|sparsity.(index|soft)' output || fail "state of training: $(cat output)"
expect 0 answered inspect folded --sparsity -o folded.html
"$program" eval run --json >before.json
"$program" eval folded --json >after.json
python3 - <<'END' || fail "folding changed the evaluation: $(cat before.json after.json)"
import json
before, after = json.load(open("before.json")), json.load(open("after.json"))
for changing in ("path", "checkpoint", "seconds", "samples_per_second"):
    before.pop(changing, None), after.pop(changing, None)
assert before == after and before["samples"] == 60
END
expect 0 ranks 2 eval folded --json
expect 0 answered check folded/resolved.yaml --world 2
expect 0 ranks 2 train folded/resolved.yaml model.init_from=folded run.root=. run.name=tuned \
  train.duration=2step

# Masks and orders over a run, in numbers and as a page.
expect 0 answered inspect run --sparsity --json
python3 -c '
import json, sys
runs = json.load(open("output"))
assert runs["steps"] == [10, 20, 30, 40], runs["steps"]
moments = runs["layers"][0]["matrices"][0]["checkpoints"]
assert [m["permutation"]["soft"] for m in moments] == [True, False, False, False], moments
' || fail "inspect --sparsity: $(cat output)"
expect 0 answered inspect run --sparsity -o page.html
grep -q '<figure class="plot curves">' page.html || fail "the page has no curves"
expect 0 "$program" train "$tiny" run.root=. run.name=dense parallel.expert_ranks=1 train.duration=1step
expect 2 answered inspect dense --sparsity
grep -q 'has no sparse layers' output || fail "not named: $(cat output)"
