#!/usr/bin/env bash
# Gradients that are not finite: no rank applies them, the log names the tensor, and after
# train.max_nonfinite_steps in a row the job ends with 30; the checkpoint before goes on, and the
# message says which one does not.
source "$(dirname "$0")/common.sh"

train() { expect "$1" ranks 2 train "$tiny" run.root=. checkpoint.every=never evaluate.every=never "${@:2}"; }

train 75 run.stop_after=3step
before=$(digest run)
train 30 run.on_existing=resume optimizer.lr=1e38 train.max_nonfinite_steps=2
[ "$(grep -c 'error\[E30\]' output)" -eq 1 ] || fail "not one message: $(cat output)"
grep -qE 'error\[E30\] .*2 steps in a row had a loss or gradients that are not finite, the last the loss' \
  output || fail "what is not finite is not named: $(cat output)"
grep -q 'resume from a checkpoint before step 4 ' output || fail "no way on is told: $(cat output)"
for rank in 0 1; do
  [ "$(grep -c 'skipped on all ranks: the loss is not finite' "run/log/rank-0000$rank.log")" -eq 2 ] ||
    fail "rank $rank did not log two skipped steps: $(cat run/log/rank-0000$rank.log)"
done
grep -q 'error\[E30\]' run/log/rank-00001.log || fail "rank 1 did not log why it ended"
[ ! -e run/.lock ] || fail "a job that failed left the run folder's lock"
[ "$(grep -c '"skipped"' run/metrics.jsonl)" -eq 2 ] || fail "metrics.jsonl lacks skipped steps"

[ "$(digest run)" = "$before" ] || fail "the checkpoint before was touched"

# A checkpoint whose weights a large step has spoilt: no lower learning rate helps.
cp -r run spoilt
train 75 run.name=spoilt run.on_existing=resume optimizer.lr=1e38 run.stop_after=1step
train 30 run.name=spoilt run.on_existing=resume
grep -q 'resume from a checkpoint before step 4 ' output || fail "no way on is told: $(cat output)"
train 30 run.name=anew model.init_from=spoilt
grep -q 'no step has changed a weight yet: look at model.init_from' output ||
  fail "the spoilt weights are not suspected: $(cat output)"

train 0 run.on_existing=resume
ranks 2 train "$tiny" run.root=. run.name=whole checkpoint.every=never evaluate.every=never \
  >whole.txt 2>&1 || fail "$(cat whole.txt)"
[ "$(digest run)" = "$(digest whole)" ] || fail "going on from it gave another result"
