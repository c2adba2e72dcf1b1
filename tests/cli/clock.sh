#!/usr/bin/env bash
# A train.duration by the clock becomes a number of steps by a trial that leaves no trace: the run is
# that of so many steps, also after a stop. train.patience ends a run in order.
source "$(dirname "$0")/common.sh"

# State of all kinds that steps change: a router's bias, averages, shards of the optimizer's state.
stateful=(train.average=0.9 parallel.expert_ranks=1 parallel.shard_optimizer=true evaluate.every=25%
  'model.sparse.channel_moe={router: {name: sigmoid, k: 2, bias: {rate: 0.01}}, experts: {count: 4, hidden: 32}}')
train() { expect "$1" ranks 2 train "$tiny" run.root=. "${stateful[@]}" "${@:2}"; }

# exact RUN: its metrics without what depends on the machine or on the starts.
exact() {
  local machine='samples_per_second|mfu|data_wait|all_to_all_ms|memory_bytes|seconds|router_agreement'
  sed -E "s/,\"($machine)\":[^,}]*//g" "$1/metrics.jsonl" >"$1/exact"
}

train 75 run.name=clock train.duration=10s run.stop_after=2step
told=$(grep -oE 'train.duration 10s: [0-9]+ steps at [0-9.e+]+ ms per step and [0-9.e+-]+ s per evaluation, this machine.s speed now' output) ||
  fail "the steps are not told: $(cat output)"
grep -qF "$told" clock/log/rank-00000.log || fail "the log lacks the steps"
steps=$(sed -nE 's/^  duration: ([0-9]+)step +# 10s, timed when the run began$/\1/p' clock/resolved.yaml)
[ "${steps:-0}" -gt 2 ] || fail "resolved.yaml has no steps: $(cat clock/resolved.yaml)"
grep -q "train.duration 10s: $steps steps at" output || fail "other steps are told than resolved.yaml has"
grep -q '"duration_by_clock":"10s"' <<<"$("$program" inspect clock --json)" || fail "the checkpoint lacks the time"

expect 12 ranks 2 train "$tiny" run.root=. "${stateful[@]}" run.name=clock train.duration=3min run.on_existing=resume
grep -q "it trains for ${steps}step, timed for 10s" output || fail "the steps are not named: $(cat output)"
grep -q "resume it with train.duration=${steps}step" output || fail "no next step: $(cat output)"
train 10 run.name=clock train.duration=10s
! grep -q 'estimated by a short trial' output || fail "a folder that exists is refused after a trial only"

# Resumed by its resolved.yaml it keeps the time.
cp clock/resolved.yaml by_steps.yaml
expect 75 ranks 2 train by_steps.yaml run.on_existing=resume run.stop_after=1step
grep -q "^  duration: ${steps}step  *# 10s, timed when the run began$" clock/resolved.yaml ||
  fail "the time is lost: $(cat clock/resolved.yaml)"
train 0 run.name=clock train.duration=10s run.on_existing=resume
grep -q "train.duration 10s: $steps steps, as when the run began" output || fail "timed again: $(cat output)"
train 0 run.name=steps train.duration="${steps}step"
[ "$(digest clock)" = "$(digest steps)" ] || fail "another digest than that of $steps steps"
exact clock
exact steps
diff clock/exact steps/exact || fail "other metrics than those of $steps steps"
cmp clock/experts.jsonl steps/experts.jsonl || fail "other loads than those of $steps steps"
train 0 run.name=clock train.duration=10s run.on_existing=resume
grep -q "the run was finished already, at step $steps;" output || fail "$(cat output)"
expect 0 ranks 3 train clock/resolved.yaml run.root=. run.on_existing=resume
grep -q "the run was finished already, at step $steps;" output || fail "$(cat output)"

train 11 run.name=short train.duration=0.00001s
grep -qE 'train.duration: 0.00001s is too short at [0-9.]+ ms per step and ' output || fail "$(cat output)"
[ ! -e short ] || fail "a refusal left a folder"

expect 0 answered check "$tiny" train.duration=2s --memory
grep -q '^training  *2s with ' output || fail "$(cat output)"
grep -q '^note  *train.duration: a short trial at the start converts the time to steps' output || fail "$(cat output)"

# Weights that do not change have no better score.
train 0 run.name=patient optimizer.lr=1e-30 evaluate.every=6step train.patience=2 train.log_every=5step
grep -qE 'train.patience ended the training at step 18 of 40: 2 evaluations without a better top1 than [0-9.]+ of step 6' \
  output || fail "not told why it ended: $(cat output)"
python3 - <<'END' || fail "the summary is not that of step 18: $(cat patient/summary.json)"
import json
lines = [json.loads(line) for line in open("patient/metrics.jsonl")]
step, evaluation = ([r for r in lines if ("event" in r) == e][-1] for e in (False, True))
summary = json.load(open("patient/summary.json"))
assert summary["exit_code"] == 0 and summary["steps"] == step["step"] == evaluation["step"] == 18
assert abs(summary["loss"] - float.fromhex(step["loss_hex"])) < 1e-12, (summary, step)
assert summary["evaluation"]["top1"] == evaluation["top1"]
assert any("train.patience ended" in note for note in summary["notes"]), summary
END
before=$(sha256sum patient/{summary.json,resolved.yaml,env.json})
train 0 run.name=patient optimizer.lr=1e-30 evaluate.every=6step train.patience=2 run.on_existing=resume
grep -q 'no step is left at step 18, as train.patience ended the training' output || fail "$(cat output)"
grep -q 'to go on, raise or remove train.patience' output || fail "$(cat output)"
[ "$(sha256sum patient/{summary.json,resolved.yaml,env.json})" = "$before" ] || fail "its records were rewritten"
train 0 run.name=patient optimizer.lr=1e-30 evaluate.every=6step train.patience=3 run.on_existing=resume
grep -q 'ended the training at step 24 of 40' output || fail "$(cat output)"
