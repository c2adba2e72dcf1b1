#!/usr/bin/env bash
# What is hardly meant is said, by check and at the start of a training, and stops neither.
source "$(dirname "$0")/common.sh"

expect 0 "$program" check "$tiny" data.source=cifar '~data.image_size' '~data.classes' \
  '~data.train' '~data.valid' '~data.augment' 'data.path=${env:NOT_SET}' model.patch=4
grep -q '^warning  *data.path: ${env:NOT_SET} is not set' output || fail "$(cat output)"
tail -n 1 output | grep -q '^good' || fail "not good: $(cat output)"

expect 0 "$program" check "$tiny" --world 16 --json model.sparse.channel_moe.losses=[] \
  parallel.expert_ranks=4 train.accumulate=1
python3 - <<'EOF' || fail "$(cat output)"
import json
found = json.load(open("output"))["warnings"]
assert len(found) == 2, found
assert found[0].startswith("model.sparse.channel_moe.losses: nothing balances"), found
assert found[1].startswith("train.group: a micro-step has 8 routing groups"), found
EOF

short=(train "$tiny" parallel.expert_ranks=1 train.duration=6step schedule.warmup=7step)
expect 0 "$program" "${short[@]}"
grep -q 'warning: schedule.warmup: 7step is longer' output || fail "$(cat output)"
grep -q '"mfu":' runs/run/metrics.jsonl || fail "no mfu: $(cat runs/run/metrics.jsonl)"
grep -q '"mfu":' runs/run/summary.json || fail "no mfu in the summary"

# A resume that has nothing to do says so.
expect 0 "$program" "${short[@]}" train.duration=4step run.on_existing=resume
grep -q 'train.duration ends at step 4, and the checkpoint is of step 6: nothing is trained' output ||
  fail "$(cat output)"
