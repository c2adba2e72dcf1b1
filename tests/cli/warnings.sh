#!/usr/bin/env bash
# What is hardly meant is said, by check and at the start of a training, and stops neither.
source "$(dirname "$0")/common.sh"

expect 0 answered check "$tiny" data.source=cifar '~data.image_size' '~data.classes' \
  '~data.train' '~data.valid' '~data.augment' 'data.path=${env:NOT_SET}' model.patch=4
grep -q '^warning  *data.path: ${env:NOT_SET} is not set' output || fail "$(cat output)"
[ "$(tail -n 1 output)" = \
  'the recipe is good, but cannot run here yet: data.path: ${env:NOT_SET} is not set' ] || fail "$(cat output)"

expect 0 answered check "$tiny" --world 16 --json model.sparse.channel_moe.losses=[] \
  parallel.expert_ranks=4 train.accumulate=1
python3 - <<'EOF' || fail "$(cat output)"
import json
found = json.load(open("output"))["warnings"]
assert len(found) == 2, found
assert "moe_c: nothing balances" in found[0], found
assert found[1].startswith("train.group: a micro-step has 8 routing groups"), found
EOF

# The losses that a recipe leaves to the router are told, and stand in the resolved recipe.
expect 0 answered check "$tiny" model.sparse.channel_moe.losses=auto
grep -q '^note  *model.sparse.channel_moe.losses: auto stands for importance 0.005' output ||
  fail "$(cat output)"
! grep -q '^warning' output || fail "$(cat output)"
values() { sed 's/ *#.*//' output; }
expect 0 answered show "$tiny" model.sparse.channel_moe.losses=auto
values >with_auto
expect 0 answered show "$tiny"
diff <(values) with_auto || fail "auto is other losses than those of the recipe"

# So a run that was started with auto goes on with the list.
auto=(train "$tiny" parallel.expert_ranks=1 run.name=auto)
expect 0 "$program" "${auto[@]}" train.duration=2step model.sparse.channel_moe.losses=auto
grep -q 'losses: auto stands for importance' output || fail "$(cat output)"
expect 0 "$program" "${auto[@]}" train.duration=3step run.on_existing=resume

# With a peak of its own, as cores that other jobs use have none.
short=(train "$tiny" parallel.expert_ranks=1 train.duration=6step schedule.warmup=7step
  run.peak_tflops=1)
expect 0 "$program" "${short[@]}"
grep -q 'warning: schedule.warmup: 7step lies at or behind the end' output || fail "$(cat output)"
grep -q '"mfu":' runs/run/metrics.jsonl || fail "no mfu: $(cat runs/run/metrics.jsonl)"
grep -q '"mfu":' runs/run/summary.json || fail "no mfu in the summary"

# A resume that has nothing to do says so, and check before it.
expect 0 answered check "${short[@]:1}" train.duration=4step run.on_existing=resume
grep -q '^warning  *train.duration ends at step 4, and the checkpoint is of step 6: nothing' output ||
  fail "$(cat output)"
expect 0 "$program" "${short[@]}" train.duration=4step run.on_existing=resume
grep -q 'train.duration ends at step 4, and the checkpoint is of step 6: nothing is trained' output ||
  fail "$(cat output)"

expect 0 "$program" train "$tiny" parallel.expert_ranks=1 train.duration=1step run.name=few \
  data.train.samples=5
grep -q 'warning: data.train: 5 samples for a train.batch of 32: each step takes' output ||
  fail "$(cat output)"
